"""Training kinds of run: one file a trainer, ``jobs.py`` the entry points, ``nano/`` how the nano checkpoint is made."""

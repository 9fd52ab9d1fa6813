"""The same afternoon's work in this workbench and in Label Studio, side by side in one run: ``stepwiser bench label-studio``.

``tasks`` makes the solutions that both are given; ``side`` says what is timed; ``ours`` and ``label_studio`` do it;
``compare`` runs both and writes the table.
"""

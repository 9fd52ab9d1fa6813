"""The front room: pages, commands, worker. The only room that reads the environment.

Views read and write through ``db`` and queue runs; they never do long work and never import torch,
transformers, trl, vllm or ray (``tests/test_rooms.py`` holds it).
"""

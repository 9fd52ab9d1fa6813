"""Plain functions over plain values: one module a stage of the recipe.

Rules of the room: only ``pipeline*.py`` and ``runs.py`` import ``db``; everything else takes and returns plain
values. torch, transformers, trl, vllm and ray are imported inside the function that needs them. Nothing
here reads the environment.
"""

"""The recipes that come with the program (``training/recipes/*.yaml``), by kind. Not how one is checked or started."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import training
from engine.recipes import read_recipe

FOLDER = Path(training.__file__).parent / "recipes"


@dataclass(frozen=True)
class Shipped:
    """``name``: the file's, without its ending; ``about``: the comment at its head; ``data``: its fields."""

    name: str
    kind: str
    about: str
    data: dict[str, Any]


@lru_cache(maxsize=1)
def shipped_recipes() -> tuple[Shipped, ...]:
    """All of them, by name; those for nano, which run anywhere, before those for larger models."""
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        data = read_recipe(path)
        found.append(Shipped(path.stem, str(data.get("kind", "")), _about(path), data))
    return tuple(sorted(found, key=lambda one: ("nano" not in one.name, one.name)))


def shipped_for(kind: str) -> dict[str, Shipped]:
    """The shipped recipes of a kind of run, by name."""
    return {one.name: one for one in shipped_recipes() if one.kind == kind}


def _about(path: Path) -> str:
    """The comment lines before the first field, as one text."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    return " ".join(lines)

"""Checkpoints by name: the packaged nano ones, and every folder below ``home/checkpoints``. Not what is inside one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError

_NANO = Path(__file__).resolve().parents[1] / "training" / "nano"
PACKAGED = {
    "nano": _NANO / "checkpoint",
    "nano-plain": _NANO / "segmenter" / "plain_checkpoint",
    "nano-teacher": _NANO / "segmenter" / "teacher_checkpoint",
}
CARD = "stepwiser.json"
"""The file in a trained checkpoint that says which run made it, from what, and what it is for."""
_NAME = re.compile(r"[\w][\w.+-]*")


def checkpoints_folder(home: Path) -> Path:
    return home / "checkpoints"


def list_checkpoints(home: Path) -> list[str]:
    """Names that a recipe may use, packaged ones first; a folder whose name no recipe can hold is passed over."""
    folder = checkpoints_folder(home)
    found = folder.iterdir() if folder.is_dir() else ()
    own = sorted(p.name for p in found if _NAME.fullmatch(p.name) and (p / "config.json").is_file())
    packaged = [name for name, path in PACKAGED.items() if (path / "config.json").is_file()]
    return packaged + [name for name in own if name not in PACKAGED]


def check_name(name: str) -> str:
    """``name`` if it can name a checkpoint folder. Raises CheckpointError: a recipe never names a path."""
    if not _NAME.fullmatch(name):
        raise CheckpointError(f"{name!r} cannot name a checkpoint: use letters, digits, '.', '_', '+', '-'")
    return name


def resolve_checkpoint(name: str, home: Path) -> Path:
    """Folder of the checkpoint called ``name``. Raises CheckpointError that lists what there is."""
    check_name(name)
    path = PACKAGED.get(name) or checkpoints_folder(home) / name
    if not (path / "config.json").is_file():
        raise CheckpointError(
            f"there is no checkpoint {name!r}; there are {', '.join(list_checkpoints(home)) or 'none'}. "
            f"Put or link a folder with config.json, tokenizer and *.safetensors into {checkpoints_folder(home)}"
        )
    return path


def read_card(checkpoint: Path) -> dict[str, Any]:
    """The card of a checkpoint folder: run, base, role (judge, discriminative-judge, policy, segmenter), …; {} without one."""
    try:
        card = json.loads((checkpoint / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return card if isinstance(card, dict) else {}

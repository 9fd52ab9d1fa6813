r"""Frozen sets as files that trainers elsewhere read: JSON lines in TRL's data-set formats.

A generative judge's rows get ``\boxed{Positive}`` or ``\boxed{Negative}`` as their completion: what a verdict-only
judge writes. For GRPO the columns ``prompt`` and ``label`` are enough. Rationales are no part of a set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from engine.errors import TrainingError
from training.sets.frozen import PARTS, read_manifest, read_rows

Style = Literal["conversational", "prompt-completion", "messages"]
STYLES: tuple[Style, ...] = get_args(Style)
NEEDS: dict[str, tuple[str, ...]] = {
    "conversational": ("judge", "completion"),
    "prompt-completion": ("judge", "completion"),
    "messages": ("turns",),
}
"""Style → the forms of set that it can be made from."""
BOXED = {"+": "\\boxed{Positive}", "-": "\\boxed{Negative}"}


def styles_of(form: str) -> list[Style]:
    """The styles that a set of this form can be exported in."""
    return [style for style in STYLES if form in NEEDS[style]]


def export_set(home: Path, name: str, style: str, part: str, path: Path) -> int:
    """Write one part of a frozen set to ``path`` as JSON lines. Returns the number of rows.

    Written aside and renamed. Raises TrainingError on an unknown set, part or style, and on a form that has no such
    style.
    """
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in export_rows(home, name, style, part)]
    aside = path.with_name(path.name + ".part")
    try:
        aside.write_text("".join(lines), encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        raise TrainingError(f"{path} cannot be written ({error.strerror}); name another file") from error
    return len(lines)


def export_rows(home: Path, name: str, style: str, part: str = "train") -> Iterator[dict[str, Any]]:
    """The rows that ``export_set`` writes."""
    form = read_manifest(home, name).form
    if style not in NEEDS:
        raise TrainingError(f"there is no export style {style!r}; there are {', '.join(STYLES)}")
    if form not in NEEDS[style]:
        raise TrainingError(
            f"training set {name!r} has the form {form!r}, which has no style {style!r}; "
            f"it can be exported as {', '.join(styles_of(form))} ({', '.join(PARTS)})"
        )
    convert: Callable[[dict[str, Any]], dict[str, Any]] = {
        "conversational": _conversational,
        "prompt-completion": _plain,
        "messages": _messages,
    }[style]
    for row in read_rows(home, name, part, form):
        yield convert(row)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    if "completion" in row:
        return {"prompt": row["prompt"], "completion": row["completion"]}
    return {"prompt": row["prompt"], "completion": BOXED[row["label"]], "label": row["label"]}


def _conversational(row: dict[str, Any]) -> dict[str, Any]:
    plain = _plain(row)
    return plain | {
        "prompt": [{"role": "user", "content": plain["prompt"]}],
        "completion": [{"role": "assistant", "content": plain["completion"]}],
    }


def _messages(row: dict[str, Any]) -> dict[str, Any]:
    """Every assistant turn is one of the set's examples: a trainer of chats learns all of them. Chunks that are none
    join the next user turn; those behind the last example are left out."""
    messages: list[dict[str, str]] = []
    waiting = [row["problem"]]
    for chunk, label, learnt in zip(row["chunks"], row["labels"], row["loss"], strict=True):
        waiting.append(chunk)
        if learnt:
            messages.append({"role": "user", "content": "\n\n".join(waiting)})
            messages.append({"role": "assistant", "content": label})
            waiting = []
    return {"messages": messages}

"""A run's own examples, kept beside the run so that a resumed run trains on the same ones. Not: frozen sets."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from engine.errors import TrainingError
from training.sets.examples import Example, TrainingSet


def write_set(data: TrainingSet, path: Path) -> None:
    """Keep a set as JSON lines (counts first), written aside and renamed."""
    lines = [json.dumps({"counts": data.counts})]
    for part, examples in (("train", data.train), ("held_out", data.held_out)):
        lines += [json.dumps({"part": part, **asdict(e)}, ensure_ascii=False) for e in examples]
    aside = path.with_suffix(".writing")
    aside.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(aside, path)


def read_set(path: Path) -> TrainingSet:
    """The set that ``write_set`` kept. Raises TrainingError if the file is not one."""
    parts: dict[str, list[Example]] = {"train": [], "held_out": []}
    try:
        with path.open(encoding="utf-8") as lines:
            counts = json.loads(next(lines))["counts"]
            for line in lines:
                row = json.loads(line)
                parts[row.pop("part")].append(Example(**row))
    except (OSError, StopIteration, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"{path}: not a kept training set ({error!r}); delete it to choose the examples anew"
        ) from error
    return TrainingSet(tuple(parts["train"]), tuple(parts["held_out"]), counts)

"""Frozen sets below ``home/sets``: written once in one rename, with a manifest, and checked against it when read.

A set's ``form`` says what its rows are: ``judge`` (a prompt and a label a chunk), ``turns`` (a solution's chunks with
their labels), ``completion`` (prompt and completion). Which rows a set has is decided elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.errors import TrainingError
from engine.judge import JudgePrompt
from training.sets.examples import Example, TrainingSet

Form = Literal["judge", "turns", "completion"]
PARTS = ("train", "held_out")
MANIFEST = "manifest.json"
_NAME = re.compile(r"\w[\w.+-]{0,99}")


class Rows(BaseModel):
    """One file of a set."""

    model_config = ConfigDict(frozen=True)
    rows: int
    bytes: int
    sha256: str


class Balance(BaseModel):
    """How many + and - stand at one place (0: the first chunk), or in a whole part."""

    model_config = ConfigDict(frozen=True)
    position: int | None = None
    positive: int = 0
    negative: int = 0


class Manifest(BaseModel):
    """What a set is, how it was made, and of what. Fields that a form has no use for are empty."""

    model_config = ConfigDict(frozen=True)
    name: str
    form: Form
    run: str = Field(description="The run that made it, by its uid")
    run_id: int | None = Field(None, description="The run's number in its store")
    made_at: datetime
    recipe: dict[str, Any] = Field(description="The resolved recipe")
    counts: dict[str, int] = Field(description="Chosen and left out, by reason")
    classes: dict[str, Balance] = Field(default_factory=dict, description="+ and - in train and held_out")
    positions: dict[str, list[Balance]] = Field(default_factory=dict, description="The same by place")
    from_people: int = Field(0, description="Labels in the files that a person gave")
    from_rule: int = Field(0, description="Labels in the files that follow from rollouts")
    from_judge: int = Field(0, description="Labels in the files that a judge voted for")
    problems: dict[str, int] = Field(
        default_factory=dict, description="Problems in train and held_out, and near_duplicates kept together"
    )
    datasets: dict[str, int] = Field(default_factory=dict, description="Labels by data set of their problem")
    policies: dict[str, int] = Field(default_factory=dict, description="Labels by policy of their solution")
    prompt_hash: str | None = Field(None, description="Hash of the judge's prompt")
    measures: dict[str, float] = Field(
        default_factory=dict, description="What was measured while it was made, such as acceptance rates"
    )
    files: dict[str, Rows]
    hash: str = Field(description="sha256 over the files' hashes: the same rows have the same one")


def sets_folder(home: Path) -> Path:
    return home / "sets"


def check_set_name(name: str) -> str:
    """``name`` if it can name a set. Raises TrainingError: a recipe never names a path."""
    if not _NAME.fullmatch(name):
        raise TrainingError(
            f"{name!r} cannot name a training set: use letters, digits, '.', '_', '+', '-', 100 at most"
        )
    return name


def list_sets(home: Path) -> list[Manifest]:
    """Manifests of all frozen sets, newest first; a folder without a readable one is left out."""
    folder = sets_folder(home)
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if _NAME.fullmatch(path.name) and (path / MANIFEST).is_file():
            try:
                found.append(read_manifest(home, path.name))
            except TrainingError:
                continue  # its own page or command names what is wrong with it
    return sorted(found, key=lambda manifest: manifest.made_at, reverse=True)


def read_manifest(home: Path, name: str) -> Manifest:
    """The manifest of the set called ``name``. Raises TrainingError that lists what there is."""
    path = sets_folder(home) / check_set_name(name) / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        folder = sets_folder(home)
        there = sorted(p.parent.name for p in folder.glob(f"*/{MANIFEST}")) if folder.is_dir() else []
        raise TrainingError(
            f"there is no training set {name!r}; there are {', '.join(there) or 'none'}. Build it first"
        ) from None
    except (OSError, ValidationError) as error:
        raise TrainingError(f"{path}: not a training set's manifest ({error}); build the set anew") from error


def check_prompt(manifest: Manifest, prompt: JudgePrompt) -> None:
    """Raise TrainingError where the set's prompts were filled from another text: the checkpoint's card would name a
    prompt that it was not trained with."""
    if manifest.prompt_hash not in (None, prompt.hash):
        raise TrainingError(
            f"training set {manifest.name!r} was filled from the prompt {manifest.recipe.get('prompt')!r} "
            f"({manifest.prompt_hash[:8]}), and the recipe's is {prompt.name!r} ({prompt.hash[:8]}): set prompt to the "
            "set's own, or build a set with this one"
        )


def made_by(home: Path, name: str, run: str) -> Manifest | None:
    """The set called ``name`` if this run made it, None if there is none yet. Raises TrainingError if another has it."""
    target = sets_folder(home) / check_set_name(name)
    if not target.exists():
        return None
    manifest = read_manifest(home, name)
    if manifest.run != run:
        raise TrainingError(
            f"there is already a training set {name!r}, made by another run on {manifest.made_at:%Y-%m-%d}; "
            "a frozen set is never changed: take another name"
        )
    return manifest


def freeze(
    home: Path,
    name: str,
    form: Form,
    parts: Mapping[str, Iterable[Mapping[str, Any]]],
    *,
    run: str,
    **facts: Any,
) -> Manifest:
    """Write a set (``parts``: rows of ``train`` and ``held_out``) and return its manifest.

    ``facts``: the manifest's other fields; ``recipe`` and ``counts`` are needed. What this run froze before under the
    name stays as it is. Raises TrainingError if another run's set has the name, or the disk is full.
    """
    if former := made_by(home, name, run):
        return former
    aside = sets_folder(home) / f".{name}.{run}.writing"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        files = {f"{part}.jsonl": _write(aside / f"{part}.jsonl", parts.get(part, ())) for part in PARTS}
        manifest = Manifest(
            name=name, form=form, run=run, made_at=datetime.now(UTC), files=files, hash=_hash(files), **facts
        )
        (aside / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        # a folder that is there by now makes this fail instead of being replaced
        os.rename(aside, sets_folder(home) / name)
    except OSError as error:
        if (sets_folder(home) / name).exists():
            raise TrainingError(
                f"a training set {name!r} appeared while this one was made; take another name"
            ) from error
        raise TrainingError(
            f"the training set {name!r} could not be written below {sets_folder(home)} ({error.strerror}); "
            "nothing of it is left there"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return manifest


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Rows:
    digest, count, size = hashlib.sha256(), 0, 0
    with path.open("wb") as out:
        for row in rows:
            line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
            out.write(line)
            digest.update(line)
            count, size = count + 1, size + len(line)
        out.flush()
        os.fsync(out.fileno())
    return Rows(rows=count, bytes=size, sha256=digest.hexdigest())


def _hash(files: Mapping[str, Rows]) -> str:
    return hashlib.sha256("".join(f"{n} {files[n].sha256}\n" for n in sorted(files)).encode()).hexdigest()


def read_rows(home: Path, name: str, part: str, form: Form | None = None) -> list[dict[str, Any]]:
    """The rows of one part, ``train`` or ``held_out``. ``form``: what the set must be.

    Raises TrainingError on an unknown set or part, another form, and files that are not what was frozen.
    """
    manifest = read_manifest(home, name)
    if form is not None and manifest.form != form:
        raise TrainingError(
            f"training set {name!r} has the form {manifest.form!r}, and {form!r} is needed here; build one of that form"
        )
    file = f"{part}.jsonl"
    if file not in manifest.files:
        raise TrainingError(f"training set {name!r} has no part {part!r}; there are {', '.join(PARTS)}")
    path = sets_folder(home) / name / file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TrainingError(f"{path} cannot be read ({error.strerror}); build the set anew") from error
    if hashlib.sha256(data).hexdigest() != manifest.files[file].sha256:
        raise TrainingError(
            f"{path} is not what was frozen on {manifest.made_at:%Y-%m-%d} (another sha256): "
            "it was changed or damaged; build the set anew"
        )
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


def read_frozen(home: Path, name: str) -> TrainingSet:
    """The frozen set of form ``judge`` called ``name``. Raises TrainingError as ``read_rows`` does."""
    known = {field.name for field in fields(Example)}
    parts = {
        part: tuple(
            Example(**{key: value for key, value in row.items() if key in known})
            for row in read_rows(home, name, part, "judge")
        )
        for part in PARTS
    }
    return TrainingSet(parts["train"], parts["held_out"], read_manifest(home, name).counts)

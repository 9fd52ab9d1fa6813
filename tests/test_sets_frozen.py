"""A frozen set's folder: written once, checked when read, and readable. Not: how one is built (test_sets_build)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.errors import TrainingError
from training.sets import (
    freeze,
    list_sets,
    read_manifest,
    read_rows,
    sets_folder,
)
from training.sets.frozen import made_by

ROWS = [{"problem_id": 1, "prompt": "line\nbreak \u2028 “quoted” 鸡兔", "completion": "x"}, {"problem_id": 2}]


def frozen(home: Path, name: str = "s", run: str = "r1", rows: Any = ROWS) -> Any:
    return freeze(
        home,
        name,
        "completion",
        {"train": rows, "held_out": rows[:1]},
        run=run,
        recipe={"a": 1},
        counts={"train": 2},
    )


def test_a_frozen_set_reads_back_as_it_was_and_its_manifest_has_the_files_hashes(tmp_path: Path) -> None:
    manifest = frozen(tmp_path)
    assert read_manifest(tmp_path, "s") == manifest
    assert read_rows(tmp_path, "s", "train", "completion") == ROWS
    assert read_rows(tmp_path, "s", "held_out") == ROWS[:1]
    folder = sets_folder(tmp_path) / "s"
    assert sorted(p.name for p in folder.iterdir()) == ["held_out.jsonl", "manifest.json", "train.jsonl"]
    for name, facts in manifest.files.items():
        data = (folder / name).read_bytes()
        assert facts.sha256 == hashlib.sha256(data).hexdigest() and facts.bytes == len(data)
        assert facts.rows == data.count(b"\n")
    assert (manifest.recipe, manifest.counts, manifest.form) == ({"a": 1}, {"train": 2}, "completion")
    assert frozen(tmp_path, "again", "r2").hash == manifest.hash, "the same rows have the same hash"
    assert frozen(tmp_path, "other", "r3", ROWS[::-1]).hash != manifest.hash
    assert [m.name for m in list_sets(tmp_path)] == ["other", "again", "s"]
    assert list_sets(tmp_path / "nothing") == []


def test_a_changed_file_is_refused_by_the_manifests_hash(tmp_path: Path) -> None:
    frozen(tmp_path)
    path = sets_folder(tmp_path) / "s" / "train.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"x"', b'"y"'))
    with pytest.raises(TrainingError, match=r"train.jsonl is not what was frozen .*another sha256"):
        read_rows(tmp_path, "s", "train")
    assert read_rows(tmp_path, "s", "held_out") == ROWS[:1], "the other file is as it was"
    path.unlink()
    with pytest.raises(TrainingError, match=r"train.jsonl cannot be read"):
        read_rows(tmp_path, "s", "train")


def test_a_name_that_another_run_froze_is_refused_and_the_same_run_keeps_its_set(tmp_path: Path) -> None:
    first = frozen(tmp_path)
    with pytest.raises(TrainingError, match="already a training set 's', made by another run"):
        frozen(tmp_path, run="r2", rows=ROWS[::-1])
    assert frozen(tmp_path, rows=ROWS[::-1]) == first, "frozen is frozen, also for the run that made it"
    assert read_rows(tmp_path, "s", "train") == ROWS
    assert made_by(tmp_path, "new", "r1") is None


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    frozen(tmp_path)
    with pytest.raises(TrainingError, match=r"no training set 'x'; there are s\. "):
        read_manifest(tmp_path, "x")
    with pytest.raises(TrainingError, match="cannot name a training set"):
        read_manifest(tmp_path, "../s")
    with pytest.raises(TrainingError, match="form 'completion', and 'judge' is needed"):
        read_rows(tmp_path, "s", "train", "judge")
    with pytest.raises(TrainingError, match="no part 'test'; there are train, held_out"):
        read_rows(tmp_path, "s", "test")
    (sets_folder(tmp_path) / "s" / "manifest.json").write_text('{"name": ', encoding="utf-8")
    with pytest.raises(TrainingError, match="not a training set's manifest"):
        read_manifest(tmp_path, "s")
    assert list_sets(tmp_path) == []


def test_a_broken_off_write_leaves_no_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        yield ROWS[0]
        raise TrainingError("gone")

    with pytest.raises(TrainingError, match="gone"):
        freeze(tmp_path, "s", "completion", {"train": broken()}, run="r1", recipe={}, counts={})
    assert list(sets_folder(tmp_path).iterdir()) == []

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            TrainingError, match=r"could not be written .*No space left.*nothing of it is left"
        ):
            frozen(tmp_path)
    assert list(sets_folder(tmp_path).iterdir()) == []
    assert frozen(tmp_path).name == "s"


def test_manifests_are_json_that_people_can_read(tmp_path: Path) -> None:
    frozen(tmp_path)
    data = json.loads((sets_folder(tmp_path) / "s" / "manifest.json").read_text(encoding="utf-8"))
    assert data["files"]["train.jsonl"]["rows"] == 2 and data["made_at"].endswith("Z")

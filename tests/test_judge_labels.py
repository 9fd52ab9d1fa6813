"""Labels from a prompted judge, a third source beside rollouts and people: how it is asked, and sets of its votes.

Sets where a judge must repeat the rule's label: test_sets_build.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from engine.errors import RecipeError, TrainingError
from engine.llm.scripted import ScriptedLLM
from engine.pipeline.judging import judge_with
from engine.pipeline.sampling import sample_with
from engine.recipes import resolve
from engine.runs import RunContext
from tests import little_world as little
from tests.labelled_store import store_with
from tests.store_world import add_judge, judgment
from training.sets import read_manifest, read_rows
from training.sets.build import run
from training.sets.preview import preview
from training.sets.recipe import BuildSetRecipe

PAIRS = [(16, 0), (0, 16), (8, 8), (16, 16)]


@pytest.fixture(autouse=True)
def characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters count as tokens: no tokenizer is loaded."""
    monkeypatch.setattr("training.sets.build.tokens_of", lambda checkpoint: lambda texts: [*map(len, texts)])


def recipe(**fields: Any) -> BuildSetRecipe:
    labels = {"balance": False, "held_out": 0, "voted_by": "asked"} | fields.pop("labels", {})
    return resolve(
        BuildSetRecipe, {"kind": "build-set", "name": "s", "select": {}, "labels": labels, **fields}
    )


def built(store: Store, home: Path, **fields: Any) -> None:
    asked = recipe(**fields)
    run_id = store.start_run("build-set", asked.model_dump(mode="json"), "ada", pid=1)
    run(RunContext(store, run_id, 1, asked, home, "ada"))


@pytest.mark.parametrize("form", ["judge", "turns"])
def test_labels_that_a_judge_votes_for_need_no_rollouts_and_people_override_them(
    form: str, tmp_path: Path
) -> None:
    store, chunks = store_with(tmp_path, PAIRS)
    judge = add_judge(store, "asked")
    votes = {chunk: "negative" if place % 3 == 2 else "positive" for place, chunk in enumerate(chunks)}
    silent, tied, person = chunks[0], chunks[4], chunks[8]
    rows = [judgment(judge, chunk, 0, votes[chunk]) for chunk in chunks if chunk != silent]
    rows.append(judgment(judge, tied, 1, "negative"))
    store.add_judgments(rows, run_id=store.runs(1)[0].id)
    store.add_review(person, action_id="a", actor="ada", verdict=1)
    store.set_chunk_prefixes([(chunk, None) for chunk in chunks])  # never rolled out
    built(store, tmp_path, form=form, labels={"min_confidence": 1.0})
    manifest, found = read_manifest(tmp_path, "s"), read_rows(tmp_path, "s", "train")
    expected = {c: "+" if said == "positive" else "-" for c, said in votes.items() if c not in (silent, tied)}
    expected[person] = "+"
    if form == "judge":
        assert {row["chunk_id"]: row["label"] for row in found} == expected
        assert {row["chunk_id"] for row in found if row["source"] == "reviewed"} == {person}
        assert {row["source"] for row in found} == {"judge", "reviewed"}
        assert {row["confidence"] for row in found} == {None}
    else:
        labels = [sign for row in sorted(found, key=lambda r: r["trajectory_id"]) for sign in row["labels"]]
        assert labels == [expected.get(chunk) for chunk in chunks]
    counts, voted = manifest.counts, len(chunks) - 3
    assert (counts["by_judge"], counts["reviewed"], counts["unvoted"]) == (voted, 1, 2)
    assert counts["by_rule"] == counts["unlabelled"] == counts["unsure"] == 0
    assert (manifest.from_judge, manifest.from_people, manifest.from_rule) == (voted, 1, 0)
    seen = preview(store, recipe(form=form))
    assert seen.counts["by_judge"] == voted and seen.mean_confidence is None and seen.refusal is None


def test_a_judge_that_voted_on_nothing_or_is_asked_twice_is_named(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, PAIRS)
    add_judge(store, "asked")
    with pytest.raises(
        TrainingError, match=rf"{len(chunks)} not voted on by asked, .*let asked judge them first"
    ):
        built(store, tmp_path)
    with pytest.raises(TrainingError, match="no judge 'nobody'; there are 'asked'"):
        built(store, tmp_path, labels={"voted_by": "nobody"})
    with pytest.raises(RecipeError, match="voted_by and agree_with are both set"):
        recipe(labels={"agree_with": "asked"})


def test_a_prompted_judge_is_asked_in_its_chat_s_turn_and_is_another_judge_than_in_plain_text(
    tmp_path: Path,
) -> None:
    store, asked = little.open_little(tmp_path), []

    def judge(prompt: str, seed: int) -> str:
        asked.append(prompt)
        return little.judge(prompt, seed)

    sample_with(little.context(store, little.sample_recipe(n=2), tmp_path), little.scripted_policy())
    llm = ScriptedLLM(judge, name="prompted")
    for chat in (True, False):
        judge_with(little.context(store, little.judge_recipe(k=2, chat=chat), tmp_path), llm)
        in_turn = [text.startswith("user: ") and text.endswith("\nassistant: ") for text in asked]
        assert asked and (all(in_turn) if chat else not any(in_turn))
        asked.clear()
    first, second = store.judges()
    assert (first.name, second.name) == ("prompted · judge_nano · chat", "prompted · judge_nano")
    assert first.sampling["ends_turn"] and "ends_turn" not in second.sampling

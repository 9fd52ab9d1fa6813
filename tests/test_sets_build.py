"""The build-set kind: what it freezes of a store, whose labels, what it drops and refuses; trainers that read a set;
leaks. Not: a frozen set's folder (test_sets_frozen).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from db.rows import NewProblem
from db.store import Store
from engine.checkpoints import resolve_checkpoint
from engine.errors import CheckpointError, InputError, RecipeError, TrainingError
from engine.recipes import read_recipe, resolve
from engine.runs import RunContext
from tests.labelled_store import store_with
from tests.little_world import context
from tests.store_world import add_judge, judgment
from training.jobs import TrainJudgeRecipe
from training.sets import (
    BuildSetRecipe,
    check_no_leak,
    check_set_is_clear_of,
    examples_for,
    leaks,
    list_sets,
    preview,
    read_frozen,
    read_manifest,
    read_rows,
    rows_for,
)
from training.sets.build import run, tokens_of

PAIRS = [(16, 2), (1, 12), (16, 14), (2, 2), (8, 3), (7, 7)] * 3


@pytest.fixture(autouse=True)
def characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters count as tokens, so that transformers is loaded only where the tokenizer is what is tested."""
    monkeypatch.setattr("training.sets.build.tokens_of", lambda checkpoint: lengths)


def recipe(**fields: Any) -> BuildSetRecipe:
    labels = {"held_out": 0.25, "min_confidence": 0.0, **fields.pop("labels", {})}
    return resolve(BuildSetRecipe, {"name": "s", "select": {"policy": "human"}, "labels": labels, **fields})


def built(store: Store, home: Path, **fields: Any) -> dict[str, Any]:
    return run(context(store, recipe(**fields), home))


def test_build_freezes_what_the_recipe_asks_for(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, PAIRS)
    ctx = context(store, recipe(), tmp_path)
    result = run(ctx)
    manifest = read_manifest(tmp_path, "s")
    assert result["set"] == "s" and result["hash"] == manifest.hash and result["counts"] == manifest.counts
    assert manifest.run == store.run(ctx.run_id).uid and manifest.run_id == ctx.run_id
    assert manifest.recipe == ctx.recipe.model_dump(mode="json")
    train, held_out = (read_rows(tmp_path, "s", part, "judge") for part in ("train", "held_out"))
    assert {"chunk_id", "problem_id", "position", "prompt", "label", "source", "confidence"} <= set(train[0])
    for rows, part in ((train, "train"), (held_out, "held_out")):
        signs = [row["label"] for row in rows]
        assert signs.count("+") == signs.count("-") == len(rows) // 2 > 0
        assert (manifest.classes[part].positive, manifest.classes[part].negative) == (len(rows) // 2,) * 2
        assert sum(b.positive + b.negative for b in manifest.positions[part]) == len(rows)
        assert manifest.problems[part] == len({row["problem_id"] for row in rows})
        assert {row["position"] for row in rows} == {b.position for b in manifest.positions[part]}
    assert not {row["problem_id"] for row in train} & {row["problem_id"] for row in held_out}
    assert manifest.datasets == {"d": len(train) + len(held_out)} and manifest.policies == {
        "human": len(train) + len(held_out)
    }
    assert (
        "step 1 of" in train[0]["prompt"]
        or "step 0 of" in train[0]["prompt"]
        or "step 2 of" in train[0]["prompt"]
    )
    assert all(0 <= row["confidence"] <= 1 for row in train)
    assert store.run(ctx.run_id).prompt_hashes["judge_nano"] == manifest.prompt_hash
    data = read_frozen(tmp_path, "s")
    assert [e.chunk_id for e in data.train] == [
        row["chunk_id"] for row in train
    ] and data.counts == manifest.counts


def test_a_build_with_the_same_recipe_has_the_same_rows_and_a_resumed_one_its_own(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, PAIRS)
    ctx = context(store, recipe(), tmp_path)
    first = run(ctx)
    assert built(store, tmp_path, name="t")["hash"] == first["hash"]
    assert built(store, tmp_path, name="u", seed=1)["hash"] != first["hash"]
    store.add_review(chunks[0], action_id="a", actor="ada", verdict=-1)
    assert run(ctx) == first, "what was frozen stays, whatever was reviewed since"
    with pytest.raises(TrainingError, match="already a training set 's'"):
        built(store, tmp_path)


def test_a_build_that_is_stopped_freezes_nothing(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, PAIRS)
    ctx: RunContext[Any] = context(store, recipe(), tmp_path)
    ctx.stop()
    assert run(ctx) == {} and list_sets(tmp_path) == []


def test_peoples_share_of_the_labels_is_in_the_manifest(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, PAIRS)
    for place, chunk in enumerate(chunks[:9]):
        store.add_review(chunk, action_id=f"a{place}", actor="ada", verdict=-1)
    result = built(store, tmp_path, labels={"balance": False})
    manifest = read_manifest(tmp_path, "s")
    rows = [row for part in ("train", "held_out") for row in read_rows(tmp_path, "s", part)]
    by_people = [row for row in rows if row["source"] == "reviewed"]
    assert result["from_people"] == manifest.from_people == len(by_people) > 0
    assert manifest.from_rule == len(rows) - len(by_people)
    assert {row["chunk_id"] for row in by_people} <= set(chunks[:9])
    assert {row["label"] for row in by_people} == {"-"} and {row["confidence"] for row in by_people} == {None}
    without = built(store, tmp_path, name="t", labels={"balance": False, "reviews": False})
    assert without["from_people"] == 0


def test_only_labels_that_a_judge_repeats(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, PAIRS)
    plain = {row["chunk_id"]: row["label"] for row in all_rows(store, tmp_path, "plain")}
    judge, other = add_judge(store, "asked"), add_judge(store, "other", "e")
    word = {"+": "positive", "-": "negative"}
    flipped = {"+": "negative", "-": "positive"}
    rows = []
    for place, chunk in enumerate(chunks):
        said = (word if place % 3 == 0 else flipped)[plain[chunk]]
        if place % 3 < 2:  # every third chunk has no judgment
            rows += [judgment(judge, chunk, 0, said), judgment(judge, chunk, 1, None)]
        rows.append(judgment(other, chunk, 0, flipped[plain[chunk]]))
    store.add_judgments(rows, run_id=store.runs(1)[0].id)
    person = chunks[1]  # contradicted by the judge; a person's label stays
    store.add_review(person, action_id="a", actor="ada", verdict=1 if plain[person] == "+" else -1)
    kept = all_rows(store, tmp_path, "agreed", agree_with="asked")
    assert {row["chunk_id"] for row in kept} == {c for i, c in enumerate(chunks) if i % 3 == 0 or c == person}
    counts = read_manifest(tmp_path, "agreed").counts
    assert counts["contradicted"] == len(chunks) // 3 - 1 and counts["unvoted"] == len(chunks) // 3
    with pytest.raises(TrainingError, match="no judge 'nobody'; there are 'asked', 'other'"):
        built(store, tmp_path, name="x", labels={"agree_with": "nobody"})
    with pytest.raises(TrainingError, match=r"54 contradicted and 0 not voted on by other, "):
        built(store, tmp_path, name="x", labels={"agree_with": "other", "reviews": False})


def all_rows(store: Store, home: Path, name: str, **labels: Any) -> list[dict[str, Any]]:
    built(store, home, name=name, labels={"held_out": 0, "balance": False, **labels})
    return read_rows(home, name, "train")


def test_the_token_filter_reports_what_it_drops_by_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.sets.build.tokens_of", tokens_of)
    store, _ = store_with(tmp_path, PAIRS)
    rows = all_rows(store, tmp_path, "whole")
    lengths = dict(
        zip(
            [row["chunk_id"] for row in rows],
            tokens_of(resolve_checkpoint("nano", tmp_path))([row["prompt"] for row in rows]),
            strict=True,
        )
    )
    limit = sorted(lengths.values())[len(rows) // 2]
    short = built(store, tmp_path, name="short", labels={"held_out": 0, "balance": False}, max_tokens=limit)
    dropped = [row["label"] for row in rows if lengths[row["chunk_id"]] > limit]
    assert dropped and short["counts"]["too_long"] == len(dropped)
    assert short["counts"]["too_long_positive"] == dropped.count("+")
    assert short["counts"]["too_long_negative"] == dropped.count("-")
    assert short["counts"]["train"] == len(rows) - len(dropped)
    with pytest.raises(
        TrainingError, match=rf"no chunk can be trained on .*{len(rows)} prompts over 1 tokens"
    ):
        built(store, tmp_path, name="none", max_tokens=1)


def test_empty_and_one_class_sets_say_why(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [(16, 14), (15, 14)])
    with pytest.raises(TrainingError, match=r"no chunk labelled '-' is left .*6 \+ and 0 -"):
        built(store, tmp_path)
    with pytest.raises(TrainingError, match=r"no trajectory that fits select .*policy .nobody."):
        built(store, tmp_path, select={"policy": "nobody"})
    assert list_sets(tmp_path) == []


def test_turns_hold_every_known_label_and_say_which_are_learnt(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, PAIRS)
    built(store, tmp_path, name="judge", labels={"min_confidence": 0.7})
    result = built(store, tmp_path, name="turns", form="turns", labels={"min_confidence": 0.7})
    assert result["counts"] == read_manifest(tmp_path, "judge").counts
    known = {row["chunk_id"]: row["label"] for row in all_rows(store, tmp_path, "all")}
    for part in ("train", "held_out"):
        rows = read_rows(tmp_path, "turns", part, "turns")
        learnt = [
            (c, s)
            for row in rows
            for c, s, loss in zip(ids(store, row), row["labels"], row["loss"], strict=True)
            if loss
        ]
        as_judge = [(row["chunk_id"], row["label"]) for row in read_rows(tmp_path, "judge", part)]
        assert sorted(learnt) == sorted(as_judge), "the same examples in either form"
        for row in rows:
            assert row["labels"] == [known[c] for c in ids(store, row)]
            assert row["chunks"] == [f"step {k} of {row['problem'][8:-1]}" for k in range(3)]
            assert any(row["loss"])


def test_nothing_after_the_first_negative_is_learnt_where_asked(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, PAIRS)
    asked = {"held_out": 0, "balance": False, "until_first_negative": True}
    counts = built(store, tmp_path, form="turns", labels=asked)["counts"]
    assert counts["after_negative"] > 0
    for row in read_rows(tmp_path, "s", "train", "turns"):
        end = row["labels"].index("-") + 1 if "-" in row["labels"] else 3
        assert row["loss"] == [True] * end + [False] * (3 - end) and None not in row["labels"]
    assert preview(store, recipe(labels=asked)).counts["after_negative"] == counts["after_negative"]


def ids(store: Store, row: dict[str, Any]) -> list[int]:
    return [chunk.id for chunk in store.stage_trajectories([row["trajectory_id"]])[0].chunks]


def test_a_recipe_is_checked_before_it_is_queued(tmp_path: Path) -> None:
    recipe().check(tmp_path)
    for fields, error, message in (
        ({"name": "a/b"}, TrainingError, "cannot name a training set"),
        ({"labels": {"rule": "rel-magic"}}, RecipeError, "rel-magic"),
        ({"prompt": "nothing"}, InputError, "nothing"),
        ({"tokenizer": "nothing"}, CheckpointError, "no checkpoint 'nothing'"),
    ):
        with pytest.raises(error, match=message):
            recipe(**fields).check(tmp_path)


def test_dry_run_set_nano(tmp_path: Path) -> None:
    from app.kinds import kind_of, resolve_recipe

    path = Path(__file__).resolve().parents[1] / "training" / "recipes" / "set-nano.yaml"
    data = read_recipe(path)
    resolved = resolve_recipe("build-set", data)
    resolved.check(tmp_path)
    assert kind_of("build-set").load() is run
    # the recipe writes every choice of labels out: none is left to a default
    assert set(data["labels"]) == set(resolved.labels.model_dump()) - {"agree_with", "agree_on", "voted_by"}


# ---- trainers


def trainer_recipe(**fields: Any) -> Any:
    labels = {"held_out": 0.25, "min_confidence": 0.0}
    return resolve(TrainJudgeRecipe, {"select": {"policy": "human"}, "labels": labels, **fields})


def lengths(texts: Any) -> list[int]:
    return [len(text) for text in texts]


def test_a_trainer_reads_a_frozen_set_or_chooses_the_same_from_the_store(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, PAIRS)
    built(store, tmp_path)
    recipes = trainer_recipe(set="s"), trainer_recipe()
    data, chosen = (examples_for(store, tmp_path, r, count_tokens=lengths, max_tokens=400) for r in recipes)
    assert data.train == chosen.train and data.held_out == chosen.held_out and len(data.train) > 4
    longest = max(len(e.prompt) for e in data.train)
    shorter = examples_for(store, tmp_path, recipes[0], count_tokens=lengths, max_tokens=longest - 1)
    assert len(shorter.train) < len(data.train) and shorter.counts["too_long"] > 0
    assert shorter.counts["train"] == len(shorter.train)
    for form in ("judge", "turns"):
        rows = rows_for(store, tmp_path, recipes[1], form, count_tokens=lengths, max_tokens=4000)
        assert rows.train and rows.held_out and rows.facts["counts"]["train"] == len(data.train)
    frozen_rows = rows_for(store, tmp_path, recipes[0], "judge", count_tokens=lengths, max_tokens=400)
    assert frozen_rows.facts["hash"] == read_manifest(tmp_path, "s").hash
    with pytest.raises(TrainingError, match="form 'judge', and 'turns' is needed"):
        rows_for(store, tmp_path, recipes[0], "turns", count_tokens=lengths, max_tokens=400)


@pytest.mark.parametrize("balance", [True, False])
def test_a_frozen_set_of_which_prompts_are_left_out_is_measured_on_as_many_of_each_label(
    tmp_path: Path, balance: bool
) -> None:
    store, _ = store_with(tmp_path, PAIRS)
    built(store, tmp_path, labels={"balance": balance})
    frozen = read_frozen(tmp_path, "s")
    long = {
        example.prompt
        for part in (frozen.train, frozen.held_out)
        for example in [e for e in part if e.label == "-"][:1]
    }

    def tokens(texts: Any) -> list[int]:
        return [1000 if text in long else 1 for text in texts]

    recipe = trainer_recipe(set="s")
    data = examples_for(store, tmp_path, recipe, count_tokens=tokens, max_tokens=400)
    signs = {part: [e.label for e in getattr(data, part)] for part in ("train", "held_out")}
    assert 0 < len(data.held_out) < len(frozen.held_out) and len(data.train) < len(frozen.train)
    assert signs["held_out"].count("+") == signs["held_out"].count("-")
    assert (signs["train"].count("+") == signs["train"].count("-")) == balance
    assert data.counts["held_out"] == len(data.held_out) and data.counts["train"] == len(data.train)


def test_a_trainer_with_another_prompt_than_the_sets_is_refused(tmp_path: Path) -> None:
    """Its card would tell people to ask it in words that it was not trained with."""
    from training.sft_recipes import RsftJudgeRecipe

    store, _ = store_with(tmp_path, PAIRS)
    built(store, tmp_path)
    said = "training set 's' was filled from the prompt 'judge_nano' .*recipe's is 'judge_verdict_nano'"
    for kind in (TrainJudgeRecipe, RsftJudgeRecipe):
        recipes = [resolve(kind, {"set": "s", "prompt": p}) for p in ("judge_nano", "judge_verdict_nano")]
        recipes[0].check(tmp_path)
        examples_for(store, tmp_path, recipes[0], count_tokens=lengths, max_tokens=400)
        with pytest.raises(TrainingError, match=said):
            recipes[1].check(tmp_path)
        with pytest.raises(TrainingError, match=said):
            examples_for(store, tmp_path, recipes[1], count_tokens=lengths, max_tokens=400)


# ---- leaks


def add_problems(store: Store, dataset: str, *texts: str) -> list[int]:
    rows = [NewProblem(dataset, f"k{i}", text, "1") for i, text in enumerate(texts)]
    return sorted(store.add_problems(rows, run_id=None, actor="ada").ids.values())


def test_a_problem_that_is_trained_on_and_evaluated_on_is_refused_by_name(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [(16, 2)])
    story = "Mia has 7 apples and eats 3 of them. How many apples are left?"
    train = add_problems(store, "train", story, "Compute 1+2+3+4.")
    apart = add_problems(store, "apart", story.replace("7", "9"), "Compute 1+2+3-4.")
    check_no_leak(store, train, apart, what="s and apart")
    near = add_problems(store, "near", "Compute 5+5.", story.replace("Mia", "MIA").replace("?", " !"))
    assert [(a.id, b.id) for a, b in leaks(store, train, near)] == [(train[0], near[1])]
    with pytest.raises(TrainingError, match=r"s and near: 1 problem is both .*train/k0 reads like near/k1"):
        check_no_leak(store, train, near, what="s and near")
    with pytest.raises(TrainingError, match=r"2 problems are both .*train/k0; train/k1"):
        check_no_leak(store, train, train, what="itself")
    many = add_problems(store, "many", *(f"Compute {i}+{i}." for i in range(9)))
    with pytest.raises(TrainingError, match=r"many/k4; and 4 more\)"):
        check_no_leak(store, many, many, what="itself")


def test_a_set_is_kept_clear_of_the_data_sets_it_will_be_evaluated_on(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, PAIRS)
    built(store, tmp_path)
    train = {row["problem_id"] for row in read_rows(tmp_path, "s", "train")}
    held_out = {row["problem_id"] for row in read_rows(tmp_path, "s", "held_out")}
    texts = {problem.id: problem.text for problem in store.problems()}
    add_problems(store, "fair", *(texts[i] for i in held_out), "Something else, with 3 parts?")
    add_problems(store, "unfair", texts[min(train)].upper())
    check_set_is_clear_of(store, tmp_path, "s", "fair")
    with pytest.raises(TrainingError, match="training set 's' and data set 'unfair': 1 problem is both"):
        check_set_is_clear_of(store, tmp_path, "s", "unfair")
    built(store, tmp_path, name="t", clear_of=["fair"])
    with pytest.raises(TrainingError, match="training set 'u' and data set 'unfair'"):
        built(store, tmp_path, name="u", clear_of=["fair", "unfair"])
    with pytest.raises(TrainingError, match="no problem of data set 'fare'; there are d, fair, unfair"):
        built(store, tmp_path, name="v", clear_of=["fare"])
    assert {m.name for m in list_sets(tmp_path)} == {"s", "t"}

"""Thrifty and searching rollout runs over a real store: right labels, fewer draws, and nothing lost between runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import ceil, log2
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from db.check import check
from db.rows import Label, NewChunk, NewProblem, NewTrajectory
from db.store import Store
from engine.errors import LLMError
from engine.first_error import first_error
from engine.labels import DEFAULT_RULES, Rule, label, label_row, parse_rule
from engine.llm.scripted import ScriptedLLM, shuffled
from engine.pipeline import rolling
from engine.pipeline.labelling import chunk_values, prefix_values
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from engine.recipes import RolloutRecipe, Selection
from tests import little_world as little

NUMBERS = 7
"""Numbers a problem: a solution has one chunk fewer."""


def world(folder: Path) -> Store:
    """Longer sums than the little world's, sampled."""
    folder.mkdir(exist_ok=True)
    store = little.open_little(folder, problems=0)
    sums = [list(range(i, i + NUMBERS)) for i in range(1, 5)]
    rows = [NewProblem(little.DATASET, str(s[0]), "+".join(map(str, s)), str(sum(s))) for s in sums]
    store.add_problems(rows, run_id=None, actor="test")
    sample_with(little.context(store, little.sample_recipe(n=6), folder), little.scripted_policy())
    return store


def rolled(store: Store, folder: Path, llm: Any = None, **fields: Any) -> dict[str, Any]:
    ctx = little.context(store, little.rollout_recipe(**fields), folder)
    result = roll_out(ctx, llm or little.scripted_policy(in_flight=32))
    ctx.beat()
    run = store.run(ctx.run_id)
    assert run.done == run.total
    return result


def test_a_run_that_was_stopped_early_does_not_say_that_it_is_nearly_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "TRAJECTORIES_A_BATCH", 2)
    store = world(tmp_path / "w")
    ctx = little.context(store, little.rollout_recipe(), tmp_path)
    llm = little.scripted_policy(in_flight=8)
    little.stop_after(llm, ctx, 3)
    roll_out(ctx, llm)
    ctx.beat()
    stopped = store.run(ctx.run_id)
    rolled(store, tmp_path)  # the rest of it
    whole = store.runs(1)[0]
    assert 0 < stopped.done < whole.done <= (stopped.total or 0)


def stale(store: Store) -> int:
    inputs = store.label_inputs(store.trajectory_ids())
    kept = store.labels(chunk.chunk_id for one in inputs for chunk in one.chunks)
    return sum(
        kept[chunk.chunk_id] != Label(chunk_id=chunk.chunk_id, **label_row(*pair))
        for one in inputs
        for chunk, pair in zip(one.chunks, chunk_values(one), strict=True)
        if chunk.chunk_id in kept
    )


def test_labels_of_solutions_beside_the_selected_follow_what_they_share(tmp_path: Path) -> None:
    """More draws of a shared beginning, and more samples of a problem, change what others' labels rest on."""

    store = world(tmp_path / "w")
    rolled(store, tmp_path, m=4)
    before = Counter(row.after_n for row in all_labels_of(store))
    rolled(store, tmp_path, m=12, select=Selection(dataset=little.DATASET, per_problem=1))
    assert stale(store) == 0
    after = Counter(row.after_n for row in all_labels_of(store))
    assert after[12] > 0 and after[4] < before[4]
    sample_with(little.context(store, little.sample_recipe(n=9), tmp_path), little.scripted_policy())
    assert stale(store) == 0 and check(store) == []


def test_labels_follow_what_a_later_solution_of_a_thrifty_run_draws_or_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "TRAJECTORIES_A_BATCH", 1)
    one = Selection(dataset=little.DATASET, per_problem=1)
    for number, runs in enumerate(
        (
            [{"m": 8, "rules": ["abs-q"]}],
            [{"m": 8, "rules": ["abs-q"], "places": "first-error"}],
            [{"m": 8, "rules": ["rel-effective"]}, {"m": 8, "rules": ["abs-q", "rel-ratio"], "select": one}],
            [{"m": 8, "rules": ["abs-q"]}, {"m": 16, "rules": ["abs-q"], "select": one}],
        )
    ):
        store = world(tmp_path / str(number))
        for fields in runs:
            rolled(store, tmp_path, **fields)
        assert stale(store) == 0, runs
        store.close()


def test_a_run_of_another_policy_that_ends_early_leaves_no_labels_of_the_first(tmp_path: Path) -> None:
    store = world(tmp_path / "w")
    rolled(store, tmp_path, m=8)
    other = ScriptedLLM(little.policy, name="another", in_flight=8, crash_after=20)
    with pytest.raises(LLMError, match="crashed"):
        rolled(store, tmp_path, other, m=8)
    assert stale(store) == 0 and {row.after_n for row in all_labels_of(store)} >= {None, 0}
    rolled(store, tmp_path, ScriptedLLM(little.policy, name="another"), m=8)
    fresh = world(tmp_path / "fresh")
    rolled(fresh, tmp_path, ScriptedLLM(little.policy, name="another"), m=8)
    assert little.all_labels(store) == little.all_labels(fresh) and check(store) == []


def test_a_search_without_rules_leaves_stopped_prefixes_that_it_does_not_draw_from(tmp_path: Path) -> None:
    store = world(tmp_path / "w")
    rolled(store, tmp_path, m=4, rules=["rel-ratio"])
    ids = {c.prefix_id for row in store.label_inputs(store.trajectory_ids()) for c in row.chunks}
    prefixes = [id_ for id_ in ids if id_ is not None]
    made, stops = store.draws_done(prefixes), store.stops(prefixes)
    rolled(store, tmp_path, m=16, places="first-error")
    same = [id_ for id_ in stops if store.draws_done([id_])[id_] == made[id_]]
    assert same and {id_: store.stops([id_])[id_] for id_ in same} == {id_: stops[id_] for id_ in same}
    assert stale(store) == 0


def test_what_is_passed_over_is_counted_as_when_it_was_drawn(tmp_path: Path) -> None:
    """A solution without chunks, and one whose first chunk has no value before it, among them."""
    store = little.open_little(tmp_path, problems=2)
    sample_with(little.context(store, little.sample_recipe(n=1), tmp_path), little.scripted_policy())
    id_ = store.problem_ids(little.DATASET)[0]
    bare = NewTrajectory(id_, "ada", "\\boxed{6}", "\\boxed{6}", (), "tags", "correct", "6")
    store.add_trajectories([bare], run_id=None, actor="ada")
    first, again = rolled(store, tmp_path), rolled(store, tmp_path)
    counts = ("trajectories", "labelled_chunks", "spared_by_grades")
    assert [first[name] for name in counts] == [again[name] for name in counts] == [3, 2, 16]


def all_labels_of(store: Store) -> list[Label]:
    inputs = store.label_inputs(store.trajectory_ids())
    return list(store.labels(chunk.chunk_id for one in inputs for chunk in one.chunks).values())


def labels(store: Store, rule: Rule) -> list[Any]:
    return [
        label(rule, *pair)
        for inputs in store.label_inputs(store.trajectory_ids())
        for pair in chunk_values(inputs)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """All 16 draws of every prefix."""
    folder = tmp_path_factory.mktemp("whole")
    store = world(folder)
    rolled(store, folder, m=16)
    return store


@pytest.mark.parametrize("rules", [["abs-q"], ["rel-ratio"], ["rel-ratio:gamma=0.7", "rel-effective"]])
def test_thrifty_labels_are_those_of_all_draws(whole: Store, tmp_path: Path, rules: list[str]):
    store = world(tmp_path)
    result = rolled(
        store, tmp_path, m=16, rules=rules, llm=little.scripted_policy(order=shuffled(1), in_flight=32)
    )
    for rule in map(parse_rule, rules):
        assert labels(store, rule) == labels(whole, rule)
    every, thrifty = little.all_rollouts(whole), little.all_rollouts(store)
    assert set(thrifty) < set(every), "its draws are draws of the whole"
    assert len(every) - len(thrifty) == result["spared_by_thrift"] > 0
    draws = defaultdict(list)
    for key, draw, *_ in thrifty:
        draws[key].append(draw)
    assert all(numbers == list(range(len(numbers))) for numbers in draws.values()), "no gaps"
    stopped = [v for i in store.label_inputs(store.trajectory_ids()) for v in prefix_values(i) if v.left]
    assert stopped and all(value.q is None for value in stopped)
    unnamed = next(rule for rule in DEFAULT_RULES if str(rule) not in map(str, map(parse_rule, rules)))
    assert None in labels(store, unnamed)
    assert check(store) == []


def test_topping_up_ends_the_stops(whole: Store, tmp_path: Path):
    store = world(tmp_path)
    rolled(store, tmp_path, m=16, rules=["abs-q"])
    result = rolled(store, tmp_path, m=16)
    assert little.all_rollouts(store) == little.all_rollouts(whole)
    assert little.all_labels(store) == little.all_labels(whole)
    assert result["labelled_chunks"] == len(little.all_labels(whole))
    rolled(store, tmp_path, m=20, rules=["abs-q"])
    assert all(v.left in (0, 4) for i in store.label_inputs([1, 2]) for v in prefix_values(i))


def test_another_rule_goes_on_from_the_draws_there_are(whole: Store, tmp_path: Path):
    store = world(tmp_path)
    rolled(store, tmp_path, m=16, rules=["abs-q"])
    first = little.all_rollouts(store)
    rolled(store, tmp_path, m=16, rules=["rel-ratio"])
    assert set(first) < set(little.all_rollouts(store)) <= set(little.all_rollouts(whole))
    for rule in ("abs-q", "rel-ratio"):
        assert labels(store, parse_rule(rule)) == labels(whole, parse_rule(rule))


def test_a_thrifty_run_that_broke_off_goes_on_and_its_half_drawn_values_are_no_values(
    whole: Store, tmp_path: Path
):
    store = world(tmp_path)
    drawn: list[tuple[Any, ...]] = []
    for crash_after in (30, 45, 60):
        with pytest.raises(LLMError, match="crashed"):
            rolled(
                store, tmp_path, little.scripted_policy(crash_after=crash_after), m=16, rules=["rel-ratio"]
            )
        now = little.all_rollouts(store)
        assert set(drawn) <= set(now) <= set(little.all_rollouts(whole))
        assert len({row[:2] for row in now}) == len(now)
        drawn = now
        for rule in DEFAULT_RULES:
            known = zip(labels(store, rule), labels(whole, rule), strict=True)
            assert all(part in (None, all_) for part, all_ in known), "a label from part of the draws"
    rolled(store, tmp_path, m=16, rules=["rel-ratio"])
    assert labels(store, DEFAULT_RULES[2]) == labels(whole, DEFAULT_RULES[2])
    assert check(store) == []


@pytest.mark.parametrize("rules", [[], ["abs-q"]])
def test_the_search_finds_the_first_chunk_without_a_success_in_few_prefixes(
    whole: Store, tmp_path: Path, rules: list[str]
):
    store = world(tmp_path)
    result = rolled(store, tmp_path, m=16, places="first-error", rules=rules)
    rows = {t.id: t for t in store.stage_trajectories(store.trajectory_ids())}
    touched = Counter[int]()
    for inputs, every in zip(store.label_inputs(list(rows)), whole.label_inputs(list(rows)), strict=True):
        values, known = prefix_values(inputs), prefix_values(every)
        drawn = [k for k, chunk in enumerate(inputs.chunks[:-1], 1) if chunk.counts]
        touched[len(drawn)] += 1
        if rows[inputs.trajectory_id].outcome == "correct":
            continue
        found = first_error(values)
        assert found is not None
        assert known[found + 1].q == 0 and (found == 0 or known[found].q > 0)  # type: ignore[operator]
    wrong = sum(t.outcome != "correct" for t in rows.values())
    assert result["trajectories"] == wrong > 3
    assert result["prefixes"] <= wrong * ceil(log2(NUMBERS - 1))
    assert result["never_rolled_out"] > 0 and len(touched) > 1
    assert check(store) == []


def test_the_grades_of_hard_answers_are_waited_for(whole: Store, tmp_path: Path):
    """Answers that need a worker come back later than the door is empty; the next draws follow from them."""
    store = world(tmp_path)

    def hard(prompt: str, seed: int) -> str:
        return little.policy(prompt, seed).replace("\\boxed{", "\\boxed{0+")

    llm = little.scripted_policy(in_flight=4)
    llm._script = hard
    rolled(store, tmp_path, llm, m=4, rules=["abs-q"])
    assert labels(store, DEFAULT_RULES[0]).count(None) == 0


@pytest.mark.parametrize(
    "wrong", [{"rules": ["best"]}, {"rules": ["rel-ratio"], "places": "first-error"}, {"places": "some"}]
)
def test_impossible_recipes_are_refused(wrong: dict[str, Any]):
    with pytest.raises(ValidationError):
        RolloutRecipe.model_validate(wrong)


def test_what_is_drawn_out_and_labelled_is_passed_over_unread(whole: Store, tmp_path: Path):
    store = world(tmp_path)
    ids = store.trajectory_ids()
    first = rolled(store, tmp_path, m=8, select=Selection(trajectory_ids=ids[:6]))
    assert {row.trajectory_id for row in store.rolled_out(ids, 8)} == set(ids[:6])
    assert store.rolled_out(ids, 9) == []
    with store.write() as db:  # a kill between the last draws and the labels
        db.exec_driver_sql(
            "DELETE FROM chunk_labels WHERE chunk_id IN (SELECT id FROM chunks WHERE trajectory_id = ?)",
            (ids[0],),
        )
    store.rebuild_totals()
    assert ids[0] not in {row.trajectory_id for row in store.rolled_out(ids, 8)}
    result = rolled(store, tmp_path, m=8)
    assert result["trajectories"] == len(ids) and result["shared_prefixes"] >= first["shared_prefixes"]
    assert len(little.all_labels(store)) == len(ids) * (NUMBERS - 1)
    assert set(Counter(key for key, *_ in little.all_rollouts(store)).values()) == {8}
    again = rolled(store, tmp_path, m=8)
    assert again["rollouts"] == again["rollouts_per_s"] == 0
    assert (again["prefixes"], again["tokens"], again["labelled_chunks"]) == (0, 0, len(ids) * (NUMBERS - 1))
    other = rolled(store, tmp_path, ScriptedLLM(little.policy, name="another"), m=8)
    assert other["prefixes"] > 0, "of another policy nothing is drawn"
    other_again = rolled(store, tmp_path, ScriptedLLM(little.policy, name="another"), m=8)
    assert result["spared_by_samples"] > other["spared_by_samples"] == other_again["rollouts"] == 0
    for name in ("done", "spared_by_sharing", "spared_by_samples", "spared_by_grades"):
        assert (again[name], other_again[name]) == (result[name], other[name]), name
    assert check(store) == []


def test_problems_with_one_text_and_two_references_share_no_rollouts(tmp_path: Path):
    store = little.open_little(tmp_path, problems=1)
    store.add_problems([NewProblem(little.DATASET, "corrected", "1+2+3", "7")], run_id=None, actor="test")
    sums = ("1+2=3", "3+3=6")
    text = "".join(f"<chunk>{one}</chunk>\n" for one in sums)
    chunks = tuple(NewChunk("<chunk>", one, "</chunk>\n") for one in sums)
    rows = [
        NewTrajectory(id_, "ada", text, "", chunks, "tags", "wrong", None)
        for id_ in store.problem_ids(little.DATASET)
    ]
    store.add_trajectories(rows, run_id=None, actor="ada")
    rolled(store, tmp_path)
    drawn = little.all_rollouts(store)
    right = set()
    for row in store.stage_trajectories(store.trajectory_ids()):
        id_ = row.chunks[0].prefix_id
        assert id_ is not None and store.prefixes([id_])[id_].problem_id == row.problem_id
        right |= {(row.reference, one.answer) for one in store.rollouts_of(id_, outcome="correct")}
    assert right == {("6", "6"), ("7", "7")}
    rolled(store, tmp_path)
    assert little.all_rollouts(store) == drawn, "and what was drawn is found again"

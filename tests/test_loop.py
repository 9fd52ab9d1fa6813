"""The continual loop: rounds that use each other's checkpoints, pause for reviews, resume, and once for real."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import app.processes
from app.kinds import resolve_recipe
from app.loop import LoopRecipe, run, summary
from app.loop_parts import loop_rounds
from app.plans import Part
from app.settings import Settings, get_settings
from app.shipped import shipped_for
from app.store import open_or_make_store
from db.rows import RunRow
from db.store import Store
from engine.errors import RecipeError
from engine.runs import RunContext
from tests.loop_worker import figures
from tests.plan_store import finish_parts
from tests.test_worker import ROOT


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
    monkeypatch.setenv("STEPWISER_DATABASE_URL", "")
    monkeypatch.chdir(ROOT)
    get_settings.cache_clear()
    yield get_settings()
    get_settings.cache_clear()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_or_make_store(settings)
    yield store
    store.close()


def finished(store: Store, recipe: LoopRecipe) -> dict[str, RunRow]:
    """All runs of the loop, done at once."""
    parent = store.create_run("loop", recipe.model_dump(mode="json"), "test")
    parts = [part for some in loop_rounds(recipe) for part in some]

    def result(part: Part, run_id: int) -> dict[str, object]:
        return figures(part.kind, run_id)

    done = finish_parts(store, parent, parts, result)
    assert len(done) == len(parts) == recipe.parts
    return done


def test_each_round_samples_with_the_policy_of_the_last_and_trains_on_all_labels(store: Store):
    recipe = LoopRecipe(rounds=2, dataset="d")
    done = finished(store, recipe)

    def asked(name: str) -> dict[str, object]:
        return done[name].recipe

    policy, judges = (
        done["round 1: train policy"].result["checkpoint"],
        [done[f"round {number}: train judge"].result["checkpoint"] for number in (1, 2)],
    )
    assert asked("round 1: sample")["llm"]["checkpoint"] == "nano"
    assert asked("round 2: sample")["llm"]["checkpoint"] == policy
    assert asked("round 2: roll out")["select"]["policy"] == policy
    seeds = [asked(f"round {number}: sample")["generate"]["seed"] for number in (1, 2)]
    assert seeds[1] == seeds[0] + 1, "every round has problems of its own"
    for number in (1, 2):
        select = asked(f"round {number}: train judge")["select"]
        assert (select["dataset"], select["policy"], select["from_run"]) == ("d", None, None), (
            "all labels so far"
        )
        assert asked(f"round {number}: train policy")["judge"]["llm"]["checkpoint"] == judges[number - 1]
    assert (
        asked("round 2: train judge")["base"] == "nano" and asked("round 2: train policy")["base"] == policy
    )
    assert len({asked(f"round {n}: measure policy")["generate"]["seed"] for n in (0, 1, 2)}) == 1
    further = finished(store, recipe.model_copy(update={"judge_from": "last"}))
    assert (
        further["round 2: train judge"].recipe["base"] == further["round 1: train judge"].result["checkpoint"]
    )


def test_a_policy_by_selection_is_fine_tuned_on_what_the_round_s_judge_chose(store: Store):
    done = finished(store, LoopRecipe(rounds=1, improve={"how": "selection"}))
    reading, choosing = done["round 1: read solutions"], done["round 1: select solutions"]
    assert reading.recipe["llm"]["checkpoint"] == done["round 1: train judge"].result["checkpoint"]
    assert choosing.recipe["judge"] == reading.result["judge"] and choosing.recipe["how"] == "stepwise"
    assert done["round 1: train policy"].kind == "train-sft"
    assert done["round 1: train policy"].recipe["set"] == choosing.result["set"]
    assert done["round 1: measure policy"].recipe["llm"]["checkpoint"] == summary(
        LoopRecipe(rounds=1, improve={"how": "selection"}), done
    ).get("checkpoint")


def test_a_loop_pauses_for_reviews_and_goes_on_with_figures_by_round(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(app.processes, "MODULE", "tests.loop_worker")
    recipe = LoopRecipe(rounds=2, pause=True, improve={"how": "nothing"})
    run_id = store.start_run("loop", recipe.model_dump(mode="json"), "test", pid=os.getpid())
    first = RunContext(store, run_id, 1, recipe, settings.home, "test")
    result = run(first)
    assert first.stopping and set(result) == {"round 0", "round 1", "judge"}
    assert {row.name for row in store.children(run_id)} == {
        "round 0: measure policy",
        "round 1: sample",
        "round 1: roll out",
        "round 1: train judge",
    }
    killed = RunContext(store, run_id, 2, recipe, settings.home, "test", resumed=True)
    assert run(killed) == result and killed.stopping, (
        "it ended while the loop was killed: not paused after yet"
    )
    store.finish_run(run_id, "stopped", result=result)
    store.resume_run(run_id)
    second = RunContext(store, run_id, 3, recipe, settings.home, "test", resumed=True)
    result = run(second)
    assert not second.stopping and len(store.children(run_id)) == recipe.parts == 7
    judge = next(row for row in store.children(run_id) if row.name == "round 2: train judge")
    assert result["judge"] == result["round 2"]["judge"] == f"run-{judge.id}"
    assert result["round 2"]["judge_accuracy_after"] == 0.5 + judge.id / 1000
    curves = store.metrics(run_id)
    assert [row.step for row in curves["loop/pass_rate"]] == [1, 2]
    assert [row.step for row in curves["loop/judge_accuracy_after"]] == [1, 2]
    assert [row.step for row in curves["loop/policy_accuracy"]] == [0]


def test_dry_run_loop_nano_and_a_test_that_would_be_trained_on():
    recipe = resolve_recipe("loop", shipped_for("loop")["loop-nano"].data)
    assert isinstance(recipe, LoopRecipe) and recipe.parts == 11
    recipe.check(Path("nowhere"))
    with pytest.raises(RecipeError, match="would be trained on"):
        resolve_recipe("loop", {"generate": {"count": 5, "seed": 7}, "test": {"count": 5, "seed": 8}})

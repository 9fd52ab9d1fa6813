"""Plans: parts in the order of their needs, side by side, stopped, killed and resumed, and what a broken part costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import app.processes
from app.plans import Part, Plan, execute
from app.settings import Settings
from app.store import open_or_make_store
from db.rows import RunRow
from db.store import Store
from engine.errors import RunError
from engine.recipes import RolloutRecipe
from engine.runs import RunContext
from tests.plan_worker import parts_in_a_row
from tests.test_worker import ROOT, wait


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(app.processes, "MODULE", "tests.plan_worker")
    monkeypatch.chdir(ROOT)
    return Settings(home=tmp_path, database_url="", stalled_after_s=3)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_or_make_store(settings)
    yield store
    store.close()


class Attempts:
    """A plan worked through in this process, attempt after attempt, its parts in processes of their own."""

    def __init__(self, store: Store, settings: Settings, parts: Sequence[Part], jobs: int = 1):
        self.store, self.settings, self.parts, self.jobs = store, settings, parts, jobs
        self.run_id = store.start_run("rollout", {"kind": "rollout"}, "test", pid=os.getpid())
        self.attempt = 0

    def context(self) -> RunContext[Any]:
        self.attempt += 1
        return RunContext(self.store, self.run_id, self.attempt, RolloutRecipe(), self.settings.home, "test")

    def work(self) -> dict[str, RunRow]:
        return execute(self.context(), self.parts, jobs=self.jobs, settings=self.settings)

    def start(self) -> tuple[RunContext[Any], Callable[[], None]]:
        """Work in a thread; the second value waits for its end."""
        ctx = self.context()

        def work() -> None:
            with suppress(RunError):
                execute(ctx, self.parts, jobs=self.jobs, settings=self.settings)

        thread = threading.Thread(target=work)
        thread.start()
        return ctx, thread.join

    def rows(self) -> dict[str, RunRow]:
        return {row.name or "": row for row in self.store.children(self.run_id)}

    def begun(self, name: str) -> bool:
        return name in self.rows() and self.rows()[name].done >= 1


def test_parts_run_in_the_order_of_their_needs_and_read_earlier_results(store: Store, settings: Settings):
    plan = Attempts(store, settings, parts_in_a_row(2))
    assert sorted(plan.work()) == ["first", "second"]
    first, second = store.children(plan.run_id)
    assert first.recipe["seed"] == 2 and second.recipe["seed"] == 3, (
        "the second reads what the first reported"
    )
    assert second.started_at >= first.ended_at
    assert "attempt 1" in (settings.logs / f"run-{second.id}.log").read_text()
    assert sorted(plan.work()) == ["first", "second"] and len(store.children(plan.run_id)) == 2, (
        "nothing twice"
    )
    plan.parts = parts_in_a_row(1)
    assert {name: row.recipe["seed"] for name, row in plan.work().items()} == {"first": 1, "second": 2}
    assert len(store.children(plan.run_id)) == 4, "under another recipe it is another run; the old ones stay"
    later = Attempts(store, settings, parts_in_a_row(2))
    done = execute(later.context(), later.parts, former=(plan.run_id,), settings=settings)
    assert {row.id for row in done.values()} == {first.id, second.id}, (
        "parts of an earlier run of the plan count"
    )


def test_a_broken_part_costs_only_what_needs_it_and_a_resume_tries_it_again(store: Store, settings: Settings):
    parts = [
        Part("fails", "judge", lambda _: {}),
        Part("bad", "sample", lambda _: {"n": "many"}),
        Part("after it", "sample", lambda _: {"seed": 1}, needs=("fails",)),
        Part("other", "sample", lambda _: {"seed": 1}),
    ]
    plan = Attempts(store, settings, parts, jobs=2)
    with pytest.raises(RunError, match="2 of 4 parts") as problem:
        plan.work()
    assert "not before the second try" in str(problem.value)
    assert "bad: " in str(problem.value) and "n: " in str(problem.value), (
        "the field that cannot work is named"
    )
    assert {name: row.status for name, row in plan.rows().items()} == {"fails": "failed", "other": "done"}
    with pytest.raises(RunError, match="1 of 4 parts"):
        plan.work()
    assert {name: (row.status, row.attempt) for name, row in plan.rows().items()} == {
        "fails": ("done", 2),
        "other": ("done", 1),
        "after it": ("done", 1),
    }


def test_a_stop_reaches_parts_side_by_side_and_a_resume_goes_on(store: Store, settings: Settings):
    parts = [Part(name, "sample", lambda _: {"seed": 30}) for name in ("a", "b", "c")]
    plan = Attempts(store, settings, parts, jobs=2)
    ctx, join = plan.start()
    wait(lambda: plan.begun("a") and plan.begun("b"))
    assert {row.status for row in plan.rows().values()} == {"running"} and "c" not in plan.rows()
    ctx.stop()
    join()
    rows = plan.rows()
    assert {row.status for row in rows.values()} == {"stopped"} and 1 <= rows["a"].done < 30
    plan.parts = [Part("a", "sample", lambda _: {"seed": 30}), Part("b", "sample", lambda _: {"seed": 1})]
    assert sorted(plan.work()) == ["a", "b"]
    a, b, other_b = store.children(plan.run_id)
    assert (a.attempt, a.done_at_start >= 1) == (2, True), "resumed where it was"
    assert (b.status, other_b.status, other_b.recipe["seed"]) == ("stopped", "done", 1), (
        "another recipe is another run"
    )


def test_a_killed_part_goes_on_where_it_was_after_a_resume(store: Store, settings: Settings):
    plan = Attempts(store, settings, [Part("a", "sample", lambda _: {"seed": 6})])
    _, join = plan.start()
    wait(lambda: plan.begun("a"))
    os.kill(plan.rows()["a"].pid or 0, signal.SIGKILL)
    join()
    assert "ended with code -9" in (plan.rows()["a"].error or "")
    plan.work()
    assert (plan.rows()["a"].attempt, plan.rows()["a"].done_at_start >= 1) == (2, True)


def test_a_plan_killed_alone_and_with_its_part_costs_one_part_at_most(store: Store, settings: Settings):
    """A part outlives its plan and is taken back; one that was killed too falls silent and is resumed."""
    env = os.environ | {
        "STEPWISER_HOME": str(settings.home),
        "STEPWISER_DATABASE_URL": "",
        "STEPWISER_STALLED_AFTER_S": "3",
    }
    run_id = store.create_run("rollout", {"kind": "rollout", "seed": 12}, "test")
    worker = subprocess.Popen([sys.executable, "-m", "tests.plan_worker"], env=env, start_new_session=True)

    def part(name: str) -> RunRow | None:
        return next((row for row in store.children(run_id) if row.name == name and row.done >= 1), None)

    def kill(*pids: int | None) -> None:
        for pid in pids:
            os.kill(pid or 0, signal.SIGKILL)
        wait(lambda: store.run(run_id).status == "failed")

    try:
        wait(lambda: part("first") is not None)
        kill(store.run(run_id).pid)
        assert psutil.pid_exists(part("first").pid)
        store.resume_run(run_id)
        wait(lambda: part("second") is not None)
        kill(store.run(run_id).pid, part("second").pid)
        store.resume_run(run_id)
        wait(lambda: store.run(run_id).status == "done")
    finally:
        worker.kill()
        worker.wait()
    assert [(row.name, row.attempt) for row in store.children(run_id)] == [("first", 1), ("second", 2)]
    assert store.run(run_id).result == {"done": ["first", "second"]}


def test_a_plan_that_cannot_be_worked_through_is_refused():
    def part(name: str, *needs: str) -> Part:
        return Part(name, "sample", lambda _: {}, needs)

    with pytest.raises(RunError, match="two parts of the plan are called 'a'"):
        Plan([part("a"), part("a")])
    with pytest.raises(RunError, match=r"'b' needs \['c'\]"):
        Plan([part("a"), part("b", "a", "c"), part("c")])


def test_a_part_is_made_anew_when_what_it_needs_was_made_anew(store: Store):
    parent = store.create_run("rollout", {"kind": "rollout"}, "test")

    def plan(seed: int) -> Plan:
        return Plan(
            [
                Part("first", "sample", lambda _: {"seed": seed}),
                Part("second", "judge", lambda _: {}, needs=("first",)),
            ]
        )

    def finish(plan: Plan, name: str) -> int:
        recipe = plan.look(store, [parent]).ready[name].model_dump(mode="json")
        child = store.create_run(str(recipe["kind"]), recipe, "test", parent_id=parent, name=name)
        store.claim_child(child, pid=0)
        store.finish_run(child, "done")
        return child

    old, new = plan(1), plan(2)
    former = {name: finish(old, name) for name in ("first", "second")}
    assert {name: row.id for name, row in old.look(store, [parent]).done.items()} == former
    finish(new, "first")
    state = new.look(store, [parent])
    assert list(state.done) == ["first"] and list(state.ready) == ["second"] and not state.open
    second = finish(new, "second")
    assert new.look(store, [parent]).done["second"].id == second

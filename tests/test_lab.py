"""The laboratory: its plan, its intervals, its report from stored results only; and the quick one, for real."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.lab.cells import RULES, lab_plan
from app.lab.intervals import Arm, Estimate, difference, estimate
from app.lab.recipe import LabRecipe
from app.lab.report import write_report
from app.lab.run import standing
from app.plans import Part, Plan
from db.rows import RunRow
from db.store import Store, open_store
from tests.plan_store import finish_parts
from tests.test_worker import ROOT, wait


def counts(shares: list[float], n: int = 10) -> dict[str, tuple[float, float]]:
    return {str(problem): (share * n, n) for problem, share in enumerate(shares)}


# ---- intervals


def test_an_interval_holds_the_chance_of_the_problems():
    """One evaluation with nothing but whole problems right or wrong is a binomial over problems."""
    found = estimate(Arm((counts([1.0] * 60 + [0.0] * 40),), trained=False))
    assert found.value == pytest.approx(0.6) and found.seeds is None and found.problems == 100
    half = 1.984 * math.sqrt(0.6 * 0.4 / 99)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-3)


def test_an_interval_holds_the_chance_of_the_seeds():
    """Seeds that differ while every problem is alike: Student's interval over the seeds."""
    arm = Arm(tuple(counts([share] * 50) for share in (0.6, 0.7, 0.8)))
    found = estimate(arm)
    assert found.value == pytest.approx(0.7) and found.seeds == 3
    assert (found.high - found.low) / 2 == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=1e-3)


def test_a_difference_is_taken_problem_by_problem():
    """A hard problem is hard for both: what they share is no doubt about their difference."""
    hard = [0.1, 0.9] * 25
    first = Arm((counts([h + 0.05 for h in hard]), counts([h + 0.05 for h in hard])))
    second = Arm((counts(hard), counts(hard)))
    found = difference(first, second)
    assert found.value == pytest.approx(0.05) and found.high - found.low == pytest.approx(0, abs=1e-9)
    assert estimate(first).high - estimate(first).low > 0.2
    apart = difference(Arm((counts(hard[::-1]),)), second)
    assert apart.high - apart.low > 0.2


def test_figures_of_the_same_runs_are_compared_within_each_run():
    single = Arm((counts([0.5] * 30), counts([0.9] * 30)))
    votes = Arm((counts([0.6] * 30), counts([1.0] * 30)))
    assert difference(votes, single, same_runs=True).direction() == "holds"
    assert difference(votes, single).direction() == "inside the noise"


def test_a_direction_is_decided_by_the_interval():
    assert Estimate(0.1, 0.02, 0.2, 3, 100).direction() == "holds"
    assert Estimate(-0.1, -0.2, -0.02, 3, 100).direction() == "does not hold"
    assert Estimate(-0.1, -0.2, -0.02, 3, 100).direction(expected=-1) == "holds"
    assert Estimate(0.1, -0.02, 0.2, 3, 100).direction() == "inside the noise"
    assert Estimate(0.1, 0.02, 0.2, 1, 100).direction() == "one seed: not decided"
    assert Estimate(0.1, 0.02, 0.2, None, 100).direction() == "holds", (
        "nothing was trained: no seed is missing"
    )


# ---- the plan


def test_the_plan_has_judges_first_and_one_seed_of_everything_before_the_second():
    lab = lab_plan(LabRecipe())
    Plan(lab.parts)
    names = [part.name for part in lab.parts]
    assert len(set(names)) == len(names)
    last_of_first = max(i for i, name in enumerate(names) if "seed 1" in name)
    assert all("seed 2" not in name and "seed 3" not in name for name in names[:last_of_first])
    first_use = min(i for i, part in enumerate(lab.parts) if part.kind in ("search", "train-sft"))
    assert max(i for i, name in enumerate(names) if "seed 1: train" in name) < first_use
    trained = {c for c in lab.cells if c not in ("base", "search base", "select base")}
    assert all(len(lab.cells[key].measured) == 3 for key in trained)
    signals = {f"{how} {rule}" for how in ("grpo", "sft") for rule in ("rel-ratio", "abs-q", "rel-effective")}
    ablations = {"rs-ft", "best", "no-cot", "no-balance", "no-clip-higher", "all-labels"}
    ablations |= {"after-errors", "blank-line"}
    assert signals | ablations <= trained


# ---- the report, from results that a store holds


def result_of(part: Part, run_id: int) -> dict[str, Any]:
    """What a run of the part's kind would report: the judges' accuracies are those of GOOD, the others' flat."""
    if part.kind == "sample":
        return {"problems": 6, "pass_rate": 0.6, "mixed_problems": 5}
    if part.kind in ("build-set", "select-solutions"):
        counts = {"train": 10, "held_out": 2, "chunks": 30, "unsure": 4, "positive": 6, "negative": 8}
        return {"set": f"set-{run_id}", "counts": counts}
    if part.kind.startswith("train-"):
        return {"checkpoint": f"run-{run_id}"}
    if part.kind == "judge":
        return {"judge": f"judge {run_id}"}
    share = next((share for name, share in GOOD.items() if part.name.startswith(name)), 0.6)

    def by_problem(n: int) -> dict[str, list[float]]:
        return {str(p): [n, n * (share + (0.02 if p % 2 else -0.02))] for p in range(40)}

    if part.kind == "evaluate-judge":
        measure = {
            "accuracy": share,
            "n": 400,
            "majority": {"1": {"accuracy": share}, "2": {"accuracy": share}},
        }
        rows = {p: [n, right, right] for p, (n, right) in by_problem(10).items()}
        return {"measures": {rule: measure | {"by_problem": rows} for rule in RULES.values()}}
    if part.kind == "search":
        arm = {"accuracy": share, "n": 320, "accepted_tokens": 90, "rejected_tokens": 10}
        arm |= {"by_problem": by_problem(8)}
        return {"chunk-reset": arm, "plain": arm | {"by_problem": {p: [8, 4.0] for p in arm["by_problem"]}}}
    if part.kind == "evaluate-policy":
        return {"accuracy": share, "n": 320, "by_problem": by_problem(8)}
    return {}


GOOD = {"rel-ratio, GRPO": 0.8, "rel-ratio, RS-FT then GRPO": 0.9, "abs-q, GRPO": 0.5, "base": 0.6}


def filled_lab(store: Store, recipe: LabRecipe, skip: str = "nothing") -> int:
    """A laboratory whose parts are all done, but for those whose name holds ``skip``. Returns its run."""
    run_id = store.create_run("lab", recipe.model_dump(mode="json"), "test")
    finish_parts(store, run_id, lab_plan(recipe).parts, result_of, skip)
    return run_id


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'lab.db'}", migrate=True)
    yield store
    store.close()


def test_the_report_says_what_the_results_say_and_nothing_else(store: Store, tmp_path: Path):
    row = store.run(filled_lab(store, LabRecipe()))
    found = standing(store, row, tmp_path)
    assert found.missing == []
    pictures = write_report(found, tmp_path / "lab.md", command="stepwiser lab report")
    text = (tmp_path / "lab.md").read_text(encoding="utf-8")
    total = LabRecipe().parts
    assert f"**{total} of {total} parts are finished**, of 3 seeds." in text
    signals = next(line for line in text.splitlines() if line.startswith("| rel-ratio | 6"))
    cells = [cell.strip() for cell in signals.strip("|").split("|")]
    assert [cell.split(" ")[0] for cell in cells[1:5]] == ["60.0", "60.0", "80.0", "+20.0"]
    assert cells[5:] == ["35.7–39.7 → 60.5", "holds"]
    (abs_q, *_) = (line for line in text.splitlines() if line.startswith("| abs-q | 6"))
    assert abs_q.endswith("| does not hold |"), "what contradicts the paper is said like what agrees"
    assert "| rel-ratio, RS-FT then GRPO | 90.0 " in text and "at least 15 points; reached." in text
    assert "one seed" not in text.replace("with one seed of a trained thing", "")
    for part in found.lab.parts:
        assert f"| {part.name} | {part.kind} | {found.state.done[part.name].id} |" in text
    assert [p.name for p in pictures] == [
        "ablations.svg",
        "majority.svg",
        "search.svg",
        "selection.svg",
        "signals-own-rule.svg",
        "signals-rel-ratio.svg",
    ]
    for picture in pictures:
        assert f"](lab/{picture.name})" in text
        drawn = picture.read_text(encoding="utf-8")
        assert "#000000" not in drawn and "#ffffff" not in drawn, "readable on white and on black"


def test_an_unfinished_laboratory_says_what_is_missing(store: Store, tmp_path: Path):
    recipe = LabRecipe(seeds=1, rules=("rel-ratio",), ablations=("no-balance",))
    found = standing(store, store.run(filled_lab(store, recipe, skip="GRPO")), tmp_path)
    write_report(found, tmp_path / "lab.md", command="stepwiser lab report")
    text = (tmp_path / "lab.md").read_text(encoding="utf-8")
    assert "- rel-ratio, GRPO, seed 1: train: not begun" in text
    (signals, *_) = (line for line in text.splitlines() if line.startswith("| rel-ratio | 6"))
    assert "| not finished | not finished |" in signals and signals.endswith("| not finished |")
    assert "(1 seed)" in text and "holds |" not in text


def test_an_empty_laboratory_has_a_report_without_a_number(store: Store, tmp_path: Path):
    run_id = store.create_run("lab", LabRecipe().model_dump(mode="json"), "test")
    assert write_report(standing(store, store.run(run_id), tmp_path), tmp_path / "lab.md", command="x") == []
    text = (tmp_path / "lab.md").read_text(encoding="utf-8")
    assert f"**0 of {LabRecipe().parts} parts are finished**" in text and "](lab/" not in text


# ---- for real


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(1500)
def test_the_quick_laboratory_runs_every_kind_detached_stopped_resumed_and_reported(tmp_path: Path):
    """`stepwiser lab start --quick` and its sisters as a user calls them; every part is a real run."""
    pytest.importorskip("vllm")
    env = {k: v for k, v in os.environ.items() if not k.startswith("STEPWISER_")}
    env |= {"STEPWISER_HOME": str(tmp_path), "STEPWISER_ACTOR": "ada"}

    def stepwiser(*arguments: str) -> str:
        command = [sys.executable, "-m", "app.cli", "lab", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "was started" in stepwiser("start", "--quick")
    home = tmp_path / "lab-quick"
    store = open_store(f"sqlite:///{home / 'stepwiser.db'}")
    try:
        (row,) = store.runs(kinds=["lab"])
        wait(lambda: any(child.status == "done" for child in store.children(row.id)), 300)
        assert "going on already" in stepwiser("start", "--quick")
        stepwiser("stop", "--quick")
        wait(lambda: store.run(row.id).status == "stopped", 120)
        assert "of" in stepwiser("status", "--quick") and not unfinished(store, row.id)
        stepwiser("start", "--quick")
        wait(lambda: store.run(row.id).ended_at is not None, 1200)
        assert store.run(row.id).status == "done", store.run(row.id).error
        found = standing(store, store.run(row.id), home)
        assert found.missing == [] and store.run(row.id).attempt == 2
        kinds = {part.kind for part in found.lab.parts}
        assert kinds >= {
            "sample",
            "rollout",
            "build-set",
            "train-judge",
            "train-judge-sft",
            "train-judge-rsft",
        }
        assert kinds >= {
            "evaluate-judge",
            "search",
            "judge",
            "select-solutions",
            "train-sft",
            "evaluate-policy",
        }
        assert "left" not in stepwiser("status", "--quick")
        stepwiser("report", "--quick", "--out", str(tmp_path / "lab.md"))
        text = (tmp_path / "lab.md").read_text(encoding="utf-8")
        for part in found.lab.parts:
            child = found.state.done[part.name]
            if part.kind == "evaluate-judge":
                (measured, *_) = child.result["measures"].values()
                assert f"{measured['accuracy']:.3f}" in text
        assert "holds |" not in text, "one seed decides nothing of what was trained"
    finally:
        for child in [*store.runs(kinds=["lab"]), *store.children(1)]:
            if child.status == "running" and child.pid and psutil.pid_exists(child.pid):
                os.killpg(child.pid, signal.SIGKILL)
        store.close()


def unfinished(store: Store, run_id: int) -> list[RunRow]:
    return [child for child in store.children(run_id) if child.status == "running"]

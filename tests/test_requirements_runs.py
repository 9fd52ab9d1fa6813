"""Requirement 10, live runs, in real browsers over a real worker: launch, follow, kill, resume, stop, and nothing moves.

The worker is ``tests.slow_worker``, whose runs nap. Silence is not waited for: the last heartbeat is moved back.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect
from sqlalchemy import update

from db.tables import Run, utc_now
from tests.browser_support import ROOT, LiveApp, open_page, settled
from tests.runs_page import make_checkpoint
from tests.started_app import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
NAPS = 900
Worker = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def worker(live_app: LiveApp) -> Iterator[Worker]:
    """Starts the worker of naps; whatever of it is left is ended with its runs."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.slow_worker"]
        log = (live_app.home / "slow-worker.log").open("ab")
        started.append(subprocess.Popen(command, cwd=ROOT, env=live_app.environment, stdout=log, stderr=log))
        return started[-1]

    yield start
    for run in live_app.store.runs(statuses=("queued", "running", "stalled")):
        if run.kind == "sample" and run.actor != "ada":
            live_app.store.request_stop(run.id)
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=60)


@pytest.fixture
def other(browser: Browser) -> Iterator[Page]:
    """A page of a second browser: nothing is shared with the first."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def launch(live_app: LiveApp, page: Page) -> int:
    """Start a run of naps from the form; returns its id, which the address then names."""
    if not (live_app.home / "checkpoints" / "tiny").exists():
        make_checkpoint(live_app.home / "checkpoints" / "tiny")
    fields = f"set=llm.checkpoint=tiny&set=generate.count=3&set=seed={NAPS}"
    open_page(page, f"{live_app.url}/runs?new=sample&{fields}")
    page.get_by_role("button", name=re.compile("Start: sample solutions")).click()
    page.wait_for_url(re.compile(r"[?&]run=\d+"))
    found = re.search(r"run=(\d+)", page.url)
    assert found is not None
    return int(found[1])


def shows_at_least(page: Page, naps: int) -> None:
    """Wait until the page's progress is there or beyond."""
    page.wait_for_function(
        "([naps, all]) => { const said = document.body.innerText.match(new RegExp(`(\\\\d+) / ${all}`));"
        " return said !== null && Number(said[1]) >= naps; }",
        arg=[naps, NAPS],
    )


def test_requirement_10_a_run_is_launched_followed_killed_resumed_and_stopped(
    live_app: LiveApp, page: Page, other: Page, worker: Worker
) -> None:
    store = live_app.store
    process = worker()
    run_id = launch(live_app, page)
    assert store.run(run_id).actor == "rosa"
    open_page(other, page.url)
    wait_for(lambda: store.run(run_id).done >= 3)
    for one in (page, other):
        shows_at_least(one, store.run(run_id).done)
    page.reload()
    shows_at_least(page, store.run(run_id).done)

    child = store.run(run_id).pid
    assert child is not None
    for pid in (process.pid, child):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=60)
    with store.write() as db:
        silent = utc_now() - timedelta(seconds=21)
        db.execute(update(Run).where(Run.id == run_id).values(heartbeat_at=silent))
    for one in (page, other):
        expect(one.get_by_text("no sign of life").first).to_be_visible()
        expect(one.get_by_text("stalled").first).to_be_visible()

    was = store.run(run_id).done
    other.get_by_role("button", name=re.compile("Resume$")).click()
    wait_for(lambda: store.run(run_id).status == "queued")
    worker()
    wait_for(lambda: store.run(run_id).done > was + 2)
    assert store.run(run_id).attempt == 2
    for one in (page, other):
        shows_at_least(one, was + 2)
    page.get_by_role("button", name=re.compile("Stop$")).click()
    wait_for(lambda: store.run(run_id).status == "stopped")
    for one in (page, other):
        expect(one.get_by_role("button", name=re.compile("Stop$"))).to_have_count(0)
        expect(one.get_by_role("button", name=re.compile("Resume$"))).to_be_visible()
    assert {entry.action for entry in store.audit(limit=500) if entry.target == f"run {run_id}"} == {
        "start run",
        "resume run",
        "stop run",
    }


def test_requirement_10_a_new_run_moves_nothing_and_a_half_typed_comment_stays(
    live_app: LiveApp, page: Page, other: Page, worker: Worker
) -> None:
    store = live_app.store
    worker()
    first = launch(live_app, page)
    wait_for(lambda: store.run(first).done >= 1)
    open_page(page, f"{live_app.url}/runs")
    link = page.locator(f"tr[data-row='{first}'] a")
    link.focus()
    chunk = 113
    typed = "9 + 4 is 13, so th"
    address = f"{live_app.url}/trajectory?traj={live_app.filled.long}&chunk={chunk}"
    open_page(other, address)
    comment = other.get_by_label("Comment")
    comment.click()
    comment.type(typed)

    newer = store.create_run("sample", {"kind": "sample", "seed": 1}, "bob")
    expect(page.locator(f"tr[data-row='{newer}']")).to_be_visible()
    now = store.run(first).done
    wait_for(lambda: store.run(first).done >= now + 20)  # many redraws of the list
    assert page.url == f"{live_app.url}/runs"
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"{live_app.url}/runs?run={first}")

    expect(comment).to_have_value(typed)
    expect(comment).to_be_focused()
    comment.blur()
    settled(other)
    open_page(other, address)
    expect(other.get_by_label("Comment")).to_have_value(typed)
    assert store.history(_chunk(live_app, chunk)) == []
    store.put_draft("rosa", _chunk(live_app, chunk), "")


def _chunk(live_app: LiveApp, idx: int) -> int:
    return live_app.store.stage_trajectories([live_app.filled.long])[0].chunks[idx].id

"""What the browser tests of the Queue page share: solutions of their own in the store, and keys pressed card by card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from db.rows import Label, NewChunk, NewJudgment, NewProblem, NewTrajectory
from db.store import Store
from tests.browser_support import ROOT, LiveApp, open_page, start_server

if TYPE_CHECKING:
    from playwright.sync_api import Page

CARD = "() => window.stepwiserKeys?.sets.get('item-keys')?.card ?? ''"
MOVED = "card => ![card, '', undefined].includes(window.stepwiserKeys?.sets.get('item-keys')?.card)"
SETTLE_MS = 260
"""A little more than keys.js takes a press on a new card to be meant for the one before."""
SLOW_ACTOR = "ben"


@pytest.fixture(scope="session")
def slow_url(live_app: LiveApp) -> Iterator[str]:
    """Pages of ``SLOW_ACTOR`` over the store of ``live_app``, on a machine slowed by 700 ms."""
    environment = live_app.environment | {
        "STEPWISER_ACTOR": SLOW_ACTOR,
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
        "STREAMLIT_SERVER_FILE_WATCHER_TYPE": "none",
        "STREAMLIT_RUNNER_MAGIC_ENABLED": "false",
        "STREAMLIT_SERVER_ADDRESS": "127.0.0.1",
    }
    process, url = start_server(environment, live_app.home / "slow.log", ROOT / "tests" / "slow_pages.py")
    yield url
    process.terminate()
    process.wait(timeout=20)


def solution(
    store: Store, key: str, texts: Sequence[str], *, answer: str = "1", reference: str = "1"
) -> tuple[int, list[int]]:
    """A hand-written solution of a problem of its own: (trajectory id, chunk ids)."""
    problem = store.add_problems(
        [NewProblem("requirements", key, f"Problem {key}: what comes out?", reference)],
        run_id=None,
        actor="ada",
    ).ids["requirements", key]
    tail = f"\n\\boxed{{{answer}}}"
    row = NewTrajectory(
        problem_id=problem,
        policy="human",
        text="\n".join(texts) + tail,
        tail=tail,
        chunks=tuple(NewChunk("\n" if i else "", text) for i, text in enumerate(texts)),
        cutter="given",
        outcome="correct" if answer == reference else "wrong",
        answer=answer,
    )
    trajectory = store.add_trajectories([row], run_id=None, actor="ada")[0].id
    return trajectory, [chunk.id for chunk in store.chunk_page(trajectory, 0, len(texts))]


def judged(
    store: Store,
    chunks: Sequence[int],
    labels: str,
    votes: str,
    *,
    name: str,
    rationale: str,
    sure: Sequence[float],
) -> int:
    """Give each chunk a rel-ratio label (a sign of ``labels``) that is so ``sure``, and a judge's verdict."""
    run = store.create_run("judge", {}, "ada")
    judge = store.ensure_judge(
        name=name,
        kind="generative",
        checkpoint=name,
        checkpoint_hash=name,
        prompt_name="judge",
        prompt_hash="p",
        sampling={},
        sampling_digest="s",
        run_id=run,
    )
    words = {"+": "positive", "-": "negative"}
    store.add_judgments(
        [
            NewJudgment(judge, chunk, 0, words[sign], rationale, 9, "stop", 0)
            for chunk, sign in zip(chunks, votes, strict=True)
        ],
        run_id=run,
    )
    store.put_labels(
        [
            Label(chunk, q_before=0.5, q_after=0.25, drop=0.25, rel_ratio=sign, rel_ratio_conf=conf)
            for chunk, sign, conf in zip(chunks, labels, sure, strict=True)
        ]
    )
    return judge


def open_work(page: Page, url: str, queue: int) -> None:
    """Open the screen of a queue's work and wait until its keys act."""
    open_page(page, f"{url}/queue?queue={queue}&work=1")
    keys_act(page)


def keys_act(page: Page) -> None:
    """Wait until the item on screen takes keys."""
    page.wait_for_function(f"({CARD})() !== ''")
    page.wait_for_timeout(SETTLE_MS)


def press(page: Page, key: str) -> None:
    """Press a key that leads to another card, and wait until that one takes keys."""
    card = page.evaluate(CARD)
    page.keyboard.press(key)
    page.wait_for_function(MOVED, arg=card)
    page.wait_for_timeout(SETTLE_MS)


def verdicts(store: Store, chunks: Sequence[int], actor: str | None = None) -> list[list[int | None]]:
    """Of each chunk what was said of it, row by row, undos included."""
    return [
        [step.review.verdict for step in store.history(chunk) if actor in (None, step.review.actor)]
        for chunk in chunks
    ]

"""Rollout runs that meet a locked store, a full disk, a stuck grader, servers out of their minds, and Ctrl-C twice.

Each must end as an uninterrupted run does, at once or after it is resumed. Kills are in test_kill and test_soak; a
prompt beyond the context is in test_pipeline, what a single request meets in test_llm_server.
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

import engine.pipeline.rolling as rolling
import engine.runs as runs
from db.check import check
from db.connect import connect
from db.errors import StoreLockedError
from db.store import Store, open_store
from engine.answers import Grader
from engine.errors import LLMError
from engine.llm import LLMSpec, server_fleet
from engine.llm.checkpoint import check_checkpoint
from engine.llm.server_check import weights_name
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from engine.runs import RunContext, execute
from tests import little_world as little
from tests.disaster_run import DRAWS
from tests.fake_server import FakeServer
from tests.graded import ENDLESS

ROOT = Path(__file__).resolve().parents[1]
Rows = list[tuple[Any, ...]]


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'little.db'}"


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose store holds sampled solutions."""
    folder = tmp_path_factory.mktemp("sampled")
    store = little.open_little(folder, problems=100)
    ctx = little.context(store, little.sample_recipe(n=4), folder)
    assert execute(ctx, lambda ctx: sample_with(ctx, little.scripted_policy())) == "done"
    store.close()
    return folder


@pytest.fixture(scope="module")
def whole(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What a run that nothing happens to leaves."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copy(sampled / "little.db", folder)
    store = open_store(url(folder))
    roll_out(little.context(store, little.rollout_recipe(m=DRAWS), folder), little.scripted_policy())
    return little.all_rollouts(store)


@pytest.fixture
def folder(sampled: Path, tmp_path: Path) -> Path:
    shutil.copy(sampled / "little.db", tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A run listens to signals; afterwards they are pytest's again."""
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in kept.items():
        signal.signal(signum, handler)


def again(store: Store, run_id: int, folder: Path) -> RunContext[Any]:
    """The run resumed, as the worker does it."""
    store.resume_run(run_id)
    run = store.claim_next(pid=0)
    assert run is not None and run.id == run_id
    recipe = little.rollout_recipe(m=DRAWS)
    return RunContext(store, run_id, run.attempt, recipe, folder, "test", resumed=True)


def ends_as_if_nothing_had_been(folder: Path, run_id: int, whole: Rows) -> None:
    store = open_store(url(folder))
    before = little.all_rollouts(store)
    assert 0 < len(before) < len(whole), "the disaster came too early or too late to test anything"
    assert set(before) < set(whole)
    ctx = again(store, run_id, folder)
    assert execute(ctx, lambda ctx: roll_out(ctx, little.scripted_policy())) == "done"
    assert little.all_rollouts(store) == whole
    assert check(store) == []


# A locked store


class Lock:
    """Somebody else holds the store's write lock from the run's second batch on, until ``release``."""

    def __init__(self, folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch):
        self.holder = sqlite3.connect(folder / "little.db", isolation_level=None, check_same_thread=False)
        self.batches, write = 0, store.add_rollouts

        def add(*args: Any, **kwargs: Any) -> int:
            self.batches += 1
            if self.batches == 2:
                self.holder.execute("BEGIN IMMEDIATE")
            return write(*args, **kwargs)

        monkeypatch.setattr(store, "add_rollouts", add)

    def release(self) -> None:
        self.holder.execute("ROLLBACK")


def test_a_locked_store_is_waited_for_and_ends_no_heartbeat(
    folder: Path, whole: Rows, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The lock is held until three heartbeats have waited for it in vain."""
    monkeypatch.setattr(runs, "HEARTBEAT_S", 0.05)
    store, impatient = open_store(url(folder)), Store(connect(url(folder), busy_timeout_s=0.05))
    ctx = little.context(store, little.rollout_recipe(m=DRAWS), folder)
    lock, in_vain = Lock(folder, store, monkeypatch), 0

    def heartbeat(*args: Any, **kwargs: Any) -> bool:
        nonlocal in_vain
        try:
            return impatient.heartbeat(*args, **kwargs)
        except StoreLockedError:
            in_vain += 1
            if in_vain == 3:
                lock.release()
            raise

    monkeypatch.setattr(store, "heartbeat", heartbeat)
    assert execute(ctx, lambda ctx: roll_out(ctx, little.scripted_policy())) == "done"
    assert in_vain >= 3 and capsys.readouterr().out.count("heartbeat not written") == in_vain
    assert store.run(ctx.run_id).status == "done" and lock.batches > 2
    assert little.all_rollouts(store) == whole
    assert check(store) == []


def test_a_store_locked_for_longer_than_anybody_waits_fails_the_run_which_goes_on_later(
    folder: Path, whole: Rows, monkeypatch: pytest.MonkeyPatch
):
    """That it failed is stored as soon as the store can be written."""
    monkeypatch.setattr(runs, "END_RETRY_S", 0.05)
    store = Store(connect(url(folder), busy_timeout_s=0.1))
    ctx = little.context(store, little.rollout_recipe(m=DRAWS), folder)
    lock, lines = Lock(folder, store, monkeypatch), []

    def log(line: str) -> None:
        lines.append(line)
        if "its end is not stored yet" in line:
            lock.release()

    monkeypatch.setattr(ctx, "log", log)
    assert execute(ctx, lambda ctx: roll_out(ctx, little.scripted_policy())) == "failed"
    assert any("its end is not stored yet" in line for line in lines)
    error = store.run(ctx.run_id).error or ""
    assert "stayed locked by another process" in error and "end the process that holds it" in error
    assert "resume the run" in error
    store.close()
    ends_as_if_nothing_had_been(folder, ctx.run_id, whole)


def test_a_message_that_no_store_takes_is_still_how_the_run_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Half a character, as a server's message that was cut off may end, where standard output takes none either."""
    store = open_store(url(folder))
    ctx = little.context(store, little.rollout_recipe(m=DRAWS), folder)

    def fails(ctx: RunContext[Any]) -> dict[str, Any]:
        ctx.progress(1, 2, "rollouts", "at \ud83d")
        ctx.log("saw \ud83d")
        raise LLMError("the server says: \ud83d\0")

    with (tmp_path / "log").open("w", encoding="utf-8", errors="strict") as log:
        monkeypatch.setattr(sys, "stdout", log)
        assert execute(ctx, fails) == "failed"
    run = store.run(ctx.run_id)
    assert (run.status, run.error) == ("failed", "the server says: \\ud83d\\0")
    assert (run.done, run.message) == (1, "at \\ud83d")
    assert "saw \\ud83d\n" in (tmp_path / "log").read_text()


# A full disk


def test_a_full_disk_fails_the_run_which_goes_on_when_there_is_space(
    folder: Path, whole: Rows, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "END_PATIENCE_S", 0.2)
    engine = connect(url(folder))
    with engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    engine.dispose()
    event.listen(engine, "connect", lambda raw, _: raw.execute(f"PRAGMA max_page_count = {pages + 40}"))
    store = Store(engine)
    ctx = little.context(store, little.rollout_recipe(m=DRAWS), folder)
    ended = execute(ctx, lambda ctx: roll_out(ctx, little.scripted_policy()))
    error = store.run(ctx.run_id).error or ""
    assert ended == "failed", ended
    assert "no space left on its disk" in error and "what was committed before is there" in error
    assert "Free some space, then try again, or resume the run" in error
    store.close()
    ends_as_if_nothing_had_been(folder, ctx.run_id, whole)


def child(folder: Path, run_id: int, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.disaster_run", str(folder), str(run_id), "1", what],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_a_limit_on_file_sizes_fails_the_run_which_goes_on_without_it(folder: Path, whole: Rows):
    store = open_store(url(folder))
    ctx = little.context(store, little.rollout_recipe(m=DRAWS), folder)
    with child(folder, ctx.run_id, "small-files") as process:
        said = process.communicate(timeout=100)[0]
    assert "its disk refused to read or write" in said and "ulimit -f" in said, said[-2000:]
    status = said.split()[-1]
    assert process.returncode == 0 and status in ("failed", runs.NOT_STORED.split()[-1])
    if store.run(ctx.run_id).status == "running":  # not even that could be stored: its heartbeat has ended
        store.finish_run(ctx.run_id, "failed", error="stalled")
    store.close()
    ends_as_if_nothing_had_been(folder, ctx.run_id, whole)


# Ctrl-C


def test_ctrl_c_twice_ends_the_run_at_once_and_it_goes_on(folder: Path, whole: Rows):
    store = open_store(url(folder))
    ctx = little.context(store, little.rollout_recipe(m=DRAWS), folder)
    with child(folder, ctx.run_id, "stuck") as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any("the LLM hangs" in line for line in lines)
        process.send_signal(signal.SIGINT)
        assert any("stopping after the batch in hand" in line for line in lines)
        assert process.poll() is None, "the first one asks, and the batch in hand does not end"
        process.send_signal(signal.SIGINT)
        assert any("ending at once; what was committed stays" in line for line in lines)
        assert process.wait(timeout=60) == -signal.SIGKILL
    store.finish_run(ctx.run_id, "stopped", error="as the worker says it")
    store.close()
    ends_as_if_nothing_had_been(folder, ctx.run_id, whole)


# A stuck grader


def test_an_answer_that_is_never_graded_delays_no_other(
    folder: Path, whole: Rows, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rolling, "Grader", partial(Grader, limit_s=1.5))
    store, llm = open_store(url(folder)), little.scripted_policy()
    script, stuck = llm._script, whole[0]

    def endless(prompt: str, seed: int) -> str:
        answer = script(prompt, seed)
        return f"{answer}\n\\boxed{{{ENDLESS}}}" if seed == stuck[3] else answer

    llm._script = endless
    roll_out(little.context(store, little.rollout_recipe(m=DRAWS), folder), llm)
    found = little.all_rollouts(store)
    assert [row[:4] for row in found[1:]] == [row[:4] for row in whole[1:]]
    assert found[0][:4] == (*stuck[:2], "error", stuck[3])
    with store.read() as db:
        last = db.exec_driver_sql(
            "SELECT p.key FROM rollouts r JOIN prefixes p ON p.id = r.prefix_id ORDER BY r.id DESC LIMIT 1"
        ).scalar_one()
    assert last == stuck[0], "every other prefix was graded and handed on while it was waited for"
    assert check(store) == []


# A policy that never stops


def test_draws_that_never_stop_are_truncated_and_counted_apart(folder: Path, whole: Rows):
    store, llm = open_store(url(folder)), little.scripted_policy()
    script, endless = llm._script, {row[3] for row in whole[::7]}
    llm._script = lambda prompt, seed: "and on " * 40 if seed in endless else script(prompt, seed)
    roll_out(little.context(store, little.rollout_recipe(m=DRAWS), folder), llm)
    for found, right in zip(little.all_rollouts(store), whole, strict=True):
        assert found[2] == ("truncated" if right[3] in endless else right[2])
    assert check(store) == []


# Servers out of their minds


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    from tests.tiny_llama import make_tiny_llama

    return make_tiny_llama(tmp_path_factory.mktemp("home") / "checkpoints" / "tiny")


@contextmanager
def serving(tiny: Path, count: int) -> Iterator[list[FakeServer]]:
    from transformers import AutoConfig

    names = ("tiny", weights_name(check_checkpoint(tiny).content_hash))
    size = int(AutoConfig.from_pretrained(tiny).vocab_size)
    servers = [FakeServer(names, vocabulary=size) for _ in range(count)]
    try:
        yield servers
    finally:
        for server in servers:
            server.stop()


def served_run(folder: Path, tiny: Path, servers: list[FakeServer], **options: Any) -> RunContext[Any]:
    """A run over these servers. What they answer is noise, and the same noise from each."""
    llm = LLMSpec(
        door="server",
        checkpoint="tiny",
        servers=tuple(server.address for server in servers),
        **({"max_num_seqs": 32, "patience_s": 30} | options),
    )
    recipe = little.rollout_recipe(m=4, llm=llm)
    return little.context(open_store(url(folder)), recipe, tiny.parents[1])


def test_a_run_over_servers_that_misbehave_ends_as_over_one_that_does_not(
    sampled: Path, folder: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_fleet, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(server_fleet, "LONGEST_WAIT_S", 0.1)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(sampled / "little.db", other)
    with serving(tiny, 1) as servers:
        ctx = served_run(other, tiny, servers)
        assert execute(ctx, rolling.run) == "done"
        right = little.all_rollouts(ctx.store)
    with serving(tiny, 2) as servers:
        for server in servers:
            server.misdeeds.extend(["429", "500", "garbage", "half", "drop", "error in stream"])
        ctx = served_run(folder, tiny, servers)
        assert execute(ctx, rolling.run) == "done"
        assert not any(server.misdeeds for server in servers)
    assert little.all_rollouts(ctx.store) == right and len(right) > 300
    assert check(ctx.store) == []


def test_a_run_whose_servers_are_gone_fails_and_goes_on_when_they_are_back(
    folder: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_fleet, "FIRST_WAIT_S", 0.01)
    with serving(tiny, 1) as (server,):
        ctx = served_run(folder, tiny, [server], patience_s=0.5)
        committed = ctx.store.add_rollouts

        def add(*args: Any, **kwargs: Any) -> int:
            threading.Thread(target=server.stop).start()
            return committed(*args, **kwargs)

        monkeypatch.setattr(ctx.store, "add_rollouts", add)
        monkeypatch.setattr(rolling, "Batch", partial(rolling.Batch, rows=100))
        assert execute(ctx, rolling.run) == "failed"
        error = ctx.store.run(ctx.run_id).error or ""
        assert server.address in error and "resume" in error, error
        before = little.all_rollouts(ctx.store)
        assert before
        monkeypatch.undo()
        server.start()
        ctx.store.resume_run(ctx.run_id)
        run = ctx.store.claim_next(pid=0)
        assert run is not None
        ctx = RunContext(ctx.store, run.id, run.attempt, ctx.recipe, ctx.home, "test", resumed=True)
        assert execute(ctx, rolling.run) == "done"
        after = little.all_rollouts(ctx.store)
        assert set(before) < set(after) and {row[1] for row in after} == set(range(4))
        assert check(ctx.store) == []


def test_a_log_on_a_full_disk_ends_no_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    ctx = little.context(open_store(url(folder)), little.rollout_recipe(m=1), folder)
    written = []

    def write(text: str) -> int:
        written.append(text)
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(sys.stdout, "write", write)
    ctx.log("nobody will read this")
    assert written

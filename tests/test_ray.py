"""A Ray cluster of two nodes, started once: the contract of all doors over a pool of engines, engines and a node that
die, GPUs asked for, runs worked on as jobs.

The contract's tests are those of test_llm and test_llm_stream, collected here again with this file's ``door``. The
nodes claim GPUs, so that engines and jobs are placed as on a cluster that has them; the engines compute on the CPU.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from app.cluster import check_store, is_here, job_server
from app.doctor import examine
from app.runs import queue_run
from app.sample import HANDWRITTEN
from app.settings import Settings
from app.store import open_or_make_store
from db.store import Store
from engine.errors import LLMError, RunError
from engine.llm import LLMSpec, open_llm
from engine.llm.base import LLM
from engine.llm.ray_door import RayDoor
from engine.pipeline.imports import import_file
from engine.recipes import Draws, RolloutRecipe, Selection
from tests import test_llm, test_llm_stream
from tests.doors import by_id, mixed
from tests.ray_cluster import ROOT, RayCluster, free_port, ray_cluster
from tests.test_llm_servers_real import _contract
from tests.test_worker import queue, wait
from tests.tiny_llama import make_tiny_llama

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed: pip install -e '.[cluster]'"),
    pytest.mark.skipif(not find_spec("vllm"), reason="vLLM is not installed: pip install -e '.[cpu]'"),
]

globals().update(_contract(test_llm) | _contract(test_llm_stream))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as started:
        yield started


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("tiny-llama") / "tiny")


def spec(tiny: Path, **fields: object) -> LLMSpec:
    return LLMSpec.model_validate(
        {"door": "ray", "checkpoint": str(tiny), "name": "tiny", "max_num_seqs": 7, "kv_cache_gib": 0.125}
        | fields
    )


@pytest.fixture(scope="module")
def door(cluster: RayCluster, tiny: Path) -> Iterator[LLM]:
    """Two engines; 7 draws in each and one that waits are the 16 that the contract's tests count with."""
    with open_llm(spec(tiny, engines=2)) as llm:
        assert isinstance(llm, RayDoor)
        up(llm, 2)
        yield llm


def up(llm: RayDoor, engines: int) -> None:
    """Wait until so many engines are at work."""
    pool = llm._pool
    assert pool is not None
    look(llm, lambda: sum(member.up for member in pool.members) == engines)


def look(llm: RayDoor, until: Callable[[], bool]) -> None:
    """The pool hears of its engines only while somebody looks."""
    assert llm._pool is not None
    for _ in range(240):
        llm._pool._look(0.25)
        if until():
            return
    pytest.fail(f"engines did not start: {llm._pool.members}")


def node_of(pid: int) -> int:
    """The raylet that started a worker's process."""
    return next(one.pid for one in psutil.Process(pid).parents() if "raylet" in one.name())


def test_each_engine_is_placed_where_a_gpu_is_free(door: RayDoor) -> None:
    first, second = (use.pid for use in door.use)
    assert node_of(first) != node_of(second), "spread over the nodes"
    assert door._pool is not None and door._pool._gpus == 1
    assert door.info.versions["door"].startswith("2 engines on Ray") and door.info.versions["vllm"]


def test_an_engine_without_a_place_is_named_with_what_is_free(door: LLM, tiny: Path) -> None:
    with pytest.raises(
        LLMError, match=r"asks for 9 GPUs and 1 CPUs; free in the cluster: \d+ GPUs, \d+ CPUs"
    ):
        open_llm(spec(tiny, tensor_parallel=9, patience_s=0.5))


def test_both_engines_work_and_agree_with_one(door: RayDoor, tiny: Path) -> None:
    before = [use.draws for use in door.use]
    asked = mixed(door, 120)
    answers = by_id(door.stream(asked))
    made = [use.draws - then for use, then in zip(door.use, before, strict=True)]
    assert min(made) > 20 and sum(made) == sum(request.n for request in asked)
    alone = [by_id(door.stream([request]))[request.id] for request in asked[:20]]
    assert [answers[request.id] for request in asked[:20]] == alone


def test_a_killed_engine_loses_nothing_and_is_replaced(door: RayDoor) -> None:
    asked = mixed(door, 200)
    expected = by_id(door.stream(asked))
    starts, dead = door.use[1].starts, door.use[1].pid
    answers = {}
    for completions in door.stream(asked):
        assert completions[0].request_id not in answers
        answers[completions[0].request_id] = completions
        if len(answers) == 30:
            os.kill(dead, signal.SIGKILL)
    assert answers == expected
    assert door.use[1].handed_on > 0
    up(door, 2)
    assert door.use[1].starts == starts + 1 and door.use[1].pid != dead
    draws = door.use[1].draws
    assert by_id(door.stream(asked)) == expected
    assert door.use[1].draws > draws


# Runs as jobs


@pytest.fixture(scope="module")
def settings(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(home=tmp_path_factory.mktemp("home"), database_url="", ray_address=cluster.jobs)


@pytest.fixture(scope="module")
def store(settings: Settings) -> Iterator[Store]:
    store = open_or_make_store(settings)
    yield store
    store.close()


def place(settings: Settings) -> dict[str, str]:
    """The environment of a worker there."""
    return os.environ | {
        "STEPWISER_HOME": str(settings.home),
        "STEPWISER_DATABASE_URL": "",
        "STEPWISER_RAY_ADDRESS": settings.ray_address,
        "STEPWISER_STALLED_AFTER_S": "10",
    }


@pytest.fixture(scope="module")
def worker(settings: Settings, store: Store) -> Iterator[subprocess.Popen[bytes]]:
    """A worker whose kinds are the naps of tests.slow_worker, and which sends them to the cluster."""
    process = subprocess.Popen([sys.executable, "-m", "tests.slow_worker"], cwd=ROOT, env=place(settings))
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def log_of(settings: Settings, run_id: int) -> str:
    return (settings.logs / f"run-{run_id}.log").read_text()


def test_a_run_is_worked_on_as_a_job_and_its_log_comes_back(
    store: Store, settings: Settings, worker: subprocess.Popen[bytes]
) -> None:
    run_id = queue(store, seed=3)
    wait(lambda: store.run(run_id).ended_at is not None)
    run = store.run(run_id)
    assert run.status == "done", log_of(settings, run_id)
    assert run.done == run.total == 3 and run.result["slept"] == 3
    wait(lambda: "SUCCEEDED" in log_of(settings, run_id))
    log = log_of(settings, run_id)
    assert f"sent to the Ray cluster {settings.ray_address} as job stepwiser-run-{run_id}-1-" in log
    assert ", 1 GPUs" in log, "the run would load an LLM itself: its job is placed where a GPU is free"
    assert "attempt 1" in log and log.count(f"run {run_id}: done") == 1


def test_a_job_stops_and_a_killed_one_is_seen_and_resumes(
    store: Store, settings: Settings, worker: subprocess.Popen[bytes]
) -> None:
    run_id = queue(store, seed=40)
    wait(lambda: store.run(run_id).done >= 1)
    store.request_stop(run_id)
    wait(lambda: store.run(run_id).status == "stopped")
    slept = store.run(run_id).result["slept"]
    assert 1 <= slept < 40, "it stopped by itself and said how far it was"
    store.resume_run(run_id)
    wait(lambda: store.run(run_id).attempt == 2 and store.run(run_id).done > slept)
    pid = store.run(run_id).pid
    assert pid is not None and node_of(pid), "the job's own process, on a node of the cluster"
    os.kill(pid, signal.SIGKILL)
    wait(lambda: store.run(run_id).status == "failed")
    assert "its Ray job ended as FAILED before it could say why" in (store.run(run_id).error or "")


def test_a_worker_that_ends_stops_its_job_first(
    store: Store, settings: Settings, worker: subprocess.Popen[bytes]
) -> None:
    """The last that needs this worker."""
    run_id = queue(store, seed=600)
    wait(lambda: store.run(run_id).done >= 1)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert store.run(run_id).status == "stopped" and store.run(run_id).result["slept"] >= 1


def test_a_rollout_run_is_a_job_whose_draws_come_from_an_engine_on_the_cluster(
    store: Store, settings: Settings
) -> None:
    """The whole way with nothing in a stand-in's place: queue, worker, job, engine, grader, labels."""
    import_file(store, HANDWRITTEN, dataset=None, cutter=None, actor="test")
    recipe = RolloutRecipe(
        select=Selection(dataset="handwritten", limit=2, mixed_only=False),
        m=4,
        llm=LLMSpec(door="ray", checkpoint="nano", max_num_seqs=8, kv_cache_gib=0.125),
        draws=Draws(max_tokens=64),
    )
    run_id = queue_run(store, recipe.kind, recipe.model_dump(mode="json"), "test", settings)
    command = [sys.executable, "-m", "app.worker", "until", str(run_id)]
    subprocess.run(command, cwd=ROOT, env=place(settings), check=False, timeout=300)
    run, log = store.run(run_id), log_of(settings, run_id)
    assert run.status == "done", log
    assert f"as job stepwiser-run-{run_id}-1-" in log and ", 1 GPUs" not in log, "its engine has the GPU"
    made = store.run_outcomes(run_id).counts
    drawn = sum(n for n, _ in made.values())
    assert drawn == run.result["rollouts"] == 4 * run.result["prefixes"] > 0
    ((engine, use),) = run.result["served_by"].items()
    assert engine.startswith("engine 0 on ") and use == {"draws": drawn, "handed_on": 0, "outages": 0}
    assert run.result["labelled_chunks"] > 0


# What is checked before


def test_doctor_says_what_the_cluster_is_and_what_is_wrong_with_it(
    settings: Settings, cluster: RayCluster, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ray_line(address: str) -> tuple[bool | None, str]:
        other = settings.model_copy(update={"ray_address": address})
        (found,) = [one for one in examine(other) if one.what.startswith("Ray")]
        return found.ok, found.found

    ok, found = ray_line(cluster.jobs)
    assert ok and "4 GPUs, token" in found
    ok, found = ray_line(f"http://127.0.0.1:{free_port()}")
    assert ok is False and "does not answer" in found
    assert ray_line("")[0] is None
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another one")
    assert "refuses the token" in ray_line(cluster.jobs)[1]
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(settings.home / "none"))
    ok, found = ray_line(cluster.jobs)
    assert ok is False and "it wants a token" in found


def test_a_cluster_that_takes_commands_from_anybody_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cluster_jobs.JobServer.wants_token", lambda self: False)
    with pytest.raises(RunError, match="takes commands from anybody"):
        job_server(settings)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert job_server(settings).version()


def test_a_store_that_a_job_cannot_open_is_refused(settings: Settings) -> None:
    def checked(address: str, database_url: str = "") -> None:
        check_store(settings.model_copy(update={"ray_address": address, "database_url": database_url}))

    assert is_here("localhost") and not is_here("192.0.2.7")
    checked("http://127.0.0.1:8265")
    checked("http://192.0.2.7:8265", "postgresql+psycopg://me@db/studio")
    with pytest.raises(RunError, match="SQLite file of this machine"):
        checked("http://192.0.2.7:8265")
    for secret in ("postgresql+psycopg://me:secret@db/studio", "postgresql://db/studio?password=secret"):
        with pytest.raises(RunError, match="holds a password") as problem:
            checked("http://192.0.2.7:8265", secret)
        assert "secret" not in str(problem.value)


# The last: the second node does not come back


def test_a_node_that_is_gone_takes_only_its_engines_along(door: RayDoor, cluster: RayCluster) -> None:
    there = cluster.second.all_processes["raylet"][0].process.pid
    dead = engine_on(door, there)
    starts = [use.starts for use in door.use]
    asked = mixed(door, 120)
    expected = by_id(door.stream(asked))
    answers = {}
    for completions in door.stream(asked):
        answers[completions[0].request_id] = completions
        if len(answers) == 30:
            cluster.cluster.remove_node(cluster.second, allow_graceful=False)
    assert answers == expected
    look(door, lambda: door.use[dead].starts > starts[dead])
    up(door, 2)
    assert [use.starts - then for use, then in zip(door.use, starts, strict=True)] == [dead == 0, dead == 1]
    assert node_of(door.use[dead].pid) == node_of(door.use[1 - dead].pid) != there


def engine_on(door: RayDoor, node: int) -> int:
    """The only engine on a node; a killed one that came back on the other is killed until they lie apart again."""
    for _ in range(8):
        nodes = [node_of(use.pid) for use in door.use]
        if nodes.count(node) == 1:
            return nodes.index(node)
        starts = door.use[0].starts
        os.kill(door.use[0].pid, signal.SIGKILL)
        look(door, lambda starts=starts: door.use[0].starts > starts)
        up(door, 2)
    pytest.fail("both engines stay on one node")

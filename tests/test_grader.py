"""The grader's workers, its streams and its cache: what is stuck, dies or cannot start. Not: which answers are equal
(test_answers).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import answers
from engine.answers import Grade, Grader, Reference, cache_key
from engine.errors import GraderError
from engine.verifiers import math as mathematics
from tests.graded import ENDLESS, boxed, grader

__all__ = ["grader"]


def test_stuck_worker_is_killed_and_replaced() -> None:
    """The hard limit is the parent's: it holds where the worker's own limit would not come."""
    with Grader(workers=1, limit_s=20) as grader:
        assert grader.grade_many([(boxed("x+x"), Reference("2x"), "stop")])[0].outcome == "correct"
        (worker,) = grader._alive
        psutil.Process(worker.process.pid).suspend()  # as deaf as a long computation in C
        grader.limit_s = 0.5
        assert grader.grade_many([(boxed("x+2x"), Reference("3x"), "stop")]) == [Grade("error", "x+2x")]
        assert worker.process.poll() is not None
        grader.limit_s = 20
        assert grader.grade_many([(boxed("x+3x"), Reference("4x"), "stop")]) == [Grade("correct", "x+3x")]
        assert worker not in grader._alive and len(grader._alive) == 1


def test_worker_that_died_while_idle_costs_no_answer() -> None:
    with Grader(workers=1, limit_s=20) as grader:
        grader.grade_many([(boxed("x+x"), Reference("2x"), "stop")])
        (worker,) = grader._alive
        worker.process.kill()
        worker.process.wait()
        assert grader.grade_many([(boxed("x+2x"), Reference("3x"), "stop")]) == [Grade("correct", "x+2x")]


def test_close_ends_workers_even_stuck_ones() -> None:
    grader = Grader(workers=2, limit_s=60)
    grader.grade_many([(boxed(f"x+{i}"), Reference("x"), "stop") for i in range(2)])
    processes = [worker.process for worker in grader._alive]
    for process in processes:
        psutil.Process(process.pid).suspend()
    grader.submit("stuck", boxed("y"), Reference("x"), "stop")
    grader.close()
    assert processes and all(process.poll() is not None for process in processes)


def test_worker_that_cannot_start_is_a_named_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'No module named math_verify' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with (
        Grader(workers=1) as grader,
        pytest.raises(GraderError, match="a grading worker did not start: No module named math_verify"),
    ):
        grader.grade_many([(boxed("x+x"), Reference("2x"), "stop")])


def test_in_process_grading_outside_the_main_thread_says_what_to_use() -> None:
    caught: list[Exception] = []

    def work() -> None:
        try:
            mathematics.compare("x+x", "2x")
        except GraderError as problem:
            caught.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "use a Grader" in str(caught[0])
    assert mathematics.compare("x+x", "2x") == "correct"
    with pytest.raises(GraderError, match="not compared within"):
        mathematics.compare(ENDLESS, "5")


# Streams and the cache


class Kept:
    """A cache that counts."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        self.asked: list[str] = []

    def get_many(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.asked += keys
        return {key: self.stored[key] for key in keys if key in self.stored}

    def put_many(self, outcomes: Mapping[str, str]) -> None:
        self.stored.update(outcomes)


def test_cache_is_asked_once_and_keeps_no_errors() -> None:
    kept = Kept()
    items = [(boxed("x+x"), Reference("2x"), "stop")] * 5 + [
        (boxed(ENDLESS), Reference("5"), "stop"),
        (boxed("5"), Reference("5"), "stop"),
    ]
    with Grader(workers=1, limit_s=30, cache=kept) as grader:
        first = grader.grade_many(items)
        again = grader.grade_many(items)
    assert first == again
    assert [grade.outcome for grade in first] == ["correct"] * 5 + ["error", "correct"]
    assert kept.stored == {cache_key("x+x", Reference("2x")): "correct"}
    assert sorted(kept.asked) == sorted(
        [cache_key("x+x", Reference("2x")), cache_key(ENDLESS, Reference("5"))]
    )
    with Grader(cache=kept) as grader:  # another process: the cache answers, no worker starts
        assert grader.grade_many(items[:5]) == first[:5]
        assert grader._alive == set()


def test_keys_tell_answer_and_reference_apart() -> None:
    assert (
        len(
            {
                cache_key("a", Reference("b")),
                cache_key("b", Reference("a")),
                cache_key("ab", Reference("")),
                cache_key("", Reference("ab")),
            }
        )
        == 4
    )
    assert len(cache_key("\ud800", Reference("\0"))) == 64


def test_submitted_and_whole_batches_do_not_mix(grader: Grader) -> None:
    grader.submit("mine", boxed("5"), Reference("5"), "stop")
    assert grader.grade_many([(boxed("6"), Reference("5"), "stop")]) == [Grade("wrong", "6")]
    assert grader.results() == [("mine", Grade("correct", "5"))]
    assert grader.results() == grader.drain() == []


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["5", "x+x", "2x", "no box", "y"]), max_size=8),
    st.randoms(use_true_random=False),
)
def test_every_key_comes_out_once_whatever_the_order(
    grader: Grader, answers: list[str], random: object
) -> None:
    expected = {"5": "wrong", "x+x": "correct", "2x": "correct", "no box": "unparsed", "y": "wrong"}
    keyed = list(enumerate(answers))
    random.shuffle(keyed)  # type: ignore[attr-defined]
    for key, answer in keyed:
        grader.submit(key, answer if answer == "no box" else boxed(answer), Reference("2x"), "stop")
    assert sorted((key, grade.outcome) for key, grade in grader.drain()) == [  # type: ignore[type-var]
        (key, expected[answer]) for key, answer in enumerate(answers)
    ]


# Where the workers come from


@pytest.mark.parametrize("way", ["-m", "script", "-c"])
def test_workers_import_little_and_start_from_any_main_module(way: str, tmp_path: Path) -> None:
    """From ``python -m``, a console script and ``-c``; the worker imports neither torch nor the main module."""
    program = tmp_path / "a_program.py"
    program.write_text(
        "import sys\n"
        "print('imported', __name__)\n"
        "from engine.answers import Grader, Reference\n"
        "import psutil\n"
        "with Grader(workers=1, limit_s=30) as grader:\n"
        "    print(grader.grade_many([(r'\\boxed{x+x}', Reference('2x'), 'stop')])[0].outcome)\n"
        "    (worker,) = grader._alive\n"
        "    maps = {m.path for m in psutil.Process(worker.process.pid).memory_maps()}\n"
        "    print('torch' if any('/torch/' in path for path in maps) else 'no torch')\n"
        "print('torch' if 'torch' in sys.modules else 'no torch')\n"
    )
    command = {"-m": ["-m", "a_program"], "script": [str(program)], "-c": ["-c", program.read_text()]}[way]
    root = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root])}
    environment.pop("LD_PRELOAD", None)  # vLLM, once in this process, has its children load torch's libraries
    out = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert out.stdout.split("\n")[:-1] == ["imported __main__", "correct", "no torch", "no torch"]


def test_a_slow_answer_takes_no_place_from_the_others() -> None:
    """One worker, and it is deaf: a spare one serves the rest while the stuck answer is still being waited for."""
    with Grader(workers=1, limit_s=300) as grader:
        grader.grade_many([(boxed("x+x"), Reference("2x"), "stop")])
        (worker,) = grader._alive
        psutil.Process(worker.process.pid).suspend()
        grader.submit("stuck", boxed("x+y"), Reference("x"), "stop")
        grader.submit_many((n, boxed(f"x+{n}"), Reference("x"), "stop") for n in range(5))
        out: dict[object, Grade] = {}
        while len(out) < 5:
            out |= grader.results()
            time.sleep(0.01)
        assert sorted(out) == list(range(5)) and grader.waiting == 1  # type: ignore[type-var]


def test_what_a_grader_remembers_is_bounded_and_saved_by_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_KNOWN", 3)
    monkeypatch.setattr(answers, "SAVED_AT_ONCE", 4)
    kept = Kept()
    with Grader(workers=1, limit_s=20, cache=kept) as grader:
        items = [(boxed(f"x+{n}"), Reference("x"), "stop") for n in range(6)]
        assert {grade.outcome for grade in grader.grade_many(items)} == {"wrong"}
        assert len(grader._known) == 3 and len(kept.stored) == 6
        assert {grade.outcome for grade in grader.grade_many(items)} == {"wrong"}
        assert grader.waiting == 0 and not grader._waiting and not grader._futures

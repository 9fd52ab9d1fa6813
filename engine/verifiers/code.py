"""Code: a Python program that passes the problem's tests, in a sandbox without network (``engine.sandbox``).

The answer is the last fenced block of the solution (one marked ``python`` before others), prefix and rollout read
together. A reference is a suite of tests as JSON (``engine.test_suites``). What a program prints or returns is compared
out here: the right answers of input and call tests never enter the sandbox. Assertions must run beside the program,
and a program that sets out to deceive them can.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
from functools import lru_cache
from textwrap import dedent
from typing import Any

from engine import sandbox
from engine.errors import InputError
from engine.test_suites import Suite, Test, parse_suite
from engine.verifiers.base import Comparison

WHOLE = True
START_LIMIT_S = 20.0
"""What a sandbox may take to start, on a busy machine."""
WALL_FACTOR = 3.0
"""Wall seconds per processor second that a test is given: programs that only wait end, too."""
TOLERANCE = 1e-9
"""Relative, and absolute near 0, between numbers that a function returns where one is no integer."""

_TAG = re.compile(r"</?chunk>")
_BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)```(?P<language>[^\n`]*)\n(?P<code>.*?)(?:^[ \t]*```[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_PYTHON = ("python", "py", "python3")

# Runs calls or assertions beside the solution and writes what came of it, as JSON, where its prints do not go.
_DRIVER = """
import io, json, os, sys, types
def _run():
    job = json.loads(sys.stdin.read())
    out, sys.stdin = os.dup(1), io.StringIO("")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    solution = sys.modules["solution"] = types.ModuleType("solution")  # dataclasses and pickle look for it there
    space = vars(solution)
    exec(compile(job["program"], "solution.py", "exec"), space)
    if "assert" in job:
        exec(compile(job["assert"], "test.py", "exec"), space)
        said = job["token"]
    else:
        value = eval(job["call"], space)(*job["args"], **job["kwargs"])
        said = json.dumps(value, default=lambda one: sorted(one) if isinstance(one, (set, frozenset)) else list(one))
    with open(out, "w", encoding="utf-8") as result:
        result.write(said)
_run()
"""


def extract(text: str) -> str | None:
    """The last fenced block that is marked as Python, else the last that is not marked; one may be open at the end.

    A block that is indented as a whole, fence and all, as in a list, loses that indentation.
    """
    lines = _TAG.sub("", text.replace("\r\n", "\n"))
    blocks = [
        (found["language"].strip().lower(), dedent(found["code"]) if found["indent"] else found["code"])
        for found in _BLOCK.finditer(lines)
    ]
    for languages in (_PYTHON, ("",)):
        fitting = [code for language, code in blocks if language in languages and code.strip()]
        if fitting:
            return fitting[-1]
    return None


def kept(answer: str) -> str:
    """How long it is and a hash by which equal programs are known; the program stands in the solution."""
    lines = len(answer.strip().splitlines())
    digest = hashlib.sha256(answer.strip().encode(errors="replace")).hexdigest()[:8]
    return f"{lines} {'line' if lines == 1 else 'lines'} of Python ({digest})"


def compare_here(answer: str, reference: str) -> Comparison | None:
    return None


def compare(answer: str, reference: str) -> Comparison:
    """Run the tests until one fails. Raises GraderError where nothing can be run."""
    suite = _suite(reference)
    limits = sandbox.Limits(cpu_s=suite.seconds, wall_s=suite.seconds * WALL_FACTOR)
    with sandbox.Sandbox(limits) as box:
        return "correct" if all(_passes(box, answer, test) for test in suite.tests) else "wrong"


@lru_cache(maxsize=64)
def _suite(reference: str) -> Suite:
    return parse_suite(reference)


def _passes(box: sandbox.Sandbox, program: str, test: Test) -> bool:
    if test.kind == "input":
        ran = box.run(program, test.input)
        return ran.how == "ended" and _lines(ran.stdout) == _lines(test.output)
    if test.kind == "assert":
        token = secrets.token_hex(16)
        ran = box.run(_DRIVER, json.dumps({"program": program, "assert": test.code, "token": token}))
        return ran.how == "ended" and ran.stdout == token
    job = {"program": program, "call": test.code, "args": test.args, "kwargs": test.kwargs}
    ran = box.run(_DRIVER, json.dumps(job))
    if ran.how != "ended":
        return False
    try:
        return same(json.loads(ran.stdout), test.returns)
    except (ValueError, RecursionError):
        return False


def _lines(text: str) -> list[str]:
    """Lines without white space at their ends, and without blank ones at the end of the text."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def same(found: Any, expected: Any) -> bool:
    """Whether two JSON values are equal; numbers, where one is no integer, within ``TOLERANCE``."""
    if isinstance(found, bool) or isinstance(expected, bool) or found is None or expected is None:
        return found is expected
    if isinstance(found, int) and isinstance(expected, int):
        return found == expected
    if isinstance(found, int | float) and isinstance(expected, int | float):
        try:
            return math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        except OverflowError:
            return False
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    return bool(found == expected)


def limit_s(reference: str, usual: float) -> float:
    suite = _suite(reference)
    return START_LIMIT_S + len(suite.tests) * suite.seconds * WALL_FACTOR


def reference_problem(reference: str) -> str | None:
    try:
        for place, test in enumerate(parse_suite(reference).tests, start=1):
            _compile(place, test)
    except InputError as problem:
        return problem.reason
    return None


def _compile(place: int, test: Test) -> None:
    """In a grading process: hostile code can crash the compiler. Raises InputError."""
    try:
        if test.kind != "input":
            compile(test.code, "test.py", "eval" if test.kind == "call" else "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise InputError(f"test {place}: {test.code[:60]!r} is no Python: {problem}") from None


def words(reference: str) -> str:
    try:
        suite = _suite(reference)
    except InputError:
        return reference
    n = len(suite.tests)
    return f"passes {n} {'test' if n == 1 else 'tests'}, each within {suite.seconds} s of processor time"


def refusal() -> str | None:
    return sandbox.refusal()

"""Test suites of code problems: their JSON, read and checked. Running them is ``engine.verifiers.code``'s.

A suite is ``{"tests": [...], "seconds": 5}``; ``seconds`` is the processor time of one test. Tests are of three kinds::

    {"input": "3 4\\n", "output": "7\\n"}                 what the program prints for this standard input
    {"call": "add", "args": [3, 4], "returns": 7}        what a function (any expression for one) returns; kwargs too
    "assert add(3, 4) == 7"                              lines that must run without an error after the program
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.errors import InputError
from engine.formats.rows import checked_text

SECONDS, MOST_SECONDS = 5, 60
MOST_TESTS = 200
MOST_CHARACTERS = 1 << 20
"""Of a whole suite."""


@dataclass(frozen=True)
class Test:
    """One test. ``code``: the function of a call, or the lines of an assertion."""

    kind: Literal["input", "call", "assert"]
    input: str = ""
    output: str = ""
    code: str = ""
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    returns: Any = None

    __test__ = False  # the name is no sign for pytest


@dataclass(frozen=True)
class Suite:
    """What a program must pass. ``seconds``: processor time of each test, whole seconds."""

    tests: tuple[Test, ...]
    seconds: int


def parse_suite(text: str) -> Suite:
    """Raises InputError, which names the test."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"the tests are no JSON: {problem}") from None
    if not isinstance(given, dict):
        raise InputError('the tests must stand in an object: {"tests": [...], "seconds": 5}')
    return read_suite(given)


def read_suite(given: Mapping[str, Any]) -> Suite:
    """A suite from its fields ``tests`` and ``seconds``. Raises InputError, which names the test."""
    listed, seconds = given.get("tests"), given.get("seconds", SECONDS)
    if not isinstance(listed, list) or not listed:
        raise InputError("tests must be a list of at least one test")
    if len(listed) > MOST_TESTS:
        raise InputError(f"there are {len(listed)} tests; {MOST_TESTS} are the most")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= MOST_SECONDS:
        raise InputError(f"seconds is {seconds!r:.40}; give whole seconds from 1 to {MOST_SECONDS}")
    tests = []
    for place, one in enumerate(listed, start=1):
        try:
            tests.append(_test(one))
        except InputError as problem:
            raise InputError(f"test {place}: {problem.reason}") from None
    return Suite(tuple(tests), seconds)


def suite_text(given: Mapping[str, Any]) -> str:
    """The suite as it is stored, checked. Raises InputError."""
    read_suite(given)
    suite = {"tests": given["tests"], "seconds": given.get("seconds", SECONDS)}
    try:
        text = json.dumps(suite, ensure_ascii=False)
    except RecursionError:
        raise InputError("the tests hold values that are nested too deeply") from None
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"the tests have {len(text):,} characters; {MOST_CHARACTERS:,} are the most")
    return checked_text("tests", text)


def _test(given: Any) -> Test:
    if isinstance(given, str):
        given = {"assert": given}
    if not isinstance(given, dict):
        raise InputError(f"{given!r:.60} is no test; give an object, or an assertion as a text")
    for kind, read in (("input", _input), ("call", _call), ("assert", _assertion)):
        if kind in given:
            return read(given)
    raise InputError("a test needs input and output, call and returns, or assert")


def _only(given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise InputError(f"unknown field {unknown[0]!r:.60}; such a test has {', '.join(names)}")


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise InputError(f"{name} is {value!r:.60}, and a text was expected")
    return value


def _code(given: Mapping[str, Any], name: str) -> str:
    code = _text(given, name)
    if not code.strip():
        raise InputError(f"{name} is empty")
    return code


def _input(given: Mapping[str, Any]) -> Test:
    _only(given, ("input", "output"))
    return Test("input", input=_text(given, "input"), output=_text(given, "output"))


def _call(given: Mapping[str, Any]) -> Test:
    _only(given, ("call", "args", "kwargs", "returns"))
    if "returns" not in given:
        raise InputError("a call needs returns, the value that is right")
    args, kwargs = given.get("args", []), given.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise InputError("args must be a list, and kwargs an object")
    return Test("call", code=_code(given, "call"), args=args, kwargs=kwargs, returns=given["returns"])


def _assertion(given: Mapping[str, Any]) -> Test:
    _only(given, ("assert",))
    return Test("assert", code=_code(given, "assert"))

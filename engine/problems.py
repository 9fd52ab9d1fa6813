"""Reads problems with their reference answers from JSONL or CSV; what cannot be used is reported with its place.

Solutions that stand beside a problem are read by formats/own.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from engine.answers import Grader, Reference
from engine.errors import InputError
from engine.formats.rows import Rejected, Row, checked_text, read_rows, text_field
from engine.test_suites import suite_text
from engine.verifiers import DEFAULT, choice, verifier

CHECKED_AT_ONCE = 64


@dataclass(frozen=True)
class ProblemRow:
    """A problem as its line gives it. ``key``: its id, or a hash of problem and answer where it has none."""

    key: str
    dataset: str | None
    text: str
    answer: str
    verifier: str
    """How solutions are checked against the answer: one of ``engine.verifiers``."""
    row: Row
    """The line itself, for formats that read more from it."""


def read_problems(
    path: Path,
    grader: Grader | None = None,
    repeatable: Callable[[Mapping[str, Any]], bool] = lambda fields: False,
) -> Iterator[ProblemRow | Rejected]:
    """Problems of a file with the fields problem (or question), answer, and if you like id, dataset and verifier.

    A problem of the verifier ``choice`` may have ``choices`` (a list of texts; they are put behind the problem) and of
    the verifier ``code`` has ``tests`` and perhaps ``seconds`` in place of the answer (``engine.test_suites``).
    Left out are broken lines, missing or empty fields, text with NUL, ids that came before, and answers that nothing
    could be compared with. ``repeatable``: whether a line without an id may come back to a problem that was there
    (it brings another solution). Raises InputError if the file cannot be opened.
    """
    with ExitStack() as stack:
        if grader is None:
            grader = stack.enter_context(Grader(workers=1))
        lines: dict[tuple[str | None, str], int] = {}
        parsed = (_problem(row) if isinstance(row, Row) else row for row in read_rows(path))
        while batch := list(islice(parsed, CHECKED_AT_ONCE)):
            for found in _with_answers_checked(batch, grader):
                yield found if isinstance(found, Rejected) else _first_of_its_key(found, lines, repeatable)


def _problem(row: Row) -> ProblemRow | Rejected:
    fields = row.fields
    try:
        name = text_field(fields, ("verifier",)) if fields.get("verifier") not in (None, "") else DEFAULT
        verifier(name)
        text, answer = _READERS.get(name, _plain)(text_field(fields, ("problem", "question")), fields)
        given = text_field(fields, ("id",)) if fields.get("id") not in (None, "") else None
        dataset = text_field(fields, ("dataset",)) if fields.get("dataset") not in (None, "") else None
        for what, value in (("id", given), ("dataset", dataset)):
            if value and len(value) > 200:
                raise InputError(f"the {what} has {len(value)} characters; 200 is the most")
    except InputError as problem:
        return row.reject(problem.reason)
    return ProblemRow(given or _hash(text, answer), dataset, text, answer, name, row)


def _plain(text: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    answer = text_field(fields, ("answer",))
    return text, answer.rpartition("####")[2].strip() or answer  # GSM8K writes its solution before the answer


def _exact(text: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    return text, text_field(fields, ("answer",))


def _choice(text: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    answer = text_field(fields, ("answer",))
    if fields.get("choices") in (None, ""):
        return text, answer if choice.reference_problem(answer) is None else choice.letter(answer) or answer
    texts = choice.options(fields["choices"])
    for name, one in texts.items():
        checked_text(f"choice {name}", one)
    listed = "\n".join(f"{name}. {one}" for name, one in texts.items())
    given = fields["answer"]
    return f"{text}\n\n{listed}", choice.reference_of(given if isinstance(given, int) else answer, texts)


def _code(text: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    if fields.get("tests") in (None, ""):
        if fields.get("answer") in (None, ""):
            raise InputError("the field 'tests' is missing: a list of tests that a program must pass")
        return text, text_field(fields, ("answer",))
    return text, suite_text(fields)


_READERS = {"text": _exact, "choice": _choice, "code": _code}


def _hash(text: str, answer: str) -> str:
    return hashlib.sha256(json.dumps([text, answer]).encode()).hexdigest()[:16]


def _with_answers_checked(
    batch: Iterable[ProblemRow | Rejected], grader: Grader
) -> Iterator[ProblemRow | Rejected]:
    rows = list(batch)
    asked = [Reference(row.answer, row.verifier) for row in rows if isinstance(row, ProblemRow)]
    reasons = iter(grader.reference_problems(asked))
    for row in rows:
        reason = next(reasons) if isinstance(row, ProblemRow) else None
        yield row.row.reject(reason) if reason and isinstance(row, ProblemRow) else row


def _first_of_its_key(
    problem: ProblemRow,
    lines: dict[tuple[str | None, str], int],
    repeatable: Callable[[Mapping[str, Any]], bool],
) -> ProblemRow | Rejected:
    row = problem.row
    before = lines.setdefault((problem.dataset, problem.key), row.line)
    if before == row.line:
        return problem
    if row.fields.get("id") not in (None, ""):
        return row.reject(f"the id was used in line {before} already; give every problem an id of its own")
    return problem if repeatable(row.fields) else row.reject(f"the same problem and answer as line {before}")

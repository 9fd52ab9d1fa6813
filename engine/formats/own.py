"""One's own solutions: a problem, its answer, and any number of solutions as text or steps, with reviews.

One JSON object a line (a CSV file may hold problem, answer and one solution)::

    {"id": "p1", "dataset": "mine", "problem": "…", "answer": "7", "solutions": [
        "a text with <chunk>tags</chunk> or without, that ends in \\boxed{7}",
        {"steps": ["first", "second"], "policy": "ada", "reviews": [
            {"chunk": 1, "verdict": -1, "comment": "…", "reviewer": "emil", "at": "2026-10-05T09:00:00Z"}]}]}

``solution`` (a text) or ``steps`` may stand beside the problem instead, where there is one only, with its ``policy`` and
``reviews``. A ``policy`` beside ``solutions`` is of those that name none. Does not grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.answers import Grader
from engine.chunks import Cut, cut, cut_best, join_steps
from engine.errors import ChunkError, InputError
from engine.formats.rows import Rejected, Row, checked_text, text_field
from engine.problems import ProblemRow, read_problems

DEFAULT_POLICY = "human"
VERDICTS = (1, 0, -1, None)


@dataclass(frozen=True)
class OwnReview:
    """What somebody said of a chunk: 1 sound, -1 error, 0 neutral, None cannot tell."""

    chunk: int
    verdict: int | None
    comment: str
    reviewer: str
    at: datetime | None


@dataclass(frozen=True)
class OwnSolution:
    """One solution, cut; ``note`` says what a reader should know of how it was cut."""

    cut: Cut
    policy: str
    note: str | None
    reviews: tuple[OwnReview, ...]


@dataclass(frozen=True)
class OwnProblem:
    """A problem with the solutions that its line brings (none: a problem to work on)."""

    key: str
    dataset: str | None
    text: str
    answer: str
    verifier: str
    solutions: tuple[OwnSolution, ...]
    row: Row


def read_own(
    path: Path, cutter: str | None = None, grader: Grader | None = None
) -> Iterator[OwnProblem | Rejected]:
    """Problems with solutions; a solution or review that cannot be used is left out and its problem kept.

    ``cutter``: how texts are cut (steps stay as they are); None: by tags, or on blank lines where there are none or
    they are malformed, and then the solution's note says so. Raises InputError if the file cannot be opened.
    """
    for problem in read_problems(path, grader, repeatable=lambda fields: bool(_given_solutions(fields))):
        if isinstance(problem, Rejected):
            yield problem
            continue
        solutions: list[OwnSolution] = []
        for found in _solutions(problem, cutter):
            if isinstance(found, Rejected):
                yield found
            else:
                solutions.append(found)
        yield OwnProblem(
            problem.key,
            problem.dataset,
            problem.text,
            problem.answer,
            problem.verifier,
            tuple(solutions),
            problem.row,
        )


def _given_solutions(fields: Mapping[str, Any]) -> list[Any]:
    """Solutions as the line has them, wherever they stand."""
    beside = {name: fields[name] for name in ("policy", "reviews") if name in fields}
    given: list[Any] = []
    if fields.get("solution") not in (None, ""):
        given.append({"text": fields["solution"], **beside})
    if fields.get("steps") not in (None, ""):
        given.append({"steps": fields["steps"], **beside})
    several = fields.get("solutions")
    listed = several if isinstance(several, list) else [] if several in (None, "") else [several]
    if _has(fields, "policy"):
        listed = [
            {"policy": fields["policy"]} | (one if isinstance(one, dict) else {"text": one}) for one in listed
        ]
    return given + listed


def _solutions(problem: ProblemRow, cutter: str | None) -> Iterator[OwnSolution | Rejected]:
    row = problem.row
    if not isinstance(row.fields.get("solutions") or [], list):
        yield row.reject("solutions is no list; put the solutions into [ ]")
        return
    if _has(row.fields, "reviews") and not (_has(row.fields, "solution") or _has(row.fields, "steps")):
        yield row.reject("reviews stand beside no solution; put them into the one that they are of")
    for number, given in enumerate(_given_solutions(row.fields), start=1):
        try:
            made, note = _cut(given, cutter)
            policy = text_field(given, ("policy",)) if _has(given, "policy") else DEFAULT_POLICY
            if len(policy) > 200:
                raise InputError(f"the policy's name has {len(policy)} characters; 200 is the most")
        except (InputError, ChunkError) as fault:
            yield row.reject(f"solution {number}: {fault.reason if isinstance(fault, InputError) else fault}")
            continue
        if note:
            note = f"{Path(row.file).name}:{row.line}, solution {number}: {note}"
        reviews: list[OwnReview] = []
        for review in _reviews(row, number, given, len(made.chunks)):
            if isinstance(review, Rejected):
                yield review
            else:
                reviews.append(review)
        yield OwnSolution(made, policy, note, tuple(reviews))


def _has(given: Any, name: str) -> bool:
    return isinstance(given, dict) and given.get(name) not in (None, "")


def _cut(given: Any, cutter: str | None) -> tuple[Cut, str | None]:
    """The solution in chunks. Raises InputError, and ChunkError where tags were asked for and are malformed."""
    if isinstance(given, dict) and isinstance(given.get("steps"), list):
        steps = given["steps"]
        if not steps or not all(isinstance(step, str) for step in steps):
            raise InputError("steps must be a list of texts, at least one")
        return join_steps([checked_text(f"step {i}", step) for i, step in enumerate(steps)]), None
    text = given.get("text") if isinstance(given, dict) else given
    if not isinstance(text, str):
        raise InputError('a text, {"text": …} or {"steps": […]} was expected')
    checked_text("its text", text)
    return (cut(text, cutter), None) if cutter else cut_best(text)


def _reviews(row: Row, number: int, given: Any, n_chunks: int) -> Iterator[OwnReview | Rejected]:
    listed = given.get("reviews") if _has(given, "reviews") else None
    if listed is not None and not isinstance(listed, list):
        yield row.reject(f"solution {number}: reviews is no list")
        return
    for place, review in enumerate(listed or [], start=1):
        try:
            yield _review(review, n_chunks)
        except InputError as fault:
            yield row.reject(f"solution {number}, review {place}: {fault.reason}")


def _review(given: Any, n_chunks: int) -> OwnReview:
    if not isinstance(given, dict):
        raise InputError("an object with chunk, verdict and reviewer was expected")
    chunk, verdict = given.get("chunk"), given.get("verdict", "missing")
    if not isinstance(chunk, int) or isinstance(chunk, bool) or not 0 <= chunk < n_chunks:
        raise InputError(f"chunk is {chunk!r:.40}, and the solution has the chunks 0 to {n_chunks - 1}")
    if isinstance(verdict, bool) or verdict not in VERDICTS:
        raise InputError(f"verdict is {verdict!r:.40}; use 1, 0, -1, or null for cannot tell")
    comment = text_field(given, ("comment",)) if _has(given, "comment") else ""
    reviewer = text_field(given, ("reviewer",))
    if len(reviewer) > 200:
        raise InputError(f"the reviewer's name has {len(reviewer)} characters; 200 is the most")
    return OwnReview(chunk, verdict, comment, reviewer, _time(given.get("at")))


def _time(given: Any) -> datetime | None:
    """A time in UTC, which is meant where it names no zone."""
    if given is None:
        return None
    try:
        time = datetime.fromisoformat(given)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (
        TypeError,
        ValueError,
        OverflowError,
    ):  # the last: the year 1 or 9999, of which UTC has no such time
        raise InputError(
            f"at is {given!r:.40}, and a time such as 2026-10-05T09:00:00Z was expected"
        ) from None

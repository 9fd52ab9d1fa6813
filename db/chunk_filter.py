"""What chunks can be filtered by, and how a filter becomes SQL. Not: pages of rows (find_store), the web address.

A ``ChunkFilter`` is flat and holds only JSON values: ``asdict`` and ``ChunkFilter(**…)`` carry it into a queue's
recipe and back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import Connection, Select, case, exists, or_, select

from db.errors import StoreValueError
from db.full_text import has_words, search_words, text_query
from db.tables import (
    OUTCOMES,
    Chunk,
    ChunkLabel,
    ChunkOpinion,
    ChunkVote,
    Judgment,
    Problem,
    QueueItem,
    Review,
    Trajectory,
)
from db.totals import in_force

RULES = ("abs-q", "rel-effective", "rel-ratio")
SIGNS = ("+", "-", "none")
VERDICTS = ("positive", "negative", "none")
REVIEWS = {"+1": 1, "0": 0, "-1": -1, "cannot-tell": None}
FLAGS = ("any", "flag", "bad-problem")
PLACES = ("anywhere", "problem", "chunk", "rationale", "comment")


@dataclass(frozen=True)
class ChunkFilter:
    """None: not filtered; ends of ranges belong to the range. What is filtered by must be known: ``drop_min=-1``
    leaves out chunks without a drop."""

    dataset: str | None = None
    policy: str | None = None
    outcome: str | None = None
    run_id: int | None = None
    """The run that wrote the trajectory."""
    trajectory_id: int | None = None
    chunks_min: int | None = None
    """Chunks of the whole trajectory."""
    chunks_max: int | None = None
    position_min: int | None = None
    """The chunk's index, from 0."""
    position_max: int | None = None
    q_before_min: float | None = None
    q_before_max: float | None = None
    q_after_min: float | None = None
    q_after_max: float | None = None
    drop_min: float | None = None
    drop_max: float | None = None
    rule: str = "rel-ratio"
    """Whose labels ``label``, ``confidence_…`` and ``against`` speak of, at default parameters."""
    label: str | None = None
    """``+``, ``-``, or ``none``: labelled by no value that is known."""
    confidence_min: float | None = None
    confidence_max: float | None = None
    judge_id: int | None = None
    """Alone: chunks that the judge read."""
    verdict: str | None = None
    """Its majority: ``positive``, ``negative``, ``none`` (a tie, or no verdict). Without ``judge_id``: any judge's."""
    against: bool | None = None
    """The judge's majority and the rule's label differ (False: agree). Without ``judge_id``: some judge's."""
    other_judge_id: int | None = None
    other_verdict: str | None = None
    """A second judge, for what one gets right and the other wrong."""
    reviewed: bool | None = None
    """By anybody."""
    reviewed_by: str | None = None
    review: str | None = None
    """What ``reviewed_by`` says now: ``+1``, ``0``, ``-1``, ``cannot-tell``. Without it: what anybody says."""
    other_reviewer: str | None = None
    other_review: str | None = None
    people: str | None = None
    """What people's reviews amount to: ``+``, ``-``, ``none`` (reviewed, but no consensus)."""
    flag: str | None = None
    """``flag``, ``bad-problem``, or ``any`` of the two."""
    disputed: bool | None = None
    """Reviewers disagree and nobody adjudicated."""
    queue_id: int | None = None
    """Items of this queue, whole solutions with all their chunks."""
    search: str | None = None
    """Every word must occur, taken literally."""
    search_in: str = "anywhere"

    def __post_init__(self) -> None:
        """Raises StoreValueError for a word that a field cannot hold."""
        choices = {
            "outcome": OUTCOMES,
            "rule": RULES,
            "label": SIGNS,
            "people": SIGNS,
            "verdict": VERDICTS,
            "other_verdict": VERDICTS,
            "review": tuple(REVIEWS),
            "other_review": tuple(REVIEWS),
            "flag": FLAGS,
            "search_in": PLACES,
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise StoreValueError(f"a filter's {name} can be {', '.join(allowed)}, not {value!r}")
        for pair in (("other_judge_id", "other_verdict"), ("other_reviewer", "other_review")):
            if (getattr(self, pair[0]) is None) != (getattr(self, pair[1]) is None):
                raise StoreValueError(
                    f"a filter's {pair[0]} and {pair[1]} belong together: give both or none"
                )

    @property
    def words(self) -> list[str]:
        """The words searched for: parted by white space, NUL left out."""
        return search_words(self.search or "")

    @property
    def asks(self) -> dict[str, Any]:
        """What is filtered by, as {field: value}: what a queue's recipe, an address or a sentence shows of it."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != usual[name]}


def chunk_query(db: Connection, where: ChunkFilter, *chosen: Any) -> Select[Any]:
    """``chosen`` columns of the chunks that fit, unsorted.

    They may be of Chunk, Trajectory, ChunkLabel and ChunkOpinion, which are joined (the last two as outer joins).
    """
    return (
        select(*chosen)
        .select_from(Chunk)
        .join(Trajectory, Trajectory.id == Chunk.trajectory_id)
        .outerjoin(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
        .outerjoin(ChunkOpinion, ChunkOpinion.chunk_id == Chunk.id)
        .where(*chunk_conditions(db, where))
    )


def chunk_conditions(db: Connection, where: ChunkFilter) -> list[Any]:
    """Conditions on Chunk, Trajectory, ChunkLabel and ChunkOpinion, joined as ``chunk_query`` does."""
    found = plain_conditions(where)
    if where.words:
        found.append(_found_by_index(db, where))
    return found


def plain_conditions(where: ChunkFilter) -> list[Any]:
    """``chunk_conditions`` without the search."""
    return [*_of_solution(where), *_of_label(where), *_of_judges(where), *_of_people(where)]


def _of_solution(where: ChunkFilter) -> list[Any]:
    """``+ 0`` keeps an index out of the plan: a walk along an order looks everything else up, row by row; gathering
    what a common value has and sorting it takes seconds."""
    found: list[Any] = []
    if where.dataset is not None:
        found.append(
            (Trajectory.problem_id + 0).in_(select(Problem.id).where(Problem.dataset == where.dataset))
        )
    for name in ("policy", "outcome"):
        if getattr(where, name) is not None:
            found.append(getattr(Trajectory, name) == getattr(where, name))
    if where.run_id is not None:
        found.append(Trajectory.run_id + 0 == where.run_id)
    if where.trajectory_id is not None:
        found.append(Chunk.trajectory_id + 0 == where.trajectory_id)
    if where.queue_id is not None:
        item = QueueItem.queue_id == where.queue_id
        chunks = select(QueueItem.chunk_id).where(item, QueueItem.chunk_id.is_not(None))
        whole = select(QueueItem.trajectory_id).where(item, QueueItem.chunk_id.is_(None))
        found.append(or_(Chunk.id.in_(chunks), Chunk.trajectory_id.in_(whole)))
    return found + _between(where, "chunks", Trajectory.n_chunks) + _between(where, "position", Chunk.idx)


def _between(where: ChunkFilter, name: str, column: Any) -> list[Any]:
    low, high = getattr(where, f"{name}_min"), getattr(where, f"{name}_max")
    return ([column >= low] if low is not None else []) + ([column <= high] if high is not None else [])


def label_column(rule: str) -> Any:
    """The column of ChunkLabel that holds a rule's label at its defaults."""
    return getattr(ChunkLabel, rule.replace("-", "_"))


def confidence_column(rule: str) -> Any:
    """The column of ChunkLabel that holds the confidence of a rule's label."""
    return getattr(ChunkLabel, rule.replace("-", "_") + "_conf")


def _of_label(where: ChunkFilter) -> list[Any]:
    found: list[Any] = []
    if where.label is not None:
        label = label_column(where.rule)
        found.append(label.is_(None) if where.label == "none" else label == where.label)
    for name in ("q_before", "q_after", "drop"):
        found += _between(where, name, getattr(ChunkLabel, name))
    return found + _between(where, "confidence", confidence_column(where.rule))


def _of_judges(where: ChunkFilter) -> list[Any]:
    found: list[Any] = []
    if where.judge_id is not None or where.verdict is not None or where.against is not None:
        said = [ChunkVote.chunk_id == Chunk.id]
        if where.judge_id is not None:
            said.append(ChunkVote.judge_id == where.judge_id)
        if where.verdict is not None:
            said.append(_majority(where.verdict))
        if where.against is not None:
            sign = case((ChunkVote.verdict == "positive", "+"), (ChunkVote.verdict == "negative", "-"))
            label = label_column(where.rule)
            said.append(sign != label if where.against else sign == label)
        found.append(exists().where(*said))
    if where.other_judge_id is not None and where.other_verdict is not None:
        other = ChunkVote.judge_id == where.other_judge_id
        found.append(exists().where(ChunkVote.chunk_id == Chunk.id, other, _majority(where.other_verdict)))
    return found


def _majority(verdict: str) -> Any:
    return ChunkVote.verdict.is_(None) if verdict == "none" else ChunkVote.verdict == verdict


def _of_people(where: ChunkFilter) -> list[Any]:
    found: list[Any] = []
    if where.reviewed is not None:
        known = ChunkOpinion.chunk_id
        found.append(known.is_not(None) if where.reviewed else known.is_(None))
    if where.reviewed_by is not None or where.review is not None:
        found.append(_says(where.reviewed_by, where.review))
    if where.other_reviewer is not None:
        found.append(_says(where.other_reviewer, where.other_review))
    if where.people is not None:
        found.append(ChunkOpinion.chunk_id.is_not(None))
        verdict = ChunkOpinion.verdict
        found.append(verdict.is_(None) if where.people == "none" else verdict == where.people)
    if where.flag is not None:
        flag = ChunkOpinion.flag.concat("")  # as ``+ 0`` does
        found.append(flag.is_not(None) if where.flag == "any" else flag == where.flag)
    if where.disputed is not None:
        disputed = ChunkOpinion.disputed
        found.append(disputed.is_(True) if where.disputed else or_(disputed.is_(None), disputed.is_(False)))
    return found


def _says(actor: str | None, review: str | None) -> Any:
    """Somebody's review in force on the chunk (an undo that restores one repeats its verdict)."""
    said = [Review.chunk_id == Chunk.id, Review.kind != "adjudication", in_force()]
    if actor is not None:
        said.append(Review.actor == actor)
    if review is not None:
        verdict = REVIEWS[review]
        said.append(Review.verdict.is_(None) if verdict is None else Review.verdict == verdict)
    return exists().where(*said)


# ---- the search


def _found_by_index(db: Connection, where: ChunkFilter) -> Any:
    """The chunk itself, a judge's rationale of it, a comment on it, or its problem holds every word."""
    search = where.search or ""
    parts = {
        "chunk": lambda: Chunk.id.in_(text_query(db, search, Chunk)),
        "rationale": lambda: Chunk.id.in_(
            select(Judgment.chunk_id).where(Judgment.id.in_(text_query(db, search, Judgment)))
        ),
        "comment": lambda: Chunk.id.in_(
            select(Review.chunk_id).where(Review.id.in_(text_query(db, search, Review)), in_force())
        ),
        "problem": lambda: Trajectory.problem_id.in_(text_query(db, search, Problem)),
    }
    return _either(parts, where.search_in)


def found_by_reading(where: ChunkFilter) -> Any:
    """The same condition without the index, read in each row's texts: where words are common, the walk along a list
    finds its fifty rows sooner so."""
    words = where.words
    parts = {
        "chunk": lambda: has_words(Chunk.text, words),
        "rationale": lambda: exists().where(
            Judgment.chunk_id == Chunk.id, has_words(Judgment.rationale, words)
        ),
        "comment": lambda: exists().where(
            Review.chunk_id == Chunk.id, has_words(Review.comment, words), in_force()
        ),
        "problem": lambda: exists().where(
            Problem.id == Trajectory.problem_id, has_words(Problem.text, words)
        ),
    }
    return _either(parts, where.search_in)


def _either(parts: dict[str, Callable[[], Any]], place: str) -> Any:
    return or_(*(part() for part in parts.values())) if place == "anywhere" else parts[place]()

"""What raters said of the same chunks: people, their consensus, judges, runs of judges, label rules.

Bounded: a page gets at most so many chunks, the newest, and is told when there are more. Solutions that a blind queue
hides from the viewer are left out. Not: kappa and the like (engine.evaluate), disputes (disputes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, case, func, select, union

from db.blind import hidden_chunks
from db.chunk_filter import RULES, label_column
from db.errors import StoreValueError
from db.session import StoreBase, batches
from db.tables import (
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

MOST = 10_000
"""Chunks that one comparison looks at."""
DRAWS = 8
"""Judgments of a run looked at for each of those chunks."""
MOST_REVIEWERS = 200
UNSURE = "?"
"""No side was taken: cannot tell, no verdict, a tie, reviewers who disagree."""
SIGNS = {1: "+", 0: "0", -1: "-", None: UNSURE}
MAJORITIES = {"positive": "+", "negative": "-", None: UNSURE}
KINDS = ("person", "run", "people", "judge", "rule", "effective")
"""From those who said something of few chunks to those who said it of many."""


@dataclass(frozen=True)
class Rater:
    """``person`` NAME, ``people`` (their consensus or adjudication), ``judge`` ID (its majority), ``run`` ID (the
    majority within a judge run), ``rule`` NAME at its defaults, ``effective`` or ``effective`` NAME: people where
    there are any, else rel-ratio or that rule. As text ``kind:which``; where there is no ``which``, the kind alone."""

    kind: str
    which: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.which}" if self.which else self.kind


def parse_rater(text: str) -> Rater:
    """The rater that a text names. Raises StoreValueError for one that can be none; whether it exists is not asked."""
    kind, _, which = text.partition(":")
    good = {
        "person": bool(which),
        "people": not which,
        "effective": not which or which in RULES,
        "judge": _is_id(which),
        "run": _is_id(which),
        "rule": which in RULES,
    }
    if not good.get(kind):
        raise StoreValueError(
            f"{text!r} is no rater: person:NAME, people, judge:ID, run:ID, effective, or effective: or "
            f"rule: with {', '.join(RULES)}"
        )
    return Rater(kind, which)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


@dataclass(frozen=True)
class Rated:
    """A chunk and what each of the raters asked for said of it: ``+``, ``-``, ``0`` or UNSURE, in their order."""

    chunk_id: int
    trajectory_id: int
    problem_id: int
    idx: int
    said: tuple[str, ...]


@dataclass(frozen=True)
class RatedChunks:
    """``complete`` False: only the newest chunks were looked at. ``hidden``: chunks left out, of solutions that the
    viewer is still to review blind."""

    rows: list[Rated]
    complete: bool
    hidden: int


@dataclass(frozen=True)
class Answered:
    """A chunk and what people said of it themselves, before anybody adjudicated."""

    chunk_id: int
    trajectory_id: int
    problem_id: int
    idx: int
    said: dict[str, str]


@dataclass(frozen=True)
class AnsweredChunks:
    """See ``RatedChunks``."""

    rows: list[Answered]
    complete: bool
    hidden: int


@dataclass(frozen=True)
class Excerpt:
    """What a chunk and its problem say, cut."""

    text: str
    problem: str
    dataset: str
    key: str


class AgreementReads(StoreBase):
    """Reads of the Judges page."""

    def reviewers(self) -> list[str]:
        """Everybody who ever reviewed a chunk, by name: a step from one to the next along an index."""
        found: list[str] = []
        with self.read() as db:
            last = db.scalar(select(func.min(Review.actor)))
            while last is not None and len(found) < MOST_REVIEWERS:
                found.append(last)
                last = db.scalar(select(func.min(Review.actor)).where(Review.actor > last))
        return found

    def rated(self, raters: Sequence[str], *, queue_id: int | None = None, limit: int = MOST) -> RatedChunks:
        """The chunks of which all ``raters`` (texts of Rater) said something, newest first.

        ``queue_id``: only chunks of that queue, and of people what they answered in it; quality-control items are left
        out. Raises StoreValueError for a text that names no rater.
        """
        asked = [parse_rater(rater) for rater in raters]
        with self.read() as db:
            if queue_id is not None:
                by_people = any(rater.kind in ("person", "people") for rater in asked)
                candidates = _of_queue(db, queue_id, limit + 1, reviewed=by_people)
            else:
                candidates = _fewest(db, asked, limit + 1)
            complete, candidates = len(candidates) <= limit, candidates[:limit]
            said: list[dict[int, str]] = []
            for rater in asked:
                said.append(_SAID[rater.kind](db, rater.which, candidates, queue_id))
                candidates = [chunk_id for chunk_id in candidates if chunk_id in said[-1]]
            places, hidden = self._places(db, candidates)
        rows = [
            Rated(chunk_id, *places[chunk_id], tuple(one[chunk_id] for one in said))
            for chunk_id in candidates
            if chunk_id in places
        ]
        return RatedChunks(rows, complete, hidden)

    def answers(self, *, queue_id: int | None = None, limit: int = MOST) -> AnsweredChunks:
        """What each person said of the chunks that anybody reviewed, newest first; in a queue what they answered
        there, without its quality-control items."""
        with self.read() as db:
            if queue_id is not None:
                candidates = _of_queue(db, queue_id, limit + 1, reviewed=True)
            else:
                candidates = _newest_reviewed(db, limit + 1)
            complete, candidates = len(candidates) <= limit, candidates[:limit]
            said = _answers(db, candidates, queue_id)
            places, hidden = self._places(db, [chunk_id for chunk_id in candidates if chunk_id in said])
        rows = [
            Answered(chunk_id, *places[chunk_id], said[chunk_id])
            for chunk_id in candidates
            if chunk_id in places
        ]
        return AnsweredChunks(rows, complete, hidden)

    def excerpts(self, chunk_ids: Sequence[int], *, chars: int = 300) -> dict[int, Excerpt]:
        """{chunk id: the first ``chars`` characters of its text and of its problem's}."""
        found: dict[int, Excerpt] = {}
        cut = [func.substr(column, 1, chars) for column in (Chunk.text, Problem.text)]
        with self.read() as db:
            for batch in batches(chunk_ids):
                query = (
                    select(Chunk.id, *cut, Problem.dataset, Problem.key)
                    .join(Trajectory, Trajectory.id == Chunk.trajectory_id)
                    .join(Problem, Problem.id == Trajectory.problem_id)
                    .where(Chunk.id.in_(batch))
                )
                found |= {row[0]: Excerpt(*row[1:]) for row in db.execute(query)}
        return found

    def _places(
        self, db: Connection, chunk_ids: Sequence[int]
    ) -> tuple[dict[int, tuple[int, int, int]], int]:
        """{chunk id: (trajectory, problem, index)} of those that the viewer may see, and how many others there are."""
        blind = hidden_chunks(db, self.viewer, chunk_ids)
        found: dict[int, tuple[int, int, int]] = {}
        for batch in batches(chunk_id for chunk_id in chunk_ids if chunk_id not in blind):
            query = select(Chunk.id, Chunk.trajectory_id, Trajectory.problem_id, Chunk.idx)
            query = query.join(Trajectory, Trajectory.id == Chunk.trajectory_id).where(Chunk.id.in_(batch))
            found |= {row[0]: (row[1], row[2], row[3]) for row in db.execute(query)}
        return found, len(blind)


# ---- which chunks to look at: ids, newest first


def _of_queue(db: Connection, queue_id: int, limit: int, *, reviewed: bool) -> list[int]:
    """``reviewed``: only those that somebody reviewed, which may be the oldest of a long queue."""
    item = (QueueItem.queue_id == queue_id, QueueItem.known.is_(None))
    alone = select(QueueItem.chunk_id).where(*item, QueueItem.chunk_id.is_not(None))
    whole = select(Chunk.id).join(QueueItem, QueueItem.trajectory_id == Chunk.trajectory_id)
    both = union(alone, whole.where(*item, QueueItem.chunk_id.is_(None))).subquery()
    chosen = both.c[0]
    query = select(chosen)
    if reviewed:
        query = query.join(ChunkOpinion, ChunkOpinion.chunk_id == chosen)
    return list(db.scalars(query.order_by(chosen.desc()).limit(limit)))


def _fewest(db: Connection, raters: Sequence[Rater], limit: int) -> list[int]:
    """Chunks of the rater who said something of the fewest."""
    kind = min((rater.kind for rater in raters), key=KINDS.index)
    which = [rater.which for rater in raters if rater.kind == kind]
    if kind in ("person", "run"):
        return min((_NEWEST[kind](db, one, limit) for one in which), key=len)
    if kind == "judge":
        lists = [_newest_judged(db, one, limit) for one in which]
        if len(min(lists, key=len)) < limit or not all(lists):
            return min(lists, key=len)
        newest = min(ids[0] for ids in lists)  # one may have read only older chunks than another
        return _newest_judged(db, which[0], limit, newest)
    return _newest_reviewed(db, limit) if kind == "people" else _newest_labelled(db, limit)


def _newest_of_person(db: Connection, actor: str, limit: int) -> list[int]:
    query = select(Review.chunk_id).where(Review.actor == actor).order_by(Review.id.desc())
    return list(dict.fromkeys(db.scalars(query.limit(4 * limit))))[:limit]


def _newest_of_run(db: Connection, run_id: str, limit: int) -> list[int]:
    query = select(Judgment.chunk_id).where(Judgment.run_id == int(run_id)).order_by(Judgment.id.desc())
    return list(dict.fromkeys(db.scalars(query.limit(DRAWS * limit))))[:limit]


def _newest_judged(db: Connection, judge_id: str, limit: int, newest: int | None = None) -> list[int]:
    """One walk along the index for each verdict: sorting all that the judge ever read would be a scan."""
    found: list[int] = []
    for verdict in MAJORITIES:
        of_verdict = ChunkVote.verdict.is_(None) if verdict is None else ChunkVote.verdict == verdict
        query = select(ChunkVote.chunk_id).where(ChunkVote.judge_id == int(judge_id), of_verdict)
        if newest is not None:
            query = query.where(ChunkVote.chunk_id <= newest)
        found += db.scalars(query.order_by(ChunkVote.chunk_id.desc()).limit(limit))
    return sorted(found, reverse=True)[:limit]


def _newest_reviewed(db: Connection, limit: int) -> list[int]:
    chosen = ChunkOpinion.chunk_id
    return list(db.scalars(select(chosen).order_by(chosen.desc()).limit(limit)))


def _newest_labelled(db: Connection, limit: int) -> list[int]:
    chosen = ChunkLabel.chunk_id
    return list(db.scalars(select(chosen).order_by(chosen.desc()).limit(limit)))


_NEWEST: dict[str, Callable[[Connection, str, int], list[int]]] = {
    "person": _newest_of_person,
    "run": _newest_of_run,
}


# ---- what a rater said of them: {chunk id: sign}


def _by_person(db: Connection, actor: str, ids: Sequence[int], queue_id: int | None) -> dict[int, str]:
    said = _answers(db, ids, queue_id, actor)
    return {chunk_id: by[actor] for chunk_id, by in said.items()}


def _by_people(db: Connection, _: str, ids: Sequence[int], queue_id: int | None) -> dict[int, str]:
    found: dict[int, str] = {}
    for batch in batches(ids):
        query = select(ChunkOpinion.chunk_id, ChunkOpinion.verdict).where(ChunkOpinion.chunk_id.in_(batch))
        found |= {chunk_id: verdict or UNSURE for chunk_id, verdict in db.execute(query)}
    return found


def _by_judge(db: Connection, judge_id: str, ids: Sequence[int], queue_id: int | None) -> dict[int, str]:
    found: dict[int, str] = {}
    for batch in batches(ids):
        query = select(ChunkVote.chunk_id, ChunkVote.verdict)
        query = query.where(ChunkVote.chunk_id.in_(batch), ChunkVote.judge_id == int(judge_id))
        found |= {chunk_id: MAJORITIES[verdict] for chunk_id, verdict in db.execute(query)}
    return found


def _by_run(db: Connection, run_id: str, ids: Sequence[int], queue_id: int | None) -> dict[int, str]:
    """``+ 0`` keeps the index of the run, which may have written all judgments there are, out of the plan."""
    sign = case((Judgment.verdict == "positive", 1), (Judgment.verdict == "negative", -1), else_=0)
    found: dict[int, str] = {}
    for batch in batches(ids):
        query = select(Judgment.chunk_id, func.sum(sign)).where(
            Judgment.chunk_id.in_(batch), Judgment.run_id + 0 == int(run_id)
        )
        for chunk_id, balance in db.execute(query.group_by(Judgment.chunk_id)):
            found[chunk_id] = "+" if balance > 0 else "-" if balance < 0 else UNSURE
    return found


def _by_rule(db: Connection, rule: str, ids: Sequence[int], queue_id: int | None) -> dict[int, str]:
    label = label_column(rule)
    found: dict[int, str] = {}
    for batch in batches(ids):
        query = select(ChunkLabel.chunk_id, label).where(ChunkLabel.chunk_id.in_(batch), label.is_not(None))
        found |= {chunk_id: sign for chunk_id, sign in db.execute(query)}
    return found


def _effective(db: Connection, rule: str, ids: Sequence[int], queue_id: int | None) -> dict[int, str]:
    """Where people spoke and came to no label there is none: see engine.labels.effective_label."""
    return _by_rule(db, rule or "rel-ratio", ids, queue_id) | _by_people(db, "", ids, queue_id)


_SAID: dict[str, Callable[[Connection, str, Sequence[int], int | None], dict[int, str]]] = {
    "person": _by_person,
    "people": _by_people,
    "judge": _by_judge,
    "run": _by_run,
    "rule": _by_rule,
    "effective": _effective,
}


def _answers(
    db: Connection, chunk_ids: Iterable[int], queue_id: int | None, actor: str | None = None
) -> dict[int, dict[str, str]]:
    """{chunk id: {actor: sign}}: the last review of each chain that was not taken back. An adjudication is no review:
    whoever adjudicated keeps what they had said themselves."""
    chains: dict[tuple[int, str], list[tuple[int, int | None, bool]]] = {}
    for batch in batches(chunk_ids):
        query = (
            select(
                Review.id,
                Review.chunk_id,
                Review.actor,
                Review.kind,
                Review.verdict,
                Review.restores,
                QueueItem.queue_id,
            )
            .outerjoin(QueueItem, QueueItem.id == Review.item_id)
            .where(Review.chunk_id.in_(batch))
            .order_by(Review.id)
        )
        if actor is not None:
            query = query.where(Review.actor == actor)
        for id_, chunk_id, who, kind, verdict, restores, queue in db.execute(query):
            chain = chains.setdefault((chunk_id, who), [])
            if kind == "undo":  # all that was said after what it restores is taken back
                while chain and chain[-1][0] != restores:
                    chain.pop()
            else:
                counts = kind == "review" and queue_id in (None, queue)
                chain.append((id_, verdict, counts))
    found: dict[int, dict[str, str]] = {}
    for (chunk_id, who), chain in chains.items():
        given = [verdict for _, verdict, counts in chain if counts]
        if given:
            found.setdefault(chunk_id, {})[who] = SIGNS[given[-1]]
    return found

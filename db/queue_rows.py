"""What goes into queues and what comes out of them: frozen dataclasses. Not: queries (queues_store, queue_work)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from db.chunk_filter import RULES, ChunkFilter
from db.errors import StoreValueError
from db.rows import ReviewRow
from db.tables.annotation import MODES, ORDERS

MOST_ITEMS = 100_000
MOST_KNOWN = 0.5


@dataclass(frozen=True)
class NewQueue:
    """A queue to be made: of the chunks that ``where`` fits, or of ``chunk_ids``; neither: of all.

    ``mode`` first-error: of the solutions that have such chunks. What the order says nothing of (no judge read it, no
    value is known) comes last, or not at all with ``only``. A blind queue's items are chosen by the order and then
    shuffled, so that their order gives nothing away.
    """

    name: str
    order: str = "disagreement"
    mode: str = "chunk"
    where: ChunkFilter | None = None
    chunk_ids: Sequence[int] | None = None
    rule: str = "rel-ratio"
    """Whose labels ``disagreement``, ``least-confident`` and ``label-noise`` speak of."""
    judge_id: int | None = None
    """The only judge that ``disagreement`` and ``label-noise`` listen to; None: all."""
    seed: int = 0
    limit: int = 200
    only: bool = False
    blind: bool = False
    reviews_per_item: int = 1
    known: Mapping[int, int] = field(default_factory=dict)
    """Quality-control items: {chunk id: right verdict}, in mode first-error {trajectory id: index of its first error,
    -1: it has none}."""
    known_rate: float = 0.1
    """Their share of all items, as far as there are enough of them."""
    guidelines: str = ""

    def __post_init__(self) -> None:
        """Raises StoreValueError for what cannot be a queue."""
        if not 0 < len(self.name.strip()) <= 200:
            raise StoreValueError(f"a queue needs a name of 1 to 200 characters, not {self.name[:80]!r}")
        for what, allowed in (("order", ORDERS), ("mode", MODES), ("rule", RULES)):
            if getattr(self, what) not in allowed:
                raise StoreValueError(
                    f"a queue's {what} is one of {', '.join(allowed)}, not {getattr(self, what)!r}"
                )
        if not 1 <= self.limit <= MOST_ITEMS:
            raise StoreValueError(f"a queue holds 1 to {MOST_ITEMS:,} items, not {self.limit}")
        if not 1 <= self.reviews_per_item <= 100:
            raise StoreValueError(f"an item takes 1 to 100 reviews, not {self.reviews_per_item}")
        if not 0 < self.known_rate <= MOST_KNOWN:
            raise StoreValueError(
                f"known items can be up to {MOST_KNOWN:.0%} of a queue, not {self.known_rate!r} of it"
            )
        if self.where is not None and self.chunk_ids is not None:
            raise StoreValueError("a queue is made from a filter or from given chunks, not from both")
        if self.mode == "chunk" and not set(self.known.values()) <= {-1, 0, 1}:
            raise StoreValueError("a known verdict is 1, 0 or -1")


@dataclass(frozen=True)
class QueueRow:
    """A queue as it is now.

    To those who work in it while it is blind and open, and to everybody but owners, a blind queue has a neutral name
    and says nothing of how its items were chosen (``order`` and ``recipe`` empty).
    """

    id: int
    name: str
    mode: str
    order: str
    recipe: dict[str, Any]
    """filter (what was asked), chunks (how many were given), rule, judge_id, seed, limit, only, known (how many
    quality-control items), first (how many items the order speaks of)."""
    blind: bool
    reviews_per_item: int
    n_items: int
    n_settled: int
    """Items with as many answers as asked for; a quality-control item never has."""
    actor: str
    created_at: datetime
    closed_at: datetime | None
    members: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        return self.closed_at is None


@dataclass(frozen=True)
class GuidelineRow:
    """One version of what reviewers of a queue are told; Markdown by people."""

    id: int
    queue_id: int
    version: int
    text: str
    actor: str
    created_at: datetime


@dataclass(frozen=True)
class ItemView:
    """An item for one person. It never says whether it is a quality-control item.

    ``chunk_id`` and ``idx`` None: the whole solution (mode first-error). ``status``: of the person's own assignment:
    open, done, skipped; None: it is not theirs. ``reference`` None: not to be seen now.
    """

    id: int
    queue_id: int
    queue: str
    mode: str
    blind: bool
    is_open: bool
    position: int
    n_items: int
    trajectory_id: int
    chunk_id: int | None
    idx: int | None
    n_chunks: int
    problem: str
    reference: str | None
    verifier: str
    status: str | None
    opened_at: datetime | None
    n_done: int
    """Items of the queue that the person has answered."""
    guideline: GuidelineRow | None
    mine: ReviewRow | None
    """What the person says of the chunk now (mode first-error: of the first chunk)."""
    head: int | None
    """The last row of that chain: what an answer passes as ``supersedes``."""
    first_error: int | None
    """Mode first-error: the person's answer so far, -1 for no error; None: not answered, or parts of the answer were
    taken back or changed on the solution's page."""


@dataclass(frozen=True)
class MemberProgress:
    """How far somebody has come in a queue. ``seconds``: median from an item's appearance to its answer;
    ``per_hour``: pace while at work (from the median time between answers); None: too few answers."""

    actor: str
    joined_at: datetime
    done: int
    skipped: int
    open: int
    known: int
    """Quality-control items answered, and how many of them right."""
    right: int
    seconds: float | None
    per_hour: float | None
    last_at: datetime | None

"""What the Trajectory page shows, read from the store once a drawing. Not here: how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import streamlit as st

from app.widgets.access import get_store
from app.widgets.address import Address, Rules
from app.widgets.curve_marks import MarkRow, judge_rows, label_row
from app.widgets.review_card import said, said_mark
from app.widgets.value_curve import biggest_drop
from app.widgets.value_words import rule_words
from db.reads_trajectory import ChunkView, TrajectoryView
from db.rows import ReviewRow
from db.selections import LabelInputs
from engine.labels import DEFAULT_RULES, Label, Rule, label
from engine.pipeline.labelling import prefix_values
from engine.values import UNKNOWN, Value

CHUNKS_A_PAGE = 50
Votes = Mapping[int, Mapping[str, tuple[int, int, int]]]


@dataclass(frozen=True)
class Shown:
    """H + 1 values, labels a rule and chunk, one page of chunks, the selected one.

    ``labels`` under the parameters of the address, ``usual`` under the usual ones; ``votes``: {chunk id: {judge:
    (positive, negative, none)}}; ``reviews``: {chunk id: what each person says now}. Where a blind queue hides the
    solution from the reader there are no values, labels and votes, and only the reader's own reviews.
    """

    view: TrajectoryView
    address: Address
    values: tuple[Value, ...]
    chunk_ids: tuple[int, ...]
    chunks: tuple[ChunkView, ...]
    selected: int | None
    raw: bool
    labels: Mapping[str, Sequence[Label | None]] = field(default_factory=dict)
    usual: Mapping[str, Sequence[Label | None]] = field(default_factory=dict)
    votes: Votes = field(default_factory=dict)
    reviews: Mapping[int, Sequence[ReviewRow]] = field(default_factory=dict)
    inputs: LabelInputs | None = None
    """What the values follow from."""

    @property
    def first(self) -> int:
        """Index of the first chunk on this page of chunks."""
        return page_start(self.selected)

    @property
    def rules(self) -> Rules:
        return self.address.rules

    @property
    def chunk(self) -> ChunkView | None:
        """The selected chunk."""
        return None if self.selected is None else self.chunks[self.selected - self.first]

    @property
    def label(self) -> Sequence[Label | None]:
        """Each chunk's label under the rule that is shown."""
        return self.labels[self.rules.name]


def page_start(selected: int | None) -> int:
    """The first chunk of the page of chunks that holds ``selected``."""
    return (selected or 0) // CHUNKS_A_PAGE * CHUNKS_A_PAGE


def read_shown(view: TrajectoryView, address: Address, *, raw: bool) -> Shown:
    """Values and labels from the counts, and the chunks of one page."""
    store = get_store()
    inputs = [] if view.blind else store.label_inputs([view.id])
    values = prefix_values(inputs[0]) if inputs else [UNKNOWN] * (view.n_chunks + 1)
    selected = _selected(view, address, values)
    reviews: dict[int, list[ReviewRow]] = {}
    for row in said(store.reviews_of(view.id)):
        reviews.setdefault(row.chunk_id, []).append(row)
    return Shown(
        view=view,
        address=address,
        values=tuple(values),
        chunk_ids=tuple(chunk.chunk_id for chunk in inputs[0].chunks) if inputs else (),
        chunks=tuple(store.chunk_page(view.id, page_start(selected), CHUNKS_A_PAGE)),
        selected=selected,
        raw=raw,
        labels=labels_under(address.rules.all, values),
        usual=labels_under(DEFAULT_RULES, values),
        votes={} if view.blind else store.votes_of(view.id),
        reviews=reviews,
        inputs=inputs[0] if inputs else None,
    )


def labels_under(rules: Sequence[Rule], values: Sequence[Value]) -> dict[str, list[Label | None]]:
    """{rule's name: label of each chunk}."""
    return {rule.name: [label(rule, before, after) for before, after in pairwise(values)] for rule in rules}


def _selected(view: TrajectoryView, address: Address, values: Sequence[Value]) -> int | None:
    """The chunk that the address names, else where most of the value is lost, else the first."""
    if address.chunk is not None and address.chunk < view.n_chunks:
        return address.chunk
    if address.chunk is not None:
        there_are = f"its chunks are 0 to {view.n_chunks - 1}" if view.n_chunks else "it has none"
        st.error(
            f"Trajectory {view.id} has no chunk {address.chunk}: {there_are}.", icon=":material/link_off:"
        )
    drop = biggest_drop(values)
    return drop[0] if drop else 0 if view.n_chunks else None


def mark_rows(shown: Shown) -> tuple[list[MarkRow], int]:
    """The rows beneath the curve (people, the shown rule, the other rules, judges) and how many judges are left out."""
    rows = []
    people = [said_mark(shown.reviews.get(chunk_id, ())) for chunk_id in shown.chunk_ids]
    if any(mark is not None for mark in people):
        rows.append(MarkRow("people", people))
    rules = [shown.rules.shown, *(rule for rule in reversed(shown.rules.all) if rule != shown.rules.shown)]
    for rule in rules:
        name = rule.name
        rows.append(label_row(name, shown.labels[name], shown.usual[name], shown=name == shown.rules.name))
    judges, more = judge_rows(shown.votes, shown.chunk_ids)
    return rows + judges, more


def shown_rule_words(rules: Rules) -> str:
    """The shown rule with its parameters: ``rel-ratio (γ = 0.8)``."""
    parameters = rule_words(rules.shown)
    return f"{rules.name} ({parameters})" if parameters else rules.name

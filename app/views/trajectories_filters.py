"""The filters of the list of chunks: widgets that show what the address says, and one button a filter to take it away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from app.views.trajectories_address import FIELDS, PLACE, Asked, whole
from app.widgets.access import get_store
from app.widgets.chips import OUTCOMES
from app.widgets.here import go_here, here_button
from app.widgets.safe_text import apart, escape_line, visible
from db.chunk_filter import ChunkFilter

ANY = ""
"""The choice that filters nothing; that of flags may be "any"."""
SORTS = {
    "newest": "Newest",
    "drop": "Biggest Q drop",
    "certain": "Least certain label (rel-ratio)",
}
PLACES = {
    "anywhere": "anywhere",
    "problem": "in problems",
    "chunk": "in chunks",
    "rationale": "in rationales",
    "comment": "in comments",
}
LABELS = {"+": "+", "-": "−", "none": "no label"}
VERDICTS = {"positive": "positive", "negative": "negative", "none": "tie or no verdict"}
AGAINST = {"no": "agrees with the label", "yes": "differs from the label"}
REVIEWS = {"+1": "+1 sound", "0": "0 neutral", "-1": "−1 error", "cannot-tell": "cannot tell"}
PEOPLE = {"+": "+", "-": "−", "none": "no consensus"}
FLAGS = {"any": "any flag", "flag": "flagged", "bad-problem": "bad problem"}
RANGES: dict[str, tuple[str, float, float]] = {
    "q_before": ("Q before", 0.0, 1.0),
    "q_after": ("Q after", 0.0, 1.0),
    "drop": ("Q drop", -1.0, 1.0),
    "confidence": ("Confidence of the label", 0.0, 1.0),
}
COUNTS = {"chunks": "Chunks of the solution", "position": "The chunk's index, from 0"}
FIRST_ROW = (
    "search",
    "search_in",
    "dataset",
    "policy",
    "outcome",
    "label",
    "judge_id",
    "verdict",
    "reviewed",
)


def key(name: str) -> str:
    """The session key of a field's widget."""
    return f"find-{name}"


def show_filters(asked: Asked, query: Mapping[str, str]) -> None:
    """All of them; a change rewrites the address and goes back to the first page."""
    store = get_store()
    judges = {str(judge.id): visible(judge.name)[:60] for judge in store.judges()}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _search(query)
        _choose("dataset", "Data set", {name: visible(name) for name in store.datasets()}, query)
        _choose("policy", "Policy", {name: visible(name) for name in store.policies()}, query)
        _choose("outcome", "Outcome", {name: words for name, (_, _, words) in OUTCOMES.items()}, query)
        _choose("label", "Label", LABELS, query, width=110)
        _choose("judge_id", "Judge", judges, query, width=170)
        _choose("verdict", "Verdict", VERDICTS, query)
        _choose("reviewed", "Review", {"yes": "Reviewed", "no": "Not reviewed"}, query)
        _choose("sort", "Sort by", SORTS, query, usual="newest", width=230)
    more = [name for name in query if name in FIELDS and name not in FIRST_ROW]
    with st.expander(
        f"More filters ({len(more)} in use)" if more else "More filters",
        expanded=bool(more),
        icon=":material/tune:",
        key="find-more",
    ):
        _more(query, judges)
    if not asked.problems:
        _in_use(asked, judges)


def _search(query: Mapping[str, str]) -> None:
    st.session_state[key("search")] = query.get("search", "")
    st.text_input(
        "Search",
        key=key("search"),
        type="search",
        placeholder="words, all of which must occur",
        on_change=_set,
        args=("search", ""),
        width=230,
    )
    _choose("search_in", "Where", PLACES, query, usual="anywhere")


def _more(query: Mapping[str, str], judges: Mapping[str, str]) -> None:
    store = get_store()
    people = {name: visible(name.partition(" @ ")[0])[:60] for name in store.reviewers()}
    queues = {str(queue.id): visible(queue.name)[:60] for queue in store.queues()}
    runs = _runs(query.get("run_id"))
    columns = st.columns(4, gap="medium")
    for column, name in zip(columns, RANGES, strict=True):
        with column:
            _range(name, query)
    rows: Sequence[Sequence[Callable[[], None]]] = (
        (
            lambda: _choose(
                "rule",
                "Label by rule",
                _same(("rel-ratio", "rel-effective", "abs-q")),
                query,
                "rel-ratio",
                None,
            ),
            lambda: _choose("against", "The judge's (any judge's) vote", AGAINST, query, width=None),
            lambda: _pair("other_judge_id", "Second judge", judges, "other_verdict", VERDICTS, query),
            lambda: _choose("queue_id", "In queue", queues, query, width=None),
        ),
        (
            lambda: _choose("reviewed_by", "Reviewed by", people, query, width=None),
            lambda: _choose("review", "who says", REVIEWS, query, width=None),
            lambda: _pair("other_reviewer", "Second reviewer", people, "other_review", REVIEWS, query),
            lambda: _choose("people", "People's consensus", PEOPLE, query, width=None),
        ),
        (
            lambda: _choose("disputed", "People disagree", {"yes": "yes", "no": "no"}, query, width=None),
            lambda: _choose("flag", "Flag", FLAGS, query, width=None),
            lambda: _choose("run_id", "From run", runs, query, width=None),
            lambda: _counts(query),
        ),
    )
    for row in rows:
        for column, draw in zip(st.columns(4, gap="medium", vertical_alignment="bottom"), row, strict=True):
            with column:
                draw()


def _same(names: Sequence[str]) -> dict[str, str]:
    return {name: name for name in names}


def _runs(current: str | None) -> dict[str, str]:
    ids = {whole(current), *(run.id for run in get_store().runs(20, kinds=["sample", "import"]))}
    return {str(id_): f"Run {id_}" for id_ in sorted((i for i in ids if i is not None), reverse=True)}


def _choose(
    name: str,
    label: str,
    options: Mapping[str, str],
    query: Mapping[str, str],
    usual: str = ANY,
    width: int | None = 130,
) -> None:
    """One of ``options`` {value: words of ours or visible text}; ``usual`` stands for "not filtered"."""
    names = apart(dict(options) if usual in options else {ANY: "any", **options})
    given = query.get(name, usual)
    st.session_state[key(name)] = given if given in names else usual
    st.selectbox(
        label,
        list(names),
        format_func=names.__getitem__,
        key=key(name),
        on_change=_set,
        args=(name, usual),
        width="stretch" if width is None else width,
    )


def _pair(
    name: str,
    label: str,
    options: Mapping[str, str],
    said: str,
    words: Mapping[str, str],
    query: Mapping[str, str],
) -> None:
    """Who and what in one choice: the address holds both or none."""
    names = {ANY: "any"} | {
        f"{one}\n{value}": f"{who}: {what}"
        for one, who in apart(options).items()
        for value, what in words.items()
    }
    given = f"{query.get(name)}\n{query.get(said)}"
    st.session_state[key(name)] = given if given in names else ANY
    st.selectbox(
        label,
        list(names),
        format_func=names.__getitem__,
        key=key(name),
        on_change=_set_pair,
        args=(name, said),
        help="Beside the first: what one gets right and the other wrong",
    )


def _range(name: str, query: Mapping[str, str]) -> None:
    label, low, high = RANGES[name]
    given = [_number(query.get(f"{name}_{end}"), usual) for end, usual in (("min", low), ("max", high))]
    ends = sorted(min(high, max(low, value)) for value in given)
    st.session_state[key(name)] = tuple(ends)
    st.slider(
        label,
        low,
        high,
        step=0.01,
        key=key(name),
        on_change=_set_range,
        args=(name,),
        help="Its whole length filters nothing; any other leaves out chunks where it is not known",
    )


def _number(text: str | None, usual: float) -> float:
    try:
        return float(text) if text is not None else usual
    except ValueError:
        return usual


def _counts(query: Mapping[str, str]) -> None:
    with st.popover("Chunks and position", icon=":material/tag:", width="stretch"):
        for name, label in COUNTS.items():
            for end, words in (("min", "at least"), ("max", "at most")):
                st.session_state[key(f"{name}_{end}")] = whole(query.get(f"{name}_{end}"))
                st.number_input(
                    f"{label}, {words}",
                    min_value=0,
                    value=None,
                    key=key(f"{name}_{end}"),
                    on_change=_set,
                    args=(f"{name}_{end}", None),
                )


# ---- what is in use


def _in_use(asked: Asked, judges: Mapping[str, str]) -> None:
    """One button for every filter, which takes it away."""
    assert isinstance(asked.where, ChunkFilter)
    query = st.query_params
    used = [name for name in query if name in FIELDS]
    if not used:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for name in used:
            partner = {"other_judge_id": "other_verdict", "other_reviewer": "other_review"}.get(name)
            if name in ("other_verdict", "other_review"):
                continue
            said = f"{words_of(name, query[name], judges)}{': ' + visible(query[partner]) if partner else ''}"
            here_button(
                escape_line(said, limit=80),
                _without(query, name, partner),
                key=f"without-{name}",
                icon=":material/close:",
                help="Take this filter away",
            )
        if len(used) > 1:
            kept = {n: v for n, v in query.items() if n in ("show", "sort")}
            here_button("Clear filters", kept, key="clear", icon=":material/filter_list_off:")


def words_of(name: str, value: str, judges: Mapping[str, str]) -> str:
    """A filter in words; names from the store as they are written."""
    stem, _, end = name.rpartition("_")
    if end in ("min", "max") and (stem in RANGES or stem in COUNTS):
        title = RANGES[stem][0] if stem in RANGES else {"chunks": "chunks", "position": "index"}[stem]
        return f"{title} {'≥' if end == 'min' else '≤'} {value}"
    titled: dict[str, tuple[str, Mapping[str, str]]] = {
        "search": ("search", {}),
        "search_in": ("search", PLACES),
        "dataset": ("data set", {}),
        "policy": ("policy", {}),
        "outcome": ("outcome", {name: words for name, (_, _, words) in OUTCOMES.items()}),
        "label": ("label", LABELS),
        "rule": ("rule", {}),
        "judge_id": ("judge", judges),
        "other_judge_id": ("judge", judges),
        "verdict": ("verdict", VERDICTS),
        "against": ("judge", AGAINST),
        "reviewed": ("reviewed", {}),
        "reviewed_by": ("reviewed by", {}),
        "other_reviewer": ("reviewer", {}),
        "review": ("review", REVIEWS),
        "people": ("people", PEOPLE),
        "flag": ("flag", FLAGS),
        "disputed": ("people disagree", {}),
        "run_id": ("run", {}),
        "queue_id": ("queue", {}),
        "trajectory_id": ("trajectory", {}),
    }
    title, names = titled[name]
    return f"{title} {names.get(value, value)}"


# ---- callbacks


def _without(query: Mapping[str, str], *names: str | None) -> dict[str, str]:
    """The address without these parameters and without a place in the list."""
    return {n: v for n, v in query.items() if n not in (*names, *PLACE)}


def _set(name: str, usual: Any) -> None:
    value = st.session_state[key(name)]
    kept = _without(st.query_params, name)
    go_here(kept if value == usual else {**kept, name: str(value)})


def _set_pair(name: str, said: str) -> None:
    value = st.session_state[key(name)]
    who, _, what = value.partition("\n")
    go_here(_without(st.query_params, name, said) | ({} if value == ANY else {name: who, said: what}))


def _set_range(name: str) -> None:
    low, high = st.session_state[key(name)]
    _, least, most = RANGES[name]
    ends = ({f"{name}_min": f"{low:g}"} if low > least else {}) | (
        {f"{name}_max": f"{high:g}"} if high < most else {}
    )
    go_here(_without(st.query_params, f"{name}_min", f"{name}_max") | ends)

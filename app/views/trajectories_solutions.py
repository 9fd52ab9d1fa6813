"""The list of solutions: filters and sort in the address, one page of rows at a time. A row opens on its own page."""

from __future__ import annotations

import streamlit as st

from app.views.trajectories_actions import solution_actions
from app.views.trajectories_address import PLACE, SHARES, SOLUTIONS_KNOWN, Asked
from app.views.trajectories_parts import COUNTED, limits_words, marked, step
from app.widgets.access import get_store
from app.widgets.chips import OUTCOMES
from app.widgets.empty import empty_state
from app.widgets.here import go_here, here_button
from app.widgets.rows import Chip, Column, Excerpt, Row, row_table, spark_of
from app.widgets.run_words import TONES
from app.widgets.safe_text import apart, escape_line, visible
from db.errors import CursorError
from db.reads_list import TrajectoryFilter, TrajectoryItem

PAGE = 50
RUNS = 20
EXCERPT = 220
ANY = "any"
SORT_TITLES = {
    "newest": "Newest",
    "drop": "Biggest Q drop",
    "disagreement": "Judge and label disagree",
    "confidence": "Least certain label",
    "unreviewed": "Not reviewed first",
}
KNOWN = SOLUTIONS_KNOWN
RANGES = {
    "drop_min": ("Biggest drop of Q, at least", 0.0),
    "confidence_max": ("Least certain label, at most", 1.0),
}
"""{parameter: its label, the value that filters nothing}."""
REVIEWED = {"yes": "Reviewed", "no": "Not reviewed"}
COLUMNS = (
    Column("#", "link"),
    Column("Problem", "text", "wide"),
    Column("Policy", "small"),
    Column("Outcome", "chips"),
    Column("Q", "spark", help="Chance of success after each chunk; the biggest drop in red"),
    Column("Drop", "number", help="The biggest fall of Q over one chunk"),
    Column("Chunks", "number"),
    Column(
        "Labels",
        "chips",
        "wide",
        help="Chunks labelled + and − by rel-ratio, and where a judge's vote differs",
    ),
    Column("Certain", "number", "hide", help="Confidence of its least certain rel-ratio label"),
    Column("Review", "chips"),
)


def show_solutions(asked: Asked) -> None:
    """Filters, count, rows, Previous and Next."""
    _filters(asked)
    if asked.problems:
        for problem in asked.problems:
            st.error(problem, icon=":material/link_off:")
        here_button("All trajectories", {}, key="all", icon=":material/filter_list_off:")
        return
    _list(asked)


def _where(asked: Asked) -> TrajectoryFilter:
    assert isinstance(asked.where, TrajectoryFilter)
    return asked.where


def _filters(asked: Asked) -> None:
    """The widgets show what the address says; a change rewrites the address and goes back to the first page."""
    store = get_store()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _show("q", st.query_params.get("q", ""))
        st.text_input(
            "Search the problems",
            key="list-q",
            type="search",
            placeholder="words in the problem",
            on_change=_changed,
            args=("q",),
            width=230,
        )
        _select("dataset", "Data set", {name: name for name in store.datasets()})
        _select("policy", "Policy", {name: name for name in store.policies()})
        _select("outcome", "Outcome", {name: words for name, (_, _, words) in OUTCOMES.items()})
        _select("reviewed", "Review", REVIEWED)
        _select("run", "From run", _runs(_where(asked).run_id))
        _select("sort", "Sort by", SORT_TITLES, default="newest", width=195)
    _more()
    narrowed = [name for name in KNOWN if name in st.query_params and name not in ("show", "sort", *PLACE)]
    if narrowed and not asked.problems:
        with st.container(horizontal=True, vertical_alignment="center"):
            if (run_id := _where(asked).run_id) is not None:
                st.page_link(
                    "views/runs.py",
                    label=f"From run {run_id}",
                    icon=":material/play_circle:",
                    query_params={"run": str(run_id)},
                )
            here_button("Clear filters", _sort_only(), key="clear", icon=":material/filter_list_off:")


def _more() -> None:
    """Ranges that an index of solutions holds, and where the others are found."""
    used = [name for name in (*SHARES, "disagree") if name in st.query_params]
    with st.expander(
        f"More filters ({len(used)} in use)" if used else "More filters",
        expanded=bool(used),
        icon=":material/tune:",
        key="list-more",
    ):
        columns = st.columns(3, gap="medium", vertical_alignment="bottom")
        for column, (name, (label, usual)) in zip(columns, RANGES.items(), strict=False):
            with column:
                _range(name, label, usual)
        with columns[2]:
            _select("disagree", "A judge’s verdict", {"yes": "differs from the label somewhere"}, width=None)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(
                "No index of solutions holds the Q of the bare problem or how many labels are + or −: "
                "the list of chunks is filtered by both."
            )
            here_button(
                "First chunks, by Q before them",
                {"show": "chunks", "position_max": "0"},
                key="list-first-chunks",
                icon=":material/first_page:",
            )


def _range(name: str, label: str, usual: float) -> None:
    try:
        given = float(st.query_params.get(name, usual))
    except ValueError:
        given = usual
    st.session_state[f"list-{name}"] = given if 0 <= given <= 1 else usual

    def moved() -> None:
        value = st.session_state[f"list-{name}"]
        kept = {n: v for n, v in _here().items() if n != name}
        go_here(kept if value == usual else {**kept, name: f"{value:g}"})

    st.slider(label, 0.0, 1.0, step=0.01, key=f"list-{name}", on_change=moved)


def _runs(current: int | None) -> dict[str, str]:
    """The newest runs that write trajectories, and the one that the address names."""
    ids = {current, *(run.id for run in get_store().runs(RUNS, kinds=["sample", "import"]))}
    return {
        str(run_id): f"Run {run_id}" for run_id in sorted((i for i in ids if i is not None), reverse=True)
    }


def _show(name: str, value: str) -> None:
    st.session_state[f"list-{name}"] = value


def _select(
    name: str, label: str, options: dict[str, str], default: str = ANY, width: int | None = 130
) -> None:
    names = options if default in options else {ANY: "any", **options}
    given = st.query_params.get(name, default)
    _show(name, given if given in names else default)
    st.selectbox(
        label,
        list(names),
        format_func=apart(names).__getitem__,
        key=f"list-{name}",
        on_change=_changed,
        args=(name, default),
        width="stretch" if width is None else width,
    )


def _changed(name: str, default: str = "") -> None:
    value = st.session_state[f"list-{name}"]
    kept = {n: v for n, v in st.query_params.items() if n in KNOWN and n not in (name, *PLACE)}
    go_here(kept if value == default else {**kept, name: value})


def _sort_only() -> dict[str, str]:
    return {n: v for n, v in st.query_params.items() if n == "sort"}


def _list(asked: Asked) -> None:
    store = get_store()
    try:
        found = store.trajectory_page(
            _where(asked),
            sort=asked.sort,
            cursor=asked.after or asked.before,
            backwards=asked.before is not None,
            limit=PAGE,
        )
    except CursorError as error:
        st.error(escape_line(str(error), limit=300), icon=":material/link_off:")
        here_button("First page", _here(), key="first", icon=":material/first_page:")
        return
    if not found.rows:
        _nothing()
        return
    count = store.count_trajectories(_where(asked), sort=asked.sort, stop=COUNTED)
    total = f"{COUNTED:,}+" if count > COUNTED else f"{count:,}"
    noun = "trajectory" if count == 1 else "trajectories"
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="list-bar"):
        st.caption(f"{total} {noun} · {len(found.rows)} on this page{limits_words(count, 'trajectories')}")
        solution_actions(_where(asked), asked.sort)
    ids = [row.id for row in found.rows]
    paths, signs = store.q_paths(ids), store.label_signs(ids)
    words = _where(asked).search or ""
    rows = [_row(row, paths.get(row.id, []), signs.get(row.id, {}), words) for row in found.rows]
    columns = [
        Column(c.title, "excerpts", c.narrow) if words and c.title == "Problem" else c for c in COLUMNS
    ]
    row_table(columns, rows, label="Trajectories", key="trajectories")
    with st.container(horizontal=True, horizontal_alignment="center"):
        step("Previous", ":material/chevron_left:", "before", _here(), found.previous)
        step("Next", ":material/chevron_right:", "after", _here(), found.next)


def _here() -> dict[str, str]:
    """The address's filters and sort, without its place in the list."""
    return {n: v for n, v in st.query_params.items() if n in KNOWN and n not in PLACE}


def _nothing() -> None:
    if "after" in st.query_params or "before" in st.query_params:
        st.info("There is nothing further in this direction.", icon=":material/info:")
        here_button("First page", _here(), key="first", icon=":material/first_page:")
        return
    empty_state(
        "No trajectory matches",
        "Take a filter away, or search for other words: all words must be in the problem.",
        icon=":material/search_off:",
    )


def _row(row: TrajectoryItem, path: list[float | None], signs: dict[str | None, int], words: str) -> Row:
    # A blind queue's solution has no outcome to show.
    colour, _, said = OUTCOMES.get(row.outcome, ("gray", "visibility_off", row.outcome))
    return Row(
        id=str(row.id),
        href=f"/trajectory?traj={row.id}",
        label=f"Trajectory {row.id}, {said}",
        cells=(
            f"#{row.id}",
            _problem(row.problem_text, words),
            visible(row.policy),
            [Chip(said, TONES[colour])],
            spark_of(path),
            f"−{row.biggest_drop:.2f}" if row.biggest_drop and row.biggest_drop > 0 else None,
            str(row.n_chunks),
            _label_chips(row, signs) or None,
            f"{row.least_confidence:.0%}" if row.least_confidence is not None else None,
            [Chip(f"{row.n_reviewed} reviewed", "info")] if row.n_reviewed else None,
        ),
    )


def _problem(text: str, words: str) -> str | list[Excerpt]:
    if words:
        return [marked(text, words)]
    line = " ".join(visible(text).split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"


def _label_chips(row: TrajectoryItem, signs: dict[str | None, int]) -> list[Chip]:
    chips = [Chip(f"{signs['+']} +", "good")] if signs.get("+") else []
    chips += [Chip(f"{signs['-']} −", "bad")] if signs.get("-") else []
    if row.n_disagree:
        chips.append(
            Chip(f"{row.n_disagree} ≠ judge", "warn", "chunks where a judge's vote and the label differ")
        )
    return chips

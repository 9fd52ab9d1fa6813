"""Find trajectories: filters and sort in the address, one page of rows at a time. A row opens on its own page."""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st

from app.widgets.access import get_store
from app.widgets.chips import OUTCOMES
from app.widgets.empty import empty_state
from app.widgets.here import go_here, here_button
from app.widgets.rows import Chip, Column, Row, row_table, spark_of
from app.widgets.run_words import TONES
from app.widgets.safe_text import escape_line, visible
from db.errors import CursorError, NotFoundError
from db.reads_list import TrajectoryFilter, TrajectoryItem

PAGE = 50
COUNTED = 1000
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
KNOWN = ("dataset", "policy", "outcome", "q", "reviewed", "run", "sort", "after", "before")
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


@dataclass(frozen=True)
class Asked:
    """What the address asks for, checked. ``problems`` says what it asks for that cannot be."""

    where: TrajectoryFilter
    sort: str
    after: str | None = None
    before: str | None = None
    problems: list[str] = field(default_factory=list)


def page() -> None:
    """Filters, count, rows, Previous and Next."""
    st.title("Trajectories", anchor=False)
    store = get_store()
    if store.is_empty():
        empty_state(
            "No trajectories yet",
            "Start a sample run on the Runs page, or load the sample: stepwiser sample load",
            page="views/runs.py",
            label="Go to Runs",
        )
        return
    asked = _asked()
    _filters(asked)
    if asked.problems:
        for problem in asked.problems:
            st.error(problem, icon=":material/link_off:")
        here_button("All trajectories", {}, key="all", icon=":material/filter_list_off:")
        return
    _list(asked)


def _asked() -> Asked:
    """Reads and checks the address: a value that cannot be is named, never replaced by a default."""
    query, store, problems = st.query_params, get_store(), []

    def wrong(name: str, why: str) -> None:
        problems.append(f"{name}={escape_line(query[name], limit=60)}: {why}")

    for name in query:
        if name not in KNOWN:
            wrong(name, f"this page has no such filter; it has {', '.join(KNOWN)}")
    for name, names in (("dataset", store.datasets()), ("policy", store.policies())):
        if name in query and query[name] not in names:
            wrong(name, f"no {'data set' if name == 'dataset' else 'policy'} of this store has that name")
    for name, names in (
        ("outcome", list(OUTCOMES)),
        ("reviewed", list(REVIEWED)),
        ("sort", list(SORT_TITLES)),
    ):
        if name in query and query[name] not in names:
            wrong(name, f"it can be {', '.join(names)}")
    run_id = _run_id(query.get("run"))
    if "run" in query and run_id is None:
        wrong("run", "there is no such run in this store")
    if "after" in query and "before" in query:
        wrong("before", "it cannot stand beside after")
    where = TrajectoryFilter(
        dataset=query.get("dataset"),
        policy=query.get("policy"),
        outcome=query.get("outcome"),
        search=query.get("q") or None,
        reviewed={"yes": True, "no": False}.get(query.get("reviewed", "")),
        run_id=run_id,
    )
    return Asked(where, query.get("sort", "newest"), query.get("after"), query.get("before"), problems)


def _run_id(given: str | None) -> int | None:
    if given is None or not given.isdecimal() or len(given) > 18:
        return None
    try:
        return get_store().run(int(given)).id
    except NotFoundError:
        return None


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
        _select("run", "From run", _runs(asked.where.run_id))
        _select("sort", "Sort by", SORT_TITLES, default="newest", width=195)
    narrowed = [name for name in KNOWN if name in st.query_params and name not in ("sort", "after", "before")]
    if narrowed and not asked.problems:
        with st.container(horizontal=True, vertical_alignment="center"):
            if asked.where.run_id is not None:
                st.page_link(
                    "views/runs.py",
                    label=f"From run {asked.where.run_id}",
                    icon=":material/play_circle:",
                    query_params={"run": str(asked.where.run_id)},
                )
            here_button("Clear filters", _sort_only(), key="clear", icon=":material/filter_list_off:")


def _runs(current: int | None) -> dict[str, str]:
    """The newest runs that write trajectories, and the one that the address names."""
    ids = {current, *(run.id for run in get_store().runs(RUNS, kinds=["sample", "import"]))}
    return {
        str(run_id): f"Run {run_id}" for run_id in sorted((i for i in ids if i is not None), reverse=True)
    }


def _show(name: str, value: str) -> None:
    st.session_state[f"list-{name}"] = value


def _select(name: str, label: str, options: dict[str, str], default: str = ANY, width: int = 130) -> None:
    names = options if default in options else {ANY: "any", **options}
    given = st.query_params.get(name, default)
    _show(name, given if given in names else default)
    st.selectbox(
        label,
        list(names),
        format_func=lambda value: visible(names[value]),
        key=f"list-{name}",
        on_change=_changed,
        args=(name, default),
        width=width,
    )


def _changed(name: str, default: str = "") -> None:
    value = st.session_state[f"list-{name}"]
    kept = {n: v for n, v in st.query_params.items() if n in KNOWN and n not in (name, "after", "before")}
    go_here(kept if value == default else {**kept, name: value})


def _sort_only() -> dict[str, str]:
    return {n: v for n, v in st.query_params.items() if n == "sort"}


def _list(asked: Asked) -> None:
    store = get_store()
    try:
        found = store.trajectory_page(
            asked.where,
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
    count = store.count_trajectories(asked.where, stop=COUNTED)
    total = f"{COUNTED:,}+" if count > COUNTED else f"{count:,}"
    noun = "trajectory" if count == 1 else "trajectories"
    st.caption(f"{total} {noun} · {len(found.rows)} on this page")
    ids = [row.id for row in found.rows]
    paths, signs = store.q_paths(ids), store.label_signs(ids)
    rows = [_row(row, paths.get(row.id, []), signs.get(row.id, {})) for row in found.rows]
    row_table(COLUMNS, rows, label="Trajectories", key="trajectories")
    with st.container(horizontal=True, horizontal_alignment="center"):
        _step("Previous", ":material/chevron_left:", "before", found.previous)
        _step("Next", ":material/chevron_right:", "after", found.next)


def _here() -> dict[str, str]:
    """The address's filters and sort, without its place in the list."""
    return {n: v for n, v in st.query_params.items() if n in KNOWN and n not in ("after", "before")}


def _step(label: str, icon: str, name: str, cursor: str | None) -> None:
    here_button(
        label,
        {**_here(), name: cursor} if cursor else {},
        key=f"step-{name}",
        icon=icon,
        icon_position="left" if name == "before" else "right",
        disabled=cursor is None,
    )


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


def _row(row: TrajectoryItem, path: list[float | None], signs: dict[str | None, int]) -> Row:
    colour, _, words = OUTCOMES[row.outcome]
    text = " ".join(visible(row.problem_text).split())
    excerpt = text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"
    return Row(
        id=str(row.id),
        href=f"/trajectory?traj={row.id}",
        label=f"Trajectory {row.id}, {words}",
        cells=(
            f"#{row.id}",
            excerpt,
            visible(row.policy),
            [Chip(words, TONES[colour])],
            spark_of(path),
            f"−{row.biggest_drop:.2f}" if row.biggest_drop and row.biggest_drop > 0 else None,
            str(row.n_chunks),
            _label_chips(row, signs) or None,
            f"{row.least_confidence:.0%}" if row.least_confidence is not None else None,
            [Chip(f"{row.n_reviewed} reviewed", "info")] if row.n_reviewed else None,
        ),
    )


def _label_chips(row: TrajectoryItem, signs: dict[str | None, int]) -> list[Chip]:
    chips = [Chip(f"{signs['+']} +", "good")] if signs.get("+") else []
    chips += [Chip(f"{signs['-']} −", "bad")] if signs.get("-") else []
    if row.n_disagree:
        chips.append(
            Chip(f"{row.n_disagree} ≠ judge", "warn", "chunks where a judge's vote and the label differ")
        )
    return chips


if __name__ == "__main__":
    page()

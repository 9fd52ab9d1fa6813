"""Judges side by side: how often each is right, how well it finds errors, how it agrees with people, by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import streamlit as st

from app.views.judges_address import AGAINST, LAST_POSITION, Asked, address, href
from app.views.judges_raters import PEOPLE, Raters, figure_text
from app.views.runs_results import found_measures, measure_text
from app.widgets.access import get_store
from app.widgets.charts import CONFIG, Line, Measure, curves, measures
from app.widgets.empty import empty_state
from app.widgets.here import go_here
from app.widgets.rows import Column, Row, row_table
from app.widgets.safe_text import visible
from db.agreement_reads import Rated
from engine.evaluate.agreement import between_two
from engine.evaluate.paired import Case, Scores, compare

LOOKED = 2000
"""Chunks of each judge that this table looks at."""
MOST_JUDGES = 12
MOST_LINES = 6
MEASURED = 10
COLUMNS = (
    Column("Judge", "link", help="Opens it beside the next one"),
    Column("Kind", "small"),
    Column("Chunks", "number", help="That it read and that have a label to compare with"),
    Column("Right", "number", help="Its majority equals the label; without a verdict it is not right"),
    Column("F1", "number", help="Of finding errors: verdict negative, label −"),
    Column("Precision", "number", "hide"),
    Column("Recall", "number", "hide"),
    Column("κ with people", "number", help="Cohen’s kappa with people’s consensus"),
)
RUN_COLUMNS = (Column("Run", "link"), Column("Judge", "text", "wide"), Column("Measured", "text", "wide"))


def show_judges(asked: Asked, known: Raters) -> None:
    """The table, its picture, accuracy by position, and what evaluation runs measured."""
    judges = get_store().judges()
    if not judges:
        empty_state(
            "No judge has read anything yet",
            "A judge run reads chunks and writes a verdict with its reasons.",
            page="views/runs.py",
            label="Start a judge run",
            query={"new": "judge"},
        )
        return
    _against(asked, known)
    newest = judges[::-1][:MOST_JUDGES]
    scored = {f"judge:{judge.id}": _cases(f"judge:{judge.id}", asked.against) for judge in newest}
    scores = {text: compare(_as_cases(rows)).first for text, rows in scored.items() if rows}
    kinds = {f"judge:{judge.id}": judge.kind for judge in newest}
    rows = [_row(known, text, kinds[text], scored[text], scores.get(text), list(scored)) for text in scored]
    row_table(COLUMNS, rows, label="Judges", key="judges")
    st.caption(
        f"Each over the newest {LOOKED:,} chunks that it read and the label is known of, so two judges need not have read "
        "the same ones: compare two on the same chunks by opening one."
        + (f" The newest {MOST_JUDGES} of {len(judges)} judges." if len(judges) > MOST_JUDGES else "")
    )
    if scores:
        _pictures(known, scored, scores)
    _measured()


def _against(asked: Asked, known: Raters) -> None:
    st.session_state["judges-against"] = asked.against
    st.selectbox(
        "Right means equal to",
        AGAINST,
        format_func=known.title,
        key="judges-against",
        on_change=lambda: go_here(address(against=st.session_state["judges-against"])),
        width=260,
        help="Label in force: what people said where anybody reviewed, elsewhere the rule’s label",
    )


def _cases(text: str, against: str) -> list[Rated]:
    rows = get_store().rated([text, against], limit=LOOKED).rows
    return [row for row in rows if row.said[1] in "+-"]


def _as_cases(rows: Sequence[Rated]) -> Iterator[Case]:
    return (Case(row.problem_id, row.said[1], row.said[0], row.said[0]) for row in rows)


def _row(
    known: Raters, text: str, kind: str, rows: Sequence[Rated], scores: Scores | None, all_: Sequence[str]
) -> Row:
    other = next((one for one in all_ if one != text), None)
    people = get_store().rated([PEOPLE, text], limit=LOOKED).rows
    both = [(row.problem_id, *row.said) for row in people if set(row.said) <= {"+", "-"}]
    agreement = between_two(both)  # type: ignore[arg-type]
    kappa = f"{figure_text(agreement.kappa)} n = {agreement.n:,}" if both else None
    figures: tuple[str | None, ...] = (None,) * 4
    if scores is not None:
        four = (scores.accuracy, scores.f1, scores.precision, scores.recall)
        figures = tuple(figure_text(one, share=True) for one in four)
    return Row(
        id=text,
        href=href(view="compare", a=text, b=other, queue=None)
        if other
        else href(view="agreement", a=text, b=PEOPLE),
        label=f"{known.title(text)}, beside another judge" if other else f"{known.title(text)}, with people",
        cells=(known.title(text), kind, f"{len(rows):,}", *figures, kappa),
    )


def _pictures(known: Raters, scored: dict[str, list[Rated]], scores: dict[str, Scores]) -> None:
    dots = [
        Measure(known.title(text), one.accuracy.value, one.accuracy.low, one.accuracy.high, len(scored[text]))
        for text, one in scores.items()
        if one.accuracy.value is not None
    ]
    left, right = st.columns(2)
    with left:
        st.markdown("**How often each is right**")
        said = "; ".join(measure_text(dot) for dot in dots)
        st.plotly_chart(measures(dots), key="judges-right", config=CONFIG, alt=said)
    with right:
        st.markdown("**By place in the solution**")
        lines = [_line(known.title(text), scored[text]) for text in list(scores)[:MOST_LINES]]
        figure = curves(lines, height=220, share=True, at="chunk")
        figure.update_xaxes(title={"text": "chunk", "standoff": 16}, dtick=1)
        figure.update_yaxes(range=[0, 1.05])
        said = "; ".join(
            f"{line.name}: "
            + ", ".join(f"chunk {at} {value:.0%}" for at, value in zip(line.steps, line.values, strict=True))
            for line in lines
        )
        st.plotly_chart(figure, key="judges-positions", config=CONFIG, alt=f"Share that is right. {said}")


def _line(name: str, rows: Sequence[Rated]) -> Line:
    right: dict[int, list[bool]] = {}
    for row in rows:
        right.setdefault(min(row.idx, LAST_POSITION), []).append(row.said[0] == row.said[1])
    return Line(name, sorted(right), [sum(right[at]) / len(right[at]) for at in sorted(right)])


def _measured() -> None:
    """What evaluation runs found on held-out chunks, newest first."""
    runs = get_store().runs(MEASURED, kinds=["evaluate-judge"], statuses=["done"])
    rows = [
        Row(
            id=str(run.id),
            href=f"/runs?run={run.id}",
            label=f"Run {run.id}",
            cells=(
                f"Run {run.id}",
                visible(str(run.result.get("judge", ""))) or None,
                "; ".join(measure_text(one) for one in list(found_measures(run.result))[:3]) or None,
            ),
        )
        for run in runs
    ]
    if rows:
        st.markdown("**Measured on held-out chunks**")
        row_table(RUN_COLUMNS, rows, label="Evaluation runs", key="judges-measured")

"""The Q curve: what is drawn of values that are known, exact, unknown or stopped, and the marks beneath."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest

from app.widgets.curve_marks import MarkRow, judge_rows, label_row, people_mark
from app.widgets.evidence import why
from app.widgets.value_curve import BELOW, biggest_drop, chunk_at, describe, summary, value_figure
from app.widgets.value_words import rule_words, short
from engine.labels import ABS_Q, REL_RATIO, label, parse_rule
from engine.values import UNKNOWN, Value

VALUES = [Value(12, 16), UNKNOWN, Value(13, 16), Value(2, 16), Value(exact=False)]
LABELS = ["+", None, "-", "-"]


def traces(figure, name: str):  # type: ignore[no-untyped-def]
    return [trace for trace in figure.data if trace.name == name]


def test_the_curve_marks_the_biggest_drop_and_leaves_unknown_values_out() -> None:
    assert biggest_drop(VALUES) == (2, 11 / 16)
    figure = value_figure(VALUES, LABELS, 2, dark=False)
    (line,), (drop,) = traces(figure, "line"), traces(figure, "drop")
    assert line.y[1] is None and tuple(drop.x) == (2, 3)
    unknown, points = traces(figure, "points")
    assert (tuple(unknown.x), tuple(unknown.y), unknown.marker.symbol) == ((1,), (BELOW,), ("circle-open",))
    assert unknown.error_y.array is None
    assert tuple(points.x) == (0, 2, 3, 4)
    assert points.marker.symbol == ("circle", "circle", "triangle-down", "diamond")
    assert points.error_y.array[3] == points.error_y.arrayminus[3] == 0
    assert "2 of 16 correct = 0.12, 95 % interval 0.03 to 0.34" in points.text[2]
    assert "−0.69" in figure.layout.annotations[0].text
    assert "biggest drop is 0.69 at chunk 2" in summary(VALUES)


@pytest.mark.parametrize("n", [2, 5, 9, 60])
def test_the_note_of_the_biggest_drop_points_to_the_middle_so_that_it_stays_inside(n: int) -> None:
    for chunk in range(n):
        values = [Value(16, 16)] * (chunk + 1) + [Value(2, 16)] * (n - chunk)
        figure = value_figure(values, ["+"] * n, None, dark=False)
        (note,), (low, high) = figure.layout.annotations, figure.layout.xaxis.range
        room = (note.x - low) / (high - low) if note.xanchor == "right" else (high - note.x) / (high - low)
        assert room >= 0.5, f"chunk {chunk} of {n}: {room:.2f} of the plot for the note"
        assert note.xshift == (-8 if note.xanchor == "right" else 8)
        assert note.text == f"<b>−0.88</b><br>chunk {chunk}"


def test_the_interval_band_follows_the_known_neighbours_and_stops_at_the_unknown() -> None:
    first, second = traces(value_figure(VALUES, LABELS, None, dark=True), "band")
    assert (tuple(first.x), tuple(second.x)) == ((0, 0), (2, 3, 4, 4, 3, 2))
    low, high = VALUES[3].interval()
    assert second.y[1] == high and second.y[4] == low


def test_a_stopped_estimate_is_hollow_with_its_bounds_and_has_no_part_in_line_band_and_drop() -> None:
    values = [Value(16, 16), Value(1, 5, left=11), Value(8, 16, errors=4), Value(0, 16)]
    figure = value_figure(values, [None, None, None], 0, dark=False)
    hollow, solid = traces(figure, "points")
    assert tuple(hollow.x) == (1, 2) and set(hollow.marker.symbol) == {"diamond-open"}
    assert set(hollow.y) == {BELOW} and tuple(solid.x) == (0, 3)
    (bounds,) = traces(figure, "bounds")
    assert tuple(bounds.y) == (1 / 16, 12 / 16, None, 8 / 20, 12 / 20, None) and bounds.line.dash == "dot"
    assert tuple(traces(figure, "line")[0].y) == (1.0, None, None, 0.0)
    assert not traces(figure, "drop") and [len(band.x) for band in traces(figure, "band")] == [2, 2]
    said = hollow.text[0].replace("<br>", " ")
    assert "stopped after 5 of 16 draws" in said and "1 of 5 correct, 95 % interval 0.02" in said
    assert "Q would be 0.06 to 0.75" in said
    (box,) = traces(figure, "intervals")
    assert (min(box.y[:5]), max(box.y[:5])) == values[1].interval() and len(box.y) == 6


def test_values_in_words() -> None:
    assert biggest_drop([Value(1, 4), Value(1, 4), Value(exact=True)]) is None
    assert biggest_drop([UNKNOWN, UNKNOWN]) is None
    assert describe(UNKNOWN) == "no value: nothing was rolled out from here"
    assert describe(Value(8, 16, errors=4)) == "value unknown (4 of 20 not graded); Q would be 0.40 to 0.60"


def test_words_of_small_numbers_and_of_parameters_stay_true() -> None:
    assert why(ABS_Q, Value(), Value(1, 256)) == "$0.00391 > 0$"
    assert [short(Fraction(x)) for x in ("0", "1", "2", "0.4", "255/256", "-1/300")] == [
        *("0", "1", "2", "0.4", "0.996", "-0.00333")
    ]
    rules = ("abs-q", "rel-ratio:gamma=0.875", "rel-ratio:gamma=1/3", "rel-effective:n=8")
    assert [rule_words(parse_rule(rule)) for rule in rules] == ["", "γ = 0.875", "γ = 1/3", "α = 0.4, n = 8"]


def test_each_row_has_a_mark_a_chunk_in_its_middle_and_rings_what_the_parameters_flipped() -> None:
    rows = [
        MarkRow("people", [None, "+", "x", "0"]),
        label_row("rel-ratio", ["+", None, "-", "+"], ["+", None, "-", "-"], shown=True),
    ]
    figure = value_figure(VALUES, LABELS, 2, dark=False, rows=rows)
    below = [trace for trace in figure.data if trace.yaxis == "y2"]
    rule, rings, people = below
    assert tuple(people.x) == (1.5, 2.5, 3.5)
    assert people.marker.symbol == ("cross-thin", "x-thin", "circle-open-dot")
    assert tuple(rule.x) == (0.5, 2.5, 3.5) and rule.marker.symbol == ("cross-thin", "line-ew", "cross-thin")
    assert tuple(rings.x) == (3.5,) and rings.marker.symbol == "circle-open"
    assert figure.layout.yaxis2.ticktext == ("<b>rel-ratio</b>", "people")
    assert [chunk_at(x) for x in (0, 0.5, 1, 1.5, 2.5, 3)] == [0, 0, 0, 1, 2, 2]


def test_names_of_judges_are_typed_text_in_axis_and_hover() -> None:
    name = "<a href='https://evil.example'>judge</a> %{x}"
    rows, more = judge_rows({7: {name: (3, 1, 0), "b": (1, 1, 0)}, 9: {"b": (0, 0, 4)}}, [7, 8, 9])
    assert [row.marks for row in rows] == [["+", None, None], ["0", None, "0"]] and more == 0
    figure = value_figure(VALUES, LABELS, None, dark=False, rows=rows)
    for text in (
        *figure.layout.yaxis2.ticktext,
        *(str(t.hovertemplate) for t in figure.data if t.yaxis == "y2"),
    ):
        assert "<a" not in text
    assert "%{x}" not in figure.to_json()


def test_many_judges_are_counted_and_not_drawn() -> None:
    rows, more = judge_rows({1: {f"judge {k}": (1, 0, 0) for k in range(7)}}, [1])
    assert (len(rows), more) == (4, 3)


@pytest.mark.parametrize(
    ("verdicts", "adjudication", "decided", "mark"),
    [
        ([], None, False, None),
        ([1, 1, None], None, False, "+"),
        ([-1, 0], None, False, "-"),
        ([1, -1], None, False, "x"),
        ([0, None], None, False, "0"),
        ([1, -1], -1, True, "-"),
        ([1], 0, True, "0"),
    ],
)
def test_what_people_say_comes_to_one_mark(
    verdicts: list[int | None], adjudication: int | None, decided: bool, mark: str | None
) -> None:
    assert people_mark(verdicts, adjudication, decided) == mark


def test_five_hundred_chunks_stay_a_small_figure() -> None:
    values = [Value(k % 17, 16) for k in range(501)]
    labels = [label(REL_RATIO, a, b) for a, b in pairwise(values)]
    rows = [MarkRow(name, labels) for name in ("a", "b", "c", "d", "e")]
    figure = value_figure(values, labels, 250, dark=False, rows=rows)
    assert len(figure.to_json()) < 400_000
    below = [trace for trace in figure.data if trace.yaxis == "y2"]
    assert {symbol for trace in below for symbol in trace.marker.symbol} == {"line-ns"}
    assert {size for trace in below for size in trace.marker.size} == {4, 11}

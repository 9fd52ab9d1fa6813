"""The Trajectories page's script: rows, filters in the address, pages, and what it says where there is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.widgets.rows import spark_of
from db.store import open_store
from tests.page_support import FilledWorld, Open, button, pages, words
from tests.trajectories_page import filled, ids, open_at, rows, tables

__all__ = ["filled", "open_at", "pages"]


def test_fifty_rows_a_page_newest_first(open_at: Open, filled: FilledWorld) -> None:
    store = filled[0]
    app = open_at()
    everything = store.counts()["trajectories"]
    first = ids(app)
    assert len(first) == 50
    assert first == sorted(first, reverse=True)
    assert f"{everything} trajectories · 50 on this page" in words(app)
    assert button(app, "Previous").disabled
    button(app, "Next").click().run()
    rest = ids(app)
    assert len(rest) == everything - 50
    assert max(rest) < min(first)
    assert button(app, "Next").disabled
    button(app, "Previous").click().run()
    assert ids(app) == first


def test_a_row_says_what_matters_and_links_to_its_trajectory(open_at: Open, filled: FilledWorld) -> None:
    recovered = filled[2].sampled[1]
    row = next(row for row in rows(open_at(dataset="nano")) if row["id"] == str(recovered))
    number, problem, policy, outcome, spark, drop, chunks, labels, certain, review = row["cells"]
    assert row["href"] == f"/trajectory?traj={recovered}"
    assert (number, policy, chunks) == (f"#{recovered}", "nano", "4")
    assert problem.startswith("Mia has 7 apples.")
    assert [chip["text"] for chip in outcome] == ["correct"]
    assert len(spark["q"]) == 5
    assert spark["worst"] == 2
    assert float(drop.replace("−", "-")) < -0.2
    assert {chip["text"][-1] for chip in labels[:2]} == {"+", "−"}
    assert certain.endswith("%")
    assert review is None


def test_hostile_problem_text_stays_text(open_at: Open, filled: FilledWorld) -> None:
    app = open_at(q="heading")
    [row] = rows(app)
    [line] = row["cells"][1]
    assert line["parts"] == [
        ["# Not a ", False],
        ["heading", True],
        [" ![p](https://evil.example/p.png)", False],
    ]
    assert "evil.example" not in words(app)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ({"policy": "human"}, {"human", "chinese", "hostile", "long"}),
        ({"dataset": "handwritten", "q": "本书"}, {"chinese"}),
        ({"q": "numbers from 1 to 120"}, {"long"}),
        ({"policy": "human", "sort": "drop"}, {"human", "chinese", "hostile", "long"}),
    ],
)
def test_filters_come_from_the_address(
    open_at: Open, filled: FilledWorld, address: dict[str, str], expected: set[str]
) -> None:
    assert set(ids(open_at(**address))) == {getattr(filled[2], name) for name in expected}


def test_the_biggest_drop_comes_first(open_at: Open, filled: FilledWorld) -> None:
    store = filled[0]
    found = open_at(sort="drop", policy="nano")
    drops = [row["cells"][5] for row in rows(found)]
    known = [float(drop.replace("−", "-")) for drop in drops if drop]
    assert known == sorted(known)
    assert len(known) >= 2
    assert drops[: len(known)] == [drop for drop in drops if drop]
    assert store.counts()["trajectories"] > len(drops)


def test_a_run_and_its_rows(open_at: Open, filled: FilledWorld) -> None:
    app = open_at(run=str(filled[2].run))
    assert set(ids(app)) >= set(filled[2].sampled)
    assert set(ids(app)).isdisjoint({filled[2].human, filled[2].long})


def test_a_changed_widget_rewrites_the_address(open_at: Open) -> None:
    app = button(open_at(sort="newest"), "Next").click().run()
    next(box for box in app.selectbox if box.label == "Policy").set_value("nano").run()
    next(box for box in app.selectbox if box.label == "Outcome").set_value("wrong").run()
    assert dict(app.query_params) == {"sort": "newest", "policy": "nano", "outcome": "wrong"}
    assert {row["cells"][3][0]["text"] for row in rows(app)} == {"wrong"}
    next(box for box in app.selectbox if box.label == "Outcome").set_value("any").run()
    assert "outcome" not in app.query_params
    button(app, "Clear filters").click().run()
    assert set(app.query_params) == {"sort"}


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"outcome": "fine"}, "outcome=fine: it can be correct, wrong, unparsed, truncated, error"),
        ({"dataset": "absent"}, "dataset=absent: no data set of this store has that name"),
        ({"policy": "absent"}, "policy=absent: no policy of this store has that name"),
        ({"sort": "best"}, "sort=best: it can be newest, drop, disagreement, confidence, unreviewed"),
        ({"reviewed": "maybe"}, "reviewed=maybe: it can be yes, no"),
        ({"run": "4711"}, "run=4711: there is no such run in this store"),
        ({"run": "one"}, "run=one: there is no such run in this store"),
        ({"page": "2"}, "page=2: this list has no such filter"),
    ],
)
def test_a_bad_parameter_is_named_and_nothing_is_listed(
    open_at: Open, address: dict[str, str], said: str
) -> None:
    app = open_at(**address)
    assert said in words(app)
    assert not tables(app)
    button(app, "All trajectories").click().run()
    assert len(ids(app)) == 50


def test_a_cursor_of_another_list_is_named(open_at: Open) -> None:
    app = open_at()
    button(app, "Next").click().run()
    cursor = app.query_params["after"]
    elsewhere = open_at(sort="drop", after=cursor if isinstance(cursor, str) else cursor[0])
    assert "belongs to another filter or order" in words(elsewhere)
    assert "none of this list" in words(open_at(after="rubbish"))


def test_no_match_says_what_to_do(open_at: Open) -> None:
    app = open_at(q="zebra")
    assert "No trajectory matches" in words(app)
    button(app, "Clear filters").click().run()
    assert len(ids(app)) == 50


def test_an_empty_store_says_what_to_press(open_at: Open, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    open_store(url, migrate=True).close()
    said = words(open_at(url=url))
    assert "No trajectories yet" in said
    assert "stepwiser sample load" in said


def test_spark_marks_the_steepest_fall_between_known_neighbours() -> None:
    spark = spark_of([0.5, 0.75, None, 0.1, 0.0])
    assert spark is not None
    assert (spark.q, spark.worst) == ((0.5, 0.75, None, 0.1, 0.0), 4)
    assert spark_of([0.2, 0.4, 0.4]).worst is None  # type: ignore[union-attr]
    assert spark_of([0.2, None, 0.4]) is None
    assert spark_of([]) is None

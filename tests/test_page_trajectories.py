"""The Trajectories page's script: rows, filters in the address, pages, and what it says where there is nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from streamlit.testing.v1 import AppTest

from app.settings import get_settings
from app.views.trajectories_actions import _chunk_lines, _solution_lines, as_file
from app.widgets.rows import spark_of
from db.chunk_filter import ChunkFilter
from db.reads_list import TrajectoryFilter
from db.rows import NewChunk, NewProblem, NewTrajectory
from db.store import Store, open_store
from tests.filled_store import Filled, filled_store

MAIN = str(Path(__file__).parent.parent / "app" / "main.py")
Open = Callable[..., AppTest]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, str, Filled]]:
    """The filled store, and sixty more trajectories on a problem of their own."""
    url, ids = filled_store(tmp_path_factory.mktemp("list"))
    store = open_store(url)
    problem = store.add_problems(
        [NewProblem("many", "m", "Count to sixty.", "60")], run_id=None, actor="ada"
    ).ids["many", "m"]
    rows = [
        NewTrajectory(problem, "counter", f"{i}", "", (NewChunk("", f"{i}"),), "blank-line", "wrong", "1")
        for i in range(60)
    ]
    store.add_trajectories(rows, run_id=None, actor="ada")
    yield store, url, ids
    store.close()


@pytest.fixture
def open_at(
    filled: tuple[Store, str, Filled], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Open]:
    def run(url: str = filled[1], actor: str = "ann", **address: str) -> AppTest:
        monkeypatch.setenv("STEPWISER_DATABASE_URL", url)
        monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
        monkeypatch.setenv("STEPWISER_ACTOR", actor)
        get_settings.cache_clear()
        app = AppTest.from_file(MAIN, default_timeout=60).run()
        app.switch_page("views/trajectories.py")
        for name, value in address.items():
            app.query_params[name] = value
        return app.run()

    yield run
    get_settings.cache_clear()


def rows(app: AppTest) -> list[dict[str, Any]]:
    """The rows of the table, as they go to the browser."""
    assert not app.exception, app.exception[0].message
    [table] = tables(app)
    return table["rows"]


def tables(app: AppTest) -> list[dict[str, Any]]:
    """What goes to the browser's tables of rows."""
    return [
        data for one in app.get("bidi_component") if "rows" in (data := json.loads(one.proto.json or "{}"))
    ]


def ids(app: AppTest) -> list[int]:
    return [int(row["id"]) for row in rows(app)]


def words(app: AppTest) -> str:
    assert not app.exception, app.exception[0].message
    return "\n".join(str(e.value) for e in (*app.markdown, *app.caption, *app.error, *app.info))


def button(app: AppTest, label: str):  # type: ignore[no-untyped-def]
    return next(b for b in app.button if b.label == label)


def test_fifty_rows_a_page_newest_first(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
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


def test_a_row_says_what_matters_and_links_to_its_trajectory(
    open_at: Open, filled: tuple[Store, str, Filled]
) -> None:
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


def test_hostile_problem_text_stays_text(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
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
    open_at: Open, filled: tuple[Store, str, Filled], address: dict[str, str], expected: set[str]
) -> None:
    assert set(ids(open_at(**address))) == {getattr(filled[2], name) for name in expected}


def test_the_biggest_drop_comes_first(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
    store = filled[0]
    found = open_at(sort="drop", policy="nano")
    drops = [row["cells"][5] for row in rows(found)]
    known = [float(drop.replace("−", "-")) for drop in drops if drop]
    assert known == sorted(known)
    assert len(known) >= 2
    assert drops[: len(known)] == [drop for drop in drops if drop]
    assert store.counts()["trajectories"] > len(drops)


def test_a_run_and_its_rows(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
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


# ---- the list of chunks


def chunks_of(app: AppTest) -> list[tuple[int, int]]:
    """(trajectory, index) of the rows."""
    places = (row["cells"][0].removeprefix("#").split(" · ") for row in rows(app))
    return [(int(trajectory), int(idx)) for trajectory, idx in places]


def address_of(app: AppTest) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}


def box(app: AppTest, label: str):  # type: ignore[no-untyped-def]
    return next(one for one in app.selectbox if one.label == label)


def test_chunks_newest_first_with_pages(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
    everything = f"{filled[0].counts()['chunks']} chunks"
    app = open_at(show="chunks")
    assert f"{everything} · 50 on this page" in words(app)
    first = ids(app)
    assert first == sorted(first, reverse=True) and len(first) == 50
    app = button(app, "Next").click().run()
    assert everything in words(app) and max(ids(app)) < min(first)
    assert ids(button(app, "Previous").click().run()) == first


def test_a_chunks_row_says_what_matters_and_links_to_it(
    open_at: Open, filled: tuple[Store, str, Filled]
) -> None:
    recovered = filled[2].sampled[1]
    app = open_at(show="chunks", trajectory_id=str(recovered), sort="drop")
    row = rows(app)[0]
    number, texts, values, drop, label, judges, people, solution = row["cells"]
    assert number == f"#{recovered} · 1"
    assert row["href"] == f"/trajectory?traj={recovered}&chunk=1"
    assert texts == [{"parts": [["She picks 5 more: 7 + 5 = 13.", False]], "place": ""}]
    before, after = values.split(" → ")
    assert float(before) - float(after) == pytest.approx(float(drop.removeprefix("−")), abs=0.02)
    assert label[0]["text"].startswith("−") and label[0]["tone"] == "bad"
    assert [chip["text"] for chip in judges] == ["✗ 1/4 nano-judge", "✓ 3/4 nano-judge before training"]
    assert people is None
    assert [chip["text"] for chip in solution] == ["correct", "nano"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ({"search": "= 13", "search_in": "chunk"}, {(1, 1)}),
        ({"search": "7.” The arithmetic does", "search_in": "rationale"}, {(2, 2)}),
        ({"search": "设原来有"}, {("chinese", 0)}),
        ({"label": "-", "judge_id": "1", "verdict": "negative"}, {(1, 1), (2, 2)}),
        (
            {"judge_id": "1", "verdict": "negative", "other_judge_id": "2", "other_verdict": "positive"},
            {(1, 1), (2, 2)},
        ),
        ({"drop_min": "0.5", "q_after_max": "0.3", "outcome": "wrong", "dataset": "nano"}, {(2, 2)}),
        ({"policy": "human", "position_min": "119"}, {("long", 119)}),
    ],
)
def test_filters_of_chunks_combine(
    open_at: Open,
    filled: tuple[Store, str, Filled],
    address: dict[str, str],
    expected: set[tuple[int | str, int]],
) -> None:
    ids = filled[2]
    places = {(getattr(ids, t) if isinstance(t, str) else ids.sampled[t], idx) for t, idx in expected}
    app = open_at(show="chunks", **address)
    assert set(chunks_of(app)) == places
    assert f"{len(places)} chunk" in words(app)


def test_a_search_marks_its_words_and_says_where_they_stand(
    open_at: Open, filled: tuple[Store, str, Filled]
) -> None:
    app = open_at(show="chunks", search="does not hold", dataset="nano")
    [first, second] = rows(app)
    for row in (first, second):
        chunk, rationale = row["cells"][1]
        assert (chunk["place"], [marked for _, marked in chunk["parts"]]) == ("", [False])
        assert rationale["place"] == "nano-judge judged:"
        assert [text for text, marked in rationale["parts"] if marked] == ["does", "not", "hold"]
        assert row["href"].endswith("&find=does+not+hold")


def test_widgets_of_the_chunks_rewrite_the_address(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
    app = open_at(show="chunks")
    app = box(app, "Label").set_value("-").run()
    app = box(app, "Second judge").set_value("2\npositive").run()
    app = next(s for s in app.slider if s.label == "Q drop").set_value((0.25, 1.0)).run()
    asked = {
        "show": "chunks",
        "label": "-",
        "other_judge_id": "2",
        "other_verdict": "positive",
        "drop_min": "0.25",
    }
    assert {name: value[0] for name, value in app.query_params.items()} == asked or dict(
        app.query_params
    ) == asked
    where = ChunkFilter(label="-", other_judge_id=2, other_verdict="positive", drop_min=0.25)
    assert ids(app) == [row.id for row in filled[0].find_chunks(where).rows] != []
    app = button(app, "Q drop ≥ 0&#46;25").click().run()
    assert "drop_min" not in app.query_params
    app = button(app, "judge nano&#45;judge before training&#58; positive").click().run()
    assert set(app.query_params) == {"show", "label"}
    app = box(app, "Label").set_value("any").run()
    assert set(app.query_params) == {"show"}


def test_one_list_leads_to_the_other_with_the_filters_that_both_have(open_at: Open) -> None:
    app = open_at(q="apples", policy="nano", sort="drop")
    app = app.segmented_control(key="list-show").set_value("chunks").run()
    assert address_of(app) == {
        "show": "chunks",
        "policy": "nano",
        "search": "apples",
        "search_in": "problem",
    }


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"label": "plus"}, "label=plus: it can be +, -, none"),
        ({"judge_id": "77"}, "judge_id=77: there is no such judge in this store"),
        ({"judge_id": "first"}, "judge_id=first: a whole number was expected"),
        ({"queue_id": "9"}, "queue_id=9: there is no such queue in this store"),
        ({"run_id": "4711"}, "run_id=4711: there is no such run in this store"),
        ({"drop_min": "nan"}, "drop_min=nan: a number was expected"),
        ({"q_after_max": "much"}, "q_after_max=much: a number was expected"),
        ({"disputed": "true"}, "disputed=true: it can be yes, no"),
        ({"other_judge_id": "1"}, "other_judge_id=1: other_judge_id and other_verdict belong together"),
        ({"search_in": "titles"}, "search_in=titles: it can be anywhere, problem, chunk, rationale, comment"),
        ({"sort": "unreviewed"}, "sort=unreviewed: it can be newest, drop, certain"),
        ({"q": "x"}, "q=x: this list has no such filter"),
    ],
)
def test_a_bad_filter_of_chunks_is_named_and_nothing_is_listed(
    open_at: Open, address: dict[str, str], said: str
) -> None:
    app = open_at(show="chunks", **address)
    assert said in html.unescape(words(app))
    assert not tables(app)
    assert len(chunks_of(button(app, "All chunks").click().run())) == 50


def test_no_chunk_matches(open_at: Open) -> None:
    for search in ("zebra", "x^2 - 4", "三角形", '"'):
        assert "No chunk matches" in words(open_at(show="chunks", search=search))


def test_a_search_is_kept_opened_and_deleted(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
    app = open_at(show="chunks", label="-", sort="drop")
    next(one for one in app.text_input if one.label.startswith("Keep this search")).set_value("Big *falls*")
    app = button(app, "Save").click().run()
    [kept] = filled[0].saved_searches("trajectories")
    assert (kept.name, kept.query, kept.actor) == ("Big *falls*", "show=chunks&label=-&sort=drop", "ann")
    elsewhere = open_at()
    opened = button(elsewhere, "Big &#42;falls&#42;").click().run()
    assert address_of(opened) == {
        "show": "chunks",
        "label": "-",
        "sort": "drop",
    }
    next(one for one in opened.text_input if one.label.startswith("Keep this search")).set_value(
        "Big *falls*"
    )
    again = button(opened, "Save").click().run()
    assert any("has the name" in warning.value for warning in again.warning)
    button(again, "Delete").click().run()
    assert filled[0].saved_searches("trajectories") == []


def test_the_exported_file_has_exactly_the_rows_of_the_list(
    open_at: Open, filled: tuple[Store, str, Filled]
) -> None:
    store, ids = filled[0], filled[2]
    where = ChunkFilter(dataset="nano", search="12")
    lines = [json.loads(line) for line in as_file(_chunk_lines(store, where, "drop")).decode().splitlines()]
    listed = chunks_of(open_at(show="chunks", dataset="nano", search="12", sort="drop"))
    assert [(line["trajectory_id"], line["idx"]) for line in lines] == listed
    assert len(listed) > 3
    slip = next(line for line in lines if (line["trajectory_id"], line["idx"]) == (ids.sampled[2], 2))
    assert (
        slip["text"] == "She gives away 4: 12 - 4 = 7." and slip["label"] == "-" and slip["dataset"] == "nano"
    )
    assert slip["votes"]["nano-judge"] == {"positive": 1, "negative": 3, "total": 4}
    solutions = [
        json.loads(line)
        for line in as_file(_solution_lines(store, TrajectoryFilter(policy="human"), "newest"))
        .decode()
        .splitlines()
    ]
    assert [line["trajectory_id"] for line in solutions] == [
        int(row["id"]) for row in rows(open_at(policy="human"))
    ]
    assert "".join(solutions[-1]["chunks"]) and solutions[0]["text"]


def test_bulk_actions_carry_the_filter_to_a_queue_and_the_solutions_to_a_run(
    open_at: Open, filled: tuple[Store, str, Filled]
) -> None:
    ids = filled[2]
    app = open_at(show="chunks", label="-", drop_min="0.25")
    [link] = [one for one in app.get("page_link") if one.proto.label == "Queue these"]
    assert dict(parse_qsl(link.proto.query_string)) == {"new": "1", "label": "-", "drop_min": "0.25"}
    places = chunks_of(app)
    button(app, "Judge these").click().run()
    wanted = list(dict.fromkeys(trajectory for trajectory, _ in places))
    assert set(wanted) <= set(ids.sampled)
    assert address_of(app) == {
        "new": "judge",
        "set": f"select.trajectory_ids={json.dumps(wanted, separators=(',', ':'))}",
    }


def test_a_limit_stands_beside_the_count_where_it_binds(
    open_at: Open, filled: tuple[Store, str, Filled], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "a run takes" not in words(open_at(show="chunks"))
    monkeypatch.setattr("app.views.trajectories_parts.MOST_SOLUTIONS", 2)
    assert "on this page · a run takes the first 2" in words(open_at())
    assert "on this page · a run takes the first 2 solutions" in words(open_at(show="chunks"))
    monkeypatch.setattr("app.views.trajectories_parts.MOST_ROWS", 3)
    assert "a file" not in words(open_at())  # counted to the end: fewer than a file holds in truth
    for module in ("parts", "solutions"):
        monkeypatch.setattr(f"app.views.trajectories_{module}.COUNTED", 4)
    assert "a run takes the first 2, a file the first 3" in words(open_at())
    filled[0].set_role("guest", "reader", "ann")
    assert "on this page · a file the first 3" in words(open_at(actor="guest"))


def test_ranges_of_solutions_are_kept_by_the_list_of_chunks(open_at: Open) -> None:
    app = open_at(drop_min="0.25", confidence_max="1", disagree="yes")
    assert ids(app) and app.slider(key="list-drop_min").value == 0.25
    app.slider(key="list-drop_min").set_value(1.0).run()
    assert address_of(app) == {"drop_min": "1", "confidence_max": "1", "disagree": "yes"}
    app = open_at(drop_min="0.25", confidence_max="1", disagree="yes")
    [link] = [one for one in app.get("page_link") if one.proto.label == "Queue these"]
    chunks = {"drop_min": "0.25", "confidence_max": "1", "against": "yes"}
    assert dict(parse_qsl(link.proto.query_string)) == {"new": "1", **chunks}
    app.slider(key="list-drop_min").set_value(0.0).run()
    assert address_of(app) == {"confidence_max": "1", "disagree": "yes"}


def test_a_reader_is_offered_the_file_only(open_at: Open, filled: tuple[Store, str, Filled]) -> None:
    filled[0].set_role("guest", "reader", "ann")
    app = open_at(show="chunks", actor="guest")
    assert not {"Judge these", "Roll these out", "Save"} & {one.label for one in app.button}
    assert not [one for one in app.get("page_link") if one.proto.label == "Queue these"]
    assert [one.proto.label for one in app.get("download_button")] == ["Export these"]


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

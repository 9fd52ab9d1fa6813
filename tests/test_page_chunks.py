"""The Trajectories page's list of chunks: rows, filters, searches kept under a name, and what is done with all that
was found. Not: the list of solutions (test_page_trajectories).
"""

from __future__ import annotations

import html
import json
from urllib.parse import parse_qsl

import pytest

from app.views.trajectories_actions import _chunk_lines, _solution_lines, as_file
from db.chunk_filter import ChunkFilter
from db.reads_list import TrajectoryFilter
from tests.page_support import FilledWorld, Open, button, pages, words
from tests.trajectories_page import address_of, box, chunks_of, filled, ids, open_at, rows, tables

__all__ = ["filled", "open_at", "pages"]


def test_chunks_newest_first_with_pages(open_at: Open, filled: FilledWorld) -> None:
    everything = f"{filled[0].counts()['chunks']} chunks"
    app = open_at(show="chunks")
    assert f"{everything} · 50 on this page" in words(app)
    first = ids(app)
    assert first == sorted(first, reverse=True) and len(first) == 50
    app = button(app, "Next").click().run()
    assert everything in words(app) and max(ids(app)) < min(first)
    assert ids(button(app, "Previous").click().run()) == first


def test_a_chunks_row_says_what_matters_and_links_to_it(open_at: Open, filled: FilledWorld) -> None:
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
    filled: FilledWorld,
    address: dict[str, str],
    expected: set[tuple[int | str, int]],
) -> None:
    ids = filled[2]
    places = {(getattr(ids, t) if isinstance(t, str) else ids.sampled[t], idx) for t, idx in expected}
    app = open_at(show="chunks", **address)
    assert set(chunks_of(app)) == places
    assert f"{len(places)} chunk" in words(app)


def test_a_search_marks_its_words_and_says_where_they_stand(open_at: Open, filled: FilledWorld) -> None:
    app = open_at(show="chunks", search="does not hold", dataset="nano")
    [first, second] = rows(app)
    for row in (first, second):
        chunk, rationale = row["cells"][1]
        assert (chunk["place"], [marked for _, marked in chunk["parts"]]) == ("", [False])
        assert rationale["place"] == "nano-judge judged:"
        assert [text for text, marked in rationale["parts"] if marked] == ["does", "not", "hold"]
        assert row["href"].endswith("&find=does+not+hold")


def test_widgets_of_the_chunks_rewrite_the_address(open_at: Open, filled: FilledWorld) -> None:
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


def test_people_of_one_name_are_told_apart(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    chunks = store.chunk_page(ids.sampled[0])
    store.set_role("kim @ https://idp.example", "annotator", "ann")
    for place, who in enumerate(("kim", "kim @ https://idp.example")):
        store.add_review(chunks[place].id, f"kim-{place}", who, 1, supersedes=None)
    app = open_at(show="chunks")
    choice = box(app, "Reviewed by")
    assert {"kim (kim)", "kim (kim @ https://idp.example)"} < set(choice.options)
    app = choice.select_index(choice.options.index("kim (kim)")).run()
    assert address_of(app)["reviewed_by"] == "kim"
    assert [place for _, place in chunks_of(app)] == [0]


def test_any_flag_is_a_filter_and_not_the_absence_of_one(open_at: Open) -> None:
    app = open_at(show="chunks")
    assert box(app, "Flag").value == ""
    app = box(app, "Flag").set_value("any").run()
    assert address_of(app) == {"show": "chunks", "flag": "any"} and "No chunk matches" in words(app)
    app = box(app, "Flag").set_value("flag").run()
    assert address_of(app)["flag"] == "flag"
    app = box(app, "Flag").set_value("").run()
    assert address_of(app) == {"show": "chunks"}


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


def test_a_search_is_kept_opened_and_deleted(open_at: Open, filled: FilledWorld) -> None:
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


def test_the_exported_file_has_exactly_the_rows_of_the_list(open_at: Open, filled: FilledWorld) -> None:
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
    open_at: Open, filled: FilledWorld
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


def test_a_queue_gets_the_ends_of_ranges_as_they_are(open_at: Open) -> None:
    app = open_at(show="chunks", q_before_min=repr(2 / 3))  # 0.666667 would leave out 2 of 3
    [link] = [one for one in app.get("page_link") if one.proto.label == "Queue these"]
    assert dict(parse_qsl(link.proto.query_string)) == {"new": "1", "q_before_min": repr(2 / 3)}


def test_a_limit_stands_beside_the_count_where_it_binds(
    open_at: Open, filled: FilledWorld, monkeypatch: pytest.MonkeyPatch
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


def test_a_reader_is_offered_the_file_only(open_at: Open, filled: FilledWorld) -> None:
    filled[0].set_role("guest", "reader", "ann")
    app = open_at(show="chunks", actor="guest")
    assert not {"Judge these", "Roll these out", "Save"} & {one.label for one in app.button}
    assert not [one for one in app.get("page_link") if one.proto.label == "Queue these"]
    assert [one.proto.label for one in app.get("download_button")] == ["Export these"]

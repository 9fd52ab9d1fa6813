"""The Judges page's script: its numbers are the libraries', its address is checked, its text is only ever text."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from app.views.judges_raters import figure_text
from db.queues_store import NewQueue
from db.store import open_store
from engine.evaluate.agreement import among_many, between_two
from engine.evaluate.bootstrap import Figure
from engine.evaluate.paired import Case, compare
from tests.page_support import Open, RatedWorld, components, pages, rated, words

__all__ = ["pages", "rated"]


@pytest.fixture
def open_at(rated: RatedWorld, pages: Open) -> Open:
    def run(url: str = rated[1], actor: str = "rosa", **address: object) -> AppTest:
        return pages("judges", url, address, actor)

    return run


def tables(app: AppTest) -> dict[str, dict[str, Any]]:
    """Every table and matrix of the page by its label."""
    return {part["label"]: part for part in components(app) if "label" in part}


def rows(app: AppTest, label: str) -> dict[str, list[Any]]:
    """{first cell: the other cells} of a table."""
    return {row["cells"][0]: row["cells"][1:] for row in tables(app)[label]["rows"]}


def test_people_judges_rules_and_queues_at_a_glance(open_at: Open, rated: RatedWorld) -> None:
    _, _, raters = rated
    app = open_at(view="agreement")
    people = [who for who in raters.said if who.startswith("person:")]
    units = [
        (
            raters.problem_of[c],
            [raters.said[who][c] for who in people if raters.said[who].get(c, "?") != "?"],
        )
        for c in raters.chunks[::-1]
    ]
    group = among_many(units)
    facts = {name: cells[0] for name, cells in rows(app, "Agreement among people").items()}
    assert facts["Krippendorff’s α"] == figure_text(group.alpha)
    assert facts["Fleiss’ κ"].startswith(figure_text(group.fleiss)) and "2 answers each" in facts["Fleiss’ κ"]
    assert facts["Pairs that agree"] == figure_text(group.raw, share=True)
    assert f"{group.n} chunks of 10 problems" in facts["Counted"] and "3 people" in facts["Counted"]
    pairs = rows(app, "Pairs of people")
    for one, other in (("ada", "bob"), ("ada", "cyd"), ("bob", "cyd")):
        given = raters.pairs(f"person:{one}", f"person:{other}", "+0-")
        found = between_two([(raters.problem_of[c], a, b) for c, a, b in given])
        assert pairs[f"{one} × {other}"] == [
            str(found.n),
            figure_text(found.raw, share=True),
            figure_text(found.kappa),
        ]
    others = rows(app, "People with judges and rules")
    for who, title in (
        (f"judge:{raters.judges[0]}", "weak <i>judge</i>"),
        ("rule:rel-ratio", "Rule rel-ratio, gamma 0.8"),
    ):
        found = between_two([(raters.problem_of[c], a, b) for c, a, b in raters.pairs("people", who)])
        assert others[f"People’s consensus × {title}"][2] == figure_text(found.kappa)
    assert list(rows(app, "Agreement by queue")) == ["double <i>read</i>"]
    assert "<i>" not in words(app)


def test_two_raters_in_full_by_place_and_cell(open_at: Open, rated: RatedWorld) -> None:
    _, _, raters = rated
    a, b = "person:ada", f"judge:{raters.judges[0]}"
    given = raters.pairs(a, b)
    app = open_at(view="agreement", a=a, b=b)
    found = between_two([(raters.problem_of[c], x, y) for c, x, y in given])
    facts = {name: cells[0] for name, cells in rows(app, "Agreement of the two").items()}
    assert facts["Cohen’s κ"] == figure_text(found.kappa)
    assert facts["Counted"] == f"{len(given)} chunks of {found.problems} problems"
    matrix = tables(app)["What ada and weak <i>judge</i> said"]
    assert matrix["rows"] == ["+", "0", "−", "none"] and matrix["columns"] == ["+", "−", "none"]
    every = raters.pairs(a, b, "+0-?")
    signs = {"+": "+", "0": "0", "−": "-", "none": "?"}
    for row, line in zip(matrix["rows"], matrix["cells"], strict=True):
        for column, cell in zip(matrix["columns"], line, strict=True):
            chunks = [c for c, x, y in every if (x, y) == (signs[row], signs[column])]
            assert cell["n"] == len(chunks)
            address = {k: v[0] for k, v in parse_qs(urlsplit(cell["href"]).query).items()}
            if chunks and row in "+−0" and row != column and column != "−":
                listed = open_at(**address)
                shown = [int(r["id"]) for r in tables(listed)["Chunks"]["rows"]]
                assert sorted(shown) == sorted(chunks)
    at_two = [(c, x, y) for c, x, y in given if raters.place_of[c][1] == 2]
    places = rows(app, "Agreement by place in the solution")
    assert places["2"][0] == str(len(at_two))
    assert rows(open_at(view="agreement", a=a, b=b, at=2), "Agreement of the two")["Counted"] == [
        f"{len(at_two)} chunks of {len({raters.problem_of[c] for c, _, _ in at_two})} problems, chunk 2 of their solution"
    ]


def test_a_queue_narrows_agreement_to_its_answers(open_at: Open, rated: RatedWorld) -> None:
    app = open_at(view="agreement", queue=rated[2].queue)
    facts = rows(app, "Agreement among people")
    assert "2 people" in facts["Counted"][0]  # cyd reviewed outside the queue
    assert list(rows(app, "Pairs of people")) == ["ada × bob"]


def test_two_judges_paired(open_at: Open, rated: RatedWorld) -> None:
    _, _, raters = rated
    for kind, ids in (("judge", raters.judges), ("run", raters.runs)):
        a, b = (f"{kind}:{i}" for i in ids)
        app = open_at(view="compare", a=a, b=b, against="rule:rel-ratio")
        truth = raters.said["rule:rel-ratio"]
        both = [c for c in raters.chunks if c in raters.said[a] and c in raters.said[b] and c in truth]
        found = compare(
            [Case(raters.problem_of[c], truth[c], raters.said[a][c], raters.said[b][c]) for c in both]
        )
        scores = rows(app, "Scores of both")
        assert scores["F1 of finding errors"] == [
            figure_text(found.first.f1, share=True),
            figure_text(found.second.f1, share=True),
            figure_text(found.f1_gap, share=True, signed=True),
        ]
        assert scores["Right"][2] == figure_text(found.accuracy_gap, share=True, signed=True)
        cells = tables(app)["Where each is right and wrong"]["cells"]
        assert [cell["n"] for line in cells for cell in line] == [
            found.changes[change] for change in ("both right", "regressed", "fixed", "both wrong")
        ]
        assert f"{len(both)} chunks of" in words(app)
        for change in ("fixed", "regressed"):
            listed = open_at(view="compare", a=a, b=b, against="rule:rel-ratio", change=change)
            wanted = [
                c for c in both if Case(1, truth[c], raters.said[a][c], raters.said[b][c]).change == change
            ]
            assert sorted(int(r["id"]) for r in tables(listed)["Chunks"]["rows"]) == sorted(wanted)


def test_a_chunk_opens_with_both_rationales(open_at: Open, rated: RatedWorld) -> None:
    _, _, raters = rated
    chunk = raters.chunks[0]
    a, b = (f"judge:{i}" for i in raters.judges)
    app = open_at(view="compare", a=a, b=b, against="rule:rel-ratio", chunk=chunk)
    said = words(app)
    assert said.count("Goal: one step") + said.count("Goal&#58; one step") == 2
    assert "weak &#60;i&#62;judge" in said and "<i>" not in said
    assert "not among the chunks" in words(
        open_at(view="compare", a=a, b=b, against="rule:rel-ratio", chunk=raters.chunks[2])
    )
    assert "There is no chunk 99999" in words(open_at(view="compare", a=a, b=b, chunk=99999))


def test_a_judge_is_not_compared_with_itself(open_at: Open, rated: RatedWorld) -> None:
    _, _, raters = rated
    one = f"judge:{raters.judges[0]}"
    chunk = next(chunk for chunk in raters.chunks if raters.said["people"][chunk] in "+-")
    assert "Choose two judges" in words(open_at(view="compare", a=one, b=one, chunk=chunk))


def test_judges_stand_side_by_side(open_at: Open, rated: RatedWorld) -> None:
    _, _, raters = rated
    app = open_at(against="rule:rel-ratio")
    truth, said = raters.said["rule:rel-ratio"], raters.said[f"judge:{raters.judges[1]}"]
    both = [c for c in raters.chunks if c in truth and c in said]
    scores = compare([Case(raters.problem_of[c], truth[c], said[c], said[c]) for c in both]).first
    cells = rows(app, "Judges")["better judge"]
    assert cells[1] == str(len(both)) and cells[2] == figure_text(scores.accuracy, share=True)
    assert cells[3] == figure_text(scores.f1, share=True)
    (row,) = [r for r in tables(app)["Judges"]["rows"] if r["cells"][0] == "better judge"]
    assert "view=compare" in row["href"]


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ({"view": "best"}, "view=best: it can be judges, agreement, compare"),
        ({"view": "agreement", "a": "person:nobody", "b": "people"}, "no such person"),
        ({"view": "agreement", "a": "<b>x", "b": "people"}, "is no rater"),
        ({"view": "compare", "a": "judge:77", "b": "run:1"}, "no such person, judge or run"),
        ({"queue": "77"}, "there is no such queue"),
        ({"queue": "²"}, "a whole number"),
        ({"at": "21"}, "counted together"),
        ({"cell": "++-"}, "one behind the other"),
        ({"change": "broken"}, "it can be fixed"),
        ({"colour": "red"}, "this page knows"),
    ],
)
def test_what_the_address_asks_wrongly_is_named(open_at: Open, address: dict[str, str], named: str) -> None:
    said = words(open_at(**address)).replace("&#45;", "-").replace("&#58;", ":").replace("&#44;", ",")
    assert named in said and "<b>" not in said


def test_an_empty_store_says_what_to_do(open_at: Open, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    open_store(url, migrate=True).close()
    assert "No judge has read anything yet" in words(open_at(url))
    assert "No chunk was reviewed by two people yet" in words(open_at(url, view="agreement"))
    assert "Nothing to compare yet" in words(open_at(url, view="compare"))


def test_a_queue_is_made_of_the_list_by_owners_only(open_at: Open, rated: RatedWorld) -> None:
    store, _, raters = rated
    a, b = "person:ada", "person:bob"
    app = open_at(view="agreement", a=a, b=b, cell="+-")
    wanted = [c for c, x, y in raters.pairs(a, b) if (x, y) == ("+", "-")]
    app.text_input(key="judges-queue-name").set_value("ada against bob")
    app.button(key="judges-queue-make").click().run()
    words(app)
    queue = next(queue for queue in store.queues() if queue.name == "ada against bob")
    assert queue.n_items == len(wanted) > 0
    app = open_at(view="agreement", a=a, b=b, cell="+-")
    app.text_input(key="judges-queue-name").set_value(" ")
    app.button(key="judges-queue-make").click().run()
    assert "No queue was made" in words(app)
    store.set_role("eve", "reader", "ann")
    reader = open_at(actor="eve", view="agreement", a=a, b=b, cell="+-")
    words(reader)
    assert not [button for button in reader.button if button.key == "judges-queue-make"]


def test_the_list_says_what_a_blind_queue_leaves_out_of_it(open_at: Open, rated: RatedWorld) -> None:
    store, _, raters = rated
    a, b = "person:ada", "person:bob"
    chunk = next(c for c, x, y in raters.pairs(a, b) if (x, y) == ("+", "-"))
    before = open_at(actor="joe", view="agreement", a=a, b=b, cell="+-")
    assert "blind queue" not in words(before)
    queue = store.make_queue(NewQueue("joe's", chunk_ids=[chunk], blind=True), "ann")
    assert store.next_item(queue, "joe") is not None
    after = open_at(actor="joe", view="agreement", a=a, b=b, cell="+-")
    assert store.seen_by("joe").left_out(siblings=False).words in words(after)


def test_figures_in_words() -> None:
    assert figure_text(Figure(None)) == "–"
    assert figure_text(Figure(-0.256)) == "−0.26"
    assert figure_text(Figure(0.5, -0.25, 1.0), signed=True, share=True) == "+50.0% [−25.0%, +100.0%]"

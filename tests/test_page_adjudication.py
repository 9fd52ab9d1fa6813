"""The Adjudication page's script: who said what, an owner decides once and can take it back, and only an owner."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from db.queue_rows import NewQueue
from db.rows import ReviewDetails
from db.store import Store, open_store
from tests.page_support import Open, RatedWorld, keyed, pages, rated, words
from tests.store_world import add_problem, add_trajectory

__all__ = ["pages", "rated"]


@pytest.fixture
def open_at(rated: RatedWorld, pages: Open) -> Open:
    def run(url: str = rated[1], actor: str = "rosa", **address: object) -> AppTest:
        return pages("adjudication", url, address, actor)

    return run


def asked(app: AppTest, name: str) -> str:
    """What the address says now; AppTest gives a list until the page itself has set it."""
    value = app.query_params[name]
    return value[0] if isinstance(value, list) else value


def disputed_chunk(store: Store, **details: object) -> int:
    """A chunk of its own of which two people disagree."""
    _, chunks = add_trajectory(store, add_problem(store, f"d{store.counts()['problems']}"))
    store.add_review(chunks[1], f"p{chunks[1]}", "ada", 1, "all is <b>well</b>")
    store.add_review(chunks[1], f"m{chunks[1]}", "bob", -1, "off by one", details=ReviewDetails(**details))
    return chunks[1]


def test_who_said_what_and_why_and_no_label_until_it_is_decided(open_at: Open, rated: RatedWorld) -> None:
    store, _, _ = rated
    chunk = disputed_chunk(store, span_start=0, span_end=4, correction="step 2", flag="flag")
    app = open_at(chunk=chunk)
    said = words(app)
    assert "**ada** said" in said and "**bob** said" in said and "off by one" in said
    assert "<b>" not in said and ":small[error:] `step`" in said and "flagged" in said
    assert "no label" in said and "reviewers disagree" in said
    app.text_area[0].set_value("bob is right: see the carry").run()
    keyed(app, "verdict-error-").click().run()
    words(app)
    step = store.history(chunk)[-1]
    assert (step.review.kind, step.review.verdict, step.review.actor) == ("adjudication", -1, "rosa")
    assert step.review.comment == "bob is right: see the carry"
    assert asked(app, "chunk") != str(chunk)  # on to another
    said = words(open_at(chunk=chunk))
    assert "decided by adjudication" in said and "label −" in said and "**rosa** decided" in said
    assert f"You decided chunk {chunk}" in said
    app = open_at()  # after a reload, on another chunk: the last decision can still be taken back
    keyed(app, "adjudication-undo").click().run()
    assert asked(app, "chunk") == str(chunk)
    assert "reviewers disagree" in words(app)
    assert [row.review.kind for row in store.history(chunk)] == ["review", "review", "adjudication", "undo"]


def test_the_first_disagreement_opens_and_the_others_follow(open_at: Open, rated: RatedWorld) -> None:
    store, _, raters = rated
    assert {row.chunk_id for row in store.disputes()} >= set(raters.disputed)
    app = open_at(queue=raters.queue)
    trajectory, idx = raters.place_of[min(raters.disputed)]
    assert f"**Chunk {idx}** of 4 of trajectory {trajectory}" in words(app)
    assert f"**{len(raters.disputed)}** chunks on which people disagree" in words(app)
    keyed(app, "adjudication-next").click().run()
    assert asked(app, "chunk") == str(sorted(raters.disputed)[1])
    assert asked(app, "queue") == str(raters.queue)
    keyed(app, "adjudication-previous").click().run()
    assert asked(app, "chunk") == str(min(raters.disputed))


def test_a_decision_is_refused_where_somebody_spoke_meanwhile(open_at: Open, rated: RatedWorld) -> None:
    store, _, _ = rated
    chunk = disputed_chunk(store)
    app = open_at(chunk=chunk)
    app.text_area[0].set_value("half a reason").run()
    store.undo(f"u{chunk}", "bob", chunk)
    keyed(app, "verdict-sound-").click().run()
    said = words(app)
    assert "somebody spoke about this chunk since you opened it" in said
    assert not [row for row in store.history(chunk) if row.review.kind == "adjudication"]
    assert app.text_area[0].value == "half a reason"  # nothing typed is lost
    keyed(app, "verdict-sound-").click().run()  # looked at again
    assert [row.review.verdict for row in store.history(chunk) if row.review.kind == "adjudication"] == [1]


def test_a_decision_taken_back_elsewhere_is_not_taken_back_again(open_at: Open, rated: RatedWorld) -> None:
    store, _, _ = rated
    chunk = disputed_chunk(store)
    own = store.add_review(chunk, f"own{chunk}", "rosa", 1, "my own word")
    store.add_review(chunk, f"d{chunk}", "rosa", -1, supersedes=own.id, kind="adjudication")
    app = open_at(chunk=chunk)
    store.undo(f"tab{chunk}", "rosa", chunk)  # in another tab
    keyed(app, "adjudication-undo").click().run()
    assert "Nothing was taken back" in words(app)
    assert store.last_review("rosa") == own


def test_only_owners_decide(open_at: Open, rated: RatedWorld) -> None:
    store, _, _ = rated
    chunk = disputed_chunk(store)
    for role in ("annotator", "reader"):
        store.set_role(f"an {role}", role, "ann")
        app = open_at(actor=f"an {role}", chunk=chunk)
        assert "An owner decides" in words(app) and "off by one" in words(app)
        assert not [b for b in app.button if b.key and b.key.startswith("verdict-")]


def test_blind_reviewers_are_shown_nothing_and_decide_nothing(open_at: Open, rated: RatedWorld) -> None:
    store, _, _ = rated
    chunk = disputed_chunk(store)
    queue = store.make_queue(
        NewQueue(f"blind {chunk}", chunk_ids=[chunk], blind=True, reviews_per_item=3), "ann"
    )
    assert store.next_item(queue, "eve") is not None
    app = open_at(actor="eve", chunk=chunk)
    said = words(app)
    assert "still to review this solution blind" in said and "off by one" not in said
    assert not [b for b in app.button if b.key and b.key.startswith("verdict-")]
    assert "off by one" in words(open_at(chunk=chunk))


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ({"chunk": "99999"}, "There is no chunk 99999"),
        ({"chunk": "x"}, "a whole number was expected"),
        ({"queue": "77"}, "there is no such queue"),
        ({"colour": "red"}, "this page knows chunk and queue"),
    ],
)
def test_what_the_address_asks_wrongly_is_named(open_at: Open, address: dict[str, str], named: str) -> None:
    assert named in words(open_at(**address))


def test_where_nobody_disagrees_it_says_so(open_at: Open, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    open_store(url, migrate=True).close()
    assert "People disagree on no chunk" in words(open_at(url))

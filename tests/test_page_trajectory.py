"""The Trajectory page's script: what it shows, and that only the card on screen can store a review."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.views import trajectory_others
from app.views.trajectory_shown import page_start
from db.queue_rows import NewQueue
from db.rows import NewJudgment
from db.store import open_store
from tests.filled_store import filled_store
from tests.page_support import FilledWorld, Open, filled, keyed, pages, words

__all__ = ["filled", "pages"]


def adjudication(app: AppTest) -> list:  # type: ignore[type-arg]
    return [link for link in app.get("page_link") if link.proto.page == "adjudication"]


VERDICT_KEYS = {"1": "verdict-error-", "2": "verdict-neutral-", "3": "verdict-sound-"}


@pytest.fixture
def open_at(filled: FilledWorld, pages: Open) -> Open:
    """Opens the page at an address; ``url`` another store."""

    def run(url: str = filled[1], **address: object) -> AppTest:
        return pages("trajectory", url, address)

    return run


def verdict_button(app: AppTest, key: str):  # type: ignore[no-untyped-def]
    return keyed(app, VERDICT_KEYS[key])


def test_without_a_chunk_the_biggest_drop_is_selected(open_at: Open, filled: FilledWorld) -> None:
    app = open_at(traj=filled[2].sampled[2])
    said = words(app)
    assert "Chunk 2 " in said and "wrong" in said
    assert "She gives away 4" in said
    assert "rel-effective" in said and "% sure" in said
    assert "1 + / 3 −" in said  # the sharp judge's vote on the slip


def test_only_the_open_rationale_and_rollout_are_sent(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    chunk = store.chunk_page(ids.sampled[2], 0, 50)[1]
    assert chunk.prefix_id is not None
    rollout = store.rollouts_of(chunk.prefix_id)[0]
    closed = words(open_at(traj=ids.sampled[2], chunk=1))
    assert closed.count("carry out one operation") == 2  # one for each judge, of eight judgments
    assert f"**Rollout {rollout.id}**" not in closed
    assert f"**Rollout {rollout.id}**" in words(open_at(traj=ids.sampled[2], chunk=1, rollout=rollout.id))


def test_a_discriminative_judge_shows_its_score_in_place_of_a_rationale(
    open_at: Open, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    url, ids = filled_store(folder)
    store = open_store(url)
    run = store.create_run("judge", {}, "ann")
    judge = store.ensure_judge(
        name="scorer",
        kind="discriminative",
        checkpoint="run-3",
        checkpoint_hash="h",
        prompt_name="judge_turns_nano",
        prompt_hash="p",
        sampling={},
        sampling_digest="s",
    )
    chunk = store.chunk_page(ids.sampled[2], 0, 50)[1].id
    store.add_judgments(
        [NewJudgment(judge, chunk, 0, "negative", "", 1, "length", 0, score=0.125)], run_id=run
    )
    store.close()
    app = open_at(url=url, traj=ids.sampled[2], chunk=1)
    assert "scorer" in words(app)
    assert any("p(+) 0.12" in str(bar.proto.text) for bar in app.get("progress"))


def test_values_unknown_says_what_to_press(open_at: Open, filled: FilledWorld) -> None:
    said = words(open_at(traj=filled[2].chinese))
    assert "Values unknown" in said and "设原来有 $x$ 本" in said


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ({"traj": 424242}, "no trajectory 424242"),
        ({"traj": "1; drop"}, "1&#59; drop"),
        ({"traj": "9" * 30}, "9999"),
        ({"traj": 1, "chunk": 9}, "no chunk 9"),
        ({"traj": 1, "chunk": 0, "rollout": 31337}, "no rollout 31337"),
        ({}, "No trajectory chosen"),
    ],
)
def test_addresses_that_name_nothing(open_at: Open, address: dict[str, object], message: str) -> None:
    assert message in words(open_at(**address))


def test_a_review_is_stored_with_its_comment_and_the_card_asks_no_more(
    open_at: Open, filled: FilledWorld
) -> None:
    store, _, ids = filled
    chunk = store.chunk_page(ids.sampled[5], 0, 1)[0].id
    app = open_at(traj=ids.sampled[5], chunk=0)
    app.text_area[0].set_value("fine, for $5").run()
    assert store.get_draft("rosa", chunk) == "fine, for $5"
    verdict_button(app, "3").click().run()
    assert [(s.review.verdict, s.review.comment) for s in store.history(chunk)] == [(1, "fine, for $5")]
    assert "You said" in words(app) and store.get_draft("rosa", chunk) == ""
    assert not [b for b in app.button if b.key and b.key.startswith("verdict-")]


def test_a_press_for_another_card_is_refused_with_a_message(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    chunk = store.chunk_page(ids.sampled[6], 0, 1)[0].id
    app = open_at(traj=ids.sampled[6], chunk=0)
    button = verdict_button(app, "1")
    app.session_state["review_card"] = (chunk + 1, "another card")
    button.click().run()
    assert "another card" in words(app) and not store.history(chunk)


def test_a_review_changed_in_another_window_is_not_overwritten(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    chunk = store.chunk_page(ids.sampled[7], 0, 1)[0].id
    app = open_at(traj=ids.sampled[7], chunk=0)
    store.add_review(chunk, "elsewhere", "rosa", 1)
    app.text_area[0].set_value("typed before")
    verdict_button(app, "1").click().run()
    assert "Nothing was stored" in words(app)
    assert store.get_draft("rosa", chunk) == "typed before"
    assert [s.review.verdict for s in store.history(chunk)] == [1]


def test_reviewers_who_disagree_leave_no_label(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    chunk = store.chunk_page(ids.sampled[0], 0, 4)[3].id
    store.add_review(chunk, "a1", "ada", 1)
    store.add_review(chunk, "b1", "ben", -1, "not for me")
    said = words(open_at(traj=ids.sampled[0], chunk=3))
    assert "reviewers disagree" in said and "**ben**" in said and "no label" in said
    app = open_at(traj=ids.sampled[0], chunk=3)
    assert [one.proto.query_string for one in adjudication(app)] == [f"chunk={chunk}"]
    assert not adjudication(open_at(traj=ids.sampled[0], chunk=2))


def test_a_read_only_store_can_be_read_and_says_why_nothing_is_stored(
    open_at: Open, filled: FilledWorld
) -> None:
    store, url, ids = filled
    chunk = store.chunk_page(ids.sampled[8], 0, 1)[0].id
    read_only = url.replace("sqlite:///", "sqlite:///file:") + "?mode=ro&uri=true"
    app = open_at(url=read_only, traj=ids.sampled[8], chunk=0)
    verdict_button(app, "2").click().run()
    assert "Nothing was stored" in words(app) and "read&#45;only" in words(app)
    assert not store.history(chunk)


def test_fifty_chunks_a_page(open_at: Open, filled: FilledWorld) -> None:
    app = open_at(traj=filled[2].long, chunk=119)
    assert len([b for b in app.button if b.key and b.key.startswith("select-")]) == 20
    assert [page_start(i) for i in (None, 0, 49, 50, 119)] == [0, 0, 0, 50, 100]


def test_moved_parameters_say_which_labels_flip_and_stay_on_the_next_chunk(
    open_at: Open, filled: FilledWorld
) -> None:
    app = open_at(traj=filled[2].sampled[2], chunk=1, gamma="0")
    said = words(app)
    flips = [b for b in app.button if b.key and b.key.startswith("flip-")]
    assert f"**{len(flips)} of 4 label" in said and "γ = 0 in place of γ = 0.8" in said and flips
    assert "usually −" in said
    app.button(key="chunk-step-chunk-next").click().run()
    assert app.query_params["gamma"] == "0" and app.query_params["chunk"] == "2"
    app.button(key="rules-usual").click().run()
    assert "gamma" not in app.query_params and "in place of" not in words(app)


def test_raw_text_stands_in_the_address_and_stays_on_the_next_chunk(
    open_at: Open, filled: FilledWorld
) -> None:
    app = open_at(traj=filled[2].sampled[0], chunk=0)
    assert not app.toggle(key="trajectory-raw").value and not app.code
    app.toggle(key="trajectory-raw").set_value(True).run()
    assert app.query_params["raw"] == "1" and app.code
    next(b for b in app.button if b.label.startswith("Next chunk")).click().run()
    assert (app.query_params["chunk"], app.query_params["raw"]) == ("1", "1") and app.code
    app.toggle(key="trajectory-raw").set_value(False).run()
    assert "raw" not in app.query_params and not app.code


def test_a_slider_writes_the_address_and_the_usual_value_leaves_it(
    open_at: Open, filled: FilledWorld
) -> None:
    app = open_at(traj=filled[2].sampled[2], chunk=1, rule="rel-effective")
    assert [slider.value for slider in app.slider] == [0.4, 4]
    app.slider(key="rule-n").set_value(16).run()
    assert app.query_params["n"] == "16" and "α = 0.4, n = 16" in words(app)
    app.slider(key="rule-n").set_value(4).run()
    assert "n" not in app.query_params


def test_another_solution_is_shown_beside_this_one_from_where_they_part(
    open_at: Open, filled: FilledWorld
) -> None:
    ids = filled[2]
    said = words(open_at(traj=ids.sampled[0], beside=ids.sampled[2]))
    assert f"**{ids.sampled[0]} beside {ids.sampled[2]}**" in said and "The same up to here: 1 piece " in said
    assert said.count(":orange-background[") >= 3  # 8 and 7, 8 and 7, 24 and 21
    assert f"no solution {ids.hostile} of this problem" in words(
        open_at(traj=ids.sampled[0], beside=ids.hostile)
    )
    assert f"no solution {ids.sampled[0]} of this problem" in words(
        open_at(traj=ids.hostile, beside=ids.sampled[0])  # the only solution of its own problem
    )


def test_of_many_other_solutions_the_first_are_listed_and_any_can_stand_beside(
    open_at: Open, filled: FilledWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = filled[2].sampled
    monkeypatch.setattr(trajectory_others, "MOST", 5)
    said = words(open_at(traj=ids[0], beside=ids[-1]))
    assert "of the first 5; there are more" in said
    assert f"**{ids[0]} beside {ids[-1]}**" in said and "no solution" not in said
    assert f"no solution {ids[0]} of this problem" in words(open_at(traj=ids[0], beside=ids[0]))


def test_words_that_were_searched_for_are_marked(open_at: Open, filled: FilledWorld) -> None:
    assert ":blue-background[apples]" in words(open_at(traj=filled[2].sampled[0], chunk=0, find="APPLES"))


def test_the_sentence_that_names_the_error_is_marked_in_negative_rationales_only(
    open_at: Open, filled: FilledWorld
) -> None:
    said = words(open_at(traj=filled[2].sampled[2], chunk=2))
    assert "marked: names the error" in said
    assert re.search(r":orange-background\[[^]]*The arithmetic does not hold", said)
    assert "names the error" not in words(open_at(traj=filled[2].sampled[2], chunk=0))


def test_a_blind_queue_leaves_problem_chunks_and_review(open_at: Open, tmp_path: Path) -> None:
    folder = tmp_path / "blind"
    folder.mkdir()
    url, ids = filled_store(folder)
    store = open_store(url)
    chunks = [chunk.id for chunk in store.chunk_page(ids.sampled[2], 0, 2)]
    queue = store.make_queue(NewQueue("q", order="reading", chunk_ids=chunks, blind=True), "ann")
    assert store.next_item(queue, "rosa")
    store.add_review(chunks[1], "a1", "ada", 1)
    store.add_review(chunks[1], "b1", "ben", -1)
    store.close()
    app = open_at(url=url, traj=ids.sampled[2], chunk=1, rollout=1)
    said = words(app)
    assert not adjudication(app)
    assert "hides values, labels, verdicts" in said and "She picks 5 more" in said
    assert not re.search(
        "carry out one operation|label [+−]|effective|Reference answer|wrong|sure|beside", said
    )
    assert not app.get("plotly_chart") and not app.slider
    assert verdict_button(app, "2")

"""The Overview's script: counts and pictures from the store's totals, runs alive, and the empty store."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.views.overview_labels import POSITIONS, lost_rows
from app.views.overview_people import differing, placed
from app.widgets.overview_charts import Placed, right_by_position
from db.queues_store import NewQueue
from db.store import open_store
from tests.filled_store import filled_store
from tests.page_support import FilledWorld, Open, filled, pages, table_rows, words

__all__ = ["filled", "pages"]


@pytest.fixture
def open_at(filled: FilledWorld, pages: Open) -> Open:
    def run(url: str = filled[1], **address: str) -> AppTest:
        app = pages("overview", url, address)
        assert not app.exception, app.exception[0].message
        return app

    return run


def test_counts_are_those_of_the_store(open_at: Open, filled: FilledWorld) -> None:
    store = filled[0]
    app = open_at()
    shown = {metric.label.lower(): metric.value for metric in app.metric}
    assert {name: int(shown[name].replace(",", "")) for name in store.counts()} == store.counts()
    assert store.counts()["rollouts"] > 0
    assert {row["id"] for row in table_rows(app)["Data sets"]} == set(store.datasets())


def test_the_pictures_have_their_numbers_in_words(open_at: Open, filled: FilledWorld) -> None:
    store = filled[0]
    pictures = [chart.proto.alt for chart in open_at().get("plotly_chart")]
    balance = next(text for text in pictures if text.startswith("abs-q"))
    signs = {key: n for key, (n, _) in store.totals()["labels/rel_ratio"].items()}
    assert f"{signs['-']} -" in balance.split("rel-ratio")[1]
    assert any(text.startswith("Most Q is lost at chunk") for text in pictures)
    assert any(text.startswith("solutions: ") and "rollouts: " in text for text in pictures)


def test_runs_that_are_alive_are_listed_with_progress(open_at: Open, filled: FilledWorld) -> None:
    store = filled[0]
    assert "No run is alive" in words(open_at())
    run = store.start_run("rollout", {"kind": "rollout"}, "ada", pid=1)
    store.heartbeat(run, done=5, total=20, unit="rollouts", message="busy")
    [row] = table_rows(open_at())["Runs alive"]
    assert row["href"] == f"/runs?run={run}"
    assert row["cells"][3]["share"] == 0.25  # type: ignore[index]
    store.finish_run(run, "done", result={})
    assert "No run is alive" in words(open_at())


def test_an_empty_store_says_what_to_press(open_at: Open, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    open_store(url, migrate=True).close()
    app = open_at(url)
    assert "This store is empty" in words(app)
    assert "stepwiser sample load" in words(app)
    assert [link.label for link in app.get("page_link")] == ["Start a run"]


def test_thresholds_are_read_off_and_lead_to_where_they_are_chosen(
    open_at: Open, filled: FilledWorld
) -> None:
    app = open_at()
    store = filled[0]
    signs = {key: n for key, (n, _) in store.totals()["labels/rel_ratio"].items()}
    share = signs["-"] / (signs["-"] + signs["+"])
    assert f"γ = 0.8 (default): {share:.0%}" in words(app)
    assert any(link.proto.query_string == "tab=thresholds" for link in app.get("page_link"))


def test_a_judge_stands_against_a_rule_and_the_address_keeps_the_choice(
    open_at: Open, filled: FilledWorld
) -> None:
    store, _, ids = filled
    app = open_at()
    assert app.selectbox(key="overview-judge").options == [judge.name for judge in store.judges()]
    kind = ids.judges[1]
    app.selectbox(key="overview-judge").select(kind)
    app.run()
    app.selectbox(key="overview-rule").select("abs_q")
    app.run()
    assert dict(app.query_params) == {"judge": str(kind), "rule": "abs_q"}
    [picture] = [c.proto.alt for c in app.get("plotly_chart") if c.proto.alt.startswith("on label")]
    assert picture.startswith("on label +: chunk 0 100% of 3")  # it likes everything
    for bad in ({"judge": "999"}, {"judge": "x"}, {"rule": "vibes"}):
        assert "There is no" in open_at(**bad).error[0].value


def test_a_judge_of_thousands_of_digits_is_named(open_at: Open) -> None:
    assert "There is no judge with labelled chunks 1111" in words(open_at(judge="1" * 5000))


def test_only_what_the_judge_shares_counts_and_late_positions_stand_together() -> None:
    counts = {"0/++": 6, "0/+-": 2, "0/+0": 2, "0/--": 1, "16/++": 1, "31/+-": 1}
    first, late = placed(counts, "+")
    assert (first.position, first.share, first.n) == ("0", 0.6, 10)
    assert (late.position, late.share, late.n) == (f"{POSITIONS}+", 0.5, 2)
    [error] = placed(counts, "-")
    assert (error.share, error.high) == (1.0, 1.0) and error.low < 1


def test_people_differ_from_rules_apart_by_how_sure_labels_are() -> None:
    held = {"++/sure": (6, 0.0), "-+/sure": (2, 0.0), "+-/unsure": (1, 0.0), "--/unsure": (1, 0.0)}
    rows = differing({"people/rel_ratio": held})
    assert [(r.rule, r.sure, r.share, r.n) for r in rows] == [
        ("rel-ratio", True, 0.25, 8),
        ("rel-ratio", False, 0.5, 2),
    ]
    assert all(row.low < row.share < row.high for row in rows)


def test_review_says_what_people_said_and_what_waits(open_at: Open, tmp_path: Path) -> None:
    url, ids = filled_store(tmp_path)
    store = open_store(url)
    chunks = [chunk.id for chunk in store.stage_trajectories([ids.sampled[1]])[0].chunks]
    store.add_review(chunks[1], "o1", "ada", -1)
    store.add_review(chunks[1], "o2", "bob", 1)
    store.add_review(chunks[0], "o3", "bob", 1)
    store.make_queue(NewQueue("first *look*", order="reading", chunk_ids=chunks), "ada")
    app = open_at(url)
    assert "1 sound · 1 disputed" in words(app)
    assert "Decide where people disagree (1)" in [link.label for link in app.get("page_link")]
    assert any("0 of 4 items" in bar.proto.text for bar in app.get("progress"))
    assert "confidence 0.9 or more" in words(app)
    store.close()


def test_chunks_stand_in_their_order_where_a_label_is_missing_at_some() -> None:
    def at(*places: str) -> list[Placed]:
        return [Placed(place, 0.5, 0.4, 0.6, 3) for place in places]

    figure = right_by_position({"+": at("0", "3", "16+"), "−": at("1", "2", "10")})
    assert figure.layout.xaxis.categoryarray == ("0", "1", "2", "3", "10", "16+")


def test_late_positions_share_the_last_bar() -> None:
    totals = {
        "lost/position": {"0": (10, 1.0), str(POSITIONS): (2, 0.4), str(POSITIONS + 5): (2, 0.0)},
        "gained/position": {"0": (4, 0.5), str(POSITIONS + 5): (1, 0.2)},
    }
    assert lost_rows(totals) == [("0", 0.1, 0.05, 10), (f"{POSITIONS}+", 0.1, 0.05, 4)]
    assert lost_rows({}) == []

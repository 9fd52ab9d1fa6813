"""The Data page: what the builder shows is what it freezes, thresholds come from the sweep, files are looked at first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from streamlit.testing.v1 import AppTest

from app.settings import get_settings
from app.views import data_preview
from app.views.data_choice import key
from app.views.data_import import look, safe_name
from app.views.data_preview import waterfall_steps
from db.queue_rows import NewQueue
from db.store import Store, open_store
from engine.labels import REL_RATIO, label
from engine.pipeline.labelling import chunk_values
from engine.recipes import Selection
from tests.browser_support import LiveApp, open_page
from tests.labelled_store import store_with
from tests.page_support import Open, button, page_at, table_rows, words
from tests.store_world import add_judge, judgment
from training.parts import LabelFilter
from training.sets import BuildSetRecipe, freeze, preview, read_rows, sweep

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAIRS = [(14, 15), (2, 14), (16, 1), (15, 3), (12, 16), (1, 1), (9, 2), (16, 16)]
HOSTILE = "# Heading ![x](https://evil.example/x.png) <img src=https://evil.example/y.png>"
FILE = (
    json.dumps(
        {"id": "a", "problem": "What is 3 + 4?", "answer": "7", "solutions": ["3 + 4 = 7.\n\n\\boxed{7}"]}
    )
    + "\nnot json\n"
    + json.dumps({"id": "b", "problem": HOSTILE, "answer": "7"})
    + "\n"
    + json.dumps({"id": f"![r]({HOSTILE}", "problem": "no answer"})
    + "\n"
)


@dataclass(frozen=True)
class World:
    """A store of eight problems with a rolled-out solution of three chunks each, and its home."""

    store: Store
    home: Path
    chunks: list[int]
    open: Open


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    store, chunks = store_with(tmp_path, PAIRS)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
    monkeypatch.setenv("STEPWISER_DATABASE_URL", url)
    monkeypatch.setenv("STEPWISER_ACTOR", "rosa")
    get_settings.cache_clear()

    def run(**address: str) -> AppTest:
        return page_at("data", address).run()

    yield World(store, tmp_path, chunks, run)
    store.close()
    get_settings.cache_clear()


def outside_code(app: AppTest) -> str:
    """All markdown of the page but for code spans, in which nothing is markup."""
    return re.sub(r"`[^`]*`", "", "\n".join(str(m.value) for m in app.markdown))


def charts(app: AppTest) -> list[str]:
    return [chart.proto.alt for chart in app.get("plotly_chart")]


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def links(app: AppTest) -> dict[str, str]:
    return {link.label: link.proto.query_string for link in app.get("page_link")}


def small_recipe(**labels: Any) -> BuildSetRecipe:
    return BuildSetRecipe(select=Selection(), labels=LabelFilter(**labels))


def freeze_one(world: World, name: str = "first", form: str = "judge") -> None:
    rows = [{"chunk_id": i, "prompt": f"p{i} {HOSTILE}", "label": "+-"[i % 2]} for i in range(6)]
    freeze(
        world.home,
        name,
        form,  # type: ignore[arg-type]
        {"train": rows[:4], "held_out": rows[4:]},
        run="r1",
        run_id=1,
        recipe={"kind": "build-set", "labels": {"rule": "rel-ratio:gamma=0.7"}},
        counts={
            "chunks": 20,
            "unlabelled": 10,
            "unsure": 2,
            "too_long": 1,
            "positive": 4,
            "negative": 3,
            "train": 4,
        }
        | {"held_out": 2, "too_long_positive": 1, "too_long_negative": 0},
        classes={"train": {"positive": 2, "negative": 2}, "held_out": {"positive": 1, "negative": 1}},
        positions={"train": [{"position": 0, "positive": 2, "negative": 2}], "held_out": []},
        from_people=2,
        from_rule=4,
        problems={"train": 3, "held_out": 1, "near_duplicates": 0},
        datasets={HOSTILE: 6},
    )


# ---- builder


def test_the_preview_is_that_of_the_recipe_on_screen(world: World) -> None:
    app = world.open()
    shown = metrics(app)
    expected = preview(world.store, small_recipe())
    assert expected.counts["train"] > 0
    assert shown["To train on"] == str(expected.counts["train"])
    assert shown["Held out"] == str(expected.counts["held_out"])
    assert f"selected chunks {3 * len(PAIRS)}" in charts(app)[0]
    app.slider(key=key("gamma")).set_value(1.2)
    app.slider(key=key("min_confidence")).set_value(0.0)
    app.toggle(key=key("balance")).set_value(False)
    app.run()
    moved = preview(world.store, small_recipe(rule="rel-ratio:gamma=1.2", min_confidence=0.0, balance=False))
    assert metrics(app)["To train on"] == str(moved.counts["train"])
    assert moved.counts["train"] != expected.counts["train"]
    assert "keeps a sure success" in words(app)
    by_place = "; ".join(f"chunk {b.position}: {b.positive} +, {b.negative} −" for b in moved.labelled)
    assert by_place in charts(app)


def test_labels_come_from_a_judge_s_votes_or_from_rollouts_that_a_judge_repeats(world: World) -> None:
    judge = add_judge(world.store, "asked")
    inputs = world.store.label_inputs(world.store.trajectory_ids())
    signs = [label(REL_RATIO, *pair) for one in inputs for pair in chunk_values(one)]
    votes = [("negative", "positive")[(sign == "+") != (place % 7 == 6)] for place, sign in enumerate(signs)]
    rows = [judgment(judge, chunk, 0, vote) for chunk, vote in zip(world.chunks, votes, strict=True)]
    world.store.add_judgments(rows, run_id=world.store.runs(1)[0].id)
    app = world.open()
    app.selectbox(key=key("agree_with")).set_value("asked").run()
    agreed = preview(world.store, small_recipe(agree_with="asked"))
    assert agreed.counts["contradicted"] and metrics(app)["To train on"] == str(agreed.counts["train"])
    assert (
        links(app)["Look at the chunks on which both agree"]
        == f"show=chunks&judge_id={judge}&against=no&rule=rel-ratio"
    )
    app.segmented_control(key=key("agree_on")).set_value("first-error").run()
    consensus = preview(world.store, small_recipe(agree_with="asked", agree_on="first-error"))
    assert consensus.counts["contradicted"] != agreed.counts["contradicted"]
    assert metrics(app)["To train on"] == str(consensus.counts["train"])
    app.selectbox(key=key("voted_by")).set_value("asked").run()
    voted = preview(world.store, small_recipe(voted_by="asked"))
    assert voted.counts["train"] > agreed.counts["train"]
    assert metrics(app)["To train on"] == str(voted.counts["train"])
    assert "Its votes are the labels" in words(app)
    assert all(one.key != key("rule") for one in app.segmented_control)


def test_freezing_queues_what_is_on_screen_once(world: World) -> None:
    app = world.open()
    app.segmented_control(key=key("rule")).set_value("rel-effective").run()
    app.slider(key=key("alpha")).set_value(0.8)
    app.number_input(key=key("n")).set_value(8)
    app.toggle(key=key("reviews")).set_value(False)
    app.toggle(key=key("until_first_negative")).set_value(True)
    app.slider(key=key("held_out")).set_value(0.0)
    app.slider(key=key("min_confidence")).set_value(0.0)
    app.text_input(key=key("name")).set_value("mine")
    app.run()
    token = app.session_state["sets-token"]
    button(app, "Freeze this set").click().run()
    app.session_state["sets-token"] = token  # what a press that was already under way carries
    app.run()
    button(app, "Freeze this set").click().run()
    [run] = world.store.runs(kinds=["build-set"])
    assert (run.status, run.actor, run.recipe["name"]) == ("queued", "rosa", "mine")
    labels = run.recipe["labels"]
    assert labels["rule"] == "rel-effective:alpha=0.8,n=8"
    assert (labels["reviews"], labels["until_first_negative"], labels["held_out"]) == (False, True, 0.0)
    assert run.recipe["select"]["policy"] is None  # nano is not in this store
    assert f"Run {run.id}" in words(app)


def test_a_set_of_one_class_or_a_bad_name_is_refused_before_it_is_queued(world: World) -> None:
    app = world.open()
    app.slider(key=key("gamma")).set_value(0.0)
    app.slider(key=key("min_confidence")).set_value(1.0)
    app.run()
    assert "no chunk" in words(app)
    assert button(app, "Freeze this set").disabled
    app = world.open()
    app.text_input(key=key("name")).set_value("../evil")
    app.run()
    button(app, "Freeze this set").click().run()
    assert "'../evil' cannot name a training set" in words(app)
    assert world.store.runs(kinds=["build-set"]) == []


def test_a_large_selection_is_counted_in_part_until_all_is_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_preview, "COUNTED", 3)
    app = world.open()
    assert "counted over the first 3 of 8 selected solutions" in words(app)
    assert "selected chunks 9" in charts(app)[0]
    assert not button(app, "Freeze this set").disabled
    button(app, "Count all").click().run()
    assert "counted over all 8 selected solutions" in words(app)
    assert "selected chunks 24" in charts(app)[0]


def test_the_waterfall_loses_nothing() -> None:
    counts = {"chunks": 100, "unlabelled": 40, "unsure": 10, "contradicted": 5, "unvoted": 3, "too_long": 2}
    counts |= {"after_negative": 4, "positive": 26, "negative": 10, "train": 16, "held_out": 8}
    left = 0
    for step in waterfall_steps(counts):
        if step.loss:
            left -= step.count
        else:
            assert left in (0, step.count)  # each total is what the losses before it left
            left = step.count
    assert left == 16
    unbalanced = {"chunks": 20, "positive": 15, "negative": 5, "train": 14, "held_out": 2}
    assert [step.name for step in waterfall_steps(unbalanced) if step.loss] == [
        "kept to measure on",
        "in neither part",  # held-out chunks that are not measured on: nothing to do with a balance
    ]


def test_an_empty_store_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
    monkeypatch.setenv("STEPWISER_DATABASE_URL", f"sqlite:///{tmp_path / 'empty.db'}")
    get_settings.cache_clear()
    open_store(f"sqlite:///{tmp_path / 'empty.db'}", migrate=True).close()
    for tab in ("sets", "thresholds", "export"):
        text = words(page_at("data", {"tab": tab}).run())
        assert "Nothing to label yet" in text or "the store is empty" in text.lower(), tab
    get_settings.cache_clear()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"tab": "<b>"}, "this page has sets, thresholds, export, import"),
        ({"set": "absent"}, "there is no training set"),
        ({"set": "../../etc"}, "cannot name a training set"),
        ({"tab": "thresholds", "rule": "rel-ratio:beta=1"}, "there is no such rule"),
        ({"colour": "red"}, "which this page does not know"),
    ],
)
def test_a_bad_address_is_named(world: World, address: dict[str, str], said: str) -> None:
    assert said in words(world.open(**address))


# ---- frozen sets


def test_a_frozen_set_is_listed_and_explained(world: World) -> None:
    freeze_one(world)
    app = world.open()
    [row] = table_rows(app)["Training sets"]
    assert row["href"] == "/data?set=first"
    assert row["cells"][2:4] == ["4", "2"]
    assert row["cells"][5] == "2 of 6"
    app = world.open(set="first")
    text = words(app)
    assert metrics(app)["From people"] == "33%"
    assert (
        "selected chunks 20; no label −10; not sure enough −2; prompt too long −1; labelled 7"
        in charts(app)[0]
    )
    assert "2 labels from people, 4 from the rule" in charts(app)
    assert "chunk 0: 2 +, 2 −" in charts(app)
    assert "rel-ratio:gamma=0.7" in text
    assert "](https://evil.example" not in outside_code(app)
    assert links(app)["Train a judge on it"] == "new=train-judge&set=set%3D%22first%22"
    assert [b.label for b in app.get("download_button")] == ["Download"]


def test_a_changed_file_of_a_set_is_named_and_not_exported(world: World) -> None:
    freeze_one(world)
    path = world.home / "sets" / "first" / "train.jsonl"
    path.write_text(path.read_text().replace('"+"', '"-"'))
    app = world.open(set="first")
    assert "is not what was frozen" in words(app)
    assert not app.get("download_button")


# ---- thresholds


def test_thresholds_without_reviews_say_how_to_make_some(world: World) -> None:
    app = world.open(tab="thresholds")
    assert "No reviews yet, so no agreement with people" in words(app)
    assert links(app)["Review where judges and labels disagree"] == "sort=disagreement&reviewed=no"
    table = sweep(world.store, Selection())
    row = next(r for r in table.rows if r.rule == "rel-ratio:gamma=0.7")
    assert f"rel-ratio:gamma=0.7: {row.positive} +, {row.negative} −" in charts(app)[0]


def test_nothing_kept_outlives_joining_a_blind_queue_and_the_export_says_what_it_leaves_out(
    world: World,
) -> None:
    app = world.open(tab="thresholds")
    before = re.search(r"Measured over all 8 solutions: (\d+) chunks", words(app))
    assert before is not None
    queue = world.store.make_queue(NewQueue("q", chunk_ids=world.chunks[:1], blind=True), "ann")
    assert world.store.next_item(queue, "rosa") is not None  # it writes nothing that any total counts
    assert f"Measured over all 7 solutions: {int(before[1]) - 3} chunks" in words(app.run())
    app = world.open(tab="export")
    assert (
        "Left out of the file: 1 solution with 3 chunks, of problems that you are still to review blind"
        in app.info[0].value
    )


def test_agreement_with_reviews_is_shown_with_its_interval_and_taken_over(world: World) -> None:
    for place, chunk in enumerate(world.chunks[:12]):
        world.store.add_review(chunk, f"a{place}", "rosa", 1 if place % 3 else -1, supersedes=None)
    app = world.open(tab="thresholds", rule="rel-ratio:gamma=0.6")
    found = next(r for r in sweep(world.store, Selection()).rows if r.rule == "rel-ratio:gamma=0.6").agreement
    assert found is not None
    said = f"{found.share:.0%} [{found.low:.0%}, {found.high:.0%}], n = {found.n} chunks of {found.problems} problems"
    assert f"agreement with people {said}" in words(app)
    assert said in charts(app)[0]
    rows = {row["id"]: row for row in table_rows(app)["Rules"]}
    assert rows["rel-ratio:gamma=0.6"]["cells"][5] == said
    assert rows["rel-ratio:gamma=0.8"]["cells"][1][-1]["text"] == "default"
    button(app, "Take it into the builder").click().run()
    assert app.query_params["tab"] == "sets"
    assert app.slider(key=key("gamma")).value == 0.6


@pytest.mark.parametrize(
    "rule", ["rel-ratio:gamma=2", "rel-ratio:gamma=1/3", "rel-effective:alpha=3", "rel-effective:n=100"]
)
def test_a_rule_that_the_builder_cannot_hold_is_not_taken_into_it(world: World, rule: str) -> None:
    app = world.open(tab="thresholds", rule=rule)
    assert app.button(key="take-rule").disabled
    assert "The builder cannot hold it" in words(app)


# ---- import


def test_a_file_is_read_line_by_line_before_it_is_taken(world: World) -> None:
    app = world.open(tab="import")
    app.file_uploader[0].upload("mine.jsonl", FILE.encode(), "application/json").run()
    text = words(app)
    assert "**2 problems, 1 solutions, 0 reviews** can be taken; 2 lines" in text
    assert "line 2: broken JSON at column 1" in text
    assert "line 4" in text and "'answer' is missing" in text
    assert "](https://evil.example" not in outside_code(app)
    before = world.store.counts()["problems"]
    button(app, "Import 2 problems and 1 solutions").click().run()
    assert "2 new problems" in words(app).replace("&#45;", "-")
    assert world.store.counts()["problems"] == before + 2
    assert "mine" in world.store.datasets()


def test_names_of_files_cannot_lead_anywhere() -> None:
    assert safe_name("../../etc/passwd") == "passwd.jsonl"
    assert safe_name("..\\evil.csv") == "evil.csv"
    assert safe_name(".jsonl") == "jsonl.jsonl"
    assert safe_name("a b<c>.tsv") == "a_b_c_.tsv"


def test_a_file_that_is_no_text_is_reported_and_not_fatal() -> None:
    found = look(b"\xff\xfe\x00\x01\n\x00", "x.jsonl", None)
    assert found.problems == 0
    assert [row.line for row in found.rejected] == [1, 2]


@pytest.mark.browser
def test_in_a_browser_a_file_is_imported_and_a_set_is_exported(
    live_app: LiveApp, page: Page, tmp_path: Path
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    rows = [{"chunk_id": i, "prompt": f"p{i} {HOSTILE}", "label": "+-"[i % 2]} for i in range(4)]
    freeze(
        live_app.home, "for-export", "judge", {"train": rows, "held_out": []}, run="x", recipe={}, counts={}
    )
    open_page(page, f"{live_app.url}/data?tab=import")
    page.locator("input[type=file]").set_input_files(
        {"name": "browser.jsonl", "mimeType": "application/json", "buffer": FILE.encode()}
    )
    page.get_by_text("broken JSON at column 1").wait_for()
    page.get_by_role("button", name="Import 2 problems and 1 solutions").click()
    page.get_by_text("2 new problems").wait_for()
    assert "browser" in live_app.store.datasets()
    assert page.get_by_role("heading", name="Heading").count() == 0
    open_page(page, f"{live_app.url}/data?set=for-export")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == [
        row["label"] for row in read_rows(live_app.home, "for-export", "train")
    ]
    own = (live_app.url, f"blob:{live_app.url}", "data:")
    assert [url for url in asked if not url.startswith(own)] == []


@pytest.mark.browser
@pytest.mark.parametrize(
    "address", ["?tab=sets", "?tab=thresholds", "?tab=export", "?tab=import", "?set=narrow"]
)
def test_nothing_sticks_out_on_a_narrow_screen(live_app: LiveApp, page: Page, address: str) -> None:
    rows = [{"chunk_id": 1, "prompt": "p", "label": "+"}]
    freeze(live_app.home, "narrow", "judge", {"train": rows, "held_out": []}, run="n", recipe={}, counts={})
    page.set_viewport_size({"width": 390, "height": 800})
    open_page(page, f"{live_app.url}/data{address}")
    over = page.evaluate(
        "(() => { const main = document.querySelector('[data-testid=stMain]');"
        " return main.scrollWidth - main.clientWidth; })()"
    )
    assert over <= 0

"""The rollout form: what rules, places, chat and doors do is said beside them, with the forecast; the report's button."""

from __future__ import annotations

import pytest

from app.views.runs_explained import explained
from db.store import Store
from engine.recipes import RolloutRecipe, SampleRecipe, resolve
from tests.page_support import Open, words
from tests.runs_page import open_at, store, widgets

__all__ = ["open_at", "store"]


def said(**fields: object) -> str:
    return "\n".join(text for _, text in explained(resolve(RolloutRecipe, fields)))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "Every draw is made"),
        (
            {"rules": ["rel-ratio:gamma=0.7", "abs-q"]},
            "under rel-ratio (γ = 0.7) and abs-q can no longer change",
        ),
        ({"places": "first-error", "rules": ["abs-q"]}, "Stops at the first success"),
        ({"places": "first-error"}, "binary search for the first chunk"),
        ({"chat": True}, "goes on inside the assistant's turn"),
        (
            {"llm": {"checkpoint": "nano", "door": "server", "servers": ["http://a:1", "http://b:2"]}},
            "2 vLLM servers**: `http://a:1`, `http://b:2`",
        ),
    ],
)
def test_each_choice_is_told_in_words(fields: dict[str, object], told: str) -> None:
    assert told in said(**fields)


def test_the_form_asks_for_thrift_and_tells_what_it_will_do_and_spare(open_at: Open, store: Store) -> None:
    recipe = resolve(RolloutRecipe, {"rules": ["rel-ratio"]}).model_dump(mode="json")
    run = store.start_run("rollout", recipe, "test", pid=1)
    store.heartbeat(run, attempt=1, done=40, total=40, unit="rollouts", message="")
    result = {"spared_by_sharing": 0, "trajectories": 2, "spared_by_thrift": 60}
    store.finish_run(run, "done", result=result | {"tokens_per_s": 500.0, "rollouts_per_s": 10.0})
    app = open_at(new="rollout", set='rules=["rel-ratio:gamma=0.8"]')
    shown = words(app)
    labels = {one.label for one in (*app.multiselect, *app.selectbox, *app.toggle)}
    assert {
        "Thrift: stop once these labels are decided",
        "Where to roll out",
        "Ask through the chat template",
    } <= labels
    assert {"Served by", "Server addresses"} <= labels
    assert f"− thrift under rel-ratio:gamma=0.8: about 0 (60%, as run {run} measured)" in shown
    assert "a prefix is drawn only until its labels under rel-ratio (γ = 0.8)" in shown
    page = open_at(run=str(run))
    assert "Its report" in [one.proto.label for one in page.get("download_button")]


def test_solutions_are_rolled_out_as_they_were_sampled(open_at: Open, store: Store) -> None:
    sampled = {"prompt": "policy", "chat": True, "draws": {"temperature": 0.5, "max_tokens": 99}}
    recipe = resolve(SampleRecipe, {**sampled, "llm": {"checkpoint": "tiny", "max_model_len": 512}})
    run = store.start_run("sample", recipe.model_dump(mode="json"), "test", pid=1)
    store.heartbeat(run, attempt=1, done=2, total=2, unit="solutions", message="")
    store.finish_run(run, "done", result={"solutions": 2})
    app = open_at(run=str(run))
    next(b for b in app.button if b.label == "Roll them out").click().run()
    assert app.query_params["new"] == "rollout" and not app.exception
    held = {one.key.rpartition(":")[2]: one.value for one in widgets(app)}
    assert (held["select.from_run"], held["prompt"], held["chat"]) == (run, "policy", True)
    assert (held["llm.checkpoint"], held["llm.max_model_len"]) == ("tiny", 512)
    assert (held["draws.temperature"], held["draws.max_tokens"]) == (0.5, 99)

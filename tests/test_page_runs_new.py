"""The form that starts a run: every kind's fields, recipes to start from, YAML both ways, forecast, what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from app.kinds import KINDS, resolve_recipe
from app.machine import GIB, Machine
from app.settings import get_settings
from app.shipped import Shipped, shipped_for, shipped_recipes
from app.views.runs_fields import COMMON
from app.views.runs_form import Form, is_switch
from app.widgets.run_words import kind_groups
from db.store import Store
from engine.errors import RecipeError
from tests.page_support import Open, button
from tests.runs_page import field, open_at, queue, run_to, store, widgets, words
from training.sets.frozen import freeze

__all__ = ["open_at", "store"]


def test_the_button_opens_the_form(open_at: Open) -> None:
    app = button(open_at(), "Start a run").click().run()
    assert app.query_params["new"] == "sample"
    assert "Start a run" in words(app)


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_untouched_form_is_the_default_recipe(kind: str) -> None:
    model, collected = KINDS[kind].recipe, Form(KINDS[kind], {}).collect({})
    try:
        wanted = resolve_recipe(kind, {})
    except RecipeError as missing:  # a kind that cannot start before something is named
        with pytest.raises(RecipeError, match=re.escape(str(missing).splitlines()[-1])):
            resolve_recipe(kind, collected)
    else:
        assert resolve_recipe(kind, collected) == wanted
    assert set(collected) == set(model.model_fields) - {"kind"}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_field_of_a_recipe_has_a_widget(kind: str, open_at: Open) -> None:
    app = open_at(new=kind)
    words(app)
    form = Form(KINDS[kind], {})
    paths = {leaf.path for leaf in form.leaves() if leaf.part is None or field(app, kind, leaf.part).value}
    drawn = {str(w.key).rpartition(":")[2] for w in widgets(app) if str(w.key).startswith(f"new:{kind}:")}
    assert drawn >= paths
    assert {leaf.path for leaf in form.leaves()} >= set(COMMON.get(kind, ()))


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_field_explains_itself(kind: str) -> None:
    """The help of a widget is the field's description: a newcomer has nothing else."""
    silent = [
        leaf.path
        for leaf in Form(KINDS[kind], {}).leaves()
        if not leaf.info.description and not (is_switch(leaf) and leaf.type.__doc__)
    ]
    assert silent == []


def test_every_kind_stands_in_a_group() -> None:
    groups = kind_groups()
    assert sorted(name for kinds in groups.values() for name in kinds) == sorted(KINDS)
    assert "Other" not in groups


def test_a_group_opens_its_first_kind_and_a_kind_its_form(open_at: Open) -> None:
    app = open_at(new="sample")
    group, kind = app.button_group[0], app.button_group[1]
    assert kind.options[:2] == ["Sample solutions", "Roll out prefixes"]
    group.set_value("Judges").run()
    assert app.query_params["new"] == "judge"
    app.button_group[1].set_value("train-judge").run()
    assert app.query_params["new"] == "train-judge"
    assert "GRPO" in words(app)


def test_an_optional_part_is_switched_on_and_drawn_with_its_fields(open_at: Open, store: Store) -> None:
    app = open_at(new="train-judge", set="base=tiny")
    field(app, "train-judge", "lora").set_value(True).run()
    field(app, "train-judge", "lora.r").set_value(4).run()
    assert "LoRA: 80 parameters that learn" in words(app)  # 4 × (4 + 4) + 4 × (8 + 4): q_proj, up_proj
    button(app, "Start: train a judge").click().run()
    assert store.runs()[0].recipe["lora"]["r"] == 4
    assert store.runs()[0].recipe["warm_start"] is None


def test_a_shipped_recipe_fills_the_form(open_at: Open) -> None:
    names = list(shipped_for("train-judge"))
    assert any("nano" in name for name in names)
    app = open_at(new="train-judge", recipe=names[0])
    words(app)
    shipped = shipped_for("train-judge")[names[0]]
    steps = resolve_recipe("train-judge", shipped.data).model_dump()["grpo"]["steps"]
    assert field(app, "train-judge", "grpo.steps").value == steps
    picker = next(box for box in app.selectbox if box.label == "Start from")
    assert picker.value == f"recipe={names[0]}"


def test_the_picker_goes_to_recipes_and_earlier_runs(open_at: Open, store: Store) -> None:
    earlier = queue(store, "train-judge", base="tiny", grpo={"steps": 7})
    app = open_at(new="train-judge")
    picker = next(box for box in app.selectbox if box.label == "Start from")
    picker.set_value(f"like={earlier}").run()
    assert dict(app.query_params) == {"new": "train-judge", "like": str(earlier)}
    assert field(app, "train-judge", "grpo.steps").value == 7


@pytest.mark.parametrize("one", shipped_recipes(), ids=lambda one: one.name)
def test_every_shipped_recipe_is_one_of_its_kind(one: Shipped) -> None:
    assert resolve_recipe(one.kind, one.data).kind == one.kind
    assert one.about


def test_yaml_and_form_show_the_same_recipe(open_at: Open) -> None:
    app = open_at(new="sample", set="llm.checkpoint=tiny")
    field(app, "sample", "n").set_value(5).run()
    how = next(group for group in app.button_group if group.key == "new-how")
    how.set_value("YAML").run()
    area = next(one for one in app.text_area if one.label == "Recipe (YAML)")
    assert yaml.safe_load(area.value)["n"] == 5
    area.set_value(area.value.replace("n: 5", "n: 9")).run()
    next(group for group in app.button_group if group.key == "new-how").set_value("Form").run()
    assert field(app, "sample", "n").value == 9


def test_broken_yaml_stays_yaml(open_at: Open) -> None:
    app = open_at(new="sample", set="llm.checkpoint=tiny")
    next(group for group in app.button_group if group.key == "new-how").set_value("YAML").run()
    next(one for one in app.text_area if one.label == "Recipe (YAML)").set_value("n: [").run()
    next(group for group in app.button_group if group.key == "new-how").set_value("Form").run()
    assert next(group for group in app.button_group if group.key == "new-how").value == "YAML"
    assert "not YAML" in words(app)


def test_a_kind_that_needs_a_name_opens_empty_and_says_what_is_missing(open_at: Open) -> None:
    app = open_at(new="select-solutions")
    assert "name the judge whose judgments score the chunks" in words(app)
    assert button(app, "Start: select solutions").disabled


def test_only_sets_that_the_kind_can_read_are_offered(open_at: Open, tmp_path: Path) -> None:
    for form in ("judge", "turns"):
        freeze(tmp_path, f"the-{form}-set", form, {}, run="uid", recipe={}, counts={})
    get_settings.cache_clear()
    app = open_at(new="train-judge")
    assert [option.partition(" ")[0] for option in field(app, "train-judge", "set").options] == [
        "the-judge-set"
    ]


def test_a_loop_is_given_checkpoints_and_not_names_of_judges(open_at: Open) -> None:
    app = open_at(new="loop")
    words(app)
    for path in ("policy", "judge"):
        options = [option.partition(" ")[0] for option in field(app, "loop", path).options]
        assert {"nano", "tiny"} <= set(options)


def test_the_forecast_tells_time_and_memory(open_at: Open, store: Store) -> None:
    run_id = run_to(store, "done", base="tiny")
    store.add_metrics(run_id, [("step_time", step, 2.0) for step in range(1, 5)])
    app = open_at(new="train-judge", set="base=tiny")
    said = words(app)
    assert f"160 steps, about 5 min: run {run_id} did one of its steps in 2.0 s" in said
    assert "92 parameters of tiny, 16 bytes each" in said
    assert "Activations are not included" in said


def test_what_does_not_fit_is_warned_of(open_at: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Machine(2, 4 * GIB, 1000, ())
    monkeypatch.setattr("app.views.runs_forecast.machine", lambda: small)
    assert "It does not fit" in words(open_at(new="train-judge", set="base=tiny"))


def test_a_form_starts_exactly_what_it_shows(open_at: Open, store: Store) -> None:
    app = open_at(new="sample", set="llm.checkpoint=tiny")
    field(app, "sample", "n").set_value(3)
    field(app, "sample", "draws.temperature").set_value(0.5)
    app.run()
    assert "60 solutions" in words(app)  # an empty store: the generator's 20 new problems × 3
    button(app, "Start: sample solutions").click().run()
    [run] = store.runs()
    assert (run.kind, run.status, run.actor) == ("sample", "queued", "rosa")
    assert run.recipe["n"] == 3
    assert run.recipe["draws"]["temperature"] == 0.5
    assert run.recipe["generate"]["count"] == 20
    assert app.query_params["run"] == str(run.id)
    assert f"Run {run.id}" in words(app)


def test_training_starts_with_one_press_and_no_name(open_at: Open, store: Store) -> None:
    app = open_at(new="train-judge", set="base=tiny")
    assert "160 steps" in words(app)
    button(app, "Start: train a judge").click().run()
    assert [(run.kind, run.recipe["name"]) for run in store.runs()] == [("train-judge", None)]


def test_a_second_press_starts_no_second_run(open_at: Open, store: Store) -> None:
    app = open_at(new="sample", set="llm.checkpoint=tiny")
    token = app.session_state["new-token"]
    button(app, "Start: sample solutions").click().run()
    app.session_state["new-token"] = token  # what a press that was already under way carries
    app.query_params.clear()
    app.query_params["new"] = "sample"
    app.query_params["set"] = "llm.checkpoint=tiny"
    app.run()
    button(app, "Start: sample solutions").click().run()
    [run] = store.runs()
    assert app.query_params["run"] == str(run.id)


def test_a_checkpoint_that_is_not_there_is_named_before_the_start(open_at: Open, store: Store) -> None:
    app = open_at(new="judge", set="llm.checkpoint=absent")
    assert "there is no checkpoint 'absent'" in words(app)
    assert "Checkpoint (llm.checkpoint) cannot be used here" in words(app)
    assert button(app, "Start: judge chunks").disabled


def test_wrong_fields_of_pasted_yaml_are_named(open_at: Open, store: Store) -> None:
    app = open_at(new="sample", set="llm.checkpoint=tiny")
    app.session_state["new-how"] = "YAML"
    app.run()
    area = app.text_area[0]
    assert yaml.safe_load(area.value)["kind"] == "sample"
    area.set_value("kind: sample\nn: 0\nllm: {checkpoint: tiny}\nfoo: 1\n").run()
    said = words(app)
    assert "2 fields cannot be used" in said
    assert "(n): Input should be greater than or equal to 1" in said
    assert "foo: there is no such field" in said
    assert button(app, "Start: sample solutions").disabled
    for broken in ("kind: [", "name: 2026-13-01"):
        app.text_area[0].set_value(broken).run()
        assert "not YAML" in words(app)
    app.text_area[0].set_value("kind: judge\nk: 2\nllm: {checkpoint: tiny}\n").run()
    button(app, "Start: judge chunks").click().run()
    [run] = store.runs()
    assert (run.kind, run.recipe["k"]) == ("judge", 2)


def test_the_form_can_begin_from_an_earlier_run(open_at: Open, store: Store) -> None:
    earlier = queue(store, "rollout", m=5, select={"from_run": 7}, llm={"checkpoint": "tiny"})
    app = open_at(new="rollout", like=str(earlier))
    words(app)
    assert field(app, "rollout", "m").value == 5
    assert field(app, "rollout", "select.from_run").value == 7


def test_a_trained_judge_can_be_used_at_once(open_at: Open, store: Store) -> None:
    run_id = queue(store, "train-judge", base="tiny")
    store.claim_next(pid=1)
    store.finish_run(run_id, "done", result={"checkpoint": "tiny"})
    app = button(open_at(run=str(run_id)), "Judge with this checkpoint").click().run()
    words(app)
    assert field(app, "judge", "llm.checkpoint").value == "tiny"

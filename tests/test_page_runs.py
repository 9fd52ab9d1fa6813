"""The Runs page's script: the list, one run, the form made from a recipe, and what each refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from app.kinds import KINDS, resolve_recipe
from app.settings import get_settings
from app.views.runs_detail import log_tail
from app.views.runs_form import COMMON, Form
from db.store import Store, open_store
from db.tables import Run, utc_now

MAIN = str(Path(__file__).parent.parent / "app" / "main.py")
Open = Callable[..., AppTest]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store that the pages see, and a folder that passes for a checkpoint called tiny."""
    monkeypatch.setenv("STEPWISER_HOME", str(tmp_path))
    monkeypatch.setenv("STEPWISER_DATABASE_URL", f"sqlite:///{tmp_path / 'runs.db'}")
    monkeypatch.setenv("STEPWISER_ACTOR", "rosa")
    get_settings.cache_clear()
    tiny = tmp_path / "checkpoints" / "tiny"
    tiny.mkdir(parents=True)
    (tiny / "config.json").write_text("{}")
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}", migrate=True)
    yield store
    store.close()
    get_settings.cache_clear()


@pytest.fixture
def open_at(store: Store) -> Open:
    def run(**address: str) -> AppTest:
        app = AppTest.from_file(MAIN, default_timeout=60).run()
        app.switch_page("views/runs.py")
        for name, value in address.items():
            app.query_params[name] = value
        return app.run()

    return run


def words(app: AppTest) -> str:
    assert not app.exception, app.exception[0].message
    parts = (*app.title, *app.markdown, *app.caption, *app.error, *app.warning, *app.text, *app.code)
    return "\n".join(str(element.value) for element in parts)


def queue(store: Store, kind: str = "sample", **recipe: object) -> int:
    return store.create_run(kind, resolve_recipe(kind, dict(recipe)).model_dump(mode="json"), "ada")


def button(app: AppTest, label: str):  # type: ignore[no-untyped-def]
    return next(b for b in app.button if b.label == label)


def field(app: AppTest, kind: str, path: str):  # type: ignore[no-untyped-def]
    widgets = (*app.number_input, *app.selectbox, *app.text_input, *app.toggle)
    return next(
        w for w in widgets if w.key and w.key.startswith(f"new:{kind}:") and w.key.endswith(f":{path}")
    )


def test_an_empty_list_says_what_to_press(open_at: Open) -> None:
    said = words(open_at())
    assert "No runs yet" in said
    assert "no worker is running" in said
    assert "stepwiser worker" in said


def test_the_button_opens_the_form(open_at: Open) -> None:
    app = button(open_at(), "Start a run").click().run()
    assert app.query_params["new"] == "sample"
    assert "Start a run" in words(app)


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_untouched_form_is_the_default_recipe(kind: str) -> None:
    form = Form(KINDS[kind], {})
    assert resolve_recipe(kind, form.collect({})) == resolve_recipe(kind, {})


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_field_of_a_recipe_has_a_widget(kind: str, open_at: Open) -> None:
    app = open_at(new=kind)
    words(app)
    paths = {leaf.path for leaf in Form(KINDS[kind], {}).leaves() if leaf.part is None}
    widgets = (*app.number_input, *app.selectbox, *app.text_input, *app.toggle)
    drawn = {str(w.key).rpartition(":")[2] for w in widgets if str(w.key).startswith(f"new:{kind}:")}
    assert drawn >= paths
    assert paths >= {path for path in COMMON[kind] if "." not in path}


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
    assert "60 steps" in words(app)
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
    app.text_area[0].set_value("kind: [").run()
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


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"run": "99"}, "There is no run 99"),
        ({"run": "x<b>"}, "There is no run"),
        ({"new": "bake"}, "There is no kind of run bake"),
        ({"new": "sample", "set": "nn=3"}, "nn: Extra inputs are not permitted"),
        ({"new": "sample", "set": "junk"}, "write key=value"),
        ({"new": "sample", "like": "99"}, "There is no run 99"),
        ({"before": "x"}, "is not the number of a run"),
        ({"colour": "red"}, "colour=…, which this page does not know"),
    ],
)
def test_a_bad_address_is_named(open_at: Open, address: dict[str, str], said: str) -> None:
    assert said in words(open_at(**address))


def test_a_run_shows_progress_rate_curves_log_and_recipe(open_at: Open, store: Store, tmp_path: Path) -> None:
    run_id = queue(store, "train-judge", base="tiny", seed=11)
    store.claim_next(pid=1)
    store.set_run_facts(run_id, versions={"trl": "1.16"}, prompt_hashes={"judge_nano": "beef"})
    store.heartbeat(run_id, done=30, total=60, unit="steps", message="step 30")
    store.add_metrics(run_id, [("reward", step, 0.5) for step in range(1, 31)])
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / f"run-{run_id}.log").write_text("# not a heading\n\x1b[31mred\x1b[0m **plain**\n")
    with store.write() as db:
        db.execute(update(Run).values(started_at=utc_now() - timedelta(seconds=60)))
    app = open_at(run=str(run_id))
    said = words(app)
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics["Done (steps)"] == "30 / 60"
    assert metrics["Rate"].endswith("steps/min")
    assert metrics["Remaining"] not in ("–", "unknown")
    assert "# not a heading\nred **plain**" in said
    assert "not a heading" not in "".join(str(m.value) for m in app.markdown)
    assert "seed: 11" in said
    assert "judge_nano  beef" in said
    assert "trl  1.16" in said
    assert len(app.get("plotly_chart")) == 1
    assert [b.label for b in app.button if b.label in ("Stop", "Resume")] == ["Stop"]


def test_a_silent_run_is_called_stalled_and_can_be_resumed(open_at: Open, store: Store) -> None:
    run_id = queue(store)
    store.claim_next(pid=1)
    with store.write() as db:
        db.execute(update(Run).values(heartbeat_at=utc_now() - timedelta(seconds=25)))
    app = open_at(run=str(run_id))
    said = words(app)
    assert "stalled" in said
    assert "no sign of life for 25 s" in said or "no sign of life for 26 s" in said
    button(app, "Resume").click().run()
    assert store.run(run_id).status == "queued"
    assert "queued" in words(app)


def test_stop_takes_a_queued_run_off_and_resume_puts_it_back(open_at: Open, store: Store) -> None:
    run_id = queue(store)
    app = open_at(run=str(run_id))
    button(app, "Stop").click().run()
    assert store.run(run_id).status == "stopped"
    button(app, "Resume").click().run()
    assert store.run(run_id).status == "queued"


def test_a_failed_run_says_why_as_plain_text(open_at: Open, store: Store) -> None:
    run_id = queue(store)
    store.claim_next(pid=1)
    store.finish_run(run_id, "failed", error="# boom ![x](https://evil.example/x.png)")
    app = open_at(run=str(run_id))
    assert "# boom ![x]" in next(code.value for code in app.code)
    assert "boom" not in "".join(str(m.value) for m in (*app.markdown, *app.error))


def test_a_trained_judge_can_be_used_at_once(open_at: Open, store: Store) -> None:
    run_id = queue(store, "train-judge", base="tiny")
    store.claim_next(pid=1)
    store.finish_run(run_id, "done", result={"checkpoint": "tiny"})
    app = button(open_at(run=str(run_id)), "Judge with this checkpoint").click().run()
    words(app)
    assert field(app, "judge", "llm.checkpoint").value == "tiny"


def test_log_tail_keeps_whole_lines_of_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(10_000)) + b"10%\r100%\nbad \xff byte\n")
    lines = log_tail(path).split("\n")
    assert lines[-2:] == ["100%", "bad \ufffd byte"]
    assert lines[-3] == "line 9999"
    assert all(line.startswith("line ") for line in lines[:-2])
    assert len(lines) < 10_000
    assert log_tail(tmp_path / "absent.log") == ""


def test_a_store_that_cannot_be_read_for_a_while_is_named_in_place() -> None:
    def script() -> None:
        from app.widgets.live import live
        from db.errors import StoreLockedError

        def draw() -> None:
            raise StoreLockedError("somebody keeps it locked")

        live(draw, every=None)()

    app = AppTest.from_function(script).run()
    assert not app.exception
    assert "somebody keeps it locked" in app.error[0].value

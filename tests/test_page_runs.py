"""The Runs page's script: the list, one run with its parts, and addresses that lead nowhere."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from app.machine import GIB, Gpu, Machine
from app.views.runs_detail import log_tail
from db.rows import NewRunSample
from db.store import Store
from db.tables import Run, utc_now
from tests.page_support import Open, button
from tests.runs_page import cells, field, labels, open_at, queue, run_to, store, words

__all__ = ["open_at", "store"]


def test_an_empty_list_says_what_to_press(open_at: Open) -> None:
    said = words(open_at())
    assert "No runs yet" in said
    assert "no worker is running" in said
    assert "stepwiser worker" in said


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"run": "99"}, "There is no run 99"),
        ({"run": "x<b>"}, "There is no run"),
        ({"new": "bake"}, "There is no kind of run bake"),
        ({"new": "sample", "set": "nn=3"}, "nn: Extra inputs are not permitted"),
        ({"new": "sample", "set": "junk"}, "write key=value"),
        ({"new": "sample", "set": "n=["}, "--set 'n=[': the value is not YAML"),
        ({"new": "sample", "set": "dataset=2026-13-01"}, "the value is not YAML: month must be in 1..12"),
        ({"new": "sample", "set": f"dataset={'[' * 900}"}, "the value is not YAML: maximum recursion depth"),
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
    assert [label for label in labels(app) if label in ("Stop", "Stop and save", "Resume")] == [
        "Stop and save"
    ]


def test_a_silent_run_is_called_stalled_and_can_be_resumed(open_at: Open, store: Store) -> None:
    run_id = queue(store)
    store.claim_next(pid=1)
    with store.write() as db:
        db.execute(update(Run).values(heartbeat_at=utc_now() - timedelta(seconds=1000)))
    app = open_at(run=str(run_id))
    said = words(app)
    assert "stalled" in said
    assert re.search(r"no sign of life for \d\d min", said)
    button(app, "Resume").click().run()
    assert store.run(run_id).status == "queued"
    assert "queued" in words(app)
    running_for = next(
        metric.value for metric in open_at(run=str(run_id)).metric if metric.label == "Running for"
    )
    assert running_for == "–"  # it waits, whatever its last attempt took


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


def test_log_tail_keeps_whole_lines_of_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(10_000)) + b"10%\r100%\nbad \xff byte\n")
    lines = log_tail(path).split("\n")
    assert lines[-2:] == ["100%", "bad \ufffd byte"]
    assert lines[-3] == "line 9999"
    assert all(line.startswith("line ") for line in lines[:-2])
    assert len(lines) < 10_000
    assert log_tail(tmp_path / "absent.log") == ""
    path.write_bytes(b"loading\n" + b"".join(b"\r%d of 9999" % i for i in range(9_999)))
    assert log_tail(path) == "9998 of 9999"  # a progress bar that was never ended


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


def collapsing(store: Store, run_id: int) -> None:
    """Curves of a training in which ever more groups agree."""
    for name, first, last in (
        ("reward", 0.6, 0.7),
        ("frac_reward_zero_std", 0.4, 0.96),
        ("entropy", 0.2, 0.1),
    ):
        store.add_metrics(run_id, [(name, s, first + (last - first) * min(1, s / 20)) for s in range(1, 31)])


def test_a_collapse_is_named_with_its_remedy(open_at: Open, store: Store) -> None:
    run_id = run_to(store, "running", base="tiny")
    collapsing(store, run_id)
    app = open_at(run=str(run_id))
    [alarm] = app.warning
    said = words(app)
    assert "96% of groups agree: no gradient" in said
    assert "grpo.epsilon_high" in said and "grpo.learning_rate" in said
    assert alarm.icon == ":material/notifications_active:"


def test_a_sound_training_raises_no_alarm(open_at: Open, store: Store) -> None:
    run_id = run_to(store, "running", base="tiny")
    store.add_metrics(run_id, [("frac_reward_zero_std", s, 0.3) for s in range(1, 31)])
    app = open_at(run=str(run_id))
    words(app)
    assert not app.warning


def test_curves_have_plain_titles_and_say_what_good_looks_like(open_at: Open, store: Store) -> None:
    run_id = run_to(store, "done", base="tiny")
    collapsing(store, run_id)
    store.add_metrics(run_id, [("grad_norm", 1, 0.5), ("own/number", 1, 3.0), ("loss", 1, float("nan"))])
    app = open_at(run=str(run_id))
    said = words(app)
    for title in ("**Reward**", "**Groups that all agree**", "**Entropy**", "**Loss**"):
        assert title in said
    assert "Stays well below 90 %" in said
    assert "not a number" in said
    assert "Size of the gradient" not in said  # folded, and not even read before it is opened
    charts = [one.proto.alt for one in app.get("plotly_chart")]
    assert any(alt.startswith("Reward: reward 0.7 at step 30") for alt in charts)


def test_completions_are_read_by_step_as_plain_text(open_at: Open, store: Store) -> None:
    run_id = run_to(store, "done", base="tiny")
    hostile = "# boom ![x](https://evil.example/x.png) \\boxed{Negative}"
    store.add_run_samples(run_id, 20, [NewRunSample("problem A", "first words", "+", 1.0)])
    store.add_run_samples(run_id, 40, [NewRunSample("problem A", hostile, "-", 0.0)])
    app = open_at(run=str(run_id))
    assert app.select_slider[0].value == 40
    assert "reward 0" in words(app) and "compared with -" in words(app)
    assert "![x](" not in "".join(str(m.value) for m in app.markdown)
    app.select_slider[0].set_value(20).run()
    said = words(app)
    assert "first words" in said and "reward 1" in said and "boom" not in said


def test_a_training_says_that_stop_saves_and_resume_goes_on(open_at: Open, store: Store) -> None:
    run_id = run_to(store, "running", base="tiny")
    app = open_at(run=str(run_id))
    assert "saves a checkpoint" in button(app, "Stop and save").help
    button(app, "Stop and save").click().run()
    assert store.run(run_id).stop_requested
    store.finish_run(run_id, "stopped")
    assert "on the same curve" in button(open_at(run=str(run_id)), "Resume").help


def test_accuracies_before_and_after_stand_first_in_the_result(open_at: Open, store: Store) -> None:
    before = {"chunks": 200, "k": 8, "single": 0.64, "majority": 0.7, "none": 0.01, "split": 0.5}
    after = before | {"single": 0.72, "single_interval": [0.68, 0.76]}
    run_id = run_to(
        store,
        "done",
        base="tiny",
        result={
            "held_out_before": before,
            "held_out_after": after,
            "set": {"too_long": 3},
            "checkpoint": "tiny",
        },
    )
    app = open_at(run=str(run_id))
    metrics = {metric.label: (metric.value, metric.delta) for metric in app.metric}
    assert metrics["Held out, one judgment"] == ("64.0% → 72.0%", "+8.0 points")
    assert "200 chunks, 8 judgments each" in words(app)
    assert ["set: too long", "3"] in cells(app, "Result")
    assert any(
        "one judgment, after 72.0% (68.0% to 76.0%)" in one.proto.alt for one in app.get("plotly_chart")
    )
    assert "{" not in "".join(str(cell) for row in cells(app, "Result") for cell in row)


def test_measures_are_drawn_with_their_intervals(open_at: Open, store: Store) -> None:
    measure = {"accuracy": 0.7, "interval": [0.6, 0.8], "n": 50, "by_problem": {"1": [2, 1, 1]}}
    result = {
        "judge": "tiny",
        "measures": {"abs-q": measure | {"by_position": {"0": {"accuracy": 0.9, "n": 5}}}},
    }
    gain = {"gain": {"accuracy": -0.1, "interval": [-0.2, 0.1], "n": 9}}
    run_id = run_to(store, "done", "search", result=result | gain)
    app = open_at(run=str(run_id))
    words(app)
    [chart] = app.get("plotly_chart")
    assert chart.proto.alt == "abs-q 70.0% (60.0% to 80.0%), n = 50; abs-q, chunk, 0 90.0%, n = 5"
    rows = {row[0]: row[1] for row in cells(app, "Result")}
    assert rows == {"judge": "tiny", "gain: accuracy": "-0.1", "gain: interval": "-0.2, 0.1", "gain: n": "9"}


def test_parts_stand_beneath_their_parent_and_not_in_the_list(open_at: Open, store: Store) -> None:
    parent = run_to(store, "running", "sample")
    recipe = store.run(parent).recipe
    parts = [
        store.create_run("sample", recipe, "ada", parent_id=parent, name=f"round {i}") for i in range(15)
    ]
    for part in parts[:13]:
        store.claim_child(part, 1)
        store.finish_run(part, "done")
    app = open_at()
    assert [row[0] for row in cells(app, "Runs")] == [f"Run {parent}"]
    app = open_at(parts="1")
    assert len(cells(app, "Runs")) == 16
    app = open_at(run=str(parent))
    assert "15 runs, 2 queued, 13 done" in words(app)
    assert [row[:2] for row in cells(app, "Parts of this run")] == [
        [f"Run {part}", f"round {i}"] for i, part in enumerate(parts) if i >= 13
    ]
    assert "waiting for its turn" in str(cells(app, "Parts of this run"))
    app = open_at(run=str(parts[0]))
    assert "round 0" in words(app) and f"Part of run {parent}" in labels(app)
    assert "Resume" not in labels(app)


def test_what_came_of_a_set_leads_to_training_on_it(open_at: Open, store: Store) -> None:
    run_id = run_to(store, "done", "build-set", result={"set": "2024", "counts": {"train": 4}})
    app = button(open_at(run=str(run_id)), "Train a judge on it").click().run()
    assert app.query_params["new"] == "train-judge"
    assert field(app, "train-judge", "set").value == "2024"  # a name, although it looks like a number


@pytest.mark.parametrize(
    ("select", "leads_to"),
    [
        ({"policy": "nano"}, [("Its trajectories", "policy=nano")]),
        ({"trajectory_ids": [7]}, [("Its trajectory", "traj=7")]),
        ({"trajectory_ids": [7, 8]}, []),  # the list of solutions cannot be filtered by ids
    ],
)
def test_a_run_leads_to_the_solutions_that_it_worked_on_and_to_no_others(
    open_at: Open, store: Store, select: dict[str, object], leads_to: list[tuple[str, str]]
) -> None:
    run_id = run_to(store, "done", "judge", select=select, llm={"checkpoint": "tiny"})
    links = [link.proto for link in open_at(run=str(run_id)).get("page_link")]
    shown = [(link.label, link.query_string) for link in links if link.label.startswith("Its ")]
    assert shown == leads_to


def test_the_list_names_memory_and_gpus(open_at: Open, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu("NVIDIA H200", 140 * GIB, 40 * GIB)
    monkeypatch.setattr("app.views.runs_forecast.machine", lambda: Machine(8, 64 * GIB, 32 * GIB, (gpu,)))
    said = words(open_at())
    assert "8 CPU cores · 32.0 of 64.0 GiB memory free" in said
    assert "NVIDIA H200, 100 of 140 GiB free" in said

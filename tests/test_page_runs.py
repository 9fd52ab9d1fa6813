"""The Runs page's script: the list, one run with its parts, and addresses that lead nowhere."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from app.views.runs_detail import log_tail
from db.store import Store
from db.tables import Run, utc_now
from tests.runs_page import Open, button, open_at, queue, store, words

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

"""Training from buttons, in a browser and for real: a set is built, GRPO on nano moves its curve, stops and resumes,
and the new judge reads ten trajectories whose rationales can be read. One app; each test goes on where one ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser_support import open_page, settled
from tests.started_app import App, start_run, started_app, wait_for
from training.sets.frozen import read_manifest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.vllm, pytest.mark.timeout(900)]
STEPS, BATCH_STEPS = 60, 4
SMALL = {
    "grpo.prompts_per_batch": 4,
    "grpo.generations": 4,
    "grpo.steps_per_batch": BATCH_STEPS,
    "grpo.samples_every": 4,
    "saving.every": 8,
    "labels.held_out_k": 2,
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with started_app(tmp_path_factory.mktemp("training")) as app:
        yield app


def with_fields(url: str, fields: dict[str, object]) -> str:
    return url + "".join(f"&set={name}={value}" for name, value in fields.items())


def fill(page: Page, label: str, value: str) -> None:
    box = page.get_by_label(label, exact=True)
    box.fill(value)
    box.press("Enter")
    settled(page)


def points(run_id: int) -> str:
    """JavaScript: how many points the reward curve on the page shows."""
    chart = f"document.querySelector('.st-key-curve-{run_id}-reward .js-plotly-plot')"
    return f"({chart}?.data?.at(-1)?.x?.length ?? 0)"


def steps_of(app: App, run_id: int, name: str) -> list[int]:
    return [row.step for row in app.store.metrics(run_id, [name])[name]]


def test_a_training_set_is_built(app: App, page: Page) -> None:
    open_page(page, f"{app.url}/runs")
    page.get_by_role("button", name=re.compile("Start a run$")).click()
    page.get_by_role("button", name="Build a training set").or_(
        page.get_by_role("radio", name="Build a training set")
    ).click()
    page.wait_for_url(re.compile("new=build-set"))
    settled(page)
    open_page(page, with_fields(page.url, {"labels.held_out_chunks": 16}))
    fill(page, "Name", "browser-set")
    run = app.wait_for_run(start_run(page, app))
    manifest = read_manifest(app.home, "browser-set")
    assert run.result["set"] == "browser-set" and run.result["hash"] == manifest.hash
    assert manifest.files["train.jsonl"].rows > 50 and manifest.files["held_out.jsonl"].rows == 16
    page.get_by_role("button", name=re.compile("Train a judge on it$")).click(timeout=60_000)
    page.wait_for_url(re.compile("new=train-judge"))
    settled(page)
    assert page.get_by_label("Training set", exact=True).input_value().startswith("browser-set")
    app.facts["form"] = page.url


def test_grpo_moves_its_curve_and_stops_when_asked(app: App, page: Page) -> None:
    open_page(page, with_fields(app.facts["form"], SMALL))
    fill(page, "Name", "browser-judge")
    fill(page, "Optimizer steps", str(STEPS))
    page.get_by_text(f"{STEPS} steps", exact=False).first.wait_for()
    page.get_by_text("parameters of nano").first.wait_for()
    app.facts["train"] = run_id = start_run(page, app)
    page.wait_for_function(f"{points(run_id)} >= 1", timeout=600_000)
    page.wait_for_function(f"{points(run_id)} >= 2", timeout=300_000)  # it moves
    page.get_by_role("button", name=re.compile("Stop and save$")).click()
    wait_for(lambda: app.store.run(run_id).status == "stopped", 90)
    run = app.store.run(run_id)
    assert 0 < run.done < STEPS and run.done % BATCH_STEPS == 0
    assert steps_of(app, run_id, "loss") == list(range(1, run.done + 1))
    rewards = app.store.metrics(run_id, ["reward"])["reward"]  # one a generation batch
    assert len(rewards) >= 2 and all(0 <= row.value <= 1 for row in rewards if row.value is not None)
    assert list((app.home / "runs" / str(run_id)).rglob(f"checkpoint-{run.done}/trainer_state.json"))
    page.get_by_text("What it writes").wait_for()
    page.get_by_text(re.compile("reward [01]")).first.wait_for()
    app.facts["stopped_at"] = run.done


def test_it_resumes_on_the_same_curve(app: App, page: Page) -> None:
    run_id, before = app.facts["train"], app.facts["stopped_at"]
    first = app.store.metrics(run_id, ["reward"])["reward"]
    open_page(page, f"{app.url}/runs?run={run_id}")
    page.get_by_role("button", name=re.compile("Resume$")).click()
    wait_for(lambda: app.store.run(run_id).status != "stopped", 60)
    run = app.wait_for_run(run_id)
    assert (run.attempt, run.done) == (2, STEPS)
    rewards = app.store.metrics(run_id, ["reward"])["reward"]
    assert rewards[: len(first)] == first and rewards[len(first)].step > before
    assert steps_of(app, run_id, "loss") == list(range(1, STEPS + 1))
    page.wait_for_function(f"{points(run_id)} == {len(rewards)}", timeout=300_000)
    assert run.result["checkpoint"] == "browser-judge"
    assert list((app.home / "checkpoints" / "browser-judge").glob("*.safetensors"))
    page.get_by_text(re.compile("Held out, one judgment")).first.wait_for(timeout=60_000)


def test_the_new_judge_reads_ten_trajectories(app: App, page: Page) -> None:
    open_page(page, f"{app.url}/runs?run={app.facts['train']}")
    page.get_by_role("button", name=re.compile("Judge with this checkpoint$")).click()
    page.wait_for_url(re.compile("new=judge"))
    settled(page)
    open_page(page, with_fields(page.url, {"select.policy": "nano", "k": 2}))
    fill(page, "Trajectories at most", "10")
    run_id = start_run(page, app)
    run = app.wait_for_run(run_id)
    assert run.result["positive"] + run.result["negative"] > 0
    with app.store.read() as db:
        judged = db.exec_driver_sql(
            "SELECT DISTINCT c.trajectory_id FROM judgments j JOIN chunks c ON c.id = j.chunk_id WHERE j.run_id = ?",
            (run_id,),
        ).all()
    assert len(judged) == 10
    app.facts["judged"] = judged[0][0]


def test_its_rationales_are_read(app: App, page: Page) -> None:
    trajectory = app.store.stage_trajectories([app.facts["judged"]])[0]
    own = [one for one in app.store.judgments_of(trajectory.chunks[0].id) if "browser-judge" in one.judge]
    assert len(own) == 2
    said, _, _ = own[0].rationale.strip().partition("\\boxed")  # the box is drawn as mathematics
    assert said.startswith("Goal")
    open_page(page, f"{app.url}/trajectory?traj={trajectory.id}&chunk=0")
    page.get_by_text(re.compile("browser-judge")).first.wait_for()
    page.get_by_text(said.strip()).first.wait_for()

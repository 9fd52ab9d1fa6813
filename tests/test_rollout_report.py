"""A rollout run's report and forecast: numbers that are the store's own, nothing from outside, no text that acts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from app.report_pictures import Series, thinned
from app.rollout_forecast import rollout_forecast
from app.rollout_report import METRICS, mean_of, report_html, savings, write_report
from db.errors import NotFoundError
from db.queue_rows import NewQueue
from db.rows import RunRow
from db.store import Store
from engine.errors import RecipeError
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from engine.recipes import RolloutRecipe, resolve
from tests import little_world as little

EVIL = "</pre><script src=https://evil.example/x.js></script><img src=//evil.example/y onerror=z> ‮"
TAGS = (
    "html head meta title style body h1 h2 p b i div span table tr th td pre "
    "svg g path defs clippath rect use text tspan pattern"
)


class Page(HTMLParser):
    """Tags, attributes that could act or load, and text by tag."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.acting: list[tuple[str, str | None]] = []
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        loads = ("src", "href", "xlink:href", "action", "data", "srcset")
        self.acting += [
            (name, value)
            for name, value in attrs
            if name.startswith("on") or (name in loads and not (value or "").startswith("#"))
        ]

    def handle_data(self, data: str) -> None:
        self.said += data + " "


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = little.open_little(tmp_path)
    sample_with(little.context(store, little.sample_recipe(n=6), tmp_path), little.scripted_policy())
    yield store
    store.close()


SERVED = {
    f"http://127.0.0.1:{port}": {"draws": draws, "handed_on": 2, "outages": 1}
    for port, draws in ((8001, 30), (8002, 10))
}


def rolled(store: Store, home: Path, **fields: Any) -> int:
    """A finished rollout run."""
    ctx = little.context(store, little.rollout_recipe(**fields), home)
    result = roll_out(ctx, little.scripted_policy()) | {"served_by": SERVED}
    ctx.beat()
    store.finish_run(ctx.run_id, "done", result=result)
    return ctx.run_id


def metrics(store: Store, run_id: int, points: int = 1000) -> None:
    values = (100.0, 2.0, 0.6, 0.1, 0.1)
    rows = [
        (name, 5 * (i + 1), value) for i in range(points) for name, value in zip(METRICS, values, strict=True)
    ]
    store.add_metrics(run_id, rows)


def test_the_report_s_numbers_are_the_store_s(store: Store, tmp_path: Path) -> None:
    first = rolled(store, tmp_path, m=4)
    before = len(little.all_rollouts(store))
    run_id = rolled(store, tmp_path, m=16, rules=("abs-q",))
    metrics(store, run_id)
    outcomes = Counter(row[2] for row in little.all_rollouts(store)) - Counter(
        {name: n for name, (n, _) in store.run_outcomes(first).counts.items()}
    )
    assert {name: n for name, (n, _) in store.run_outcomes(run_id).counts.items()} == dict(outcomes)
    page = Page(report_html(store, run_id))
    drawn = outcomes.total()
    assert f"{drawn:,} rollouts drawn" in " ".join(page.said.split())
    assert f"{outcomes['correct'] / drawn:.1%} of what was graded is correct" in page.said
    found = savings(store.run(run_id), drawn)
    result = store.run(run_id).result
    assert found.there == before and found.spared["spared_by_thrift"] == result["spared_by_thrift"] > 0
    solutions = store.stage_trajectories(store.trajectory_ids())
    problems = len({solution.problem_id for solution in solutions})
    assert found.all == 16 * (sum(len(solution.chunks) for solution in solutions) + problems)
    assert "Tokens a second: 100.0 on the whole" in page.said
    assert "60.0% the language model; 10.0% the grader; 10.0% the store; 20.0% its own work" in page.said
    assert "http://127.0.0.1:8001 30 75.0% 2 1" in " ".join(page.said.split())
    assert "fit the context" not in page.said
    assert "labels that must be right: abs-q" in page.said and "seed: 0" in page.said


def test_nothing_in_a_report_acts_or_comes_from_outside_and_it_stays_small(
    store: Store, tmp_path: Path
) -> None:
    recipe = little.rollout_recipe(m=2).model_dump(mode="json") | {"rules": [EVIL], "note": EVIL}
    recipe["llm"] |= {"name": EVIL}
    run_id = store.start_run("rollout", recipe, EVIL, pid=1)
    store.set_run_facts(run_id, versions={EVIL: EVIL}, prompt_hashes={EVIL: EVIL})
    metrics(store, run_id)
    store.finish_run(run_id, "failed", result={"too_long": 3})
    size = write_report(store, run_id, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.tags <= set(TAGS.split()) and not page.acting, (page.tags, page.acting)
    assert "<script src=https://evil.example/x.js>" in page.said, "it is there, as text"
    assert "‮" not in page.said and "default-src 'none'" in (tmp_path / "report.html").read_text()
    assert size < 150_000
    assert "3 prefixes do not fit the context" in page.said
    assert (
        "Who drew" not in page.said
        and "drew nothing" in page.said
        and "no result that says what it spared" in page.said
    )


def test_reports_of_nothing_are_refused(store: Store) -> None:
    with pytest.raises(NotFoundError):
        report_html(store, 4242)
    with pytest.raises(RecipeError, match="is of kind sample"):
        report_html(store, store.runs(kinds=["sample"])[0].id)


def test_what_a_blind_queue_hides_is_not_counted(store: Store, tmp_path: Path) -> None:
    run_id = rolled(store, tmp_path, m=2)
    every = store.run_outcomes(run_id)
    chunk = store.chunk_page(store.trajectory_ids()[0], 0, 1)[0].id
    queue = store.make_queue(NewQueue("q", order="reading", chunk_ids=[chunk], blind=True), "test")
    assert store.next_item(queue, "rosa")
    hers = store.seen_by("rosa") if hasattr(store, "seen_by") else store
    hers.viewer = "rosa"
    found = hers.run_outcomes(run_id)
    assert found.partial and sum(n for n, _ in found.counts.values()) < sum(
        n for n, _ in every.counts.values()
    )
    said = Page(report_html(hers, run_id)).said
    assert "blind are left out" in said and "Not counted" in said and "Who drew" not in said
    hers.viewer = None


def test_points_are_thinned_to_means_over_equal_times() -> None:
    series = Series("s", [1, 2, 3, 10, *range(11, 1011)], [4.0, 4.0, 4.0, 8.0, *[2.0] * 1000])
    drawn = thinned(series, 10)
    assert len(drawn.seconds) == 10 and drawn.seconds[-1] == 1010
    assert mean_of(series) == pytest.approx((12 + 56 + 2000) / 1010)
    assert mean_of(drawn) == pytest.approx(mean_of(series), rel=0.05)


# ---- forecast


def done(store: Store, total: int, result: dict[str, Any], **fields: Any) -> RunRow:
    recipe = resolve(RolloutRecipe, fields).model_dump(mode="json")
    run_id = store.start_run("rollout", recipe, "test", pid=1)
    store.heartbeat(run_id, attempt=1, done=total, total=total, unit="rollouts", message="")
    store.finish_run(run_id, "done", result=result)
    return store.run(run_id)


RATES = {"tokens_per_s": 500.0, "rollouts_per_s": 10.0}


def test_without_a_run_nothing_is_promised(store: Store) -> None:
    found = rollout_forecast(resolve(RolloutRecipe, {"rules": ["abs-q"]}), 1000, [])
    assert (found.count, found.tokens, found.seconds) == (1000, None, None)
    assert any("thrift under abs-q: some, but no run has measured it yet" in line for line in found.lines)


def test_each_saving_is_that_of_the_last_run_that_measured_it(store: Store) -> None:
    full = done(store, 750, {"spared_by_sharing": 250, "trajectories": 9, **RATES})
    thrifty = {"spared_by_sharing": 0, "trajectories": 1, "spared_by_thrift": 60, **RATES}
    saved = done(store, 40, thrifty, rules=["rel-ratio:gamma=0.80"])
    other = done(store, 90, {**thrifty, "spared_by_thrift": 10}, rules=["abs-q"])
    newer = done(store, 5, {"spared_by_sharing": 0, "trajectories": 1, **RATES, "rollouts_per_s": 20.0})
    runs = [newer, other, saved, full]
    found = rollout_forecast(resolve(RolloutRecipe, {"rules": ["rel-ratio"]}), 1000, runs)
    assert found.count == 300  # three quarters, and 40 of 100 of those
    assert found.tokens == pytest.approx(300 * 500 / 20) and found.seconds == pytest.approx(300 / 20)
    said = "\n".join(found.lines)
    assert f"about 250 (25%, as run {full.id}" in said and f"about 450 (60%, as run {saved.id}" in said
    assert f"run {newer.id} drew 500 tokens/s" in said and "but" not in said


def test_a_search_and_another_policy_s_rate_are_named(store: Store) -> None:
    search = {
        "spared_by_sharing": 0,
        "trajectories": 2,
        "spared_by_search": 80,
        "never_rolled_out": 5,
        **RATES,
    }
    run = done(store, 20, search, places="first-error", llm={"checkpoint": "nano-teacher"})
    asked = resolve(RolloutRecipe, {"places": "first-error", "draws": {"max_tokens": 64}})
    found = rollout_forecast(asked, 100, [run])
    assert found.count == 100 and "the search need not look at: some, but no run has" in found.lines[2]
    assert found.lines[-1].endswith("but with nano-teacher and with 256 tokens at most")
    same = resolve(RolloutRecipe, {"places": "first-error", "llm": {"checkpoint": "nano-teacher"}})
    assert rollout_forecast(same, 100, [run]).count == 20

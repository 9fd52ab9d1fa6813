"""The Rewards page: its bars are the trainer's numbers, its sentences follow from them, and nothing of a model is markup."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from streamlit.testing.v1 import AppTest

from app.views.rewards_group import Group, ScoredChunk, Solution, Source, read_group
from app.views.rewards_words import sentences, sum_pays_for_chunks, telescopes, telling_solution
from app.widgets.reward_rows import mark, signed
from db.rows import NewChunk, NewJudgment, NewPrefix, NewProblem, NewTrajectory
from db.store import Store, open_store
from engine.pipeline.labelling import chunk_values
from tests.browser_support import LiveApp, open_page, settled
from tests.filled_store import Filled
from tests.page_support import FilledWorld, Open, filled, pages, table_rows, words
from training.process_rewards import Scored, dense_and_sparse

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["filled", "pages"]

HOSTILE = "# Heading ![x](https://evil.example/x.png) <img src=https://evil.example/y.png onerror=alert(1)>"


@pytest.fixture
def open_at(filled: FilledWorld, pages: Open) -> Open:
    def run(url: str = filled[1], **address: str) -> AppTest:
        return pages("rewards", url, address)

    return run


def drawn(app: AppTest) -> dict[str, list[dict[str, Any]]]:
    """The rows of each picture by the beginning of its label."""
    return {label.split(" ")[0]: rows for label, rows in table_rows(app).items()}


def numbers(row: dict[str, Any]) -> list[str]:
    return [bar["text"] for bar in row["bars"]]


def said(value: float) -> str:
    return f"{mark(value)} {signed(value)}"


def q_differences(store: Store, ids: Filled) -> list[Scored]:
    """The three rolled-out solutions as the trainer would score them by Q, worked out here from the counts."""
    group = []
    for trajectory, outcome in zip(ids.sampled[:3], (1.0, 1.0, 0.0), strict=True):
        [inputs] = store.label_inputs([trajectory])
        scores = [float(after.q - before.q) for before, after in chunk_values(inputs)]  # type: ignore[operator]
        group.append(Scored(tuple(scores), outcome))
    return group


def test_the_bars_are_the_trainers_numbers(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    right, recovered, wrong = ids.sampled[:3]
    pictures = drawn(open_at())
    expected = dense_and_sparse(q_differences(store, ids), aggregation="mean", outcome_weight=0.0)
    places = {right: 0, recovered: 1, wrong: 2}
    assert {row["id"] for row in pictures["Sparse"]} == {str(i) for i in places}
    for row in pictures["Sparse"]:
        assert numbers(row) == [said(expected.outcome_advantages[places[int(row["id"])]])] * 4
        assert [bar["below"] for bar in row["bars"]][:-1] == ["·"] * 3
    for row in pictures["Dense"]:
        assert numbers(row) == [said(v) for v in expected.step_advantages[places[int(row["id"])]].chunks]
    lines = pictures["Solution"]
    assert next(line["text"] for line in lines) == "Mia starts with 7 apples."
    place = places[wrong]
    assert [numbers(line) for line in lines] == [
        [said(expected.outcome_advantages[place]), said(expected.mixed_advantages[place]), said(step)]
        for step in expected.step_advantages[place].chunks
    ]


def test_a_whole_solution_gets_its_mixed_advantage(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    expected = dense_and_sparse(q_differences(store, ids), aggregation="min", outcome_weight=0.25)
    rows = drawn(open_at(level="solution", how="min", w="0.25"))["Dense"]
    by_id = {row["id"]: numbers(row) for row in rows}
    for place, trajectory in enumerate(ids.sampled[:3]):
        assert by_id[str(trajectory)] == [said(expected.mixed_advantages[place])] * 4


def test_a_judges_votes_are_scores_too(open_at: Open, filled: FilledWorld) -> None:
    _, _, ids = filled
    app = open_at(scores=str(ids.judges[0]), solution=str(ids.sampled[2]))
    rows = drawn(app)["Solution"]
    assert rows[2]["score"] == "0.25  (1 of 4 verdicts +)"
    assert [row["sign"] for row in rows] == ["+", "+", "-", "+"]
    assert app.selectbox(key="rewards-scores").value == str(ids.judges[0])


def test_the_sentences_name_what_is_shown(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    expected = dense_and_sparse(q_differences(store, ids), outcome_weight=0.0)
    text = words(open_at())
    wrong, recovered = ids.sampled[2], ids.sampled[1]
    first = re.search(rf"\*\*Solution {wrong} is wrong, and its (.*?) (was|were) good\*\*.*", text)
    assert first, text
    assert f"gives {signed(expected.outcome_advantages[2])} to every chunk" in first[0]
    assert f"**Solution {recovered} is right in the end, although chunk 1 was bad**" in text
    assert f"under a reward for each chunk it gets {signed(expected.step_advantages[1].chunks[1])}" in text


def test_a_control_changes_the_address_and_the_address_the_view(open_at: Open) -> None:
    app = open_at()
    app.slider(key="rewards-w").set_value(0.5).run()
    assert app.query_params["w"] == "0.5"
    app.segmented_control(key="rewards-level").set_value("solution").run()
    assert app.query_params["level"] == "solution"
    assert app.query_params["w"] == "0.5"
    app.segmented_control(key="rewards-how").set_value("sum").run()
    assert app.query_params["how"] == "sum"
    assert "their sum makes one bar" in words(app)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ({"problem": "x<b>"}, "a whole number was expected"),
        ({"problem": "999"}, "There is no problem with solutions 999"),
        ({"scores": "77"}, "There is no source of scores 77"),
        ({"solution": "999"}, "There is no scored solution of this problem 999"),
        ({"w": "2"}, "a number from 0 to 1 was expected"),
        ({"w": "nan"}, "a number from 0 to 1 was expected"),
        ({"level": "token"}, "it can be chunk, solution"),
        ({"how": "max"}, "it can be mean, min, sum"),
        ({"colour": "red"}, "this page knows problem"),
    ],
)
def test_a_bad_address_is_named(open_at: Open, address: dict[str, str], expected: str) -> None:
    assert expected in words(open_at(**address))


def test_of_many_scored_solutions_it_says_how_many_are_compared(
    open_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "3 of 16 solutions" in words(open_at()) and "are compared" not in words(open_at())
    monkeypatch.setattr("app.views.rewards_group.MOST", 2)
    said = words(open_at())
    assert "3 of 16 solutions that policy **nano** sampled for this problem" in said
    assert "have a score for every chunk; 2 of these are compared: 1 right, 1 wrong" in said


def test_a_problem_without_scores_says_what_to_run(open_at: Open, filled: FilledWorld) -> None:
    store, _, ids = filled
    view = store.trajectory_view(ids.human)
    assert view is not None
    app = open_at(problem=str(view.problem_id))
    assert "No scores for this problem&" in words(app) or "No scores for this problem" in words(app)
    assert "Roll out prefixes" in [link.label for link in app.get("page_link")]


def test_an_empty_store_says_what_to_run(open_at: Open, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    open_store(url, migrate=True).close()
    app = open_at(url)
    assert "No solutions to compare yet" in words(app)
    assert "Signs of reward hacking" in words(app)
    assert {"Start a run", "Train a policy"} <= {link.label for link in app.get("page_link")}


def test_the_guards_of_a_policy_run_are_drawn(open_at: Open, filled: FilledWorld) -> None:
    store, _, _ = filled
    run = store.start_run("train-policy", {"kind": "train-policy"}, "ada", pid=1)
    store.add_metrics(run, [("guards/chunks", 1, 4.0), ("guards/chunks", 2, 9.0), ("loss", 1, 0.1)])
    store.finish_run(run, "done", result={})
    app = open_at()
    charts = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert charts == ["Chunks a solution: 4.0 at step 1, 9.0 at step 2"]
    assert f"The guards of run {run}, the newest policy run with curves" in [
        link.label for link in app.get("page_link")
    ]


def group_of(*solutions: Solution, key: str = "1") -> Group:
    return Group("p", "1", "math", "nano", Source(key, "judge", len(solutions)), solutions, len(solutions))


def solution(number: int, outcome: str, *scores: float) -> Solution:
    chunks = tuple(
        ScoredChunk(i, f"c{i}", s, f"{s}", "+" if s > 0.5 else "-" if s < 0.5 else "")
        for i, s in enumerate(scores)
    )
    return Solution(number, outcome, None, chunks)


def compared(group: Group, **more: Any) -> list[str]:
    return sentences(group, dense_and_sparse([one.scored() for one in group.solutions], **more))


def test_sentences_do_not_claim_what_is_not_there() -> None:
    all_right = group_of(solution(1, "correct", 1.0, 0.75), solution(2, "correct", 1.0, 1.0))
    first, second, third = compared(all_right, outcome_weight=0.0)
    assert first.startswith("**No solution here is wrong**")
    assert second.startswith("**No right solution here has a bad chunk**")
    assert "All 2 solutions are right, so outcome only teaches nothing" in third
    all_wrong = group_of(solution(1, "wrong", 0.0, 0.25), solution(2, "truncated", 0.0, 0.0))
    first, second, third = compared(all_wrong, outcome_weight=0.0)
    assert first.startswith("**No wrong solution here begins well**")
    assert second.startswith("**No solution here is right**")
    assert "All 2 solutions are wrong" in third


def test_a_good_start_that_is_still_punished_is_not_called_spared() -> None:
    group = group_of(solution(1, "wrong", 0.75, 0.0), solution(2, "correct", 1.0, 1.0, 1.0))
    assert telling_solution(group).id == 1
    spared, punished = (compared(group, outcome_weight=w)[0] for w in (0.0, 1.0))
    assert "is no longer punished" in spared
    assert "does not spare" in punished or "punished less" in punished


def test_the_words_on_sums_follow_the_numbers() -> None:
    longer = group_of(solution(1, "correct", 1.0, 1.0), solution(2, "wrong", 1.0, 0.75, 0.75))
    assert "+2.50: the longer one is paid more" in sum_pays_for_chunks(longer)
    same = group_of(solution(1, "correct", 1.0, 1.0), solution(2, "wrong", 1.0, 0.75))
    assert sum_pays_for_chunks(same) == ""
    assert telescopes(longer) == ""
    by_q = group_of(solution(1, "correct", 0.25, 0.25), solution(2, "wrong", -0.5), key="rollouts")
    assert "+0.50 for solution 1, its outcome 1 less the chance" in telescopes(by_q)
    cut_off = group_of(solution(1, "truncated", 0.25, -0.5), solution(2, "wrong", -0.5), key="rollouts")
    assert telling_solution(cut_off).id == 1  # what was cut off ends with a chance, not with its outcome
    assert "−0.50 for solution 2, its outcome 0 less the chance" in telescopes(cut_off)
    assert telescopes(group_of(solution(1, "truncated", 0.25), key="rollouts")) == ""


def hostile_problem(store: Store) -> int:
    """A problem with a right and a wrong sampled solution, hostile chunks, and a judge with a hostile name."""
    run = store.start_run("judge", {"kind": "judge"}, "ada", pid=1)
    problem = store.add_problems(
        [NewProblem("nano", f"evil-{run}", HOSTILE, "7")], run_id=run, actor="ada"
    ).ids["nano", f"evil-{run}"]
    prefix = store.ensure_prefixes(
        [NewPrefix(f"evil-{run}", problem, "nano", "beef", {}, (1,), base_seed=1)]
    )[f"evil-{run}"]
    rows = [
        NewTrajectory(
            problem,
            "nano",
            f"{HOSTILE}{draw}second",
            "",
            (NewChunk("", f"{HOSTILE}{draw}"), NewChunk("", "second")),
            "tags",
            outcome,
            "7",
            checkpoint_hash="beef",
            prefix_id=prefix,
            draw=draw,
            seed=draw,
            token_ids=(1, 2),
            finish_reason="stop",
        )
        for draw, outcome in enumerate(("wrong", "correct"))
    ]
    ids = [row.id for row in store.add_trajectories(rows, run_id=run, actor="ada")]
    judge = store.ensure_judge(
        name=f"![j](https://evil.example/j.png) {run}",
        kind="generative",
        checkpoint="nano",
        checkpoint_hash=f"evil-{run}",
        prompt_name="judge_nano",
        prompt_hash="p",
        sampling={},
        sampling_digest="s",
        run_id=run,
    )
    votes = [
        NewJudgment(judge, chunk.id, draw, "positive" if chunk.idx == 0 else "negative", "", 1, "stop", draw)
        for whole in store.stage_trajectories(ids)
        for chunk in whole.chunks
        for draw in range(2)
    ]
    store.add_judgments(votes, run_id=run)
    store.finish_run(run, "done", result={})
    return problem


def test_judged_solutions_need_no_rollouts(tmp_path: Path, open_at: Open) -> None:
    url = f"sqlite:///{tmp_path / 'judged.db'}"
    store = open_store(url, migrate=True)
    problem = hostile_problem(store)
    group, sources = read_group(store, problem, None)
    assert group is not None and [source.key for source in sources] == ["1"]
    app = open_at(url)
    assert app.selectbox(key="rewards-problem").value == problem
    assert [row["text"] for row in drawn(app)["Solution"]][1] == "second"
    text = words(app)
    assert "](https://evil.example" not in text and "<img" not in text
    store.close()


@pytest.mark.browser
def test_in_a_browser_solutions_are_chosen_and_hostile_text_stays_text(live_app: LiveApp, page: Page) -> None:
    problem = hostile_problem(live_app.store)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_page(page, f"{live_app.url}/rewards?problem={problem}")
    wrong, right = (row.id for row in live_app.store.siblings(problem))
    sparse = page.get_by_role("table", name="Sparse reward: advantage of each chunk")
    assert sparse.get_by_text("▼ −0.71").count() == 2  # two solutions, one right: ∓1/√2
    lines = page.get_by_role("table", name=f"Solution {wrong} chunk by chunk")
    lines.get_by_text(HOSTILE + "0").wait_for()
    sparse.get_by_role("link", name=f"#{right}").click()
    page.get_by_role("table", name=f"Solution {right} chunk by chunk").wait_for()
    settled(page)
    assert f"solution={right}" in page.url
    page.go_back()
    lines.wait_for()
    own = (live_app.url, f"blob:{live_app.url}", "data:")
    assert [url for url in asked if not url.startswith(own)] == []
    for width in (390, 1024):
        page.set_viewport_size({"width": width, "height": 800})
        settled(page)
        over = page.evaluate(
            "(() => { const main = document.querySelector('[data-testid=stMain]');"
            " return main.scrollWidth - main.clientWidth; })()"
        )
        assert over <= 0

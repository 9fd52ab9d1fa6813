"""Evaluation: figures worked out by hand, and the two kinds of run over a real store and scripted doors."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from db.rows import NewProblem
from engine.errors import InputError, RecipeError, RunError
from engine.evaluate import intervals
from engine.evaluate.intervals import difference, interval, measure, share
from engine.evaluate.policy import Form, Solved, form_of, policy_figures
from engine.evaluate.recipes import EvaluateJudgeRecipe, EvaluatePolicyRecipe
from engine.evaluate.stepwise import Judged, stepwise_accuracy
from engine.judge import load_prompt
from engine.judges import GenerativeJudge, JudgeChoice, Reading, Step, ToRead, read_solutions
from engine.llm.base import Completion, Request, Sampling
from engine.llm.scripted import ScriptedLLM, newest_first, shuffled
from engine.pipeline.evaluating import check_not_trained_on, judge_with, policy_with
from engine.pipeline.kept import Kept
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from engine.recipes import Draws, Selection
from tests import little_world as little

P, N = "positive", "negative"
RULES = ("rel-ratio:gamma=0.8", "abs-q")


def test_a_share_weighs_problems_by_what_they_hold():
    counts = {1: (3.0, 4.0), 2: (0.0, 1.0)}
    assert share(counts) == 0.6 and share({}) is None
    assert measure(counts, resamples=100, seed=0)["n"] == 5


def test_intervals_resample_problems_and_repeat_with_the_seed():
    same = {i: (1.0, 2.0) for i in range(10)}
    assert interval(same, resamples=200, seed=0) == [0.5, 0.5]
    mixed = {i: (float(i % 2), 1.0) for i in range(40)}
    low, high = interval(mixed, resamples=2000, seed=3)
    # binomial with 40 draws at one half: two standard deviations are 0.158
    assert 0.3 < low < 0.4 and 0.6 < high < 0.7
    assert interval(mixed, resamples=2000, seed=3) == [low, high]
    assert interval({1: (1.0, 2.0)}, resamples=100, seed=0) is None


def test_many_draws_of_many_problems_take_little_memory_and_are_the_same(monkeypatch: pytest.MonkeyPatch):
    counts = {problem: (problem % 3, 2.0 + problem % 5) for problem in range(2000)}
    tracemalloc.start()
    found = interval(counts, resamples=4000, seed=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 << 20  # all draws at once: 128 million bytes
    monkeypatch.setattr(intervals, "BLOCK", 10**9)
    assert interval(counts, resamples=4000, seed=3) == found


def test_a_difference_is_paired_by_problem():
    first = {i: (float(i % 2) + 1, 2.0) for i in range(20)}
    second = {i: (float(i % 2), 2.0) for i in range(20)} | {99: (2.0, 2.0)}
    gain = difference(first, second, resamples=500, seed=0)
    assert gain["accuracy"] == 0.5 and gain["n"] == 20
    assert gain["interval"] == pytest.approx([0.5, 0.5])  # hard problems are hard for both


def test_stepwise_accuracy_by_hand():
    chunks = [
        Judged(1, 0, "+", (P, P, N, P)),  # 3/4 single; votes of 2: P, tie -> 1/2; vote of 4: right
        Judged(1, 1, "-", (N, P, None, N)),  # 2/4; votes of 2: tie, N -> 1/2; of 4: right
        Judged(2, 0, "-", (P, P, None, None)),  # 0; 0; wrong
    ]
    found = stepwise_accuracy(chunks, resamples=100, seed=0)
    assert found["accuracy"] == pytest.approx((0.75 + 0.5 + 0) / 3) and found["n"] == 3
    votes = {k: of["accuracy"] for k, of in found["majority"].items()}
    assert votes == pytest.approx({"1": 1.25 / 3, "2": 1 / 3, "4": 2 / 3})
    assert found["none"] == pytest.approx(3 / 12) and found["split"] == 1.0
    assert found["by_label"]["+"]["accuracy"] == 0.75 and found["by_label"]["-"]["n"] == 2
    assert found["by_position"]["0"]["accuracy"] == 0.375 and found["by_position"]["1"]["accuracy"] == 0.5
    assert found["by_problem"] == {"1": [2.0, 1.25, 2.0], "2": [1.0, 0.0, 0.0]}
    assert stepwise_accuracy([], resamples=100, seed=0) == {}


def test_votes_leave_a_rest_that_is_no_whole_vote_out():
    assert Judged(1, 0, "+", (P, P, N)).right(2) == 1.0
    assert stepwise_accuracy([Judged(1, 0, "+", (P, P, N))], resamples=100, seed=0)["majority"].keys() == {
        "1",
        "2",
    }


def test_the_form_of_a_solution():
    tagged = "<chunk>a</chunk>\n\n<chunk>b\n\nc</chunk>\n\\boxed{3}"
    assert form_of(tagged) == Form(chunks=2, blank_line=3, well_formed=True)
    assert form_of("a\n\nb") == Form(chunks=None, blank_line=2, well_formed=False)
    assert form_of("<chunk>a</chunk>") == Form(chunks=1, blank_line=1, well_formed=False)
    assert form_of("<chunk>a\\boxed{1}").well_formed is False


def test_policy_figures_by_hand():
    form, untagged = Form(2, 4, True), Form(None, 3, False)
    solved = [
        Solved(1, "correct", 10, form),
        Solved(1, "wrong", 20, untagged),
        Solved(2, "error", 30, Form(4, 6, True)),
    ]
    found = policy_figures(solved, resamples=100, seed=0)
    assert found["accuracy"] == pytest.approx(1 / 3) and found["n"] == 3
    assert found["chunks"] == 3 and found["blank_line_chunks"] == 5  # of the two with usable tags
    assert found["well_formed"] == pytest.approx(2 / 3) and found["mean_tokens"] == 20
    assert found["by_problem"] == {"1": [2.0, 1.0], "2": [1.0, 0.0]}
    assert found["outcomes"] == {"correct": 1, "wrong": 1, "error": 1}


def test_kept_lines_survive_a_cut_and_refuse_other_files(tmp_path: Path):
    kept = Kept(tmp_path / "k.jsonl")
    kept.add([{"a": 1}, {"a": 2}])
    with kept.path.open("a") as file:
        file.write('{"a": 3')
    again = Kept(kept.path)
    again.add([{"a": "鸡"}])
    assert Kept(kept.path).rows == again.rows == [{"a": 1}, {"a": 2}, {"a": "鸡"}]
    kept.path.write_text("not json\n")
    with pytest.raises(RunError, match="holds something else"):
        Kept(kept.path)


# ---- judges


def generative(**options: Any) -> GenerativeJudge:
    llm = ScriptedLLM(little.judge, name="little-judge", **options)
    return GenerativeJudge(llm, load_prompt("judge_nano"), Draws(max_tokens=100))


def test_readings_do_not_depend_on_the_order_in_which_answers_come():
    solutions = [ToRead(str(i), "1+2+3", ("1+2=3", f"3+3={6 + i % 2}")) for i in range(6)]

    def readings(judge: GenerativeJudge) -> dict[tuple[str, int], Reading]:
        return {(s.mark, i): r for s, i, r in read_solutions(judge, solutions, k=4, seed=1)}

    found = readings(generative())
    assert len(found) == 12 and found == readings(generative(order=newest_first, in_flight=3))
    assert found == readings(generative(order=shuffled(2)))
    # siblings with the same chunk under the same history get draws of their own
    assert len({found[str(i), 0].verdicts for i in range(6)}) > 1
    for reading in found.values():
        assert reading.score == reading.verdicts.count("positive") / 4


def test_a_chunk_that_does_not_fit_the_context_has_no_score():
    judge = generative(context=60)
    solution = ToRead("a", "1+2", ("1+2=3", "x" * 99))
    found = {i: reading for _, i, reading in read_solutions(judge, [solution], k=2, seed=0)}
    short, long = found[0], found[1]
    assert short.error is None and short.score is not None
    assert long.score is None and long.verdicts == (None, None) and "60" in (long.error or "")


class Sequential:
    """A judge that remembers: says negative where it said positive before, and notes what it was shown."""

    sequential = True

    def __init__(self) -> None:
        self.llm = ScriptedLLM(lambda prompt, seed: prompt, in_flight=4, order=newest_first)
        self.steps: list[Step] = []

    def ask(self, request_id: str, step: Step, k: int, seed: int) -> Request:
        self.steps.append(step)
        ids = self.llm.encode("n" if step.earlier[-1:] == ("positive",) else "p")
        return Request(request_id, tuple(ids), 1, 0, Sampling(max_tokens=5))

    def read(self, completions: list[Completion]) -> Reading:
        said = "negative" if completions[0].text == "n" else "positive"
        return Reading((said,), 0.25 if said == "negative" else 0.75, 1)

    def facts(self) -> dict[str, str]:
        return {}


def test_a_sequential_judge_sees_its_own_earlier_verdicts():
    judge = Sequential()
    solutions = [ToRead(str(i), "p", ("a", "b", "c")) for i in range(5)]
    found = {(s.mark, i): r.verdict for s, i, r in read_solutions(judge, solutions, k=8, seed=0)}
    assert found == {(str(i), j): P if j % 2 == 0 else N for i in range(5) for j in range(3)}
    assert {step.earlier for step in judge.steps if step.chunk == "c"} == {(P, N)}
    only = [ToRead("x", "p", ("a", "b", "c"), frozenset({1}))]
    assert [(i, r.verdict) for _, i, r in read_solutions(judge, only, k=1, seed=0)] == [(1, N)]


# ---- the kinds of run


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("labelled")
    store = little.open_little(folder, problems=6)
    sample_with(little.context(store, little.sample_recipe(n=6), folder), little.scripted_policy())
    roll_out(little.context(store, little.rollout_recipe(m=16), folder), little.scripted_policy())
    return store


def recipe(**fields: Any) -> EvaluateJudgeRecipe:
    choice = JudgeChoice(k=4, prompt="judge_nano", draws=Draws(max_tokens=100))
    return EvaluateJudgeRecipe(
        judge=choice, **({"select": Selection(dataset=little.DATASET), "resamples": 200} | fields)
    )


def verdicts(folder: Path, run_id: int) -> list[dict[str, Any]]:
    lines = (folder / "runs" / str(run_id) / "verdicts.jsonl").read_text().splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda row: row["chunk_id"])


def test_a_judge_is_scored_under_every_rule_from_one_reading(labelled, tmp_path: Path):
    ctx = little.context(labelled, recipe(rules=RULES), tmp_path)
    judge = generative()
    result = judge_with(ctx, judge)
    rows = verdicts(tmp_path, ctx.run_id)
    chunks = {
        row["chunk_id"]: row
        for row in map(
            json.loads, (tmp_path / "runs" / str(ctx.run_id) / "chunks.jsonl").read_text().splitlines()
        )
    }
    assert len(judge.llm.served) == len(rows) == len(chunks) and set(result["measures"]) == set(RULES)
    for name in RULES:
        own = [row for row in rows if name in chunks[row["chunk_id"]]["labels"]]
        signs = [chunks[row["chunk_id"]]["labels"][name] for row in own]
        assert signs.count("+") == signs.count("-") > 0  # balanced
        right = [
            row["verdicts"].count({"+": P, "-": N}[sign]) / 4 for row, sign in zip(own, signs, strict=True)
        ]
        found = result["measures"][name]
        assert found["accuracy"] == pytest.approx(sum(right) / len(own)) and found["n"] == len(own)
        low, high = found["interval"]
        assert low <= found["accuracy"] <= high
        assert sum(n for n, *_ in found["by_problem"].values()) == len(own)


def test_an_evaluation_that_was_stopped_goes_on_to_the_same_verdicts(labelled, tmp_path: Path):
    whole = little.context(labelled, recipe(), tmp_path)
    judge_with(whole, generative())
    ctx = little.context(labelled, recipe(), tmp_path)
    judge = generative(in_flight=4)

    def stop_after_ten(request: Request) -> None:
        if len(judge.llm.served) >= 10:
            ctx.stop()

    judge.llm._fail = stop_after_ten
    partial = judge_with(ctx, judge)
    assert 0 < partial["done"] < len(verdicts(tmp_path, whole.run_id)) * 4
    ctx._stop.clear()
    again = generative()
    finished = judge_with(ctx, again)
    assert verdicts(tmp_path, ctx.run_id) == verdicts(tmp_path, whole.run_id)
    assert len(again.llm.served) == len(verdicts(tmp_path, whole.run_id)) - partial["done"] // 4
    assert finished["done"] == len(verdicts(tmp_path, whole.run_id)) * 4


def test_held_out_chunks_of_a_frozen_set_in_both_forms(labelled, tmp_path: Path):
    trajectory = labelled.stage_trajectories(labelled.trajectory_ids())[0]
    first, second = trajectory.chunks
    base = {"problem_id": trajectory.problem_id, "trajectory_id": trajectory.id}
    forms = {
        "one": [{**base, "chunk_id": second.id, "position": 1, "prompt": "a\u2028b", "label": "-"}],
        "turns": [{**base, "problem": "", "chunks": [first.text, second.text], "labels": [None, "-"]}],
    }
    for name, rows in forms.items():
        folder = tmp_path / "sets" / name
        folder.mkdir(parents=True)
        (folder / "held_out.jsonl").write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
        ctx = little.context(labelled, recipe(set=name), tmp_path)
        found = judge_with(ctx, generative())["measures"][name]
        assert found["n"] == 1 and list(found["by_position"]) == ["1"]
    (tmp_path / "sets" / "one" / "held_out.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(InputError, match=r"sets/one/held_out\.jsonl:1"):
        judge_with(little.context(labelled, recipe(set="one"), tmp_path), generative())
    with pytest.raises(RecipeError, match="no frozen training set 'none'"):
        recipe(set="none").check(tmp_path)


def test_a_judge_is_not_measured_on_problems_that_it_was_trained_on(labelled, tmp_path: Path):
    judge, trained = tmp_path / "judge", tmp_path / "sets" / "trained"
    judge.mkdir()
    trained.mkdir(parents=True)
    (judge / "stepwiser.json").write_text(json.dumps({"role": "judge", "recipe": {"set": "trained"}}))
    (trained / "train.jsonl").write_text('{"problem_id": 3}\n{"problem_id": 9}\n')
    ctx = little.context(labelled, recipe(), tmp_path)
    check_not_trained_on(ctx, judge, [{"problem_id": 4}])
    with pytest.raises(InputError, match=r"holds 1 of the problems of these chunks \(numbers 3\)"):
        check_not_trained_on(ctx, judge, [{"problem_id": 3}, {"problem_id": 4}])
    (judge / "stepwiser.json").write_text(json.dumps({"role": "judge", "recipe": {"set": None}}))
    check_not_trained_on(ctx, judge, [{"problem_id": 3}])


def test_what_follows_a_first_negative_label_may_be_left_out(labelled, tmp_path: Path):
    whole = little.context(labelled, recipe(balance=False, limit=None), tmp_path)
    first = little.context(labelled, recipe(balance=False, limit=None, until_first_negative=True), tmp_path)
    chunks = []
    for ctx in (whole, first):
        judge_with(ctx, generative())
        lines = (tmp_path / "runs" / str(ctx.run_id) / "chunks.jsonl").read_text().splitlines()
        chunks.append([json.loads(line) for line in lines])
    name = RULES[0]
    negative = {(row["trajectory_id"], row["idx"]) for row in chunks[0] if row["labels"][name] == "-"}
    after = [
        row for row in chunks[0] if any((row["trajectory_id"], i) in negative for i in range(row["idx"]))
    ]
    assert after and chunks[1] == [row for row in chunks[0] if row not in after]


def test_nothing_to_compare_with_is_an_error(labelled, tmp_path: Path):
    ctx = little.context(labelled, recipe(select=Selection(policy="nobody")), tmp_path)
    with pytest.raises(InputError, match="lower min_confidence"):
        judge_with(ctx, generative())


def test_a_run_that_found_nothing_to_compare_with_looks_again_when_it_is_resumed(tmp_path: Path):
    store = little.open_little(tmp_path)
    sample_with(little.context(store, little.sample_recipe(), tmp_path), little.scripted_policy())
    ctx = little.context(store, recipe(), tmp_path)
    with pytest.raises(InputError, match="roll out prefixes first"):
        judge_with(ctx, generative())
    roll_out(little.context(store, little.rollout_recipe(), tmp_path), little.scripted_policy())
    assert judge_with(ctx, generative())["measures"]


def test_problems_with_one_text_are_solved_apart_and_alike_after_a_resume(tmp_path: Path):
    store = little.open_little(tmp_path, problems=1)
    store.add_problems([NewProblem(little.DATASET, "twin", "1+2+3", "7")], run_id=None, actor="test")
    ctx = little.context(store, EvaluatePolicyRecipe(dataset=little.DATASET, n=12, resamples=200), tmp_path)
    policy_with(ctx, little.scripted_policy())
    kept = tmp_path / "runs" / str(ctx.run_id) / "solutions.jsonl"
    lines = kept.read_text().splitlines(keepends=True)
    first, twin = ([s["text"] for s in json.loads(line)["solutions"]] for line in lines)
    assert first != twin
    kept.write_text(lines[0])
    policy_with(ctx, little.scripted_policy())
    assert kept.read_text().splitlines(keepends=True) == lines


def test_a_policy_is_described_by_its_own_solutions(labelled, tmp_path: Path):
    asked = EvaluatePolicyRecipe(
        dataset=little.DATASET, n=5, limit=4, draws=Draws(max_tokens=200), resamples=200
    )
    ctx = little.context(labelled, asked, tmp_path)
    result = policy_with(ctx, little.scripted_policy())
    assert result["n"] == 20 and result["problems"] == 4 and result["done"] == 20
    assert result["chunks"] == 2 and result["blank_line_chunks"] == 1 and result["well_formed"] == 1.0
    rows = [
        json.loads(line)
        for line in (tmp_path / "runs" / str(ctx.run_id) / "solutions.jsonl").read_text().splitlines()
    ]
    outcomes = [s["outcome"] for row in rows for s in row["solutions"]]
    assert result["accuracy"] == outcomes.count("correct") / 20
    silent = little.scripted_policy()
    again = policy_with(ctx, silent)  # all is there
    assert silent.served == [] and again["by_problem"] == result["by_problem"]
    assert again["interval"] == result["interval"]


def test_recipes_refuse_what_cannot_work(tmp_path: Path):
    EvaluateJudgeRecipe(judge=JudgeChoice(prompt="judge_nano")).check(tmp_path)
    EvaluateJudgeRecipe().check(tmp_path)  # nano's own prompt is known
    with pytest.raises(RecipeError, match="unknown rule"):
        EvaluateJudgeRecipe(rules=("abs-z",)).check(tmp_path)
    EvaluatePolicyRecipe().check(tmp_path)
    with pytest.raises(InputError, match="which nothing fills"):
        EvaluatePolicyRecipe(prompt="judge_nano").check(tmp_path)

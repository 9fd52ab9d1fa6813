"""GRPO on nano as a policy: rewards and token advantages by hand, a few real steps, stop and resume, a real judge."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from db.store import Store, open_store
from engine.answers import Grade, Grader
from engine.checkpoints import PACKAGED, read_card, resolve_checkpoint
from engine.chunks import cut_tags
from engine.errors import RecipeError, TrainingError
from engine.judge import load_prompt
from engine.judges import GenerativeJudge, JudgeChoice
from engine.llm import LLMSpec
from engine.llm.scripted import ScriptedLLM
from engine.llm.tokens import Tokens
from engine.recipes import Draws, Generate, resolve
from engine.worlds.nano import apply
from tests.run_context import Context
from training import grpo_policy
from training.guards import Guards, chunk_prices, habits_of, solution_price
from training.policy_recipes import ProcessReward, TrainPolicyRecipe
from training.policy_reward import PolicyReward, Read, Setting, token_advantages
from training.process_rewards import Scored, group_advantages
from training.rewards import Samples

GRPO = {"steps": 4, "prompts_per_batch": 2, "generations": 4, "steps_per_batch": 2, "max_tokens": 80}


def arithmetic(prompt: str, seed: int) -> str:
    """A judge that recomputes every calculation of the new chunk."""
    new = re.search(r"<new>(.*)</new>", prompt, re.DOTALL)
    links = re.findall(r"(\d+)([-+×])(\d+)=(\d+)", new.group(1)) if new else []
    right = all(apply(op, int(a), int(b)) == int(c) for a, op, b, c in links)
    return f"\\boxed{{{'Positive' if right else 'Negative'}}}"


def scripted_judge() -> GenerativeJudge:
    llm = ScriptedLLM(arithmetic, name="arithmetic", in_flight=64)
    return GenerativeJudge(llm, load_prompt("judge_nano"), Draws(max_tokens=40))


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens.load(PACKAGED["nano"])


def test_habits_and_what_they_cost():
    guards = Guards(
        empty_chunk=0.5, repeated_chunk=0.25, extra_chunk=0.125, most_chunks=3, malformed=1.0, length=2.0
    )
    habits = habits_of(("A b", " ", "a  B", "c"), well_formed=False, tokens=75, guards=guards)
    assert habits.empty == (False, True, False, False) and habits.repeated == (False, False, True, False)
    assert chunk_prices(habits, guards) == (0.0, 0.5, 0.25, 0.125)
    assert solution_price(habits, guards, limit=100) == pytest.approx(1.0 + 2.0 * 0.5)
    assert habits.curves == {
        "chunks": 4,
        "empty_chunks": 1,
        "repeated_chunks": 1,
        "extra_chunks": 1,
        "well_formed": 0.0,
    }
    free = Guards()
    assert chunk_prices(habits, free) == (0.0,) * 4 and solution_price(habits, free, limit=100) == 0.0


def reward_of(tokens: Tokens, judge: Any, grader: Grader, **fields: Any) -> PolicyReward:
    end = tokens.tokenizer.eos_token_id
    setting = Setting(
        ProcessReward(**fields), Guards(repeated_chunk=0.25), k=1, seed=0, limit=80, end_ids=frozenset({end})
    )
    return PolicyReward(setting, tokens, judge, grader, Samples(lambda step, rows: None, 1, 1, 4))


def test_a_solution_is_rewarded_for_its_chunks_and_its_answer(tokens: Tokens):
    texts = [
        "<chunk>1+2=3</chunk>\n<chunk>3+3=6</chunk>\n\\boxed{6}",
        "<chunk>1+2=4</chunk>\n<chunk>4+3=7</chunk>\n\\boxed{7}",
        "<chunk>1+2=3</chunk>\n<chunk>1+2=3</chunk>\n\\boxed{5}",
        "<chunk>1+2=3</chunk>\n<chunk>3+",  # no end token: the limit was reached
    ]
    end = tokens.tokenizer.eos_token_id
    ids = [[*tokens.encode(text), end] for text in texts[:3]] + [tokens.encode(texts[3])]
    logged: dict[str, float] = {}
    with Grader(workers=1) as grader:
        reward = reward_of(tokens, scripted_judge(), grader, outcome_weight=0.5, aggregation="mean")
        found = reward(
            prompts=[""] * 4,
            completion_ids=ids,
            problem=["1+2+3?"] * 4,
            reference=["6"] * 4,
            verifier=["math"] * 4,
            trainer_state=SimpleNamespace(global_step=0),
            log_metric=logged.__setitem__,
            completions=texts,
        )
    # mean scores 1, .5, 1, 1; outcomes 1 0 0 0; the third repeats a chunk
    assert found == pytest.approx([1.0, 0.25, 0.5 - 0.25, 0.5])
    assert [read.grade.outcome for read in reward.last] == ["correct", "wrong", "wrong", "truncated"]
    assert logged["rewards/outcome"] == 0.25 and logged["rewards/process"] == pytest.approx(3.5 / 4)
    assert logged["guards/penalty"] == pytest.approx(0.25 / 4) and logged["guards/repeated_chunks"] == 0.25
    assert logged["guards/well_formed"] == 0.75 and logged["guards/chunks"] == pytest.approx(7 / 4)


def test_without_a_judge_only_the_outcome_counts_and_no_process_is_logged(tokens: Tokens):
    logged: dict[str, float] = {}
    text = "<chunk>1+2=4</chunk>\n\\boxed{6}"
    with Grader(workers=1) as grader:
        reward = reward_of(tokens, None, grader, outcome_weight=1.0)
        found = reward(
            prompts=[""],
            completion_ids=[[*tokens.encode(text), tokens.tokenizer.eos_token_id]],
            problem=["?"],
            reference=["6"],
            verifier=["math"],
            trainer_state=SimpleNamespace(global_step=0),
            log_metric=logged.__setitem__,
        )
    assert found == [1.0] and "rewards/process" not in logged and logged["rewards/outcome"] == 1.0


def read_of(tokens: Tokens, text: str, scored: Scored | None) -> Read:
    cut = cut_tags(text)
    ids = (*tokens.encode(text), tokens.tokenizer.eos_token_id)
    habits = habits_of([c.text for c in cut.chunks], well_formed=True, tokens=len(ids), guards=Guards())
    return Read(ids, cut, habits, Grade("correct", None), scored)


def test_every_token_has_the_advantage_of_its_chunk(tokens: Tokens):
    first = read_of(tokens, "<chunk>ab</chunk>\n<chunk>c</chunk>\n\\boxed{1}", Scored((1.0, 0.0), 1.0))
    second = read_of(tokens, "<chunk>d</chunk>\n\\boxed{2}", Scored((0.5,), 0.0))
    failed = read_of(tokens, "<chunk>e</chunk>", None)
    reward = ProcessReward(level="chunk", outcome_weight=0.5)
    rows = token_advantages([first, failed, second], reward, tokens.decode, scale=False)
    # chunk rewards .5 0 | .25, mean .25; outcomes .5 | 0, mean .25
    by_text = [
        list(zip([tokens.decode([i]) for i in read.token_ids], row, strict=True))
        for read, row in ((first, rows[0]), (second, rows[2]))
    ]
    edges = [
        0,
        len(tokens.encode("<chunk>ab</chunk>")),
        len(tokens.encode("<chunk>ab</chunk>\n<chunk>c</chunk>")),
    ]
    assert {a for _, a in by_text[0][: edges[1]]} == {0.5}
    assert {a for _, a in by_text[0][edges[1] : edges[2]]} == {0.0}
    assert {a for _, a in by_text[0][edges[2] :]} == {0.25}
    assert rows[1] == [0.0] * len(failed.token_ids)
    assert [a for text, a in by_text[1] if text == "d"] == [-0.25] and by_text[1][-1][1] == -0.25


# ---- real steps


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.db'}", migrate=True)


def recipe(**fields: Any) -> TrainPolicyRecipe:
    given: dict[str, Any] = {
        "name": "practised",
        "dataset": "d",
        "generate": Generate(count=5, seed=2, kinds=("arithmetic",)),
        "grpo": GRPO,
    }
    return resolve(TrainPolicyRecipe, given | fields)


def context(store: Store, asked: TrainPolicyRecipe, home: Path, run_id: int = 0, **fields: Any) -> Context:
    run_id = run_id or store.start_run(asked.kind, asked.model_dump(mode="json"), "test", pid=0)
    return Context(asked, home, run_id=run_id, store=store, **fields)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_policy, "_judge", lambda ctx, doors: scripted_judge())


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the trainer puts into its loss, one entry an optimizer step, and the reward function's view beside it."""
    seen: list[dict[str, Any]] = []
    real = grpo_policy.trainer_class

    def noting(level: str) -> Any:
        class Noting(real(level)):  # type: ignore[misc]
            def _compute_loss(self, model: Any, inputs: Any) -> Any:
                reads = list(self.reward_funcs[0].last)
                seen.append(
                    {
                        "advantages": inputs["advantages"].clone(),
                        "ids": inputs["completion_ids"],
                        "reads": reads,
                    }
                )
                return super()._compute_loss(model, inputs)

        return Noting

    monkeypatch.setattr(grpo_policy, "trainer_class", noting)
    return seen


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.usefixtures("scripted")
def test_a_policy_is_trained_saved_and_usable_by_name(store: Store, tmp_path: Path, batches: list[Any]):
    ctx = context(store, recipe(), tmp_path)
    result = grpo_policy.run(ctx)
    assert result["steps"] == 4 and result["problems"] == {"train": 5, "too_long": 0}
    assert {"reward", "outcome", "process"} <= result.keys() and result["checkpoint"] == "practised"
    path = resolve_checkpoint("practised", tmp_path)
    card = read_card(path)
    assert card["role"] == "policy" and card["prompt"] == "policy_nano" and card["set"]["dataset"] == "d"
    before, after = weights(PACKAGED["nano"]), weights(path)
    assert any((before[name].float() != after[name].float()).any() for name in after)
    for name in ("rewards/outcome", "rewards/process", "guards/chunks", "guards/empty_chunks", "reward"):
        assert len(ctx.curve(name)) == 4 or len(ctx.curve(name)) == 2, name
    assert ctx.drawn[1][0].label.startswith("answer ") and "<chunk>" in ctx.drawn[1][0].completion
    # TRL's advantages of a group are those that the page on rewards shows
    reads = {read.token_ids: read for read in batches[0]["reads"]}
    rewards = [
        0.5 * sum(r.scored.scores) / len(r.scored.scores) + 0.5 * r.scored.outcome for r in reads.values()
    ]
    wanted = dict(zip(reads, [a for i in (0, 4) for a in group_advantages(rewards[i : i + 4])], strict=True))
    for step in batches[:2]:
        for ids, advantage in zip(step["ids"].tolist(), step["advantages"].tolist(), strict=True):
            own = next(key for key in wanted if list(key) == ids[: len(key)])
            assert advantage == pytest.approx(wanted[own], abs=1e-4)


@pytest.mark.usefixtures("scripted")
def test_chunk_level_gives_the_loss_an_advantage_a_token(store: Store, tmp_path: Path, batches: list[Any]):
    asked = recipe(reward={"level": "chunk", "outcome_weight": 0.25, "baseline": "position"})
    result = grpo_policy.run(context(store, asked, tmp_path))
    assert result["checkpoint"] == "practised" and len(batches) == 4
    decode = Tokens.load(PACKAGED["nano"]).decode
    reads = batches[0]["reads"]
    rows = [
        row
        for start in (0, 4)
        for row in token_advantages(reads[start : start + 4], asked.reward, decode, scale=True)
    ]
    wanted = {read.token_ids: row for read, row in zip(reads, rows, strict=True)}
    different = 0
    for step in batches[:2]:
        assert step["advantages"].shape == step["ids"].shape
        for ids, advantages in zip(step["ids"].tolist(), step["advantages"].tolist(), strict=True):
            own = next(key for key in wanted if list(key) == ids[: len(key)])
            assert advantages[: len(own)] == pytest.approx(wanted[own], abs=1e-5)
            assert not any(advantages[len(own) :])
            different += len(set(advantages[: len(own)])) > 1
    assert different  # within a solution chunks differ


@pytest.mark.usefixtures("scripted")
def test_stopped_and_resumed_equals_uninterrupted(store: Store, tmp_path: Path):
    whole = context(store, recipe(name="whole"), tmp_path)
    grpo_policy.run(whole)
    stopped = context(store, recipe(name="resumed"), tmp_path, stop_at=1)
    assert grpo_policy.run(stopped)["steps"] == 2  # a whole generation batch
    store.add_problems([], run_id=None, actor="test")
    again = context(store, recipe(name="resumed"), tmp_path, run_id=stopped.run_id)
    assert grpo_policy.run(again)["steps"] == 4
    first, second = (weights(resolve_checkpoint(name, tmp_path)) for name in ("whole", "resumed"))
    assert all((first[name] == second[name]).all() for name in first)
    assert stopped.curve("reward") + again.curve("reward") == whole.curve("reward")


def test_what_cannot_be_trained_is_named(store: Store, tmp_path: Path):
    with pytest.raises(TrainingError, match="has 0 problems"):
        grpo_policy.run(context(store, recipe(generate=None), tmp_path))
    with pytest.raises(RecipeError, match="scaled by group or not at all"):
        recipe(reward={"level": "chunk"}, grpo=GRPO | {"scale": "batch"})
    with pytest.raises(RecipeError, match="lie in one process"):
        recipe(hardware={"processes": 2})
    recipe(reward={"outcome_weight": 1.0}, hardware={"processes": 2})


@pytest.mark.vllm
def test_nano_judges_nano_through_a_door_in_the_training_process(store: Store, tmp_path: Path):
    llm = LLMSpec(checkpoint="nano", kv_cache_gib=0.25, max_num_seqs=64)
    choice = JudgeChoice(llm=llm, prompt="judge_nano", k=2, draws=Draws(max_tokens=64))
    ctx = context(store, recipe(judge=choice, grpo=GRPO | {"steps": 2}), tmp_path)
    result = grpo_policy.run(ctx)
    assert result["checkpoint"] == "practised" and 0 < result["process"]["last_quarter"] < 1
    assert "judge_nano" in ctx.facts_ and "policy_nano" in ctx.facts_
    lines = (tmp_path / "runs" / str(ctx.run_id) / "problems.jsonl").read_text().splitlines()
    assert len(lines) == 5 and json.loads(lines[0])["reference"]

"""GRPO on a policy with process rewards: a judge behind its door scores the chunks, the grader the answer.

Trajectory level: one reward a solution, TRL's own advantages. Chunk level: an advantage a chunk with a baseline, given to
TRL as an advantage a token. What is rewarded: ``policy_reward``; the arithmetic: ``process_rewards``; the way through:
``core``. Resumes on the same curve.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.answers import Grader, Reference
from engine.checkpoints import resolve_checkpoint
from engine.errors import TrainingError
from engine.judge import load_prompt, render
from engine.judges import Judge, open_judge
from engine.llm.checkpoint import check_checkpoint
from engine.llm.tokens import Tokens
from engine.pipeline.flow import open_door
from engine.pipeline.kept import once, own_folder
from engine.pipeline.sampling import problem_ids
from engine.verifiers import DEFAULT
from training import core
from training.callbacks import run_callback, step_of, trainer_state
from training.grpo_judge import data_order
from training.policy_reward import PolicyReward, Setting, token_advantages
from training.rewards import Samples
from training.workspace import free_target

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.policy_recipes import TrainPolicyRecipe

PROBLEMS_A_BATCH = 500
LESS_MEMORY = (
    "a smaller grpo.micro_batch, grpo.prompts_per_batch or grpo.max_tokens, hardware.gradient_checkpointing: true, "
    "judge.llm.gpu_memory_utilization or hardware.vllm_memory on a GPU, or lora"
)
SAMPLED_GROUPS = 2
CURVES = ("reward", "rewards/outcome", "rewards/process")


def run(ctx: RunContext[TrainPolicyRecipe]) -> dict[str, Any]:
    """Train and save the policy; returns counts, what the reward did, and the checkpoint's name.

    A stopped run returns what it has, and continues from its last checkpoint when resumed. Raises TrainingError (name
    taken, no problem left, out of memory, disk full, NaN), RunError (resumed with another recipe), CheckpointError.
    """
    recipe, uid = ctx.recipe, ctx.store.run(ctx.run_id).uid
    target = free_target(ctx, uid)
    base = resolve_checkpoint(recipe.base, ctx.home)
    base_hash = check_checkpoint(base).content_hash
    prompt = load_prompt(recipe.prompt, needs=("problem",))
    ctx.facts(_prompt(ctx))
    core.prepare(recipe.hardware)
    with core.first_process_first():
        folder = own_folder(ctx)
        rows = once(folder / "problems.jsonl", lambda: _problems(ctx))
    kept, counts = _fitting(ctx, base, rows)
    output = folder / "trainer"
    with ExitStack() as doors:
        last = core.train_to_end(
            ctx,
            lambda: build_trainer(ctx, base, kept, output, doors),
            output,
            recipe.grpo.steps,
            lower=LESS_MEMORY,
        )
    result: dict[str, Any] = {"problems": counts, "steps": step_of(last)}
    if last is None or step_of(last) < recipe.grpo.steps or not ctx.main:
        return result
    metrics = {"steps": step_of(last)} | _moved(trainer_state(last)["log_history"])
    card = {
        "run_id": ctx.run_id,
        "run": uid,
        "role": "policy",
        "base": recipe.base,
        "base_hash": base_hash,
        "prompt": recipe.prompt,
        "prompt_hash": prompt.hash,
        "recipe": recipe.model_dump(mode="json"),
        "set": {"name": None, "dataset": recipe.dataset, "counts": counts},
        "metrics": metrics,
    }
    core.finish(ctx, last, base, target, card, aside=folder / "final")
    return result | metrics | {"checkpoint": target.name}


def _prompt(ctx: RunContext[TrainPolicyRecipe]) -> dict[str, str]:
    """Name and hash of the policy's prompt."""
    prompt = load_prompt(ctx.recipe.prompt, needs=("problem",))
    return {prompt.name: prompt.hash}


def _problems(ctx: RunContext[TrainPolicyRecipe]) -> list[dict[str, Any]]:
    """The run's problems, chosen once: problems that join the data set later do not change a resumed run."""
    ids = problem_ids(ctx)
    return [
        {
            "problem_id": problem.id,
            "problem": problem.text,
            "reference": problem.answer,
            "verifier": Reference.of(problem.answer, problem.meta).verifier,
        }
        for start in range(0, len(ids), PROBLEMS_A_BATCH)
        for problem in ctx.store.problems(ids=ids[start : start + PROBLEMS_A_BATCH])
    ]


def _fitting(
    ctx: RunContext[TrainPolicyRecipe], base: Path, rows: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Problems with their prompts, those with too long ones left out, and how many. Raises TrainingError if none is left."""
    prompt, longest = load_prompt(ctx.recipe.prompt, needs=("problem",)), ctx.recipe.grpo.max_prompt_tokens
    tokens = Tokens.load(base)
    # a run that began before there were verifiers wrote none down
    prompted = [
        {"verifier": DEFAULT} | row | {"prompt": render(prompt, problem=row["problem"])} for row in rows
    ]
    kept = [row for row in prompted if len(tokens.encode(row["prompt"])) <= longest]
    if not kept:
        raise TrainingError(
            f"data set {ctx.recipe.dataset!r} has {len(rows)} problems, none with a prompt of at most {longest} tokens; "
            "import or generate problems, or raise grpo.max_prompt_tokens"
        )
    counts = {"train": len(kept), "too_long": len(rows) - len(kept)}
    ctx.log(f"problems: {counts['train']} to practise on, {counts['too_long']} too long")
    return kept, counts


def arguments(recipe: TrainPolicyRecipe, output: Path) -> dict[str, Any]:
    """GRPOConfig's arguments for a recipe."""
    return core.grpo_arguments(
        recipe.grpo, output, seed=recipe.seed, hardware=recipe.hardware, saving=recipe.saving
    )


def build_trainer(
    ctx: RunContext[TrainPolicyRecipe],
    base: Path,
    problems: list[dict[str, Any]],
    output: Path,
    doors: ExitStack,
) -> Any:
    """The trainer over plain-text prompts, as a door encodes them; ``doors`` closes judge and grader when it ends.

    Raises TrainingError for a tokenizer that closes every text with an end token: answers would begin after it.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig

    recipe, grpo = ctx.recipe, ctx.recipe.grpo
    tokenizer = core.load_tokenizer(base)
    model = core.load_model(base, recipe.lora, recipe.hardware, seed=ctx.seed)
    reward = PolicyReward(
        setting=_setting(ctx, _end_ids(model, tokenizer)),
        tokens=Tokens(tokenizer, recipe.base),
        judge=_judge(ctx, doors) if recipe.reward.judged else None,
        grader=doors.enter_context(Grader(cache=ctx.store.grades)),
        samples=Samples(
            ctx.samples, grpo.samples_every, grpo.steps_per_batch, SAMPLED_GROUPS * grpo.generations
        ),
    )
    batches = -(-grpo.steps // grpo.steps_per_batch)
    order = data_order([""] * len(problems), batches, grpo.prompts_per_batch, ctx.seed)
    columns = ("prompt", "problem", "reference", "verifier")
    trainer = trainer_class(recipe.reward.level)(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        args=core.configured(GRPOConfig, arguments(recipe, output)),
        train_dataset=Dataset.from_list([{name: row[name] for name in columns} for row in problems]).select(
            order
        ),
        callbacks=[
            run_callback(ctx, grpo.steps_per_batch, headline="reward", curves=output.parent / "tensorboard")
        ],
    )
    trainer.remove_callback(PrinterCallback)  # the callback above reports
    return trainer


def _judge(ctx: RunContext[TrainPolicyRecipe], doors: ExitStack) -> Judge:
    """The judge behind a door of its own in this process; on a CPU it shares the trainer's threads."""
    choice = ctx.recipe.judge
    spec = choice.llm.model_copy(update={"threads": choice.llm.threads or ctx.recipe.hardware.threads})
    llm = doors.enter_context(open_door(ctx, spec))
    judge = open_judge(llm, resolve_checkpoint(choice.llm.checkpoint, ctx.home), choice)
    ctx.facts(_prompt(ctx) | judge.facts())
    return judge


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a solution."""
    ends = model.generation_config.eos_token_id
    return frozenset([*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id]) - {None}


def _setting(ctx: RunContext[TrainPolicyRecipe], end_ids: frozenset[int]) -> Setting:
    recipe = ctx.recipe
    return Setting(
        reward=recipe.reward,
        guards=recipe.guards,
        k=recipe.judge.k,
        seed=ctx.seed,
        limit=recipe.grpo.max_tokens,
        end_ids=end_ids,
    )


def trainer_class(level: str) -> Any:
    """TRL's GRPOTrainer; for level ``chunk`` one that puts an advantage a token in place of that a completion."""
    from trl import GRPOTrainer

    if level == "trajectory":
        return GRPOTrainer

    class ChunkGRPOTrainer(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            output["advantages"] = self._by_token(output["completion_ids"])
            return output

        def _by_token(self, completion_ids: Any) -> Any:
            """(completions, tokens), 0 behind the end; the loss takes it as it takes one number a completion."""
            import torch

            reward: Any = self.reward_funcs[0]
            advantages = torch.zeros(completion_ids.shape, dtype=torch.float32)
            size = int(self.num_generations or 1)
            for start in range(0, len(reward.last), size):
                group = reward.last[start : start + size]
                rows = token_advantages(
                    group, reward.setting.reward, reward.tokens.decode, scale=self.scale_rewards != "none"
                )
                for place, row in enumerate(rows, start):
                    advantages[place, : len(row)] = torch.tensor(row)
            return advantages.to(completion_ids.device)

    return ChunkGRPOTrainer


def _moved(history: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Means of the first and the last quarter of the generation batches, for reward, outcome and process."""
    found = {}
    for name in CURVES:
        values = [float(entry[name]) for entry in history if entry.get(name) is not None]
        quarter = max(1, len(values) // 4)
        if values:
            found[name.rpartition("/")[2]] = {
                "first_quarter": sum(values[:quarter]) / quarter,
                "last_quarter": sum(values[-quarter:]) / quarter,
            }
    return found

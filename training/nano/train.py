"""Train the nano base: one small Llama that both solves and judges, from scratch, on generated demonstrations.

Loss on completions only, plain AdamW with warm-up and linear decay, demonstrations drawn as they are
needed. Further training (GRPO, fine-tuning) is in the trainers; measuring the result is in report.py.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel

from engine.judge import fill, load_prompt, render
from engine.worlds.nano import Kind, draw
from training.nano.demos import JudgeRates, judge, solve
from training.nano.recipe import NanoRecipe, Stretch
from training.nano.tokenizer import build_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

POLICY_PROMPT, JUDGE_PROMPT = "policy_nano", "judge_nano"
KINDS: tuple[Kind, ...] = ("arithmetic", "word")
POOL = 32  # batches drawn at once and sorted by length, so that little is padding
EVERY = 50  # steps between two reports of progress

Progress = Callable[[int, dict[str, float]], None]


def examples(recipe: NanoRecipe, rates: JudgeRates, seed: int) -> Iterator[tuple[str, str]]:
    """Endless (prompt, completion) pairs from training problems, the same for the same seed.

    Judged chunks are balanced: wrong ones as often as right ones.
    """
    rng = random.Random(f"nano-demos/{seed}")
    solving = load_prompt(POLICY_PROMPT, needs=("problem",))
    judging = load_prompt(JUDGE_PROMPT)
    while True:
        demo = solve(draw(rng, KINDS, "train", recipe.lengths), recipe.policy, rng)
        if rng.random() >= recipe.judge_share:
            yield render(solving, problem=demo.problem.text), demo.completion()
            continue
        want = rng.random() < 0.5
        while not (indices := [i for i, c in enumerate(demo.chunks) if c.right == want]):
            demo = solve(draw(rng, KINDS, "train", recipe.lengths), recipe.policy, rng)
        index = rng.choice(indices)
        history = [chunk.text for chunk in demo.chunks[:index]]
        prompt = fill(judging, demo.problem.text, history, demo.chunks[index].text)
        yield prompt, judge(demo, index, rates, rng)


def batches(
    recipe: NanoRecipe, rates: JudgeRates, tokenizer: PreTrainedTokenizerFast, seed: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The base's examples as token ids and labels."""
    return padded(examples(recipe, rates, seed), recipe.batch, tokenizer, seed)


def padded(
    source: Iterator[tuple[str, str]], batch: int, tokenizer: PreTrainedTokenizerFast, seed: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Token ids and labels of (prompt, completion) pairs, both (batch, longest), -100 on prompts and padding."""
    import torch

    rng = random.Random(f"nano-batches/{seed}")
    while True:
        pairs = [next(source) for _ in range(batch * POOL)]
        prompts = tokenizer([p for p, _ in pairs])["input_ids"]
        answers = tokenizer([c + tokenizer.eos_token for _, c in pairs])["input_ids"]
        rows = sorted(zip(prompts, answers, strict=True), key=lambda row: len(row[0]) + len(row[1]))
        groups = [rows[i : i + batch] for i in range(0, len(rows), batch)]
        rng.shuffle(groups)
        for group in groups:
            longest = max(len(p) + len(a) for p, a in group)
            ids = torch.full((len(group), longest), tokenizer.pad_token_id)
            labels = torch.full((len(group), longest), -100)
            for row, (p, a) in enumerate(group):
                ids[row, : len(p) + len(a)] = torch.tensor(p + a)
                labels[row, len(p) : len(p) + len(a)] = torch.tensor(a)
            yield ids, labels


def build_model(recipe: NanoRecipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A fresh model, its weights drawn from the recipe's seed."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = recipe.model
    torch.manual_seed(recipe.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=shape.hidden,
            intermediate_size=shape.feed_forward,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.hidden // shape.head_dim,
            num_key_value_heads=shape.hidden // shape.head_dim,
            head_dim=shape.head_dim,
            max_position_embeddings=shape.context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def train_nano(recipe: NanoRecipe, out_dir: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Train and save to `out_dir`: bf16 safetensors, tokenizer, recipe, log. Returns the log's summary.

    `progress(step, {"loss": …, "seconds": …})` is called every 50 steps and at the end of a stage, steps
    counted over all stages; an exception from it ends the training.
    """
    import torch

    torch.set_num_threads(recipe.threads)
    tokenizer = build_tokenizer()
    model = build_model(recipe, tokenizer)
    log: list[dict[str, float]] = []
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        log.append({"step": step, "loss": loss, "seconds": round(time.monotonic() - started, 1)})
        if progress:
            progress(step, log[-1])

    done = 0
    for number, stage in enumerate(recipe.stages):
        source = batches(recipe, stage.judge, tokenizer, recipe.seed + number)
        run_stage(model, stage, recipe.weight_decay, source, done, report)
        done += stage.steps
    return save(recipe, model, tokenizer, log, out_dir)


def run_stage(
    model: LlamaForCausalLM,
    stage: Stretch,
    weight_decay: float,
    source: Iterator[tuple[torch.Tensor, torch.Tensor]],
    done: int,
    report: Callable[[int, float], None],
) -> None:
    """Train `model` in place for one stage; `done` steps went before. `report(step, mean loss since the last)`."""
    import torch

    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=stage.learning_rate, betas=(0.9, 0.98))
    warm = max(1, stage.warmup)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (stage.steps - step) / max(1, stage.steps - warm))
    )
    losses: list[float] = []
    for step in range(1, stage.steps + 1):
        ids, labels = next(source)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % EVERY == 0 or step == stage.steps:
            report(done + step, sum(losses) / len(losses))
            losses.clear()


def save(
    recipe: BaseModel,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    log: list[dict[str, float]],
    out_dir: Path,
) -> dict[str, Any]:
    """Write the checkpoint folder; returns steps, parameters, first and last mean loss, seconds."""
    out_dir.mkdir(parents=True, exist_ok=True)
    model.bfloat16().save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)
    summary = {
        "steps": log[-1]["step"],
        "parameters": model.num_parameters(),
        "first_loss": log[0]["loss"],
        "last_loss": log[-1]["loss"],
        "seconds": log[-1]["seconds"],
    }
    (out_dir / "recipe.yaml").write_text(
        yaml.safe_dump(recipe.model_dump(), sort_keys=False), encoding="utf-8"
    )
    (out_dir / "training_log.json").write_text(
        json.dumps({"summary": summary, "log": log}, indent=1) + "\n", encoding="utf-8"
    )
    return summary

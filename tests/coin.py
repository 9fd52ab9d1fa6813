"""A judge that tosses a coin, as small as can be trained, and runs whose examples are chosen already."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engine.recipes import resolve
from tests.run_context import Context
from training.jobs import TrainJudgeRecipe
from training.sets import Example, TrainingSet, write_set


@pytest.fixture(scope="session")
def coin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_coin(tmp_path_factory.mktemp("coin"), tied=False)


@pytest.fixture(scope="session")
def tied_coin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Head and embedding are one matrix, as nano's: a stale head after a resume would train silently wrong."""
    return make_coin(tmp_path_factory.mktemp("tied-coin"), tied=True)


def make_coin(folder: Path, tied: bool, before: str = "") -> Path:
    """A tiny Llama taught for a second to box Positive or Negative at random after ``<new>digit</new>``, ``before``
    the box an analysis that is always the same."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from training.nano.tokenizer import build_tokenizer

    tokenizer = build_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = random.Random(0)
    for _ in range(60):
        texts = [
            f"{prompt(rng.randrange(10))}{before}\\boxed{{{rng.choice(('Positive', 'Negative'))}}}<eos>"
            for _ in range(16)
        ]
        rows = torch.tensor(tokenizer(texts)["input_ids"])
        model(rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def prompt(digit: int) -> str:
    return f"<new>{digit}</new>\n"


def context(
    tmp_path: Path,
    coin: Path,
    run_id: int = 1,
    name: str | None = None,
    recipe: dict[str, Any] | None = None,
    **grpo: Any,
) -> Context:
    """A run whose examples are chosen already: the label of a digit is + below 5. ``recipe``: fields beside grpo's."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    if not (checkpoints / "coin").exists():
        (checkpoints / "coin").symlink_to(coin)
    rng = random.Random(1)
    digits = [rng.randrange(10) for _ in range(64)]
    rows = [Example(i, i, prompt(d), "+" if d < 5 else "-") for i, d in enumerate(digits)]
    folder = tmp_path / "runs" / str(run_id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run").write_text(f"uid-{run_id}")
    write_set(
        TrainingSet(tuple(rows[:48]), tuple(rows[48:]), {"train": 48, "held_out": 16}),
        folder / "examples.jsonl",
    )
    settings = {
        "steps": 16,
        "prompts_per_batch": 8,
        "generations": 4,
        "steps_per_batch": 4,
        "learning_rate": 1e-3,
        "max_tokens": 8,
    }
    data = {"kind": "train-judge", "base": "coin", "name": name, "grpo": settings | grpo}
    data |= {"saving": {"every": 4}} | (recipe or {})
    return Context(resolve(TrainJudgeRecipe, data), tmp_path, run_id)

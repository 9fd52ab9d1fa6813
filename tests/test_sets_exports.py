"""Exports: the rows of each style, and that the installed datasets and TRL take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import TrainingError
from engine.judge import parse_verdict
from tests.tiny_llama import make_tiny_llama
from training.sets import STYLES, export_rows, export_set, freeze, styles_of

JUDGE = [
    {"chunk_id": i, "problem_id": i, "prompt": f"judge 1+{i}={i}", "label": "-" if i else "+", "position": 0}
    for i in range(3)
]
TURNS = [
    {
        "problem_id": 1,
        "trajectory_id": 1,
        "problem": "1+2+3+4",
        "chunks": ["1+2=3", "3+3=6", "6+4=9", "so 9"],
        "labels": ["+", "+", "-", None],
        "loss": [True, False, True, False],
    },
    {
        "problem_id": 2,
        "trajectory_id": 2,
        "problem": "5+5",
        "chunks": ["5+5=10"],
        "labels": ["+"],
        "loss": [True],
    },
]
COMPLETION = [{"problem_id": 1, "prompt": "solve 1+2", "completion": "<chunk>1+2=3</chunk>"}]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    for name, form, rows in (("j", "judge", JUDGE), ("t", "turns", TURNS), ("c", "completion", COMPLETION)):
        freeze(home, name, form, {"train": rows, "held_out": rows[:1]}, run="r", recipe={}, counts={})  # type: ignore[arg-type]
    return home


def test_a_judges_rows_become_prompt_and_completion_plain_and_as_a_conversation(home: Path) -> None:
    plain = list(export_rows(home, "j", "prompt-completion"))
    assert plain[0] == {"prompt": "judge 1+0=0", "completion": "\\boxed{Positive}", "label": "+"}
    assert [parse_verdict(row["completion"]) for row in plain] == ["positive", "negative", "negative"]
    chat = list(export_rows(home, "j", "conversational"))
    assert chat[1] == {
        "prompt": [{"role": "user", "content": "judge 1+1=1"}],
        "completion": [{"role": "assistant", "content": "\\boxed{Negative}"}],
        "label": "-",
    }
    assert len(list(export_rows(home, "j", "conversational", "held_out"))) == 1


def test_completions_are_exported_as_they_are(home: Path) -> None:
    assert list(export_rows(home, "c", "prompt-completion")) == [
        {"prompt": "solve 1+2", "completion": "<chunk>1+2=3</chunk>"}
    ]


def test_every_assistant_turn_of_an_export_is_an_example_of_the_set(home: Path) -> None:
    first, second = export_rows(home, "t", "messages")
    assert first == {
        "messages": [
            {"role": "user", "content": "1+2+3+4\n\n1+2=3"},
            {"role": "assistant", "content": "+"},
            {"role": "user", "content": "3+3=6\n\n6+4=9"},  # the chunk that is no example joins the next one
            {"role": "assistant", "content": "-"},
        ]
    }
    assert len(second["messages"]) == 2


def test_a_style_that_a_form_does_not_have_is_refused(home: Path, tmp_path: Path) -> None:
    assert styles_of("judge") == styles_of("completion") == ["conversational", "prompt-completion"]
    assert styles_of("turns") == ["messages"]
    with pytest.raises(
        TrainingError, match=r"form 'turns', which has no style 'conversational'; .* as messages"
    ):
        export_set(home, "t", "conversational", "train", tmp_path / "x.jsonl")
    with pytest.raises(TrainingError, match="no export style 'parquet'; there are conversational, "):
        export_set(home, "t", "parquet", "train", tmp_path / "x.jsonl")
    with pytest.raises(TrainingError, match="cannot be written"):
        export_set(home, "t", "messages", "train", tmp_path / "nowhere" / "x.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("style", STYLES)
def test_datasets_and_trl_take_an_export(style: str, home: Path, tmp_path: Path) -> None:
    """SFTTrainer tokenizes it and trains a step; GRPOTrainer takes the prompts of the first two styles."""
    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    torch.set_num_threads(1)
    name = "t" if style == "messages" else "j"
    path = tmp_path / "export.jsonl"
    count = export_set(home, name, style, "train", path)
    rows = load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(rows) == count and rows[0] == next(export_rows(home, name, style))  # type: ignore[arg-type]
    folder = make_tiny_llama(tmp_path / "tiny")
    common: dict[str, Any] = {
        "output_dir": str(tmp_path / "out"),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "max_steps": 1,
        "dataloader_pin_memory": False,
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        args=SFTConfig(**common, per_device_train_batch_size=2),
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    loss = trainer.train().training_loss
    assert loss > 0
    learnt = trainer.train_dataset[0]
    text = trainer.processing_class.decode(learnt["input_ids"])
    if style == "messages":
        assert "user: 1+2+3+4" in text and "assistant: +" in text
        return
    masked = [
        token for token, kept in zip(learnt["input_ids"], learnt["labels"], strict=True) if kept != -100
    ]
    completion = trainer.processing_class.decode(masked)
    assert "boxed{" in completion and "ositive}" in completion and "1+0" not in completion, (
        "the loss is on the completion only"
    )
    grpo = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        args=GRPOConfig(**common, per_device_train_batch_size=2, num_generations=2, max_completion_length=4),
        reward_funcs=lambda completions, label, **_: [float(sign == "+") for sign in label],
        train_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    assert grpo.train().global_step == 1

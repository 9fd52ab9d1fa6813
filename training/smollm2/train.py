"""LoRA fine-tuning of SmolLM2-135M-Instruct on chunked word problems, as policy and judge; and merging the adapter.

The adapter alone is a few megabytes and is what the repository holds; the doors serve the merged checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from engine.checkpoints import CARD, read_card
from engine.errors import CheckpointError, TrainingError
from engine.llm.checkpoint import check_checkpoint
from training.card import model_card
from training.nano.recipe import Stretch
from training.nano.train import padded, run_stage
from training.parts import Lora
from training.smollm2.words import POLICY_PROMPT, examples
from training.workspace import put_in_place, save_model

HERE = Path(__file__).resolve().parent
ADAPTER = HERE / "adapter"
BASE = "smollm2"
TUNED = "smollm2-chunks"
MADE_BY = "stepwiser smollm2 tuned"


class SmolRecipe(BaseModel):
    """How the adapter is made."""

    model_config = ConfigDict(extra="forbid")
    seed: int
    batch: int = Field(ge=1, description="sequences a step")
    lengths: list[int] = Field(min_length=1, description="operations a problem")
    judge_share: float = Field(ge=0, le=1, description="share of the sequences that judge rather than solve")
    threads: int = Field(ge=1)
    lora: Lora
    stretch: Stretch


def read_smol_recipe(path: Path = HERE / "recipe.yaml") -> SmolRecipe:
    """The recipe in a YAML file."""
    return SmolRecipe.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def train_adapter(
    recipe: SmolRecipe,
    base: Path,
    out_dir: Path,
    progress: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, Any]:
    """Train an adapter for the checkpoint ``base`` and save it (bf16 safetensors) to ``out_dir``; steps, loss, seconds.

    ``progress(step, {"loss": …, "seconds": …})`` is called every 50 steps and after the last one.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    frozen = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    lora = recipe.lora
    model: Any = get_peft_model(
        frozen,
        LoraConfig(
            r=lora.r,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=lora.target,
            task_type="CAUSAL_LM",
        ),
    )
    log: list[dict[str, float]] = []
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        log.append({"step": step, "loss": loss, "seconds": round(time.monotonic() - started, 1)})
        if progress:
            progress(step, log[-1])

    source = padded(
        examples(recipe.lengths, recipe.judge_share, recipe.seed), recipe.batch, tokenizer, recipe.seed
    )
    run_stage(model, recipe.stretch, 0.0, source, 0, report)
    save_adapter(model, out_dir)
    return log[-1] | {"trainable": sum(p.numel() for p in model.parameters() if p.requires_grad)}


def save_adapter(model: Any, out_dir: Path) -> None:
    """Write the adapter in bfloat16; it names its base as ``smollm2`` and not by this machine's folder."""
    import torch

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)
    model.save_pretrained(out_dir)
    (out_dir / "README.md").unlink(missing_ok=True)  # peft's own, which names this machine's folder
    config = out_dir / "adapter_config.json"
    fields = json.loads(config.read_text(encoding="utf-8")) | {"base_model_name_or_path": BASE}
    fields["target_modules"] = sorted(fields["target_modules"])
    config.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def make_tuned(base: Path, adapter: Path, target: Path) -> str:
    """Make the checkpoint ``target``: the adapter added to ``base``, with a card. Returns its content hash.

    A checkpoint that this made before is replaced. Raises CheckpointError if ``base`` or the adapter cannot be used,
    TrainingError if another checkpoint has the name.
    """
    made_from = check_checkpoint(base).content_hash
    if not (adapter / "adapter_model.safetensors").is_file():
        raise CheckpointError(
            f"adapter {adapter}: there is no adapter_model.safetensors; name the folder that "
            "`stepwiser smollm2 train` wrote"
        )
    if target.exists() and read_card(target).get("made_by") != MADE_BY:
        raise TrainingError(
            f"there is already a checkpoint {target.name!r}, made by something else; take another name"
        )
    aside = target.parent / f".{target.name}.writing"
    save_model(adapter, base, aside)
    facts = adapter / "measured.json"
    card = {
        "role": "policy",
        "made_by": MADE_BY,
        "base": BASE,
        "base_hash": made_from,
        "prompt": POLICY_PROMPT,
        "recipe": read_smol_recipe().model_dump(mode="json"),
        "metrics": json.loads(facts.read_text(encoding="utf-8")) if facts.is_file() else {},
    }
    (aside / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (aside / "README.md").write_text(model_card(target.name, card), encoding="utf-8")
    put_in_place(aside, target)
    return check_checkpoint(target).content_hash

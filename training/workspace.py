"""What a training run leaves: the checkpoint's name and the finished checkpoint.

A finished checkpoint appears under its name in one rename, so a name never holds half a checkpoint. How a model is
trained is in the trainers' own modules.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints import PACKAGED, check_name, checkpoints_folder, read_card
from engine.errors import TrainingError
from engine.llm.checkpoint import check_checkpoint

if TYPE_CHECKING:
    from engine.runs import RunContext


def free_target(ctx: RunContext[Any], uid: str) -> Path:
    """Folder that the new checkpoint will have. Raises TrainingError if another checkpoint has that name."""
    name = check_name(ctx.recipe.name or f"run-{ctx.run_id}")
    target = checkpoints_folder(ctx.home) / name
    if name in PACKAGED:
        raise TrainingError(
            f"checkpoint name {name!r} belongs to the packaged checkpoint; set name to another one"
        )
    if target.exists() and read_card(target).get("run") != uid:
        raise TrainingError(
            f"there is already a checkpoint {name!r} in {target.parent}, not made by run {ctx.run_id}; "
            "set name to another one, or move that folder away"
        )
    return target


def save_model(trained: Path, base: Path, folder: Path) -> None:
    """The trainer's weights as bfloat16 safetensors, with the base's tokenizer and generation config, in ``folder``.

    An adapter (LoRA) is added to the base's weights in float32 first, so that the checkpoint stands alone.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    shutil.rmtree(folder, ignore_errors=True)
    if (trained / "adapter_config.json").is_file():
        from peft import PeftModel

        whole = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        model: Any = PeftModel.from_pretrained(whole, trained).merge_and_unload().to(torch.bfloat16)
    else:
        model = AutoModelForCausalLM.from_pretrained(trained, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    if (base / "generation_config.json").is_file():  # the trainer's own carries the sampling of the training
        GenerationConfig.from_pretrained(base).save_pretrained(folder)
    check_checkpoint(folder)


def write_whole(path: Path, text: str) -> None:
    """Write a small file aside and rename it: neither a kill nor another process of the run meets half of it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.writing")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)


def put_in_place(aside: Path, target: Path) -> None:
    """Move a finished folder to its name in one rename; a former result of the same run is replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    former = aside.with_name("former")
    shutil.rmtree(former, ignore_errors=True)
    if target.exists():
        os.replace(target, former)
    os.replace(aside, target)
    shutil.rmtree(former, ignore_errors=True)

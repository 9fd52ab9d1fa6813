"""What every trainer shares: hardware settings, loading, TRL arguments, training to the end or to a stop, saving.

One way through for a trainer: ``prepare`` → ``train_to_end`` (resumes, names what fails) → ``finish`` (checkpoint,
card, in place). What is learnt, and from what, is in the trainers' own modules.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints import CARD
from engine.errors import RunError, TrainingError
from engine.recipes import Recipe
from training.callbacks import anywhere, last_checkpoint, step_of, trainer_state
from training.card import model_card
from training.workspace import put_in_place, save_model, write_whole

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.grpo_parts import Grpo
    from training.parts import Hardware, Lora, Saving

RECIPE = "recipe.json"
"""The recipe that a trainer's folder was begun with: a resume under another one is refused."""
FREE_TO_CHANGE = ("name", "hardware")
"""Recipe fields that a resumed run may have otherwise: they do not change what is trained."""
ALONE = timedelta(days=1)
"""How long other processes wait for the first, which draws rationales and measures alone: by default torch ends them
after half an hour (NCCL: ten minutes), and the run with them. A process that dies is noticed by the launcher at once."""


def prepare(hardware: Hardware) -> None:
    """Threads, log and process group of this process, before any model is loaded.

    The run's log is read line by line: no progress bars, and no warning about a vLLM that a CPU does not train with.
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if not torch.cuda.is_available():
        torch.set_num_threads(hardware.threads)
        warnings.filterwarnings("ignore", message="TRL currently supports vLLM")
    if hardware.processes > 1:
        from accelerate import PartialState

        PartialState(cpu=not torch.cuda.is_available(), timeout=ALONE)


def on_gpu() -> bool:
    """Whether training runs on a GPU here."""
    import torch

    return torch.cuda.is_available()


def in_bfloat16(hardware: Hardware) -> bool:
    """Whether forward and backward are computed in bfloat16; the weights that learn stay float32 either way."""
    return on_gpu() if hardware.precision == "auto" else hardware.precision == "bfloat16"


def load_tokenizer(base: Path, *, padding_side: str = "left") -> Any:
    """The base's tokenizer. Raises TrainingError for one that ends every text with its end token: answers would begin
    after it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base, padding_side=padding_side)
    if tokenizer("1")["input_ids"][-1] == tokenizer.eos_token_id:
        raise TrainingError(
            f"the tokenizer of checkpoint {base.name!r} ends every text with its end token; "
            "switch that off in its tokenizer.json (post_processor) before training"
        )
    return tokenizer


def load_model(
    base: Path, lora: Lora | None, hardware: Hardware, *, seed: int = 0, trainable: bool = True
) -> Any:
    """The base as a causal language model, with a fresh LoRA adapter (drawn from ``seed``) where ``lora`` is given.

    Weights that learn are float32: bfloat16 would round small updates away. Under LoRA the base is frozen and is
    held in bfloat16 where the training computes in bfloat16. ``trainable=False``: the stored type, no adapter, eval.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if not trainable:
        model = AutoModelForCausalLM.from_pretrained(base, dtype="auto").eval()
        return model.to("cuda" if on_gpu() else "cpu")
    frozen = lora is not None and in_bfloat16(hardware)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16 if frozen else torch.float32)
    if lora is None:
        return model
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target
        if lora.target == "all-linear"
        else lora.target.replace(" ", "").split(","),
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def trainer_arguments(
    output: Path,
    *,
    steps: int,
    learning_rate: float,
    seed: int,
    hardware: Hardware,
    saving: Saving,
    batch_steps: int = 1,
    warmup: int = 0,
    schedule: str = "constant",
) -> dict[str, Any]:
    """Arguments that SFTConfig and GRPOConfig have in common, by TRL's names.

    ``batch_steps``: optimizer steps that belong together (a generation batch): saves fall on whole ones, because a
    resumed trainer begins with a new one. Batch sizes are the trainers' own.
    """
    gpu = on_gpu()
    checkpointing = hardware.gradient_checkpointing
    arguments: dict[str, Any] = {
        "output_dir": str(output),
        "max_steps": steps,
        "learning_rate": learning_rate,
        # transformers' "constant" passes over warmup_steps
        "lr_scheduler_type": "constant_with_warmup" if schedule == "constant" and warmup else schedule,
        "warmup_steps": warmup,
        "use_cpu": not gpu,
        "bf16": in_bfloat16(hardware),
        "gradient_checkpointing": gpu if checkpointing is None else checkpointing,
        "dataloader_pin_memory": gpu,
        "seed": seed,
        "data_seed": seed,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # the callback must see a NaN
        "save_steps": -(-saving.every // batch_steps) * batch_steps,
        "save_total_limit": saving.keep,
        "report_to": [],  # the callback reports
        "disable_tqdm": True,
    }
    if hardware.processes > 1 and not gpu:
        arguments["ddp_backend"] = "gloo"
    return arguments


def grpo_arguments(
    grpo: Grpo, output: Path, *, seed: int, hardware: Hardware, saving: Saving
) -> dict[str, Any]:
    """GRPOConfig's arguments. One generation batch is cut into ``steps_per_batch`` optimizer steps: from the second on
    the policy has moved, the ratio leaves 1 and clipping acts (with one step a batch it never does).

    The trainer takes prompts in the order of its data set: see ``data_order``.
    """
    gpu = on_gpu()
    common = trainer_arguments(
        output,
        steps=grpo.steps,
        learning_rate=grpo.learning_rate,
        seed=seed,
        hardware=hardware,
        saving=saving,
        batch_steps=grpo.steps_per_batch,
        warmup=grpo.warmup,
        schedule=grpo.schedule,
    )
    size = grpo.per_device(hardware.processes)
    accumulation = grpo.step_completions // (size * hardware.processes)
    return common | {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": grpo.steps_per_batch * accumulation,
        "num_generations": grpo.generations,
        "num_iterations": 1,
        "epsilon": grpo.epsilon,
        "epsilon_high": grpo.epsilon_high,
        "beta": grpo.beta,
        "entropy_coef": grpo.entropy_coef,
        "loss_type": grpo.loss,
        "scale_rewards": grpo.scale,
        "temperature": grpo.temperature,
        "max_completion_length": grpo.max_tokens,
        "shuffle_dataset": False,  # data_order shuffles
        # colocated vLLM syncs its weights on GPUs only; on a CPU transformers generate
        "use_vllm": gpu and hardware.vllm == "auto",
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": hardware.vllm_memory,
        "vllm_max_model_length": grpo.max_prompt_tokens + grpo.max_tokens,
    }


def check_arguments(config: type, arguments: Mapping[str, Any]) -> None:
    """Raise TrainingError naming the arguments that a configuration class of the installed TRL does not have."""
    known = {field.name for field in fields(config)}
    if unknown := [name for name in arguments if name not in known]:
        raise TrainingError(
            f"{config.__name__} of TRL {version('trl')} does not know {', '.join(sorted(unknown))}; "
            "install the TRL that pyproject.toml names"
        )


def configured(config: type, arguments: Mapping[str, Any]) -> Any:
    """TRL's configuration from ``arguments``. Raises TrainingError for one that it does not know or cannot use."""
    check_arguments(config, arguments)
    try:
        return config(**arguments)
    except ValueError as error:
        raise TrainingError(f"TRL refuses the recipe's settings: {error}") from error


def train_to_end(
    ctx: RunContext[Any], build: Callable[[], Any], output: Path, steps: int, *, lower: str
) -> Path | None:
    """Train from the last checkpoint in ``output`` to step ``steps`` or to a stop; returns the last checkpoint then.

    ``build`` makes the trainer, and is not called when the last checkpoint is the end. ``lower``: which recipe fields
    need less memory, for the message. Raises RunError when ``output`` was begun with another recipe; TrainingError
    that names running out of memory, a full disk, and (from ``run_callback``) a loss that is no number.
    """
    keep_recipe(ctx.recipe, output)
    last = last_checkpoint(output)
    if step_of(last) < steps:
        ctx.log(f"continuing from {last.name}" if last else f"training from {ctx.recipe.base}")
        with failures_named(output, lower):
            trainer = build()
            trainer.train(resume_from_checkpoint=str(last) if last else None)
            trainer.accelerator.wait_for_everyone()
    return last_checkpoint(output)


def keep_recipe(recipe: Recipe, output: Path) -> None:
    """Keep ``recipe`` beside what is trained with it. Raises RunError listing differences if another one is kept."""
    kept, now = output / RECIPE, recipe.model_dump(mode="json")
    try:
        then = json.loads(kept.read_text(encoding="utf-8"))
    except FileNotFoundError:
        output.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps(now, indent=2, ensure_ascii=False) + "\n")
        return
    if found := recipe_differences(then, now):
        raise RunError(
            f"{output} was begun with another recipe; a resume must have the same:\n  "
            + "\n  ".join(found)
            + "\nstart a new run with the new recipe, or put these fields back"
        )


def recipe_differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """``field: then → now`` for every field that differs and changes what is trained, in dotted names."""
    old, new = _flat(then), _flat(now)
    names = [name for name in old | new if name.partition(".")[0] not in FREE_TO_CHANGE]
    return [
        f"{name}: {old.get(name, 'absent')} → {new.get(name, 'absent')}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


@contextmanager
def failures_named(output: Path, lower: str) -> Iterator[None]:
    """Turn out of memory and a full disk into TrainingError that says what is kept and what to change.

    ``lower``: the recipe fields that need less memory, such as "a smaller grpo.prompts_per_batch".
    A checkpoint that a full disk cut off is removed; the one before it stays as it was.
    """
    try:
        yield
    except Exception as error:
        if out_of_memory(error):
            raise TrainingError(
                f"out of memory ({_first_line(error)}); {_kept(output)}. Start a new run with less: {lower}"
            ) from error
        if disk_full(error):
            remove_torn(output)
            raise TrainingError(
                f"the disk is full: saving below {output} failed ({_first_line(error)}); {_kept(output)}. "
                "Free space there, or lower saving.keep, and resume"
            ) from error
        raise


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out: on a GPU, in torch's CPU allocator, in vLLM's cache, in Python."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = ("DefaultCPUAllocator", "CUDA out of memory", "No available memory for the cache blocks")
    return isinstance(error, RuntimeError | ValueError) and any(word in str(error) for word in words)


def disk_full(error: BaseException) -> bool:
    """Whether ``error``, or what it came from, is a write that found no room (or a file-size limit)."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    words = ("No space left on device", "File too large", "StorageFull", "PytorchStreamWriter failed writing")
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in full:
            return True
        if not isinstance(seen, OSError) and any(word in str(seen) for word in words):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def remove_torn(output: Path) -> None:
    """Remove checkpoints in ``output`` that are newer than the last complete one."""
    good = step_of(last_checkpoint(output))
    for path in output.glob("checkpoint-*"):
        if step_of(path) > good:
            shutil.rmtree(path, ignore_errors=True)


def _kept(output: Path) -> str:
    good = last_checkpoint(output)
    return f"{good.name} is intact" if good else "no checkpoint was saved before"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def best_checkpoint(last: Path) -> Path:
    """The checkpoint beside ``last`` that measured best while training; ``last`` where none is kept."""
    best = last.with_name(f"checkpoint-{trainer_state(last).get('best_global_step')}")
    return best if best.is_dir() else last


def save_aside(trained: Path, base: Path, aside: Path) -> Path:
    """The trainer's checkpoint ``trained`` as a checkpoint that stands alone, in ``aside``; kept if it is there."""
    if not aside.is_dir():
        writing = aside.with_name(f"{aside.name}.writing")
        with failures_named(writing, "a smaller base"):
            save_model(trained, base, writing)
            os.replace(writing, aside)
    return aside


def finish(
    ctx: RunContext[Any], trained: Path, base: Path, target: Path, card: dict[str, Any], *, aside: Path
) -> None:
    """Make the checkpoint ``target`` from the trainer's checkpoint ``trained``: weights, tokenizer, card, model card.

    Written in ``aside`` (``save_aside`` may have been called before, to measure it) and moved in one rename. ``card``
    becomes ``stepwiser.json``; its keys: see ``training.card``.
    """
    save_aside(trained, base, aside)
    with failures_named(aside, "a smaller base"):
        (aside / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (aside / "README.md").write_text(model_card(target.name, card), encoding="utf-8")
        put_in_place(aside, target)
    ctx.log(f"saved checkpoint {target.name}")


@contextmanager
def first_process_first() -> Iterator[None]:
    """The first process goes through the block alone; the others follow, and find its files."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    from accelerate import PartialState

    with PartialState().main_process_first():
        yield


def stop_everywhere(ctx: RunContext[Any]) -> bool:
    """Whether any process of the run was asked to stop; then all know it."""
    if anywhere(ctx.stopping):
        ctx.stop()
    return ctx.stopping

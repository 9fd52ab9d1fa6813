"""What a trainer tells the run while it works: metrics, curves, progress, alarms, stop, an end when the loss is no number.

Not what is trained: any trainer built on transformers' Trainer can take the callback.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import TrainingError
from training.alarms import Alarms

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from engine.runs import RunContext

METRICS = (
    "loss",
    "grad_norm",
    "learning_rate",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "entropy",
    "kl",
    "mean_token_accuracy",
    "num_tokens",
    "step_time",
)
METRIC_GROUPS = ("clip_ratio/", "completions/", "verdicts/", "rewards/", "guards/", "sampling/", "held_out/")

Evaluate = Callable[[Any], Mapping[str, float]]
"""Measures the model in training (its adapter, if it has one, in place); the first number is the one to raise."""


def kept_metrics(logs: dict[str, Any]) -> dict[str, float]:
    """The logged numbers that a run stores: reward, loss, entropy, clip ratios, lengths, verdicts, timing."""
    return {
        name: float(value)
        for name, value in logs.items()
        if (name in METRICS or name.startswith(METRIC_GROUPS)) and isinstance(value, int | float)
    }


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete ``checkpoint-N`` in ``folder``; a save that a kill cut off is passed over.

    The trainer writes ``trainer_state.json`` last, so a folder in which it is missing or torn is incomplete.
    """
    for path in sorted(folder.glob("checkpoint-*"), key=step_of, reverse=True):
        if trainer_state(path).get("global_step") == step_of(path):
            return path
    return None


def trainer_state(checkpoint: Path) -> dict[str, Any]:
    """What the trainer kept beside its weights: step, log, best; {} where it is missing or torn."""
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def step_of(checkpoint: Path | None) -> int:
    """The optimizer step that ``checkpoint-N`` was saved after; 0 without a checkpoint."""
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def run_callback(
    ctx: RunContext[Any],
    stop_every: int = 1,
    *,
    headline: str = "loss",
    part: str = "",
    curves: Path | None = None,
    evaluate: Evaluate | None = None,
    evaluate_every: int | None = None,
) -> TrainerCallback:
    """A callback that reports to ``ctx`` after every optimizer step.

    A stop is obeyed, after a save, at the next multiple of ``stop_every`` (optimizer steps a generation batch):
    a trainer resumed in the middle of a batch would pair its prompts with another batch's completions.
    ``headline``: the number beside the progress. ``part``: a piece of work before the training proper, such as
    ``warm start``; its numbers are named ``warm_start/…`` and its steps are no progress. ``curves``: a folder for TensorBoard's event files.
    ``evaluate`` is called every ``evaluate_every`` steps, rounded up to whole batches, under a random state of its
    own; the checkpoint of the best first number is kept beside the newest ones.
    Raises TrainingError from inside the training when loss or gradient is not a finite number.
    """
    from transformers import TrainerCallback

    prefix = part.replace(" ", "_") + "/" if part else ""
    every = -(-evaluate_every // stop_every) * stop_every if evaluate and evaluate_every else 0

    class RunCallback(TrainerCallback):
        def __init__(self) -> None:
            self.shown = math.nan
            self.alarms = Alarms()
            self.writer: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if curves and ctx.main:
                from torch.utils.tensorboard import SummaryWriter

                # what an attempt that was killed wrote after the last checkpoint is hidden
                self.writer = SummaryWriter(str(curves), purge_step=state.global_step + 1)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            metrics = kept_metrics(logs or {})
            self.report(state.global_step, {prefix + name: value for name, value in metrics.items()})
            for name in ("loss", "grad_norm"):
                if not math.isfinite(metrics.get(name, 0.0)):
                    folder = Path(args.output_dir)
                    raise TrainingError(_diverged(name, metrics[name], state.global_step, folder))
            self.shown = metrics.get(headline, self.shown)
            message = "" if math.isnan(self.shown) else f"{headline} {self.shown:.2f}"
            if part:
                ctx.progress(
                    0, None, "steps", f"{part}: step {state.global_step}/{state.max_steps}, {message}"
                )
            else:
                ctx.progress(state.global_step, state.max_steps, "steps", message)

        def report(self, step: int, metrics: dict[str, float]) -> None:
            ctx.metrics(step, metrics)
            if self.writer:
                for name, value in metrics.items():
                    self.writer.add_scalar(name, value, step)
            for alarm in self.alarms.add(step, metrics):
                ctx.log(f"alarm: {alarm}")

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            step = state.global_step
            if step % stop_every == 0 and anywhere(ctx.stopping):
                ctx.stop()
                control.should_save = True
                control.should_training_stop = True
            if every and (step % every == 0 or step >= state.max_steps):
                self.measure(state, control, model)

        def measure(self, state: Any, control: Any, model: Any) -> None:
            """Measure, and let the trainer keep the checkpoint of this step if it is the best so far."""
            assert evaluate is not None
            found = dict(evaluate(model))
            self.report(state.global_step, found)
            value = next(iter(found.values()), -math.inf)
            if state.best_metric is None or value > state.best_metric:
                state.best_metric, state.best_global_step = value, state.global_step
                control.should_save = True

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.writer:
                self.writer.close()

    return RunCallback()


def anywhere(flag: bool) -> bool:
    """Whether ``flag`` is set in any process of this training: all must stop at the same step."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return flag
    import torch

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    flags = torch.tensor([int(flag)], device=device)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags.item())


def _diverged(name: str, value: float, step: int, folder: Path) -> str:
    good = last_checkpoint(folder)
    kept = (
        f"the last good checkpoint is {good.name} in {good.parent}"
        if good
        else "no checkpoint was saved before"
    )
    return f"{name} became {value} at step {step}; {kept}. Start a new run with a lower learning rate"

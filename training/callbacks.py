"""What a trainer tells the run while it works: metrics, progress, stop, and an end when the loss is no number.

Not what is trained: any trainer built on transformers' Trainer can take the callback.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import TrainingError

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
    "step_time",
)
METRIC_GROUPS = ("clip_ratio/", "completions/", "verdicts/", "sampling/")


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
        try:
            state = json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if state.get("global_step") == step_of(path):
            return path
    return None


def step_of(checkpoint: Path | None) -> int:
    """The optimizer step that ``checkpoint-N`` was saved after; 0 without a checkpoint."""
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def run_callback(ctx: RunContext[Any], stop_every: int) -> TrainerCallback:
    """A callback that reports to ``ctx`` after every optimizer step.

    A stop is obeyed, after a save, at the next multiple of ``stop_every`` (optimizer steps a generation batch):
    a trainer resumed in the middle of a batch would pair its prompts with another batch's completions.
    Raises TrainingError from inside the training when loss or gradient is not a finite number.
    """
    from transformers import TrainerCallback

    class RunCallback(TrainerCallback):
        reward = math.nan

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            metrics = kept_metrics(logs or {})
            for name, value in metrics.items():
                ctx.metric(name, state.global_step, value)
            for name in ("loss", "grad_norm"):
                if not math.isfinite(metrics.get(name, 0.0)):
                    raise TrainingError(
                        _diverged(name, metrics[name], state.global_step, Path(args.output_dir))
                    )
            self.reward = metrics.get("reward", self.reward)
            message = "" if math.isnan(self.reward) else f"reward {self.reward:.2f}"
            ctx.progress(state.global_step, state.max_steps, "steps", message)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if ctx.stopping and state.global_step % stop_every == 0:
                control.should_save = True
                control.should_training_stop = True

    return RunCallback()


def _diverged(name: str, value: float, step: int, folder: Path) -> str:
    good = last_checkpoint(folder)
    kept = (
        f"the last good checkpoint is {good.name} in {good.parent}"
        if good
        else "no checkpoint was saved before"
    )
    return f"{name} became {value} at step {step}; {kept}. Start a new run with a lower learning rate"

"""What the curves of a run are called in plain words, what good looks like, and which are drawn together.

One line a panel: whoever adds a metric adds it here. Not here: alarms (``training.alarms``) or drawing (``charts``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Panel:
    """One small figure: its title, a sentence on what good looks like, and (metric, name of the line) in it.

    ``share``: values between 0 and 1, shown as per cent. ``first``: on screen at once, not behind "More curves".
    """

    title: str
    good: str
    lines: tuple[tuple[str, str], ...]
    share: bool = False
    first: bool = True

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.lines)


PANELS = (
    Panel("Reward", "Rises, then levels off. It is noisy: follow the thick line.", (("reward", "reward"),)),
    Panel(
        "Accuracy on held-out problems",
        "Rises with the reward. If the reward rises alone, the training problems are learnt by heart.",
        (("held_out/accuracy", "one judgment"), ("held_out/majority", "majority vote")),
        share=True,
    ),
    Panel(
        "Groups that all agree",
        "Stays well below 90 %. A group whose rewards are all equal teaches nothing.",
        (("frac_reward_zero_std", "groups of equal reward"),),
        share=True,
    ),
    Panel(
        "Entropy",
        "Sinks slowly and stays above zero. A steep fall means that nothing new is tried any more.",
        (("entropy", "entropy"),),
    ),
    Panel(
        "Verdicts",
        "Positive stays near the share of + in the set (half, if balanced); no verdict goes to zero.",
        (("verdicts/positive", "positive"), ("verdicts/none", "no verdict")),
        share=True,
    ),
    Panel(
        "Clipped share",
        "Small but not zero: zero everywhere means that clip-higher never acts.",
        (("clip_ratio/high_mean", "upper clip"), ("clip_ratio/low_mean", "lower clip")),
        share=True,
    ),
    Panel(
        "Length (tokens)",
        "Steady. Growth without more reward is padding; a fall to a few tokens means no reasoning is left.",
        (("completions/mean_length", "mean"), ("completions/max_length", "longest")),
    ),
    Panel(
        "Cut off at the token limit",
        "Near zero. What is cut off has no verdict and no reward: raise the limit.",
        (("completions/clipped_ratio", "cut off"),),
        share=True,
    ),
    Panel(
        "Outcome and process reward",
        "Both rise. If only the process reward does, the policy pleases the judge and not the task.",
        (("rewards/outcome", "outcome"), ("rewards/process", "process")),
    ),
    Panel(
        "Chunks a solution",
        "Steady. More and more chunks, or empty ones, is the judge being gamed.",
        (
            ("guards/chunks", "chunks"),
            ("guards/empty_chunks", "empty"),
            ("guards/repeated_chunks", "repeated"),
        ),
    ),
    Panel(
        "Well-formed solutions",
        "Near 100 %: every chunk closed, one boxed answer.",
        (("guards/well_formed", "well-formed"),),
        share=True,
    ),
    Panel(
        "Penalty of the guards",
        "Goes to zero: what length, number of chunks and empty chunks cost a solution.",
        (("guards/penalty", "penalty"),),
    ),
    Panel(
        "Loss",
        "Falls, steeply at first. With GRPO it stays near zero whatever is learnt: look at the reward.",
        (("loss", "training"), ("eval_loss", "held out"), ("held_out/loss", "held out")),
    ),
    Panel(
        "Tokens predicted right",
        "Rises towards 100 % on what is trained on.",
        (("mean_token_accuracy", "training"), ("held_out/token_accuracy", "held out")),
        share=True,
    ),
    Panel(
        "Size of the gradient",
        "Steady. Spikes mean that the learning rate is high; zero means that nothing is learnt.",
        (("grad_norm", "norm"),),
        first=False,
    ),
    Panel("Learning rate", "As the recipe says.", (("learning_rate", "rate"),), first=False),
    Panel("Seconds a step", "Steady.", (("step_time", "seconds"),), first=False),
    Panel(
        "Sampler against trainer",
        "Near zero: what generates has the weights that are trained.",
        (
            ("sampling/sampling_logp_difference/mean", "mean"),
            ("sampling/sampling_logp_difference/max", "largest"),
        ),
        first=False,
    ),
    Panel("Spread of the reward", "Above zero: groups differ.", (("reward_std", "deviation"),), first=False),
    Panel(
        "Tokens a second",
        "Steady; it falls when the machine is busy with something else.",
        (("tokens_per_s", "tokens/s"),),
    ),
    Panel(
        "Prefixes a second",
        "Steady. A prefix counts when its last draw is in; thrift makes it faster, long continuations slower.",
        (("prefixes_per_s", "prefixes/s"),),
    ),
    Panel(
        "Waiting for",
        "Nearly all for the model: then it never idles. Much for grader or store means that they hold it up.",
        (("waiting_llm", "model"), ("waiting_grader", "grader"), ("waiting_store", "store")),
        share=True,
    ),
)
_KNOWN = {metric for panel in PANELS for metric in panel.metrics}


def panels(names: Collection[str], *, first: bool) -> list[Panel]:
    """The panels that have a line among ``names``; ``first`` or the others, those without words of their own last."""
    found = [panel for panel in PANELS if panel.first is first and set(panel.metrics) & set(names)]
    if not first:
        found += [
            Panel(readable(name), "", ((name, name),), first=False) for name in sorted(set(names) - _KNOWN)
        ]
    return found


def first_metrics() -> list[str]:
    """Metrics that are on screen at once."""
    return [metric for panel in PANELS if panel.first for metric in panel.metrics]


def readable(name: str) -> str:
    """A metric's or a result's own name as words."""
    return name.replace("_", " ").replace("/", ": ").replace(".", ": ")

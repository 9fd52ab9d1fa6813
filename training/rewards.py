"""Rewards of the trainers: plain functions of completions and labels, in TRL's signature. No model is loaded here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.judge import parse_verdict

VERDICT_OF = {"+": "positive", "-": "negative"}
"""The verdict that agrees with a label."""


def verdict_reward(
    completions: Sequence[str],
    label: Sequence[str],
    log_metric: Callable[[str, float], None] | None = None,
    **_: Any,
) -> list[float | None]:
    """1 where the boxed verdict equals the label (``+`` or ``-``), else 0; no verdict is 0 (StepWiser §3.3).

    ``completions`` and ``label`` have one entry a completion; TRL passes ``log_metric`` and columns not used here.
    """
    verdicts = [parse_verdict(text) for text in completions]
    if log_metric and verdicts:
        log_metric("verdicts/none", verdicts.count(None) / len(verdicts))
        log_metric("verdicts/positive", verdicts.count("positive") / len(verdicts))
    return [float(v == VERDICT_OF[wanted]) for v, wanted in zip(verdicts, label, strict=True)]

"""What a run gives its function, kept in memory: for tests of trainers. Same names as engine.runs.RunContext."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from db.rows import NewRunSample


@dataclass
class Context:
    """``stop_at``: a stop is asked for during that step. Curves, log lines and samples are read back by the test."""

    recipe: Any
    home: Path
    llm_keys: dict[str, str] = field(default_factory=dict, init=False)
    run_id: int = 1
    stop_at: int = 10**9
    stopping: bool = False
    main: bool = True
    actor: str = "ada"
    store: Any = field(
        default_factory=lambda: SimpleNamespace(run=lambda run_id: SimpleNamespace(uid=f"uid-{run_id}"))
    )
    values: dict[tuple[str, int], float] = field(default_factory=dict)
    drawn: dict[int, list[NewRunSample]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    facts_: dict[str, str] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return int(self.recipe.seed)

    def stop(self) -> None:
        self.stopping = True

    def log(self, message: str) -> None:
        self.lines.append(message)

    def progress(self, done: int, total: int | None, unit: str, message: str = "") -> None:
        self.messages.append(f"{done}/{total} {unit} {message}")
        self.stopping = self.stopping or done >= self.stop_at

    def metric(self, name: str, step: int, value: float) -> None:
        self.metrics(step, {name: value})

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.values.setdefault((name, step), value)  # as the store does: what is there stays

    def samples(self, step: int, rows: Sequence[NewRunSample]) -> None:
        self.drawn.setdefault(step, list(rows))

    def facts(self, prompt_hashes: dict[str, str]) -> None:
        self.facts_ |= prompt_hashes

    def curve(self, name: str) -> list[float]:
        """Values of one metric in the order of steps."""
        ordered = sorted(self.values.items(), key=lambda item: item[0][1])
        return [value for (metric, _), value in ordered if metric == name]

"""Guards against reward hacking: what a policy could do to please a judge without solving anything, counted and priced.

Counted always, so that the curves show it; priced only where the recipe says so. The numbers go into
``process_rewards.Scored`` as penalties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from engine.recipes import Part
from training.rewards import length_penalty


class Guards(Part):
    """What habits that please a judge for nothing cost, in units of reward; 0: only counted."""

    empty_chunk: float = Field(0.0, ge=0, description="Cost of each chunk without text")
    repeated_chunk: float = Field(
        0.0, ge=0, description="Cost of each chunk that says word for word what an earlier one said"
    )
    extra_chunk: float = Field(0.0, ge=0, description="Cost of each chunk beyond most_chunks")
    most_chunks: int = Field(12, ge=1, description="Chunks a solution may have before they count as extra")
    malformed: float = Field(
        0.0, ge=0, description="Cost of a solution without usable chunk tags or without a boxed answer"
    )
    length: float = Field(
        0.0,
        ge=0,
        description="Cost of a solution at the token limit, growing evenly from half the limit on (DAPO)",
    )


@dataclass(frozen=True)
class Habits:
    """What one solution does. ``empty``, ``repeated``, ``extra``: yes or no for each chunk."""

    empty: tuple[bool, ...]
    repeated: tuple[bool, ...]
    extra: tuple[bool, ...]
    well_formed: bool
    tokens: int

    @property
    def curves(self) -> dict[str, float]:
        """The numbers whose means are logged, by the end of their metric's name."""
        return {
            "chunks": len(self.empty),
            "empty_chunks": sum(self.empty),
            "repeated_chunks": sum(self.repeated),
            "extra_chunks": sum(self.extra),
            "well_formed": float(self.well_formed),
        }


def habits_of(chunks: Sequence[str], *, well_formed: bool, tokens: int, guards: Guards) -> Habits:
    """The habits of a solution with these chunk texts; white space and case do not make a chunk a new one."""
    plain = [" ".join(chunk.lower().split()) for chunk in chunks]
    return Habits(
        empty=tuple(not text for text in plain),
        repeated=tuple(bool(text) and text in plain[:place] for place, text in enumerate(plain)),
        extra=tuple(place >= guards.most_chunks for place in range(len(plain))),
        well_formed=well_formed,
        tokens=tokens,
    )


def chunk_prices(habits: Habits, guards: Guards) -> tuple[float, ...]:
    """What each chunk pays."""
    return tuple(
        guards.empty_chunk * empty + guards.repeated_chunk * repeated + guards.extra_chunk * extra
        for empty, repeated, extra in zip(habits.empty, habits.repeated, habits.extra, strict=True)
    )


def solution_price(habits: Habits, guards: Guards, limit: int) -> float:
    """What the solution pays as a whole; ``limit``: the most new tokens it may have."""
    (long,) = length_penalty([range(habits.tokens)], limit)
    return guards.malformed * (not habits.well_formed) - guards.length * long

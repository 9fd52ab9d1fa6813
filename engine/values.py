"""The value of a prefix: successes over rollouts, with its interval. Does not know where the counts come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from engine.errors import InputError

COUNTED = ("correct", "wrong", "unparsed", "truncated")
"""Outcomes in a value's denominator; ``error`` says something about the grader, not about the prefix."""

MAX_ERROR_SHARE = Fraction(1, 10)
"""With a larger share of errors among all draws the value is unknown."""


@dataclass(frozen=True)
class Value:
    """k successes in n graded rollouts, ``errors`` more that the grader failed on; or exact, at a terminal prefix.

    ``exact`` True or False is the grade of the finished solution (value 1 or 0) and has no rollouts. ``left``: draws
    that were spared because the labels asked for could no longer change; such a stopped estimate has bounds and an
    interval and no point value. ``decided``: texts of the rules that it was stopped under: their labels beside it are
    known all the same (``engine.labels.label``). Raises InputError on counts that cannot be.
    """

    successes: int = 0
    n: int = 0
    errors: int = 0
    exact: bool | None = None
    left: int = 0
    decided: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.n or self.errors < 0 or self.left < 0:
            raise InputError(
                f"impossible counts: {self.successes} of {self.n} correct, {self.errors} errors, {self.left} left"
            )
        if self.exact is not None and (self.n or self.errors or self.left):
            raise InputError(
                f"an exact value has no rollouts, and this one has {self.n + self.errors + self.left}"
            )

    @property
    def known(self) -> bool:
        """Exact, or at least one graded rollout, none spared and at most 10 % errors."""
        if self.exact is not None:
            return True
        return self.n > 0 and not self.left and self.errors <= MAX_ERROR_SHARE * (self.n + self.errors)

    @property
    def q(self) -> Fraction | None:
        """The value as an exact fraction; None where it is unknown."""
        if not self.known:
            return None
        return Fraction(self.successes, self.n) if self.exact is None else Fraction(int(self.exact))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Equal-tailed Jeffreys interval with lower end 0 at k = 0 and upper end 1 at k = n.

        An exact value is its own interval, a stopped one has that of what was drawn, and any other that is unknown
        could be anything. After Brown, Cai and DasGupta,
        "Interval Estimation for a Binomial Proportion" (2001), section 4.1.1.
        """
        if self.exact is not None:
            return float(self.exact), float(self.exact)
        if self.known or (self.left and self.n):
            return _jeffreys(self.successes, self.n, level)
        return 0.0, 1.0

    @property
    def bounds(self) -> tuple[Fraction, Fraction] | None:
        """The least and the greatest that k / n can become once every draw is made and graded.

        Equal where the value is known without errors; None where nothing was drawn and nothing was spared.
        """
        if self.exact is not None:
            return Fraction(int(self.exact)), Fraction(int(self.exact))
        total, open_ = self.n + self.errors + self.left, self.errors + self.left
        if not total:
            return None
        return Fraction(self.successes, total), Fraction(self.successes + open_, total)


UNKNOWN = Value()


@lru_cache(maxsize=65536)
def _jeffreys(k: int, n: int, level: float) -> tuple[float, float]:
    from scipy.special import betaincinv  # a third of a second that pages without values do not pay

    a, b = k + 0.5, n - k + 0.5
    low = 0.0 if k == 0 else float(betaincinv(a, b, (1 - level) / 2))
    high = 1.0 if k == n else float(betaincinv(a, b, (1 + level) / 2))
    return low, high


def value_of(outcome_counts: Mapping[str, int], left: int = 0, decided: tuple[str, ...] = ()) -> Value:
    """Value of a prefix from how often each outcome was drawn. Raises InputError on an unknown outcome."""
    if unknown := set(outcome_counts) - {*COUNTED, "error"}:
        raise InputError(f"unknown outcome {sorted(unknown)[0]!r}; there are {', '.join(COUNTED)} and error")
    return Value(
        successes=outcome_counts.get("correct", 0),
        n=sum(outcome_counts.get(outcome, 0) for outcome in COUNTED),
        errors=outcome_counts.get("error", 0),
        left=left,
        decided=decided if left else (),
    )


def terminal_value(outcome: str) -> Value:
    """Value of a finished solution: its grade. A truncated solution has no terminal prefix, an error no grade."""
    if outcome not in (*COUNTED, "error"):
        raise InputError(f"unknown outcome {outcome!r}; there are {', '.join(COUNTED)} and error")
    return UNKNOWN if outcome in ("truncated", "error") else Value(exact=outcome == "correct")


def leave_one_out(value: Value, outcome: str) -> Value:
    """The value without one of its draws, which had this outcome: a solution's own share in its q_{-1}.

    Raises InputError where the value holds no such draw.
    """
    if outcome == "error":
        return Value(value.successes, value.n, value.errors - 1)
    if outcome not in COUNTED:
        raise InputError(f"unknown outcome {outcome!r}; there are {', '.join(COUNTED)} and error")
    return Value(value.successes - (outcome == "correct"), value.n - 1, value.errors)

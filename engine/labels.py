"""Labels of chunks from the values before and after them: three rules, how sure a label is, where it would flip.

All comparisons are exact (integers and fractions; parameters are parsed from their text). Rules after 2508.19229,
section 3.2: abs-q, rel-effective (their eq. for the effective reward under best-of-n) and rel-ratio. Does not cover
what people or judges say of a chunk, but for ``effective_label``, which puts the two together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

from engine.errors import RecipeError
from engine.values import Value

Label = Literal["+", "-"]


@dataclass(frozen=True)
class Rule:
    """A label rule with its parameters. ``str`` gives the text that ``parse_rule`` reads."""

    name: str
    gamma: Fraction | None = None
    alpha: Fraction | None = None
    n: int | None = None

    def __str__(self) -> str:
        given = [("gamma", self.gamma), ("alpha", self.alpha), ("n", self.n)]
        parameters = ",".join(f"{name}={_plain(value)}" for name, value in given if value is not None)
        return f"{self.name}:{parameters}" if parameters else self.name

    @property
    def warning(self) -> str | None:
        """What a reader should know before using these parameters."""
        if self.gamma is not None and self.gamma >= 1:
            return f"γ = {_plain(self.gamma)} labels a chunk - that keeps a sure success (1 → 1)"
        return None


ABS_Q = Rule("abs-q")
REL_EFFECTIVE = Rule("rel-effective", alpha=Fraction(2, 5), n=4)
REL_RATIO = Rule("rel-ratio", gamma=Fraction(4, 5))
DEFAULT_RULES = (ABS_Q, REL_EFFECTIVE, REL_RATIO)
_DEFAULTS = {rule.name: rule for rule in DEFAULT_RULES}


MOST = 1000
"""Largest parameter of a rule."""
_WRITTEN_OUT = re.compile(r"[+-]?\d{0,12}(?:\.\d{0,12}|/\d{1,12})?")


def parse_rule(text: str) -> Rule:
    """Read ``name`` or ``name:parameter=value,…``; a parameter left out has its default.

    Raises RecipeError on an unknown rule or parameter and on a value that is no number or out of range
    (gamma and alpha of 0 … 1,000, n a whole number of 1 … 1,000). Numbers are written out: ``0.8`` or ``4/5``.
    """
    name, _, rest = text.strip().partition(":")
    if name not in _DEFAULTS:
        raise RecipeError(f"label rule {text!r}: unknown rule {name!r}; there are {', '.join(_DEFAULTS)}")
    default = _DEFAULTS[name]
    found: dict[str, Fraction] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in ("gamma", "alpha", "n") or getattr(default, key) is None or key in found:
            raise RecipeError(f"label rule {text!r}: {name} takes no {key!r} here; its default is {default}")
        found[key] = _number(text, key, value)
    n = found.pop("n", None)
    return Rule(
        name,
        gamma=found.get("gamma", default.gamma),
        alpha=found.get("alpha", default.alpha),
        n=default.n if n is None else int(n),
    )


def _number(text: str, key: str, value: str) -> Fraction:
    try:
        if not _WRITTEN_OUT.fullmatch(value):  # 1e999999999 would be computed, for ever
            raise ValueError
        number = Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise RecipeError(
            f"label rule {text[:80]!r}: {key} is {value[:40]!r}, which is not a number written out"
        ) from None
    if not 0 <= number <= MOST or (key == "n" and (number < 1 or number.denominator != 1)):
        raise RecipeError(f"label rule {text!r}: {key} = {value} is out of range")
    return number


def _plain(value: Fraction | int) -> str:
    """Shortest exact text of a number: a decimal where it ends, else a fraction."""
    twos_and_fives = Fraction(value).denominator
    for factor in (2, 5):
        while twos_and_fives % factor == 0:
            twos_and_fives //= factor
    if twos_and_fives != 1 or Fraction(value).denominator == 1:
        return str(value)
    exponent = next(e for e in range(1, 1000) if (value * 10**e).denominator == 1)
    digits = str(int(value * 10**exponent)).rjust(exponent + 1, "0")
    return f"{digits[:-exponent]}.{digits[-exponent:]}"


def label(rule: Rule, before: Value, after: Value) -> Label | None:
    """The rule's label of the chunk between two values; None where a value that the rule reads is unknown.

    abs-q reads only the value after the chunk. A stopped value that names this very rule is known as far as the rule
    needs it: the label is given if it is the same for every outcome of the draws that were spared.
    """
    q_before, q_after = before.q, after.q
    if rule.name == "abs-q":
        q_before, before = Fraction(0), Value(exact=False)
    if q_before is None or q_after is None:
        return _decided(rule, before, after)
    return "+" if _positive(rule, q_before, q_after) else "-"


def _decided(rule: Rule, before: Value, after: Value) -> Label | None:
    """The label beside a stopped value: every rule is monotone, so two extremes speak for all that lies between.

    Any other rule gives none, even where chance has decided it: what chance decides is not a fair sample.
    """
    of_before, of_after = _between(rule, before), _between(rule, after)
    if of_before is None or of_after is None:
        return None
    if _positive(rule, of_before[1], of_after[0]):
        return "+"
    return None if _positive(rule, of_before[0], of_after[1]) else "-"


def _between(rule: Rule, value: Value) -> tuple[Fraction, Fraction] | None:
    """Least and greatest that the value can turn out to be, where the rule may speak of it at all."""
    if value.q is not None:
        return value.q, value.q
    return value.bounds if not value.errors and str(rule) in value.decided else None


def _positive(rule: Rule, q_before: Fraction, q_after: Fraction) -> bool:
    """The rules as products, so that a value of 0 before the chunk needs no special case."""
    if rule.gamma is not None:
        return q_after > rule.gamma * q_before
    if rule.alpha is not None and rule.n is not None:
        return q_after + rule.alpha * (_best_of(q_after, rule.n) - _best_of(q_before, rule.n)) > 0
    return q_after > 0


def _best_of(q: Fraction, n: int) -> Fraction:
    """Chance that at least one of n draws succeeds: u = 1 - (1 - q)^n."""
    return 1 - (1 - q) ** n


def drop(before: Value, after: Value) -> Fraction | None:
    """How much chance of success the chunk lost (negative: it gained); None where a value is unknown."""
    return None if before.q is None or after.q is None else before.q - after.q


def flip_gamma(before: Value, after: Value) -> Fraction | None:
    """γ* = q_i / q_{i-1}: rel-ratio says + exactly for γ below it. None: unknown, or q_{i-1} = 0 and no γ matters."""
    return None if after.q is None or not before.q else after.q / before.q


def flip_alpha(before: Value, after: Value, n: int) -> Fraction | None:
    """α* for a best-of-n policy: rel-effective says + exactly for α below it.

    None: a value is unknown, or u did not fall, and then the label is the same for every α >= 0.
    """
    if before.q is None or after.q is None:
        return None
    fall = _best_of(before.q, n) - _best_of(after.q, n)
    return after.q / fall if fall > 0 else None


def confidence(rule: Rule, before: Value, after: Value) -> float | None:
    """Probability that fresh draws of the same size would give the same label; None without a label or beside a
    stopped value, whose size nobody knows.

    Each value is taken as Beta(1/2 + k, 1/2 + n - k), so that fresh successes are beta-binomial; the two are
    independent and an exact value stays as it is. A sum over all outcomes, no simulation.
    """
    given = label(rule, before, after)
    if given is None:
        return None
    if rule.name == "abs-q":
        before = Value(exact=False)  # not read by the rule, and so of no influence
    if before.left or after.left:
        return None
    positive = _chance_of_plus(rule, *_counts(before), *_counts(after))
    return positive if given == "+" else 1 - positive


def _counts(value: Value) -> tuple[int, int, bool]:
    """Successes, draws and whether they are exact (an exact value as 0 or 1 out of 1)."""
    return (value.successes, value.n, False) if value.exact is None else (int(value.exact), 1, True)


@lru_cache(maxsize=65536)
def _chance_of_plus(
    rule: Rule,
    k_before: int,
    n_before: int,
    exact_before: bool,
    k_after: int,
    n_after: int,
    exact_after: bool,
) -> float:
    mass_before = fresh_draws(k_before, n_before, exact_before)
    # at_least[t]: probability of t or more successes after the chunk
    at_least = list(accumulate(reversed((*fresh_draws(k_after, n_after, exact_after), 0.0))))[::-1]
    thresholds = plus_thresholds(rule, n_before, n_after)
    return min(1.0, sum(mass * at_least[t] for mass, t in zip(mass_before, thresholds, strict=True)))


@lru_cache(maxsize=4096)
def fresh_draws(k: int, n: int, exact: bool) -> tuple[float, ...]:
    """Probability of 0..n successes in n fresh draws: beta-binomial with Beta(1/2 + k, 1/2 + n - k)."""
    if exact:
        return tuple(float(j == k) for j in range(n + 1))
    import numpy as np
    from scipy.special import betaln

    j, a, b = np.arange(n + 1), k + 0.5, n - k + 0.5
    log_mass = betaln(j + a, n - j + b) - betaln(a, b) - betaln(j + 1, n - j + 1) - np.log(n + 1)
    mass = np.exp(log_mass)
    return tuple((mass / mass.sum()).tolist())


@lru_cache(maxsize=1024)
def plus_thresholds(rule: Rule, n_before: int, n_after: int) -> tuple[int, ...]:
    """For 0..n_before successes before the chunk, the least number after it that makes the label +.

    n_after + 1: none does. Every rule is monotone: + stays + when the value after rises or the one before falls.
    """
    thresholds: list[int] = []
    least = 0
    for k_before in range(n_before + 1):
        q_before = Fraction(k_before, n_before)
        while least <= n_after and not _positive(rule, q_before, Fraction(least, n_after)):
            least += 1
        thresholds.append(least)
    return tuple(thresholds)


@dataclass(frozen=True)
class RuleLabel:
    """What one rule says of a chunk; both None where a value is unknown."""

    label: Label | None
    confidence: float | None


def label_all(before: Value, after: Value, rules: Sequence[Rule] = DEFAULT_RULES) -> dict[Rule, RuleLabel]:
    """Label and confidence under every rule, in the order given."""
    return {rule: RuleLabel(label(rule, before, after), confidence(rule, before, after)) for rule in rules}


def label_row(before: Value, after: Value) -> dict[str, Any]:
    """The cached columns of a chunk's labels under the default rules (db.tables.ChunkLabel, but for the chunk)."""
    return dict(_label_row(before, after))


@lru_cache(maxsize=65536)  # M draws leave few pairs of values
def _label_row(before: Value, after: Value) -> dict[str, Any]:
    row: dict[str, Any] = {
        "before_k": before.successes if before.known else None,
        "before_n": before.n if before.known else None,
        "after_k": after.successes if after.known else None,
        "after_n": after.n if after.known else None,
        "after_exact": None if after.exact is None else int(after.exact),
        "q_before": _float(before.q),
        "q_after": _float(after.q),
        "drop": _float(drop(before, after)),
        "gamma_flip": _float(flip_gamma(before, after)),
    }
    for rule, given in label_all(before, after).items():
        column = rule.name.replace("-", "_")
        row |= {column: given.label, f"{column}_conf": given.confidence}
    return row


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


Source = Literal["adjudication", "review", "disagreement", "abstained", "rule", "none"]


def effective_label(
    adjudication: int | None, reviews: Sequence[int | None], rule_label: Label | None
) -> tuple[Label | None, Source]:
    """The label in force and where it comes from.

    ``adjudication``: 1, -1 or 0 (no label); None: there is none. ``reviews``: verdicts in force, one a reviewer;
    1 sound, -1 error, 0 neutral and None "cannot tell" abstain. Reviewers who disagree leave no label, and only
    where nobody reviewed the rule speaks.
    """
    if adjudication is not None:
        return _sign(adjudication), "adjudication"
    said = {verdict for verdict in reviews if verdict}
    if len(said) > 1:
        return None, "disagreement"
    if said:
        return _sign(said.pop()), "review"
    if reviews:
        return None, "abstained"
    return rule_label, "rule" if rule_label else "none"


def _sign(verdict: int) -> Label | None:
    return "+" if verdict > 0 else "-" if verdict < 0 else None

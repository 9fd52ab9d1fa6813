"""Values in words: how many draws, the interval, why a prefix was stopped early. Not: how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from engine.errors import RecipeError
from engine.labels import Rule, parse_rule
from engine.values import Value


def describe(value: Value) -> str:
    """A value in words: "13 of 16 correct = 0.81, 95 % interval 0.58 to 0.94"."""
    if value.exact is not None:
        return f"graded {'correct' if value.exact else 'wrong'}: Q is exactly {int(value.exact)}"
    low, high = value.interval()
    if value.q is not None:
        share = f"{value.successes} of {value.n} correct = {float(value.q):.2f}"
        return f"{share}, 95 % interval {low:.2f} to {high:.2f}"
    if value.left:
        drawn = f"{value.successes} of {value.n} correct"
        interval = f", 95 % interval {low:.2f} to {high:.2f}" if value.n else ""
        return f"{stopped_words(value)}: {drawn}{interval}; {_between(value)}"
    if value.errors:
        return f"value unknown ({value.errors} of {value.n + value.errors} not graded); {_between(value)}"
    return "no value: nothing was rolled out from here"


def stopped_words(value: Value) -> str:
    """Why there are fewer draws than a stopped value would have in all."""
    drawn, left = value.n + value.errors, value.left
    of = f"stopped after {drawn} of {drawn + left} draws"
    if value.decided:
        labels = "label" if len(value.decided) == 1 else "labels"
        return f"{of} because the {labels} under {rule_list(value.decided)} could no longer change"
    return f"{of}: its run ended before a label was decided"


def rule_list(texts: Iterable[str]) -> str:
    """Rules, as recipes write them, in words: ``abs-q and rel-ratio (γ = 0.8)``."""
    words = [_rule_text(text) for text in texts]
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} and {words[-1]}"


def _rule_text(text: str) -> str:
    try:
        rule = parse_rule(text)
    except RecipeError:  # a store that a later version wrote: its text is not ours to repeat
        return "another rule"
    return f"{rule.name} ({rule_words(rule)})" if rule_words(rule) else rule.name


def rule_words(rule: Rule) -> str:
    """The rule's parameters in words, as exact as recipes write them: ``γ = 0.8``."""
    given = str(rule).partition(":")[2]
    return given.replace("gamma=", "γ = ").replace("alpha=", "α = ").replace(",n=", ", n = ")


def fraction_words(value: Value) -> str:
    """A value in a few signs: ``13/16``, ``1 (graded)``, ``1/5 of 16`` (stopped), ``unknown`` or ``not rolled out``."""
    if value.exact is not None:
        return f"{int(value.exact)} (graded)"
    if value.left:
        return f"{value.successes}/{value.n} of {value.n + value.errors + value.left}"
    if value.known:
        return f"{value.successes}/{value.n}"
    return "unknown" if value.n or value.errors else "not rolled out"


def moved_words(before: Value, after: Value) -> str:
    """The two values around a chunk and how far Q moved: ``9/16 → 4/16 (−0.31)``; empty where both are unknown."""
    if not (before.known or after.known or before.left or after.left):
        return ""
    by = ""
    if before.q is not None and after.q is not None:
        step = float(after.q - before.q)
        by = f" ({'−' if step < 0 else '+'}{abs(step):.2f})" if step else " (±0)"
    return f"{fraction_words(before)} → {fraction_words(after)}{by}"


def span_words(value: Value) -> str:
    """What a value is, or between what it would be: ``0.81`` or ``0.06 to 0.75``."""
    if value.q is not None:
        return short(value.q)
    if value.bounds is None:
        return "unknown"
    return f"{short(value.bounds[0])} to {short(value.bounds[1])}"


def short(value: Fraction) -> str:
    """A number with at most two decimals; three digits of one that is not a whole number and would look like one."""
    text = f"{float(value):.2f}".rstrip("0").rstrip(".")
    return text if Fraction(text) == value or "." in text else f"{float(value):.3g}"


def _between(value: Value) -> str:
    if value.bounds is None:
        return "no bounds"
    return f"Q would be {float(value.bounds[0]):.2f} to {float(value.bounds[1]):.2f}"

"""Label rules side by side over γ, α and n: how many of which label, how sure, and how often people agree.

From stored counts and reviews alone; no text is read. A rule asks "did the chance of success fall?", a person "is
there an error here?": what is measured as agreement holds both the rule's noise and that difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.label_grid import GridLabels, LabelGrid
from engine.labels import DEFAULT_RULES, Rule, effective_label, parse_rule
from engine.recipes import Selection
from engine.values import Value
from training.sets.examples import Labelled
from training.sets.stored import check_selection, stored_counts

if TYPE_CHECKING:
    from db.store import Store

GAMMAS = ("0.6", "0.7", "0.8", "0.9", "1", "1.1", "1.2")
ALPHAS = ("0.2", "0.4", "0.6", "0.8", "1")
NS = ("2", "4", "8")
RESAMPLES = 2000


@dataclass(frozen=True)
class Agreement:
    """A rule's labels against people's on ``n`` reviewed chunks of ``problems`` problems.

    ``share`` of them agree; ``low`` and ``high`` hold 95 %: problems are drawn anew (chunks of one problem err
    together), and the interval is never narrower than Wilson's for as many chunks. ``balanced`` is the mean of the
    shares on people's + and on people's -; None where people gave only one of the two.
    """

    n: int
    problems: int
    share: float
    low: float
    high: float
    balanced: float | None


@dataclass(frozen=True)
class SweepRow:
    """One rule on the selected chunks. ``sure``: share of the labels with at least the asked confidence."""

    rule: str
    name: str
    gamma: float | None
    alpha: float | None
    n: int | None
    positive: int
    negative: int
    unlabelled: int
    mean_confidence: float | None
    sure: float | None
    sure_positive: int
    sure_negative: int
    agreement: Agreement | None


@dataclass(frozen=True)
class Chosen:
    """What reviews choose among one kind of rule's parameters, measured where they did not choose.

    ``first`` and ``second``: the best on either half of the reviewed problems. ``held_out``: agreement on all reviewed
    chunks, each under the rule that the *other* half chose. None where a half has no reviewed chunk.
    """

    name: str
    first: str | None
    second: str | None
    held_out: Agreement | None


@dataclass(frozen=True)
class SweepTable:
    """``chunks`` were selected, ``reviewed`` of them have a person's + or -."""

    chunks: int
    reviewed: int
    min_confidence: float
    rows: tuple[SweepRow, ...]
    chosen: tuple[Chosen, ...]


def swept_rules(
    gammas: Iterable[str] = GAMMAS, alphas: Iterable[str] = ALPHAS, ns: Iterable[str] = NS
) -> list[Rule]:
    """abs-q, rel-effective at every α and n, rel-ratio at every γ. Raises RecipeError on a bad value."""
    ns = list(ns)
    texts = [
        "abs-q",
        *(f"rel-effective:alpha={alpha},n={n}" for alpha in alphas for n in ns),
        *(f"rel-ratio:gamma={gamma}" for gamma in gammas),
    ]
    return list(dict.fromkeys(parse_rule(text) for text in texts))


def sweep(
    store: Store,
    select: Selection,
    *,
    rules: Sequence[Rule] | None = None,
    min_confidence: float = 0.8,
    seed: int = 0,
) -> SweepTable:
    """Every rule on every selected chunk. ``rules``: ``swept_rules()`` unless given.

    Raises TrainingError where nothing is selected.
    """
    check_selection(store, select)
    return sweep_chunks(stored_counts(store, select), rules, min_confidence=min_confidence, seed=seed)


def sweep_chunks(
    chunks: Iterable[Labelled],
    rules: Sequence[Rule] | None = None,
    *,
    min_confidence: float = 0.8,
    seed: int = 0,
) -> SweepTable:
    """``sweep`` over chunks that were read already."""
    rules = swept_rules() if rules is None else rules
    pairs: dict[tuple[Value, Value], int] = {}
    times: list[int] = []
    said: list[tuple[int, int, int]] = []  # (pair, person's sign, problem)
    for chunk in chunks:
        pair = pairs.setdefault((chunk.before, chunk.after), len(pairs))
        if pair == len(times):
            times.append(0)
        times[pair] += 1
        given, _ = effective_label(chunk.adjudication, chunk.reviews, None)
        if given:
            said.append((pair, 1 if given == "+" else -1, chunk.problem_id))
    grid, counts = LabelGrid(list(pairs)), np.array(times, dtype=np.int64)
    people = _People(said, seed)
    labels = {rule: grid.under(rule) for rule in rules}
    rows = tuple(_row(rule, labels[rule], counts, min_confidence, people) for rule in rules)
    names = [rule.name for rule in DEFAULT_RULES if any(r.name == rule.name for r in rules)]
    chosen = tuple(people.choose(name, {r: labels[r] for r in rules if r.name == name}) for name in names)
    return SweepTable(int(counts.sum()), len(said), min_confidence, rows, chosen)


def _row(
    rule: Rule, labels: GridLabels, counts: NDArray[np.int64], min_confidence: float, people: _People
) -> SweepRow:
    known = labels.sign != 0
    sure = known & (np.nan_to_num(labels.confidence) >= min_confidence)
    told = known & ~np.isnan(labels.confidence)  # beside a stopped value a label has none
    n_known = int(counts[known].sum())
    return SweepRow(
        rule=str(rule),
        name=rule.name,
        gamma=None if rule.gamma is None else float(rule.gamma),
        alpha=None if rule.alpha is None else float(rule.alpha),
        n=rule.n,
        positive=int(counts[labels.sign > 0].sum()),
        negative=int(counts[labels.sign < 0].sum()),
        unlabelled=int(counts[~known].sum()),
        mean_confidence=float(np.average(labels.confidence[told], weights=counts[told]))
        if told.any()
        else None,
        sure=float(counts[sure].sum() / n_known) if n_known else None,
        sure_positive=int(counts[sure & (labels.sign > 0)].sum()),
        sure_negative=int(counts[sure & (labels.sign < 0)].sum()),
        agreement=people.agreement(labels.sign),
    )


class _People:
    """The reviewed chunks: which pair of values each has, what people said, its problem, the problem's half."""

    def __init__(self, said: Sequence[tuple[int, int, int]], seed: int):
        rows = np.array(said, dtype=np.int64).reshape(-1, 3)
        self.pair, self.sign, self.problem = rows[:, 0], rows[:, 1], rows[:, 2]
        self.seed = seed
        self.half = self._halves()

    def _halves(self) -> NDArray[Any]:
        """True: the second half. Problems in the order of a hash of seed and problem, every other one."""
        order = sorted(
            set(self.problem.tolist()),
            key=lambda p: hashlib.sha256(f"{self.seed}/half/{p}".encode()).digest(),
        )
        second = set(order[1::2])
        return np.array([p in second for p in self.problem.tolist()], dtype=bool)

    def agreement(self, sign: NDArray[np.int8]) -> Agreement | None:
        """A rule (sign a pair) against people on all reviewed chunks that it labels."""
        return self._measure(sign[self.pair])

    def choose(self, name: str, labels: dict[Rule, GridLabels]) -> Chosen:
        best: list[Rule | None] = []
        for half in (~self.half, self.half):
            scores = {rule: _score(labels[rule].sign[self.pair][half], self.sign[half]) for rule in labels}
            best.append(_best({rule: score for rule, score in scores.items() if score is not None}))
        first, second = best
        held_out = None
        if first and second:
            mine = np.where(self.half, labels[first].sign[self.pair], labels[second].sign[self.pair])
            held_out = self._measure(mine)
        return Chosen(name, str(first) if first else None, str(second) if second else None, held_out)

    def _measure(self, sign: NDArray[Any]) -> Agreement | None:
        known = sign != 0
        n = int(known.sum())
        if not n:
            return None
        right = (sign == self.sign) & known
        problems, place = np.unique(self.problem[known], return_inverse=True)
        hits = np.bincount(place, weights=right[known])
        totals = np.bincount(place)
        rng = np.random.default_rng(self.seed)
        drawn = rng.multinomial(len(problems), np.full(len(problems), 1 / len(problems)), RESAMPLES)
        low, high = np.quantile((drawn @ hits) / (drawn @ totals), [0.025, 0.975])
        least, most = _wilson(int(hits.sum()), n)
        return Agreement(
            n=n,
            problems=len(problems),
            share=float(hits.sum() / n),
            low=min(float(low), least),
            high=max(float(high), most),
            balanced=_balanced(sign[known], self.sign[known]),
        )


def _score(sign: NDArray[Any], said: NDArray[Any]) -> float | None:
    """What a half chooses by: balanced agreement, so that the commoner verdict does not decide; else plain."""
    known = sign != 0
    if not known.any():
        return None
    balanced = _balanced(sign[known], said[known])
    return float((sign == said)[known].mean()) if balanced is None else balanced


def _balanced(sign: NDArray[Any], said: NDArray[Any]) -> float | None:
    shares = [float((sign == said)[said == one].mean()) for one in (1, -1) if (said == one).any()]
    return sum(shares) / 2 if len(shares) == 2 else None


def _best(scores: dict[Rule, float]) -> Rule | None:
    """The rule with the highest score; among equals the one nearest the middle of them, in the order given."""
    if not scores:
        return None
    top = max(scores.values())
    equal = [rule for rule, score in scores.items() if score >= top - 1e-12]
    return equal[(len(equal) - 1) // 2]


def _wilson(k: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; loading scipy.stats for it would burden the pages' process."""
    share = k / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return (0.0 if k == 0 else middle - half), (1.0 if k == n else middle + half)

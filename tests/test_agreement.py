"""Agreement of raters and paired comparison of judges: equal to the libraries that are used for it elsewhere."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.evaluate.agreement import among_many, between_two
from engine.evaluate.bootstrap import figures
from engine.evaluate.paired import Case, compare

CLASSES = ("+", "-", "0")
ANSWERS = st.sampled_from(CLASSES)
PAIRS = st.lists(st.tuples(st.integers(1, 5), ANSWERS, ANSWERS), min_size=1, max_size=60)
UNITS = st.lists(
    st.tuples(st.integers(1, 5), st.lists(ANSWERS, min_size=0, max_size=4)), min_size=1, max_size=40
)


def same(found: float | None, expected: float) -> bool:
    """Equal, where "not defined" is None here and NaN there."""
    return found is None if not np.isfinite(expected) else found == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_cohens_kappa_is_scikit_learns(pairs: list[tuple[int, str, str]]) -> None:
    from sklearn.metrics import accuracy_score, cohen_kappa_score

    first, second = [a for _, a, _ in pairs], [b for _, _, b in pairs]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = cohen_kappa_score(first, second)
    found = between_two(pairs, resamples=20)
    assert same(found.kappa.value, expected)
    assert found.raw.value == pytest.approx(accuracy_score(first, second))
    assert (found.n, found.problems) == (len(pairs), len({problem for problem, _, _ in pairs}))


@settings(max_examples=60, deadline=None)
@given(UNITS)
def test_krippendorffs_alpha_is_the_librarys(units: list[tuple[int, list[str]]]) -> None:
    import krippendorff

    counts = [[values.count(c) for c in CLASSES] for _, values in units]
    found = among_many(units, resamples=20)
    used = {value for _, values in units if len(values) > 1 for value in values}
    if len(used) < 2:  # the library refuses what is not defined
        assert found.alpha.value is None
        return
    expected = krippendorff.alpha(
        value_counts=np.array(counts), value_domain=list(CLASSES), level_of_measurement="nominal"
    )
    assert same(found.alpha.value, expected)


@settings(max_examples=60, deadline=None)
@given(UNITS)
def test_fleiss_kappa_is_statsmodels(units: list[tuple[int, list[str]]]) -> None:
    from statsmodels.stats.inter_rater import fleiss_kappa

    found = among_many(units, resamples=20)
    usual = [values for _, values in units if len(values) == found.fleiss_raters > 1]
    assert found.fleiss_n == len(usual)
    if not usual:
        assert found.fleiss.value is None
        return
    sizes = [len(values) for _, values in units if len(values) > 1]
    assert sizes.count(found.fleiss_raters) == max(sizes.count(size) for size in sizes)
    with np.errstate(all="ignore"):
        expected = fleiss_kappa(np.array([[values.count(c) for c in CLASSES] for values in usual]))
    assert same(found.fleiss.value, expected)


def test_raw_agreement_of_many_is_the_mean_share_of_pairs() -> None:
    found = among_many([(1, "++-"), (1, "++"), (2, "+"), (3, "--")], resamples=20)
    assert found.raw.value == pytest.approx((1 / 3 + 1 + 1) / 3)
    assert (found.n, found.problems, found.answers) == (3, 2, 7)


def test_intervals_draw_whole_problems() -> None:
    """Ten copies of each problem's one chunk are no more evidence than the chunk: an interval by chunk would shrink."""
    rng = random.Random(1)
    once = [(problem, rng.choice("+-"), rng.choice("+-")) for problem in range(30)]
    one = between_two(once, seed=3)
    ten = between_two([pair for pair in once for _ in range(10)], seed=3)
    assert (one.kappa.low, one.kappa.high) == pytest.approx((ten.kappa.low, ten.kappa.high))
    apart = between_two([(10 * p + i, a, b) for p, a, b in once for i in range(10)], seed=3)
    assert one.kappa.low is not None and one.kappa.high is not None
    assert apart.kappa.low is not None and apart.kappa.high is not None
    assert (apart.kappa.high - apart.kappa.low) < 0.5 * (one.kappa.high - one.kappa.low)


def test_the_interval_is_the_percentile_bootstraps() -> None:
    """Against draws made here one at a time, by scikit-learn's kappa."""
    from sklearn.metrics import cohen_kappa_score

    rng = random.Random(2)
    pairs = [(p, a, a if rng.random() < 0.8 else "-") for p in range(40) for a in rng.choices("+-", k=3)]
    by_problem: dict[int, list[tuple[str, str]]] = {}
    for problem, a, b in pairs:
        by_problem.setdefault(problem, []).append((a, b))
    drawn = []
    for _ in range(500):
        some = [pair for p in rng.choices(sorted(by_problem), k=len(by_problem)) for pair in by_problem[p]]
        drawn.append(cohen_kappa_score([a for a, _ in some], [b for _, b in some]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    found = between_two(pairs, resamples=4000).kappa
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.04)


def test_no_interval_from_one_problem_and_no_value_from_nothing() -> None:
    one = between_two([(1, "+", "+"), (1, "-", "+")])
    assert one.raw.value == 0.5 and one.raw.low is None
    nothing = between_two([])
    assert (nothing.n, nothing.raw.value, nothing.kappa.value) == (0, None, None)
    assert among_many([(1, "+")]).alpha.value is None
    assert figures({}, [lambda sums: sums[..., 0]])[0].value is None


def test_the_same_seed_gives_the_same_interval() -> None:
    pairs = [(p, "+" if p % 3 else "-", "+" if p % 4 else "-") for p in range(40)]
    assert between_two(pairs, seed=7) == between_two(pairs, seed=7)
    assert between_two(pairs, seed=7).kappa.low != between_two(pairs, seed=8).kappa.low


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from("+-"), st.sampled_from("+-?"), st.sampled_from("+-?")),
        min_size=1,
        max_size=60,
    )
)
def test_two_judges_scores_are_scikit_learns(rows: list[tuple[int, str, str, str]]) -> None:
    from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

    found = compare([Case(*row) for row in rows], resamples=20)
    truth = [row[1] for row in rows]
    for scores, said in ((found.first, [r[2] for r in rows]), (found.second, [r[3] for r in rows])):
        assert scores.accuracy.value == pytest.approx(accuracy_score(truth, said))
        options = {"labels": ["-"], "average": "micro", "zero_division": np.nan}
        assert same(scores.f1.value, f1_score(truth, said, **options))
        assert same(scores.precision.value, precision_score(truth, said, **options))
        assert same(scores.recall.value, recall_score(truth, said, **options))


def test_fixes_and_regressions_are_paired() -> None:
    rows = [
        (1, "-", "+", "-"),
        (1, "-", "-", "+"),
        (2, "+", "+", "+"),
        (2, "+", "?", "-"),
        (3, "-", "?", "-"),
    ]
    found = compare([Case(*row) for row in rows])
    assert found.changes == {"fixed": 2, "regressed": 1, "both right": 1, "both wrong": 1}
    assert (found.n, found.problems, found.errors) == (5, 3, 3)
    assert found.accuracy_gap.value == pytest.approx(1 / 5)
    assert found.f1_gap.value == pytest.approx(found.second.f1.value - found.first.f1.value)  # type: ignore[operator]


def test_a_gap_is_surer_than_two_intervals_suggest() -> None:
    """Problems are hard for both judges at once: the interval of the difference is narrower than either judge's."""
    rng = random.Random(5)
    cases = []
    for problem in range(60):
        hard = rng.random() < 0.5
        for _ in range(4):
            first = "-" if not hard or rng.random() < 0.1 else "+"
            second = "-" if not hard or rng.random() < 0.3 else "+"
            cases.append(Case(problem, "-", first, second))
    found = compare(cases)

    def width(figure: object) -> float:
        return figure.high - figure.low  # type: ignore[attr-defined, no-any-return]

    assert width(found.accuracy_gap) < 0.8 * min(width(found.first.accuracy), width(found.second.accuracy))
    assert found.accuracy_gap.low > 0  # type: ignore[operator]

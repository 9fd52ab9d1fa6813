"""Grading speed with a cold cache: answers a processor second, and what an answer that never finishes costs.

Plain numbers are compared in this process, other answers in a grading process; of these four different ones share a
reference, as the rollouts of a problem do, two right and two wrong. Processor time, because a machine is seldom idle. Not the
store's cache, which answers what was compared before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from statistics import median

import psutil
from rich.console import Console

from app.bench import Bar, conclude
from engine.answers import Grader, Reference

PLAIN, OTHER, BEHIND, ROUNDS = 20_000, 1_000, 100, 3
WARM = 99
"""Seed of the answers that come first: a grading process learns the grammar as it reads."""
ENDLESS = ("9**9**9**9", "9^{9^{9^{9}}}", "10^{10^{10}}")
WORK = " ".join(f"Step {n}: {n} + {n} = {2 * n}, so x_{{{n}}} is {2 * n}." for n in range(12))
"""What stands before the box: as long as a short solution."""

Item = tuple[str, Reference, str | None]


def grading(console: Console) -> int:
    """Bars: 5,000 plain and 400 other answers a second and core; 5 s for an endless one, which delays no other."""
    plain = median(_rate(_plain(turn)) for turn in range(ROUNDS))
    other = median(_rate(_other(turn)) for turn in range(ROUNDS))
    endless, late = _endless()
    rows = [
        ("plain numbers, a round", f"{PLAIN:,}"),
        ("other answers, a round", f"{OTHER:,}"),
        ("other answers behind an endless one, two processes", f"{BEHIND} × {len(ENDLESS)}"),
    ]
    bars = [
        Bar("plain numbers per second and core", plain, 5_000),
        Bar("other answers per second and core", other, 400),
        Bar("seconds of the longest endless answer", endless, 5.0, "<="),
        Bar("other answers that came out behind an endless one", late, 0.0, "<="),
    ]
    return conclude(console, "grading", rows, bars)


def _rate(items: Sequence[Item]) -> float:
    """Answers a processor second of this process and its grading process together, which has read others before."""
    with Grader(workers=1) as grader:
        grader.grade_many(_other(WARM)[:BEHIND])
        before = _processor_s()
        grader.grade_many(items)
        return len(items) / (_processor_s() - before)


def _processor_s() -> float:
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children())]
    return sum(time.user + time.system for time in times)


def _item(answer: str, reference: str) -> Item:
    return f"{WORK} So the answer is $\\boxed{{{answer}}}$.", Reference(reference), "stop"


def _plain(seed: int) -> list[Item]:
    """Integers, decimals, fractions, some with commas or a sign, right and wrong."""
    draw = random.Random(seed)
    items = []
    for _ in range(PLAIN):
        right, given = draw.randint(-5000, 5000), draw.randint(-5000, 5000)
        value = right if draw.random() < 0.5 else given
        written = draw.choice(
            (f"{value}", f"{value:,}", f"{value}.0", f"\\frac{{{2 * value}}}{{2}}", f"{3 * value}/3")
        )
        items.append(_item(written if value >= 0 else f"{value}", str(right)))
    return items


def _other(seed: int) -> list[Item]:
    """Surds, polynomials, sets, tuples, intervals, equations, units, percentages, fractions: all answers different."""
    draw = random.Random(seed)
    items = []
    for n in range(OTHER // 4):
        a, b = draw.randint(2, 99), 1000 * seed + n + 2
        kinds = (
            (
                f"{a}\\sqrt{{{b}}}",
                f"\\sqrt{{{b}}} \\cdot {a}",
                f"{a + 1}\\sqrt{{{b}}}",
                f"{a}\\sqrt[3]{{{b}}}",
            ),
            (f"{b}+{a}x+x^2", f"x^2 + {a}x + {b}", f"x^2+{b}x+{a}", f"{a}x+{b}"),
            (f"\\{{{b}, {a}\\}}", f"{a}, {b}", f"\\{{{a}\\}}", f"\\{{{b}, {a}, 1\\}}"),
            (f"({a}, {b})", f"\\left({a},{b}\\right)", f"({b}, {a})", f"({a}, {b + 1})"),
            (f"[{a},{a + b})", f"\\left[{a}, {a + b}\\right)", f"[{a},{a + b}]", f"({a},{a + b})"),
            (f"x={b}", f"x = {b}.0", f"x={a}", f"y={b + 1}"),
            (f"{b}\\text{{ cm}}", f"{b}\\mathrm{{~cm}}", f"{a}\\text{{ cm}}", f"{b + 1} cm"),
            (f"{b}\\%", f"{b} \\%", f"{a}\\%", f"{b}.5\\%"),
            (
                f"\\frac{{{b}}}{{{a}}}\\pi",
                f"\\frac{{{b}\\pi}}{{{a}}}",
                f"\\frac{{{a}\\pi}}{{{b}}}",
                f"{b}\\pi",
            ),
            (
                f"\\frac{{x+{a}}}{{{b}}}",
                f"\\dfrac{{{a}+x}}{{{b}}}",
                f"\\frac{{x+{b}}}{{{a}}}",
                f"\\frac{{x}}{{{b}}}",
            ),
        )
        reference = kinds[n % len(kinds)][0]
        items += [_item(f" {answer}", reference) for answer in kinds[n % len(kinds)]]
    return items


def _endless() -> tuple[float, int]:
    """Seconds of the longest endless answer, and how many of the others that came in behind one came out behind it."""
    longest, late = 0.0, 0
    for turn, answer in enumerate(ENDLESS):
        with Grader(workers=2) as grader:
            grader.grade_many(_other(WARM))
            started = time.perf_counter()
            grader.submit("endless", *_item(answer, "5"))
            grader.submit_many((n, *item) for n, item in enumerate(_other(ROUNDS + turn)[:BEHIND]))
            out: list[object] = []
            while len(out) <= BEHIND:
                came = [key for key, _ in grader.results()]
                if "endless" in came:
                    longest = max(longest, time.perf_counter() - started)
                    late += BEHIND - len(out) - came.index("endless")
                out += came
                time.sleep(0.005)
    return longest, late

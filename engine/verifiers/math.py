r"""Mathematics in the last ``\boxed{…}``: exactly for plain numbers, by math-verify for everything else.

The hard time limit is in grader_process.py, the five outcomes and the cache are in answers.py.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from engine.boxes import find_boxes, last_box
from engine.errors import GraderError, InputError
from engine.verifiers import quick_parse, quick_refute
from engine.verifiers.base import Comparison

WHOLE = False

CPU_LIMIT_S = 1.0
"""Processor seconds for one comparison. Not wall seconds, as math-verify's own limit has them: on a busy machine
those turn right answers into errors."""

_INTEGER = r"\d{1,3}(?:,\d{3})+|\d+"
_PLAIN = re.compile(
    rf"(?P<sign>-?)(?:(?P<whole>{_INTEGER})?(?P<decimals>\.\d+)|(?P<over>{_INTEGER})/(?P<under>\d+)"
    rf"|(?P<integer>{_INTEGER})|\\[dt]?frac\{{(?P<top>\d+)\}}\{{(?P<bottom>\d+)\}})"
)
_SCIENTIFIC = re.compile(
    r"(?P<mantissa>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?:[eE](?P<e>[+-]?\d{1,3})|\s*(?:\\times|\\cdot|×)\s*10\^(?:\{(?P<braced>[+-]?\d{1,3})\}|(?P<power>\d)))"
)
# math-verify rounds to six decimals as soon as one side has a decimal point: numbers closer than this are its affair.
_NEAR = Fraction(1, 400_000)
# Full-width forms (１２，（５）) that Chinese texts use, and the ideographic space, as their ASCII twins.
_ASCII_TWINS = {0xFF01 + i: 0x21 + i for i in range(94)} | {0x3000: 0x20, 0: None}


@dataclass(frozen=True)
class _Number:
    """A plain number: its exact value, and how it was written."""

    value: Fraction
    written: Literal["exact", "decimal", "scientific"]


# An upright i is the imaginary unit and not a word.
_UPRIGHT_LETTER = re.compile(r"\\(?:mathrm|text)\{([a-z])\}")
# 10\,000 and 10 000 are ten thousand; math-verify reads 10 times 0.
_GROUPS = re.compile(r"(?<!\d)[1-9]\d{0,2}(?:(?:\\[,:;! ]|~|\s)+\d{3})+(?!\d)")
_NO_DIGITS = re.compile(r"\D+")
# 5元 and 12 平方厘米 are the number; 5万 is not 5.
_CJK_UNIT = re.compile(r"(?<=[\d})])\s*(?![万亿兆千百十成折])[\u4e00-\u9fff]{1,6}$")


def clean(answer: str) -> str:
    """An answer without NUL, full-width characters, space between groups of three digits, a stop or a Chinese unit
    behind it, white space around it."""
    answer = answer.translate(_ASCII_TWINS).strip().rstrip("。").removesuffix(".").strip()
    answer = _GROUPS.sub(lambda groups: _NO_DIGITS.sub("", groups[0]), answer)
    return _UPRIGHT_LETTER.sub(r"\1", _CJK_UNIT.sub("", answer))


def _number(text: str) -> _Number | None:
    """Read an integer, decimal or fraction, e-notation or a power of ten; None for all else, and for many digits."""
    text = text.removeprefix("$").removesuffix("$").strip()
    if len(text) > 30:
        return None
    if scientific := _SCIENTIFIC.fullmatch(text):
        exponent = scientific["e"] or scientific["braced"] or scientific["power"]
        return _Number(Fraction(f"{scientific['mantissa']}e{exponent}"), "scientific")
    found = _PLAIN.fullmatch(text)
    if not found:
        return None
    sign = -1 if found["sign"] else 1
    if found["decimals"]:
        digits = (found["whole"] or "0").replace(",", "") + found["decimals"]
        return _Number(sign * Fraction(digits), "decimal") if len(digits) <= 15 else None
    top = (found["over"] or found["integer"] or found["top"]).replace(",", "")
    bottom = int(found["under"] or found["bottom"] or 1)
    return _Number(sign * Fraction(int(top), bottom), "exact") if bottom else None


def extract(text: str) -> str | None:
    """What the last box holds."""
    return last_box(text)


def kept(answer: str) -> str:
    return answer


def limit_s(reference: str, usual: float) -> float:
    return usual


def words(reference: str) -> str:
    return reference


def refusal() -> str | None:
    return None


def compare_here(answer: str, reference: str) -> Comparison | None:
    """Compare two plain numbers exactly; None where one is not plain, or where math-verify's rounding decides."""
    left, right = _number(clean(answer)), _number(clean(reference))
    if left is None or right is None:
        return None
    if left.value == right.value:
        return "correct"
    written = {left.written, right.written}
    if "scientific" not in written and "decimal" in written and abs(left.value - right.value) < _NEAR:
        return None
    return "wrong"


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Raise math-verify's TimeoutException after so many processor seconds, and again until somebody lets it out."""
    from math_verify.errors import TimeoutException

    def stop(*_: object) -> None:
        raise TimeoutException

    try:
        before = signal.signal(signal.SIGPROF, stop)
    except ValueError:
        raise GraderError("comparing works in the main thread only; use a Grader elsewhere") from None
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def compare(answer: str, reference: str) -> Comparison:
    """Compare an answer (what a box holds) with the reference, in this process.

    For answers that we wrote, and in the main thread only (its limit is a signal, which some computations in C
    outlast): ``Grader`` is the way for all others. Raises InputError where the reference cannot be read, and
    GraderError where math-verify fails or does not finish.
    """
    plain = compare_here(answer, reference)
    if plain is not None:
        return plain
    import math_verify
    from math_verify.errors import TimeoutException

    quick_parse.install()
    quick_refute.install()
    try:
        with _cpu_limit(CPU_LIMIT_S):
            gold, target = _read(clean(reference)), _read(clean(answer))
            right = math_verify.verify(gold, target, timeout_seconds=None, raise_on_error=True)
    except TimeoutException:
        raise GraderError(
            f"answer {answer[:80]!r}: not compared within {CPU_LIMIT_S:g} processor seconds"
        ) from None
    except GraderError:
        raise
    except Exception as problem:
        raise GraderError(
            f"answer {answer[:80]!r}: {type(problem).__name__}: {str(problem)[:200]}"
        ) from problem
    if not gold:
        raise InputError(f"the reference answer {reference[:80]!r} cannot be read")
    return "correct" if right else "wrong"


@lru_cache(maxsize=4096)
def _read(text: str) -> list[Any]:
    """What math-verify makes of the content of a box: expressions, and the text itself where it is none."""
    import math_verify

    number = _number(text)
    if (
        number and number.written == "scientific"
    ):  # math-verify takes an e for Euler's number and rounds 10^{-9} to 0
        text = f"\\frac{{{number.value.numerator}}}{{{number.value.denominator}}}"
    # Python's power is no LaTeX: only math-verify's reader of plain expressions knows it.
    source = text if "**" in text else f"\\boxed{{{text}}}"
    return math_verify.parse(source, parsing_timeout=None, raise_on_error=True)


def reference_problem(reference: str) -> str | None:
    """Why this text cannot serve as a reference answer; None if it can."""
    if not clean(reference):
        return "the answer is empty"
    boxes = find_boxes(f"\\boxed{{{reference}}}")
    if not boxes or boxes[0].content != reference:
        return f"the answer {reference[:80]!r} has braces that do not match"
    try:
        itself = compare(reference, reference)
        compare("7919/104729", reference)  # it must also be cheap to tell from something else
    except (GraderError, InputError):
        return f"the answer {reference[:80]!r} cannot be computed; give its value, as a number or in LaTeX"
    words_only = all(part.isalpha() for part in clean(reference).split())
    if itself != "correct" or not (
        words_only or any(not isinstance(part, str) for part in _read(clean(reference)))
    ):
        return f"the answer {reference[:80]!r} cannot be read as mathematics; give a number, LaTeX or plain words"
    return None

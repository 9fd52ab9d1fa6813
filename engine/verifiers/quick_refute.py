"""Spares math-verify its dearest steps, ``simplify`` and ``solve``, where a number proves that they find no equality.

Both sides are evaluated at one point in interval arithmetic, whose bounds are certain. Sides that are surely apart
there are different expressions, and simplifying keeps what an expression is worth. Near ones, and expressions of other
than sums, products, powers and real numbers, go the way that math-verify goes. Not: anything that says equal.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import Any
from zlib import crc32

MARGIN = 1e-5
"""Sides are apart if they differ by more than this share of (1 + both): math-verify rounds to six decimals."""
_HIGHEST_POWER = 64
_LARGEST = 10**12


class _UnknownError(Exception):
    """An expression that is not evaluated here."""


@cache
def install() -> None:
    """Once in a process, for all of its comparing."""
    from math_verify import grader

    simplified, solved = grader.sympy_symbolic_eq, grader.sympy_solve_and_compare

    @wraps(simplified)
    def symbolic_eq(a: Any, b: Any) -> bool:
        return not apart(a, b) and simplified(a, b)

    @wraps(solved)
    def solve_and_compare(gold: Any, pred: Any, *limits: int) -> bool:
        return not _assign_differently(gold, pred) and solved(gold, pred, *limits)

    grader.sympy_symbolic_eq, grader.sympy_solve_and_compare = symbolic_eq, solve_and_compare


def apart(left: Any, right: Any) -> bool:
    """Whether two sympy objects are surely different numbers where each symbol has a certain value."""
    try:
        return _surely_apart(_bounded(left), _bounded(right))
    except _UnknownError:
        return False


def _assign_differently(gold: Any, pred: Any) -> bool:
    """Whether these are x = 3 and x = 4, or x = 3 and y = 3: one solution each, and not the same."""
    from sympy import Eq

    if not all(
        isinstance(one, Eq) and one.lhs.is_Symbol and not one.rhs.free_symbols for one in (gold, pred)
    ):
        return False
    try:
        left, right = _bounded(gold.rhs), _bounded(pred.rhs)
    except _UnknownError:
        return False
    return gold.lhs != pred.lhs or _surely_apart(left, right)


def _surely_apart(left: Any, right: Any) -> bool:
    return (abs(left - right) > MARGIN * (1 + abs(left) + abs(right))) is True  # None: the bounds overlap


def _bounded(one: Any) -> Any:
    """The interval that holds the value. Raises _UnknownError where that is no real number of usual size."""
    from sympy import Expr

    if not isinstance(one, Expr):
        raise _UnknownError
    try:
        value = _value(one)
    except (ArithmeticError, ValueError, RecursionError, NotImplementedError):
        raise _UnknownError from None
    if (abs(value) < _LARGEST) is not True:  # a division by zero has no bounds
        raise _UnknownError
    return value


def _value(one: Any) -> Any:
    from mpmath import iv
    from sympy import E, UnevaluatedExpr, exp, pi

    if one.is_Rational and one.is_finite:
        return iv.mpf(int(one.p)) / int(one.q)
    if one.is_Float and one.is_finite:
        return iv.make_mpf((one._mpf_, one._mpf_))
    if one.is_Symbol:
        return 1 + iv.mpf(crc32(one.name.encode()) % 65_536) / 65_536
    if one in (pi, E):
        return +(iv.pi if one == pi else iv.e)
    if isinstance(one, UnevaluatedExpr):
        return _value(one.args[0])
    if one.is_Add:
        return sum((_value(part) for part in one.args), iv.mpf(0))
    if one.is_Mul:
        product = iv.mpf(1)
        for part in one.args:
            product *= _value(part)
        return product
    if one.is_Pow or isinstance(one, exp):
        return _power(_value(one.base), one.exp)
    raise _UnknownError


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_Integer and abs(exponent) <= _HIGHEST_POWER:
        return base ** int(exponent)
    power = _value(exponent)
    if (base > 0) is True and (abs(power) <= _HIGHEST_POWER) is True:
        return base**power
    raise _UnknownError

"""Makes math-verify read LaTeX several times faster and find the same.

ANTLR's SLL prediction gives the tree that its LL prediction would give, or a syntax error (ANTLR's documentation of
``PredictionMode.SLL``); only then is the text parsed again in the dear way, which math-verify uses for every text.
sympy imports all of itself by name for every number that it reads from a text: here once. Not: what the trees mean.
"""

from __future__ import annotations

import builtins
import types
from functools import cache, wraps
from typing import Any


@cache
def install() -> None:
    """Once in a process, for all of its reading."""
    _look_ahead_cheaply()
    _import_names_once()


def _look_ahead_cheaply() -> None:
    from antlr4.atn.PredictionMode import PredictionMode
    from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy

    create = _Latex2Sympy.create_parser

    @wraps(create)
    def create_quick(self: Any, text: str) -> Any:
        parser = create(self, text)
        parser._interp.predictionMode = PredictionMode.SLL
        cheap = parser.math

        def math() -> Any:
            try:
                return cheap()
            except Exception as problem:
                if type(problem) is not Exception:  # the listener raises bare ones, for syntax errors
                    raise
                return create(self, text).math()

        parser.math = math
        return parser

    _Latex2Sympy.create_parser = create_quick


def _import_names_once() -> None:
    """Give ``parse_expr`` the names that it would collect itself, where its caller names none."""
    from sympy import Max, Min
    from sympy.parsing import sympy_parser

    names: dict[str, Any] = {}
    exec("from sympy import *", names)
    names |= {name: one for name, one in vars(builtins).items() if isinstance(one, types.BuiltinFunctionType)}
    names |= {"max": Max, "min": Min}
    parse = sympy_parser.parse_expr

    @wraps(parse)
    def parse_expr(*given: Any, **named: Any) -> Any:
        if len(given) < 4 and named.get("global_dict") is None:
            named["global_dict"] = dict(names)
        return parse(*given, **named)

    sympy_parser.parse_expr = parse_expr

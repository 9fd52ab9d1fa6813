"""Verifiers: how a solution is checked. One module each, all with the functions of ``base.Verifier``.

======  ==========================================================================================
math    the last box, compared as mathematics (the verifier of a problem that names none)
choice  the letter of an option, or its text
text    the same words, whatever their case, spacing and quotation marks
code    a Python program that passes the problem's tests, run in a sandbox (``engine.sandbox``)
======  ==========================================================================================

A problem names its verifier in ``meta["verifier"]``. Five outcomes, worker processes, time limits and the cache are
``engine.answers``'; a verifier knows nothing of them.
"""

from __future__ import annotations

from engine.errors import InputError
from engine.verifiers import choice, code, math, text
from engine.verifiers.base import Comparison, Verifier

__all__ = ["DEFAULT", "VERIFIERS", "Comparison", "Verifier", "verifier"]

DEFAULT = "math"
VERIFIERS: dict[str, Verifier] = {"math": math, "choice": choice, "text": text, "code": code}


def verifier(name: str) -> Verifier:
    """The verifier of this name. Raises InputError."""
    try:
        return VERIFIERS[name]
    except KeyError:
        raise InputError(f"verifier is {name!r:.60}; use one of {', '.join(VERIFIERS)}") from None

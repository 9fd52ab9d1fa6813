r"""Exact text: the same words, whatever their case, width, spacing, quotation marks and final stop.

The answer is what the last ``\boxed{…}`` holds, else what follows the last "answer is" or "Answer:" in its line.
"""

from __future__ import annotations

import re
import unicodedata

from engine.boxes import find_boxes, last_box
from engine.verifiers.base import Comparison

WHOLE = False

_STATED = re.compile(r"\banswer\b\**\s*(?:is\b|:|=)\s*(?::\s*)?(?P<rest>[^\n]+)", re.IGNORECASE)
_TAG = re.compile(r"</?chunk>")
_WRAPPED = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|textrm|operatorname)\s*\{([^{}]*)\}")
_AROUND = " \t\r\n\"'`*$“”‘’„«»「」『』"
_STOPS = ".。!！?？,，;；"


def bare(answer: str) -> str:
    """An answer without what TeX and Markdown put around words, case and width kept."""
    before = None
    while before != answer:
        before = answer
        answer = _WRAPPED.sub(r"\1", answer).strip(_AROUND)
    return answer


def normal(answer: str) -> str:
    """The form in which two texts are compared; of a text that is all marks, the marks themselves."""
    words = " ".join(unicodedata.normalize("NFKC", bare(answer)).casefold().split())
    return words.rstrip(_STOPS).strip(_AROUND) or " ".join(answer.split())


def untagged(text: str) -> str:
    """A solution without its chunk tags, which may stand right behind an answer."""
    return _TAG.sub("", text)


def stated(text: str) -> str | None:
    """What follows the last "answer is" or "Answer:", to the end of its line; a colon alone is nothing."""
    rests = [found["rest"].lstrip(": ").strip() for found in _STATED.finditer(untagged(text))]
    return rests[-1] or None if rests else None


def extract(text: str) -> str | None:
    """The last box, else the last stated answer."""
    return last_box(text) if find_boxes(text) else stated(text)


def kept(answer: str) -> str:
    return bare(answer)


def compare_here(answer: str, reference: str) -> Comparison:
    """Always decides."""
    return "correct" if normal(answer) == normal(reference) else "wrong"


def compare(answer: str, reference: str) -> Comparison:
    return compare_here(answer, reference)


def limit_s(reference: str, usual: float) -> float:
    return usual


def reference_problem(reference: str) -> str | None:
    return None if reference.strip() else "the answer is empty"


def words(reference: str) -> str:
    return reference


def refusal() -> str | None:
    return None

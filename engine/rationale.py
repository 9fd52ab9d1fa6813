"""Finds, in a judge's rationale, the sentence that names the error.

Plain words and signs, no language model: a reader is helped to where to look, and nothing is decided by it. Not here:
the verdict (``judge``).
"""

from __future__ import annotations

import re
from itertools import pairwise

from engine.boxes import find_boxes

_FORMULA = re.compile(r"\$\$[\s\S]*?\$\$|\\\[[\s\S]*?\\\]|\\\([\s\S]*?\\\)|\$[^$\n]*\$|\\boxed\s*\{[^{}]*\}")
_END = re.compile(r"(?<![.!?])[.!?]+[\"”’)\]]*(?=\s|$)|[。！？]+[”’」]*|\n+")
_CUE = re.compile(
    r"\b(?:errors?|mistaken?(?:ly)?|mistakes?|incorrect(?:ly)?|wrong(?:ly)?|invalid|flaw(?:s|ed)?|false|unjustified"
    r"|unsupported|contradict\w*|inconsistent|mis(?:calculat|read|count|appl|quot|interpret|stat|cop)\w*|forg[eo]t\w*"
    r"|omit\w*|overlook\w*|differs?|fails?)\b"
    r"|\b(?:does|do|did|is|are|was|were|has|have|can)(?:\s+not|n['’]t)\s+(?:\w+\s+)?(?:hold|follow|equal|match|agree"
    r"|same|true|right|valid|correct|justified|satisfy|account|include|possible)"
    r"|\bnot\s+(?:the\s+same|equal|valid|correct|true|right|justified|[-−$\\(]*\d)"
    r"|\bshould\s+(?:be|have|equal|read)\b|\binstead\s+of\b|\brather\s+than\b|\bcannot\s+be\b"
    r"|≠|\\n?eq\b(?<=\\neq)|\\ne\b"
    r"|错误|不正确|不对|不等于|应为|应该|应当|矛盾|不成立|有误|算错|漏掉|遗漏",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:no|without(?:\s+any)?|free\s+of|not\s+an?|any|(?:not|n['’]t)\s+(?:\w+\s+)?(?:contain|have|find|see|make)\w*"
    r"\s+(?:an?|any))\s+(?:\w+\s+){0,2}(?:errors?|mistakes?|flaws?|contradictions?)\b"
    r"|\b(?:not|n['’]t)\s+(?:incorrect|wrong|invalid|false|mistaken)\b"
    r"|\b(?:if|whether)\b[^,.;]*\b(?:errors?|mistakes?|wrong|incorrect)\b"
    r"|没有(?:任何|明显的?)?(?:错误|问题)|无误",
    re.IGNORECASE,
)
_CONCRETE = re.compile(r"\d|[“\"「]|\\[a-zA-Z]+|\$")
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+")
_FEW_WORDS = 3
"""A shorter sentence without a figure or a quotation ("It differs.") speaks of the one before it."""


def error_sentence(rationale: str) -> tuple[int, int] | None:
    """Characters [start, end) of the sentence that names the error; None where no sentence speaks of one.

    Sentences are weighed by words that name an error (those that are denied do not count) and by whether they say
    something concrete: a figure, a formula or a quotation. The first of the weightiest is taken, with the one before
    it where it only points back. A sentence never crosses a line, and a formula is never cut.
    """
    found = sentences(rationale)
    weights = [_weight(rationale[start:end]) for start, end in found]
    if not any(weights):
        return None
    best = weights.index(max(weights))
    start, end = found[best]
    said = rationale[start:end]
    points_back = len(_WORD.findall(said)) <= _FEW_WORDS and not _CONCRETE.search(said)
    if points_back and best and "\n" not in rationale[found[best - 1][0] : start]:
        start = found[best - 1][0]
    return start, end


def sentences(text: str) -> list[tuple[int, int]]:
    """Character ranges of the sentences of ``text`` in order, without the white space around them and without boxes."""
    formulas = [match.span() for match in _FORMULA.finditer(text)]
    ends = [
        match.end()
        for match in _END.finditer(text)
        if not any(start < match.start() < end for start, end in formulas)
    ]
    boxes = [(box.start, box.end) for box in find_boxes(text)]
    cuts = sorted({0, len(text), *ends, *(edge for box in boxes for edge in box)})
    found = []
    for start, end in pairwise(cuts):
        body = text[start:end]
        if body.strip() and not any(first <= start and end <= last for first, last in boxes):
            found.append((end - len(body.lstrip()), start + len(body.rstrip())))
    return found


def _weight(sentence: str) -> int:
    cues = len(set(match.lower() for match in _CUE.findall(_DENIED.sub(" ", sentence))))
    return 0 if not cues else 2 * min(cues, 3) + bool(_CONCRETE.search(sentence))

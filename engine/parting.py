"""Two solutions side by side: which of their pieces are the same, and where the others part, word by word.

Plain text in, plain rows out. Not here: which of the two is right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from engine.chunks import CUTTERS, cut

Span = tuple[int, int]
_TAG = re.compile(r"\s*</?chunk>\s*")
_TOKEN = re.compile(r"\\[A-Za-z]+|[\u3040-\u30ff\u4e00-\u9fff]|\w+|\s+|[^\w\s]")
_MOST_WORDS = 2000
"""Longer pieces are not compared word by word: each is marked whole."""
_MOST_PAIRS = 900
_ALIKE = 0.34
"""Pieces that share fewer of their words do not stand opposite each other."""


@dataclass(frozen=True)
class Row:
    """One piece of each solution that stand opposite each other; one of them None where the other has none.

    ``here`` and ``there``: index and text. ``same``: they do not differ. ``marks_*``: characters [start, end) of the
    text that the other one lacks.
    """

    here: tuple[int, str] | None
    there: tuple[int, str] | None
    same: bool
    marks_here: tuple[Span, ...] = ()
    marks_there: tuple[Span, ...] = ()


def pieces(text: str, cutter: str) -> list[str]:
    """The pieces of a continuation, as chunks: by its tags if it has any, else as ``cutter`` cuts (or blank lines).

    A continuation may begin inside a chunk; what stands behind the last one is a piece too. Empty ones are left out.
    """
    if _TAG.search(text):
        found = _TAG.split(text)
    else:
        parts = cut(text, cutter if cutter in CUTTERS and cutter != "tags" else "blank-line")
        found = [*(chunk.text for chunk in parts.chunks), parts.tail]
    return [piece.strip() for piece in found if piece.strip()]


def compare(here: Sequence[str], there: Sequence[str]) -> list[Row]:
    """The two in order, piece by piece; every piece of both is in exactly one row."""
    a, b = [_plain(text) for text in here], [_plain(text) for text in there]
    rows: list[Row] = []
    for kind, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            rows += [
                Row((i, here[i]), (j, there[j]), True)
                for i, j in zip(range(a0, a1), range(b0, b1), strict=True)
            ]
        else:
            rows += _unequal(here, there, range(a0, a1), range(b0, b1))
    return rows


def parting(rows: Sequence[Row]) -> int:
    """How many rows at the beginning are the same."""
    return next((place for place, row in enumerate(rows) if not row.same), len(rows))


def _plain(text: str) -> str:
    return " ".join(text.split())


def _unequal(here: Sequence[str], there: Sequence[str], left: range, right: range) -> list[Row]:
    rows: list[Row] = []
    i, j = left.start, right.start
    for a, b in [*_pairs(here, there, left, right), (left.stop, right.stop)]:
        rows += [Row((k, here[k]), None, False, marks_here=((0, len(here[k])),)) for k in range(i, a)]
        rows += [Row(None, (k, there[k]), False, marks_there=((0, len(there[k])),)) for k in range(j, b)]
        if a < left.stop:
            ours, theirs = differences(here[a], there[b])
            rows.append(Row((a, here[a]), (b, there[b]), False, ours, theirs))
        i, j = a + 1, b + 1
    return rows


def _pairs(here: Sequence[str], there: Sequence[str], left: range, right: range) -> list[tuple[int, int]]:
    """Which pieces stand opposite each other: in order, and as much alike as can be."""
    if not left or not right or len(left) * len(right) > _MOST_PAIRS:
        return list(zip(left, right, strict=False))
    words = {  # without white space, which any two texts share
        text: [word for word in _TOKEN.findall(text) if not word.isspace()]
        for text in (*here[left.start : left.stop], *there[right.start : right.stop])
    }

    # best[i, j]: how much alike the pieces from i and j on can be, and the pair that this begins with (chained)
    nothing: tuple[float, Any] = (0.0, None)
    best: dict[tuple[int, int], tuple[float, Any]] = {}
    for i in reversed(left):
        for j in reversed(right):
            options = [best.get((i + 1, j), nothing), best.get((i, j + 1), nothing)]
            alike = SequenceMatcher(None, words[here[i]], words[there[j]], autojunk=False).ratio()
            if alike >= _ALIKE:
                rest, pairs = best.get((i + 1, j + 1), nothing)
                options.append((rest + alike, (i, j, pairs)))
            best[i, j] = max(options, key=lambda option: option[0])
    found, chain = [], best[left.start, right.start][1]
    while chain:
        i, j, chain = chain
        found.append((i, j))
    return found


def differences(here: str, there: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Characters of each text that the other lacks, by words; white space alone is no difference."""
    a, b = list(_TOKEN.finditer(here)), list(_TOKEN.finditer(there))
    if max(len(a), len(b)) > _MOST_WORDS:
        return ((0, len(here)),), ((0, len(there)),)
    matcher = SequenceMatcher(
        None,
        [" " if m[0].isspace() else m[0] for m in a],
        [" " if m[0].isspace() else m[0] for m in b],
        autojunk=False,
    )
    ours: list[Span] = []
    theirs: list[Span] = []
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        if kind != "equal":
            _mark(ours, a[a0:a1], here)
            _mark(theirs, b[b0:b1], there)
    return tuple(ours), tuple(theirs)


def _mark(spans: list[Span], tokens: Sequence[re.Match[str]], text: str) -> None:
    """Add the stretch of these tokens, joined to the one before it where only white space lies between."""
    if not tokens or all(token[0].isspace() for token in tokens):
        return
    start, end = tokens[0].start(), tokens[-1].end()
    if spans and not text[spans[-1][1] : start].strip():
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((start, end))

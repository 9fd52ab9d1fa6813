"""Problems that are the same but for their wording: found without comparing every problem with every other.

Two problems are near-duplicates when they hold the same numbers and operators in the same order, and the share of
their word triples that both have (Jaccard similarity) reaches a threshold. So templated problems that differ only in
a number are different problems, and a problem with another case, other spaces or other stops is the same one.
Translations and rewordings from the ground up are not found.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

Shingles = frozenset[tuple[str, ...]]

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TOKEN = re.compile(rf"\d+(?:[.,]\d+)*|[{_CJK}]|[^\W\d_{_CJK}]+|[-+*/^=<>%()\[\]{{}}|]|[^\w\s.,;:?!'\"…、。]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
_DASHES = str.maketrans({dash: "-" for dash in "‐‑‒–—−"} | {"×": "*", "·": "*", "÷": "/"})
_QUOTES = re.compile(r"[‘’“”„«»「」《》`$\\]")
TRIPLE = 3
STAND_FOR = 8
"""From so many like problems on, a further one need not be compared with: a thousand copies cost no million pairs."""


def words_of(text: str) -> tuple[list[str], tuple[str, ...]]:
    """(words, numbers and operators in order) of a problem; case, spaces, stops and quotation marks are gone.

    A dash counts as an operator only before a number or a bracket.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().translate(_DASHES)
    plain = _THOUSANDS.sub("", _QUOTES.sub(" ", plain))
    words: list[str] = []
    exact: list[str] = []
    found = list(_TOKEN.finditer(plain))
    for place, match in enumerate(found):
        token = match[0]
        if token == "-":
            behind = found[place + 1][0] if place + 1 < len(found) else ""
            if not behind[:1].isdigit() and behind[:1] not in ("(", "["):
                continue
        if token[0].isdigit() or not token[0].isalpha():
            exact.append(token)
        words.append(token)
    return words, tuple(exact)


def near_duplicates(texts: Mapping[int, str], threshold: float) -> dict[int, int]:
    """{problem: the least id among its near-duplicates, itself included}; ``threshold`` 0: every one for itself.

    Exact (but for ``STAND_FOR``), and the cost follows the pairs that share a rare triple instead of all pairs
    (prefix filtering: Bayardo, Ma and Srikant, "Scaling up all pairs similarity search", 2007). Likeness is passed
    on: where a is like b and b is like c, the three are together.
    """
    if not threshold:
        return {problem: problem for problem in texts}
    same: dict[tuple[str, ...], list[int]] = defaultdict(list)
    exact: dict[tuple[str, ...], tuple[str, ...]] = {}
    for problem in sorted(texts):
        words, marks = words_of(texts[problem])
        same[tuple(words)].append(problem)
        exact[tuple(words)] = marks
    distinct = list(same)
    leaders = list(range(len(distinct)))
    if threshold < 1:
        shingles = [_shingles(one) for one in distinct]
        for left, right in _alike(shingles, [exact[one] for one in distinct], threshold):
            low, high = sorted((_leader(leaders, left), _leader(leaders, right)))
            leaders[high] = low
    groups: dict[int, list[int]] = defaultdict(list)
    for place, one in enumerate(distinct):
        groups[_leader(leaders, place)] += same[one]
    return {problem: min(group) for group in groups.values() for problem in group}


def _leader(leaders: list[int], place: int) -> int:
    while leaders[place] != place:
        leaders[place] = leaders[leaders[place]]
        place = leaders[place]
    return place


def _shingles(words: Sequence[str]) -> Shingles:
    if len(words) < TRIPLE:
        return frozenset([tuple(words)])
    return frozenset(tuple(words[i : i + TRIPLE]) for i in range(len(words) - TRIPLE + 1))


def _alike(
    shingles: Sequence[Shingles], exact: Sequence[tuple[str, ...]], threshold: float
) -> Iterator[tuple[int, int]]:
    """Pairs with the same numbers and operators whose Jaccard similarity is ``threshold`` or more.

    Two sets that similar share one of each one's rarest ``size - ceil(threshold · size) + 1`` triples. A problem that
    is like ``STAND_FOR`` others already is no candidate for later ones: those stand for it.
    """
    often = Counter(shingle for one in shingles for shingle in one)
    seen: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = defaultdict(list)
    for place, one in enumerate(shingles):
        rarest = sorted(one, key=lambda shingle: (often[shingle], shingle))
        # the hair below keeps a product such as 0.8 · 5 from being rounded up a whole step
        prefix = rarest[: len(one) - math.ceil(threshold * len(one) - 1e-9) + 1]
        lists = [seen[exact[place], shingle] for shingle in prefix if often[shingle] > 1]
        like = 0
        for other in {other for others in lists for other in others}:
            common = len(one & shingles[other])
            if common >= threshold * (len(one) + len(shingles[other]) - common) - 1e-9:
                like += 1
                yield other, place
        if like < STAND_FOR:
            for others in lists:
                others.append(place)

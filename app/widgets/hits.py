"""Where the words of a search stand in a text, so that they can be marked. Not here: the search (``db.find_store``)."""

from __future__ import annotations

import re

from app.widgets.safe_text import Span

_MOST = 200


def hits(text: str, words: str) -> list[Span]:
    """Characters [start, end) of ``text`` that some word of ``words`` matches, taken literally and in any case.

    In order, without overlap; the first 200.
    """
    wanted = sorted(set(words.split()), key=len, reverse=True)
    if not wanted:
        return []
    found = re.finditer("|".join(re.escape(word) for word in wanted), text, re.IGNORECASE)
    return [match.span() for match, _ in zip(found, range(_MOST), strict=False)]

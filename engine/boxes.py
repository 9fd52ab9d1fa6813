r"""Finds ``\boxed{…}`` in text, with balanced braces. What a box means is for answers.py and judge.py to say."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Several backslashes before the word are over-escaped text, and still a box; otherwise an escaped brace is no brace.
# A run of backslashes is looked through once, from its first: thousands of them take no time.
_MARK = re.compile(r"(?P<box>(?<!\\)\\+f?boxed\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)


@dataclass(frozen=True)
class Box:
    """One box: its characters are ``text[start:end]``, what it holds is ``content``."""

    start: int
    end: int
    content: str


def find_boxes(text: str) -> list[Box]:
    r"""Boxes whose braces balance, in order of their start; one inside another comes after it.

    An escaped brace (``\{``) does not count as one. A box that never closes is passed over. Linear in the text.
    """
    boxes: list[Box] = []
    opened: list[re.Match[str]] = []
    for mark in _MARK.finditer(text):
        if mark["box"] or mark["open"]:
            opened.append(mark)
        elif mark["close"] and opened:
            begin = opened.pop()
            if begin["box"]:
                boxes.append(Box(begin.start(), mark.end(), text[begin.end() : mark.start()]))
    return sorted(boxes, key=lambda box: box.start)


def last_box(text: str) -> str | None:
    r"""What the last ``\boxed{…}`` holds, without white space around it; None without a box or with an empty one."""
    boxes = find_boxes(text)
    return boxes[-1].content.strip() or None if boxes else None

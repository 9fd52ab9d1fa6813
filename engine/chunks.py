"""Cuts a solution into chunks and gives every character back.

Covers the tags that a self-segmenting policy writes and three fallback cutters for texts without tags. Does not
cover segmentation by a teacher, and does not judge whether a chunk is a sensible one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.boxes import find_boxes
from engine.errors import ChunkError, InputError

OPEN, CLOSE = "<chunk>", "</chunk>"
CUTTERS = ("tags", "blank-line", "numbered-step", "sentence")
STEPS = "steps"
"""The cutter's name on a ``Cut`` that came in as steps and was not cut here."""


@dataclass(frozen=True)
class Chunk:
    """One chunk: ``lead`` (separator, opening tag) + ``text`` (what is read and judged) + ``close`` (closing tag)."""

    lead: str
    text: str
    close: str = ""

    @property
    def whole(self) -> str:
        """All of its characters, lead and close included."""
        return self.lead + self.text + self.close


@dataclass(frozen=True)
class Cut:
    """A solution as chunks and what lies behind the last one; ``rejoin`` gives the solution back exactly."""

    chunks: tuple[Chunk, ...]
    tail: str
    cutter: str


def rejoin(cut: Cut) -> str:
    """The text that was cut, character for character."""
    return "".join(chunk.whole for chunk in cut.chunks) + cut.tail


def prefix_text(cut: Cut, k: int) -> str:
    """The solution up to and with chunk k-1 (k = 0: the empty text). Raises InputError unless 0 <= k <= H."""
    if not 0 <= k <= len(cut.chunks):
        raise InputError(f"prefix {k} was asked for, and the solution has {len(cut.chunks)} chunks")
    return "".join(chunk.whole for chunk in cut.chunks[:k])


def cut(text: str, cutter: str) -> Cut:
    """Cut with the named cutter. Raises ChunkError (tags only) and, for an unknown name, InputError."""
    if cutter == "tags":
        return cut_tags(text)
    if cutter not in _FALLBACKS:
        raise InputError(f"unknown cutter {cutter!r}; there are {', '.join(CUTTERS)}")
    end = _tail_start(text)
    return _from_spans(text, pairwise([0, *_FALLBACKS[cutter](text[:end]), end]), cutter)


def cut_best(text: str, truncated: bool = False) -> tuple[Cut, str | None]:
    """By tags where there are well-formed ones, else on blank lines; the note names what was wrong with the tags."""
    note = None
    try:
        tagged = cut_tags(text, truncated=truncated)
        if tagged.chunks or (truncated and OPEN in text):
            return tagged, None
    except ChunkError as problem:
        note = f"chunk tags unusable ({problem}); cut on blank lines instead"
    return cut(text, "blank-line"), note


def cut_tags(text: str, truncated: bool = False) -> Cut:
    """Chunks are what stands between ``<chunk>`` and ``</chunk>``; what lies between two chunks leads the second.

    ``truncated``: the text stops at a token limit, so a last tag that never closes belongs to the tail.
    A text without tags has no chunks. Raises ChunkError on nested, stray and unclosed tags.
    """
    chunks: list[Chunk] = []
    done = 0
    opened: re.Match[str] | None = None
    for tag in re.finditer(r"</?chunk>", text):
        if tag.group() == OPEN:
            if opened:
                raise ChunkError(f"{OPEN} inside the chunk opened at character {opened.start()}", tag.start())
            opened = tag
        elif not opened:
            raise ChunkError(f"{CLOSE} without {OPEN} before it", tag.start())
        else:
            chunks.append(Chunk(text[done : opened.end()], text[opened.end() : tag.start()], CLOSE))
            done, opened = tag.end(), None
    if opened and not truncated:
        raise ChunkError(f"{OPEN} is never closed", opened.start())
    return Cut(tuple(chunks), text[done:], "tags")


def join_steps(steps: Sequence[str]) -> Cut:
    """Steps that a data set already has become chunks, one each, with a blank line between them and no tail."""
    leads = ("", *["\n\n"] * (len(steps) - 1))
    return Cut(tuple(Chunk(lead, step) for lead, step in zip(leads, steps, strict=False)), "", STEPS)


def token_ends(
    cut: Cut, token_ids: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> tuple[int | None, ...]:
    """For each chunk the least number of tokens that decode to exactly the text up to and with its close.

    None where no token boundary falls there (one token holds the end of a chunk and what follows).
    ``decode`` maps token ids to text. About log2(tokens) decodes a chunk, by bisection on the decoded length.
    """
    ends: list[int | None] = []
    target, low = "", 0
    for chunk in cut.chunks:
        target += chunk.whole
        end = _tokens_of(target, token_ids, decode, low)
        low = low if end is None else end
        ends.append(end)
    return tuple(ends)


def _tokens_of(
    target: str, token_ids: Sequence[int], decode: Callable[[Sequence[int]], str], low: int
) -> int | None:
    near = low + bisect_left(
        range(low, len(token_ids) + 1), len(target), key=lambda n: len(decode(token_ids[:n]))
    )
    # A character in several tokens decodes to replacement signs until it is complete, so that the decoded length
    # may shrink by up to three: the neighbours are looked at too.
    for n in range(max(low, near - 3), min(len(token_ids), near + 3) + 1):
        if decode(token_ids[:n]) == target:
            return n
    return None


def _from_spans(text: str, spans: Iterable[tuple[int, int]], cutter: str) -> Cut:
    """Chunks from spans of text: white space at either end goes to the lead that follows, blank spans vanish."""
    chunks: list[Chunk] = []
    done = 0
    for start, end in spans:
        piece = text[start:end].rstrip()
        if stripped := piece.lstrip():
            at = start + len(piece) - len(stripped)
            chunks.append(Chunk(text[done:at], stripped))
            done = at + len(stripped)
    return Cut(tuple(chunks), text[done:], cutter)


_BOX_REST = re.compile(r"\s*(?:\$\$?|\\\]|\\\))?[.。]?(?:\*\*)?\s*")
_BOX_OPENERS = ("$$", "$", "\\[", "\\(", "**")


def _tail_start(text: str) -> int:
    """Where a last line that is only the boxed answer begins; the text's end if there is none or nothing else."""
    boxes = find_boxes(text)
    if not boxes or not _BOX_REST.fullmatch(text, boxes[-1].end):
        return len(text)
    before = text[: boxes[-1].start]
    while opener := next((mark for mark in _BOX_OPENERS if before.rstrip().endswith(mark)), None):
        before = before.rstrip().removesuffix(opener)
    rest = before.rstrip()
    return len(rest) if rest and "\n" in before[len(rest) :] else len(text)


def _blank_line_starts(text: str) -> list[int]:
    return [gap.end() for gap in re.finditer(r"\n\s*\n", text)]


_STEP = re.compile(
    r"^[^\S\n]*(?:\#{1,6}[^\S\n]*)?(?:\*\*)?"
    r"(?:step[^\S\n]*\d+|\(?\d+[.)](?=[^\S\n])|\(\d+\)|（\d+）|\d+、|步骤\s*[\d一二三四五六七八九十]+|第\s*[\d一二三四五六七八九十]+\s*步)",
    re.IGNORECASE | re.MULTILINE,
)


def _numbered_step_starts(text: str) -> list[int]:
    return [step.start() for step in _STEP.finditer(text)]


_SENTENCE_END = re.compile(r"[。！？]+[”’」』）)\"']*|(?<![.!?])[.!?]+[)\"'”’]*(?=\s)|\n\s*\n")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|cf|vs|resp|approx|Dr|Mr|Mrs|Ms|Fig|Eq|Eqs|Thm|Prop)\.$")
_ITEM_NUMBER = re.compile(r"\s*\(?\d+\.")
_LONGEST = 16
"""Characters before a full stop that show every abbreviation, and what stands before it."""


def _sentence_starts(text: str) -> list[int]:
    return [end.end() for end in _SENTENCE_END.finditer(text) if not _is_abbreviation(text, end)]


def _is_abbreviation(text: str, end: re.Match[str]) -> bool:
    """Whether the line up to a full stop ends in an abbreviation or is the number of a list item."""
    if end.group() != ".":
        return False
    line = text.rfind("\n", 0, end.start()) + 1
    last = text[max(line, end.start() - _LONGEST) : end.end()]
    return bool(_ABBREVIATION.search(last) or _ITEM_NUMBER.fullmatch(text, line, end.end()))


_FALLBACKS: dict[str, Callable[[str], list[int]]] = {
    "blank-line": _blank_line_starts,
    "numbered-step": _numbered_step_starts,
    "sentence": _sentence_starts,
}

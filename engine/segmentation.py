"""Self-segmentation: what a teacher is asked, and which of its answers are kept (StepWiser §3.1, 2508.19229).

A teacher puts ``<chunk>`` tags into a solution and may change no character. Whatever is kept is built from the source
itself, with tags put in, so it rejoins exactly. Not covered: drawing the answers (training.segmenting) and cutting
without a teacher (engine.chunks).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.chunks import OPEN, Cut, cut, cut_tags
from engine.errors import ChunkError
from engine.judge import JudgePrompt, load_prompt

Reason = Literal[
    "truncated", "no tags", "unclosed tags", "changed text", "text outside chunks", "empty chunk"
]
"""Why an answer is rejected. ``unclosed tags`` covers nested and stray ones too."""

_TAG = re.compile(r"</?chunk>")


@dataclass(frozen=True)
class Segmentation:
    """A solution with tags put in: without them ``text`` is the source, character for character."""

    text: str

    @property
    def cut(self) -> Cut:
        return cut_tags(self.text)


def segment_prompt(name: str) -> JudgePrompt:
    """The teacher's prompt of that name; its one placeholder is ``{{solution}}``. Raises InputError."""
    return load_prompt(name, needs=("solution",))


def untagged(text: str) -> str:
    """``text`` without its chunk tags: what a tagged solution was made from."""
    return _TAG.sub("", text)


def is_tagged(text: str) -> bool:
    """Whether a text holds a chunk tag already, so that a teacher's tags could not be told from its own."""
    return _TAG.search(text) is not None


def read_segmentation(source: str, answer: str, truncated: bool = False) -> Segmentation | Reason:
    """The segmentation of ``source`` that a teacher's answer holds, or why there is none.

    The answer without its tags must hold the source's every character in order, white space between paragraphs
    included (at the source's own two ends it does not matter). What a chatty teacher writes before and behind the
    solution is dropped, provided no tag stands there; where it repeats the solution, the last time counts.
    """
    if truncated:
        return "truncated"
    if not is_tagged(answer):
        return "no tags"
    plain = untagged(answer)
    core = source if source in plain else source.strip()
    start = plain.rfind(core)
    if start < 0 or not core:
        return "changed text"
    tags = _tag_places(answer)
    if any(not start <= place <= start + len(core) for place, _ in tags):
        return "text outside chunks"
    offset = source.index(core) - start
    tagged = _insert(source, [(place + offset, tag) for place, tag in tags])
    return _fault(tagged) or Segmentation(tagged)


def first_valid(
    source: str, answers: Iterable[tuple[str, bool]]
) -> tuple[Segmentation | None, tuple[Reason, ...]]:
    """The first (answer, truncated) that holds a segmentation, and why those before it were rejected."""
    reasons: list[Reason] = []
    for answer, truncated in answers:
        found = read_segmentation(source, answer, truncated)
        if isinstance(found, Segmentation):
            return found, tuple(reasons)
        reasons.append(found)
    return None, tuple(reasons)


def well_formed(text: str, truncated: bool = False) -> bool:
    r"""Whether a policy's output is chunks, nothing but white space between them, and a tail with a ``\boxed{…}``."""
    return not truncated and is_tagged(text) and _fault(text) is None and "\\boxed{" in cut_tags(text).tail


def blank_line_count(text: str) -> int:
    """Chunks that cutting on blank lines makes of a text, its tags left out: what self-segmentation is held against."""
    return len(cut(untagged(text), "blank-line").chunks)


def _tag_places(answer: str) -> list[tuple[int, str]]:
    """Each tag with its place in the answer without tags."""
    places, removed = [], 0
    for tag in _TAG.finditer(answer):
        places.append((tag.start() - removed, tag.group()))
        removed += len(tag.group())
    return places


def _insert(text: str, tags: Sequence[tuple[int, str]]) -> str:
    parts, done = [], 0
    for place, tag in tags:
        parts += [text[done:place], tag]
        done = place
    return "".join([*parts, text[done:]])


def _fault(tagged: str) -> Reason | None:
    """What is wrong with a tagged text's shape: only one paragraph with the boxed answer may stand outside its chunks."""
    try:
        found = cut_tags(tagged)
    except ChunkError:
        return "unclosed tags"
    if any(not chunk.text.strip() for chunk in found.chunks):
        return "empty chunk"
    between = "".join(chunk.lead.removesuffix(OPEN) for chunk in found.chunks)
    tail = found.tail.strip()
    if between.strip() or (tail and ("\\boxed{" not in tail or re.search(r"\n\s*\n", tail))):
        return "text outside chunks"
    return None

"""The same solutions as nano's, without tags: paragraphs that are finer than chunks, and the tags put back in.

A chunk that announces what it does is two paragraphs ("Add 5:" and "3+5=8."), a check is one for its announcement and
one a link, so that cutting on blank lines gives pieces of more and of less meaning. Only white space differs.
"""

from __future__ import annotations

from training.nano.demos import Demo, DemoChunk

GAP = "\n\n"


def paragraphs(chunk: DemoChunk) -> list[str]:
    """A chunk's text in paragraphs."""
    if chunk.kind == "check":
        lead, links = chunk.text.split(": ", 1)
        return [f"{lead}:", *links.replace(", ", ",\n").split("\n")]
    if chunk.kind == "step" and ": " in chunk.text:
        lead, link = chunk.text.split(": ", 1)
        return [f"{lead}:", link]
    return [chunk.text]


def plain_solution(demo: Demo) -> str:
    """What nano-plain writes: every paragraph and the boxed answer, blank lines between them."""
    return GAP.join([p for chunk in demo.chunks for p in paragraphs(chunk)] + [f"\\boxed{{{demo.boxed}}}"])


def tagged_solution(demo: Demo) -> str:
    """What nano-teacher makes of it: the same characters, each chunk in its tags."""
    chunks = [f"<chunk>{GAP.join(paragraphs(chunk))}</chunk>" for chunk in demo.chunks]
    return GAP.join([*chunks, f"\\boxed{{{demo.boxed}}}"])

"""Text that a model, a file or a person wrote, shown so that it can only be read.

Rendered text is Streamlit markdown in which every character of prose that could mean something is a character
reference, so that links, pictures, headings, HTML, colours, icons and diagrams stay what was typed; only real
mathematics (``widgets/mathematics.py``) is handed to KaTeX. Raw text is the same characters in a code block.
Control and direction marks become visible in both. Not here: what the text means.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import streamlit as st

from app.widgets.mathematics import DISPLAY, INLINE, PROSE, Kind, split

Span = tuple[int, int]

JOINER = "⁠"
"""Word joiner: has no width. Parts what Streamlit would rewrite after parsing (addresses, icons, arrows)."""
LONGEST = 20_000
"""Characters shown of one text; the rest is counted and said."""

_KEPT_FORMAT = "\u200c\u200d"  # joiners that scripts and emoji need
_STACKED = re.compile(
    r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
_ODD = re.compile(r"[^\n\t\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff\u0370-\u0482\u4e00-\u9fff]")
_REWRITTEN = re.compile(
    r"(?<=http)s?:(?=//)|www(?=\.)|:(?=material|streamlit)|<(?=->)|[-<](?=-)|-(?=>)|[<>~](?==)|(?<=[\w.+-])(?=@)",
    re.IGNORECASE,
)
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_BEGIN, _END = "\ue000", "\ue001"
_EDGE = re.compile(f"([{_BEGIN}{_END}])")
_LINE = re.compile(r"\S[^\n]*")
_DEEPEST = 20
"""Brackets within brackets in a mark: its parser gives up at 32."""
_BLANK_LINE = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def visible(text: str) -> str:
    """``text`` with NUL, control, direction and other unseen marks written out; line ends become ``\\n``.

    Each is ⟦U+XXXX⟧, lone surrogates too; of marks stacked on one letter the first four stay.
    """
    text = text.replace("\r\n", "\n")
    return _STACKED.sub(r"\1⟦…⟧", _ODD.sub(_picture, text))


def apart(words: Mapping[str, str]) -> dict[str, str]:
    """The visible words of choices, with what they stand for behind those that several share: Streamlit knows a choice
    by its words. ``words``: {value: words}; the empty value has words of ours."""
    shown = {value: visible(said) for value, said in words.items()}
    times = Counter(shown.values())
    return {
        value: f"{said} ({visible(value)})" if value and times[said] > 1 else said
        for value, said in shown.items()
    }


def _picture(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in "\u2028\u2029":
        return f"⟦U+{code:04X}⟧\n"
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn") and char not in _KEPT_FORMAT:
        return f"⟦U+{code:04X}⟧"
    return char


def _reference(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"


def escape_prose(text: str) -> str:
    """``text`` as markdown that shows exactly its characters; spaces and line ends are left as they are."""
    return _PUNCTUATION.sub(_reference, _REWRITTEN.sub(lambda m: m[0] + JOINER, text))


def escape_line(text: str, limit: int = 200) -> str:
    """A name or a first line as markdown on one line, cut at ``limit`` characters. Mathematics stays as typed."""
    line = " ".join(visible(text[: 4 * limit]).split())
    return escape_prose(line if len(line) <= limit else line[: limit - 1].rstrip() + "…")


def code(text: str, limit: int = 60) -> str:
    """A short value such as an answer as a code span: one line, cut at ``limit`` characters."""
    line = " ".join(visible(text[: 4 * limit]).split()).replace("`", "ˋ")
    return f"`{line if len(line) <= limit else line[: limit - 1] + '…'}`" if line else "(empty)"


def to_markdown(text: str, marks: Sequence[Span] = (), colour: str = "orange") -> str:
    """``text`` as safe markdown: prose escaped, line breaks kept, real mathematics as ``$…$`` and ``$$…$$``.

    ``marks``: characters [start, end) of ``text`` that get a background in that colour of the theme. A formula that a
    mark touches is marked whole, but one on lines of its own never, nor one whose brackets do not pair: ``]`` would
    end the mark inside it, and what follows there would be read as markdown.
    """
    displays: list[str] = []
    parts: list[tuple[bool, str]] = []
    for kind, content, marked in _pieces(text, marks):
        after_formula = bool(parts) and parts[-1][1].endswith("$")
        if kind == DISPLAY:
            parts.append((False, f"\n\n\0{len(displays)}\0\n\n"))
            displays.append(f"$$\n{content}\n$$")
        elif kind == INLINE:
            formula = f"{JOINER if after_formula else ''}${content}$"  # "$$" would open a display
            parts.append((marked and _brackets_pair(content), formula))
        else:
            prose = escape_prose(content)
            if after_formula and prose[:1].isdigit():
                prose = f"&#{ord(prose[0])};{prose[1:]}"  # Streamlit takes "$x$2" for money
            parts.append((marked, prose))
    whole = ""
    for marked, run in groupby(parts, key=lambda part: part[0]):
        words = "".join(part for _, part in run)
        whole += _LINE.sub(lambda line: f":{colour}-background[{line[0]}]", words) if marked else words
    paragraphs = (_paragraph(part) for part in _BLANK_LINE.split(whole) if part.strip())
    return re.sub("\0(\\d+)\0", lambda m: displays[int(m[1])], "\n\n".join(paragraphs))


def _brackets_pair(formula: str) -> bool:
    depth = 0
    for bracket in re.findall(r"[\[\]]", formula):
        depth += 1 if bracket == "[" else -1
        if not 0 <= depth <= _DEEPEST:
            return False
    return depth == 0


def _pieces(text: str, marks: Sequence[Span]) -> Iterator[tuple[Kind, str, bool]]:
    """What ``split`` finds in the visible text, cut where a mark begins or ends, and whether it is marked."""
    marking = False
    for kind, content in split(_with_edges(text, marks)):
        if kind != PROSE:
            edges = _EDGE.findall(content)
            # Without spaces at its ends, where an edge was: with them "$ x$" would be no formula.
            yield kind, _EDGE.sub("", content).strip(), marking or _BEGIN in edges
            marking = edges[-1] == _BEGIN if edges else marking
            continue
        for piece in _EDGE.split(content):
            if _EDGE.fullmatch(piece):
                marking = piece == _BEGIN
            elif piece:
                yield kind, piece, marking


def _with_edges(text: str, marks: Sequence[Span]) -> str:
    """The visible text with a sign where each mark begins and ends: private-use signs, which visible text never holds."""
    parts: list[str] = []
    done = 0
    for start, end in sorted(marks):
        start, end = max(start, done), min(end, len(text))
        if start < end:
            if parts and start == done:  # the mark goes on: else "http:" and "//" would meet again as a link
                parts.pop()
            else:
                parts += [visible(text[done:start]), _BEGIN]
            parts += [visible(text[start:end]), _END]
            done = end
    return "".join([*parts, visible(text[done:])])


def _paragraph(text: str) -> str:
    lines = []
    for line in text.strip("\n").split("\n"):
        body = line.lstrip(" \t")
        indent = len(line[: len(line) - len(body)].expandtabs(4))
        lines.append("&#160;" * indent + body.rstrip())
    return "\\\n".join(lines)


def show_text(
    text: str,
    *,
    raw: bool = False,
    limit: int = LONGEST,
    marks: Sequence[Span] = (),
    colour: str = "orange",
) -> None:
    """Write ``text`` to the page, rendered or raw; a very long one is cut with a note of what is left out.

    ``marks`` and ``colour`` as in ``to_markdown``; raw text has none.
    """
    if not text.strip():
        st.caption("(empty)" if not text else "(only white space)")
        return
    shown = text[:limit]
    if raw:
        st.code(visible(shown), language=None, wrap_lines=True)
    else:
        st.markdown(to_markdown(shown, marks, colour))
    if len(text) > limit:
        st.caption(f"The first {limit:,} of {len(text):,} characters.")


def plot_text(text: str, limit: int = 60) -> str:
    """A name or a short text for a Plotly figure, which reads tags, links and entities: on one line, shown as typed."""
    line = " ".join(visible(text[: 4 * limit]).split())
    line = line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
    # Plotly takes "$…$" for mathematics where MathJax is there, and "%{…}" for a variable in a hover template.
    line = line.replace("$", JOINER + "$" + JOINER).replace("%{", "%" + JOINER + "{")
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


RAW_HELP = (
    "Show problem, chunks, rationales and rollouts exactly as they were written, with nothing rendered."
)


def raw_toggle() -> bool:
    """The page's switch between rendered and raw text; remembered for the session."""
    return st.toggle("Raw text", key="raw_text", help=RAW_HELP, persist_state="session")

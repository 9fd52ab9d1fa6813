"""Markdown that people wrote (guidelines), drawn with a few marks of it and nothing else.

Kept: headings (as bold lines, so that nobody forges the page's own), lists, **bold**, *emphasis*, `code`, fenced code,
mathematics. All else, links, pictures and HTML too, stays what was typed. Not here: text of models (safe_text).
"""

from __future__ import annotations

import html
import re

import streamlit as st

from app.widgets.safe_text import JOINER, LONGEST, code, to_markdown, visible

_FENCE = re.compile(r"\s*```")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"(\s*)(?:([-*+])|(\d{1,3})[.)])\s+(\S.*)$")
_BOLD = re.compile(r"&#42;&#42;(?=\S)((?:(?!&#42;).)+?)(?<=\S)&#42;&#42;")
_EMPHASIS = re.compile(r"&#42;(?=\S)((?:(?!&#42;).)+?)(?<=\S)&#42;")
_CODE = re.compile(r"&#96;((?:(?!&#96;).)+?)&#96;")


def guide_markdown(text: str) -> str:
    """The text as safe markdown."""
    out: list[str] = []
    fenced: list[str] | None = None
    for line in visible(text[:LONGEST]).split("\n"):
        if _FENCE.match(line):
            if fenced is None:
                fenced = []
            else:
                out.append(_block(fenced))
                fenced = None
        elif fenced is not None:
            fenced.append(line)
        else:
            out.append(_line(line))
    if fenced:
        out.append(_block(fenced))
    return "\n".join(out)


def show_guide(text: str) -> None:
    """Draw guidelines; a very long one is cut with a note of what is left out."""
    st.markdown(guide_markdown(text))
    if len(text) > LONGEST:
        st.caption(f"The first {LONGEST:,} of {len(text):,} characters.")


def _block(lines: list[str]) -> str:
    body = "\n".join(lines).replace("`", "ˋ")
    return f"\n```\n{body}\n```\n"


def _line(line: str) -> str:
    if not line.strip():
        return ""
    if heading := _HEADING.match(line):
        words = to_markdown(heading[1])
        if words and "\n" not in words:  # a formula on lines of its own must begin them
            words = f"**{words}**"
        return f"\n{words}\n" if words else ""
    if item := _ITEM.match(line):
        indent = "   " * min(3, len(item[1].expandtabs(4)) // 2)
        sign = f"{indent}{item[3] + '.' if item[3] else '-'} "
        return sign + _inline(item[4]).replace("\n", "\n" + " " * len(sign))  # all its lines are the item's
    return _inline(line.strip())


def _inline(text: str) -> str:
    safe = _CODE.sub(lambda m: code(html.unescape(m[1]).replace(JOINER, ""), 200), to_markdown(text))
    return _EMPHASIS.sub(r"*\1*", _BOLD.sub(r"**\1**", safe))

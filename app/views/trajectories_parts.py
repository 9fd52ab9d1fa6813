"""What both lists of the Trajectories page draw alike: marked pieces of text, where there is nothing, Previous and Next."""

from __future__ import annotations

from collections.abc import Mapping

from app.widgets.here import here_button
from app.widgets.hits import hits
from app.widgets.rows import Excerpt
from app.widgets.safe_text import visible
from db.find_rows import excerpt

COUNTED = 1000


def marked(text: str, words: str, place: str = "", width: int = 220) -> Excerpt:
    """One line of ``text``, cut around the words that were searched for, which are marked."""
    line = " ".join(visible(excerpt(text, words.split(), width=width)).split())
    parts: list[tuple[str, bool]] = []
    end = 0
    for start, stop in hits(line, words):
        parts += [(line[end:start], False), (line[start:stop], True)]
        end = stop
    return Excerpt([part for part in (*parts, (line[end:], False)) if part[0]], place)


def step(label: str, icon: str, name: str, here: Mapping[str, str], cursor: str | None) -> None:
    """Previous or Next: the same list from ``cursor`` on."""
    here_button(
        label,
        {**here, name: cursor} if cursor else {},
        key=f"step-{name}",
        icon=icon,
        icon_position="left" if name == "before" else "right",
        disabled=cursor is None,
    )

"""What both lists of the Trajectories page draw alike: marked pieces of text, limits, Previous and Next."""

from __future__ import annotations

from collections.abc import Mapping

from app.views.trajectories_actions import MOST_ROWS, MOST_SOLUTIONS
from app.widgets.access import actor, get_store
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


def limits_words(count: int, kind: str) -> str:
    """What a run and a file take of ``count`` fitting rows, as far as they may not take all. ``kind``:
    ``trajectories`` or ``chunks``, of which a run takes the solutions."""
    store, words = get_store(), []
    if count > MOST_SOLUTIONS and store.role(actor()) == "owner":
        words.append(f"a run takes the first {MOST_SOLUTIONS}{' solutions' if kind == 'chunks' else ''}")
    if count > COUNTED and store.counts()[kind] > MOST_ROWS:
        words.append(f"a file the first {MOST_ROWS:,}")
    return f" · {', '.join(words)}" if words else ""

"""Small coloured chips as Streamlit markdown. Each says in a shape and in words what its colour says.

The functions return markdown, so that many chips fit into one element; none of them takes text from a model
or a file except ``name_chip``, which escapes it.
"""

from __future__ import annotations

from app.widgets.safe_text import escape_line

OUTCOMES = {
    "correct": ("green", "check", "correct"),
    "wrong": ("red", "close", "wrong"),
    "unparsed": ("orange", "question_mark", "no answer found"),
    "truncated": ("orange", "content_cut", "cut off"),
    "error": ("gray", "report", "grading failed"),
}
STATUSES = {
    "queued": ("gray", "hourglass_empty", "queued"),
    "running": ("blue", "play_arrow", "running"),
    "done": ("green", "check", "done"),
    "failed": ("red", "error", "failed"),
    "stopped": ("gray", "stop", "stopped"),
    "stalled": ("orange", "warning", "stalled"),
}
LABELS = {"+": ("green", "add_circle", "label +"), "-": ("red", "do_not_disturb_on", "label −")}
VERDICTS = {
    "positive": ("green", "thumb_up", "positive"),
    "negative": ("red", "thumb_down", "negative"),
    None: ("gray", "remove", "no verdict"),
}
REVIEWS = {
    1: ("green", "add_circle", "+1 sound"),
    0: ("gray", "radio_button_unchecked", "0 neutral"),
    -1: ("red", "do_not_disturb_on", "−1 error"),
    None: ("gray", "help", "cannot tell"),
}


def chip(colour: str, icon: str, words: str) -> str:
    """A badge; ``words`` must be ours, not a model's."""
    return f":{colour}-badge[:material/{icon}: {words}]"


def outcome_chip(outcome: str) -> str:
    """One of the five outcomes."""
    return chip(*OUTCOMES.get(outcome, ("gray", "help", escape_line(outcome))))


def status_chip(status: str) -> str:
    """The status of a run."""
    return chip(*STATUSES.get(status, ("gray", "help", escape_line(status))))


def label_chip(label: str | None, words: str = "") -> str:
    """A label ``+`` or ``-`` (None: no label), with ``words`` of ours behind it, such as the rule's name."""
    colour, icon, name = LABELS.get(label or "", ("gray", "radio_button_unchecked", "no label"))
    return chip(colour, icon, f"{name} · {words}" if words else name)


def verdict_chip(verdict: str | None, words: str = "") -> str:
    """A judge's verdict; None: it gave none."""
    colour, icon, name = VERDICTS.get(verdict, VERDICTS[None])
    return chip(colour, icon, f"{name} · {words}" if words else name)


def review_chip(verdict: int | None) -> str:
    """What a person said of a chunk."""
    return chip(*REVIEWS[verdict])


def name_chip(name: str, colour: str = "gray", icon: str = "label") -> str:
    """A name from the store (policy, judge, data set), escaped and shortened."""
    return chip(colour, icon, escape_line(name, limit=60))

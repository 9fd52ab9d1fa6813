"""What an entry of the audit list says in words, and where it leads. Plain values: the pages and the commands use it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from db.people_store import AuditRow

VERDICTS = {1: "+1 sound", 0: "0 neutral", -1: "−1 error", None: "cannot tell"}


def said(detail: dict[str, Any]) -> str:
    """The particulars of an entry on one line."""
    return ", ".join(_pair(name, value) for name, value in detail.items())


def _pair(name: str, value: Any) -> str:
    if name in ("verdict", "was"):
        return f"{'was ' if name == 'was' else ''}{VERDICTS.get(value, value)}"
    if isinstance(value, dict):
        value = " ".join(f"{key}={held}" for key, held in value.items()) or "the usual ones"
    return f"{name} {value}" if value is not None else f"no {name}"


def leads_to(entry: AuditRow) -> str:
    """Path and query of the page that shows what the entry was done to; empty where there is none."""
    noun, _, which = entry.target.partition(" ")
    if entry.place is not None:
        trajectory, idx = entry.place
        return "/trajectory?" + urlencode({"traj": trajectory, "chunk": idx})
    if noun == "run":
        return "/runs?" + urlencode({"run": which})
    if noun == "queue":
        return "/queue?" + urlencode({"queue": which})
    if noun == "person":
        return "/people?" + urlencode({"person": which})
    return ""

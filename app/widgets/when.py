"""Times and lengths of time in words."""

from __future__ import annotations

from datetime import UTC, datetime


def ago(when: datetime | None, now: datetime | None = None) -> str:
    """``when`` (aware) as "just now", "5 min ago", "3 h ago", "2 d ago", or the date; "never" for None."""
    if when is None:
        return "never"
    seconds = ((now or datetime.now(UTC)) - when).total_seconds()
    if seconds < 45:
        return "just now"
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min ago"
    if seconds < 36 * 3600:
        return f"{round(seconds / 3600)} h ago"
    if seconds < 14 * 86400:
        return f"{round(seconds / 86400)} d ago"
    return f"{when:%Y-%m-%d}"


def stamp(when: datetime) -> str:
    """``when`` to the minute in UTC, for histories."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def lasting(seconds: float | None) -> str:
    """A length of time in two units at most: "40 s", "3 min 20 s", "2 h 5 min"; "unknown" for None."""
    if seconds is None:
        return "unknown"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    hours, rest = divmod(whole // 60, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"

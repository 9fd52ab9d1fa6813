"""A table of names and values that opens nothing: facts of a result, fields that differ. Text is only ever text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from app.widgets.rows import Column, Row, row_table


def plain_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, label: str, key: str) -> None:
    """Rows of text under ``titles``; the first column names the row. ``label`` names the table to screen readers."""
    narrow: Literal["wide", "named"] = "named" if len(titles) > 2 else "wide"
    columns = [Column(titles[0], "small", "wide"), *(Column(title, "text", narrow) for title in titles[1:])]
    row_table(columns, [Row(str(i), "", "", list(row)) for i, row in enumerate(rows)], label=label, key=key)


def value_text(value: Any) -> str:
    """A number, word or short list as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(value_text(one) for one in value) or "none"
    return str(value)


def flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields in dotted names, each with its value; an empty part keeps its name."""
    out: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            out |= flat(value, f"{prefix}{name}.")
        else:
            out[f"{prefix}{name}"] = value
    return out

"""Reads a JSONL or CSV file line by line: a line that cannot be read is reported and the rest carries on.

Knows nothing of what the fields mean.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from engine.errors import InputError

MOST_CELL = 1 << 24
"""Characters of a table's cell: csv's own limit, 131,072, would cut a test suite in two and read on in its middle."""


@dataclass(frozen=True)
class Rejected:
    """A line, or a part of one, that was left out, and why. ``str`` is the message for the user."""

    file: str
    line: int
    id: str | None
    reason: str

    def __str__(self) -> str:
        return str(InputError(self.reason, file=self.file, line=self.line, item_id=self.id))


@dataclass(frozen=True)
class Row:
    """The fields of one line, as they are in the file. ``line`` is where it begins, from 1."""

    file: str
    line: int
    fields: Mapping[str, Any]

    def reject(self, reason: str) -> Rejected:
        """This row as left out; its id is given where it has one."""
        given = self.fields.get("id")
        return Rejected(self.file, self.line, None if given in (None, "") else str(given)[:200], reason)


def read_rows(path: Path) -> Iterator[Row | Rejected]:
    """The lines of a file: ``.csv`` and ``.tsv`` with a header, anything else one JSON object a line.

    Blank lines are passed over. Raises InputError if the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            reader = _read_table if path.suffix.lower() in (".csv", ".tsv") else _read_json_lines
            yield from reader(path, file)
    except OSError as problem:
        raise InputError(f"cannot read the file: {problem.strerror or problem}", file=str(path)) from None


def _read_json_lines(path: Path, file: io.BufferedReader) -> Iterator[Row | Rejected]:
    for number, raw in enumerate(file, start=1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if raw.strip():
            yield _json_row(str(path), number, raw.rstrip(b"\r\n"))


def _json_row(file: str, line: int, raw: bytes) -> Row | Rejected:
    try:
        fields = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as problem:
        return Rejected(file, line, None, f"not UTF-8 at byte {problem.start}")
    except json.JSONDecodeError as problem:
        return Rejected(file, line, None, f"broken JSON at column {problem.colno}: {problem.msg}")
    except (ValueError, RecursionError) as problem:  # a number of thousands of digits; brackets without end
        return Rejected(file, line, None, f"JSON that cannot be read: {problem}")
    if not isinstance(fields, dict):
        return Rejected(
            file, line, None, f"a JSON object was expected, and this is a {type(fields).__name__}"
        )
    return Row(file, line, fields)


def _read_table(path: Path, file: io.BufferedReader) -> Iterator[Row | Rejected]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    # What is no UTF-8 becomes lone surrogates, which ``text_field`` reports: one bad cell does not end the file.
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    csv.field_size_limit(MOST_CELL)
    rows = csv.reader(text, delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        line = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as problem:
            yield Rejected(
                str(path), line, None, f"broken table row, read up to line {rows.line_num}: {problem}"
            )
            if not header:  # nobody knows what the cells are
                return
            continue
        if not cells:  # a blank line
            continue
        if not header:
            header = cells
            continue
        row = Row(str(path), line, dict(zip(header, cells, strict=False)))
        yield row.reject("more fields than the header names") if len(cells) > len(header) else row


def text_field(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these fields that is there, as text without white space around it. Numbers become text.

    Raises InputError where none is there, or it is empty, no text, or holds characters that no store takes.
    """
    name = next((name for name in names if fields.get(name) is not None), None)
    if name is None:
        raise InputError(f"the field {' or '.join(map(repr, names))} is missing")
    value = fields[name]
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        value = str(value)
    if not isinstance(value, str):
        raise InputError(f"{name} is {value!r:.60}, and a text was expected")
    return checked_text(name, value.strip())


def checked_text(name: str, value: str) -> str:
    """The text, unchanged. Raises InputError where it is blank or holds NUL or half a character."""
    if not value.strip():
        raise InputError(f"{name} is empty")
    if (at := value.find("\0")) >= 0:
        raise InputError(f"{name} holds the character NUL at position {at}, which no store takes; remove it")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise InputError(
            f"{name} is not valid text at position {problem.start}: save the file as UTF-8"
        ) from None
    return value

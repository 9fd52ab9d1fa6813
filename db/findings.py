"""What ``db check`` reports: one finding a damaged row. Not: the checks (check, check_caches)."""

from __future__ import annotations

from dataclasses import dataclass

EXAMPLES = 20
"""Most findings of one kind that are listed."""


@dataclass(frozen=True)
class Finding:
    """Something wrong. ``kind`` names the check, ``where`` the row."""

    kind: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.message}"

"""Colours of figures in the two themes: right and wrong are told apart in every common kind of colour blindness."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    ink: str
    line: str
    bar: str
    good: str
    bad: str
    warn: str
    band: str
    chosen: str
    grid: str
    paper: str


LIGHT = Palette(
    ink="#4a5058",
    line="#2f5d8c",
    bar="rgba(47,93,140,0.38)",
    good="#0b7a5c",
    bad="#c1440e",
    warn="#b07d12",
    band="rgba(47,93,140,0.13)",
    chosen="rgba(74,80,88,0.11)",
    grid="#e6e6e0",
    paper="#fcfcfa",
)
DARK = Palette(
    ink="#b7bdc5",
    line="#7fb0e0",
    bar="rgba(127,176,224,0.42)",
    good="#3fb68f",
    bad="#ef8354",
    warn="#d9a93b",
    band="rgba(127,176,224,0.17)",
    chosen="rgba(183,189,197,0.14)",
    grid="#2b3037",
    paper="#15181c",
)

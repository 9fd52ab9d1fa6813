"""The report's figures as SVG: text and lines in greys and colours that can be read on white and on black alike.

Not: what the numbers are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.lab.intervals import Estimate

GREY = "#7a828b"
COLOURS = ("#2f81c7", "#d9722e", "#7a828b", "#3a9a6b", "#a566c2")
WIDTH = 7.2


@dataclass(frozen=True)
class Bar:
    """A point with its interval: which line it is on, which series it belongs to ('' for none)."""

    label: str
    series: str
    found: Estimate | None


def bars(path: Path, rows: Sequence[Bar], axis: str, chance: float | None = None) -> bool:
    """Points with intervals, one line a label. False, and no file, where nothing is finished."""
    drawn = [row for row in rows if row.found is not None]
    if not drawn:
        return False
    labels = list(dict.fromkeys(row.label for row in rows))
    series = list(dict.fromkeys(row.series for row in rows))
    figure, axes = _axes(0.9 + 0.2 * len(rows) + 0.15 * len(labels))
    for row in drawn:
        place, found = series.index(row.series), row.found
        assert found is not None
        spread = (place - (len(series) - 1) / 2) * 0.8 / max(1, len(series))
        axes.errorbar(
            100 * found.value,
            labels.index(row.label) + spread,
            xerr=[[100 * (found.value - found.low)], [100 * (found.high - found.value)]],
            fmt="o",
            color=COLOURS[place % len(COLOURS)],
            capsize=3,
        )
    if chance is not None:
        axes.axvline(chance, color=GREY, linestyle=":", linewidth=1)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(axis)
    if series != [""]:
        handles = [
            axes.plot([], [], "o", color=COLOURS[i % len(COLOURS)], label=name)[0]
            for i, name in enumerate(series)
        ]
        _legend(axes, handles)
    return _save(figure, path)


def lines(path: Path, series: Sequence[tuple[str, Mapping[int, float]]], x: str, y: str) -> bool:
    """A line a series over whole numbers (a scale of powers of two). False, and no file, where nothing is finished."""
    drawn = [(name, values) for name, values in series if values]
    if not drawn:
        return False
    figure, axes = _axes(3.4)
    for place, (name, values) in enumerate(drawn):
        axes.plot(
            list(values),
            [100 * value for value in values.values()],
            "o-",
            color=COLOURS[place % len(COLOURS)],
            label=name,
        )
    ticks = sorted({votes for _, values in drawn for votes in values})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    _legend(axes, None)
    return _save(figure, path)


def _axes(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("none")
    axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.8)
    axes.tick_params(colors=GREY)
    axes.xaxis.label.set_color(GREY)
    axes.yaxis.label.set_color(GREY)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)
    return figure, axes


def _legend(axes: Any, handles: Any) -> None:
    axes.legend(
        handles=handles,
        frameon=False,
        labelcolor=GREY,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
    )


def _save(figure: Any, path: Path) -> bool:
    import matplotlib

    # no date and no random ids: the same results make the same file
    with matplotlib.rc_context({"svg.hashsalt": "lab", "svg.fonttype": "none"}):
        figure.savefig(path, transparent=True, metadata={"Date": None})
    return True

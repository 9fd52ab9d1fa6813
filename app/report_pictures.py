"""A report's figures as SVG that stands inside its HTML: a few hundred points, text as text, no script.

Greys and colours that can be read on white and on black alike; lines differ in their dashes and areas in their hatching
too. Not: what the numbers are.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

GREY = "#7a828b"
COLOURS = ("#2f81c7", "#d9722e", "#3a9a6b", "#a566c2")
DASHES = ("-", "--", ":", "-.")
HATCHES = ("", "///", "\\\\\\", "xxx")
WIDTH, HEIGHT = 7.4, 2.3
MOST_POINTS = 160
_DECIMALS = re.compile(r"-?\d+\.\d{2,}(?=[ \n\"])")
"""Coordinates, as matplotlib writes them: a tenth of a point is enough."""


@dataclass(frozen=True)
class Series:
    """A line over seconds: ``values[i]`` holds for the time up to ``seconds[i]``."""

    name: str
    seconds: Sequence[float]
    values: Sequence[float]


def thinned(series: Series, most: int = MOST_POINTS) -> Series:
    """At most so many points: means over equal stretches of the run, each point weighed by the time it stands for."""
    if len(series.seconds) <= most:
        return series
    end = series.seconds[-1] or 1.0
    sums, weights = [0.0] * most, [0.0] * most
    for (before, now), value in zip(pairwise((0.0, *series.seconds)), series.values, strict=True):
        place = min(most - 1, int(most * now / end))
        weight = max(now - before, 1e-9)
        sums[place] += weight * value
        weights[place] += weight
    kept = [(end * (i + 1) / most, sums[i] / weights[i]) for i in range(most) if weights[i]]
    return Series(series.name, [at for at, _ in kept], [value for _, value in kept])


def lines_svg(name: str, panels: Sequence[tuple[str, Series]], alt: str) -> str:
    """Small figures side by side, each with one line from 0; ``panels``: (title of the axis, its line)."""
    figure, axes = _figure(len(panels))
    for place, (axis, (title, series)) in enumerate(zip(axes, panels, strict=True)):
        drawn = thinned(series)
        unit = _time_axis(axis, drawn.seconds[-1])
        axis.plot(
            [at / unit for at in drawn.seconds],
            drawn.values,
            DASHES[0],
            color=COLOURS[place],
            marker="o" if len(drawn.seconds) < 30 else "",
            markersize=3,
        )
        axis.set_ylim(bottom=0)
        axis.set_title(title, color=GREY, fontsize=9, loc="left")
    return _svg(figure, name, alt)


def areas_svg(name: str, parts: Sequence[Series], alt: str) -> str:
    """Shares of time, stacked up to 1. The series have the same seconds."""
    figure, (axis,) = _figure(1)
    drawn = [thinned(part) for part in parts]
    unit = _time_axis(axis, drawn[0].seconds[-1])
    seconds = [0.0, *(at / unit for at in drawn[0].seconds)]
    bottom = [0.0] * len(seconds)
    for place, part in enumerate(drawn):
        values = [part.values[0], *part.values]  # a value holds for the time before it
        top = [low + value for low, value in zip(bottom, values, strict=True)]
        axis.fill_between(
            seconds,
            bottom,
            top,
            step="pre",
            facecolor=COLOURS[place],
            edgecolor="white",  # of the hatching
            hatch=HATCHES[place],
            linewidth=0,
            label=part.name,
        )
        bottom = top
    axis.set_ylim(0, 1)
    axis.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axis.legend(
        frameon=False, labelcolor=GREY, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(drawn), fontsize=9
    )
    return _svg(figure, name, alt)


def _time_axis(axis: Any, end: float) -> float:
    """From 0 to ``end`` seconds, in the unit that suits; returns its seconds."""
    unit, name = (1, "seconds") if end < 180 else (60, "minutes") if end < 10_800 else (3600, "hours")
    axis.set_xlabel(name, color=GREY, fontsize=9)
    axis.set_xlim(0, end / unit)
    return unit


def _figure(columns: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for axis in axes:
        axis.set_facecolor("none")
        axis.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.8)
        axis.tick_params(colors=GREY, labelsize=9)
        for side, spine in axis.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(GREY)
    return figure, axes


def _svg(figure: Any, name: str, alt: str) -> str:
    """The figure's own element alone, with words for a screen reader; its ids are those of ``name``."""
    import matplotlib

    out = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = _DECIMALS.sub(lambda number: f"{float(number[0]):.1f}", text)
    # ids are matplotlib's own (figure_1, patch_2, …): the figures of one page must not share them
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(alt, quote=True)}"', 1)

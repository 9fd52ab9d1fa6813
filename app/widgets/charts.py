"""Small Plotly figures of counts and metrics, in the colours of the theme. Not the Q curve (``value_curve``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
import streamlit as st

from app.widgets.value_curve import DARK, LIGHT, Palette

CONFIG = {"displayModeBar": False}
AMBER, QUIET = {"light": "#b07d12", "dark": "#d9a93b"}, {"light": "#c9c9c2", "dark": "#4a515a"}


def is_dark() -> bool:
    """Whether this browser shows the dark theme."""
    return st.context.theme.type == "dark"


def palette() -> Palette:
    return DARK if is_dark() else LIGHT


def colours() -> dict[str, str]:
    """good, bad, warn, quiet and line of the theme in force."""
    mode, own = "dark" if is_dark() else "light", palette()
    return {"good": own.good, "bad": own.bad, "warn": AMBER[mode], "quiet": QUIET[mode], "line": own.line}


def plain(text: str) -> str:
    """A name for a chart, where Plotly would read tags."""
    return re.sub(r"[<>&]", " ", text)[:80]


@dataclass(frozen=True)
class Slice:
    """One class of a bar: what it is called and the tone it has in every bar."""

    key: str
    name: str
    tone: str


def share_bars(bars: Mapping[str, Mapping[str, int]], slices: Sequence[Slice]) -> go.Figure:
    """One horizontal bar a name, cut into shares; n stands behind the name, counts in the hover."""
    own, tones = palette(), colours()
    names = [f"{plain(name)}  n = {sum(counts.values()):,}" for name, counts in bars.items()]
    figure = go.Figure()
    for part in slices:
        counts = [bar.get(part.key, 0) for bar in bars.values()]
        shares = [n / max(1, sum(bar.values())) for n, bar in zip(counts, bars.values(), strict=True)]
        figure.add_bar(
            y=names,
            x=shares,
            name=part.name,
            orientation="h",
            marker={"color": tones[part.tone], "line": {"width": 1, "color": own.paper}},
            text=[f"{share:.0%}" if share >= 0.06 else "" for share in shares],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            insidetextfont={"color": own.ink if part.tone == "quiet" else own.paper},
            customdata=counts,
            hovertemplate=f"{part.name}: %{{customdata:,}} (%{{x:.1%}})<extra></extra>",
        )
    figure.update_layout(
        barmode="stack",
        height=70 + 46 * len(bars),
        bargap=0.35,
        legend={"traceorder": "normal"},
        **_frame(own),
    )
    figure.update_layout(legend={"orientation": "h", "y": -0.05, "yanchor": "top", "x": 0})
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"})
    figure.update_xaxes(visible=False, range=[0, 1])
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure


def lost_and_gained(rows: Sequence[tuple[str, float, float, int]]) -> go.Figure:
    """(position, mean Q lost, mean Q gained, n) as bars below and above zero."""
    own, tones = palette(), colours()
    positions, n = [row[0] for row in rows], [row[3] for row in rows]
    figure = go.Figure()
    for name, values, tone in (
        ("gained", [row[2] for row in rows], "good"),
        ("lost", [-row[1] for row in rows], "bad"),
    ):
        figure.add_bar(
            x=positions,
            y=values,
            name=name,
            marker={"color": tones[tone]},
            customdata=n,
            hovertemplate=f"chunk %{{x}}: %{{y:+.3f}} {name} a chunk, n = %{{customdata:,}}<extra></extra>",
        )
    figure.update_layout(barmode="relative", height=270, bargap=0.25, **_frame(own))
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    figure.update_xaxes(title={"text": "chunk", "standoff": 4}, type="category", showgrid=False)
    figure.update_yaxes(gridcolor=own.grid, zerolinecolor=own.ink, tickformat="+.2f", nticks=6)
    return figure


def curve(
    name: str, steps: Sequence[int], values: Sequence[float | None], *, small: bool = False
) -> go.Figure:
    """One metric over the steps of a run."""
    own = palette()
    figure = go.Figure(
        go.Scatter(
            x=steps,
            y=values,
            mode="lines+markers" if len(steps) < 40 and not small else "lines",
            line={"color": own.line, "width": 1.5 if small else 2},
            hovertemplate="step %{x}: %{y:.4g}<extra></extra>",
        )
    )
    title = {"text": plain(name).replace("_", " "), "font": {"size": 13}, "x": 0, "xanchor": "left"}
    figure.update_layout(height=170 if small else 280, title=title, **_frame(own, top=30))
    figure.update_xaxes(
        title=None if small else {"text": "step", "standoff": 4}, rangemode="tozero", showgrid=False
    )
    figure.update_yaxes(gridcolor=own.grid, zeroline=False, nticks=5)
    return figure


def _frame(own: Palette, top: int = 6) -> dict[str, object]:
    return {
        "margin": {"l": 8, "r": 8, "t": top, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": own.ink, "size": 12},
        "dragmode": False,
    }

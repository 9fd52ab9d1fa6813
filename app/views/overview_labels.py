"""Overview: where Q is lost, how labels balance, and how the balance moves with γ and α. From kept totals alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import streamlit as st

from app.widgets.access import get_store
from app.widgets.charts import CONFIG, Slice, lost_and_gained, share_bars
from app.widgets.overview_charts import negative_over
from engine.label_curve import Balance, alpha_curve, gamma_curve, parse_pair
from engine.labels import REL_EFFECTIVE, REL_RATIO

Totals = Mapping[str, Mapping[str, tuple[int, float]]]
RULES = {"abs_q": "abs-q", "rel_effective": "rel-effective (α = 0.4)", "rel_ratio": "rel-ratio (γ = 0.8)"}
LABELS = (Slice("+", "+", "good"), Slice("-", "−", "bad"), Slice("none", "no label", "quiet"))
POSITIONS = 16
"""Chunk positions drawn one by one; later ones share the last bar."""
GAMMAS = [Fraction(i, 100) for i in range(40, 131)]
ALPHAS = [Fraction(i, 100) for i in range(0, 121)]
PAPER_GAMMA, PAPER_ALPHA = Fraction(7, 10), Fraction(4, 5)
"""What the paper chose for its 7B model; the defaults are its 1.5B model's."""


def counted(totals: Totals, name: str) -> dict[str, int]:
    return {key: n for key, (n, _) in totals.get(name, {}).items()}


def said(bars: Mapping[str, Mapping[str, int]]) -> str:
    """Bars in words, for a screen reader."""
    return "; ".join(
        f"{name}: " + ", ".join(f"{n} {key}" for key, n in counts.items()) for name, counts in bars.items()
    )


def where_lost(totals: Totals) -> None:
    st.markdown("**Where Q is lost**")
    rows = lost_rows(totals)
    if not rows:
        st.caption(
            "No values yet: roll out some trajectories, and the chance of success after each chunk is known."
        )
        return
    st.caption("Mean Q lost and gained over one chunk, by its position; only chunks with both values known.")
    worst = max(rows, key=lambda row: row[1])
    st.plotly_chart(
        lost_and_gained(rows),
        key="lost",
        config=CONFIG,
        alt=f"Most Q is lost at chunk {worst[0]}: {worst[1]:.3f} a chunk over {worst[3]} chunks.",
    )


def lost_rows(totals: Totals) -> list[tuple[str, float, float, int]]:
    """(position, mean lost, mean gained, n), later positions together."""
    lost, gained = totals.get("lost/position", {}), totals.get("gained/position", {})
    sums: dict[int, list[float]] = {}
    for key, (n, amount) in lost.items():
        at = sums.setdefault(min(int(key), POSITIONS), [0, 0.0, 0.0])
        at[0], at[1] = at[0] + n, at[1] + amount
        at[2] += gained.get(key, (0, 0.0))[1]
    return [
        (place_name(place), total_lost / n, total_gained / n, int(n))
        for place, (n, total_lost, total_gained) in sorted(sums.items())
        if n
    ]


def place_name(place: int) -> str:
    return f"{POSITIONS}+" if place == POSITIONS else str(place)


def balance(totals: Totals) -> None:
    st.markdown("**Label balance**")
    bars = {title: counted(totals, f"labels/{rule}") for rule, title in RULES.items()}
    if not any(bars.values()):
        st.caption("No labels yet: they follow from the values that rollouts give.")
        return
    st.caption("Chunks by label under each rule; no label where a value is unknown.")
    st.plotly_chart(share_bars(bars, LABELS), key="balance", config=CONFIG, alt=said(bars))


def thresholds() -> None:
    """Share of − at every γ and α, exactly: read off, and chosen where confidence and agreement stand beside it."""
    pairs = [parse_pair(text, n) for text, n in get_store().pairs().items()]
    if not pairs:
        return
    chunks = sum(n for _, _, n in pairs)
    st.markdown("**What a threshold does**")
    st.caption(
        f"Share of − among the labels of {chunks:,} chunks with both values known, at every threshold."
    )
    by_gamma = gamma_curve(pairs, GAMMAS)
    by_alpha = alpha_curve(pairs, ALPHAS, REL_EFFECTIVE.n or 1)
    left, right = st.columns(2, gap="small")
    with left:
        marks = {REL_RATIO.gamma: "default", PAPER_GAMMA: "the paper's 7B"}
        _picture("γ", "rel-ratio", by_gamma, marks)
    with right:
        _picture(
            "α",
            f"rel-effective, n = {REL_EFFECTIVE.n}",
            by_alpha,
            {REL_EFFECTIVE.alpha: "default", PAPER_ALPHA: "the paper's 7B"},
        )
    st.page_link(
        "views/data.py",
        label="Choose a threshold",
        icon=":material/tune:",
        query_params={"tab": "thresholds"},
    )


def _picture(symbol: str, title: str, rows: Sequence[Balance], marks: Mapping[Fraction | None, str]) -> None:
    shares = {row.parameter: row.negative_share or 0.0 for row in rows}
    points = [(float(at), share) for at, share in shares.items()]
    marked = {at: words for at, words in marks.items() if at in shares}
    words = "; ".join(
        f"{symbol} = {float(at):g} ({who}): {shares[at]:.0%}" for at, who in marked.items() if at
    )
    st.plotly_chart(
        negative_over(symbol, points, [(float(at), shares[at]) for at in marked if at]),
        key=f"over-{symbol}",
        config=CONFIG,
        alt=f"Share of − under {title}: {words}.",
    )
    st.caption(f"{title}: {words}")

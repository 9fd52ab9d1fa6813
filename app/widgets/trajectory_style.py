"""Two rules of layout that Streamlit's columns lack: a list that stays in sight, and another order on a phone."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_STYLE = st.components.v2.component(
    "stepwiser_trajectory_style",
    html="<span></span>",
    css=Path(__file__).with_suffix(".css").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def trajectory_style() -> None:
    """Put the rules on the page; call it last."""
    _STYLE(key="trajectory-style")

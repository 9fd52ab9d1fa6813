"""Going elsewhere on the same page. A ``st.page_link`` to the page one is on reruns it but leaves the address behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import streamlit as st


def go_here(parameters: Mapping[str, str | list[str]]) -> None:
    """Callback: the address gets these query parameters and no others; Back undoes it."""
    st.query_params.from_dict(dict(parameters))


def here_button(
    label: str,
    parameters: Mapping[str, str | list[str]],
    *,
    key: str,
    icon: str | None = None,
    icon_position: Literal["left", "right"] = "left",
    disabled: bool = False,
    primary: bool = False,
    help: str | None = None,
) -> None:
    """A button that shows another state of this page. Inside a fragment too: the whole page is drawn again."""
    pressed = st.button(
        label,
        key=key,
        icon=icon,
        icon_position=icon_position,
        type="primary" if primary else "tertiary",
        disabled=disabled,
        help=help,
        on_click=go_here,
        args=(dict(parameters),),
    )
    if pressed:
        st.rerun()

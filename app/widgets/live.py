"""Parts of a page that redraw themselves. Not: what they show."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import streamlit as st

from app.widgets.safe_text import escape_line
from db.errors import StoreError

P = ParamSpec("P")


def live(draw: Callable[P, None], *, every: float | None) -> Callable[P, None]:
    """``draw`` as a fragment, redrawn every so many seconds (None: only when something in it is used).

    A store that cannot be read just now is named in its place, and tried again at the next redraw.
    """

    @wraps(draw)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            draw(*args, **kwargs)
        except StoreError as error:
            st.error(
                escape_line(f"The store cannot be used: {error}", limit=600), icon=":material/database_off:"
            )

    return st.fragment(guarded, run_every=every)

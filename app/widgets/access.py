"""One store for the whole Streamlit process, opened once; sessions are short and belong to the store.

Not here: queries and writes (``db.store``).
"""

from __future__ import annotations

import streamlit as st

from app.settings import get_settings
from db.store import Store, open_store


@st.cache_resource(show_spinner=False)
def _open(url: str) -> Store:
    return open_store(url)


def get_store() -> Store:
    """The store of these settings. Raises StoreError if it cannot be opened."""
    return _open(get_settings().store_url)


def actor() -> str:
    """Whom writes of this browser are attributed to: from the settings, never from a widget."""
    return get_settings().actor

"""One store for the whole Streamlit process, opened once, and who is in front of the page.

Not here: queries and writes (``db.store``).
"""

from __future__ import annotations

from hashlib import sha256

import streamlit as st

from app.settings import get_settings
from db.errors import StoreError
from db.store import Store, open_store

LONGEST = 200
"""Characters of an actor's name that the store holds."""


@st.cache_resource(show_spinner=False)
def _open(url: str) -> Store:
    return open_store(url)


def get_store() -> Store:
    """The store of these settings for the eyes of whoever is in front of the page: its reads leave out what a blind
    queue hides from them. Raises StoreError if it cannot be opened, or for somebody not signed in."""
    return _open(get_settings().store_url).seen_by(actor())


def signing_in() -> bool:
    """Whether authentication is configured (an [auth] section of secrets.toml): then nobody gets in without it."""
    return st.secrets.load_if_toml_exists() and "auth" in st.secrets


def signed_in() -> bool:
    return bool(st.user.get("is_logged_in"))


def actor() -> str:
    """Whom writes of this browser are attributed to: the signed-in subject and issuer, or, on localhost without
    authentication, the name in the settings. Never from a widget. Raises StoreError for somebody not signed in."""
    if not signing_in():
        return get_settings().actor
    if not signed_in():
        raise StoreError("nothing was read or written: sign in first")
    subject, issuer = str(st.user.get("sub") or ""), str(st.user.get("iss") or "")
    if (
        not subject or not issuer
    ):  # a name without them would belong to somebody at this machine, or to everybody
        raise StoreError(
            "the sign-in names nobody: its token has no subject or no issuer; use another provider"
        )
    name = f"{subject} @ {issuer}"
    if len(name) > LONGEST:  # never cut: without its issuer a name would belong to somebody at this machine
        name = f"{sha256(subject.encode()).hexdigest()} @ {issuer}"
    if len(name) > LONGEST:
        raise StoreError(
            f"the sign-in's issuer has {len(issuer)} characters, too many for a name: use another"
        )
    return name

"""All that somebody sees who has not signed in, where sign-in is configured: nothing of the store is read for it."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit

import streamlit as st

from app.sign_in import origin
from app.sign_in_answers import NO_ANSWER, OUTCOME, REFUSED

SAYS = {
    NO_ANSWER: "Nobody was signed in: the sign-in provider gave no usable answer. Try again in a while; whoever runs "
    "this server finds the reason in the pages' log. Nothing was changed, and drafts are kept.",
    REFUSED: "Nobody was signed in: the sign-in was cancelled, took too long, or did not fit this server. Try again.",
}


def sign_in() -> None:
    """The way in, how the last try went, and where the pages are, if this is not their address."""
    _, middle, _ = st.columns([1, 2, 1])
    with middle:
        st.title("StepWiser Studio", anchor=False)
        st.markdown("A workbench for step-level judges of LLM reasoning.")
        if said := SAYS.get(st.query_params.get(OUTCOME, "")):
            st.error(said, icon=":material/cloud_off:")
        if there := _elsewhere():
            st.info("People sign in at another address of these pages.", icon=":material/moving:")
            st.link_button("Open the pages there", there, type="primary", icon=":material/arrow_forward:")
            return
        st.button("Sign in", type="primary", icon=":material/login:", on_click=st.login, key="sign-in")
        st.caption(
            "Reviews are kept under the name with which you sign in. Whoever signs in the first time is a reader: "
            "the People page says what to send to an owner."
        )


def _elsewhere() -> str:
    """This page at the address to which the provider sends people back, where that is another one: a sign-in that
    begins at one address and ends at another is lost."""
    here, back = urlsplit(st.context.url or ""), origin(st.secrets["auth"], st.get_option("server.port"))
    if not here.netloc or f"{here.scheme}://{here.netloc}" == back:
        return ""
    query = urlencode({name: value for name, value in st.query_params.items() if name != OUTCOME})
    return f"{back}{here.path}" + (f"?{query}" if query else "")

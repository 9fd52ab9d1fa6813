"""The server: the pages of ``main.py`` behind headers that keep a browser from loading anything from elsewhere.

``streamlit run app/serve.py``. Text from models and files is shown escaped (``widgets/safe_text.py``); the headers
are the second line of defence. How people sign in is read here, once (``sign_in.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware

from app.settings import get_settings
from app.sign_in import read_auth
from app.sign_in_answers import SignInAnswers

POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "media-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "frame-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
"""Streamlit's own page has inline scripts and styles; pictures, connections and frames stay on this origin."""

HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class SafeHeaders:
    """ASGI middleware that adds ``HEADERS`` to every answer."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        async def send_with_headers(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


auth = read_auth(get_settings())
app = st.App(
    Path(__file__).with_name("main.py"),
    middleware=[Middleware(SafeHeaders), *([Middleware(SignInAnswers)] if auth else [])],
    secrets={"auth": auth} if auth else None,
)

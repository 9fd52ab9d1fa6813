"""What the browser gets back from the sign-in routes: a page that says what happened, and the page that was asked for.

Streamlit answers a provider that is down with a bare line of text, a refused sign-in with silence, and a sign-in that
worked with the first page. The routes themselves, cookies and tokens are Streamlit's and Authlib's.
"""

from __future__ import annotations

import re
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote, unquote

LOGIN = "/auth/login"
CALLBACK = "/oauth2callback"
OUTCOME = "sign-in"
"""The query parameter of the sign-in page that says how the last try went."""
NO_ANSWER, REFUSED = "no-answer", "refused"
WANTED = "stepwiser_wanted"
"""The cookie with the address that somebody opened before signing in."""
USER = b"_streamlit_user="
LONGEST = 1500
OWN_ADDRESS = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""An address on this origin, as bytes of a URL: never another host, never a second header."""


class SignInAnswers:
    """ASGI middleware around the pages, where sign-in is configured."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        async def send_answer(message: dict[str, Any]) -> None:
            await send(_answer(scope, message) if message["type"] == "http.response.start" else message)

        await self.app(scope, receive, send_answer if scope["type"] == "http" else send)


def _answer(scope: dict[str, Any], start: dict[str, Any]) -> dict[str, Any]:
    """The start of the answer as the browser is to get it."""
    path, query = str(scope["path"]), parse_qs(scope["query_string"].decode("latin-1"))
    if path.endswith(LOGIN) and start["status"] >= 400:
        return _sent_to(f"/?{OUTCOME}={NO_ANSWER}", start)
    if path.endswith(CALLBACK) and (
        query.get("state") or query.get("error")
    ):  # neither: back from signing out
        worked = any(name == b"set-cookie" and _sets_user(value) for name, value in start["headers"])
        return _sent_to(_wanted(scope) if worked else f"/?{OUTCOME}={REFUSED}", start)
    if _is_page(scope, start) and OUTCOME not in query:
        address = scope["raw_path"].decode("latin-1")
        address += f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        if len(address) <= LONGEST:
            cookie = f"{WANTED}={quote(address, safe='')}; Path=/; Max-Age=900; HttpOnly; SameSite=Lax"
            return {**start, "headers": [*start["headers"], (b"set-cookie", cookie.encode())]}
    return start


def _sent_to(address: str, start: dict[str, Any]) -> dict[str, Any]:
    """The same answer, its cookies included, as a way to ``address``; browsers do not show its body."""
    kept = [one for one in start["headers"] if one[0].lower() != b"location"]
    return {**start, "status": 302, "headers": [*kept, (b"location", address.encode())]}


def _sets_user(cookie: bytes) -> bool:
    return cookie.startswith(USER) and b"max-age=0" not in cookie.lower()


def _is_page(scope: dict[str, Any], start: dict[str, Any]) -> bool:
    accept = _header(scope, b"accept")
    own = scope["path"].endswith((LOGIN, CALLBACK, "/auth/logout")) or "/_stcore/" in scope["path"]
    return scope["method"] == "GET" and start["status"] == 200 and "text/html" in accept and not own


def _wanted(scope: dict[str, Any]) -> str:
    """The page that was asked for before signing in; the first page where that is not known."""
    try:
        cookie = SimpleCookie(_header(scope, b"cookie")).get(WANTED)
    except CookieError:
        cookie = None
    address = unquote(cookie.value) if cookie else "/"
    return address if OWN_ADDRESS.fullmatch(address) else "/"


def _header(scope: dict[str, Any], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), "")

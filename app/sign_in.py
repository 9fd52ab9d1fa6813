"""Sign-in through OpenID Connect: where its settings are read from, and what is wrong with them. No network, no pages.

The settings are Streamlit's ``[auth]`` section. They are read once, when the pages start, and hold until the pages
end: a file that is lost or broken meanwhile lets nobody in.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.settings import Settings
from engine.errors import StepWiserError

NEEDED = ("redirect_uri", "cookie_secret", "client_id", "client_secret", "server_metadata_url")
LOCAL = ("127.0.0.1", "localhost", "::1")
SHORTEST = 32
"""Characters of a cookie secret. Whoever guesses it is whoever they like."""
CALLBACK = "/oauth2callback"


class SignInError(StepWiserError):
    """Sign-in is configured, but cannot be used as it is."""


def secrets_files(settings: Settings) -> list[Path]:
    """Where an ``[auth]`` section is looked for, the first that has one wins: beside the store, then where Streamlit
    would look."""
    usual = Path(".streamlit") / "secrets.toml"
    return [settings.home / "secrets.toml", Path.cwd() / usual, Path.home() / usual]


def read_auth(settings: Settings) -> dict[str, Any]:
    """The ``[auth]`` section; empty where nobody signs in. Raises SignInError for a file that cannot be read and for
    a section that cannot be used: nobody is let in by mistake."""
    for file in secrets_files(settings):
        try:
            auth = tomllib.loads(file.read_text(encoding="utf-8")).get("auth")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SignInError(f"{file}: cannot be read as TOML: {error}") from error
        if auth is not None:
            if problem := wrong_with(auth):
                raise SignInError(f"{file}: {problem}")
            return dict(auth)
    return {}


def wrong_with(auth: object) -> str:
    """What keeps this section from being used, and what to do; empty where nothing does."""
    if not isinstance(auth, Mapping):
        return f"auth is {auth!r}, not a section: write [auth] on a line of its own"
    if missing := [name for name in NEEDED if not str(auth.get(name, "")).strip()]:
        return f"[auth] lacks {', '.join(missing)} (one provider, directly in [auth])"
    if len(str(auth["cookie_secret"])) < SHORTEST:
        return (
            f"cookie_secret has {len(str(auth['cookie_secret']))} characters and takes at least {SHORTEST}; make one: "
            'python -c "import secrets; print(secrets.token_hex(32))"'
        )
    for name in ("redirect_uri", "server_metadata_url"):
        if not _safe(str(auth[name])):
            return f"{name} is {auth[name]!r}, and must be https://…, or http:// on localhost"
    if not str(auth["redirect_uri"]).endswith(CALLBACK):
        return f"redirect_uri is {auth['redirect_uri']!r}, and must be the pages' address with {CALLBACK}"
    return ""


def origin(auth: Mapping[str, Any], port: int) -> str:
    """The address of the pages to which people come back: scheme, host and port of ``redirect_uri``."""
    address = urlsplit(str(auth["redirect_uri"]).replace("{port}", str(port)))
    return f"{address.scheme}://{address.netloc}"


def _safe(url: str) -> bool:
    try:
        address = urlsplit(url.replace("{port}", "1"))
        host, _ = address.hostname, address.port
    except ValueError:
        return False
    return bool(host) and (address.scheme == "https" or (address.scheme == "http" and host in LOCAL))

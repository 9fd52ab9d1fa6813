"""Addresses of servers as people write them in a recipe: checked, and written one way. Asks no server anything."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def server_address(text: str) -> str:
    """``text`` as ``http(s)://host[:port][/path]``, host in small letters, without a ``/v1`` at its end.

    Raises ValueError that names the address and what is wrong. A user name or password in it is refused and not
    repeated: a recipe is stored and shown.
    """
    shown = repr(text[:200])
    if "@" in text:
        raise ValueError(
            "a server's address holds a user name or password ('@'); name the bare address, and put the key into "
            "the environment (STEPWISER_LLM_KEYS)"
        )
    if not text.isascii() or not text.isprintable() or any(sign in text for sign in " \\<>\"'`{}"):
        raise ValueError(
            f"server address {shown}: only letters, digits and the signs of an address may stand in it"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"server address {shown}: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"server address {shown}: it must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise ValueError(f"server address {shown}: it names no host; write http://host:8000")
    if parts.query or parts.fragment:
        raise ValueError(f"server address {shown}: leave out what follows '?' or '#'")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return urlunsplit((parts.scheme, f"{host}:{port}" if port else host, path, "", ""))

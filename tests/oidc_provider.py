"""An OpenID Connect provider on this machine, for the tests of signing in: real keys, real codes, nobody at a keyboard.

Authorization code flow with PKCE. The authorize endpoint sends the browser back at once, as ``provider.person``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, CLIENT_SECRET = "stepwiser-tests", "a secret between the pages and the provider"


@dataclass(frozen=True)
class Someone:
    sub: str
    name: str
    email: str = "shared@example.org"


@dataclass
class Provider:
    """Serve with ``up()``; ``person`` is who signs in next, nobody where the provider refuses."""

    port: int
    redirect_uri: str
    person: Someone | None = None
    signing: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, auto_kid=True))
    key: RSAKey = field(init=False)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    """What was asked with each code that was given out and not used."""

    def __post_init__(self) -> None:
        self.key = self.signing  # what is published; a test signs with another

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def secrets_toml(self) -> str:
        """The [auth] section of an app that signs in here."""
        values = {
            "redirect_uri": self.redirect_uri,
            "cookie_secret": secrets.token_hex(32),
            "client_id": CLIENT,
            "client_secret": CLIENT_SECRET,
            "server_metadata_url": f"{self.issuer}/.well-known/openid-configuration",
        }
        return "[auth]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())

    @contextmanager
    def up(self) -> Iterator[None]:
        """Answers while inside; outside it is down."""
        handler = type("Handler", (_Handler,), {"provider": self})
        server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/end",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser goes back to."""
        assert asked["client_id"] == CLIENT and asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256" and "openid" in asked["scope"].split()
        assert asked["redirect_uri"] == self.redirect_uri, asked["redirect_uri"]
        if self.person is None:
            return f"{self.redirect_uri}?" + urlencode({"error": "access_denied", "state": asked["state"]})
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked | {"sub": self.person.sub}
        return f"{self.redirect_uri}?" + urlencode({"code": code, "state": asked["state"]})

    def token(self, asked: dict[str, str], basic: str) -> dict[str, Any]:
        """A code for an id token, once."""
        known = self.codes.pop(asked["code"])
        challenge = hashlib.sha256(asked["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() == known["code_challenge"]
        client, _, secret = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
        assert (unquote(client), unquote(secret.replace("+", " "))) == (CLIENT, CLIENT_SECRET)
        assert self.person is not None and self.person.sub == known["sub"]
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": known["nonce"]}
        claims |= {"sub": self.person.sub, "name": self.person.name, "email": self.person.email}
        header = {"alg": "RS256", "kid": self.key.kid}
        token = jwt.encode(header, claims, self.signing)
        return {"access_token": "none", "token_type": "Bearer", "expires_in": 300, "id_token": token}


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        asked = dict(parse_qsl(address.query))
        if address.path == "/.well-known/openid-configuration":
            self._json(self.provider.discovery())
        elif address.path == "/jwks":
            self._json({"keys": [self.provider.key.as_dict(private=False)]})
        elif address.path == "/authorize":
            self._to(self.provider.authorize(asked))
        elif address.path == "/end":
            self._to(asked["post_logout_redirect_uri"])
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._json(self.provider.token(dict(parse_qsl(body)), self.headers.get("Authorization", "")))

    def _json(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _to(self, address: str) -> None:
        self.send_response(302)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a test's output is its own."""

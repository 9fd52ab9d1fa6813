"""A small HTTP server that speaks the part of vLLM's language that the door uses, and misbehaves when told to.

For what a real server does not do on demand: 429, garbage, half a stream, silence, sudden death. What it draws
follows from prompt and seed, so two of them agree as two servers with the same weights do.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

END = 2


def draw(prompt: list[int], seed: int, most: int, vocabulary: int) -> tuple[list[int], str]:
    dice = random.Random(f"{seed}|{prompt}")
    ids = [dice.randrange(4, vocabulary) for _ in range(dice.choice((0, 3, 9, 40)))]
    return (ids[:most], "length") if len(ids) >= most else ([*ids, END], "stop")


class FakeServer:
    """``misdeeds``: what the next completion requests meet instead of an answer. ``asked``: their bodies."""

    def __init__(
        self, names: tuple[str, ...], *, vocabulary: int, root: str = "", context: int = 512, key: str = ""
    ):
        self.names, self.vocabulary, self.root, self.context, self.key = names, vocabulary, root, context, key
        self.misdeeds: deque[str] = deque()
        self.always: Callable[[dict[str, Any]], str | None] = lambda body: None
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.pause_s = 0.0
        self.silent = threading.Event()
        """While it is set, requests are taken and nothing is ever answered."""
        self.released = threading.Event()
        self.metrics = ""
        self.port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def drawn(self) -> int:
        """Requests for completions, the door's own trials left out."""
        return sum(body["max_tokens"] > 1 for body in self.asked)

    def start(self) -> None:
        """Begin, or begin again at the same address."""
        self.sockets: set[socket.socket] = set()
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Die: nobody listens any more, and every open connection is cut."""
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        for one in list(self.sockets):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            fake.sockets.add(self.connection)

        def finish(self) -> None:
            fake.sockets.discard(self.connection)
            super().finish()

        def log_message(self, format: str, *args: Any) -> None:
            return

        def say(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if fake.silent.is_set():
                fake.released.wait(60)
            cards = [{"id": n, "root": fake.root, "max_model_len": fake.context} for n in fake.names]
            answers = {
                "/health": b"",
                "/version": b'{"version": "0.0.fake"}',
                "/metrics": fake.metrics.encode(),
                "/v1/models": json.dumps({"data": cards}).encode(),
            }
            if self.path.startswith("/v1") and not self.allowed():
                return self.say(401, b'{"error": "Unauthorized"}')
            self.say(200 if self.path in answers else 404, answers.get(self.path, b""))

        def allowed(self) -> bool:
            fake.headers.append({k.lower(): v for k, v in self.headers.items()})
            return not fake.key or self.headers.get("authorization") == f"Bearer {fake.key}"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if fake.silent.is_set():
                fake.released.wait(60)
            if not self.allowed():
                return self.say(401, b'{"error": "Unauthorized"}')
            fake.asked.append(body)
            trial = body["max_tokens"] == 1
            misdeed = fake.always(body) or (None if trial or not fake.misdeeds else fake.misdeeds.popleft())
            if misdeed in MISDEEDS:
                return MISDEEDS[misdeed](self)
            time.sleep(0 if trial else fake.pause_s)
            self.stream(body, misdeed)

        def stream(self, body: dict[str, Any], misdeed: str | None) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            for index in range(body["n"]):
                ids, reason = draw(body["prompt"], body["seed"] + index, body["max_tokens"], fake.vocabulary)
                if misdeed == "odd tokens":
                    ids = [*ids[:-1], fake.vocabulary]
                if misdeed == "more than asked":
                    ids = ids * body["max_tokens"] * 2
                if misdeed == "half" and index == body["n"] - 1:
                    self.piece(index, ids[:1], None)
                    return
                if len(ids) > 1:
                    self.piece(index, ids[:1], None)
                    ids = ids[1:]
                self.piece(index, ids, reason)
            if misdeed == "error in stream":
                self.wfile.write(b'data: {"error": {"message": "engine dead"}}\n\n')
            if misdeed != "no end":
                self.wfile.write(b"data: [DONE]\n\n")

        def piece(self, index: int, ids: list[int], reason: str | None) -> None:
            choice = {"index": index, "text": "", "token_ids": ids, "finish_reason": reason}
            self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")

    def drop(handler: Handler) -> None:
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    MISDEEDS: dict[str | None, Callable[[Handler], None]] = {
        "429": lambda h: h.say(429, b'{"error": {"message": "slow down"}}', retry_after="0"),
        "503": lambda h: h.say(503, b"busy"),
        "500": lambda h: h.say(500, b'{"error": {"message": "engine\\nERROR all is lost"}}'),
        "400": lambda h: h.say(400, b'{"error": {"message": "I do not like this prompt"}}'),
        "404": lambda h: h.say(404, b'{"error": {"message": "The model does not exist."}}'),
        "redirect": lambda h: h.say(307, b"", location="http://127.0.0.1:9/"),
        "html": lambda h: h.say(200, b"<html>Sign in</html>", "text/html"),
        "garbage": lambda h: h.say(200, b"data: \xff\xfe{]\n\n", "text/event-stream"),
        "no ids": lambda h: h.say(
            200,
            b'data: {"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}\n\n',
            "text/event-stream",
        ),
        "a list": lambda h: h.say(200, b"data: [1, 2]\n\n", "text/event-stream"),
        "drop": drop,
    }
    return Handler

"""What the fleet knows of each server and of each request on its way. What it does with that is in ``server_fleet``."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import httpx

from engine.llm.base import Request
from engine.llm.server_check import Facts
from engine.llm.server_wire import draws_asked


@dataclass
class ServerUse:
    """What became of one server while a stream was open.

    Seconds in which it was well, and of these the seconds in which it had fewer draws than its target while work
    waited; draws and tokens that it made; requests that it did not answer; times that it was found unwell.
    """

    address: str
    up_s: float = 0.0
    below_s: float = 0.0
    draws: int = 0
    tokens: int = 0
    handed_on: int = 0
    downs: int = 0


@dataclass(eq=False)
class Job:
    """A request on its way, and how often it was asked for in vain."""

    request: Request
    tries: int = 0

    @property
    def draws(self) -> int:
        return draws_asked(self.request)


@dataclass(eq=False)
class Member:
    """One server as the fleet sees it. ``flying``: our draws there; ``others``: draws of others, as last heard."""

    address: str
    http: httpx.AsyncClient
    facts: Facts | None = None
    up: bool = False
    why: str = ""
    strikes: int = 0
    silent: int = 0
    flying: int = 0
    others: int = 0
    since: float = field(default_factory=time.monotonic)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    use: ServerUse = field(init=False)

    def __post_init__(self) -> None:
        self.use = ServerUse(self.address)

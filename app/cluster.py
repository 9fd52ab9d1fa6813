"""The Ray cluster that runs are sent to: whether it may be used, by whom, and whether the store can be reached from it.

Not: what is sent (``app.cluster_run``), and engines on the cluster (``engine.llm.ray_pool``).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil

from app.cluster_jobs import JobServer
from app.settings import Settings
from engine.errors import RunError


def token() -> str:
    """The cluster's token, from where Ray itself takes it: two variables, then a file in the home folder; empty: none."""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return given.strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def job_server(settings: Settings) -> JobServer:
    """The job server that the settings name, once it is known to be fit. Raises RunError that says what is wrong.

    A cluster that takes commands from anybody is refused, unless RAY_AUTH_MODE=disabled says that it is meant so.
    """
    address = settings.ray_address
    server = JobServer(address, token())
    if not server.wants_token():
        if os.environ.get("RAY_AUTH_MODE", "token").strip().lower() != "disabled":
            raise RunError(
                f"Ray cluster {address}: it takes commands from anybody who reaches it; start it with "
                "RAY_AUTH_MODE=token (docs/cluster.md), or set RAY_AUTH_MODE=disabled here as well if it is meant so"
            )
    elif not server.token:
        raise RunError(
            f"Ray cluster {address}: it wants a token; put it into RAY_AUTH_TOKEN, or into the file that "
            "RAY_AUTH_TOKEN_PATH names (by default ~/.ray/auth_token)"
        )
    server.version()
    return server


def check_store(settings: Settings) -> None:
    """Raises RunError where a job on the cluster could not open the store, or would show its password."""
    url, host = settings.store_url, urlsplit(settings.ray_address).hostname or ""
    if url.startswith("sqlite"):
        if not is_here(host):
            raise RunError(
                f"the store is an SQLite file of this machine ({url.partition('///')[2]}), which a job on {host} "
                "cannot open (nor safely over a shared disk); move it to PostgreSQL (STEPWISER_DATABASE_URL), or run "
                "StepWiser on the cluster's head node"
            )
        return
    parts = urlsplit(url)
    if parts.password or "password" in parse_qs(parts.query):
        raise RunError(
            "STEPWISER_DATABASE_URL holds a password, which everybody who sees the cluster's list of jobs could read; "
            "leave it out, and put it into ~/.pgpass here and on the cluster's nodes"
        )


def is_here(host: str) -> bool:
    """Whether ``host`` is this machine."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    own = {one.address.partition("%")[0] for each in psutil.net_if_addrs().values() for one in each}
    return bool(found & own)


def job_environment(settings: Settings) -> dict[str, str]:
    """Variables of a job: the same folders and store as here. Keys and passwords are not among them."""
    return {
        "STEPWISER_HOME": str(settings.home),
        "STEPWISER_DATABASE_URL": settings.database_url,
        "STEPWISER_RAY_ADDRESS": "",
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
    }

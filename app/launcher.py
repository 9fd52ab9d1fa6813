"""``stepwiser app``: migrates the store, loads the sample into an empty one, starts worker and pages, ends both."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from app.sample import load_sample
from app.settings import Settings
from app.sign_in import LOCAL, origin, read_auth
from app.store import open_or_make_store
from db.people_store import ISSUER
from db.store import Store
from engine.errors import StepWiserError

SERVE = Path(__file__).with_name("serve.py")
START_S = 60.0
END_S = 100.0


class LaunchError(StepWiserError):
    """The app cannot be started as asked."""


def check_host(host: str, auth: Mapping[str, Any]) -> None:
    """Refuse to serve other machines without authentication. Raises LaunchError that says how to configure it."""
    if host in LOCAL or auth:
        return
    raise LaunchError(
        f"--host {host} would let anybody who reaches this machine read and write the store, and no "
        "authentication is configured. Put an [auth] section (redirect_uri, cookie_secret, client_id, client_secret, "
        "server_metadata_url: an OpenID Connect provider) into secrets.toml in STEPWISER_HOME, as docs/people.md "
        f"says, or keep 127.0.0.1 and reach it through ssh -L 8501:127.0.0.1:8501 {socket.gethostname()}"
    )


def open_to_all(store: Store, auth: Mapping[str, Any], actor: str) -> str:
    """What to say where people who sign in have roles in this store, and nobody is asked to sign in; else empty."""
    if auth or not any(ISSUER in person.actor for person in store.people()):
        return ""
    return (
        "People sign in to this store, but no [auth] section was found in secrets.toml (docs/people.md): "
        f"whoever opens these pages now writes as {actor}"
    )


def check_port(host: str, port: int) -> None:
    """Raises LaunchError when something listens on the port already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise LaunchError(
                f"port {port} on {host} cannot be used ({error.strerror}); take another: make app PORT={port + 1}"
            ) from error


def pages_command(host: str, port: int, public: str = "") -> list[str]:
    """The command that serves the pages, at ``public`` where people sign in. Options that must hold wherever it is
    started are given here."""
    options = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "server.trustedUserHeaders": "{}",  # who somebody is comes from the sign-in, never from a header
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    if host in LOCAL:  # a foreign site whose name resolves to this machine must not reach the store
        behind = urlsplit(public).hostname or "localhost"  # the name of a proxy on this machine
        names = dict.fromkeys(("localhost", "127.0.0.1", "[::1]", behind))
        flags += [f"--server.allowedHosts={name}" for name in names]
    return [sys.executable, "-m", "streamlit", "run", str(SERVE), *flags]


def wait_until_healthy(host: str, port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when the pages answer. Raises LaunchError when they end or stay silent."""
    name = f"[{host}]" if ":" in host else host
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise LaunchError(f"the pages ended with code {process.returncode} while starting")
        try:
            with urllib.request.urlopen(f"http://{name}:{port}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise LaunchError(f"the pages did not answer on port {port} within {START_S:.0f} s")


def launch(settings: Settings, host: str, port: int, sample: bool) -> int:
    """Serve until Ctrl-C or SIGTERM, then end worker and pages cleanly. Returns an exit code."""
    auth = read_auth(settings)
    check_host(host, auth)
    check_port(host, port)
    public = origin(auth, port) if auth else f"http://{host}:{port}"
    store = open_or_make_store(settings)
    if warning := open_to_all(store, auth, settings.actor):
        print(warning, file=sys.stderr, flush=True)
    if sample and store.is_empty():
        print("Loading the sample …", flush=True)
        print(load_sample(store), flush=True)
    env = os.environ | {"STEPWISER_HOME": str(settings.home)}
    settings.logs.mkdir(parents=True, exist_ok=True)
    stop = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    for signum in stop:
        signal.signal(signum, _interrupt)
    started: list[subprocess.Popen[bytes]] = []
    try:
        worker = _start([sys.executable, "-m", "app.worker"], settings.logs / "worker.log", env, started)
        pages = _start(pages_command(host, port, public), settings.logs / "pages.log", env, started)
        wait_until_healthy(host, port, pages)
        print(f"StepWiser Studio is at {public}  (Ctrl-C ends it)", flush=True)
        return _watch(settings, worker, pages)
    except KeyboardInterrupt:
        print(
            "\nEnding: a run in progress stops after the batch in hand (Ctrl-C again: at once) …", flush=True
        )
        return 0
    finally:
        for signum in stop:
            signal.signal(signum, signal.SIG_IGN)
        if started:
            signal.signal(signal.SIGINT, partial(_at_once, started[0]))
        for process in reversed(started):  # the pages first
            _end(process)


def _start(
    command: list[str], log: Path, env: dict[str, str], started: list[subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Start it in a process group of its own, and put it on the list of what is to be ended."""
    with log.open("ab") as out:
        started.append(subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True))
    return started[-1]


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _at_once(worker: subprocess.Popen[bytes], signum: int, frame: FrameType | None) -> None:
    """Ctrl-C again: the run in progress is not waited for any more."""
    if worker.poll() is None:
        worker.send_signal(signal.SIGINT)


def _watch(settings: Settings, worker: subprocess.Popen[bytes], pages: subprocess.Popen[bytes]) -> int:
    worker_gone = False
    while True:
        time.sleep(0.5)
        if pages.poll() is not None:
            print(
                f"The pages ended with code {pages.returncode}; see {settings.logs / 'pages.log'}",
                file=sys.stderr,
            )
            return 1
        if worker.poll() is not None and not worker_gone:
            worker_gone = True
            print(
                f"The worker ended with code {worker.returncode}; see {settings.logs / 'worker.log'}",
                file=sys.stderr,
            )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

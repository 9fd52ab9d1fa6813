"""Label Studio's side: installed from PyPI into a virtual environment of its own, driven as its users drive it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from app.bench.annotation.side import READING_MS, seen, timed
from app.bench.annotation.tasks import ASKED, Task
from app.bench.pages import free_port
from app.launcher import LaunchError

if TYPE_CHECKING:
    from playwright.sync_api import Page

START_S = 600
"""Its first start makes its database, which takes minutes on a small machine."""
EMAIL = "bench@example.com"
SUBMIT = "() => document.querySelector('button[aria-label=\"Submit current annotation\"]') !== null"
MARK = "document.body.textContent.match(/item-\\d{5}/)?.[0]"
NEXT = f"before => {{ const now = {MARK}; return now && now !== before; }}"
CONFIG = """<View>
  <Header value="Problem"/><Text name="problem" value="$problem"/>
  <Header value="So far"/><Text name="history" value="$history"/>
  <Header value="This chunk"/><Text name="chunk" value="$chunk"/>
  <Choices name="verdict" toName="chunk" choice="single">
    <Choice value="error" hotkey="1"/><Choice value="neutral" hotkey="2"/><Choice value="sound" hotkey="3"/>
  </Choices>
</View>"""


def install(folder: Path) -> Path:
    """Its program, from PyPI, in ``folder``; nothing is done where it is there already."""
    program = folder / "bin" / "label-studio"
    if not program.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "label-studio"]
        subprocess.run(pip, check=True)
    return program


class LabelStudio:
    """One project whose tasks are chunks in the context of their solution."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.password, self.token = secrets.token_urlsafe(12), secrets.token_hex(20)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.api = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Token {self.token}"}, timeout=600
        )
        self.project = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.name = "Label Studio"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "LABEL_STUDIO_BASE_DATA_DIR": str(self.folder),
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "LATEST_VERSION_CHECK": "false",
            "COLLECT_ANALYTICS": "false",
            "SENTRY_DSN": "",
            "FRONTEND_SENTRY_DSN": "",
        }
        command = [str(self.program), "start", "--no-browser", "--port", str(self.port)]
        command += ["--username", EMAIL, "--password", self.password, "--user-token", self.token]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT
            )
        self._wait()
        self.name = f"Label Studio {self.api.get('/api/version').json()['release']}"
        made = self.api.post("/api/projects", json={"title": "chunks", "label_config": CONFIG})
        made.raise_for_status()
        self.project = made.json()["id"]

    def _wait(self) -> None:
        assert self.process is not None
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                if self.api.get("/health", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(1)
        tail = (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-1500:]
        raise LaunchError(f"Label Studio did not answer within {START_S} s; the end of its log:\n{tail}")

    def load(self, tasks: Sequence[Task]) -> float:
        rows = [{"data": _data(task)} for task in tasks]
        return timed(
            lambda: self.api.post(f"/api/projects/{self.project}/import", json=rows).raise_for_status()
        )

    def ready(self, page: Page) -> None:
        page.goto(f"{self.url}/user/login")
        page.fill("input[name=email]", EMAIL)
        page.fill("input[name=password]", self.password)
        page.click("button[type=submit]")
        page.wait_for_url(lambda url: "/user/login" not in url)
        self.show_list(page)
        self.open_item(page)

    def show_list(self, page: Page) -> float:
        def show() -> None:
            page.goto(f"{self.url}/projects/{self.project}/data")
            seen(page, "() => document.querySelector('.lsf-table-row')?.innerText.trim()")

        return timed(show)

    def open_item(self, page: Page) -> float:
        def show() -> None:
            page.locator(".lsf-table-row").nth(3).click(position={"x": 200, "y": 10})
            seen(page, SUBMIT)

        return timed(show)

    def answer(self, page: Page, count: int) -> list[float]:
        page.goto(f"{self.url}/projects/{self.project}/data?labeling=1")
        seen(page, SUBMIT)
        seconds = []
        for number in range(count):
            page.wait_for_timeout(READING_MS)
            mark = page.evaluate(MARK)
            page.keyboard.press("1" if number % 2 else "3")

            def go(before: str = mark) -> None:
                page.keyboard.press("Control+Enter")
                seen(page, NEXT, before)
                seen(page, SUBMIT)

            seconds.append(timed(go))
        return seconds

    def export(self) -> tuple[float, int]:
        out = self.folder / "export.json"

        def write() -> None:
            asked = {"exportType": "JSON", "download_all_tasks": "true"}
            answer = self.api.get(f"/api/projects/{self.project}/export", params=asked)
            answer.raise_for_status()
            out.write_bytes(answer.content)

        seconds = timed(write)
        tasks: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
        return seconds, sum(len(task["annotations"]) for task in tasks)

    def stop(self) -> None:
        self.api.close()
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)


def _data(task: Task) -> dict[str, Any]:
    return {
        "problem": task.problem,
        "history": "\n".join(task.chunks[:ASKED]),
        "chunk": task.chunks[ASKED],
    }

"""Makes sure that a Chromium is there for the browser tests: Debian's, installed once where we may."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def main() -> int:
    if find_chromium():
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(
            "The browser tests need Chromium: install it (Debian: sudo apt-get install chromium)",
            file=sys.stderr,
        )
        return 1
    print("Installing Chromium for the browser tests …", flush=True)
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]):
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode:
            print(done.stdout + done.stderr, file=sys.stderr)
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())

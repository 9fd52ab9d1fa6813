"""The pages as ``app/serve.py`` serves them, on a machine so slow that finding the next item takes 700 ms.

``streamlit run tests/slow_pages.py``. For the test that presses keys faster than the page can follow.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import streamlit as st

from db.queue_work import QueueWork

SECONDS = 0.7
_next_item = QueueWork.next_item


def _slow_next_item(self: QueueWork, *args: Any) -> Any:
    time.sleep(SECONDS)
    return _next_item(self, *args)


QueueWork.next_item = _slow_next_item  # type: ignore[method-assign]
app = st.App(Path(__file__).parent.parent / "app" / "main.py")

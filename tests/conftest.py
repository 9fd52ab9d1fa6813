"""Fixtures that several files share: the live pages, the browser, and one vLLM start a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser_support import browser, live_app, page
from tests.coin import coin, tied_coin  # noqa: F401
from tests.queue_pages import slow_url

__all__ = ["browser", "live_app", "page", "slow_url"]


@pytest.fixture(scope="session")
def vllm_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """vLLM over a tiny random Llama: the one vLLM that the session starts in this process."""
    pytest.importorskip("vllm")
    from engine.llm import LLMSpec, open_llm
    from tests.tiny_llama import make_tiny_llama

    folder = make_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))
    with open_llm(LLMSpec(checkpoint=str(folder), name="tiny", max_num_seqs=16)) as llm:
        yield llm

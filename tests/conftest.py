"""Fixtures that several files share (the live pages, the browser, one vLLM a session), and who runs which file when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser_support import browser, live_app, page
from tests.coin import coin, tied_coin  # noqa: F401
from tests.queue_pages import slow_url

__all__ = ["browser", "live_app", "page", "slow_url"]

LONG = (
    "test_whole_way",
    "test_llm",
    "test_ray",
    "test_llm_stream",
    "test_llm_vllm",
    "test_llm_servers_real",
    "test_soak",
    "test_browser_training",
    "test_nano_training",
    "test_chunk_reset",
    "test_plans",
    "test_afternoon",
    "test_browser_trajectory",
    "test_top_up",
    "test_grpo_policy",
    "test_discriminative_training",
    "test_launcher",
    "test_worker",
)
"""Files that take long: begun last, one of them would keep a single worker busy at the end."""
ONE_VLLM = ("test_llm", "test_llm_stream", "test_llm_vllm", "test_llm_servers_real", "test_soak")
"""Files with ``vllm_door``: one worker has them all, and starts it once."""


@pytest.fixture(scope="session")
def vllm_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """vLLM over a tiny random Llama: the one vLLM that the session starts in this process."""
    pytest.importorskip("vllm")
    from engine.llm import LLMSpec, open_llm
    from tests.tiny_llama import make_tiny_llama

    folder = make_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))
    with open_llm(LLMSpec(checkpoint=str(folder), name="tiny", max_num_seqs=16)) as llm:
        yield llm


def _place(item: pytest.Item) -> int:
    return LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several workers begin with the long files; a single process keeps the usual order."""
    if hasattr(config, "workerinput"):
        items.sort(key=_place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadfile`` in the order of the collection, and all files with ``vllm_door`` to one worker."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class InOrder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return ONE_VLLM[0] if Path(file).stem in ONE_VLLM else file

    config.option.loadscopereorder = False
    return InOrder(config, log)

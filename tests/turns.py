"""What the tests of discriminative judges share: a prompt, a tokenizer with a chat template, a run that judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.judge import load_prompt
from engine.llm.tokens import Tokens
from engine.recipes import JudgeRecipe, Selection
from engine.runs import RunContext
from tests.tiny_llama import make_tiny_llama

PLAIN = load_prompt("judge_turns_nano", needs=("problem",))


@pytest.fixture(scope="session")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens.load(make_tiny_llama(tmp_path_factory.mktemp("discriminative") / "chatty"))


def judging(store: Any, home: Path, **fields: Any) -> RunContext[JudgeRecipe]:
    recipe = JudgeRecipe(select=Selection(dataset="d"), **fields)
    run_id = store.start_run("judge", recipe.model_dump(mode="json"), "ada", pid=1)
    return RunContext(store, run_id, 1, recipe, home, "ada")

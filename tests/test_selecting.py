"""A run whose selection fits nothing says so before an LLM is loaded, and names what there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from engine.errors import InputError
from engine.evaluate.recipes import EvaluatePolicyRecipe
from engine.pipeline import evaluating, judging, rolling, sampling, searching
from engine.recipes import JudgeRecipe, Recipe, RolloutRecipe, SampleRecipe, resolve
from engine.search.recipes import SearchRecipe
from tests import little_world as little
from tests.labelled_store import store_with

Run = Callable[[Any], dict[str, Any]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    def opened(*_: object) -> None:
        raise AssertionError("an LLM was asked for")

    for stage in (evaluating, judging, rolling, sampling, searching):
        monkeypatch.setattr(stage, "open_door", opened)
    return store_with(tmp_path, [(16, 0)])[0]


@pytest.mark.parametrize(
    ("kind", "run"), [(RolloutRecipe, rolling.run), (JudgeRecipe, judging.run)], ids=["rollout", "judge"]
)
def test_a_selection_that_fits_nothing(kind: type[Recipe], run: Run, store: Store, tmp_path: Path) -> None:
    recipe = resolve(kind, {"select": {"dataset": "dd", "policy": "human"}})
    with pytest.raises(
        InputError,
        match=r"no trajectory that fits select \(dataset 'dd', policy 'human'\); its data sets are 'd'",
    ):
        run(little.context(store, recipe, tmp_path))
    with pytest.raises(AssertionError, match="an LLM was asked for"):
        run(little.context(store, resolve(kind, {"select": {"dataset": "d"}}), tmp_path))


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        (SampleRecipe, sampling.run),
        (SearchRecipe, searching.run),
        (EvaluatePolicyRecipe, evaluating.policy),
    ],
    ids=["sample", "search", "evaluate-policy"],
)
def test_a_data_set_without_problems(kind: type[Recipe], run: Run, store: Store, tmp_path: Path) -> None:
    recipe = resolve(kind, {"dataset": "dd", "generate": None})
    with pytest.raises(InputError, match=r"data set 'dd' has no problems; there are 'd'\. Import some"):
        run(little.context(store, recipe, tmp_path))
    for fine in ({"dataset": "d", "generate": None}, {"dataset": "dd", "generate": {"count": 2}}):
        with pytest.raises(AssertionError, match="an LLM was asked for"):
            run(little.context(store, resolve(kind, fine), tmp_path))

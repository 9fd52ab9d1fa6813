"""What the training-set builder has on screen, kept for the session: its fields, and the recipe that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.kinds import resolve_recipe
from engine.labels import DEFAULT_RULES, Rule, parse_rule
from engine.recipes import Selection
from training.parts import LabelFilter
from training.sets import BuildSetRecipe

STEM = "set-builder:"
RULE, GAMMA, ALPHA, N = "rule", "gamma", "alpha", "n"
MOST = {GAMMA: 1.5, ALPHA: 1.5, N: 64}
"""The largest parameter that the builder's widgets hold."""
_DEFAULTS = {rule.name: rule for rule in DEFAULT_RULES}


def key(field: str) -> str:
    """The session key of a field of the builder."""
    return STEM + field


def begin(policies: list[str]) -> None:
    """Gives every field that is not set yet its default; the default policy only where the store has it."""
    recipe = BuildSetRecipe()
    labels, select = recipe.labels.model_dump(), recipe.select
    rule = parse_rule(labels.pop("rule"))
    values: dict[str, Any] = {
        "name": "",
        "form": recipe.form,
        "prompt": recipe.prompt,
        "tokenizer": recipe.tokenizer,
        "max_tokens": recipe.max_tokens,
        "clear_of": [],
        "dataset": select.dataset,
        "policy": select.policy if select.policy in policies else None,
        "from_run": select.from_run,
        "mixed_only": select.mixed_only,
        **labels,
        **_parameters(_DEFAULTS["rel-effective"]),
        **_parameters(_DEFAULTS["rel-ratio"]),
        RULE: rule.name,
    }
    for field, value in values.items():
        st.session_state.setdefault(key(field), value)


def _parameters(rule: Rule) -> dict[str, Any]:
    found = {GAMMA: rule.gamma, ALPHA: rule.alpha}
    return {name: float(value) for name, value in found.items() if value is not None} | (
        {N: rule.n} if rule.n is not None else {}
    )


def get(field: str) -> Any:
    """What the builder has for ``field`` now."""
    return st.session_state[key(field)]


def rule_text() -> str:
    """The rule on screen as recipes write it."""
    return _written(get(RULE), {name: get(name) for name in (GAMMA, ALPHA, N)})


def _written(name: str, values: Mapping[str, Any]) -> str:
    if name == "rel-ratio":
        return f"{name}:gamma={values[GAMMA]:g}"
    return f"{name}:alpha={values[ALPHA]:g},n={values[N]}" if name == "rel-effective" else name


def holds(rule: Rule) -> bool:
    """Whether the builder's widgets can hold a rule as it is: no parameter beyond their ends, or that they would round."""
    values = _parameters(rule)
    return parse_rule(_written(rule.name, values)) == rule and all(
        value <= MOST[name] for name, value in values.items()
    )


def take_rule(text: str) -> None:
    """Callback: puts a rule that the builder ``holds`` into it. Raises RecipeError on an unknown one."""
    rule = parse_rule(text)
    for field, value in ({RULE: rule.name} | _parameters(rule)).items():
        st.session_state[key(field)] = value


def selection() -> Selection:
    """The trajectories that the builder's filter selects."""
    return Selection(
        dataset=get("dataset"), policy=get("policy"), from_run=get("from_run"), mixed_only=get("mixed_only")
    )


def recipe_data() -> dict[str, Any]:
    """The recipe on screen as plain data."""
    return {
        "kind": "build-set",
        "name": get("name").strip() or None,
        "form": get("form"),
        "select": selection().model_dump(mode="json"),
        "labels": {field: rule_text() if field == RULE else get(field) for field in LabelFilter.model_fields},
        "prompt": get("prompt"),
        "tokenizer": get("tokenizer"),
        "max_tokens": get("max_tokens"),
        "clear_of": list(get("clear_of")),
    }


def recipe() -> BuildSetRecipe:
    """The recipe on screen, checked. Raises RecipeError."""
    made = resolve_recipe("build-set", recipe_data())
    assert isinstance(made, BuildSetRecipe)
    return made

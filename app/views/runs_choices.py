"""What can be chosen in the form that starts a run: names in the store, checkpoints, sets, prompts, recipes, runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from app.settings import get_settings
from app.shipped import shipped_for
from app.views.runs_compare import run_label
from app.widgets.access import get_store
from app.widgets.run_words import kind_title
from app.widgets.when import ago
from engine.checkpoints import list_checkpoints, read_card, resolve_checkpoint
from engine.judge import prompt_names
from engine.labels import DEFAULT_RULES
from training.sets.frozen import Manifest, list_sets

RECENT = 30
FORMS = {
    "train-judge": "judge",
    "train-judge-rsft": "judge",
    "train-judge-sft": "turns",
    "train-sft": "completion",
    "evaluate-judge": "judge",
}
"""The form of set that each kind of run reads."""
LIKE = 8
"""Earlier runs that a form can start from."""


def choices(kind: str) -> dict[str, Mapping[Any, str]]:
    """Options by the path of a field, or by its last word wherever it stands, with what each is called."""
    store, home = get_store(), get_settings().home
    datasets = {name: name for name in store.datasets()}
    checkpoints = checkpoint_names(home)
    made = {
        run.id: f"Run {run.id} · {kind_title(run.kind)} · {run.done:,} {run.unit} · {ago(run.created_at, run.now)}"
        for run in store.runs(RECENT, kinds=["sample", "import"])
    }
    prompts = {name: name for name in prompt_names()}
    rules = {str(rule): str(rule) for rule in DEFAULT_RULES}
    judges = {judge.name: judge.name for judge in store.judges()}
    own = {"policy": checkpoints, "judge": checkpoints} if kind == "loop" else {}
    return {
        "dataset": datasets,
        "policy": {name: name for name in store.policies()},
        "from_run": made,
        "checkpoint": checkpoints,
        "base": checkpoints,
        "prompt": prompts,
        "rule": rules,
        "rules": rules,
        "set": set_names(home, FORMS.get(kind)),
        "agree_with": judges,
        "voted_by": judges,
        "judge": judges,
        "tokenizer": checkpoints,
        "clear_of": datasets,
        "policy_prompt": prompts,
        "judge_prompt": prompts,
        **own,
    }


@st.cache_data(ttl=5, show_spinner=False)
def checkpoint_names(home: Path) -> dict[str, str]:
    """Checkpoints with what each is for and what it was made from, as their cards say."""
    named = {}
    for name in list_checkpoints(home):
        card = read_card(resolve_checkpoint(name, home))
        parts = [name, card.get("role"), f"from {card['base']}" if card.get("base") else None]
        named[name] = " · ".join(str(part) for part in parts if part)
    return named


@st.cache_data(ttl=5, show_spinner=False)
def set_names(home: Path, form: str | None) -> dict[str, str]:
    """Frozen training sets of the form that a kind of run reads, newest first, with how many rows they train on."""
    sets = [one for one in list_sets(home) if form in (None, one.form)]
    return {one.name: " · ".join((one.name, one.form, *_rows(one))) for one in sets}


def _rows(one: Manifest) -> list[str]:
    train = one.files.get("train.jsonl")
    return [f"{train.rows:,} rows"] if train else []


def start_points(kind: str) -> dict[str, str]:
    """What a form of the kind can start from, as the address's ``name=value``; the empty one are its defaults."""
    points = {"": "The defaults"}
    points |= {f"recipe={name}": f"{name} (comes with the program)" for name in shipped_for(kind)}
    return points | {f"like={run.id}": run_label(run) for run in get_store().runs(LIKE, kinds=[kind])}

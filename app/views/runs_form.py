"""A form made from a kind's recipe: one widget a field, nested parts folded. Not what happens on Start (``runs_new``).

Values live in the session under keys made of kind, base and path, so ``collect`` reads what is on screen even when
the script that drew it was interrupted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import streamlit as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from app.kinds import Kind

COMMON: Mapping[str, tuple[str, ...]] = {
    "sample": ("dataset", "n", "limit", "llm.checkpoint", "draws.temperature", "seed", "generate"),
    "rollout": ("select.dataset", "select.policy", "select.from_run", "m", "llm.checkpoint", "select.limit"),
    "judge": ("llm.checkpoint", "k", "name", "select.dataset", "select.from_run", "select.limit"),
    "train-judge": ("name", "base", "grpo.steps", "grpo.learning_rate", "labels.rule", "select.dataset"),
}
"""Fields that a person sets most, by kind, in the order in which they are asked; the others are folded."""

COLUMNS = 2
TITLES: Mapping[str, str] = {
    "n": "Solutions a problem (N)",
    "m": "Rollouts a prefix (M)",
    "k": "Judgments a chunk (k)",
    "dataset": "Data set",
    "limit": "Problems at most",
    "select.limit": "Trajectories at most",
    "per_problem": "At most a problem",
    "generate": "Write new problems first",
    "count": "New problems",
    "generate.seed": "Seed of the problems",
    "kinds": "Kinds of problem",
    "checkpoint": "Checkpoint",
    "from_run": "From run",
    "trajectory_ids": "Trajectory ids",
    "mixed_only": "Only problems with right and wrong solutions",
    "base": "Base checkpoint",
    "rule": "Label rule",
    "steps": "Optimizer steps",
    "top_p": "Top p",
    "kv_cache_gib": "KV cache (GiB)",
    "gpu_memory_utilization": "Share of GPU memory",
    "max_num_seqs": "Completions at once",
    "max_model_len": "Context (tokens)",
    "dtype": "Number format",
    "llm": "Language model",
    "draws": "How completions are drawn",
    "select": "Which trajectories",
    "labels": "Which labels",
    "grpo": "GRPO",
}


def title_of(path: str) -> str:
    """What the form calls the field at ``path``."""
    last = path.rpartition(".")[2]
    return TITLES.get(path) or TITLES.get(last, last.replace("_", " ").capitalize())


@dataclass(frozen=True)
class Leaf:
    """One field with a value of its own. ``part``: the optional part that must be switched on for it to count."""

    path: str
    info: FieldInfo
    default: Any
    part: str | None = None

    @property
    def optional(self) -> bool:
        return NoneType in get_args(self.info.annotation)

    @property
    def type(self) -> Any:
        """The annotation without None."""
        args = get_args(self.info.annotation)
        is_union = get_origin(self.info.annotation) in (Union, UnionType)
        return next(a for a in args if a is not NoneType) if is_union else self.info.annotation


def _default(info: FieldInfo) -> Any:
    value = info.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else value


def leaves(
    model: type[BaseModel], base: Mapping[str, Any], path: str = "", part: str | None = None
) -> Iterator[Leaf]:
    """All leaves of ``model`` in the order of its fields; defaults come from ``base`` where it has them.

    An optional part (``X | None``) is itself a leaf of type bool, followed by its fields.
    """
    for name, info in model.model_fields.items():
        if not path and name == "kind":
            continue
        full = f"{path}{name}"
        leaf = Leaf(full, info, base.get(name, _default(info)), part)
        if isinstance(leaf.type, type) and issubclass(leaf.type, BaseModel):
            given = base.get(name, _default(info))
            nested = given.model_dump() if isinstance(given, BaseModel) else given
            if leaf.optional:
                yield Leaf(full, info, nested is not None, part)
            yield from leaves(leaf.type, nested or {}, f"{full}.", full if leaf.optional else part)
        else:
            yield leaf


def is_switch(leaf: Leaf) -> bool:
    """Whether the leaf switches an optional part on."""
    return isinstance(leaf.type, type) and issubclass(leaf.type, BaseModel)


@dataclass(frozen=True)
class Form:
    """A kind's form over base values. ``choices``: options for a field by path, with what each is called."""

    kind: Kind
    base: Mapping[str, Any]
    choices: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        digest = hashlib.sha256(json.dumps(self.base, sort_keys=True, default=str).encode()).hexdigest()[:8]
        return f"new:{self.kind.name}:{digest}"

    def key(self, path: str) -> str:
        return f"{self.stem}:{path}"

    def leaves(self) -> list[Leaf]:
        return list(leaves(self.kind.recipe, self.base))

    def collect(self, state: Mapping[Any, Any]) -> dict[str, Any]:
        """The recipe's fields as the widgets have them now; a field that was never drawn has its default."""
        data: dict[str, Any] = {}
        for leaf in self.leaves():
            value = state.get(self.key(leaf.path), _shown(leaf))
            if is_switch(leaf):
                _put(data, leaf.path, {} if value else None)
            elif leaf.part is None or _get(data, leaf.part) is not None:
                _put(data, leaf.path, _parsed(leaf, value))
        return data

    def draw(self) -> None:
        """All widgets: common fields first, the rest of each part folded."""
        by_path = {leaf.path: leaf for leaf in self.leaves()}
        first = [by_path[path] for path in COMMON.get(self.kind.name, ()) if path in by_path]
        first += [
            leaf for leaf in by_path.values() if leaf.part and leaf.part in COMMON.get(self.kind.name, ())
        ]
        self._grid([leaf for leaf in first if leaf.part is None and not is_switch(leaf)])
        for switch in (leaf for leaf in first if is_switch(leaf)):
            self._switch(switch, [leaf for leaf in first if leaf.part == switch.path])
        shown = {leaf.path for leaf in first}
        rest = [leaf for leaf in by_path.values() if leaf.path not in shown]
        for part in sorted({_part(leaf) for leaf in rest}, key=lambda part: part == ""):
            with st.expander(
                f"More: {title_of(part).lower() if part != 'grpo' else 'GRPO'}"
                if part
                else "More: other fields"
            ):
                self._grid([leaf for leaf in rest if _part(leaf) == part])

    def _grid(self, group: Sequence[Leaf]) -> None:
        for start in range(0, len(group), COLUMNS):
            pairs = zip(st.columns(COLUMNS), group[start : start + COLUMNS], strict=False)
            for column, leaf in pairs:
                with column:
                    self._widget(leaf)

    def _switch(self, switch: Leaf, group: Sequence[Leaf]) -> None:
        key = self.key(switch.path)
        st.session_state.setdefault(key, bool(switch.default))
        on = st.toggle(title_of(switch.path), key=key, help=switch.info.description, persist_state="session")
        if on:
            with st.container(border=True):
                self._grid(group)

    def _widget(self, leaf: Leaf) -> None:
        key, help_text = self.key(leaf.path), leaf.info.description
        st.session_state.setdefault(key, _shown(leaf))
        label = title_of(leaf.path)
        kept: dict[str, Any] = {"key": key, "help": help_text, "persist_state": "session"}
        if leaf.path in self.choices:
            self._chooser(leaf, label, kept)
        elif leaf.type is bool:
            st.toggle(label, **kept)
        elif get_origin(leaf.type) is Literal:
            st.selectbox(label, get_args(leaf.type), **kept)
        elif get_origin(leaf.type) is tuple and get_origin(get_args(leaf.type)[0]) is Literal:
            st.pills(label, get_args(get_args(leaf.type)[0]), selection_mode="multi", **kept)
        elif leaf.type in (int, float):
            st.number_input(label, placeholder=_when_empty(leaf), **_limits(leaf), **kept)
        else:
            st.text_input(label, placeholder=_when_empty(leaf), **kept)

    def _chooser(self, leaf: Leaf, label: str, kept: dict[str, Any]) -> None:
        names = self.choices[leaf.path]
        options = list(names)
        if st.session_state[kept["key"]] not in (None, *options):
            options.append(st.session_state[kept["key"]])
        st.selectbox(
            label,
            options,
            format_func=lambda value: names.get(value, str(value)),
            placeholder=_when_empty(leaf),
            accept_new_options=leaf.type is str,
            **kept,
        )


def _part(leaf: Leaf) -> str:
    """The part of the recipe that the leaf belongs to; empty for the recipe's own fields."""
    return leaf.path.partition(".")[0] if "." in leaf.path else ""


def _when_empty(leaf: Leaf) -> str:
    """What an empty field means: its description says so after "empty:", and an empty filter filters nothing."""
    _, found, meaning = (leaf.info.description or "").partition("empty: ")
    if found:
        return meaning.split(";")[0].split(",")[0]
    return "all" if leaf.path.startswith("select.") else "no limit" if leaf.optional else ""


def _limits(leaf: Leaf) -> dict[str, Any]:
    """Bounds, step and format of a number widget, from the field's constraints."""
    bounds = {
        name: getattr(m, name)
        for m in leaf.info.metadata
        for name in ("ge", "gt", "le", "lt")
        if hasattr(m, name)
    }
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if leaf.type is int:
        return {"min_value": low, "max_value": high, "step": 1}
    step = 0.1 if not leaf.default or leaf.default >= 0.1 else leaf.default / 10
    as_float = {"min_value": low, "max_value": high}
    return {k: None if v is None else float(v) for k, v in as_float.items()} | {"step": step, "format": "%g"}


def _shown(leaf: Leaf) -> Any:
    """The default as the widget holds it."""
    if is_switch(leaf):
        return bool(leaf.default)
    if get_origin(leaf.type) is tuple:
        literal = get_origin(get_args(leaf.type)[0]) is Literal
        return list(leaf.default or ()) if literal else ", ".join(str(v) for v in leaf.default or ())
    if leaf.type is float and leaf.default is not None:
        return float(leaf.default)
    return leaf.default if leaf.default is not None or leaf.type is not str else None


def _parsed(leaf: Leaf, value: Any) -> Any:
    """What the recipe gets for what the widget holds; a list of ids that is none stays text and is refused there."""
    if get_origin(leaf.type) is tuple and isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return [int(part) if part.isdigit() else part for part in parts]
    if value == "" and leaf.optional:
        return None
    return value


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
    data[last] = value


def _get(data: Mapping[str, Any], path: str) -> Any:
    node: Any = data
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node

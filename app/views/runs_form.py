"""A form made from a kind's recipe: one widget a field, nested parts folded. Not what happens on Start (``runs_new``).

Values live in the session under keys made of kind, base and path, so ``collect`` reads what is on screen even when
the script that drew it was interrupted. What fields are called and which come first is in ``runs_fields``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import streamlit as st
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from app.kinds import Kind
from app.views.runs_fields import COLUMNS, COMMON, title_of


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
        if name == "kind":  # a recipe's kind is given with its form
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
            if leaf.part is not None and _get(data, leaf.part) is None:
                continue
            value = state.get(self.key(leaf.path), _shown(leaf))
            _put(data, leaf.path, ({} if value else None) if is_switch(leaf) else _parsed(leaf, value))
        return data

    def fill(self, state: MutableMapping[Any, Any], data: Mapping[str, Any]) -> None:
        """Put a recipe's values into the widgets; a field that it does not name gets the kind's own default."""
        for leaf in leaves(self.kind.recipe, data):
            state[self.key(leaf.path)] = _shown(leaf)

    def draw(self) -> None:
        """All widgets: common fields first, then each part, folded; an optional part has a switch of its own."""
        by_path = {leaf.path: leaf for leaf in self.leaves()}
        plain = [path for path, leaf in by_path.items() if "." not in path and not is_switch(leaf)]
        first = [by_path[path] for path in COMMON.get(self.kind.name, plain) if path in by_path]
        self._grid([leaf for leaf in first if leaf.part is None and not is_switch(leaf)], first=True)
        for switch in (leaf for leaf in first if is_switch(leaf)):
            self._switch(switch)
        shown = {leaf.path for leaf in first}
        rest = [leaf for leaf in by_path.values() if leaf.path not in shown]
        for part in dict.fromkeys(leaf.path.partition(".")[0] for leaf in rest if "." in leaf.path):
            if part in by_path:  # an optional part
                if part not in shown:
                    self._switch(by_path[part])
                continue
            with st.expander(f"More: {_lower_first(title_of(part))}", key=f"{self.key(part)}:more"):
                self._part(f"{part}.", shown)
        if others := [leaf for leaf in rest if "." not in leaf.path and not is_switch(leaf)]:
            with st.expander("More: other fields", key=f"{self.key('')}:more"):
                self._grid(others)

    def _part(self, prefix: str, shown: Sequence[str] | set[str] = ()) -> None:
        """The fields of one part: its own in a grid, parts within it beneath, each with its name."""
        inside = [leaf for leaf in self.leaves() if leaf.path.startswith(prefix) and leaf.path not in shown]
        own = [leaf for leaf in inside if "." not in leaf.path.removeprefix(prefix)]
        self._grid([leaf for leaf in own if not is_switch(leaf)])
        for switch in (leaf for leaf in own if is_switch(leaf)):
            self._switch(switch)
        deeper = dict.fromkeys(
            leaf.path.removeprefix(prefix).partition(".")[0] for leaf in inside if leaf not in own
        )
        for name in deeper:
            if f"{prefix}{name}" not in {leaf.path for leaf in own}:
                st.markdown(f"**{title_of(f'{prefix}{name}')}**")
                self._part(f"{prefix}{name}.", shown)

    def _grid(self, group: Sequence[Leaf], *, first: bool = False) -> None:
        twice = Counter(title_of(leaf.path, self.kind.name) for leaf in group)
        for start in range(0, len(group), COLUMNS):
            pairs = zip(st.columns(COLUMNS), group[start : start + COLUMNS], strict=False)
            for column, leaf in pairs:
                label = title_of(leaf.path, self.kind.name)
                if twice[label] > 1 and "." in leaf.path:
                    label = f"{title_of(leaf.path.rpartition('.')[0])}: {_lower_first(label)}"
                with column:
                    self._widget(leaf, label)

    def _switch(self, switch: Leaf) -> None:
        """The switch of an optional part, and its fields while it is on."""
        key = self.key(switch.path)
        st.session_state.setdefault(key, bool(switch.default))
        about = switch.info.description or (switch.type.__doc__ or "").strip()
        if st.toggle(title_of(switch.path), key=key, help=about, persist_state="session"):
            with st.container(border=True):
                self._part(f"{switch.path}.")

    def _widget(self, leaf: Leaf, label: str) -> None:
        key = self.key(leaf.path)
        st.session_state.setdefault(key, _shown(leaf))
        kept: dict[str, Any] = {"key": key, "help": leaf.info.description, "persist_state": "session"}
        names = self.names_for(leaf)
        if is_many(leaf):
            options = list(dict.fromkeys([*(names or ()), *(st.session_state[key] or ())]))
            st.multiselect(
                label, options, accept_new_options=True, placeholder=_when_empty(leaf) or "none", **kept
            )
        elif names is not None or get_origin(leaf.type) is Literal:
            self._chooser(leaf, label, names or {one: str(one) for one in get_args(leaf.type)}, kept)
        elif leaf.type is bool and leaf.optional:
            answers = {True: "yes", False: "no"}
            st.selectbox(
                label, [True, False], None, answers.__getitem__, placeholder=_when_empty(leaf), **kept
            )
        elif leaf.type is bool:
            st.toggle(label, **kept)
        elif get_origin(leaf.type) is tuple and get_origin(get_args(leaf.type)[0]) is Literal:
            st.pills(label, get_args(get_args(leaf.type)[0]), selection_mode="multi", **kept)
        elif leaf.type in (int, float):
            st.number_input(label, placeholder=_when_empty(leaf), **_limits(leaf), **kept)
        elif is_yaml(leaf):
            st.text_area(f"{label} (YAML)", height=120, **kept)
        else:
            st.text_input(label, placeholder=_when_empty(leaf), **kept)

    def names_for(self, leaf: Leaf) -> Mapping[Any, str] | None:
        """What can be chosen for the field: by its path, else by its own name; None where anything can be written."""
        if leaf.type not in (str, int) and not is_many(leaf):
            return None
        return self.choices.get(leaf.path, self.choices.get(leaf.path.rpartition(".")[2]))

    def _chooser(self, leaf: Leaf, label: str, names: Mapping[Any, str], kept: dict[str, Any]) -> None:
        options = list(names)
        if st.session_state[kept["key"]] not in (None, *options):
            options.append(st.session_state[kept["key"]])
        st.selectbox(
            label,
            options,
            None if leaf.optional else 0,
            format_func=lambda value: names.get(value, str(value)),
            placeholder=_when_empty(leaf),
            accept_new_options=leaf.type is str,
            **kept,
        )


def is_many(leaf: Leaf) -> bool:
    """Whether the field holds any number of words: rules, names."""
    return get_origin(leaf.type) is tuple and get_args(leaf.type)[:1] == (str,)


def is_yaml(leaf: Leaf) -> bool:
    """Whether the field has no widget of its own (a list of parts, a mapping) and is written as YAML."""
    items = get_args(leaf.type)
    simple = get_origin(leaf.type) is tuple and (
        items[0] in (int, float, str) or get_origin(items[0]) is Literal
    )
    return leaf.type not in (str, int, float, bool) and get_origin(leaf.type) is not Literal and not simple


def _lower_first(title: str) -> str:
    """A title within a sentence; a name in capitals stays as it is."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def _when_empty(leaf: Leaf) -> str:
    """What an empty field means: its description says so after "empty:", and an empty filter filters nothing."""
    _, found, meaning = (leaf.info.description or "").partition("empty: ")
    if found:
        return meaning.split(";")[0].split(",")[0]
    if leaf.path.startswith("select."):
        return "all"
    return "" if not leaf.optional else "no limit" if leaf.type in (int, float) else "none"


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
    if is_many(leaf):
        return list(leaf.default or ())
    if is_yaml(leaf):
        plain = (
            TypeAdapter(leaf.type).dump_python(leaf.default, mode="json")
            if leaf.default is not None
            else None
        )
        return "" if plain is None else yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    if get_origin(leaf.type) is tuple:
        literal = get_origin(get_args(leaf.type)[0]) is Literal
        return list(leaf.default or ()) if literal else ", ".join(str(v) for v in leaf.default or ())
    if leaf.type is float and leaf.default is not None:
        return float(leaf.default)
    return leaf.default if leaf.default is not None or leaf.type is not str else None


def _parsed(leaf: Leaf, value: Any) -> Any:
    """What the recipe gets for what the widget holds; what is no list or no YAML stays text and is refused there."""
    if is_yaml(leaf) and isinstance(value, str):
        try:
            return yaml.safe_load(value)
        except (yaml.YAMLError, ValueError):  # ValueError: a date that is none, 2026-13-01
            return value
    if get_origin(leaf.type) is tuple and isinstance(value, str):
        return [_number(part.strip()) for part in value.split(",") if part.strip()]
    if value == "" and leaf.optional:
        return None
    return value


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


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

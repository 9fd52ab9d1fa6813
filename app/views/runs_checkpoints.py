"""Checkpoints by name: what each is for, what it was made from and by which run, how good it was, and what to do with it.

Read from the folders and their cards only; no weights are loaded. Deleting and copying are left to the file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from app.memory_forecast import Weights, millions, read_weights, size
from app.settings import get_settings
from app.views.runs_results import ACCURACIES, assigned, role_of, use_buttons
from app.widgets.empty import no_such
from app.widgets.here import here_button
from app.widgets.plain_table import flat, plain_table, value_text
from app.widgets.rows import Chip, Column, Row, Tone, row_table
from app.widgets.when import ago
from engine.checkpoints import PACKAGED, list_checkpoints, read_card, resolve_checkpoint
from engine.errors import CheckpointError

MOST = 200
"""Checkpoints on the page; a folder with more says so."""
TONES: dict[str, Tone] = {
    "judge": "info",
    "discriminative-judge": "info",
    "policy": "good",
    "segmenter": "warn",
}
COLUMNS_SHOWN = (
    Column("Checkpoint", "link"),
    Column("For", "chips", "named"),
    Column("Made from", "small"),
    Column("By", "small"),
    Column("Measured", "text", "wide"),
    Column("Parameters", "number"),
    Column("Made", "small"),
)
CARD_FIELDS = ("recipe", "metrics", "held_out_before", "held_out_after", "set", "role", "reward")
MOST_README = 60_000


def show_checkpoints(given: str | None) -> None:
    """The list, or the card of the checkpoint that the address names."""
    home = get_settings().home
    if given is not None:
        _card(given, home)
        return
    st.caption(
        f"Folders in {home / 'checkpoints'}, and those that come with the program. A finished training run puts its "
        "checkpoint here; a recipe names it."
    )
    names = list_checkpoints(home)
    row_table(
        COLUMNS_SHOWN, [_row(name, home) for name in names[:MOST]], label="Checkpoints", key="checkpoints"
    )
    if len(names) > MOST:
        st.caption(f"The first {MOST} of {len(names)}; the others can be named in a recipe all the same.")


def _weights(path: Path) -> Weights | None:
    try:
        return read_weights(path)
    except CheckpointError:
        return None


def _row(name: str, home: Path) -> Row:
    path = resolve_checkpoint(name, home)
    card = read_card(path)
    role = str(card.get("role", ""))
    weights = _weights(path)
    return Row(
        id=name,
        href=f"/runs?view=checkpoints&checkpoint={name}",
        label=f"Checkpoint {name}",
        cells=(
            name,
            [Chip(role or "anything", TONES.get(role, "quiet"))],
            str(card.get("base") or ("comes with the program" if name in PACKAGED else "unknown"))[:60],
            f"run {card['run_id']}" if card.get("run_id") else None,
            key_metrics(card) or None,
            millions(weights.parameters) if weights and weights.parameters else None,
            ago(_made(path)),
        ),
    )


def _made(path: Path) -> datetime:
    return datetime.fromtimestamp((path / "config.json").stat().st_mtime, UTC)


def key_metrics(card: Mapping[str, Any]) -> str:
    """The accuracies of a card in a line: "one judgment 65.2 % → 71.0 %, majority vote 70.1 % → 74.8 %"."""
    metrics = card.get("metrics")
    parts = metrics if isinstance(metrics, Mapping) else card
    before, after = parts.get("held_out_before"), parts.get("held_out_after")
    if not isinstance(after, Mapping):
        return ""
    said = []
    for name, called in ACCURACIES.items():
        if isinstance(after.get(name), int | float):
            earlier = before.get(name) if isinstance(before, Mapping) else None
            was = f"{earlier:.1%} → " if isinstance(earlier, int | float) else ""
            said.append(f"{called} {was}{after[name]:.1%}")
    return ", ".join(said)


def _card(name: str, home: Path) -> None:
    here_button(
        "All checkpoints", {"view": "checkpoints"}, key="all-checkpoints", icon=":material/arrow_back:"
    )
    try:
        path = resolve_checkpoint(name, home)
    except CheckpointError:
        no_such("checkpoint", name)
        return
    card = read_card(path)
    st.subheader(name, anchor=False)
    with st.container(horizontal=True, vertical_alignment="center"):
        use_buttons(name, role_of(name))
        if role_of(name) in ("judge", ""):
            here_button(
                "Train a judge from it",
                {"new": "train-judge", "set": assigned("base", name)},
                key="train-from",
                icon=":material/model_training:",
            )
        if isinstance(card.get("run_id"), int):
            here_button(
                f"Made by run {card['run_id']}",
                {"run": str(card["run_id"])},
                key="made-by",
                icon=":material/play_circle:",
            )
    plain_table(("What", ""), _facts(name, path, card), label="Card", key="card-facts")
    readme = path / "README.md"
    if readme.is_file():
        with st.expander("Model card (README.md)", expanded=True):
            text = readme.read_text(encoding="utf-8", errors="replace")[:MOST_README]
            st.code(text, language="markdown", wrap_lines=True)
            st.download_button("Download the model card", text, file_name=f"{name}.md", on_click="ignore")


def _facts(name: str, path: Path, card: Mapping[str, Any]) -> list[tuple[str, str]]:
    weights = _weights(path)
    facts = [("folder", str(path)), ("for", str(card.get("role") or "not said: it has no card"))]
    if weights:
        facts.append(("parameters", f"{millions(weights.parameters)}, {size(weights.stored_bytes)} on disk"))
    if measured := key_metrics(card):
        facts.append(("held out", measured))
    rest = {key: value for key, value in card.items() if key not in CARD_FIELDS}
    facts += [(key.replace("_", " "), value_text(value)) for key, value in flat(rest).items()]
    return facts

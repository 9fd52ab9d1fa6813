"""Export: a frozen set in the formats that trainers elsewhere read, and the effective label of every chunk.

A file is made when its button is pressed. Not: the formats (``training.sets.exports``, ``engine.pipeline.export``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import streamlit as st

from app.settings import get_settings
from app.widgets.access import get_store
from app.widgets.empty import empty_state
from app.widgets.safe_text import escape_line, visible
from engine.errors import StepWiserError
from engine.labels import DEFAULT_RULES, parse_rule
from engine.pipeline.export import effective_rows
from training.sets import Manifest, export_rows, list_sets, read_rows, sets_folder, styles_of

STYLE_WORDS = {
    "conversational": "prompt and completion as chat messages, for chat models",
    "prompt-completion": "both as plain texts, for any model",
    "messages": "a solution as a conversation, + or − after each chunk",
}
PART_WORDS = {"train": "the part to train on", "held_out": "the held-out part"}
MOST_CHUNKS = 50_000
"""Chunks whose labels are exported by a button; more are a matter for the command."""
NDJSON = "application/x-ndjson"


def show_export() -> None:
    """Frozen sets first, then labels."""
    st.markdown("##### A frozen training set", anchors=False)
    sets = {one.name: one for one in list_sets(get_settings().home)}
    if sets:
        name = st.selectbox("Training set", list(sets), format_func=visible, key="export-set", width=420)
        set_downloads(sets[name])
    else:
        empty_state(
            "No set is frozen yet",
            "Build one under Training sets; it can then be downloaded in the formats that TRL reads.",
            page="views/data.py",
            label="Build a training set",
        )
    st.markdown("##### Labels of chunks", anchors=False)
    _labels()


def set_downloads(manifest: Manifest) -> None:
    """Format, part and the button for one set; says so where the set has no format or its files were changed."""
    styles = styles_of(manifest.form)
    if problem := _damage(manifest):
        st.error(escape_line(problem, limit=400), icon=":material/broken_image:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        style = st.selectbox(
            "Format",
            styles,
            format_func=lambda one: f"{one}: {STYLE_WORDS[one]}",
            key=f"style-{manifest.form}",
            width=560,
        )
        part = st.selectbox(
            "Part", list(PART_WORDS), format_func=lambda one: PART_WORDS[one], key="export-part", width=210
        )
        rows = manifest.files[f"{part}.jsonl"].rows
        st.download_button(
            "Download",
            _file(lambda: export_rows(get_settings().home, manifest.name, style, part)),
            file_name=f"{manifest.name}-{part}-{style}.jsonl",
            mime=NDJSON,
            icon=":material/download:",
            on_click="ignore",
            disabled=not rows,
            key="download-set",
        )
    st.caption(f"{rows:,} rows are in that part; one JSON object a line, as TRL reads them.")


def _damage(manifest: Manifest) -> str:
    """Why the set's files cannot be used; empty where they are as they were frozen."""
    folder = sets_folder(get_settings().home) / manifest.name
    stamps = [
        (folder / file).stat().st_mtime_ns if (folder / file).is_file() else 0 for file in manifest.files
    ]
    return _checked(str(get_settings().home), manifest.name, manifest.hash, stamps)


@st.cache_data(max_entries=64, show_spinner=False)
def _checked(home: str, name: str, hash_: str, stamps: list[int]) -> str:
    try:
        for part in PART_WORDS:
            read_rows(get_settings().home, name, part)
    except StepWiserError as error:
        return str(error)
    return ""


def _file(rows: Callable[[], Iterable[Mapping[str, Any]]]) -> Callable[[], bytes]:
    """What makes the file once its button is pressed."""
    return lambda: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows()).encode()


def _labels() -> None:
    """The effective label of every chunk: a review where there is one, else the rule's label."""
    store = get_store()
    if store.is_empty():
        st.caption("The store is empty: there is nothing to export.")
        return
    st.caption(
        "Every chunk with its counts, its label under the rule, its reviews, and the label in force: a person's where "
        "there is one, else the rule's."
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        dataset = st.selectbox(
            "Data set",
            store.datasets(),
            index=None,
            placeholder="all",
            format_func=visible,
            key="labels-dataset",
            width=260,
        )
        rule = st.selectbox(
            "Rule where nobody reviewed",
            [str(rule) for rule in DEFAULT_RULES],
            index=2,
            key="labels-rule",
            accept_new_options=True,
            width=300,
            help="rel-ratio:gamma=0.8, rel-effective:alpha=0.4,n=4 or abs-q; type other values",
        )
        left = store.left_out(dataset)
        hidden = store.left_out(
            dataset, siblings=False
        )  # a selection goes without these, the file without all of ``left``
        chunks = store.count_selection(dataset=dataset)[1] + hidden.chunks - left.chunks
        problem = _rule_problem(rule)
        st.download_button(
            "Download",
            _file(lambda: effective_rows(store, parse_rule(rule), dataset)),
            file_name="labels.jsonl",
            mime=NDJSON,
            icon=":material/download:",
            on_click="ignore",
            disabled=bool(problem) or chunks > MOST_CHUNKS,
            key="download-labels",
        )
    if problem:
        st.error(escape_line(problem, limit=300), icon=":material/error:")
    elif chunks > MOST_CHUNKS:
        st.caption(
            f"{chunks:,} chunks are too many for a button. On the machine of the store: `stepwiser export labels.jsonl`"
        )
    else:
        st.caption(f"{chunks:,} chunks, one JSON object a line.")
    if left:
        st.info(f"{left.words}. The file's last line says so too.", icon=":material/visibility_off:")


def _rule_problem(rule: str) -> str:
    try:
        parse_rule(rule)
    except StepWiserError as error:
        return str(error)
    return ""

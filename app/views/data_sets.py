"""Training sets: the frozen ones, and the builder of a new one with its preview. One set's own page is ``data_set``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import streamlit as st

from app.runs import queue_run
from app.settings import get_settings
from app.views import data_choice as choice
from app.views.data_labels import pick, show_label_fields, slider
from app.views.data_preview import show_preview
from app.widgets.access import actor, get_store
from app.widgets.chrome import allowed
from app.widgets.empty import empty_state
from app.widgets.live import live
from app.widgets.rows import Chip, Column, Row, row_table
from app.widgets.run_words import shown_status, what_happens
from app.widgets.safe_text import escape_line, visible
from app.widgets.when import ago
from db.errors import StoreError
from engine.checkpoints import list_checkpoints
from engine.errors import RecipeError, StepWiserError
from engine.judge import prompt_names
from training.sets import Manifest, list_sets

STARTED, TOKEN, PROBLEM = "sets-started", "sets-token", "sets-problem"
LISTED = 50
FORMS = {"judge": "A prompt a chunk", "turns": "A conversation a solution"}
COLUMNS = (
    Column("Set", "link"),
    Column("Form", "small"),
    Column("To train on", "number"),
    Column("Held out", "number"),
    Column("Labels", "chips", "wide", help="+ and − in the part that is trained on"),
    Column("From people", "small", help="Labels that a person gave, of all in the set"),
    Column("Rule", "small"),
    Column("Hash", "small", "hide", help="The same rows have the same hash"),
    Column("Made", "small"),
)


def show_sets() -> None:
    """Frozen sets, then the builder."""
    live(_frozen, every=5)()
    st.markdown("##### Build a training set", anchors=False)
    if get_store().is_empty():
        empty_state(
            "Nothing to label yet",
            "A training set is made of labelled chunks: sample solutions and roll them out first, or load the sample: "
            "stepwiser sample load",
            page="views/runs.py",
            label="Start a run",
            query={"new": "sample"},
        )
        return
    choice.begin(get_store().policies())
    live(_builder, every=None)()


def _frozen() -> None:
    """The frozen sets, newest first; looked for again while the page is open."""
    sets = list_sets(get_settings().home)
    if not sets:
        st.caption(
            "No set is frozen yet. A frozen set is never changed: whatever is trained on it can be repeated."
        )
        return
    row_table(COLUMNS, [_row(one) for one in sets[:LISTED]], label="Training sets", key="frozen")
    if len(sets) > LISTED:
        st.caption(f"The newest {LISTED} of {len(sets)}; `stepwiser set list` has all.")


def _row(one: Manifest) -> Row:
    balance = one.classes.get("train")
    labels = one.from_people + one.from_rule + one.from_judge
    return Row(
        id=one.name,
        href="/data?" + urlencode({"set": one.name}),
        label=f"Training set {visible(one.name)}",
        cells=(
            visible(one.name),
            FORMS.get(one.form, "Prompt and completion"),
            f"{one.counts.get('train', one.files['train.jsonl'].rows):,}",
            f"{one.counts.get('held_out', one.files['held_out.jsonl'].rows):,}",
            [Chip(f"{balance.positive:,} +", "good"), Chip(f"{balance.negative:,} −", "bad")]
            if balance
            else None,
            f"{one.from_people:,} of {labels:,}" if labels else None,
            _labels_of(one.recipe.get("labels") or {}),
            one.hash[:10],
            ago(one.made_at),
        ),
    )


def _labels_of(labels: Mapping[str, Any]) -> str | None:
    """Where a set's labels come from: a judge's votes, or a rule and the judge that must repeat it."""
    if voted := labels.get("voted_by"):
        return f"votes of {visible(str(voted))[:40]}"
    agreed = labels.get("agree_with")
    on = " on the first error" if labels.get("agree_on") == "first-error" else ""
    also = f" and {visible(str(agreed))[:40]}{on}" if agreed else ""
    return f"{visible(str(labels.get('rule', '')))}{also}" or None


def _builder() -> None:
    """Fields on the left, what they would make on the right. A fragment: a change here redraws only this."""
    left, right = st.columns([5, 6], gap="medium")
    with left:
        _filter()
        show_label_fields()
        _shape()
        _more()
    with right, st.container(border=True):
        try:
            recipe = choice.recipe()
        except RecipeError as error:
            st.error("This set cannot be built.", icon=":material/error:")
            st.code(str(error), language=None, wrap_lines=True)
            return
        refusal = show_preview(recipe)
        _freeze_box(refusal)


def _filter() -> None:
    store = get_store()
    with st.container(border=True, gap="small"):
        st.caption("Which solutions")
        one, two, three = st.columns(3)
        with one:
            pick("dataset", "Data set", {name: name for name in store.datasets()})
        with two:
            pick("policy", "Policy", {name: name for name in store.policies()})
        with three:
            runs = store.runs(20, kinds=["sample", "import"])
            pick("from_run", "From run", {run.id: f"Run {run.id}" for run in runs})
        st.toggle(
            "Only problems with right and wrong solutions",
            key=choice.key("mixed_only"),
            persist_state="session",
            help="Sets aside problems whose sampled solutions are all right or all wrong, as the paper does.",
        )


def _shape() -> None:
    with st.container(border=True, gap="small"):
        st.caption("Split and balance")
        slider(
            "held_out",
            "Share of the problems kept to measure on",
            0.0,
            0.9,
            0.05,
            "Whole problems are kept, never single chunks: no problem is on both sides.",
        )
        st.toggle(
            "As many + as −",
            key=choice.key("balance"),
            persist_state="session",
            help="Leaves out some of the commoner label, chosen by the seed. Paper: without it 60.5 falls to 47.9.",
        )
        st.text_input(
            "Name of the set",
            key=choice.key("name"),
            placeholder="set-<number of the run>",
            persist_state="session",
            max_chars=100,
        )


def _more() -> None:
    with st.expander("More: form, prompt, length, near-duplicates"):
        st.segmented_control(
            "Form",
            list(FORMS),
            format_func=lambda form: FORMS[form],
            key=choice.key("form"),
            required=True,
            persist_state="session",
            help="A prompt a chunk: for judges that write their reasons. A conversation a solution: for judges that "
            "answer + or − after each chunk.",
        )
        one, two = st.columns(2)
        with one:
            st.selectbox(
                "Prompt of the judge", prompt_names(), key=choice.key("prompt"), persist_state="session"
            )
        with two:
            names = list_checkpoints(get_settings().home)
            st.selectbox(
                "Tokens counted by",
                names if choice.get("tokenizer") in names else [*names, choice.get("tokenizer")],
                key=choice.key("tokenizer"),
                persist_state="session",
                help="The checkpoint whose tokenizer counts.",
            )
        _sizes()
        slider(
            "near_duplicates",
            "Problems this alike stay on one side",
            0.0,
            1.0,
            0.05,
            "Share of common word triples, for problems with the same numbers and operators. 0: off.",
        )
        st.multiselect(
            "Keep clear of data sets that are evaluated on",
            get_store().datasets(),
            key=choice.key("clear_of"),
            persist_state="session",
            help="The set is refused if a problem to train on is in one of them.",
        )


def _sizes() -> None:
    """How long a prompt and how large the held-out part may be."""
    one, two = st.columns(2)
    with one:
        st.number_input(
            "Longest prompt (tokens)",
            1,
            key=choice.key("max_tokens"),
            persist_state="session",
            help="Longer ones are left out when the set is frozen, and reported; the preview does not count tokens.",
        )
    with two:
        st.number_input(
            "Held-out chunks at most", 2, key=choice.key("held_out_chunks"), persist_state="session"
        )


def _freeze_box(refusal: str | None) -> None:
    """The one button, and what became of it."""
    token = st.session_state.setdefault(TOKEN, uuid4().hex)
    may = allowed("owner", "Freezing a set")
    st.button(
        "Freeze this set",
        key="freeze",
        type="primary",
        icon=":material/ac_unit:",
        width="stretch",
        disabled=refusal is not None or not may,
        on_click=_freeze,
        args=(token,),
        help="Queues a run that writes the set with its manifest.",
    )
    if problem := st.session_state.pop(PROBLEM, None):
        st.error("It was not started:", icon=":material/error:")
        st.code(problem, language=None, wrap_lines=True)
    if (started := st.session_state.get(STARTED)) is not None:
        live(_started, every=2)(started)


def _freeze(token: str) -> None:
    """Queue what is on screen, once: a second press of the same button queues nothing more."""
    runs = st.session_state.setdefault("sets-runs", {})
    if token not in runs:
        try:
            runs[token] = queue_run(get_store(), "build-set", choice.recipe_data(), actor(), get_settings())
        except (StepWiserError, StoreError) as error:
            st.session_state[PROBLEM] = str(error)
            return
    st.session_state[TOKEN] = uuid4().hex
    st.session_state[STARTED] = runs[token]


def _started(run_id: int) -> None:
    """How far the run that freezes is; when it is done, where its set is."""
    run = get_store().run(run_id)
    status = shown_status(run)
    name = run.result.get("set")
    with st.container(border=True, gap="xsmall"):
        if status == "done" and isinstance(name, str):
            st.markdown(f":green-badge[:material/check: frozen] **{escape_line(name, limit=100)}**")
            st.page_link(
                "views/data.py", label="Open it", icon=":material/dataset:", query_params={"set": name}
            )
        else:
            st.markdown(f"**Run {run_id}** · {status}")
            st.caption(escape_line(what_happens(run) or "choosing labels", limit=300))
            if not get_store().worker_alive():
                st.caption(
                    ":material/warning: No worker is running, so it will wait. Start one: `stepwiser worker`"
                )
        st.page_link(
            "views/runs.py",
            label=f"Run {run_id}",
            icon=":material/play_circle:",
            query_params={"run": str(run_id)},
        )

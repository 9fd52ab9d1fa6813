"""The builder's preview: what a set would hold, what is left out and why, + and − by position.

Counted over a limited number of trajectories unless all are asked for, and kept for a minute: moving a slider must not
read a large store again. Not: the counting itself (``training.sets.preview``).
"""

from __future__ import annotations

import hashlib

import streamlit as st

from app.settings import get_settings
from app.widgets.access import actor, get_store
from app.widgets.charts import CONFIG
from app.widgets.safe_text import escape_line
from app.widgets.set_charts import Step, balance_by_position, waterfall
from engine.errors import StepWiserError
from training.sets import BuildSetRecipe, Preview, preview

COUNTED = 1000
"""Trajectories that the preview reads by itself."""
ALL = "sets-count-all"


def show_preview(recipe: BuildSetRecipe) -> str | None:
    """Draws the preview; returns why the set cannot be built, None where it can (or where not all was counted)."""
    found, problem, partial = _counted(recipe)
    if found is None:
        st.warning(escape_line(problem, limit=600), icon=":material/warning:")
        return problem
    _numbers(found)
    for warning in found.warnings:
        st.warning(escape_line(warning, limit=300), icon=":material/warning:")
    if found.refusal:
        st.warning(escape_line(found.refusal, limit=600), icon=":material/warning:")
    steps = waterfall_steps(found.counts)
    st.markdown("**What is left out, and why**")
    said = "; ".join(f"{step.name} {'−' if step.loss else ''}{step.count}" for step in steps)
    st.plotly_chart(waterfall(steps), key="waterfall", config=CONFIG, alt=said)
    st.caption("Prompts that are too long are counted when the set is frozen.")
    if found.labelled:
        st.markdown("**+ and − by position of the chunk**")
        st.plotly_chart(
            balance_by_position({"of all labels": found.labelled, "to train on": found.train}),
            key="by-position",
            config=CONFIG,
            alt="; ".join(
                f"chunk {row.position}: {row.positive} +, {row.negative} −" for row in found.labelled
            ),
        )
    return None if partial else found.refusal


def _counted(recipe: BuildSetRecipe) -> tuple[Preview | None, str, bool]:
    """(preview or None, why there is none, whether only a part was counted); says over what it was counted."""
    store = get_store()
    trajectories, _ = store.count_selection(**recipe.select.model_dump())
    wanted = hashlib.sha256(recipe.select.model_dump_json().encode()).hexdigest()
    every = trajectories <= COUNTED or st.session_state.get(ALL) == wanted
    select = recipe.select if every else recipe.select.model_copy(update={"limit": COUNTED})
    read = recipe.model_copy(update={"select": select, "name": None})
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(":material/visibility: **Preview**")
        if every:
            st.caption(f"counted over all {trajectories:,} selected solutions")
        else:
            st.caption(f"counted over the first {COUNTED:,} of {trajectories:,} selected solutions")
            st.button(
                "Count all",
                key="count-all",
                icon=":material/functions:",
                on_click=lambda: st.session_state.update({ALL: wanted}),
                help="Reads the counts of every selected solution; on a large store this takes a while.",
            )
    with st.spinner("Counting labels", show_time=True):
        found, problem = _preview(
            get_settings().store_url, actor(), store.hidden_now(), read.model_dump_json(), store.totals()
        )
    return found, problem, not every


@st.cache_data(ttl=60, max_entries=64, show_spinner=False)
def _preview(
    store_url: str, viewer: str, hidden: str, recipe: str, totals: object
) -> tuple[Preview | None, str]:
    """Kept for a minute, for one pair of eyes and what is ``hidden`` from them, one recipe and one state of the store
    (``totals`` moves with every write, but not when somebody joins a blind queue)."""
    try:
        return preview(get_store(), BuildSetRecipe.model_validate_json(recipe)), ""
    except StepWiserError as error:
        return None, str(error)


def _numbers(found: Preview) -> None:
    counts = found.counts
    values = {
        "To train on": f"{counts.get('train', 0):,}",
        "Held out": f"{counts.get('held_out', 0):,}",
        "Problems": f"{found.problems.get('train', 0):,} + {found.problems.get('held_out', 0):,}",
        "From people": f"{found.from_people:,}",
        "Mean confidence": f"{found.mean_confidence:.0%}" if found.mean_confidence is not None else "–",
    }
    with st.container(horizontal=True):
        for name, value in values.items():
            st.metric(name, value, width=112)
    if alike := found.problems.get("near_duplicates"):
        st.caption(f"{alike:,} problems stay with another that is nearly the same, on one side of the split.")


def waterfall_steps(counts: dict[str, int]) -> list[Step]:
    """From all selected chunks to what is trained on. ``counts`` as in a preview or a manifest."""
    labelled = counts.get("positive", 0) + counts.get("negative", 0)
    train, held_out = counts.get("train", 0), counts.get("held_out", 0)
    losses = (
        ("no label", counts.get("unlabelled", 0), "a value is unknown, or reviewers disagree or abstain"),
        ("not sure enough", counts.get("unsure", 0), "less certain than the least confidence asked for"),
        ("judge disagrees", counts.get("contradicted", 0), "the judge's majority says the opposite"),
        ("judge has no say", counts.get("unvoted", 0), "the judge has no majority on the chunk"),
        (
            "after an error",
            counts.get("after_negative", 0),
            "behind the first chunk of its solution labelled −",
        ),
        ("prompt too long", counts.get("too_long", 0), "more tokens than the longest prompt allowed"),
    )
    steps = [Step("selected chunks", counts.get("chunks", 0), False, "all chunks of the selected solutions")]
    steps += [Step(name, count, True, why) for name, count, why in losses if count]
    steps.append(
        Step(
            "labelled",
            labelled,
            False,
            f"{counts.get('positive', 0):,} + and {counts.get('negative', 0):,} −",
        )
    )
    if held_out:
        steps.append(
            Step("kept to measure on", held_out, True, "chunks of held-out problems, as many + as −")
        )
    if rest := labelled - train - held_out:
        why = "the commoner label beyond as many + as −, or held out beyond what is measured on"
        steps.append(Step("in neither part", rest, True, why))
    return [*steps, Step("to train on", train, False, "what the judge learns from")]

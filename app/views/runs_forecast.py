"""The forecast beside the form: how much work, how long, how much memory, against what this machine has."""

from __future__ import annotations

import streamlit as st

from app.forecast import forecast
from app.machine import Machine, this_machine
from app.memory_forecast import MemoryForecast, memory_forecast, size
from app.settings import get_settings
from app.widgets.access import get_store
from app.widgets.safe_text import escape_line
from db.errors import StoreError
from engine.errors import StepWiserError
from engine.recipes import Recipe

NOTHING = {
    "sample": "There is nothing to sample: this data set has no problems yet. Let new ones be written first.",
    "rollout": "There is nothing to roll out: no trajectory fits that has a prefix to roll out from. Sample some first.",
    "judge": "There is nothing to judge: no trajectory fits. Sample some first.",
}
TIGHT = 0.8
"""Share of the free memory from which on it is called tight."""


@st.cache_data(ttl=5, show_spinner=False)
def machine() -> Machine:
    return this_machine()


def show_forecast(recipe: Recipe) -> None:
    """Time and memory of a recipe that could be started. What cannot be estimated is said."""
    try:
        found = forecast(get_store(), recipe.kind, recipe)
    except (StepWiserError, StoreError) as error:
        st.warning(escape_line(str(error), limit=400), icon=":material/warning:")
    else:
        st.text(found.text)
        if found.count == 0:
            st.warning(
                NOTHING.get(recipe.kind, "There is nothing to do for this recipe."), icon=":material/warning:"
            )
    try:
        memory = memory_forecast(recipe, get_settings().home, machine())
    except StepWiserError as error:
        st.caption(f"Memory unknown: {escape_line(str(error), limit=300)}")
        return
    if memory is not None:
        _show_memory(memory)


def _show_memory(memory: MemoryForecast) -> None:
    where = escape_line(memory.where, limit=60)
    need = size(memory.bytes) if memory.bytes < 2**20 else f"about {size(memory.bytes)}"
    st.markdown(
        f":material/memory: **{need}**, {size(memory.free)} of {size(memory.total)} are free ({where})"
    )
    st.caption(
        "; ".join(escape_line(f"{one.what}: {size(one.bytes)}", limit=200) for one in memory.needs)
        + ". Activations are not included: they grow with batch and length."
    )
    if not memory.fits:
        st.warning(
            "It does not fit. Take LoRA, a smaller base, a smaller KV cache or more processes with weights cut up; "
            "or free some memory first.",
            icon=":material/memory_alt:",
        )
    elif memory.bytes > TIGHT * memory.free:
        st.warning("It is tight: activations may not fit beside it.", icon=":material/memory_alt:")

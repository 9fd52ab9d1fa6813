"""What a rollout recipe's less obvious fields will do, said beside the form for the values that they have now."""

from __future__ import annotations

import streamlit as st

from app.widgets.safe_text import code, escape_line
from app.widgets.value_words import rule_list
from engine.recipes import Recipe, RolloutRecipe

MOST_SERVERS = 3


def show_explained(recipe: Recipe) -> None:
    """Nothing for kinds other than rollouts."""
    if not isinstance(recipe, RolloutRecipe):
        return
    with st.container(gap="xxsmall", key="new-explained"):
        for icon, said in explained(recipe):
            st.caption(f":material/{icon}: {said}")


def explained(recipe: RolloutRecipe) -> list[tuple[str, str]]:
    """(icon, sentence in markdown) for where, how far, how asked, and by what it is served."""
    return [
        ("travel_explore", _places(recipe)),
        ("hourglass_disabled" if recipe.rules else "hourglass_full", _rules(recipe)),
        ("chat" if recipe.chat else "article", _chat(recipe)),
        ("dns" if recipe.llm.door != "vllm" else "memory", _door(recipe)),
    ]


def _places(recipe: RolloutRecipe) -> str:
    if recipe.places == "first-error":
        return (
            "**First error only**: in each solution that does not end correct, a binary search for the first chunk from "
            "which no rollout succeeds. About log2 of its prefixes are rolled out; the others have no value and no label."
        )
    return f"**Every prefix** is rolled out M = {recipe.m} times; beginnings that solutions share, once."


def _rules(recipe: RolloutRecipe) -> str:
    if not recipe.rules:
        return "**Every draw is made**: each value has its point, and every rule its labels."
    if recipe.places == "first-error":
        return "**Stops at the first success** of a prefix: it has answered the search's question there."
    return (
        f"**Thrift**: a prefix is drawn only until its labels under {rule_list(recipe.rules)} can no longer change. Those "
        "labels are exactly the ones that all draws would give; stopped values have bounds and no point, and other rules "
        "no label there, until the rest is drawn."
    )


def _chat(recipe: RolloutRecipe) -> str:
    if recipe.chat:
        return (
            "**Chat**: the problem is the user's turn of the checkpoint's chat template, and a rollout goes on inside the "
            "assistant's turn, exactly where its prefix ends. Sample and roll out with the same setting."
        )
    return f"**Plain text**: prompt {code(recipe.prompt)}, then the solution so far, and on from there."


def _door(recipe: RolloutRecipe) -> str:
    llm = recipe.llm
    if llm.door == "vllm":
        return "**Its own vLLM**: the run loads the checkpoint on the machine where it works."
    if llm.door == "server":
        shown = ", ".join(code(server) for server in llm.servers[:MOST_SERVERS])
        more = f" and {len(llm.servers) - MOST_SERVERS} more" if len(llm.servers) > MOST_SERVERS else ""
        return (
            f"**{len(llm.servers)} vLLM server{'s' if len(llm.servers) > 1 else ''}**: {shown}{more}. Each must serve "
            f"this checkpoint (`stepwiser llm-server {escape_line(llm.checkpoint, limit=60)}`); work goes where the queue "
            "is shortest, and a dead server's to the others. `stepwiser doctor --server URL` looks at one."
        )
    return f"**Door {escape_line(llm.door, limit=20)}**: engines start where the cluster has room; see docs/cluster.md."

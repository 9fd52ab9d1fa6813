"""The builder's fields that say where labels come from and which of them are kept. Not: what they make (the preview)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.views import data_choice as choice
from app.widgets.access import get_store
from app.widgets.safe_text import visible
from app.widgets.sources import kind_words

RULES = {"rel-ratio": "rel-ratio", "rel-effective": "rel-effective", "abs-q": "abs-q"}
AGREE_ON = {"chunk": "each chunk", "first-error": "the first error"}
RULE_WORDS = {
    "rel-ratio": "Label + where the chance of success after the chunk is more than γ times the chance before it",
    "rel-effective": "Label + where the chance, and α times the change of the best of n draws, stay above 0 together",
    "abs-q": "Label + where the chance of success after the chunk is above 0",
}


def show_label_fields() -> None:
    """The box: rollouts by a rule, or a judge's votes; then who overrides and what follows an error."""
    with st.container(border=True, gap="small"):
        st.caption("Which labels")
        judges = {
            judge.name: f"{judge.name} · {kind_words(judge.kind)}" for judge in reversed(get_store().judges())
        }
        pick(
            "voted_by",
            "Labels come from",
            judges,
            empty="rollouts, by a rule",
            on_change=_only_one_judge,
            help="Rollouts: a rule makes labels of how often continuations succeed. A judge: the majority of its verdicts "
            "on the chunk is the label (an LLM as judge needs no rollouts). What a person said overrides either.",
        )
        if choice.get("voted_by") is None:
            _by_rollouts(judges)
        else:
            st.caption(
                "Its votes are the labels; where its verdicts tie or it gave none, there is no label. Rule, confidence and "
                "agreement are not asked."
            )
        st.toggle(
            "People's reviews override the rule",
            key=choice.key("reviews"),
            persist_state="session",
            help="On: where somebody reviewed a chunk, their + or − counts. Off: reviews are not looked at.",
        )
        st.toggle(
            "Only up to a solution's first −",
            key=choice.key("until_first_negative"),
            persist_state="session",
            help="Leaves out what follows the first chunk labelled −: a sound chunk after an error is neither clearly "
            "right nor wrong. PRM800K stops there.",
        )


def _only_one_judge() -> None:
    """Callback: a set whose labels are a judge's votes asks no judge to repeat them."""
    if choice.get("voted_by") is not None:
        st.session_state[choice.key("agree_with")] = None


def _by_rollouts(judges: Mapping[str, str]) -> None:
    """The rule, how sure its labels must be, and who must agree with them."""
    _rule()
    slider(
        "min_confidence",
        "Leave out labels less certain than",
        0.0,
        1.0,
        0.05,
        "Confidence: how likely fresh rollouts of the same number give the same label. "
        "A label that a person gave is never left out.",
    )
    pick(
        "agree_with",
        "Agreement: keep only labels that this judge repeats",
        judges,
        empty="no judge is asked",
        help="The majority of the judge's verdicts on the chunk must agree with the label, as where rollouts and an LLM as "
        "judge filter each other. A label that a person gave is never left out.",
    )
    if choice.get("agree_with") is not None:
        _agreeing()


def _agreeing() -> None:
    """On what they must agree, and the way to the chunks on which they do, to look before one freezes."""
    st.segmented_control(
        "They must agree on",
        list(AGREE_ON),
        format_func=AGREE_ON.__getitem__,
        key=choice.key("agree_on"),
        required=True,
        persist_state="session",
        help="Each chunk: the labels that the judge repeats are kept, whatever it says elsewhere. The first error: a "
        "solution is kept where both name the same first −, or none; what follows that − is left out.",
    )
    judge = next((one for one in get_store().judges() if one.name == choice.get("agree_with")), None)
    if judge is None:
        return
    st.page_link(
        "views/trajectories.py",
        label="Look at the chunks on which both agree",
        icon=":material/filter_alt:",
        query_params={
            "show": "chunks",
            "judge_id": str(judge.id),
            "against": "no",
            "rule": choice.get(choice.RULE),
        },
    )


def _rule() -> None:
    """The rule and its parameters."""
    st.segmented_control(
        "Rule",
        list(RULES),
        key=choice.key(choice.RULE),
        required=True,
        persist_state="session",
        help="How a label follows from the chance of success before and after a chunk. "
        "The Thresholds tab shows what each does to your data.",
    )
    rule = choice.get(choice.RULE)
    st.caption(RULE_WORDS[rule])
    one, two = st.columns(2)
    if rule == "rel-ratio":
        with one:
            slider(choice.GAMMA, "γ", 0.0, choice.MOST[choice.GAMMA], 0.05, "Paper: 0.8 at 1.5B, 0.7 at 7B.")
    if rule == "rel-effective":
        with one:
            slider(choice.ALPHA, "α", 0.0, choice.MOST[choice.ALPHA], 0.05, "Paper: 0.4 at 1.5B, 0.8 at 7B.")
        with two:
            st.number_input(
                "n",
                1,
                int(choice.MOST[choice.N]),
                key=choice.key(choice.N),
                persist_state="session",
                help="Best of n draws.",
            )


def pick(field: str, label: str, options: Mapping[Any, str], *, empty: str = "all", **more: Any) -> None:
    """A selectbox over names from the store; a value that went away stays to be seen."""
    value = choice.get(field)
    names = dict(options)
    if value is not None:
        names.setdefault(value, str(value))
    st.selectbox(
        label,
        list(names),
        index=None,
        placeholder=empty,
        format_func=lambda one: visible(names[one]),
        key=choice.key(field),
        persist_state="session",
        **more,
    )


def slider(field: str, label: str, low: float, high: float, step: float, help_text: str) -> None:
    """A slider that is the builder's ``field``."""
    st.slider(label, low, high, step=step, key=choice.key(field), persist_state="session", help=help_text)

"""What a problem's solutions are checked against, by its verifier: an answer, an option, exact words, or tests.

Everything here was written by people or files and is escaped. Not: how it is checked (``engine.verifiers``).
"""

from __future__ import annotations

import json

import streamlit as st

from app.widgets.safe_text import code, escape_line, visible
from engine.errors import InputError
from engine.test_suites import Suite, Test, parse_suite
from engine.verifiers import DEFAULT, VERIFIERS

TITLES = {
    "math": "Reference answer",
    "choice": "Right option",
    "text": "Right answer, word for word",
    "code": "Checked by tests",
}
HOW = {
    "choice": "the letter or the option's text counts",
    "text": "case, spacing and quotation marks do not matter",
}
MOST_TESTS, MOST_CHARACTERS = 20, 6000
"""Of a suite that are shown; the rest is counted."""


def reference_line(reference: str, verifier: str = DEFAULT) -> str:
    """Title and reference in one line of markdown."""
    title = TITLES.get(verifier, f"Checked by {escape_line(verifier, limit=40)}")
    if verifier == "code":
        return f"{title}: {escape_line(VERIFIERS['code'].words(reference), limit=120)}"
    how = f" :small[:gray[({HOW[verifier]})]]" if verifier in HOW else ""
    return f"{title} {code(reference, limit=120)}{how}"


def show_reference(
    reference: str, verifier: str = DEFAULT, *, then: str = "", key: str = "reference"
) -> None:
    """The line, with ``then`` (markdown of ours) behind it; tests of a program folded beneath it as a code block."""
    st.markdown(f"{reference_line(reference, verifier)}{then}")
    if verifier != "code":
        return
    try:
        suite = parse_suite(reference)
    except InputError as problem:
        st.caption(f"These tests cannot be read: {escape_line(problem.reason, limit=200)}")
        return
    with st.expander("The tests", key=f"{key}-tests"):
        st.code(visible(written_out(suite)), language="python", wrap_lines=True)


def written_out(suite: Suite) -> str:
    """The tests as a person would write them down, cut where they get long."""
    text, cut = "", len(suite.tests)
    for place, test in enumerate(suite.tests[:MOST_TESTS]):
        part = _test_text(test, place + 1)
        if text and len(text) + len(part) > MOST_CHARACTERS:
            cut = place
            break
        text += part
    else:
        cut = min(cut, MOST_TESTS)
    left = len(suite.tests) - cut
    return text[: 2 * MOST_CHARACTERS].rstrip() + (f"\n\n# … and {left} more" if left else "")


def _test_text(test: Test, number: int) -> str:
    if test.kind == "call":
        given = [json.dumps(value, ensure_ascii=False) for value in test.args]
        given += [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in test.kwargs.items()]
        returns = json.dumps(test.returns, ensure_ascii=False)
        return f"{test.code}({', '.join(given)})  # returns {returns}\n"
    if test.kind == "assert":
        return f"{test.code.rstrip()}\n"
    return f"# test {number}: standard input\n{test.input.rstrip()}\n# prints\n{test.output.rstrip()}\n\n"

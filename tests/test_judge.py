r"""The judge's prompt is filled once and its verdict is the last box that holds exactly one of the two words."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.judge import JudgePrompt, Verdict, fill, load_prompt, parse_verdict, render, vote


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"Analysis … \boxed{Positive}", "positive"),
        (r"\boxed{negative}", "negative"),
        (r"\boxed{ POSITIVE }", "positive"),
        (r"\boxed{\text{Negative}}", "negative"),
        (r"$\boxed{\textbf{Positive}}$", "positive"),
        (r"\boxed{**Positive**.}", "positive"),
        ('\\boxed{"Negative"}', "negative"),
        (r"\boxed{\mathrm{ Positive }}", "positive"),
        (r"\boxed{Positive} at first \boxed{\textbf{\text{Negative}}}", "negative"),
        (r"\\boxed{Positive}", "positive"),  # over-escaped
        # the last one counts
        (r"\boxed{Positive} … on second thought \boxed{Negative}", "negative"),
        # boxes that hold no verdict are passed over
        (r"\boxed{Negative} so x is \boxed{5}", "negative"),
        (r"\boxed{Positive} or \boxed{Positive or Negative}", "positive"),
        (r"the format is \boxed{Positive} / \boxed{Negative}, unclosed \boxed{Positive", "negative"),
        (r"\boxed{not Positive}", None),
        (r"\boxed{Positive/Negative}", None),
        (r"\boxed{Positively}", None),
        (r"\boxed{x is a positive integer}", None),
        # never boxed
        ("The chunk is Positive.", None),
        (r"\boxed{}", None),
        (r"\boxed Positive", None),
        ("", None),
        ("\0", None),
    ],
)
def test_verdict(text: str, expected: Verdict | None) -> None:
    assert parse_verdict(text) == expected


@given(st.text())
def test_text_without_a_box_has_no_verdict(text: str) -> None:
    assert parse_verdict(text.replace("boxed", "")) is None


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], None),
        ([None, None], None),
        (["positive"], "positive"),
        (["positive", "negative"], None),
        (["positive", "negative", None], None),
        (["negative", None, None], "negative"),
        (["positive", "negative", "negative"], "negative"),
    ],
)
def test_vote(verdicts: list[Verdict | None], expected: Verdict | None) -> None:
    assert vote(verdicts) == expected


def test_the_long_prompt_is_filled() -> None:
    prompt = load_prompt("judge")
    assert prompt.hash == hashlib.sha256(prompt.text.encode()).hexdigest()
    text = fill(prompt, "What is 2 + 2?", ["First, add.", "Then write."], "2 + 2 = 5")
    assert "What is 2 + 2?" in text and "First, add.\nThen write." in text and "2 + 2 = 5" in text
    assert "{{" not in text
    assert text.count(r"\boxed{Positive}") == 1 and text.count(r"\boxed{Negative}") == 1


def test_the_policy_prompt_asks_for_tags_and_a_box() -> None:
    text = render(load_prompt("policy", needs=("problem",)), problem="What is 2 + 2?")
    assert "What is 2 + 2?" in text and "<chunk>" in text and r"\boxed{" in text and "{{" not in text


@given(st.text(), st.lists(st.text(), max_size=3), st.text())
def test_what_is_filled_in_is_never_expanded_again(problem: str, history: list[str], chunk: str) -> None:
    prompt = JudgePrompt("p", "[{{problem}}|{{history}}|{{chunk}}]", "")
    mark = "{{problem}} {{history}} {{chunk}} {{problem}}"
    expected = f"[{mark}{problem}|{chr(10).join([*history, mark])}|{mark}{chunk}]"
    assert fill(prompt, mark + problem, [*history, mark], mark + chunk) == expected


def test_a_prompt_from_a_file_and_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("{{ problem }} {{history}} {{chunk}}")
    assert fill(load_prompt(str(path)), "p", ["h"], "c") == "p h c"
    path.write_text("{{problem}} {{chunk}}")
    with pytest.raises(InputError, match=r"mine.txt: the prompt lacks \{\{history\}\}"):
        load_prompt(str(path))
    path.write_text("{{problem}} {{history}} {{chunk}} {{answer}}")
    with pytest.raises(InputError, match=r"the prompt has \{\{answer\}\}, which nothing fills; use"):
        load_prompt(str(path))
    path.write_bytes(b"\xff\xfe{{problem}}")
    with pytest.raises(InputError, match="cannot read the prompt"):
        load_prompt(str(path))
    with pytest.raises(InputError, match=r"nosuch: cannot read the prompt .*there are .*judge"):
        load_prompt("nosuch")
    with pytest.raises(InputError, match=r"cannot read the prompt .*null byte"):
        load_prompt("no\0such")

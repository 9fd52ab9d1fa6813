"""Keys that people choose, text that people mark, guidelines that people write: what of it is plain functions."""

from __future__ import annotations

import re

import pytest

from app.widgets import keys as widget
from app.widgets.guide_text import guide_markdown
from app.widgets.keys import ACTIONS, key_hint, rebound
from app.widgets.span import words_of
from db.errors import StoreValueError

USUAL = {name: action.usual for name, action in ACTIONS.items()}


def test_every_action_has_a_key_of_its_own_and_none_is_the_sheets():
    assert len(set(USUAL.values())) == len(ACTIONS) and "?" not in USUAL.values()


def test_a_key_that_is_taken_changes_places():
    keys = rebound("flag", "1", USUAL)
    assert (keys["flag"], keys["verdict-error"]) == ("1", "f")
    assert {name for name in keys if keys[name] != USUAL[name]} == {"flag", "verdict-error"}
    assert rebound("flag", "v", USUAL) == USUAL | {"flag": "v"}


@pytest.mark.parametrize("key", ["?", "", " ", "ab", "Enter", "F5", "\n"])
def test_what_cannot_be_a_key_is_refused(key: str):
    with pytest.raises(StoreValueError):
        rebound("flag", key, USUAL)
    with pytest.raises(StoreValueError, match="there is no action 'fly'"):
        rebound("fly", "v", USUAL)


def test_an_action_whose_key_was_given_away_has_none(monkeypatch: pytest.MonkeyPatch):
    class Keys:
        def key_bindings(self, actor: str) -> dict[str, str]:
            return {"flag": "1", "gone": "z"}

    monkeypatch.setattr(widget, "get_store", Keys)
    monkeypatch.setattr(widget, "actor", lambda: "ann")
    keys = widget.bindings()
    assert keys == USUAL | {"flag": "1", "verdict-error": ""}
    assert key_hint("verdict-error", keys) == "" and "`1`" in key_hint("flag", keys)


@pytest.mark.parametrize("key", ["[", "]"])
def test_a_bracket_as_a_key_does_not_end_the_mark_around_it(key: str):
    assert key_hint("next", {"next": key}) == f":gray[:small[&#{ord(key)};]]"


def test_words_cover_the_text_in_its_own_offsets():
    text = "7 + 5\u202e = 𝟏𝟑 三角"
    words = words_of(text)
    assert "".join(text[start:end] for start, end, _ in words) == text
    assert [word[2] for word in words if word[2].strip()] == ["7", "+", "5", "⟦U+202E⟧", "=", "𝟏𝟑", "三角"]


def test_guidelines_keep_a_few_marks_and_nothing_that_loads_or_forges():
    text = (
        "# Top\nRead **all** of `a*b*`, *twice*: $x^2$.\n\n- one\n  - two\n3. three\n"
        "![p](https://evil.example/p.png) <img src=x> [here](https://evil.example) :red[r]\n"
        "```mermaid\ngraph ``` TD\n```\n| a |\n|---|"
    )
    shown = guide_markdown(text)
    assert "**Top**" in shown and "Read **all** of `a*b*`&#44; *twice*&#58; $x^2$&#46;" in shown
    assert "\n- one\n   - two\n3. three\n" in shown
    outside = re.sub(r"```\n.*?\n```", "", shown, flags=re.S)
    assert not re.search(r"[<\[|]|!\(|^#|mermaid$", outside, flags=re.M)
    assert "https:/" not in shown and "```mermaid" not in shown


def test_a_formula_on_lines_of_its_own_stays_whole_in_guidelines():
    """Its second line is not parsed as a formula's where the first does not begin one: a picture could stand there."""
    formula = "$$![p](https://evil.example/p.png)$$"
    assert guide_markdown(f"# {formula}") == f"\n$$\n{formula[2:-2]}\n$$\n"
    assert guide_markdown(f"- a\n  12. {formula}") == (f"- a\n   12. $$\n       {formula[2:-2]}\n       $$")
    assert guide_markdown("1. see $$x$$ now") == "1. see\n   \n   $$\n   x\n   $$\n   \n   now"


@pytest.mark.parametrize("empty", ["- ", "* ", "1. ", "-"])
def test_an_empty_item_makes_no_heading_of_the_line_above(empty: str):
    assert guide_markdown(f"Look here\n{empty}") in (
        "Look here\n&#45;",
        "Look here\n&#42;",
        "Look here\n1&#46;",
    )

"""Text from models is only ever read: what is escaped, what is mathematics, what becomes visible."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.widgets.mathematics import DISPLAY, INLINE, PROSE, is_formula, split
from app.widgets.safe_text import JOINER, apart, code, escape_line, plot_text, to_markdown, visible

FORMULA = re.compile(r"\$\$\n[\s\S]*?\n\$\$|\$[^$\n]+\$")


def prose_of(markdown: str) -> str:
    """The markdown without its formulas."""
    return FORMULA.sub("", markdown)


def shown(markdown: str) -> str:
    """What a reader sees of markdown that holds only references and line breaks."""
    return html.unescape(markdown.replace("\\\n", "\n")).replace(JOINER, "").replace("\xa0", " ")


@pytest.mark.parametrize(
    "text",
    [
        "# heading",
        "Setext\n======",
        "![p](https://evil.example/a.png)",
        "<img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        ":red[colour] :blue-background[b] :material/home: :smile: :streamlit:",
        "```mermaid\ngraph TD\n```",
        "| a | b |\n|---|---|",
        "* one\n- two\n1. three",
        "> quote",
        "&amp; &#35; heading",
        "a -> b -- c >= d",
        "    indented code",
        "a\\\nb",
    ],
)
def test_prose_shows_exactly_its_characters_and_holds_no_markup(text: str) -> None:
    markdown = to_markdown(text)
    assert not re.search(r"[!-%'-/:<-@\[\]^-`{-~]", markdown.replace("&#", "").replace("\\\n", ""))
    assert shown(markdown) == text


@pytest.mark.parametrize(
    "text",
    [
        "https://evil.example/x",
        "HTTP://evil.example",
        "www.evil.example",
        "someone@evil.example",
        ":material_home:",
    ],
)
def test_what_streamlit_would_rewrite_after_parsing_is_parted(text: str) -> None:
    rewritten = re.compile(
        r"https?://|www(?=\.)|[-.\w+]+@[-\w]+\.|:material_\w+:|:streamlit:|(^|\s)(->|<-|--|>=|<=|~=)(\s|$)",
        re.I,
    )
    assert rewritten.search(text)
    assert not rewritten.search(html.unescape(to_markdown(text)))


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("$5 and $10", []),
        ("$5 and $10, also $x$", ["x"]),
        ("pay $5 now, $6 later", []),
        ("paid $5 and got 3$ back, $z$", ["z"]),
        (r"it is \$5, and $y_1$", ["y_1"]),
        (r"\(a+b\) and \[c\]", ["a+b", "c"]),
        ("$$x\n= 1$$", ["x\n= 1"]),
        (r"the answer is \boxed{\frac{1}{2}}.", [r"\boxed{\frac{1}{2}}"]),
        (r"\boxed{Negative}", [r"\boxed{\text{Negative}}"]),
        (r"$\text{if it rains}$", [r"\text{if it rains}"]),
        ("$50%$", [r"50\%"]),
        ("中文 $x=3$元", ["x=3"]),
        ("$ x $ is not, $x$ is", ["x"]),
        ("$x$5", []),
        (r"sequence $(a_1, \ldots, a_n ) $ and $ 5 or $ 6", [r"(a_1, \ldots, a_n )"]),
        ("$3abc^2, 4abd = 5$", ["3abc^2, 4abd = 5"]),
        (
            "So\n\\begin{align*}\nx &= 1 \\\\\n\\end{align*}\nholds",
            ["\\begin{align*}\nx &= 1 \\\\\n\\end{align*}"],
        ),
        (r"\[ \text{if $x$} \]", ["x"]),
        ("one $ sign", []),
    ],
)
def test_only_real_mathematics_is_taken(text: str, formulas: list[str]) -> None:
    assert [content for kind, content in split(text) if kind != PROSE] == formulas


@pytest.mark.parametrize(
    "content",
    [
        r"\href{https://evil.example}{x}",
        r"\includegraphics{https://evil.example/a.png}",
        r"\htmlStyle{position:fixed}{x}",
        r"\color{red}x",
        r"\textcolor{red}{x}",
        r"\Huge x",
        r"\rule{100em}{100em}",
        r"\kern-100em x",
        r"\raisebox{50em}{x}",
        r"\phantom{hidden}",
        r"\def\x{\x\x}\x",
        r"\begin{document}x\end{document}",
        r"\begin{cases} x",
        r"\left( x",
        "{x",
        "x}",
        "{" * 40 + "}" * 40,
        "x\\",
    ],
)
def test_formulas_that_load_colour_hide_move_or_break_stay_prose(content: str) -> None:
    assert not is_formula(content)
    assert FORMULA.search(to_markdown(f"${content}$")) is None


def test_formulas_do_not_open_a_display_or_turn_into_money() -> None:
    assert "$$" not in to_markdown("$a$$b$")
    assert not re.search(r"\$\d", to_markdown(r"\(x\)2").removeprefix("$"))
    assert ":smile:" not in to_markdown("$a:smile:b$")
    assert "[" not in to_markdown(r"$$a \\[100em] b$$")


def test_line_breaks_paragraphs_and_indents_are_kept() -> None:
    assert to_markdown("a\nb\n\nc") == "a\\\nb\n\nc"
    assert to_markdown("a\n  b") == "a\\\n&#160;&#160;b"
    assert to_markdown("a $$x$$ b") == "a\n\n$$\nx\n$$\n\nb"


def test_unseen_marks_become_visible() -> None:
    assert visible("a\0b\u202ec\u200bd\x07\ud800") == "a⟦U+0000⟧b⟦U+202E⟧c⟦U+200B⟧d⟦U+0007⟧⟦U+D800⟧"
    assert visible("line\r\nnext\ttab é 中 😀 👩‍🔬") == "line\nnext\ttab é 中 😀 👩‍🔬"
    assert len(visible("z" + "\u0301" * 500)) < 20


@pytest.mark.parametrize(
    ("text", "marks", "markdown"),
    [
        ("a wrong sum", [(2, 7)], "a :orange-background[wrong] sum"),
        ("one\ntwo three", [(0, 7)], ":orange-background[one]\\\n:orange-background[two] three"),
        ("a $x+1$ b", [(3, 5)], "a :orange-background[$x+1$] b"),
        ("so $$x$$ holds", [(0, 14)], ":orange-background[so ]\n\n$$\nx\n$$\n\n:orange-background[holds]"),
        ("a\n  b c", [(4, 5)], "a\\\n&#160;&#160;:orange-background[b] c"),
        ("abc", [(1, 99), (-5, 0), (2, 2)], "a:orange-background[bc]"),
        ("abcd", [(0, 2), (1, 3)], ":orange-background[abc]d"),
        ("a]b", [(0, 3)], ":orange-background[a&#93;b]"),
        ("http://a", [(0, 5), (3, 8)], f":orange-background[http&#58;{JOINER}&#47;&#47;a]"),
        ("a$$ b", [(1, 2)], "a:orange-background[&#36;]&#36; b"),
        ("\\(\\)", [(2, 3)], "&#92;&#40;:orange-background[&#92;]&#41;"),
        ("a $ [l](h)$ b", [(3, 8)], "a :orange-background[$[l](h)$] b"),
        ("a $x_{[1]}$", [(0, 11)], ":orange-background[a $x_{[1]}$]"),
        ("in $[0, 1)$ x", [(0, 13)], ":orange-background[in ]$[0, 1)$ :orange-background[x]"),
        ("a $b=1][l](http://e)[c$", [(0, 23)], ":orange-background[a ]$b=1][l](http://e)[c$"),
    ],
)
def test_marks_are_put_around_words_and_whole_formulas(
    text: str, marks: list[tuple[int, int]], markdown: str
) -> None:
    assert to_markdown(text, marks) == markdown


@given(
    st.text(alphabet=st.sampled_from("ab1 \n$\\{}[]()#*_`!<>:.=|&@\0\ue000\ue001中"), max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=3),
)
def test_marks_change_no_character_and_cannot_be_forged(text: str, marks: list[tuple[int, int]]) -> None:
    plain, marked = to_markdown(text), to_markdown(text, marks)
    assert "\ue000" not in marked and "\ue001" not in marked
    unmarked = re.sub(r":orange-background\[|\]", "", marked)
    assert [c for c in shown(unmarked) if c.isalnum()] == [
        c for c in shown(re.sub(r"\]", "", plain)) if c.isalnum()
    ]
    assert ":orange-background" not in plain


def test_text_in_a_figure_is_no_tag_no_link_and_no_variable() -> None:
    said = plot_text("<a href='https://evil.example'>x</a> &lt;b&gt; %{x} $y$\n\u202e", limit=100)
    assert not re.search(r"<|>|%\{|\n", said) and "⟦U+202E⟧" in said
    assert (
        html.unescape(said).replace(JOINER, "").startswith("<a href='https://evil.example'>x</a> &lt;b&gt;")
    )
    assert len(html.unescape(plot_text("x" * 100, limit=10))) == 10


def test_choices_that_look_alike_are_told_apart() -> None:
    words = {"": "everybody", "ada @ one": "ada", "ada @ two": "ada", "x\x01": "a\x01", "y": "everybody"}
    shown = apart(words)
    assert len(set(shown.values())) == 5 and shown[""] == "everybody"
    assert (shown["ada @ one"], shown["ada @ two"]) == ("ada (ada @ one)", "ada (ada @ two)")
    assert "\x01" not in "".join(shown.values()) and shown["y"] == "everybody (y)"


def test_names_stay_on_one_short_line() -> None:
    assert "\n" not in escape_line("a\nb\n# c")
    assert len(html.unescape(escape_line("x" * 1000, limit=50))) == 50
    assert code("a`b\nc") == "`aˋb c`"
    assert code("") == "(empty)"


@given(st.text(alphabet=st.sampled_from("ab1 \n\t$\\{}[]()#*_`!<>:.-=|&@~^%x\0\u202e中"), max_size=60))
def test_no_text_escapes_into_markup(text: str) -> None:
    markdown = to_markdown(text)
    markdown.encode()
    prose = prose_of(markdown)
    assert not re.search(r"[!-%'-/:<-@\[\]^-`{-~]", prose.replace("&#", "").replace("\\\n", ""))
    for kind, content in split(visible(text)):
        if kind != PROSE:
            assert "$" not in content and "`" not in content
            assert "\n" not in content or kind == DISPLAY
            assert kind == INLINE or "\n\n" not in content

"""Cutting gives every character back, whatever the text; tags that are wrong are named with their place."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.boxes import find_boxes
from engine.chunks import (
    CUTTERS,
    Chunk,
    Cut,
    cut,
    cut_best,
    cut_tags,
    join_steps,
    prefix_text,
    rejoin,
    token_ends,
)
from engine.errors import ChunkError, InputError

FALLBACKS = CUTTERS[1:]
# Text made of what the cutters look for finds more than uniform characters do.
separators = ["\n", "\n\n", " ", "\r\n", "\t", ". ", "。", "！”", "？", "\0", "\x85", "\u2028"]
marks = ["Step 1: ", "2. ", "第3步", "（4）", "e.g. ", "x = 3.5", "$$", "\\[", "\\]", "**", "𝑥"]
tags = ["\\boxed{5}", "\\boxed{", "<chunk>", "</chunk>"]
pieces = st.sampled_from([*separators, *marks, *tags])
texts = st.one_of(st.text(), st.lists(st.one_of(pieces, st.text(max_size=4)), max_size=25).map("".join))


@pytest.mark.parametrize("cutter", FALLBACKS)
@given(text=texts)
@example(text="")
@example(text="\n\n\\boxed{5}")
@example(text="a\n\\boxed{5}\n\n")
@example(text="\ud800 lone surrogate. Next")
def test_fallback_cutters_rejoin_any_text(cutter: str, text: str) -> None:
    made = cut(text, cutter)
    assert rejoin(made) == text
    assert made.cutter == cutter
    assert all(chunk.text.strip() == chunk.text != "" for chunk in made.chunks)
    assert bool(made.chunks) == bool(text.strip())  # a solution with something in it has something to judge
    assert prefix_text(made, len(made.chunks)) + made.tail == text


@given(text=texts, truncated=st.booleans())
def test_cut_best_rejoins_any_text(text: str, truncated: bool) -> None:
    made, note = cut_best(text, truncated)
    assert rejoin(made) == text
    assert note is None or (made.cutter == "blank-line" and "chunk" in note)


no_tag = st.text(alphabet=st.characters(exclude_characters="<"), max_size=20)


@given(between=st.lists(st.tuples(no_tag, no_tag), max_size=6), tail=no_tag)
def test_tags_rejoin_and_give_the_chunks_back(between: list[tuple[str, str]], tail: str) -> None:
    text = "".join(f"{gap}<chunk>{inner}</chunk>" for gap, inner in between) + tail
    made = cut(text, "tags")
    assert rejoin(made) == text
    assert made.chunks == tuple(Chunk(gap + "<chunk>", inner, "</chunk>") for gap, inner in between)
    assert made.tail == tail
    for k in range(len(between) + 1):
        assert text.startswith(prefix_text(made, k)) and prefix_text(made, k).count("</chunk>") == k


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("<chunk>a<chunk>b</chunk></chunk>", "inside the chunk opened at character 0", 8),
        ("a</chunk>", "without <chunk> before it", 1),
        ("<chunk>a</chunk></chunk>", "without <chunk> before it", 16),
        ("<chunk>a</chunk>\n<chunk>b", "never closed", 17),
    ],
    ids=["nested", "stray", "stray after a chunk", "unclosed"],
)
def test_bad_tags_are_named_with_their_place(text: str, reason: str, position: int) -> None:
    with pytest.raises(ChunkError, match=reason) as caught:
        cut(text, "tags")
    assert caught.value.position == position
    assert f"at character {position}" in str(caught.value)
    made, note = cut_best(text)
    assert made.cutter == "blank-line" and rejoin(made) == text
    assert note is not None and reason in note


def test_last_chunk_of_a_truncated_text_belongs_to_the_tail() -> None:
    text = "<chunk>a</chunk>\n<chunk>b and"
    made = cut_tags(text, truncated=True)
    assert made == Cut((Chunk("<chunk>", "a", "</chunk>"),), "\n<chunk>b and", "tags")
    assert cut_best(text, truncated=True) == (made, None)
    # Stopped within the very first chunk: no chunk is whole, and the tags were not wrong.
    assert cut_best("<chunk>a and", truncated=True) == (Cut((), "<chunk>a and", "tags"), None)
    with pytest.raises(ChunkError):  # nesting stays an error, truncated or not
        cut_tags("<chunk>a<chunk>b", truncated=True)


def test_text_without_tags_is_cut_on_blank_lines_without_a_note() -> None:
    made, note = cut_best("a\n\nb")
    assert [chunk.text for chunk in made.chunks] == ["a", "b"]
    assert made.cutter == "blank-line" and note is None


CASES = [
    ("blank-line", "a\nb\n\nc\r\n\r\nd\n \t\n\ne", ["a\nb", "c", "d", "e"], ""),
    ("blank-line", "  a\n\nb\n\n$$\\boxed{5}$$\n", ["a", "b"], "\n\n$$\\boxed{5}$$\n"),
    ("blank-line", "a\n\nSo \\boxed{5}.", ["a", "So \\boxed{5}."], ""),
    ("blank-line", "a\n\\[\n\\boxed{\\{1, 2\\}}\n\\].\n", ["a"], "\n\\[\n\\boxed{\\{1, 2\\}}\n\\].\n"),
    ("blank-line", "a\n**$\\boxed{\\frac{1}{2}}$**", ["a"], "\n**$\\boxed{\\frac{1}{2}}$**"),
    ("blank-line", "\\boxed{5}", ["\\boxed{5}"], ""),
    ("blank-line", " \n\n\t", [], " \n\n\t"),
    ("numbered-step", "Plan.\nStep 1: a\n\nmore\nStep 2: b", ["Plan.", "Step 1: a\n\nmore", "Step 2: b"], ""),
    ("numbered-step", "1. a\n3.5 is b\n2) c\n(3) d", ["1. a\n3.5 is b", "2) c", "(3) d"], ""),
    ("numbered-step", "### Step 1\na\n**Step 2** b", ["### Step 1\na", "**Step 2** b"], ""),
    (
        "numbered-step",
        "步骤1：甲\n第二步，乙\n3、丙\n（4）丁",
        ["步骤1：甲", "第二步，乙", "3、丙", "（4）丁"],
        "",
    ),
    ("numbered-step", "no numbers at all\n\nhere", ["no numbers at all\n\nhere"], ""),
    ("sentence", "It is 3.5, e.g. here. Then? Yes!", ["It is 3.5, e.g. here.", "Then?", "Yes!"], ""),
    ("sentence", "先算出来。再看！“对吗？”所以", ["先算出来。", "再看！", "“对吗？”", "所以"], ""),
    ("sentence", "a\n\nb. c\nd", ["a", "b.", "c\nd"], ""),
    ("sentence", "1. First. Next.\n2. Second.", ["1. First.", "Next.", "2. Second."], ""),
    ("sentence", 'He said "Stop." Then left.', ['He said "Stop."', "Then left."], ""),
]


@pytest.mark.parametrize(("cutter", "text", "chunks", "tail"), CASES)
def test_where_fallback_cutters_cut(cutter: str, text: str, chunks: list[str], tail: str) -> None:
    made = cut(text, cutter)
    assert [chunk.text for chunk in made.chunks] == chunks
    assert made.tail == tail


def test_unknown_cutter_and_prefix_are_named() -> None:
    with pytest.raises(InputError, match="unknown cutter 'words'; there are tags"):
        cut("a", "words")
    with pytest.raises(InputError, match="prefix 3 was asked for, and the solution has 2 chunks"):
        prefix_text(join_steps(["a", "b"]), 3)


@given(steps=st.lists(st.text(), max_size=6))
def test_steps_become_chunks_one_each(steps: list[str]) -> None:
    made = join_steps(steps)
    assert [chunk.text for chunk in made.chunks] == steps
    assert rejoin(made) == "\n\n".join(steps)


@pytest.mark.parametrize("mark", [".", "!?", "e.g. ", "So "])
def test_a_sign_without_end_is_cut_in_time(mark: str) -> None:
    """An LLM that repeats itself: work that grows with the square of the length would outlast the test's limit."""
    text = mark * (400_000 // len(mark)) + "x"
    assert rejoin(cut(text, "sentence")) == text


def test_boxes_behind_backslashes_without_end_are_found_in_time() -> None:
    assert [box.content for box in find_boxes("\\" * 600_000 + r"a\boxed{2}" + "\\" * 600_000)] == ["2"]


@given(text=texts)
def test_boxes_balance(text: str) -> None:
    for box in find_boxes(text):
        assert text[box.start : box.end].endswith("{" + box.content + "}")


def test_boxes_escaped_nested_and_unclosed() -> None:
    found = [
        box.content for box in find_boxes(r"\boxed{\{1\}} \boxed{a \boxed{b}} \boxed {c} \fbox{d} \boxed{e")
    ]
    assert found == [r"\{1\}", r"a \boxed{b}", "b", "c"]
    assert [box.content for box in find_boxes(r"\fboxed{1} \\boxed{2}")] == ["1", "2"]


def decode_bytes(token_ids: list[int] | tuple[int, ...]) -> str:
    """A byte tokenizer: a character of several bytes is a replacement sign until it is complete."""
    return bytes(token_ids).decode(errors="replace")


@given(
    inner=st.lists(st.text(alphabet="ab é数𝑥", max_size=8), max_size=6),
    tail=st.text(alphabet="é𝑥 z", max_size=8),
)
def test_token_ends_with_characters_of_several_tokens(inner: list[str], tail: str) -> None:
    text = "\n".join(f"<chunk>{piece}</chunk>" for piece in inner) + tail
    made = cut(text, "tags")
    expected = tuple(len(prefix_text(made, k + 1).encode()) for k in range(len(made.chunks)))
    assert token_ends(made, list(text.encode()), decode_bytes) == expected


def test_token_ends_where_no_boundary_falls_there() -> None:
    vocabulary = ["<chunk>", "</chunk>", "a", "</chunk>\n", ""]

    def decode(token_ids: list[int] | tuple[int, ...]) -> str:
        return "".join(vocabulary[token] for token in token_ids)

    token_ids = [
        0,
        2,
        3,
        0,
        2,
        2,
        1,
        4,
    ]  # the last token, an end token, decodes to nothing and is not counted
    assert token_ends(cut(decode(token_ids), "tags"), token_ids, decode) == (None, 7)


def test_token_ends_decodes_rarely() -> None:
    text = "".join(f"<chunk>{'step ' * 40}{i}</chunk>" for i in range(10))
    calls = 0

    def decode(token_ids: list[int] | tuple[int, ...]) -> str:
        nonlocal calls
        calls += 1
        return decode_bytes(token_ids)

    token_ends(cut(text, "tags"), list(text.encode()), decode)
    assert calls < 10 * 18


def test_field_texts_rejoin_under_every_cutter() -> None:
    folder = os.environ.get("STEPWISER_FIELD_DATA")
    if not folder:
        pytest.skip("STEPWISER_FIELD_DATA is not set")
    solutions = []
    for name in ("gsm8k_test_20.jsonl", "math500_20.jsonl"):
        for line in Path(folder, "dev_slices", name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            solutions.append(row.get("solution") or row["answer"])
    for name in ("math500_base_outputs_20.jsonl", "math500_instruct_outputs_20.jsonl"):
        for line in Path(folder, "dev_slices", name).read_text(encoding="utf-8").splitlines():
            solutions += json.loads(line)["code"]
    assert len(solutions) >= 80
    for solution in solutions:
        counts = [len(cut(solution, cutter).chunks) for cutter in FALLBACKS]
        assert min(counts) >= 1
        assert all(rejoin(cut(solution, cutter)) == solution for cutter in FALLBACKS)

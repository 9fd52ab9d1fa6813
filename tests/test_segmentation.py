"""Which of a teacher's answers are kept: only those that give the solution back character for character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.chunks import rejoin
from engine.errors import InputError
from engine.segmentation import (
    Segmentation,
    blank_line_count,
    first_valid,
    is_tagged,
    read_segmentation,
    segment_prompt,
    untagged,
    well_formed,
)

SOURCE = "Add 5:\n\n3+5=8.\n\nWait, 3+5=8.\n\n\\boxed{8}"
TAGGED = "<chunk>Add 5:\n\n3+5=8.</chunk>\n\n<chunk>Wait, 3+5=8.</chunk>\n\n\\boxed{8}"


def test_an_exact_answer_is_kept_with_its_chunks():
    found = read_segmentation(SOURCE, TAGGED)
    assert isinstance(found, Segmentation)
    assert found.text == TAGGED
    assert [chunk.text for chunk in found.cut.chunks] == ["Add 5:\n\n3+5=8.", "Wait, 3+5=8."]
    assert found.cut.tail == "\n\n\\boxed{8}"
    assert untagged(found.text) == SOURCE


@pytest.mark.parametrize(
    "answer, reason",
    [
        (SOURCE, "no tags"),
        ("", "no tags"),
        (TAGGED.replace("3+5=8", "3 + 5 = 8"), "changed text"),
        (TAGGED.replace("=8.", "=9."), "changed text"),
        (TAGGED.replace("\n\n<chunk>Wait", "\n<chunk>Wait"), "changed text"),  # white space counts as well
        (TAGGED.removesuffix("\\boxed{8}"), "changed text"),
        (TAGGED.replace("Wait", "wait"), "changed text"),
        (TAGGED.removesuffix("</chunk>\n\n\\boxed{8}") + "\n\n\\boxed{8}", "unclosed tags"),
        (TAGGED.replace("3+5=8.</chunk>", "3+5=8.", 1), "unclosed tags"),  # nested
        (TAGGED.replace("<chunk>", "", 1), "unclosed tags"),  # stray
        (TAGGED.replace("<chunk>Add 5:", "Add 5:<chunk>", 1), "text outside chunks"),
        (TAGGED.replace("<chunk>Wait, 3+5=8.</chunk>", "Wait, 3+5=8."), "text outside chunks"),
        (TAGGED.replace("<chunk>Add", "<chunk></chunk><chunk>Add"), "empty chunk"),
        ("<chunk>I will do it.</chunk>\n" + TAGGED, "text outside chunks"),
    ],
)
def test_what_is_rejected_says_why(answer, reason):
    assert read_segmentation(SOURCE, answer) == reason


def test_a_sentence_with_the_boxed_answer_may_be_the_tail():
    source = "3+5=8.\nThe answer is \\boxed{8}."
    tagged = source.replace("3+5=8.", "<chunk>3+5=8.</chunk>")
    assert read_segmentation(source, tagged) == Segmentation(tagged)
    assert well_formed(tagged)


def test_an_answer_cut_off_at_the_limit_is_truncated_whatever_it_holds():
    assert read_segmentation(SOURCE, TAGGED, truncated=True) == "truncated"


def test_a_solution_without_a_box_must_be_in_chunks_to_its_end():
    assert read_segmentation("a. b.", "<chunk>a.</chunk> b.") == "text outside chunks"
    assert read_segmentation("a. b.", "<chunk>a.</chunk> <chunk>b.</chunk>") == Segmentation(
        "<chunk>a.</chunk> <chunk>b.</chunk>"
    )


def test_a_chatty_teacher_s_frame_is_dropped_and_its_last_copy_counts():
    chatty = f"Here it is:\n```\n{TAGGED}\n```\nI changed nothing."
    assert read_segmentation(SOURCE, chatty) == Segmentation(TAGGED)
    assert read_segmentation(SOURCE, f"The solution is\n{SOURCE}\n\n{TAGGED}") == Segmentation(TAGGED)


def test_white_space_around_the_source_stays_the_source_s():
    found = read_segmentation(f"  {SOURCE}\n", f"\n\n{TAGGED}")
    assert found == Segmentation(f"  {TAGGED}\n")


def test_the_first_valid_try_is_kept_and_the_reasons_before_it():
    tries = [(SOURCE, False), (TAGGED, True), (TAGGED, False), ("never read", False)]
    assert first_valid(SOURCE, tries) == (Segmentation(TAGGED), ("no tags", "truncated"))
    assert first_valid(SOURCE, tries[:2]) == (None, ("no tags", "truncated"))


PIECES = st.text(st.sampled_from("ab 1=+\n.\\{}<>é鸡"), min_size=1, max_size=12)


@given(
    st.lists(PIECES, min_size=1, max_size=6), st.sampled_from(["", "\n\n", " "]), st.text("x \n", max_size=3)
)
def test_whatever_is_accepted_rejoins_to_the_source(pieces, gap, noise):
    source = gap.join(pieces) + "\n\\boxed{1}"
    answer = noise + gap.join(f"<chunk>{piece}</chunk>" for piece in pieces) + "\n\\boxed{1}"
    found = read_segmentation(source, answer)
    blank = any(not piece.strip() for piece in pieces)
    if isinstance(found, Segmentation):
        assert untagged(found.text) == source
        assert rejoin(found.cut) == found.text
        assert not blank
    else:
        assert blank or is_tagged(source) or not source.strip()


@given(st.text(st.sampled_from("ab \n"), min_size=3, max_size=20), st.integers(0, 19), st.sampled_from("cX"))
def test_no_changed_character_passes(source, place, other):
    changed = source[: place % len(source)] + other + source[place % len(source) + 1 :]
    assert not isinstance(read_segmentation(source, f"<chunk>{changed}</chunk>"), Segmentation)


def test_well_formed_output_is_chunks_and_a_boxed_tail():
    assert well_formed(TAGGED)
    assert not well_formed(TAGGED, truncated=True)
    assert not well_formed(SOURCE)
    assert not well_formed(TAGGED.replace("</chunk>", "", 1))
    assert not well_formed(TAGGED.removesuffix("\\boxed{8}"))
    assert not well_formed("So: " + TAGGED)


def test_blank_lines_are_counted_in_the_text_without_tags():
    assert blank_line_count(SOURCE) == blank_line_count(TAGGED) == 3


def test_the_teacher_s_prompts_ask_for_exactly_the_solution(tmp_path):
    assert "{{solution}}" in segment_prompt("segment").text
    assert segment_prompt("segment_nano").text == "<new>{{solution}}</new>\n"
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("Cut {{problem}}")
    with pytest.raises(InputError, match="solution"):
        segment_prompt(str(wrong))

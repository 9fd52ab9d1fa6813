"""The segment kind: correct solutions, a teacher that fails at times, a frozen set; stopped, killed and resumed."""

import hashlib
import json
from dataclasses import replace

import pytest

from db.rows import NewChunk, NewTrajectory
from engine.chunks import cut_best
from engine.errors import CheckpointError, InputError, StepWiserError, TrainingError
from engine.llm.scripted import ScriptedLLM
from engine.recipes import Draws, Selection
from engine.segmentation import untagged
from tests.little_world import DATASET, context, open_little
from training.segment_recipe import SegmentRecipe
from training.segmenting import Tries, Try, check_free, chosen_solutions, segment_with
from training.sets.frozen import read_manifest, read_rows

POLICY = "plain"


def solution(i: int, extra: str = "") -> str:
    a, b = 2 * i + 1, 3 * i + 3
    return f"Add:\n\n{i}+{i + 1}={a}.\n\n{extra}{a}+{i + 2}={b}.\n\n\\boxed{{{b}}}"


def tagged(source: str) -> str:
    first, rest = source.split(".\n\n", 1)
    chunk, box = rest.rsplit("\n\n", 1)
    return f"<chunk>{first}.</chunk>\n\n<chunk>{chunk}</chunk>\n\n{box}"


def teacher(prompt: str, seed: int) -> str:
    """Cuts rightly in one case of two; otherwise it changes a character, forgets a tag or writes none."""
    source = prompt.removeprefix("<new>").removesuffix("</new>\n")
    mood = int.from_bytes(hashlib.sha256(f"{seed}|{prompt}".encode()).digest()[:4], "big") % 6
    answer = tagged(source)
    return {0: source, 1: answer.replace("+", " + ", 1), 2: answer.replace("</chunk>", "", 1)}.get(
        mood, answer
    )


def never(prompt: str, seed: int) -> str:
    return "I will not."


@pytest.fixture
def store(tmp_path):
    store = open_little(tmp_path, problems=12)
    ids = store.problem_ids(DATASET)
    rows = []
    for number, problem_id in enumerate(ids, start=1):
        for text, outcome in (
            (solution(number), "correct"),
            (solution(number), "correct"),  # the same text again
            (solution(number, "So "), "correct"),
            (solution(number, "Then "), "wrong"),
            (tagged(solution(number, "Now ")), "correct"),
        ):
            rows.append(row(problem_id, text, outcome))
    store.add_trajectories(rows, run_id=None, actor="test")
    return store


def row(problem_id: int, text: str, outcome: str) -> NewTrajectory:
    cut, _ = cut_best(text)
    return NewTrajectory(
        problem_id=problem_id,
        policy=POLICY,
        text=text,
        tail=cut.tail,
        chunks=tuple(NewChunk(c.lead, c.text, c.close) for c in cut.chunks),
        cutter=cut.cutter,
        outcome=outcome,
    )


def recipe(**fields) -> SegmentRecipe:
    return SegmentRecipe(
        **(
            {
                "name": "cut",
                "select": Selection(policy=POLICY),
                "draws": Draws(max_tokens=300),
                "held_out": 0.25,
            }
            | fields
        )
    )


def test_correct_untagged_solutions_become_a_set_whose_completions_rejoin(store, tmp_path):
    result = segment_with(context(store, recipe(), tmp_path), ScriptedLLM(teacher, name="teacher"))
    rows = {part: read_rows(tmp_path, "cut", part, "completion") for part in ("train", "held_out")}
    everything = rows["train"] + rows["held_out"]
    sources = {t.id: t for page in store.iterate_trajectories(batch=99, policy=POLICY) for t in page}
    assert len(everything) == result["segmented"] == result["solutions"] == 24
    for entry in everything:
        source = sources[entry["trajectory_id"]]
        assert source.outcome == "correct"
        assert untagged(entry["completion"]) == source.text
        assert entry["completion"].count("<chunk>") == 2
        assert entry["prompt"] == f"<solve>{source.problem}\n"
    train, held = ({r["problem_id"] for r in rows[part]} for part in ("train", "held_out"))
    assert not train & held and len(held) == 3


def test_acceptance_is_counted_by_solution_try_and_reason(store, tmp_path):
    result = segment_with(context(store, recipe(), tmp_path), ScriptedLLM(teacher, name="teacher"))
    rejected = sum(result["rejected"].values())
    assert set(result["rejected"]) == {"no tags", "changed text", "unclosed tags"}
    assert result["tries"] == result["segmented"] + rejected > 24
    assert result["acceptance"] == 1.0
    assert result["acceptance_a_try"] == pytest.approx(24 / result["tries"], abs=1e-4)
    assert 0 < result["first_try"] < 1
    assert (result["chunks"], result["blank_line_chunks"]) == (2.0, 3.0)
    manifest = read_manifest(tmp_path, "cut")
    assert manifest.counts | {"solutions": 24, "not_correct": 12, "tagged_already": 12} == manifest.counts
    assert manifest.counts["rejected_changed_text"] == result["rejected"]["changed text"]
    assert manifest.measures["first_try"] == result["first_try"]
    assert manifest.problems == {"train": 9, "held_out": 3}


def test_fewer_tries_leave_solutions_out(store, tmp_path):
    llm = ScriptedLLM(teacher, name="teacher")
    once = segment_with(context(store, recipe(tries=1), tmp_path), llm)
    assert once["tries"] == once["solutions"] == 24
    assert once["acceptance"] == once["first_try"] < 1
    more = segment_with(context(store, recipe(name="more", tries=3), tmp_path), llm)
    assert once["segmented"] < more["segmented"]
    assert more["first_try"] == once["first_try"]  # try j is the same draw whatever k is


def test_at_most_so_many_solutions_a_problem(store, tmp_path):
    ctx = context(store, recipe(solutions_per_problem=1), tmp_path)
    solutions, left_out = chosen_solutions(ctx)
    assert len(solutions) == len({s.problem_id for s in solutions}) == 12
    assert left_out["more_than_asked_for"] == 12


def test_a_stopped_run_goes_on_and_ends_as_an_uninterrupted_one(store, tmp_path):
    whole = segment_with(context(store, recipe(name="whole"), tmp_path), ScriptedLLM(teacher, name="teacher"))
    ctx = context(store, recipe(), tmp_path)
    stopper = ScriptedLLM(
        lambda p, s: (len(first.served) > 8 and ctx.stop()) or teacher(p, s), name="teacher"
    )
    first = stopper
    stopped = segment_with(ctx, stopper)
    assert "set" not in stopped and 0 < stopped["tries"] < whole["tries"]
    kept = tmp_path / "runs" / str(ctx.run_id) / "tries.jsonl"
    with kept.open("ab") as out:
        out.write(b'{"trajectory_id": 1, "num')  # a kill in the middle of a line
    second = ScriptedLLM(teacher, name="teacher")
    resumed = segment_with(replace_ctx(ctx), second)
    assert len(second.served) == whole["tries"] - stopped["tries"]
    assert resumed == whole | {"set": "cut"}
    assert read_rows(tmp_path, "cut", "train") == read_rows(tmp_path, "whole", "train")
    assert [json.loads(line) for line in kept.read_text().splitlines()]


def replace_ctx(ctx):
    import threading

    return replace(ctx, _stop=threading.Event(), attempt=2, result={})


def test_a_door_that_cannot_serve_a_solution_counts_as_error(store, tmp_path):
    llm = ScriptedLLM(teacher, name="teacher", fail=lambda request: "no" if request.id == "1" else None)
    result = segment_with(context(store, recipe(tries=2), tmp_path), llm)
    assert result["rejected"]["error"] == 2
    assert result["segmented"] < result["solutions"]


def test_truncated_answers_are_counted(store, tmp_path):
    short = recipe(tries=1, draws=Draws(max_tokens=20))
    with pytest.raises(TrainingError, match=r"truncated 24.*max_tokens"):
        segment_with(context(store, short, tmp_path), ScriptedLLM(teacher, name="teacher"))


def test_a_teacher_that_cuts_nothing_and_an_empty_selection_say_what_to_do(store, tmp_path):
    with pytest.raises(TrainingError, match=r"'silent' cut none of 24 .*no tags 192.*another teacher"):
        segment_with(context(store, recipe(), tmp_path), ScriptedLLM(never, name="silent"))
    assert not (tmp_path / "sets" / "cut").exists()
    for select, what in (
        (Selection(policy="nobody"), "no trajectories"),
        (Selection(trajectory_ids=(3,)), "not correct 1"),
    ):
        with pytest.raises(TrainingError, match=what):
            segment_with(context(store, recipe(select=select), tmp_path), ScriptedLLM(teacher))


def test_a_set_s_name_is_never_taken_over(store, tmp_path):
    segment_with(context(store, recipe(), tmp_path), ScriptedLLM(teacher, name="teacher"))
    with pytest.raises(TrainingError, match="already a training set 'cut'"):
        check_free(context(store, recipe(), tmp_path))


def test_names_that_lead_nowhere_are_refused_before_queueing(tmp_path):
    for wrong in (
        {"llm": {"checkpoint": "none"}},
        {"prompt": "policy"},
        {"policy_prompt": "judge"},
        {"name": "../x"},
    ):
        with pytest.raises(StepWiserError) as caught:
            recipe(**({"llm": {"checkpoint": "nano"}} | wrong)).check(tmp_path)
        assert isinstance(caught.value, CheckpointError | InputError | TrainingError)
    recipe(llm={"checkpoint": "nano"}).check(tmp_path)


def test_tries_are_read_back_as_they_were_written(tmp_path):
    rows = [
        Try(1, 0, 5, rejected="no tags"),
        Try(1, 1, 6, text="<chunk>é\u2028</chunk>"),
        Try(2, 0, 7, rejected="error"),
    ]
    kept = Tries(tmp_path / "tries.jsonl")
    kept.write(rows[:1])
    kept.write(rows[1:])
    again = Tries(tmp_path / "tries.jsonl")
    for tries in (kept, again):
        assert tries.count == 3 and tries.made == {1: 2, 2: 1}
        assert tries.kept == {1: "<chunk>é\u2028</chunk>"}
        assert tries.rejected == {"no tags": 1, "error": 1}
        assert tries.first[True] == 0 and tries.first[False] == 2

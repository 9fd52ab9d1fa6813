"""The stages over a real store and a scripted policy: what is written, resumed, shared, and left alone by luck."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from app.kinds import kind_of
from db.check import check
from db.rows import NewChunk, NewProblem, NewRollout, NewTrajectory
from engine.judge import parse_verdict
from engine.llm.base import Request
from engine.llm.scripted import ScriptedLLM, newest_first, shuffled
from engine.pipeline.judging import judge_with
from engine.pipeline.labelling import prefix_values, relabel
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from engine.recipes import Draws, Selection
from tests import little_world as little


@pytest.fixture
def sampled(tmp_path: Path):
    store = little.open_little(tmp_path)
    sample_with(little.context(store, little.sample_recipe(), tmp_path), little.scripted_policy())
    return store


def test_sample_stores_n_graded_chunked_solutions_a_problem(tmp_path: Path):
    store = little.open_little(tmp_path)
    result = sample_with(little.context(store, little.sample_recipe(n=6), tmp_path), little.scripted_policy())
    ids = store.trajectory_ids(dataset=little.DATASET)
    rows = store.stage_trajectories(ids)
    assert len(rows) == 18 and result["problems"] == 3
    assert Counter(row.problem_id for row in rows) == {1: 6, 2: 6, 3: 6}
    assert {row.outcome for row in rows} == {"correct", "wrong"}
    for row in rows:
        assert "".join(c.lead + c.text + c.close for c in row.chunks) + row.tail == row.text
        assert len(row.chunks) == 2 and row.tail.endswith(f"\\boxed{{{row.answer}}}")
        assert (row.outcome == "correct") == (row.answer == row.reference)
        for chunk in row.chunks:
            assert row.token_ids is not None and chunk.token_end is not None
    assert check(store) == []


def test_sampling_again_adds_only_what_is_missing(sampled, tmp_path: Path):
    before = {(r.prefix_id, r.draw): r.text for r in sampled.stage_trajectories(sampled.trajectory_ids())}
    sample_with(little.context(sampled, little.sample_recipe(n=9), tmp_path), little.scripted_policy())
    after = {(r.prefix_id, r.draw): r.text for r in sampled.stage_trajectories(sampled.trajectory_ids())}
    assert len(after) == 27 and all(after[key] == text for key, text in before.items())
    per_prefix = Counter(key[0] for key in after)
    assert set(per_prefix.values()) == {9}
    again = sample_with(
        little.context(sampled, little.sample_recipe(n=9), tmp_path), little.scripted_policy()
    )
    assert again["done"] == 27 and again["solutions_per_s"] == 0, "what was there is no work of this run"


@pytest.mark.parametrize("between", [0, 64])
def test_problems_with_the_same_text_have_n_solutions_each(tmp_path: Path, between: int):
    store = little.open_little(tmp_path, problems=1)
    sums = [f"{i}+1+1" for i in range(between)] + ["1+2+3"]
    rows = [NewProblem(little.DATASET, f"s{i}", text, "6") for i, text in enumerate(sums)]
    store.add_problems(rows, run_id=None, actor="test")
    policy = little.scripted_policy()
    for n in (3, 5):  # and a second run goes on from the same prefixes
        result = sample_with(little.context(store, little.sample_recipe(n=n), tmp_path), policy)
        drawn = store.stage_trajectories(store.trajectory_ids())
        assert set(Counter(row.key for row in drawn).values()) == {n} and result["problems"] == between + 2
    alike = [row for row in drawn if row.problem == "1+2+3"]
    assert len({row.prefix_id for row in alike}) == 2
    roll_out(little.context(store, little.rollout_recipe(), tmp_path), policy)
    assert check(store) == []


def test_a_problem_without_solutions_is_neither_all_right_nor_none_right(tmp_path: Path):
    store = little.open_little(tmp_path)
    llm = little.scripted_policy(context=8)
    result = sample_with(little.context(store, little.sample_recipe(), tmp_path), llm)
    assert (result["problems"], result["mixed_problems"]) == (3, 0)
    assert (result["all_right"], result["none_right"]) == (0, 0)
    starts = range(1, 4)
    assert all(prefix.error for prefix in store.prefixes(starts).values())
    sample_with(little.context(store, little.sample_recipe(), tmp_path), little.scripted_policy())
    assert not any(prefix.error for prefix in store.prefixes(starts).values())


def test_rollouts_fill_every_prefix_to_m_and_label_every_chunk(sampled, tmp_path: Path):
    ctx = little.context(sampled, little.rollout_recipe(m=8), tmp_path)
    result = roll_out(ctx, little.scripted_policy())
    ctx.beat()
    rows = little.all_rollouts(sampled)
    draws = Counter(key for key, *_ in rows)
    assert draws and set(draws.values()) == {8}
    run = ctx.store.run(ctx.run_id)
    assert run.done == run.total == len(rows)
    assert result["labelled_chunks"] == 36 and len(little.all_labels(sampled)) == 36
    assert check(sampled) == []


def test_what_a_run_will_draw_is_counted_with_bare_problems_and_cut_off_ends(tmp_path: Path):
    store = little.open_little(tmp_path, problems=1)
    (problem,) = store.problem_ids(little.DATASET)
    rows = [
        NewTrajectory(
            problem,
            "ada",
            "".join(f"<chunk>{text}</chunk>\n" for text in texts),
            "",
            tuple(NewChunk("<chunk>", text, "</chunk>\n") for text in texts),
            "tags",
            outcome,
            None,
        )
        for texts, outcome in ((("1+2=3", "3+3=6"), "wrong"), (("1+2=4", "4+3=8"), "truncated"))
    ]
    store.add_trajectories(rows, run_id=None, actor="ada")
    recipe = little.rollout_recipe(m=8)
    counted = kind_of("rollout").count(store, recipe)
    result = roll_out(little.context(store, recipe, tmp_path), little.scripted_policy())
    assert counted == 8 * (1 + 2 + 2)  # behind chunks of either, and the bare problem of either
    assert len(little.all_rollouts(store)) == counted - result["spared_by_sharing"] == 8 * 4


def test_trajectories_that_begin_alike_share_rollouts(sampled, tmp_path: Path):
    result = roll_out(little.context(sampled, little.rollout_recipe(), tmp_path), little.scripted_policy())
    firsts = {(t.problem_id, t.chunks[0].text) for t in sampled.stage_trajectories(sampled.trajectory_ids())}
    assert result["prefixes"] == len(firsts) < 18
    assert result["shared_prefixes"] == 18 - len(firsts)


def test_values_are_the_counts_with_the_own_solution_left_out_of_its_pass_rate(sampled, tmp_path: Path):
    roll_out(little.context(sampled, little.rollout_recipe(m=8), tmp_path), little.scripted_policy())
    for inputs in sampled.label_inputs(sampled.trajectory_ids()):
        values = prefix_values(inputs)
        siblings = inputs.sample_counts
        right = siblings.get("correct", 0) - (inputs.outcome == "correct")
        assert values[0].q == Fraction(right, 5)
        assert values[1].n == 8
        assert values[2].exact is (inputs.outcome == "correct")


def test_topping_up_repeats_no_draw_and_leaves_the_first_ones(sampled, tmp_path: Path):
    roll_out(little.context(sampled, little.rollout_recipe(m=16), tmp_path), little.scripted_policy())
    first = little.all_rollouts(sampled)
    roll_out(little.context(sampled, little.rollout_recipe(m=32), tmp_path), little.scripted_policy())
    both = little.all_rollouts(sampled)
    assert set(first) <= set(both) and len(both) == 2 * len(first)
    seeds = [(key, seed) for key, _, _, seed, _ in both]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("order", [newest_first, shuffled(1), shuffled(2)])
def test_the_order_in_which_completions_finish_changes_nothing(tmp_path: Path, order):
    stores = []
    for name, chosen in (("a", None), ("b", order)):
        (tmp_path / name).mkdir()
        store = little.open_little(tmp_path / name)
        options = {} if chosen is None else {"order": chosen, "in_flight": 64}
        sample_with(
            little.context(store, little.sample_recipe(), tmp_path), little.scripted_policy(**options)
        )
        roll_out(little.context(store, little.rollout_recipe(), tmp_path), little.scripted_policy(**options))
        stores.append(store)
    assert little.all_rollouts(stores[0]) == little.all_rollouts(stores[1])
    labels = [sorted(row[1:] for row in little.all_labels(store)) for store in stores]
    assert labels[0] == labels[1]


def test_a_label_never_changes_when_unrelated_rollouts_arrive(sampled, tmp_path: Path):
    ids = sampled.trajectory_ids()
    roll_out(
        little.context(sampled, little.rollout_recipe(select=Selection(trajectory_ids=ids[:1])), tmp_path),
        little.scripted_policy(),
    )
    mine = little.all_labels(sampled)
    roll_out(
        little.context(
            sampled, little.rollout_recipe(m=16, select=Selection(trajectory_ids=ids[8:])), tmp_path
        ),
        little.scripted_policy(),
    )
    relabel(sampled, ids)
    place = [row[:3] for row in mine]
    assert [row for row in little.all_labels(sampled) if row[:3] in place] == mine


def test_a_draw_beyond_a_gap_does_not_count(sampled, tmp_path: Path):
    ctx = little.context(sampled, little.rollout_recipe(m=4), tmp_path)
    roll_out(ctx, little.scripted_policy())
    prefix_id = next(c.prefix_id for t in sampled.stage_trajectories([1]) for c in t.chunks if c.prefix_id)
    before = sampled.outcome_counts([prefix_id])[prefix_id]
    late = NewRollout(prefix_id, 9, "correct", 3, "late", "1", "stop", 0)
    sampled.add_rollouts([late], run_id=ctx.run_id)
    assert sampled.outcome_counts([prefix_id])[prefix_id] == before


def test_a_prefix_that_does_not_fit_is_marked_and_the_rest_goes_on(sampled, tmp_path: Path):
    longest = max(len(p.token_ids) for p in sampled.prefixes(range(1, 4)).values())
    llm = little.scripted_policy(context=longest + 20)
    result = roll_out(little.context(sampled, little.rollout_recipe(m=4), tmp_path), llm)
    assert result["prefixes"] > 0
    tight = little.scripted_policy(context=longest + 1)
    result = roll_out(little.context(sampled, little.rollout_recipe(m=6), tmp_path), tight)
    assert result["too_long"] > 0
    marked = [p for p in sampled.prefixes(range(1, 200)).values() if p.error]
    assert marked and all("context" in p.error for p in marked)
    result = roll_out(little.context(sampled, little.rollout_recipe(m=6), tmp_path), little.scripted_policy())
    assert result["too_long"] == 0, "a larger context holds it"
    assert not any(p.error for p in sampled.prefixes(range(1, 200)).values())
    assert {sum(sampled.outcome_counts([p.id])[p.id].values()) for p in marked} == {6}


def test_a_request_that_the_door_could_not_serve_is_an_error_and_leaves_the_value_unknown(
    sampled, tmp_path: Path
):
    llm = little.scripted_policy(fail=lambda request: "the device is on fire")
    roll_out(little.context(sampled, little.rollout_recipe(m=4), tmp_path), llm)
    assert {outcome for _, _, outcome, _, _ in little.all_rollouts(sampled)} == {"error"}
    assert all(
        row[4:7] in ((5, None, None), (5, 0, 0), (5, 0, 1), (None, 0, 0), (None, 0, 1))
        for row in little.all_labels(sampled)
    )
    firsts = [row for row in little.all_labels(sampled) if row[2] == 0]
    assert firsts and all(row[8] is None and row[10] is None for row in firsts)


def test_truncated_and_empty_outputs_are_kinds_of_their_own(tmp_path: Path):
    store = little.open_little(tmp_path)
    texts = {
        0: "",
        1: "<chunk>1+2=3</chunk>\nno box",
        2: "<chunk>1+2=3" + " and on" * 100,
        3: "<chunk>a<chunk>b</chunk>\n\\boxed{6}",
    }
    llm = ScriptedLLM(lambda prompt, seed: texts[seed % 4], name="odd")
    sample_with(little.context(store, little.sample_recipe(n=16), tmp_path), llm)
    rows = store.stage_trajectories(store.trajectory_ids())
    outcomes = {row.text[:20]: row.outcome for row in rows}
    assert outcomes[""] == "unparsed" and outcomes["<chunk>1+2=3</chunk>"] == "unparsed"
    assert outcomes["<chunk>1+2=3 and on "] == "truncated"
    nested = [row for row in rows if row.text.startswith("<chunk>a<chunk>")]
    assert nested and all(row.cutter == "blank-line" for row in nested)
    with store.read() as db:
        notes = {n for (n,) in db.exec_driver_sql("SELECT note FROM trajectories WHERE note IS NOT NULL")}
    assert any("inside the chunk" in note for note in notes)
    assert check(store) == []


def test_stopping_keeps_what_was_graded_and_resuming_completes_it(sampled, tmp_path: Path):
    ctx = little.context(sampled, little.rollout_recipe(m=8), tmp_path)
    llm = little.scripted_policy()
    little.stop_after(llm, ctx, 3)
    roll_out(ctx, llm)
    part = little.all_rollouts(sampled)
    assert len(part) == 3 * 8
    roll_out(little.context(sampled, little.rollout_recipe(m=8), tmp_path), little.scripted_policy())
    whole = little.all_rollouts(sampled)
    assert set(part) < set(whole)
    assert set(Counter(key for key, *_ in whole).values()) == {8}


def test_judging_keeps_rationales_votes_and_verdicts_that_never_came(sampled, tmp_path: Path):
    llm = ScriptedLLM(little.judge, name="little-judge")
    result = judge_with(little.context(sampled, little.judge_recipe(k=4), tmp_path), llm)
    chunk_ids = [c.id for t in sampled.stage_trajectories(sampled.trajectory_ids()) for c in t.chunks]
    verdicts = sampled.verdicts(chunk_ids)
    assert len(verdicts) == 36 and all(
        len(v) == 4 for by_judge in verdicts.values() for v in by_judge.values()
    )
    said = Counter(v for by_judge in verdicts.values() for vs in by_judge.values() for v in vs)
    assert said["positive"] == result["positive"] > 0 and said["negative"] == result["negative"] > 0
    assert said[None] == result["none"] > 0
    with sampled.read() as db:
        for rationale, verdict in db.exec_driver_sql("SELECT rationale, verdict FROM judgments"):
            assert parse_verdict(rationale) == verdict
    again = judge_with(
        little.context(sampled, little.judge_recipe(k=4), tmp_path),
        ScriptedLLM(little.judge, name="little-judge"),
    )
    assert again["positive"] + again["negative"] + again["none"] == 0


def test_imported_siblings_that_begin_alike_are_judged_apart(tmp_path: Path):
    store = little.open_little(tmp_path, problems=1)
    (problem,) = store.problem_ids(little.DATASET)
    chunks = (NewChunk("<chunk>", "1+2=3", "</chunk>\n"),)
    rows = [
        NewTrajectory(problem, "human", f"<chunk>1+2=3</chunk>\n{end}", end, chunks, "tags", "wrong")
        for end in ("\\boxed{3}", "\\boxed{4}")
    ]
    store.add_trajectories(rows, run_id=None, actor="ann")
    llm = ScriptedLLM(little.judge, name="little-judge")
    judge_with(little.context(store, little.judge_recipe(k=4), tmp_path), llm)
    with store.read() as db:
        seeds = list(db.exec_driver_sql("SELECT seed FROM judgments").scalars())
    assert len(seeds) == len(set(seeds)) == 8


def test_same_seed_same_rows_other_seed_other_rows(tmp_path: Path):
    texts = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        (tmp_path / name).mkdir()
        store = little.open_little(tmp_path / name)
        recipe = little.sample_recipe(seed=seed)
        sample_with(little.context(store, recipe, tmp_path), little.scripted_policy())
        rows = store.stage_trajectories(store.trajectory_ids())
        texts.append(sorted((r.problem, r.draw or 0, r.text) for r in rows))
    assert texts[0] == texts[1] != texts[2]


def test_rollouts_of_anothers_solutions_draw_the_bare_problem_too(sampled, tmp_path: Path):
    """Values of a trajectory under another policy need that policy's own value of prefix 0."""
    other = ScriptedLLM(little.policy, name="other-policy")
    roll_out(little.context(sampled, little.rollout_recipe(m=8), tmp_path), other)
    for inputs in sampled.label_inputs(sampled.trajectory_ids()):
        assert not inputs.is_own_sample and sum(inputs.first_counts.values()) == 8
        assert prefix_values(inputs)[0].n == 8


def test_requests_carry_the_exact_tokens_that_sampling_produced(sampled, tmp_path: Path):
    seen: list[Request] = []
    llm = little.scripted_policy()
    served = llm.stream

    def spy(requests):
        def look():
            for request in requests:
                seen.append(request)
                yield request

        return served(look())

    llm.stream = spy  # type: ignore[method-assign]
    roll_out(little.context(sampled, little.rollout_recipe(m=2), tmp_path), llm)
    starts = {p.token_ids for p in sampled.prefixes(range(1, 4)).values()}
    rows = sampled.stage_trajectories(sampled.trajectory_ids())
    allowed = {
        start + row.token_ids[: row.chunks[0].token_end]
        for row in rows
        for start in starts
        if row.token_ids is not None
    }
    assert seen and all(request.prompt_token_ids in allowed for request in seen)
    assert Draws(max_tokens=200).sampling() == seen[0].sampling

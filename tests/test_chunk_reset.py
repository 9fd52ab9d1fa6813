"""Chunk-reset search: the exact sequence of a scripted search, its seeds, its run, and once nano for real."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from db.store import open_store
from engine.checkpoints import PACKAGED
from engine.errors import RecipeError
from engine.judge import load_prompt
from engine.judges import GenerativeJudge, JudgeChoice
from engine.llm import LLMSpec
from engine.llm.base import Sampling
from engine.llm.scripted import ScriptedLLM, newest_first, shuffled
from engine.pipeline.searching import run, search_with
from engine.recipes import Draws, Generate, resolve
from engine.rollouts import base_seed, prefix_key
from engine.search import Drawing, Found, Task, Tried
from engine.search.chunk_reset import ChunkReset
from engine.search.recipes import SearchRecipe
from tests import little_world as little

SAMPLING = Sampling(max_tokens=200)


class Writer:
    """A policy that counts up: chunk p of attempt a is ``p.a``; after three chunks comes the answer."""

    def __init__(self, tail: str = "\n\\boxed{3}"):
        self.tail, self.seeds = tail, defaultdict(list)

    def __call__(self, prompt: str, seed: int) -> str:
        kept = re.findall(r"<chunk>(.*?)</chunk>", prompt)
        self.seeds[prompt].append(seed)
        if len(kept) == 3:
            return self.tail
        return f"\n<chunk>{len(kept)}.{len(self.seeds[prompt]) - 1}</chunk>\n<chunk>never read</chunk>"


def strict(prompt: str, seed: int) -> str:
    """A judge that wants chunk 0 at once, chunk 1 at the third attempt, and never takes chunk 2."""
    place, attempt = map(int, re.search(r"<new>(\d)\.(\d)</new>", prompt).groups())
    return "\\boxed{Positive}" if attempt >= {0: 0, 1: 2, 2: 99}[place] else "\\boxed{Negative}"


def judge_of(script: Any, **options: Any) -> GenerativeJudge:
    llm = ScriptedLLM(script, name="judge", **options)
    return GenerativeJudge(llm, load_prompt("judge_nano"), Draws(max_tokens=50))


def task(llm: ScriptedLLM, draw: int = 0) -> Task:
    return Task(7, draw, "What?", tuple(llm.encode("<solve>What?")))


def solve(script: Any, judge: GenerativeJudge | None, attempts: int = 5, **fields: Any) -> Found:
    policy = ScriptedLLM(script, name="policy")
    drawing = Drawing(fields.pop("sampling", SAMPLING), k=1, seed=3)
    (found,) = ChunkReset(attempts).search([task(policy)], policy, judge, drawing)
    return found


def test_the_exact_sequence_of_a_search():
    writer, judge = Writer(), judge_of(strict)
    found = solve(writer, judge)
    assert found.text == "\n<chunk>0.0</chunk>\n<chunk>1.2</chunk>\n<chunk>2.4</chunk>\n\\boxed{3}"
    places = [(one.position, one.attempt, one.text, one.kept, one.verdict) for one in found.tried]
    assert places == [
        (0, 0, "0.0", True, "positive"),
        (1, 0, "1.0", False, "negative"),
        (1, 1, "1.1", False, "negative"),
        (1, 2, "1.2", True, "positive"),
        (2, 0, "2.0", False, "negative"),
        (2, 1, "2.1", False, "negative"),
        (2, 2, "2.2", False, "negative"),
        (2, 3, "2.3", False, "negative"),
        (2, 4, "2.4", True, "negative"),  # the fifth stands
    ]
    assert found.finish_reason == "stop" and found.error is None
    each = found.tried[0].tokens
    assert found.rejected_tokens == 6 * each and len(found.token_ids) > 3 * each
    assert found.judge_tokens > 0 and len(judge.llm.served) == 9


def test_attempt_a_has_the_seed_base_plus_a_and_the_base_hangs_on_draw_and_tokens():
    writer = Writer()
    policy = ScriptedLLM(writer, name="policy")
    for draw in (0, 1):
        tuple(ChunkReset().search([task(policy, draw)], policy, judge_of(strict), Drawing(SAMPLING, 1, 3)))
    first = writer.seeds["<solve>What?"]
    key = prefix_key(policy.encode("<solve>What?"), policy.info.content_hash, SAMPLING)
    assert first == [base_seed(3, f"{key}:0"), base_seed(3, f"{key}:1")]
    rejected = writer.seeds["<solve>What?\n<chunk>0.0</chunk>"]
    assert rejected == [rejected[0] + attempt for attempt in range(3)]


def test_one_attempt_or_no_judge_is_plain_sampling():
    for found in (solve(Writer(), judge_of(strict), attempts=1), solve(Writer(), None)):
        assert [one.text for one in found.tried] == ["0.0", "1.0", "2.0"] and found.rejected_tokens == 0


def test_no_verdict_rejects_nothing():
    found = solve(Writer(), judge_of(lambda prompt, seed: "I cannot say."))
    assert [one.verdict for one in found.tried] == [None] * 3 and all(one.kept for one in found.tried)


def test_the_judge_reads_what_is_kept_and_never_what_was_dropped():
    prompts: list[str] = []

    def noting(prompt: str, seed: int) -> str:
        prompts.append(prompt)
        return strict(prompt, seed)

    solve(Writer(), judge_of(noting))
    assert prompts[4].startswith("<judge>What?\n<history>0.0\n1.2</history>\n<new>2.0</new>")
    assert not any("never read" in prompt for prompt in prompts)


def test_a_solution_that_runs_out_of_tokens_is_truncated():
    whole = solve(Writer(), None)
    budget = len(whole.token_ids)
    for tokens in range(1, budget):
        found = solve(Writer(), None, sampling=Sampling(max_tokens=tokens))
        assert found.finish_reason == "length" and len(found.token_ids) == tokens
        assert whole.text.startswith(found.text)
    assert solve(Writer(), None, sampling=Sampling(max_tokens=budget)).finish_reason == "stop"


def test_a_full_context_ends_a_solution_and_a_prompt_too_long_is_an_error():
    for context, reason in ((40, "length"), (8, "error")):
        policy = ScriptedLLM(Writer(), name="policy", context=context)
        (found,) = ChunkReset().search([task(policy)], policy, None, Drawing(SAMPLING, 1, 3))
        assert found.finish_reason == reason and (found.error is None) == (reason == "length")


def test_text_that_runs_past_a_tag_or_lacks_one_is_still_read_as_chunks():
    def odd(prompt: str, seed: int) -> str:
        return (
            "one</chunk>" if "one" not in prompt else "\n\n<chunk>two</chunk>" if "two" not in prompt else "3"
        )

    assert [one.text for one in solve(odd, None).tried] == ["one", "two"]


def test_many_at_once_in_any_order_find_the_same():
    def all_of(**options: Any) -> dict[tuple[int, int], tuple[str, tuple[Tried, ...]]]:
        policy = little.scripted_policy(**options)
        judge = judge_of(little.judge, **options)
        tasks = [
            Task(i, draw, f"{i}+2+3", tuple(policy.encode(f"<solve>{i}+2+3")))
            for i in range(5)
            for draw in range(4)
        ]
        found = list(ChunkReset().search(tasks, policy, judge, Drawing(SAMPLING, 1, 3)))
        assert len(found) == 20
        return {(one.task.problem_id, one.task.draw): (one.text, one.tried) for one in found}

    first = all_of()
    assert any(not one.kept for _, tried in first.values() for one in tried)
    assert first == all_of(order=newest_first, in_flight=3) == all_of(order=shuffled(1), in_flight=2)


# ---- the kind of run


def recipe(**fields: Any) -> SearchRecipe:
    choice = JudgeChoice(prompt="judge_nano", draws=Draws(max_tokens=100))
    given = {"dataset": little.DATASET, "n": 6, "draws": Draws(max_tokens=200), "judge": choice}
    return SearchRecipe(**(given | {"resamples": 200} | fields))


def rows_of(folder: Path, run_id: int) -> list[dict[str, Any]]:
    lines = (folder / "runs" / str(run_id) / "search.jsonl").read_text().splitlines()
    return sorted(map(json.loads, lines), key=lambda r: (r["search"], r["problem_id"], r["draw"]))


def test_a_judge_that_could_read_nothing_is_told_from_one_that_rejects_nothing(tmp_path: Path):
    store = little.open_little(tmp_path, problems=2)
    ctx = little.context(store, recipe(), tmp_path)
    found = search_with(ctx, little.scripted_policy(), judge_of(little.judge, context=8))
    assert found["chunk-reset"]["judge_tokens"] == 0
    assert found["chunk-reset"]["chunks_without_verdict"] == found["chunk-reset"]["chunks"] > 0
    assert "chunks_without_verdict" not in found["plain"]


def test_a_search_beats_plain_sampling_from_the_same_draws(tmp_path: Path):
    store = little.open_little(tmp_path, problems=8)
    ctx = little.context(store, recipe(), tmp_path)
    result = search_with(ctx, little.scripted_policy(), judge_of(little.judge))
    rows = rows_of(tmp_path, ctx.run_id)
    by_arm = {name: [r for r in rows if r["search"] == name] for name in ("plain", "chunk-reset")}
    assert [len(own) for own in by_arm.values()] == [48, 48] and result["done"] == 96
    for name, own in by_arm.items():
        right = [r["outcome"] == "correct" for r in own]
        assert result[name]["accuracy"] == sum(right) / 48
        assert result[name]["accepted_tokens"] == sum(r["accepted_tokens"] for r in own) / 48
    gain = result["gain"]
    assert gain["accuracy"] == pytest.approx(result["chunk-reset"]["accuracy"] - result["plain"]["accuracy"])
    assert gain["accuracy"] > 0.1 and gain["interval"][0] > 0
    assert result["plain"]["rejected_tokens"] == 0 < result["chunk-reset"]["rejected_tokens"]
    assert sum(n for n, _ in result["chunk-reset"]["by_problem"].values()) == 48
    for plain, searched in zip(by_arm["plain"], by_arm["chunk-reset"], strict=True):
        if searched["rejected_tokens"] == 0:
            assert plain["text"] == searched["text"]


def test_a_stopped_search_goes_on_to_the_same_solutions(tmp_path: Path):
    store = little.open_little(tmp_path, problems=4)
    whole = little.context(store, recipe(), tmp_path)
    search_with(whole, little.scripted_policy(in_flight=2), judge_of(little.judge))
    ctx = little.context(store, recipe(), tmp_path)
    policy = little.scripted_policy(in_flight=2)

    def stop_late(request: Any) -> None:
        if len(policy.served) >= 90:
            ctx.stop()

    policy._fail = stop_late
    partial = search_with(ctx, policy, judge_of(little.judge))
    assert 0 < partial["done"] < 48
    ctx._stop.clear()
    finished = search_with(ctx, little.scripted_policy(in_flight=2), judge_of(little.judge))
    assert finished["done"] == 48 and rows_of(tmp_path, ctx.run_id) == rows_of(tmp_path, whole.run_id)


def test_a_greedy_search_is_refused():
    with pytest.raises(RecipeError, match="word for word"):
        resolve(SearchRecipe, {"draws": {"temperature": 0}})


# ---- for real


@pytest.mark.vllm
def test_nano_searches_with_two_engines_in_one_process(tmp_path: Path):
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", migrate=True)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "judge").symlink_to(PACKAGED["nano"])
    asked = SearchRecipe(
        dataset="d",
        generate=Generate(count=4, seed=5),
        n=2,
        llm=LLMSpec(checkpoint="nano", max_num_seqs=32, kv_cache_gib=0.25),
        judge=JudgeChoice(
            llm=LLMSpec(checkpoint="judge", max_num_seqs=32, kv_cache_gib=0.25), prompt="judge_nano"
        ),
        resamples=100,
    )
    ctx = little.context(store, asked, tmp_path)
    result = run(ctx)
    assert result["chunk-reset"]["n"] == result["plain"]["n"] == 8
    assert result["chunk-reset"]["judge_tokens"] > 0
    rows = rows_of(tmp_path, ctx.run_id)
    assert all(row["outcome"] in ("correct", "wrong") for row in rows), rows
    same = [
        (plain["text"], searched["text"])
        for plain, searched in zip(rows[8:], rows[:8], strict=True)
        if not searched["rejected_tokens"]
    ]
    assert all(plain == searched for plain, searched in same)

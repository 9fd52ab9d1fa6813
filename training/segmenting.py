"""The segment kind of run: a teacher's tries at correct solutions, the first exact one kept, a set of form completion.

Tries go round by round through one door: only what is still without a segmentation is tried again. They are kept
beside the run in small batches, so a run that was stopped or killed goes on with the next try. What counts as exact:
``engine.segmentation``; fine-tuning on the set: the SFT trainer.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import TrainingError
from engine.judge import load_prompt, render
from engine.llm.base import LLM, Completion, Request
from engine.pipeline.flow import Batch, Pace, open_door
from engine.pipeline.kept import own_folder
from engine.rollouts import base_seed, prefix_key
from engine.segmentation import (
    Segmentation,
    blank_line_count,
    is_tagged,
    read_segmentation,
    segment_prompt,
)
from training.sets.choosing import split_by_problem
from training.sets.frozen import freeze, made_by

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.segment_recipe import SegmentRecipe

TRAJECTORIES_A_BATCH = 200
TRIES = "tries.jsonl"


@dataclass(frozen=True)
class Solution:
    """A stored correct solution without tags."""

    trajectory_id: int
    problem_id: int
    problem: str
    text: str


@dataclass(frozen=True)
class Try:
    """One answer of the teacher: ``text`` is the tagged solution, or None and why (a Reason, or "error")."""

    trajectory_id: int
    number: int
    tokens: int
    text: str | None = None
    rejected: str | None = None


@dataclass(frozen=True)
class Row:
    """One row of the set: the policy's prompt, and what it should write."""

    problem_id: int
    trajectory_id: int
    problem: str
    prompt: str
    completion: str


def run(ctx: RunContext[SegmentRecipe]) -> dict[str, Any]:
    """Segment until every solution is cut or out of tries, then freeze the set. Returns counts and rates.

    Raises TrainingError when there is nothing to segment, nothing was accepted, or the set's name is taken.
    """
    check_free(ctx)
    with open_door(ctx, ctx.recipe.llm) as llm:
        return segment_with(ctx, llm)


def check_free(ctx: RunContext[SegmentRecipe]) -> None:
    """Raises TrainingError, before anything is drawn, if another run's set has the name."""
    made_by(ctx.home, _name(ctx), ctx.store.run(ctx.run_id).uid)


def segment_with(ctx: RunContext[SegmentRecipe], llm: LLM) -> dict[str, Any]:
    """``run`` through a door that is open already."""
    uid = ctx.store.run(ctx.run_id).uid
    solutions, left_out = chosen_solutions(ctx)
    teacher = segment_prompt(ctx.recipe.prompt)
    policy = load_prompt(ctx.recipe.policy_prompt, needs=("problem",))
    ctx.facts({teacher.name: teacher.hash, policy.name: policy.hash})
    tries = Tries(own_folder(ctx) / TRIES)
    _draw_tries(ctx, llm, solutions, tries)
    result = summary(solutions, tries)
    if ctx.stopping:
        return result
    rows = [
        Row(
            s.problem_id,
            s.trajectory_id,
            s.problem,
            render(policy, problem=s.problem),
            tries.kept[s.trajectory_id],
        )
        for s in solutions
        if s.trajectory_id in tries.kept
    ]
    if not rows:
        raise TrainingError(
            f"the teacher {llm.info.name!r} cut none of {len(solutions)} solutions without changing them "
            f"({_words(tries.rejected)}); try another teacher or prompt, a lower draws.temperature, "
            "or a higher draws.max_tokens where answers were truncated"
        )
    counts = {"solutions": len(solutions), "segmented": len(rows), "tries": tries.count}
    counts |= {f"rejected_{reason.replace(' ', '_')}": n for reason, n in sorted(tries.rejected.items())}
    _freeze(ctx, uid, rows, counts | left_out, result)
    return result | {"set": _name(ctx)}


def chosen_solutions(ctx: RunContext[SegmentRecipe]) -> tuple[list[Solution], dict[str, int]]:
    """The selection's correct untagged solutions, the same text once a problem, and what was left out by reason.

    Raises TrainingError if none is left.
    """
    recipe, left_out = ctx.recipe, Counter[str]()
    found: list[Solution] = []
    texts: defaultdict[int, set[str]] = defaultdict(set)
    pages = ctx.store.iterate_trajectories(**recipe.select.model_dump(), batch=TRAJECTORIES_A_BATCH)
    for trajectory in (t for page in pages for t in page):
        own = texts[trajectory.problem_id]
        if trajectory.outcome != "correct":
            left_out["not_correct"] += 1
        elif is_tagged(trajectory.text):
            left_out["tagged_already"] += 1
        elif trajectory.text in own:
            left_out["same_text"] += 1
        elif recipe.solutions_per_problem is not None and len(own) >= recipe.solutions_per_problem:
            left_out["more_than_asked_for"] += 1
        else:
            own.add(trajectory.text)
            found.append(Solution(trajectory.id, trajectory.problem_id, trajectory.problem, trajectory.text))
    if not found:
        raise TrainingError(
            f"there is nothing to segment in {recipe.select.model_dump(exclude_defaults=True) or 'the store'}: "
            f"{_words(left_out) or 'no trajectories'}; sample solutions of a policy that writes no tags first"
        )
    return found, dict(left_out)


class Tries:
    """The tries kept in one file, one a line; a last line that a kill cut off is dropped."""

    def __init__(self, path: Path):
        self.path = path
        self.count = 0
        self.made: Counter[int] = Counter()
        self.rejected: Counter[str] = Counter()
        self.kept: dict[int, str] = {}
        self.first: Counter[bool] = Counter()
        for row in self._read():
            self._note(row)

    def _read(self) -> list[Try]:
        if not self.path.is_file():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self.path.write_bytes(whole)
        return [Try(**json.loads(line)) for line in whole.splitlines()]

    def write(self, rows: Sequence[Try]) -> None:
        """Append a batch."""
        lines = "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
        with self.path.open("ab") as out:
            out.write(lines.encode())
        for row in rows:
            self._note(row)

    def _note(self, row: Try) -> None:
        self.count += 1
        self.made[row.trajectory_id] += 1
        if row.number == 0:
            self.first[row.text is not None] += 1
        if row.text is not None:
            self.kept.setdefault(row.trajectory_id, row.text)
        else:
            self.rejected[row.rejected or "error"] += 1


def _draw_tries(
    ctx: RunContext[SegmentRecipe], llm: LLM, solutions: Sequence[Solution], tries: Tries
) -> None:
    """Round after round, one try a round for every solution that still has no segmentation."""
    requests = _Requests(ctx, llm)
    decided = [
        s
        for s in solutions
        if s.trajectory_id in tries.kept or tries.made[s.trajectory_id] >= ctx.recipe.tries
    ]
    pace = Pace(ctx, "solutions", len(decided), len(solutions))
    for number in range(ctx.recipe.tries):
        waiting = {
            s.trajectory_id: s
            for s in solutions
            if s.trajectory_id not in tries.kept and tries.made[s.trajectory_id] == number
        }
        batch = Batch(tries.write)
        stream = llm.stream(requests.of(waiting.values(), number))
        for completions in stream:
            answer = completions[0]
            row = read_try(waiting[int(answer.request_id)], number, answer)
            batch.add([row])
            pace.add(int(row.text is not None or number + 1 == ctx.recipe.tries), row.tokens)
            if ctx.stopping:
                break
        batch.flush()
        stream.close()  # type: ignore[attr-defined]
        if ctx.stopping:
            return


class _Requests:
    """Requests of one run: draw j of a solution has the seed base + j, whatever was tried before in which process."""

    def __init__(self, ctx: RunContext[SegmentRecipe], llm: LLM):
        self.llm, self.seed = llm, ctx.seed
        self.prompt = segment_prompt(ctx.recipe.prompt)
        self.sampling = ctx.recipe.draws.sampling()

    def of(self, solutions: Iterable[Solution], number: int) -> Iterator[Request]:
        for solution in solutions:
            ids = tuple(self.llm.encode(render(self.prompt, solution=solution.text)))
            seed = base_seed(self.seed, prefix_key(ids, self.llm.info.content_hash, self.sampling))
            yield Request(str(solution.trajectory_id), ids, 1, seed + number, self.sampling)


def read_try(solution: Solution, number: int, answer: Completion) -> Try:
    """What one completion came to; one that the door could not serve counts as ``error``."""
    tokens = len(answer.token_ids)
    if answer.finish_reason == "error":
        return Try(solution.trajectory_id, number, tokens, rejected="error")
    found = read_segmentation(solution.text, answer.text, truncated=answer.finish_reason == "length")
    if isinstance(found, Segmentation):
        return Try(solution.trajectory_id, number, tokens, text=found.text)
    return Try(solution.trajectory_id, number, tokens, rejected=found)


def summary(solutions: Sequence[Solution], tries: Tries) -> dict[str, Any]:
    """Acceptance a solution and a try, reasons, and chunks a solution against cutting the same ones on blank lines.

    ``first_try`` is the unbiased rate of a try: later ones meet only what failed before.
    """
    kept = [text for s in solutions if (text := tries.kept.get(s.trajectory_id)) is not None]
    tried = tries.first.total()
    result: dict[str, Any] = {
        "solutions": len(solutions),
        "segmented": len(kept),
        "tries": tries.count,
        "acceptance": round(len(kept) / len(solutions), 4),
        "acceptance_a_try": round(len(kept) / max(1, tries.count), 4),
        "first_try": round(tries.first[True] / max(1, tried), 4),
        "rejected": dict(sorted(tries.rejected.items())),
    }
    if kept:
        result["chunks"] = round(sum(len(Segmentation(text).cut.chunks) for text in kept) / len(kept), 3)
        result["blank_line_chunks"] = round(sum(map(blank_line_count, kept)) / len(kept), 3)
    return result


def _freeze(
    ctx: RunContext[SegmentRecipe],
    uid: str,
    rows: Sequence[Row],
    counts: dict[str, int],
    result: dict[str, Any],
) -> None:
    train, held_out = split_by_problem(rows, ctx.recipe.held_out, ctx.seed)
    parts = {"train": train, "held_out": held_out}
    freeze(
        ctx.home,
        _name(ctx),
        "completion",
        {part: map(asdict, part_rows) for part, part_rows in parts.items()},
        run=uid,
        run_id=ctx.run_id,
        recipe=ctx.recipe.model_dump(mode="json"),
        counts=counts,
        problems={part: len({row.problem_id for row in part_rows}) for part, part_rows in parts.items()},
        measures={name: value for name, value in result.items() if isinstance(value, float)},
    )
    ctx.log(f"froze set {_name(ctx)}: {len(train)} solutions to train on, {len(held_out)} held out")


def _name(ctx: RunContext[SegmentRecipe]) -> str:
    return ctx.recipe.name or f"set-{ctx.run_id}"


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts.most_common())

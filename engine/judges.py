"""Judges behind a door, read through one pair of functions: what to ask of a chunk, and what the answer says.

A generative judge writes reasons and a boxed verdict, k times; a discriminative one gives the probability of ``+``
once, with its own earlier verdicts in its history. Whoever needs a judge (evaluation, search, rewards) takes a
``Judge`` and does not ask which it is. Not: what a verdict is (``engine.judge``), or where readings are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

from pydantic import Field

from engine.checkpoints import PACKAGED, read_card, resolve_checkpoint
from engine.errors import RecipeError
from engine.judge import JudgePrompt, Verdict, fill, load_prompt, parse_verdict, vote
from engine.llm import LLMSpec
from engine.llm.base import LLM, Completion, Request
from engine.policy_prompt import JUDGE_CHAT, asked, check_chat, turn_sampling
from engine.recipes import Draws, Part
from engine.rollouts import base_seed, prefix_key

DISCRIMINATIVE = "discriminative-judge"
"""The role, in a checkpoint's card, of a judge that answers with one token."""


class JudgeChoice(Part):
    """Which judge reads, and how often."""

    llm: LLMSpec = Field(default_factory=lambda: LLMSpec(checkpoint="nano"))
    prompt: str | None = Field(
        None,
        description="Prompt of the judge, by name; empty: the one its checkpoint was trained with. A discriminative "
        "judge has none",
    )
    chat: bool = Field(False, description=JUDGE_CHAT)
    k: int = Field(
        1, ge=1, le=256, description="Judgments a chunk; a discriminative judge always gives the same one"
    )
    draws: Draws = Field(default_factory=lambda: Draws(max_tokens=128))

    def check(self, home: Path) -> None:
        """Refuse a checkpoint or prompt that is not there. Raises StepWiserError."""
        path = resolve_checkpoint(self.llm.checkpoint, home)
        if read_card(path).get("role") != DISCRIMINATIVE:
            self.judge_prompt(path)
            check_chat(self.chat, path)

    def judge_prompt(self, path: Path) -> JudgePrompt:
        """The prompt of a generative judge in ``path``. Raises RecipeError where nothing says which it is."""
        name = self.prompt or read_card(path).get("prompt")
        if name is None and self.llm.checkpoint in PACKAGED:
            name = "judge_nano"
        if not isinstance(name, str):
            raise RecipeError(
                f"checkpoint {self.llm.checkpoint!r} does not say which prompt it was trained with; name one in prompt"
            )
        return load_prompt(name)


@dataclass(frozen=True)
class Step:
    """One chunk to read. ``mark`` tells apart two readings that should be drawn independently though problem, history
    and chunk are the same (siblings of one problem)."""

    mark: str
    problem: str
    history: tuple[str, ...]
    chunk: str
    earlier: tuple[Verdict | None, ...] = ()


@dataclass(frozen=True)
class Reading:
    """What a judge said of a chunk: k verdicts, and a ``score`` of 0..1 (share of positive ones, or p(+)).

    ``score`` is None and ``error`` says why where the judge could not read the chunk (prompt too long).
    """

    verdicts: tuple[Verdict | None, ...]
    score: float | None
    tokens: int
    error: str | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The vote of the k; None on a tie and where none gave one."""
        return vote(self.verdicts)


class Judge(Protocol):
    """A judge behind its door."""

    @property
    def llm(self) -> LLM: ...

    @property
    def sequential(self) -> bool:
        """Whether a chunk can be read only after the chunks before it (their verdicts are part of what it reads)."""
        ...

    def ask(self, request_id: str, step: Step, k: int, seed: int) -> Request:
        """The request for k readings of one chunk; ``seed`` is the run's."""
        ...

    def read(self, completions: Sequence[Completion]) -> Reading:
        """What the answers to one request say."""
        ...

    def facts(self) -> dict[str, str]:
        """Names and hashes of the prompts used."""
        ...


@dataclass(frozen=True)
class GenerativeJudge:
    """Reasons first, then a boxed verdict; draws are independent."""

    llm: LLM
    prompt: JudgePrompt
    draws: Draws
    sequential: bool = False
    chat: bool = False

    def ask(self, request_id: str, step: Step, k: int, seed: int) -> Request:
        ids = asked(self.llm, fill(self.prompt, step.problem, step.history, step.chunk), self.chat)
        sampling = turn_sampling(self.draws.sampling(), self.chat)
        key = f"{prefix_key(ids, self.llm.info.content_hash, sampling)}:{step.mark}"
        return Request(request_id, ids, k, base_seed(seed, key), sampling)

    def read(self, completions: Sequence[Completion]) -> Reading:
        tokens = sum(len(c.token_ids) for c in completions)
        if completions[0].finish_reason == "error":
            return Reading((None,) * len(completions), None, tokens, completions[0].error)
        verdicts = tuple(parse_verdict(c.text) for c in completions)
        return Reading(verdicts, verdicts.count("positive") / len(verdicts), tokens)

    def facts(self) -> dict[str, str]:
        return {self.prompt.name: self.prompt.hash}


def open_judge(llm: LLM, path: Path, choice: JudgeChoice) -> Judge:
    """The judge in the checkpoint folder ``path``, behind the door ``llm``; its card says of which sort it is.

    Raises RecipeError where no prompt is known, CheckpointError for a card that lacks what is needed.
    """
    if read_card(path).get("role") == DISCRIMINATIVE:
        from engine.discriminative import DiscriminativeJudge

        return cast(Judge, DiscriminativeJudge.load(llm, path))
    return GenerativeJudge(llm, choice.judge_prompt(path), choice.draws, chat=choice.chat)


@dataclass(frozen=True)
class ToRead:
    """A solution whose chunks are read; ``wanted``: only these chunks (indices), None: all of them."""

    mark: str
    problem: str
    chunks: tuple[str, ...]
    wanted: frozenset[int] | None = None

    def step(self, index: int, earlier: Sequence[Verdict | None] = ()) -> Step:
        return Step(
            f"{self.mark}:{index}", self.problem, self.chunks[:index], self.chunks[index], tuple(earlier)
        )

    def indices(self) -> list[int]:
        return [i for i in range(len(self.chunks)) if self.wanted is None or i in self.wanted]


def never() -> bool:
    """For ``stopping`` where nobody can ask for a stop."""
    return False


def read_solutions(
    judge: Judge,
    solutions: Iterable[ToRead],
    *,
    k: int,
    seed: int,
    stopping: Callable[[], bool] = never,
) -> Iterator[tuple[ToRead, int, Reading]]:
    """Readings of the wanted chunks of many solutions, as they finish: (solution, chunk index, reading).

    A sequential judge reads the chunks before a wanted one as well, a chunk of every solution at a time. When
    ``stopping`` turns true, what is in flight is dropped.
    """
    solutions = iter(solutions)
    if not judge.sequential:
        yield from _read(judge, ((s, i, ()) for s in solutions for i in s.indices()), k, seed, stopping)
        return
    while batch := list(islice(solutions, judge.llm.in_flight)):
        yield from _read_in_turn(judge, batch, k, seed, stopping)
        if stopping():
            return


@dataclass
class _Turns:
    """A solution on its way through a sequential judge."""

    solution: ToRead
    earlier: list[Verdict | None] = field(default_factory=list)


def _read_in_turn(
    judge: Judge, batch: Sequence[ToRead], k: int, seed: int, stopping: Callable[[], bool]
) -> Iterator[tuple[ToRead, int, Reading]]:
    turns = {id(solution): _Turns(solution) for solution in batch}
    last = {key: max(turn.solution.indices(), default=-1) for key, turn in turns.items()}
    for index in range(max(last.values(), default=-1) + 1):
        going = [turn for key, turn in turns.items() if index <= last[key]]
        asked = [(turn.solution, index, tuple(turn.earlier)) for turn in going]
        for solution, _, reading in _read(judge, asked, k, seed, stopping):
            turns[id(solution)].earlier.append(reading.verdict)
            if solution.wanted is None or index in solution.wanted:
                yield solution, index, reading
        if stopping():
            return


def _read(
    judge: Judge,
    asked: Iterable[tuple[ToRead, int, tuple[Verdict | None, ...]]],
    k: int,
    seed: int,
    stopping: Callable[[], bool],
) -> Iterator[tuple[ToRead, int, Reading]]:
    on_their_way: dict[str, tuple[ToRead, int]] = {}

    def requests() -> Iterator[Request]:
        for number, (solution, index, earlier) in enumerate(asked):
            on_their_way[str(number)] = (solution, index)
            yield judge.ask(str(number), solution.step(index, earlier), k, seed)

    with closing(cast(Any, judge.llm.stream(requests()))) as stream:
        for completions in stream:
            solution, index = on_their_way.pop(completions[0].request_id)
            yield solution, index, judge.read(completions)
            if stopping():
                return


def scores_of(
    judge: Judge, solutions: Sequence[ToRead], *, k: int, seed: int
) -> list[tuple[float | None, ...]]:
    """The score of every chunk of every solution, in their order; None where the judge could not read one."""
    found: dict[int, dict[int, float | None]] = defaultdict(dict)
    for solution, index, reading in read_solutions(judge, solutions, k=k, seed=seed):
        found[id(solution)][index] = reading.score
    return [tuple(found[id(s)][i] for i in range(len(s.chunks))) for s in solutions]

"""Chunk-reset search (StepWiser, 2508.19229, §4.2): the judge reads each chunk as soon as it is written; a rejected one
is dropped and written again from the same place, a few times at most, and the last one stands.

A chunk is rejected by a negative verdict (of the majority, for k > 1); no verdict rejects nothing. Attempt a of a
place has the seed base + a, the base a hash of the tokens before it, the draw and the run's seed: first attempts are
those of plain sampling, and two searches differ only from the first rejection on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

from engine.chunks import CLOSE, OPEN
from engine.judge import Verdict
from engine.judges import Judge, Step
from engine.llm.base import LLM, Completion, FinishReason, Request
from engine.rollouts import base_seed, prefix_key
from engine.search import Drawing, Found, Task, Tried

DOORFULS = 2
"""Solutions grown at once, in doorfuls: the door stays busy while a round's last chunks are written."""


@dataclass
class _Growing:
    """A solution on its way: what is kept of it, the chunk in hand, and what was tried."""

    task: Task
    token_ids: tuple[int, ...] = ()
    chunks: list[str] = field(default_factory=list)
    verdicts: list[Verdict | None] = field(default_factory=list)
    attempt: int = 0
    tried: list[Tried] = field(default_factory=list)
    rejected_tokens: int = 0
    judge_tokens: int = 0
    piece: Completion | None = None
    ended: FinishReason | None = None
    error: str | None = None

    @property
    def chunk(self) -> str:
        """Text of the chunk in hand."""
        assert self.piece is not None
        return self.piece.text[: self.piece.text.index(CLOSE)].rpartition(OPEN)[2]

    def step(self) -> Step:
        """What the judge reads of it."""
        mark = f"{self.task.draw}:{len(self.chunks)}:{self.attempt}"
        return Step(mark, self.task.problem, tuple(self.chunks), self.chunk, tuple(self.verdicts))


@dataclass(frozen=True)
class ChunkReset:
    """``engine.search.Search``; ``attempts``: how often a chunk is written at most (paper: 5)."""

    attempts: int = 5

    def search(
        self, tasks: Iterable[Task], policy: LLM, judge: Judge | None, drawing: Drawing
    ) -> Iterator[Found]:
        """Solve the tasks in rounds: each round every solution in hand gets a chunk, and the judge reads them all."""
        waiting = iter(tasks)
        growing: list[_Growing] = []
        while True:
            growing += map(_Growing, islice(waiting, max(0, DOORFULS * policy.in_flight - len(growing))))
            if not growing:
                return
            _write(growing, policy, drawing)
            if drawing.stopping():
                return
            written = [one for one in growing if one.ended is None]
            if judge is None:
                for one in written:
                    self._settle(one, None, None)
            else:
                self._read(written, judge, drawing)
                if drawing.stopping():
                    return
            yield from (_found(one, policy) for one in growing if one.ended is not None)
            growing = [one for one in growing if one.ended is None]

    def _read(self, written: Sequence[_Growing], judge: Judge, drawing: Drawing) -> None:
        requests = (
            judge.ask(str(place), one.step(), drawing.k, drawing.seed) for place, one in enumerate(written)
        )
        for completions in _stream(judge.llm, requests, drawing):
            one, reading = written[int(completions[0].request_id)], judge.read(completions)
            one.judge_tokens += reading.tokens
            self._settle(one, reading.verdict, reading.score)

    def _settle(self, one: _Growing, verdict: Verdict | None, score: float | None) -> None:
        """Keep the chunk in hand, or drop it and count the attempt."""
        assert one.piece is not None
        kept = verdict != "negative" or one.attempt + 1 >= self.attempts
        tokens = len(one.piece.token_ids)
        one.tried.append(Tried(len(one.chunks), one.attempt, one.chunk, tokens, kept, verdict, score))
        if kept:
            one.chunks.append(one.chunk)
            one.verdicts.append(verdict)
            one.token_ids += one.piece.token_ids
            one.attempt = 0
        else:
            one.attempt += 1
            one.rejected_tokens += tokens


def _write(growing: Sequence[_Growing], policy: LLM, drawing: Drawing) -> None:
    """One chunk, or the end, for each solution; those that ended say how."""

    def requests() -> Iterator[Request]:
        for place, one in enumerate(growing):
            room = drawing.sampling.max_tokens - len(one.token_ids)
            if room < 1:
                one.ended = "length"
                continue
            ids = one.task.prompt_token_ids + one.token_ids
            key = f"{prefix_key(ids, policy.info.content_hash, drawing.sampling)}:{one.task.draw}"
            sampling = replace(drawing.sampling, max_tokens=room, stop=(CLOSE,))
            yield Request(str(place), ids, 1, base_seed(drawing.seed, key) + one.attempt, sampling)

    for (piece,) in _stream(policy, requests(), drawing):
        one = growing[int(piece.request_id)]
        one.piece = piece
        if CLOSE in piece.text:
            continue
        one.token_ids += piece.token_ids
        one.ended, one.error = piece.finish_reason, piece.error
        if piece.too_long and one.token_ids:  # the context is full
            one.ended, one.error = "length", None


def _stream(llm: LLM, requests: Iterator[Request], drawing: Drawing) -> Iterator[list[Completion]]:
    """Answers until they are all there or a stop is asked for."""
    with closing(cast(Any, llm.stream(requests))) as stream:
        for completions in stream:
            yield completions
            if drawing.stopping():
                return


def _found(one: _Growing, policy: LLM) -> Found:
    assert one.ended is not None
    return Found(
        task=one.task,
        text=policy.decode(one.token_ids),
        token_ids=one.token_ids,
        finish_reason=one.ended,
        tried=tuple(one.tried),
        rejected_tokens=one.rejected_tokens,
        judge_tokens=one.judge_tokens,
        error=one.error,
    )

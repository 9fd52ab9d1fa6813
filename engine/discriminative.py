"""A discriminative judge: a conversation in which each user turn is a chunk and each assistant turn ``+`` or ``-``.

The score of a chunk is p(+): the probability of ``+`` as the next token, renormalised over ``+`` and ``-``; the
verdict is positive where it reaches the threshold in the checkpoint's card. The judge's own earlier verdicts stand in
its history (StepWiser, discriminative baseline). Reading many solutions is ``engine.judges``; training is not here.

Two renderings. ``chat``: through the tokenizer's chat template; the first user turn is the prompt and the first chunk.
``plain``, for tokenizers without a template (nano's): the prompt, then ``<new>chunk</new>``, a line break, the verdict
and a line break for each chunk; the pieces are tokenized one by one, so that a verdict never merges with its
neighbours. Where a chunk has no verdict (unlabelled in training, none given in judging) a ``?`` stands instead.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from engine.checkpoints import read_card
from engine.errors import CheckpointError
from engine.judge import JudgePrompt, Verdict, load_prompt, render
from engine.judges import DISCRIMINATIVE, Reading, Step
from engine.llm.base import LLM, Completion, Request, Sampling
from engine.llm.tokens import Encoder

Rendering = Literal["chat", "plain"]

MARK_OF: dict[Verdict | None, str] = {"positive": "+", "negative": "-", None: "?"}
ONE_TOKEN = Sampling(temperature=0.0, max_tokens=1)


@dataclass(frozen=True)
class Marked:
    """A solution as token ids. ``places``: where the mark of each chunk stands; its token is predicted from the one
    before."""

    ids: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Turns:
    """Solutions as conversations for one tokenizer. Make it with ``Turns.of``, which checks that tokenizer."""

    encoder: Encoder
    prompt: JudgePrompt
    rendering: Rendering
    plus: int
    minus: int
    begin: tuple[int, ...]

    @classmethod
    def of(cls, encoder: Encoder, prompt: JudgePrompt, rendering: Rendering, name: str) -> Turns:
        """Find the ids of ``+`` and ``-`` in an assistant turn. ``name`` is the checkpoint's, for the message.

        Raises CheckpointError where one of them is not one token there, or where a turn changes what stands before it;
        LLMError for ``chat`` without a template.
        """
        begin = tuple(encoder.encode(""))
        if rendering == "plain":
            marks = [encoder.encode(mark)[len(begin) :] for mark in "+-"]
            if any(len(mark) != 1 for mark in marks) or marks[0] == marks[1]:
                raise CheckpointError(
                    f"checkpoint {name!r}: its tokenizer has no single tokens for '+' and '-' (it gives {marks}); "
                    "take a base whose vocabulary has them"
                )
            return cls(encoder, prompt, rendering, marks[0][0], marks[1][0], begin)
        marks = []
        for mark in "+-":
            asked = encoder.encode_chat(_messages("p", ["a"], ""))
            whole = encoder.encode_chat(_messages("p", ["a", "b"], mark))
            if whole[: len(asked)] != asked:
                raise CheckpointError(
                    f"checkpoint {name!r}: its chat template changes earlier turns when a turn is added, so a verdict "
                    "in the history is not where it was given; set rendering to plain"
                )
            marks.append(whole[len(asked) :])
        (plus, *after_plus), (minus, *after_minus) = marks
        if plus == minus or after_plus != after_minus:
            raise CheckpointError(
                f"checkpoint {name!r}: in its chat template '+' and '-' are not one token each after the assistant's "
                f"opening (token ids {marks[0][:4]} and {marks[1][:4]}); set rendering to plain"
            )
        return cls(encoder, prompt, rendering, plus, minus, begin)

    def ask(self, problem: str, chunks: Sequence[str], marks: Sequence[str]) -> tuple[int, ...]:
        """Token ids up to the mark of the last chunk, which is asked for; ``marks`` are those of the chunks before."""
        if self.rendering == "chat":
            return tuple(self.encoder.encode_chat(_messages(self._opening(problem), chunks, marks)))
        return self._plain(problem, chunks, marks).ids

    def marked(self, problem: str, chunks: Sequence[str], marks: Sequence[str]) -> Marked:
        """The whole solution, a mark behind every chunk and nothing behind the last mark."""
        if self.rendering == "plain":
            ids = [*self._plain(problem, chunks, marks[:-1]).ids, self._mark(marks[-1])]
            return Marked(tuple(ids), (*self._plain(problem, chunks, marks[:-1]).places, len(ids) - 1))
        places = [len(self.ask(problem, chunks[: i + 1], marks[:i])) for i in range(len(chunks))]
        ids = [*self.ask(problem, chunks, marks[:-1]), self._mark(marks[-1])]
        for place, mark in zip(places, marks, strict=True):
            if mark in "+-" and ids[place] != self._mark(mark):
                raise CheckpointError(
                    f"the chat template moves the verdict of a chunk (token {place} is {ids[place]}, not {mark!r}), "
                    f"in the problem that begins {problem[:60]!r}; set rendering to plain"
                )
        return Marked(tuple(ids), tuple(places))

    def _plain(self, problem: str, chunks: Sequence[str], marks: Sequence[str]) -> Marked:
        ids = [*self.begin, *self._piece(self._opening(problem))]
        places = []
        for index, chunk in enumerate(chunks):
            ids += self._piece(f"<new>{chunk}</new>\n")
            if index < len(marks):
                places.append(len(ids))
                ids += [self._mark(marks[index]), *self._piece("\n")]
        return Marked(tuple(ids), tuple(places))

    def _opening(self, problem: str) -> str:
        return render(self.prompt, problem=problem)

    def _piece(self, text: str) -> list[int]:
        return self.encoder.encode(text)[len(self.begin) :]

    def _mark(self, mark: str) -> int:
        return self.plus if mark == "+" else self.minus if mark == "-" else self._piece(mark)[0]


def _messages(opening: str, chunks: Sequence[str], marks: Sequence[str]) -> list[dict[str, str]]:
    messages = []
    for index, chunk in enumerate(chunks):
        said = f"{opening.rstrip()}\n\n{chunk}" if index == 0 else chunk
        messages.append({"role": "user", "content": said})
        if index < len(chunks) - 1:
            messages.append({"role": "assistant", "content": marks[index]})
    return messages


def probability(scores: Sequence[float]) -> float:
    """p(+) from the log-probabilities of ``+`` and ``-``, renormalised over the two (vLLM's are raw and unmasked)."""
    plus, minus = scores
    return 1 / (1 + math.exp(min(700.0, minus - plus)))


@dataclass(frozen=True)
class DiscriminativeJudge:
    """``engine.judges.Judge`` over a checkpoint whose card has the role ``discriminative-judge``.

    One judgment a chunk, however many are asked for: nothing is drawn. Its chunks are read in order.
    """

    llm: LLM
    turns: Turns
    threshold: float
    sequential: bool = True

    @classmethod
    def load(cls, llm: LLM, path: Path) -> DiscriminativeJudge:
        """The judge in folder ``path`` behind the door ``llm``. Raises CheckpointError for a card that does not fit."""
        card = read_card(path)
        threshold, rendering = card.get("threshold"), card.get("rendering")
        if card.get("role") != DISCRIMINATIVE or not isinstance(threshold, int | float):
            raise CheckpointError(
                f"checkpoint {path.name!r}: its card is no discriminative judge's (role {card.get('role')!r}, threshold "
                f"{threshold!r}); train one with `stepwiser run train-judge-sft`"
            )
        prompt = load_prompt(str(card.get("prompt")), needs=("problem",))
        if prompt.hash != card.get("prompt_hash") or rendering not in ("chat", "plain"):
            raise CheckpointError(
                f"checkpoint {path.name!r} was trained with another text of the prompt {prompt.name!r} (or another "
                f"rendering, {rendering!r}) than there is now: its scores would mean nothing; train it again"
            )
        return cls(llm, Turns.of(llm, prompt, rendering, path.name), float(threshold))

    def ask(self, request_id: str, step: Step, k: int, seed: int) -> Request:
        """One token is wanted, greedily, and the scores of ``+`` and ``-``; ``k`` and ``seed`` change nothing."""
        ids = self.turns.ask(
            step.problem, [*step.history, step.chunk], [MARK_OF[verdict] for verdict in step.earlier]
        )
        return Request(request_id, ids, 1, 0, ONE_TOKEN, scored=(self.turns.plus, self.turns.minus))

    def read(self, completions: Sequence[Completion]) -> Reading:
        completion = completions[0]
        if completion.finish_reason == "error":
            return Reading((None,), None, 0, completion.error)
        score = probability(completion.scores)
        return Reading((self.verdict(score),), score, 1)

    def verdict(self, score: float) -> Verdict:
        return "positive" if score >= self.threshold else "negative"

    def facts(self) -> dict[str, str]:
        return {self.turns.prompt.name: self.turns.prompt.hash}


def balanced_accuracy(plus: Sequence[float], minus: Sequence[float], threshold: float) -> float:
    """Mean of the share of ``plus`` (ascending scores of chunks labelled ``+``) at or above ``threshold`` and the share
    of ``minus`` below it. Neither may be empty."""
    found = len(plus) - bisect_left(plus, threshold)
    return (found / len(plus) + bisect_left(minus, threshold) / len(minus)) / 2


def choose_threshold(scores: Sequence[float], labels: Sequence[str]) -> float:
    """The threshold of the highest balanced accuracy on these chunks: midway between two scores.

    Of equally good ones the nearest to 0.5; 0.5 itself where a label does not occur.
    """
    plus = sorted(score for score, label in zip(scores, labels, strict=True) if label == "+")
    minus = sorted(score for score, label in zip(scores, labels, strict=True) if label == "-")
    if not plus or not minus:
        return 0.5
    middles = [(low + high) / 2 for low, high in pairwise(sorted({0.0, *scores, 1.0}))]
    return max((0.5, *middles), key=lambda t: (balanced_accuracy(plus, minus, t), -abs(t - 0.5)))


def describe(judge: DiscriminativeJudge) -> dict[str, Any]:
    """What a judge's row in the store keeps in place of sampling settings."""
    return {"threshold": judge.threshold, "rendering": judge.turns.rendering}

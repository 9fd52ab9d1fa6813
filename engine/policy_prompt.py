"""How an LLM is asked, in plain text or through its checkpoint's chat template, and how a begun solution goes on.

One way for policies and prompted judges, and for sampling, rollouts, evaluation and search, so that a prefix is what a
solution of the same prompt begins with. Plain: the prompt is the text that the LLM goes on from. Chat: the prompt is the user's turn and the solution the
assistant's; a prefix ends inside that turn, and the token that closes a turn ends a completion. Not covered: what a
prompt says (engine.judge fills it in) and how text becomes tokens (engine.llm.tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self
from unicodedata import normalize

from pydantic import BaseModel

from engine.errors import RecipeError
from engine.judge import JudgePrompt, load_prompt, render
from engine.llm.base import Sampling
from engine.llm.checkpoint import has_chat_template
from engine.llm.tokens import Encoder

CHAT = (
    "Ask through the checkpoint's chat template: the prompt is the user's turn, the solution the assistant's, and the "
    "token that closes a turn ends it. Off: the prompt is plain text that the LLM goes on from. Take what the policy "
    "was trained with, and the same for sampling and for rollouts"
)
"""The description of the field ``chat`` in every recipe that asks a policy."""
JUDGE_CHAT = (
    "Ask through the checkpoint's chat template, as an LLM off the shelf expects: the prompt is the user's turn. Off: "
    "plain text, as judges are trained here. A discriminative judge's own card decides for it"
)
"""The same for a judge."""
SHOWN = 20


def asked(encoder: Encoder, text: str, chat: bool) -> tuple[int, ...]:
    """Token ids of a prompt. Raises LLMError for a chat without a template."""
    return tuple(encoder.encode_chat(_turn(text)) if chat else encoder.encode(text))


def turn_sampling(drawn: Sampling, chat: bool) -> Sampling:
    """``drawn``, in a chat with the end of the turn as an end."""
    return replace(drawn, ends_turn=True) if chat else drawn


def check_chat(chat: bool, checkpoint: Path) -> None:
    """Raises RecipeError where a chat is asked for and the checkpoint's folder has no template."""
    if chat and not has_chat_template(checkpoint):
        raise RecipeError(
            f"chat: the checkpoint {checkpoint.name!r} has no chat template (chat_template.jinja, or the field "
            "chat_template of tokenizer_config.json); set chat to false, or use a checkpoint that was made for chat"
        )


class Reader(Encoder, Protocol):
    """An encoder that reads token ids as well: every door is one."""

    def decode(self, token_ids: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class Begun:
    """A prompt and the beginning of its solution as token ids.

    ``fault`` says why these tokens are not the solution's text (a character that the tokenizer lacks): such a prefix
    is marked and not drawn from.
    """

    token_ids: tuple[int, ...]
    fault: str | None = None


@dataclass(frozen=True)
class PolicyPrompt:
    """A policy's prompt with the way it is asked. ``text`` has the placeholder ``{{problem}}``."""

    text: JudgePrompt
    chat: bool = False

    @classmethod
    def load(cls, name: str, chat: bool = False) -> Self:
        """The prompt of that name. Raises InputError (see ``engine.judge.load_prompt``)."""
        return cls(load_prompt(name, needs=("problem",)), chat)

    @classmethod
    def check(cls, name: str, chat: bool, checkpoint: Path) -> None:
        """Refuse, before anything is queued, a prompt that cannot be read and a chat without a template.

        Raises InputError and RecipeError.
        """
        cls.load(name)
        check_chat(chat, checkpoint)

    def facts(self) -> dict[str, str]:
        """The prompt's name and hash, as a run keeps them; the template is part of the checkpoint's content hash."""
        return {self.text.name: self.text.hash}

    def sampling(self, drawn: Sampling) -> Sampling:
        """``drawn`` with the end of the turn as an end, in a chat."""
        return turn_sampling(drawn, self.chat)

    def settings(self, draws: BaseModel) -> dict[str, Any]:
        """What a stored prefix says of its sampling settings."""
        return draws.model_dump(mode="json") | ({"ends_turn": True} if self.chat else {})

    def start(self, encoder: Encoder, problem: str) -> tuple[int, ...]:
        """Token ids up to where a solution begins."""
        return asked(encoder, render(self.text, problem=problem), self.chat)

    def begun(self, reader: Reader, problem: str, solution: str) -> Begun:
        """``start`` and the beginning of a solution of which only the text is known.

        A solution that this checkpoint drew goes on from its own tokens instead: ``start`` and those. Plain: prompt
        and solution are encoded as one text, of which a tokenizer may change the white space and nothing else. Chat:
        see ``engine.llm.tokens.Tokens.encode_chat``.
        """
        filled = render(self.text, problem=problem)
        start = self.start(reader, problem)
        if not self.chat:
            plain = tuple(reader.encode(filled + solution))
            said = _ink(reader.decode(plain)).removeprefix(_ink(reader.decode(start)))
            return Begun(plain, _fault(_ink(solution), said, " (white space not counted)"))
        ids = tuple(reader.encode_chat(_turn(filled), solution))
        return Begun(
            ids, _fault(solution, reader.decode(ids[len(start) :])) if ids[: len(start)] == start else _MOVED
        )


_MOVED = "the tokens of the prompt change when a solution stands behind it, so that there is no place to go on from"


def _turn(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def _ink(text: str) -> str:
    """The text without its white space, which tokenizers add behind tags and at a text's beginning."""
    return "".join(text.split())


def _fault(wanted: str, got: str, counted: str = "") -> str | None:
    """How ``got`` differs from the text that was wanted; None where it does not.

    é as one character or as two is one text: tokenizers may write either as the other (Unicode's NFC).
    """
    wanted, got = normalize("NFC", wanted), normalize("NFC", got)
    if wanted == got:
        return None
    at = next(
        (i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), min(len(wanted), len(got))
    )
    return (
        f"the tokenizer cannot write this solution: at character {at}{counted} it has {wanted[at : at + SHOWN]!r} and its tokens "
        f"say {got[at : at + SHOWN]!r}"
    )

"""How text and chats become token ids, the same for a door and for a trainer: what is trained is what is sampled.

Works on a tokenizer of transformers that somebody has loaded; loads nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

from engine.errors import LLMError
from engine.llm.base import TAGS, Sampling

ANCHORS = ("\n", "a", ".")
"""Texts to encode another one behind: at least one of them does not grow together with it."""
LETTER, SPACED, ANSWER = "a", "a a a", "answer"
_AT_TAGS = re.compile(f"({'|'.join(TAGS)})")


class Encoder(Protocol):
    """The part of a door that makes token ids: every door is one, and so is ``Tokens``."""

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: Sequence[dict[str, str]], answer: str = "") -> list[int]: ...


@dataclass(frozen=True)
class Tokens:
    """A tokenizer as an ``Encoder``; ``name`` stands in error messages."""

    tokenizer: Any
    name: str

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The tokenizer of the checkpoint in ``folder``."""
        from transformers import AutoTokenizer

        return cls(AutoTokenizer.from_pretrained(folder), folder.name)

    @property
    def has_template(self) -> bool:
        return bool(self.tokenizer.chat_template)

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain-text prompt, with the begin token if the tokenizer has one."""
        ids: list[int] = self.tokenizer.encode(text)
        plain: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        # A tokenizer that closes every text with an end token would make the LLM answer after the end.
        ends = len(ids) > len(plain) and ids[-1] == self.tokenizer.eos_token_id and ids[-1:] != plain[-1:]
        return ids[:-1] if ends else ids

    def encode_chat(self, messages: Sequence[dict[str, str]], answer: str = "") -> list[int]:
        """Token ids of a chat prompt, generation prompt added, and of an ``answer`` that has begun behind it.

        The begin token stands there once, if the template writes it or the tokenizer adds it. The answer is not put
        through the template, which may trim it and would close its turn. Its tokens are those of prompt and answer
        encoded as one text; where that changes the prompt's own tokens (one token across the joint) or the answer's
        characters, those of the answer by itself, without a space put before it. Of the ways tried the first exact
        one counts; where none is, the last is returned and ``decode`` shows it. Raises LLMError without a template.
        """
        prompt = self._rendered(messages)
        start = self._opened(prompt)
        if not answer:
            return start
        ids = self._opened(prompt + answer)
        if ids[: len(start)] == start and self.decode(ids[len(start) :]) == answer:
            return ids
        return [*start, *self._piece(answer)]

    def _rendered(self, messages: Sequence[dict[str, str]], *, open_turn: bool = True) -> str:
        """The template's text; ``open_turn``: up to where the assistant's answer begins."""
        if not self.has_template:
            raise LLMError(f"{self.name}: the tokenizer has no chat template; use a plain-text prompt")
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    list(messages), add_generation_prompt=open_turn, tokenize=False
                )
            )
        except Exception as error:
            raise LLMError(f"{self.name}: the chat template refuses these messages: {error}") from error

    def _opened(self, text: str) -> list[int]:
        """Tokens of a template's text: with the begin token, and not with two of them."""
        ids = self._plain(text)
        return ids if ids[: len(self._begin)] == self._begin else [*self._begin, *ids]

    def _plain(self, text: str, **options: Any) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False, **options))

    @cached_property
    def _begin(self) -> list[int]:
        """What the tokenizer puts before every text."""
        ids = self.encode(ANCHORS[0])
        return ids[: len(ids) - len(self._plain(ANCHORS[0]))]

    def _piece(self, text: str) -> list[int]:
        """Tokens of ``text`` as it stands inside a longer text; the first exact way, else as it is by itself.

        Encoded by itself; behind an anchor, for tokenizers that put a space before a text; then the same with the
        names of special tokens as the plain text that they are in a solution; then from tag to tag, for tokenizers
        that put a space behind a tag as well.
        """
        for options in ({}, {"split_special_tokens": True}):
            for anchor in ("", *ANCHORS):
                lead = self._plain(anchor, **options) if anchor else []
                ids = self._plain(anchor + text, **options)
                if ids[: len(lead)] == lead and self.decode(ids[len(lead) :]) == text:
                    return ids[len(lead) :]
        parts = _AT_TAGS.split(text) if self._tags else [text]
        if len(parts) == 1:
            return self._plain(text)
        return [
            token
            for part in parts
            if part
            for token in (self._plain(part) if part in TAGS else self._piece(part))
        ]

    @cached_property
    def turn_end(self) -> int | None:
        """The token with which the chat template closes the assistant's turn.

        None without a template, and where the turn is not closed by an added token of the tokenizer: then only the
        end token ends an answer.
        """
        asked = [{"role": "user", "content": "question"}, {"role": "assistant", "content": ANSWER}]
        try:
            behind = self._rendered(asked, open_turn=False).rpartition(ANSWER)[2]
        except LLMError:
            return None
        marks = self._special | set(self.tokenizer.added_tokens_decoder)
        for token in self._plain(behind):
            if token in marks:
                return token
            if self.tokenizer.decode([token]).strip():
                return None
        return None

    def stop_ids(self, sampling: Sampling) -> list[int]:
        """Token ids that end a completion, beside the end token, under these settings."""
        return [self.turn_end] if sampling.ends_turn and self.turn_end is not None else []

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids as it stands behind other text: special tokens left out, tags kept.

        Only ids that begin with the begin token are read as the beginning of a text, where some tokenizers
        (sentencepiece's) leave out the first space.
        """
        kept = [token for token in token_ids if token not in self._left_out]
        lead, said = self._lead
        if not lead or not kept or (self._begin and token_ids[0] == self._begin[0]):
            return self._decode(kept)
        return self._decode([*lead, *kept])[len(said) :]

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(
            self.tokenizer.decode(
                list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    @cached_property
    def _lead(self) -> tuple[list[int], str]:
        """Tokens to decode in front of others, and their text, where a first space would be lost; else none."""
        ids = self._plain(SPACED)
        parts = (self._decode(ids[:i]) + self._decode(ids[i:]) for i in range(1, len(ids)))
        if all(text == self._decode(ids) for text in parts):
            return [], ""
        lead = self._plain(LETTER)
        return lead, self._decode(lead)

    @cached_property
    def _special(self) -> set[int]:
        added = {token for token, added in self.tokenizer.added_tokens_decoder.items() if added.special}
        return added | set(self.tokenizer.all_special_ids)

    @cached_property
    def _tags(self) -> set[int]:
        vocabulary = self.tokenizer.get_vocab()
        return {self.tokenizer.convert_tokens_to_ids(tag) for tag in TAGS if tag in vocabulary}

    @cached_property
    def _left_out(self) -> frozenset[int]:
        """Ids that are left out of text: end, begin, padding, chat marks; not the chunk tags."""
        ends = set() if self.turn_end is None else {self.turn_end}
        return frozenset((self._special | ends) - self._tags)

    @property
    def tags_are_special(self) -> bool:
        """Whether a chunk tag is a special token of this tokenizer."""
        return bool(self._special & self._tags)

"""How text and chats become token ids, the same for a door and for a trainer: what is trained is what is sampled.

Works on a tokenizer of transformers that somebody has loaded; loads nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self

from engine.errors import LLMError
from engine.llm.base import TAGS


class Encoder(Protocol):
    """The part of a door that makes token ids: every door is one, and so is ``Tokens``."""

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]: ...


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

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Token ids of a chat prompt, generation prompt added. Raises LLMError without a chat template."""
        if not self.has_template:
            raise LLMError(f"{self.name}: the tokenizer has no chat template; use a plain-text prompt")
        try:
            ids = self.tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except Exception as error:
            raise LLMError(f"{self.name}: the chat template refuses these messages: {error}") from error
        return list(ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out, tags kept."""
        kept = [token for token in token_ids if token not in self._left_out]
        return self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)

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
        return frozenset(self._special - self._tags)

    @property
    def tags_are_special(self) -> bool:
        """Whether a chunk tag is a special token of this tokenizer."""
        return bool(self._special & self._tags)

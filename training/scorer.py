"""A door over transformers that only scores: for measuring a discriminative judge with the library that trains it.

It serves requests for one greedy token with scored tokens, in batches, and refuses all others. Generating, and
serving more than a measurement, is what ``engine.llm`` is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

from engine.errors import LLMError
from engine.llm.base import Completion, LLMInfo, Request, refusal
from engine.llm.tokens import Tokens

BATCH_TOKENS = 32768
"""Tokens that go through the model at once, padding included."""


class ModelScorer:
    """``engine.llm.base.LLM`` for scored requests over a model of transformers that somebody has loaded."""

    def __init__(self, model: Any, tokens: Tokens, in_flight: int = 32):
        self.model, self.tokens, self.in_flight = model.eval(), tokens, in_flight
        config = model.config.get_text_config()
        self._vocabulary = int(config.vocab_size)
        self.info = LLMInfo(tokens.name, "", int(config.max_position_embeddings))

    @classmethod
    def load(cls, checkpoint: Path, in_flight: int = 32) -> Self:
        """The checkpoint's model and tokenizer, on the GPU where there is one."""
        import torch
        from transformers import AutoModelForCausalLM

        device = "cuda" if torch.cuda.is_available() else "cpu"
        model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto")
        return cls(model.to(device), Tokens.load(checkpoint), in_flight)

    def encode(self, text: str) -> list[int]:
        return self.tokens.encode(text)

    def encode_chat(self, messages: Sequence[dict[str, str]], answer: str = "") -> list[int]:
        return self.tokens.encode_chat(messages, answer)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self.tokens.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def stream(self, requests: Iterable[Request | None]) -> Iterator[list[Completion]]:
        """Serve scored requests for one greedy token. Raises LLMError for any other."""
        source = iter(requests)
        while batch := self._pulled(source):
            served = []
            for request in batch:
                if request is None:
                    yield []
                    continue
                if request.sampling.max_tokens != 1 or request.sampling.temperature > 0 or not request.scored:
                    raise LLMError(f"request {request.id!r}: only scores of one greedy token are served here")
                if completions := refusal(request, self.info.context, self._vocabulary):
                    yield completions
                else:
                    served.append(request)
            served.sort(key=lambda request: len(request.prompt_token_ids))  # little padding
            while served:
                size = max(1, BATCH_TOKENS // len(served[-1].prompt_token_ids))
                yield from self._scored(served[-size:])
                del served[-size:]

    def _pulled(self, source: Iterator[Request | None]) -> list[Request | None]:
        """Requests up to ``in_flight``, or up to the word that nothing more is ready now."""
        batch: list[Request | None] = []
        for request in islice(source, self.in_flight):
            batch.append(request)
            if request is None:
                break
        if len(batch) > 1 and batch[-1] is None:  # first what there is; the source is asked again afterwards
            batch.pop()
        return batch

    def _scored(self, requests: Sequence[Request]) -> Iterator[list[Completion]]:
        import torch

        longest = max(len(r.prompt_token_ids) for r in requests)
        padding = [longest - len(r.prompt_token_ids) for r in requests]
        device = self.model.device
        ids = torch.tensor(
            [[0] * n + list(r.prompt_token_ids) for n, r in zip(padding, requests, strict=True)],
            device=device,
        )
        mask = torch.tensor([[0] * n + [1] * (longest - n) for n in padding], device=device)
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        with torch.inference_mode():
            output = self.model(
                input_ids=ids, attention_mask=mask, position_ids=places, logits_to_keep=1, use_cache=False
            )
        logged = output.logits[:, -1].float().log_softmax(-1)
        for row, request in zip(logged, requests, strict=True):
            token = int(row.argmax())
            scores = tuple(row[list(request.scored)].tolist())
            text = self.decode([token])
            yield [
                Completion(request.id, i, text, (token,), "length", scores=scores) for i in range(request.n)
            ]

    def close(self) -> None:
        self.model = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

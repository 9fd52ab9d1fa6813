"""Accuracy of a judge checkpoint on held-out labels, before and after training. Not ProcessBench, no search.

Transformers generate here: the same weights and library as in training, so before and after compare like with like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.judge import Verdict, vote
from training.rewards import VERDICT_OF, Answer, read_verdict

if TYPE_CHECKING:
    from training.sets import Example

PROMPTS_PER_BATCH = 32


@dataclass(frozen=True)
class Accuracy:
    """Shares over ``chunks`` balanced held-out chunks, ``k`` sampled judgments each.

    ``single``: judgments that equal the label; ``majority``: chunks whose vote of k does (a tie is a miss);
    ``none``: judgments without a verdict; ``split``: chunks whose k judgments do not all agree.
    """

    chunks: int
    k: int
    single: float
    majority: float
    none: float
    split: float


def score(verdicts: Sequence[Sequence[Verdict | None]], labels: Sequence[str]) -> Accuracy:
    """Accuracy of ``verdicts`` (one inner sequence of k a chunk, no chunk empty) against ``labels``."""
    k, total = len(verdicts[0]), sum(len(group) for group in verdicts)
    wanted = [VERDICT_OF[label] for label in labels]
    pairs = list(zip(verdicts, wanted, strict=True))
    return Accuracy(
        chunks=len(pairs),
        k=k,
        single=sum(v == w for group, w in pairs for v in group) / total,
        majority=sum(vote(group) == w for group, w in pairs) / len(pairs),
        none=sum(v is None for group, _ in pairs for v in group) / total,
        split=sum(len(set(group)) > 1 for group, _ in pairs) / len(pairs),
    )


def measure(
    checkpoint: Path,
    examples: Sequence[Example],
    *,
    k: int,
    temperature: float,
    max_tokens: int,
    seed: int,
    stopping: Callable[[], bool],
    answer: Answer = "analysis",
) -> Accuracy | None:
    """Sample k judgments of every example from ``checkpoint`` and score them. None if stopped, or without examples."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not examples:
        return None
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto")
    return measure_model(
        model.to("cuda" if torch.cuda.is_available() else "cpu"),
        AutoTokenizer.from_pretrained(checkpoint, padding_side="left"),
        examples,
        k=k,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        stopping=stopping,
        answer=answer,
    )


def measure_model(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    k: int,
    temperature: float,
    max_tokens: int,
    seed: int,
    stopping: Callable[[], bool],
    answer: Answer = "analysis",
) -> Accuracy | None:
    """The same of a loaded model, which may be in training: its mode and the random state are put back afterwards."""
    import torch

    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    settings = {
        "do_sample": True,
        "temperature": temperature,
        "top_k": 0,
        "top_p": 1.0,
        # what the checkpoint's generation config has in their place would act: judging and training draw without
        "min_p": None,
        "repetition_penalty": 1.0,
        "max_new_tokens": max_tokens,
        "num_return_sequences": k,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": model.generation_config.eos_token_id or tokenizer.eos_token_id,
    }
    order = sorted(range(len(examples)), key=lambda i: len(examples[i].prompt))  # little padding
    verdicts: dict[int, list[Verdict | None]] = {}
    training = model.training
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.eval()
        try:
            for start in range(0, len(order), PROMPTS_PER_BATCH):
                if stopping():
                    return None
                batch = order[start : start + PROMPTS_PER_BATCH]
                texts = _generate(model, tokenizer, [examples[i].prompt for i in batch], settings)
                for position, i in enumerate(batch):
                    drawn = texts[position * k : (position + 1) * k]
                    verdicts[i] = [read_verdict(text, answer) for text in drawn]
        finally:
            model.train(training)
    return score([verdicts[i] for i in range(len(examples))], [example.label for example in examples])


def _generate(model: Any, tokenizer: Any, prompts: list[str], settings: dict[str, Any]) -> list[str]:
    import torch

    inputs = tokenizer(prompts, return_tensors="pt", padding=True).to(model.device)
    ids = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    with torch.inference_mode():
        rows = model.generate(**ids, **settings)
    return tokenizer.batch_decode(rows[:, ids["input_ids"].shape[1] :], skip_special_tokens=True)

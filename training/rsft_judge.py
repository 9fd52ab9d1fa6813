"""The train-judge-rsft kind of run: rejection-sampling fine-tuning of a generative judge, the paper's ablation of RL.

Judgments of the training chunks come from the store, or the base writes them first; rationales that end in the right
verdict are kept, as many for ``+`` as for ``-`` where the labels are balanced, and the base is fine-tuned on them by
``sft``. Accuracy before and after is measured as for GRPO (``held_out``), so that the two compare.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checkpoints import resolve_checkpoint
from engine.errors import TrainingError
from engine.judge import JudgePrompt, load_prompt, parse_verdict
from engine.llm import LLMSpec, open_llm
from engine.llm.base import LLM, Request, Sampling
from engine.pipeline.flow import Batch
from engine.pipeline.kept import Kept, own_folder
from engine.recipes import Draws
from engine.rollouts import base_seed, prefix_key
from training import core
from training.callbacks import step_of
from training.held_out import Accuracy, measure
from training.rewards import VERDICT_OF
from training.sets import Example, TrainingSet, examples_for, read_set, write_set
from training.sets.build import tokens_of as count_tokens
from training.sets.stored import judge_id
from training.sft import completion_row, finish, fitting, kept, saved_aside, tokens_of, trained
from training.workspace import free_target

if TYPE_CHECKING:
    from engine.runs import RunContext
    from training.sft_recipes import RsftJudgeRecipe


@dataclass(frozen=True)
class Rationale:
    """A judgment of an example (its index) that ended by itself, and the verdict it boxed."""

    example: int
    text: str
    verdict: str | None


def run(ctx: RunContext[RsftJudgeRecipe]) -> dict[str, Any]:
    """Collect rationales, fine-tune on the right ones; returns counts, accuracy before and after, and the name.

    Stops and resumes as ``sft.run`` does, also while the base writes judgments, and raises what it raises.
    """
    recipe, uid = ctx.recipe, ctx.store.run(ctx.run_id).uid
    target = free_target(ctx, uid)
    base = resolve_checkpoint(recipe.base, ctx.home)
    prompt = load_prompt(recipe.prompt)
    ctx.facts({prompt.name: prompt.hash})
    core.prepare(recipe.hardware)
    with core.first_process_first():
        folder = own_folder(ctx)
        data = _examples(ctx, base, folder)
        rationales = _rationales(ctx, prompt, data.train, folder)
    core.prepare(recipe.hardware)  # the door has its own idea of threads
    result: dict[str, Any] = {"set": dict(data.counts)}
    if core.stop_everywhere(ctx) or rationales is None:
        return result
    chosen = keep_right(rationales, data.train, recipe.rationales.keep, recipe.labels.balance, recipe.seed)
    tokens = tokens_of(base)
    texts = [(data.train[rationale.example].prompt, rationale.text) for rationale in chosen]
    rows, left_out = fitting([completion_row(tokens, *pair) for pair in texts], recipe.sft.max_tokens)
    counts = (
        result["set"] | rationale_counts(rationales, chosen, data.train) | {"rationales_too_long": left_out}
    )
    result["set"] = counts
    ctx.log("rationales: " + ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts.items()))
    _check_classes(counts)
    if ctx.main:
        result["held_out_before"] = (
            kept(folder / "before.json", lambda: _measured(ctx, base, data, 0)) or None
        )
    if core.stop_everywhere(ctx):
        return result

    last = trained(ctx, base, rows, folder)
    result["steps"] = step_of(last)
    if last is None or step_of(last) < recipe.sft.steps or not ctx.main:
        return result
    aside = saved_aside(last, base, folder / "final")
    result |= {
        "held_out_after": _measured(ctx, aside, data, recipe.sft.steps) or None,
        "checkpoint": target.name,
    }
    measured = {name: result[name] for name in ("steps", "held_out_before", "held_out_after")}
    card = {"role": "judge", "prompt_hash": prompt.hash, "set": counts, "metrics": measured}
    finish(ctx, aside, target, card, last)
    return result


def _examples(ctx: RunContext[RsftJudgeRecipe], base: Path, folder: Path) -> TrainingSet:
    """The frozen set's examples, or those chosen from the store, once and kept beside the run."""
    path, recipe = folder / "examples.jsonl", ctx.recipe
    if path.is_file():
        return read_set(path)
    room = recipe.sft.max_tokens - recipe.rationales.max_tokens
    data = examples_for(ctx.store, ctx.home, recipe, count_tokens=count_tokens(base), max_tokens=room)
    write_set(data, path)
    return data


def _rationales(
    ctx: RunContext[RsftJudgeRecipe], prompt: JudgePrompt, examples: Sequence[Example], folder: Path
) -> list[Rationale] | None:
    """Judgments of the training chunks, kept beside the run; None if stopped while they were written."""
    path, name = folder / "rationales.jsonl", ctx.recipe.rationales.judge
    file = Kept(path)
    done = {row["example"] for row in file.rows}
    missing = [i for i in range(len(examples)) if i not in done]
    if ctx.main and missing and name is not None:
        texts = stored_texts(ctx, prompt, name, examples)
        file.add({"example": i, "texts": texts[i]} for i in missing)
    elif ctx.main and missing:
        _sample(ctx, examples, missing, file)
    if ctx.stopping:
        return None
    found = {row["example"]: row["texts"] for row in file.rows}
    return [Rationale(i, text, parse_verdict(text)) for i in sorted(found) for text in found[i]]


def stored_texts(
    ctx: RunContext[RsftJudgeRecipe], prompt: JudgePrompt, name: str, examples: Sequence[Example]
) -> dict[int, list[str]]:
    """{example: what the judge called ``name`` wrote of its chunk}. Raises TrainingError where that does not fit."""
    judge = judge_id(ctx.store, name)
    row = next(judge_row for judge_row in ctx.store.judges() if judge_row.id == judge)
    if row.kind != "generative" or row.prompt_hash != prompt.hash:
        raise TrainingError(
            f"rationales.judge: {name!r} is {row.kind} and read the prompt {row.prompt_name!r} "
            f"({row.prompt_hash[:8]}); its rationales do not answer {prompt.name!r} ({prompt.hash[:8]})"
        )
    found = {
        i: [
            view.rationale
            for view in ctx.store.judgments_of(example.chunk_id)
            if view.judge_id == judge and view.finish_reason == "stop"
        ]
        for i, example in enumerate(examples)
    }
    if not any(found.values()):
        raise TrainingError(
            f"rationales.judge: {name!r} has judged none of the {len(examples)} training chunks; let it judge the "
            "selected trajectories first, or leave the field empty so that the base writes rationales"
        )
    return found


def _sample(
    ctx: RunContext[RsftJudgeRecipe], examples: Sequence[Example], missing: Sequence[int], file: Kept
) -> None:
    """Let the base judge the examples that are still missing, a row of ``file`` each, until done or stopped."""
    recipe = ctx.recipe
    folder = resolve_checkpoint(recipe.base, ctx.home)
    spec = LLMSpec(checkpoint=str(folder), name=recipe.base, threads=recipe.hardware.threads)
    ctx.progress(0, recipe.sft.steps, "steps", "loading the base to write rationales")
    batch = Batch(file.add)
    with open_llm(spec) as llm:
        for number, (example, texts) in enumerate(draw(llm, examples, missing, recipe, ctx.seed), start=1):
            batch.add([{"example": example, "texts": texts}])
            message = f"rationales for {len(examples) - len(missing) + number} of {len(examples)} chunks"
            ctx.progress(0, recipe.sft.steps, "steps", message)
            if ctx.stopping:
                break
    batch.flush()


def draw(
    llm: LLM, examples: Sequence[Example], wanted: Sequence[int], recipe: RsftJudgeRecipe, seed: int
) -> Iterator[tuple[int, list[str]]]:
    """(example, judgments that ended by themselves) as they finish. Draws follow from the seed and the prompt."""
    settings = recipe.rationales
    sampling = Sampling(temperature=settings.temperature, max_tokens=settings.max_tokens)

    def requests() -> Iterator[Request]:
        for i in wanted:
            ids = tuple(llm.encode(examples[i].prompt))
            key = f"{prefix_key(ids, llm.info.content_hash, sampling)}:{examples[i].chunk_id}"
            yield Request(str(i), ids, settings.samples, base_seed(seed, key), sampling)

    for completions in llm.stream(requests()):
        texts = [c.text for c in completions if c.finish_reason == "stop"]
        yield int(completions[0].request_id), texts


def keep_right(
    rationales: Sequence[Rationale], examples: Sequence[Example], most: int, balance: bool, seed: int
) -> list[Rationale]:
    """Rationales whose verdict equals the label: ``most`` different ones a chunk, the first ones; in a seeded order.

    ``balance``: as many for ``+`` as for ``-``; the larger class is sampled down, a chunk's further rationales first,
    so that as many chunks as can be have one.
    """
    by_label: dict[str, list[tuple[int, Rationale]]] = {"+": [], "-": []}
    texts: dict[int, set[str]] = {}
    for rationale in rationales:
        label, seen = examples[rationale.example].label, texts.setdefault(rationale.example, set())
        if rationale.verdict == VERDICT_OF[label] and rationale.text not in seen and len(seen) < most:
            by_label[label].append((len(seen), rationale))
            seen.add(rationale.text)
    rng = random.Random(seed)
    for ranked in by_label.values():
        rng.shuffle(ranked)
        ranked.sort(key=lambda pair: pair[0])
    size = min(map(len, by_label.values())) if balance else max(map(len, by_label.values()))
    chosen = [rationale for ranked in by_label.values() for _, rationale in ranked[:size]]
    rng.shuffle(chosen)
    return chosen


def rationale_counts(
    rationales: Sequence[Rationale], chosen: Sequence[Rationale], examples: Sequence[Example]
) -> dict[str, int]:
    """How many judgments there were, how many were right (of ``+`` and of ``-``), how many are trained on."""
    labels = [examples[r.example].label for r in rationales]
    right = [label for r, label in zip(rationales, labels, strict=True) if r.verdict == VERDICT_OF[label]]
    return {
        "rationales": len(rationales),
        "rationales_right": len(right),
        "rationales_right_positive": right.count("+"),
        "rationales_right_negative": right.count("-"),
        "rationales_kept": len(chosen),
        "chunks_with_rationale": len({r.example for r in chosen}),
    }


def _check_classes(counts: Mapping[str, int]) -> None:
    if not (counts["rationales_right_positive"] and counts["rationales_right_negative"]):
        raise TrainingError(
            f"of {counts['rationales']} judgments {counts['rationales_right']} have the right verdict, "
            f"{counts['rationales_right_positive']} of + and {counts['rationales_right_negative']} of -: a judge "
            "learns nothing from one class; raise rationales.samples or rationales.max_tokens, or take a base that judges"
        )


def _measured(
    ctx: RunContext[RsftJudgeRecipe], checkpoint: Path, data: TrainingSet, step: int
) -> dict[str, Any]:
    """Held-out accuracy of a checkpoint, logged; {} if stopped or without held-out chunks."""
    recipe = ctx.recipe
    ctx.progress(step, recipe.sft.steps, "steps", "measuring on held-out chunks")
    found: Accuracy | None = measure(
        checkpoint,
        data.held_out,
        k=recipe.labels.held_out_k,
        temperature=Draws().temperature,  # as GRPO is measured, however warm the rationales were drawn
        max_tokens=recipe.rationales.max_tokens,
        seed=recipe.seed,
        stopping=lambda: (
            ctx.stopping and not step
        ),  # at the end it takes seconds, and the run is all but done
    )
    if found is None:
        return {}
    ctx.metrics(step, {"held_out/accuracy": found.single, "held_out/majority": found.majority})
    ctx.log(
        f"held-out accuracy {'after' if step else 'before'} training: {found.single:.3f} a judgment, "
        f"{found.majority:.3f} by majority of {found.k} ({found.chunks} balanced chunks)"
    )
    return asdict(found)

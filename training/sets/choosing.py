"""Which chunks become examples: label, filter, split by problem, balance. Plain values; the store is not read here."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from engine.errors import TrainingError
from engine.labels import Label, Rule, Source, confidence, effective_label, label, parse_rule
from training.parts import LabelFilter
from training.sets.consensus import left_out
from training.sets.examples import CountTokens, Example, Labelled, LabelSource, TrainingSet

REASONS = (
    "chunks",
    "by_rule",
    "reviewed",
    "unlabelled",
    "unsure",
    "unvoted",
    "contradicted",
    "after_negative",
)
"""What became of the selected chunks, as counts: all of them, then ``chunk_label``'s reasons (``by_judge`` too, where a
judge gives the labels)."""
SOURCES: dict[str, LabelSource] = {"by_rule": "rule", "by_judge": "judge", "reviewed": "reviewed"}


def choose(
    chunks: Iterable[Labelled],
    choice: LabelFilter,
    *,
    seed: int,
    max_prompt_tokens: int,
    count_tokens: CountTokens,
    alike: Mapping[int, int] | None = None,
) -> TrainingSet:
    """Label, filter, split by problem and balance. The same chunks and seed give the same set, in the same order.

    ``alike``: problem → the problem it counts as in the split (near-duplicates). Raises TrainingError where nothing
    can be trained on, RecipeError on an unknown rule.
    """
    kept, counts = label_chunks(chunks, choice)
    fitting = within(kept, counts, max_prompt_tokens, count_tokens)
    check_classes(fitting, choice, counts, max_prompt_tokens)
    return divide(fitting, choice, seed=seed, counts=counts, alike=alike)


def label_chunks(chunks: Iterable[Labelled], choice: LabelFilter) -> tuple[list[Example], Counter[str]]:
    """(examples with the label that counts, how many chunks went which way). Raises RecipeError.

    A solution's chunks come one after the other, in their order.
    """
    rule = parse_rule(choice.rule)
    reasons = REASONS if choice.voted_by is None else (*REASONS, "by_judge")
    counts: Counter[str] = Counter(dict.fromkeys(reasons, 0))
    kept: list[Example] = []
    for _, solution in groupby(chunks, key=lambda chunk: chunk.trajectory_id):
        for chunk, given, why in _solution_labels(list(solution), rule, choice):
            counts["chunks"] += 1
            counts[why] += 1
            if given:
                by_rule = why == "by_rule"
                kept.append(
                    Example(
                        chunk_id=chunk.chunk_id,
                        problem_id=chunk.problem_id,
                        prompt=chunk.prompt,
                        label=given,
                        position=chunk.position,
                        source=SOURCES[why],
                        confidence=confidence(rule, chunk.before, chunk.after) if by_rule else None,
                        trajectory_id=chunk.trajectory_id,
                    )
                )
    return kept, counts


def _solution_labels(
    chunks: Sequence[Labelled], rule: Rule, choice: LabelFilter
) -> Iterator[tuple[Labelled, str | None, str]]:
    """(chunk, its label or None, why) of a solution's chunks, given in their order."""
    against: Sequence[str | None] = [None] * len(chunks)
    if choice.agree_with is not None:
        if choice.agree_on == "first-error":
            labels = [source_label(chunk, rule, choice)[0] for chunk in chunks]
            against = left_out(labels, [chunk.vote for chunk in chunks])
        else:
            against = [_contradiction(chunk, rule) for chunk in chunks]
    ended = False
    for chunk, refused in zip(chunks, against, strict=True):
        given, why = chunk_label(chunk, rule, choice, refused)
        if given and ended:
            given, why = None, "after_negative"
        ended = ended or (given == "-" and choice.until_first_negative)
        yield chunk, given, why


def _contradiction(chunk: Labelled, rule: Rule) -> str | None:
    """Why the judge's vote does not repeat the rule's label, if it does not."""
    if chunk.vote is None:
        return "unvoted"
    return None if chunk.vote == label(rule, chunk.before, chunk.after) else "contradicted"


def chunk_label(
    chunk: Labelled, rule: Rule, choice: LabelFilter, refused: str | None
) -> tuple[str | None, str]:
    """The label that counts for training, or None, and why.

    Why: ``reviewed``, ``by_rule``, ``by_judge``, ``unlabelled``, ``unsure``, or ``refused``: why the judge that must
    agree does not (``unvoted``, ``contradicted`` and what ``consensus`` says). A person's label passes every filter.
    """
    given, source = source_label(chunk, rule, choice)
    if given is None:
        return None, "unvoted" if choice.voted_by is not None and source == "none" else "unlabelled"
    if source != "rule":
        return given, "reviewed"
    if choice.voted_by is not None:
        return given, "by_judge"
    sure = confidence(rule, chunk.before, chunk.after)
    if choice.min_confidence and (sure is None or sure < choice.min_confidence):
        return None, "unsure"
    return (None, refused) if refused else (given, "by_rule")


def source_label(chunk: Labelled, rule: Rule, choice: LabelFilter) -> tuple[Label | None, Source]:
    """The label before any filter: a person's where one counts, else the rule's or, in its place, the judge's vote.

    The source is ``effective_label``'s: ``rule`` for either of the two.
    """
    own = chunk.vote if choice.voted_by is not None else label(rule, chunk.before, chunk.after)
    if choice.reviews:
        return effective_label(chunk.adjudication, chunk.reviews, own)
    return own, "rule" if own else "none"


def within(
    examples: Sequence[Example], counts: Counter[str], max_tokens: int, count_tokens: CountTokens
) -> list[Example]:
    """Those whose text has at most ``max_tokens`` tokens; what is left out is counted, by label too."""
    texts = list(dict.fromkeys(example.prompt for example in examples))
    length = dict(zip(texts, count_tokens(texts), strict=True)) if texts else {}
    fitting = [example for example in examples if length[example.prompt] <= max_tokens]
    left_out = Counter(e.label for e in examples if length[e.prompt] > max_tokens)
    counts["too_long"] += left_out.total()  # of a frozen set some were left out before
    counts["too_long_positive"] += left_out["+"]
    counts["too_long_negative"] += left_out["-"]
    return fitting


def divide(
    examples: Sequence[Example],
    choice: LabelFilter,
    *,
    seed: int,
    counts: Counter[str],
    alike: Mapping[int, int] | None = None,
) -> TrainingSet:
    """Split by problem and balance; completes ``counts``. Raises TrainingError if a class is held out whole."""
    counts["positive"], counts["negative"] = _number(examples, "+"), _number(examples, "-")
    train, held_out = split_by_problem(examples, choice.held_out, seed, alike)
    check_classes(train, choice, counts)
    train = balanced(train, seed) if choice.balance else _shuffled(train, seed)
    # measured on as many + as -, whatever was trained on: chance is 0.5
    held_out = balanced(held_out, seed)[: choice.held_out_chunks // 2 * 2]
    counts["train"], counts["held_out"] = len(train), len(held_out)
    return TrainingSet(tuple(train), tuple(held_out), dict(counts))


class HasProblem(Protocol):
    """A row of a set that belongs to a problem."""

    @property
    def problem_id(self) -> int: ...


R = TypeVar("R", bound=HasProblem)


def split_by_problem(
    examples: Sequence[R], share: float, seed: int, alike: Mapping[int, int] | None = None
) -> tuple[list[R], list[R]]:
    """(train, held out): ``share`` of the problems, chosen by a hash of seed and problem, are held out whole.

    Problems that ``alike`` gives one stand-in stay together, and a group of them more than twice as large as what is
    still to be held out is trained on. With a share above 0 and two problems (or groups) or more, at least one is on
    either side.
    """
    alike = alike or {}

    def place(problem: int) -> bytes:
        return hashlib.sha256(f"{seed}/{problem}".encode()).digest()

    groups: dict[int, set[int]] = {}
    for example in examples:
        groups.setdefault(alike.get(example.problem_id, example.problem_id), set()).add(example.problem_id)
    away: set[int] = set()
    if share > 0 and groups:
        wanted = max(1, round(share * sum(map(len, groups.values()))))
        order = sorted(groups, key=place)
        for group in order[: len(groups) - 1]:
            if len(groups[group]) <= 2 * (wanted - len(away)):  # with it, the share is met more nearly
                away |= groups[group]
        if not away and len(groups) > 1:
            away = min((groups[group] for group in order), key=len)
    return [e for e in examples if e.problem_id not in away], [e for e in examples if e.problem_id in away]


def balanced(examples: Sequence[Example], seed: int) -> list[Example]:
    """As many ``+`` as ``-``, alternating: the larger class is sampled down with the seed (paper: 1:1)."""
    by_label = {sign: _shuffled([e for e in examples if e.label == sign], seed) for sign in "+-"}
    return [e for pair in zip(by_label["+"], by_label["-"], strict=False) for e in pair]


def check_classes(
    examples: Sequence[Example], choice: LabelFilter, counts: Mapping[str, int], max_tokens: int | None = None
) -> None:
    """Raise TrainingError where there is nothing to train on, or one class only."""
    over = f"over {max_tokens} tokens" if max_tokens else "that are too long"
    seen = (
        f"{counts['chunks']} selected chunks: {counts['unlabelled']} without a label {_giver(choice)}, "
        f"{counts['unsure']} less certain than min_confidence, {_filtered(choice, counts)}"
        f"{counts['too_long']} prompts {over}, {_number(examples, '+')} + and {_number(examples, '-')} -"
    )
    if not examples:
        raise TrainingError(f"no chunk can be trained on ({seen}); {_first(choice)} first, or select others")
    for sign in "+-":
        if not _number(examples, sign):
            raise TrainingError(
                f"no chunk labelled {sign!r} is left to train on ({seen}); roll out more problems, take another rule "
                "or hold out fewer problems: a judge learns nothing from one class"
            )


def _first(choice: LabelFilter) -> str:
    return "roll out prefixes" if choice.voted_by is None else f"let {choice.voted_by} judge them"


def _giver(choice: LabelFilter) -> str:
    if choice.voted_by is not None:
        return "that reviewers agree on"
    return f"under {parse_rule(choice.rule)}"


def _filtered(choice: LabelFilter, counts: Mapping[str, int]) -> str:
    """What the filters that are switched on left out."""
    said = ""
    if choice.voted_by is not None:
        said += f"{counts['unvoted']} not voted on by {choice.voted_by}, "
    if choice.agree_with is not None:
        said += f"{counts['contradicted']} contradicted and {counts['unvoted']} not voted on by {choice.agree_with}, "
    if choice.until_first_negative or counts["after_negative"]:
        said += f"{counts['after_negative']} after a solution's first negative label, "
    return said


def _shuffled(examples: Sequence[Example], seed: int) -> list[Example]:
    return random.Random(seed).sample(list(examples), len(examples))


def _number(examples: Sequence[Example], sign: str) -> int:
    return sum(e.label == sign for e in examples)

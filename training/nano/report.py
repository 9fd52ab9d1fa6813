"""Measures the nano facts: is the policy good but not perfect, and the judge unsure but reading the chunk?

Every fact comes with a 95 % interval (bootstrap over problems, the unit that is drawn) and its bar. All
sampling goes through the door it is given and the grader, values, labels and judge of the engine. Stores nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from engine.answers import Grader, Reference
from engine.chunks import cut_best, token_ends
from engine.judge import fill, load_prompt, parse_verdict, render
from engine.labels import DEFAULT_RULES, REL_RATIO, label
from engine.llm.base import LLM, Completion, Sampling
from engine.rollouts import base_seed, prefix_key, requests_for
from engine.values import Value, terminal_value, value_of
from engine.worlds.nano import NanoProblem, generate, sound

if TYPE_CHECKING:
    import numpy as np

MAX_TOKENS = 300  # a solution has some sixty tokens, the longest about two hundred
SAMPLED = Sampling(max_tokens=MAX_TOKENS)
GREEDY = Sampling(temperature=0.0, max_tokens=MAX_TOKENS)

Progress = Callable[[str], None]
Pair = tuple[float, float]


@dataclass(frozen=True)
class Fact:
    """One measured fact: holds where `value` lies within `at_least` … `at_most`."""

    name: str
    value: float
    low: float
    high: float
    at_least: float
    at_most: float
    units: int

    @property
    def holds(self) -> bool:
        return self.at_least <= self.value <= self.at_most


@dataclass(frozen=True)
class Solution:
    """One sampled solution, cut: `ends[i]` tokens reach to the end of chunk i."""

    problem: NanoProblem
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    chunks: tuple[str, ...]
    ends: tuple[int | None, ...]
    outcome: str
    sound: tuple[bool, ...]


@dataclass(frozen=True)
class Judged:
    """One chunk to judge, its rel-ratio label and whether its arithmetic is sound."""

    problem: NanoProblem
    history: tuple[str, ...]
    text: str
    rules: tuple[str | None, ...]
    rel_ratio: str | None
    sound: bool


def _draw(
    llm: LLM, prompts: Iterable[tuple[int, ...]], n: int, seed: int, sampling: Sampling
) -> dict[tuple[int, ...], list[Completion]]:
    """`n` draws of each different prompt, by its token ids."""
    by_key = {prefix_key(ids, llm.info.content_hash, sampling): ids for ids in dict.fromkeys(prompts)}
    wanted = (requests_for(key, ids, base_seed(seed, key), 0, n, sampling) for key, ids in by_key.items())
    found = {}
    for completions in llm.stream(request for request in wanted if request):
        found[by_key[completions[0].request_id]] = completions
    return found


def _solutions(
    llm: LLM, problems: Sequence[NanoProblem], n: int, seed: int, grader: Grader
) -> list[Solution]:
    prompt = load_prompt("policy_nano", needs=("problem",))
    ids = [tuple(llm.encode(render(prompt, problem=p.text))) for p in problems]
    drawn = _draw(llm, ids, n, seed, SAMPLED)
    rows = [(p, i, c) for p, i in zip(problems, ids, strict=True) for c in drawn[i]]
    grades = grader.grade_many([(c.text, Reference(p.answer), c.finish_reason) for p, _, c in rows])
    solutions = []
    for (problem, prompt_ids, c), grade in zip(rows, grades, strict=True):
        cut, _ = cut_best(c.text, truncated=c.finish_reason == "length")
        texts = tuple(chunk.text for chunk in cut.chunks)
        ends = token_ends(cut, c.token_ids, llm.decode)
        flags = tuple(sound(problem, texts))
        solutions.append(Solution(problem, prompt_ids, c.token_ids, texts, ends, grade.outcome, flags))
    return solutions


def _by_problem(solutions: Iterable[Solution]) -> dict[str, list[Solution]]:
    groups: dict[str, list[Solution]] = defaultdict(list)
    for solution in solutions:
        groups[solution.problem.key].append(solution)
    return groups


def _chosen(groups: Mapping[str, list[Solution]], problems: int) -> list[Solution]:
    """A right and a wrong solution of each of the first problems that have both."""
    chosen: list[Solution] = []
    for group in groups.values():
        usable = [s for s in group if s.chunks and None not in s.ends]
        right = next((s for s in usable if s.outcome == "correct"), None)
        wrong = next((s for s in usable if s.outcome == "wrong"), None)
        if right and wrong and len(chosen) < 2 * problems:
            chosen += [right, wrong]
    return chosen


def _labelled(
    llm: LLM,
    chosen: Sequence[Solution],
    groups: Mapping[str, list[Solution]],
    m: int,
    seed: int,
    grader: Grader,
) -> list[Judged]:
    """Every chunk of the chosen solutions with its labels from `m` rollouts a prefix."""
    answers: dict[tuple[int, ...], str] = {}
    for s in chosen:
        for end in s.ends[:-1]:
            answers[s.prompt + s.tokens[:end]] = s.problem.answer
        answers[s.prompt] = s.problem.answer
    drawn = _draw(llm, answers, m, seed + 1, SAMPLED)
    values: dict[tuple[int, ...], Value] = {}
    for ids, completions in drawn.items():
        grades = grader.grade_many([(c.text, Reference(answers[ids]), c.finish_reason) for c in completions])
        outcomes = [grade.outcome for grade in grades]
        values[ids] = value_of({outcome: outcomes.count(outcome) for outcome in set(outcomes)})
    judged = []
    for s in chosen:
        path = [values[s.prompt], *(values[s.prompt + s.tokens[:end]] for end in s.ends[:-1])]
        path.append(terminal_value(s.outcome))
        for i, text in enumerate(s.chunks):
            rules = tuple(label(rule, path[i], path[i + 1]) for rule in DEFAULT_RULES)
            ratio = label(REL_RATIO, path[i], path[i + 1])
            judged.append(Judged(s.problem, s.chunks[:i], text, rules, ratio, s.sound[i]))
    return judged


def _judge_ids(llm: LLM, problem: NanoProblem, history: Sequence[str], text: str) -> tuple[int, ...]:
    return tuple(llm.encode(fill(load_prompt("judge_nano"), problem.text, history, text)))


def _interval(
    units: Sequence[Sequence[Pair]], statistic: Callable[[np.ndarray], np.ndarray]
) -> tuple[float, ...]:
    """Value and 95 % percentile bootstrap over units; a unit is one (sum, count) for each column."""
    import numpy as np

    table = np.asarray(units, dtype=float).reshape(len(units), -1, 2)
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(table), (2000, len(table)))
    samples = statistic(table[picks].sum(axis=1))
    low, high = np.nanpercentile(samples, [2.5, 97.5])
    return float(statistic(table.sum(axis=0)[None])[0]), float(low), float(high)


def _fact(name: str, units: Mapping[str, Sequence[Pair]], at_least: float, at_most: float = 1.0) -> Fact:
    """The mean over columns of sum / count (one column: a share; right and wrong: balanced accuracy)."""
    import numpy as np

    rows = [u for u in units.values() if any(count for _, count in u)]
    if not rows:
        return Fact(name, float("nan"), 0.0, 1.0, at_least, at_most, 0)

    def balanced(sums: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return (sums[..., 0] / sums[..., 1]).mean(axis=-1)

    value, low, high = _interval(rows, balanced)
    return Fact(name, value, low, high, at_least, at_most, len(rows))


def _share(hits: Iterable[tuple[str, bool]]) -> dict[str, list[Pair]]:
    """(problem key, hit) pairs as one column of sums and counts."""
    sums: dict[str, list[bool]] = defaultdict(list)
    for key, hit in hits:
        sums[key].append(hit)
    return {key: [(sum(x), len(x))] for key, x in sums.items()}


def _balanced(hits: Iterable[tuple[str, bool, bool]]) -> dict[str, list[Pair]]:
    """(problem key, is the label +, hit) as two columns."""
    sums: dict[str, list[list[bool]]] = defaultdict(lambda: [[], []])
    for key, positive, hit in hits:
        sums[key][0 if positive else 1].append(hit)
    return {key: [(sum(x), len(x)) for x in columns] for key, columns in sums.items()}


def _policy_facts(groups: Mapping[str, list[Solution]]) -> list[Fact]:
    rates = {key: sum(s.outcome == "correct" for s in g) / len(g) for key, g in groups.items()}
    slipped = [
        (s.problem.key, s.outcome == "correct") for g in groups.values() for s in g if not all(s.sound)
    ]
    n = max(len(g) for g in groups.values())
    everything = [(s.problem.key, s.outcome == "correct") for g in groups.values() for s in g]
    return [
        _fact("pass@1 at temperature 1", _share(everything), 0.4, 0.75),
        _fact(
            "problems with a pass rate of 0.2 to 0.9",
            _share((k, 0.2 <= r <= 0.9) for k, r in rates.items()),
            0.5,
        ),
        _fact(
            f"problems with right and wrong among {n}",
            _share((k, 0 < r < 1) for k, r in rates.items()),
            1 / 3,
        ),
        _fact("solutions with an unsound chunk that end right", _share(slipped), 0.1),
    ]


def _rule_facts(judged: Sequence[Judged]) -> list[Fact]:
    known = [j for j in judged if None not in j.rules]
    return [
        _fact(
            "chunks on which the three rules disagree",
            _share((j.problem.key, len(set(j.rules)) > 1) for j in known),
            0.05,
        ),
        _fact(
            "chunks on which abs-q and rel-effective disagree",
            _share((j.problem.key, j.rules[0] != j.rules[1]) for j in known),
            0.005,
        ),
        _fact(
            "rel-ratio labels that agree with the arithmetic, balanced",
            _balanced((j.problem.key, j.rel_ratio == "+", j.sound == (j.rel_ratio == "+")) for j in known),
            0.6,
        ),
    ]


def _judge_facts(llm: LLM, judged: Sequence[Judged], seed: int) -> list[Fact]:
    """Accuracy of single judgments, and how often the four of a chunk disagree."""
    ids = [_judge_ids(llm, j.problem, j.history, j.text) for j in judged]
    drawn = _draw(llm, ids, 4, seed + 2, SAMPLED)
    by_label, by_truth, split = [], [], []
    for j, prompt in zip(judged, ids, strict=True):
        verdicts = [parse_verdict(c.text) for c in drawn[prompt]]
        split.append((j.problem.key, len(set(verdicts)) > 1))
        for verdict in verdicts:
            if j.rel_ratio:
                plus = j.rel_ratio == "+"
                by_label.append((j.problem.key, plus, verdict == ("positive" if plus else "negative")))
            by_truth.append((j.problem.key, j.sound, verdict == ("positive" if j.sound else "negative")))
    return [
        _fact("judge accuracy on balanced chunks, rel-ratio labels", _balanced(by_label), 0.55, 0.75),
        _fact("judge accuracy on balanced chunks, arithmetic truth", _balanced(by_truth), 0.55, 0.75),
        _fact("groups of four verdicts that disagree", _share(split), 0.3),
    ]


def _swap_facts(llm: LLM, groups: Mapping[str, list[Solution]], seed: int) -> list[Fact]:
    """Two different chunks under the same history: does the (most likely) analysis change?"""
    pairs = []
    for group in groups.values():
        following: dict[tuple[str, ...], dict[str, bool]] = defaultdict(dict)
        for s in group:
            for i, text in enumerate(s.chunks):
                following[s.chunks[:i]].setdefault(text, s.sound[i])
        for history, texts in following.items():
            good = [t for t, ok in texts.items() if ok and "=" in t]
            bad = [t for t, ok in texts.items() if not ok]
            if good and bad:
                pairs.append((group[0].problem, history, good[0], bad[0]))
    ids = [(_judge_ids(llm, p, h, good), _judge_ids(llm, p, h, bad)) for p, h, good, bad in pairs]
    drawn = _draw(llm, (i for pair in ids for i in pair), 1, seed + 3, GREEDY)
    keys = [problem.key for problem, *_ in pairs]
    said = [(drawn[good][0].text, drawn[bad][0].text) for good, bad in ids]
    changed = [
        (key, good.split("\\boxed")[0] != bad.split("\\boxed")[0])
        for key, (good, bad) in zip(keys, said, strict=True)
    ]
    told = [
        (key, (parse_verdict(good), parse_verdict(bad)) == ("positive", "negative"))
        for key, (good, bad) in zip(keys, said, strict=True)
    ]
    return [
        _fact("another chunk, same history: the analysis changes", _share(changed), 0.9),
        _fact("sound and unsound chunk told apart, greedy", _share(told), 0.3),
    ]


def nano_report(
    llm: LLM,
    problems: int = 100,
    n: int = 16,
    truth_problems: int = 24,
    m: int = 256,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure the facts on held-out problems: {"facts": [Fact…], "holds": bool, "settings": {…}}.

    `n` solutions of `problems` problems; labels from `m` rollouts of every prefix of two solutions of
    `truth_problems` of them (the first with right and wrong solutions). `llm` is policy and judge.
    """
    say = progress or (lambda message: None)
    with Grader() as grader:
        say(f"sampling {n} solutions of {problems} problems")
        groups = _by_problem(_solutions(llm, generate(problems, seed), n, seed, grader))
        chosen = _chosen(groups, truth_problems)
        say(f"rolling out {len(chosen)} solutions, {m} continuations a prefix")
        judged = _labelled(llm, chosen, groups, m, seed, grader)
    say(f"judging {len(judged)} chunks")
    facts = [*_policy_facts(groups), *_rule_facts(judged), *_judge_facts(llm, judged, seed)]
    facts += _swap_facts(llm, groups, seed)
    settings = {"problems": problems, "n": n, "truth_problems": len(chosen) // 2, "m": m, "seed": seed}
    return {"facts": facts, "holds": all(f.holds for f in facts), "settings": settings}


def show_report(report: Mapping[str, Any]) -> str:
    """The report as a table and, last, one line of JSON."""
    facts: list[Fact] = report["facts"]
    width = max(len(f.name) for f in facts)
    lines = [f"{'fact':{width}}  value  95 % interval  bar            holds  problems"]
    for f in facts:
        bar = f"{f.at_least:.3f} … {f.at_most:.2f}"
        lines.append(
            f"{f.name:{width}}  {f.value:5.3f}  {f.low:5.3f} – {f.high:5.3f}  {bar:13}  "
            f"{'yes' if f.holds else 'NO':5}  {f.units}"
        )
    rows = [
        # NaN (nothing to measure) is no JSON
        {**asdict(f), "value": f.value if f.units else None, "bar": [f.at_least, f.at_most], "holds": f.holds}
        for f in facts
    ]
    summary = {"name": "nano report", "holds": report["holds"], **report["settings"], "facts": rows}
    return "\n".join([*lines, json.dumps(summary)])

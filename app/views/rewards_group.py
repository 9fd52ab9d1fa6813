"""The group of solutions that the Rewards page compares: sampled solutions of one problem with a score for every chunk.

Scores come from what is stored: Q differences of rolled-out prefixes, or a judge's votes. Not: rewards and advantages
(``training.process_rewards``), and what is drawn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.widgets.value_words import fraction_words
from db.reads_list import TrajectoryFilter
from db.reads_trajectory import Sibling
from db.rows import StageTrajectory
from db.store import Store
from engine.labels import REL_RATIO, drop, label
from engine.pipeline.labelling import chunk_values
from training.process_rewards import Scored

ROLLOUTS = "rollouts"
"""The source that is no judge: how much chance of success a chunk gained or lost."""
MOST = 16
"""Solutions compared at most."""
SIBLINGS = 64
MUCH = 0.3
"""A fall of Q over one chunk that can be seen."""
LOOKED_AT = 50
"""Trajectories among which problems to show are looked for: a list, not the whole store."""


@dataclass(frozen=True)
class ScoredChunk:
    """``score``: in 0..1 from votes, in −1..1 from Q; ``said``: where it comes from; ``sign``: +, - or nothing."""

    idx: int
    text: str
    score: float
    said: str
    sign: str


@dataclass(frozen=True)
class Solution:
    """One sampled solution, every chunk of it scored."""

    id: int
    outcome: str
    n_tokens: int | None
    chunks: tuple[ScoredChunk, ...]

    @property
    def right(self) -> bool:
        return self.outcome == "correct"

    def scored(self) -> Scored:
        """As ``training.process_rewards`` takes it."""
        return Scored(tuple(chunk.score for chunk in self.chunks), float(self.right))


@dataclass(frozen=True)
class Source:
    """Where scores come from: ``key`` in the address, ``title`` (a judge's name is untrusted) and how many it scored."""

    key: str
    title: str
    solutions: int


@dataclass(frozen=True)
class Group:
    """The solutions with scores from ``source``, out of ``total`` sampled together."""

    problem: str
    reference: str
    verifier: str
    policy: str
    source: Source
    solutions: tuple[Solution, ...]
    total: int


@dataclass(frozen=True)
class Candidate:
    """A problem that can be shown: how many of its scored solutions are right and wrong; ``recovered``: a right one
    that lost much on its way."""

    problem_id: int
    right: int
    wrong: int
    recovered: bool

    @property
    def telling(self) -> tuple[bool, bool, int]:
        """Sort key: right and wrong ones together first, then one that erred and recovered, then the most of them."""
        return (min(self.right, self.wrong) > 0, self.recovered, self.right + self.wrong)


def candidates(store: Store) -> list[Candidate]:
    """Problems with at least two rolled-out or judged solutions sampled together, the most telling first.

    Looked for among the trajectories with the biggest drops, then among the newest ones; not a scan of the store.
    """
    problems: dict[int, None] = {}
    for sort in ("drop", "newest"):
        rows = store.trajectory_page(TrajectoryFilter(), sort=sort, limit=LOOKED_AT).rows
        problems |= dict.fromkeys(row.problem_id for row in rows)
    found = []
    for problem_id in problems:
        rolled = [row for row in sampled_together(store, problem_id) if row.biggest_drop is not None]
        paths = store.q_paths([row.id for row in rolled]) if rolled else {}
        # a thrifty run leaves values without a point
        scored = [row for row in rolled if None not in paths[row.id]]
        if len(scored) < 2:
            scored = _judged(store, problem_id)
        right = [row for row in scored if row.outcome == "correct"]
        if len(scored) >= 2:
            recovered = any((row.biggest_drop or 0) >= MUCH for row in right)
            found.append(Candidate(problem_id, len(right), len(scored) - len(right), recovered))
    return sorted(found, key=lambda one: one.telling, reverse=True)


def _judged(store: Store, problem_id: int) -> list[Sibling]:
    rows = sampled_together(store, problem_id)[:MOST] if store.judges() else []
    return [row for row in rows if row.n_chunks in _read_by(store, row.id).values()]


def _read_by(store: Store, trajectory_id: int) -> Counter[str]:
    """{judge: how many of the chunks it read}."""
    return Counter(name for votes in store.votes_of(trajectory_id).values() for name in votes)


def sampled_together(store: Store, problem_id: int) -> list[Sibling]:
    """The largest set of the problem's solutions that one policy sampled from the same prompt; else of one policy."""
    groups: dict[Any, list[Sibling]] = defaultdict(list)
    for row in store.siblings(problem_id, SIBLINGS):
        if row.n_chunks:
            groups[row.prefix_id if row.prefix_id is not None else row.policy].append(row)
    return max(
        groups.values(),
        key=lambda rows: (sum(row.biggest_drop is not None for row in rows), len(rows)),
        default=[],
    )


def read_group(store: Store, problem_id: int, asked: str | None) -> tuple[Group | None, list[Source]]:
    """(the group under the source that was asked for, all sources there are); None where no source scores two.

    An unknown source gives None beside the sources that there are; without one, rollouts come before judges.
    """
    rows = sampled_together(store, problem_id)
    wholes = store.stage_trajectories([row.id for row in rows])
    by_source = _from_judges(store, wholes)
    if by_q := _from_rollouts(store, wholes):
        by_source = {ROLLOUTS: by_q} | by_source
    names = {str(judge.id): judge.name for judge in store.judges()} | {ROLLOUTS: "Rollouts: how Q moved"}
    sources = [Source(key, names[key], len(found)) for key, found in by_source.items() if len(found) > 1]
    source = next((one for one in sources if asked in (None, one.key)), None)
    if source is None:
        return None, sources
    return (
        Group(
            problem=wholes[0].problem,
            reference=wholes[0].reference,
            verifier=wholes[0].verifier,
            policy=wholes[0].policy,
            source=source,
            solutions=tuple(_mixed(by_source[source.key])),
            total=len(rows),
        ),
        sources,
    )


def _mixed(solutions: Sequence[Solution]) -> list[Solution]:
    """At most ``MOST`` of them, wrong ones first; where there are more, both outcomes keep their place."""
    wrong = [one for one in solutions if not one.right]
    right = [one for one in solutions if one.right]
    n_wrong = min(len(wrong), max(MOST // 2, MOST - len(right)))
    return wrong[:n_wrong] + right[: MOST - n_wrong]


def _from_rollouts(store: Store, wholes: Sequence[StageTrajectory]) -> list[Solution]:
    """Solutions whose values are all known; a chunk's score is the value after it less the one before."""
    inputs = {row.trajectory_id: row for row in store.label_inputs([whole.id for whole in wholes])}
    found = []
    for whole in wholes:
        scored = []
        for chunk, (before, after) in zip(whole.chunks, chunk_values(inputs[whole.id]), strict=True):
            fall = drop(before, after)
            if fall is None:
                break
            said = f"Q {fraction_words(before)} → {fraction_words(after)}"
            sign = label(REL_RATIO, before, after) or ""
            scored.append(ScoredChunk(chunk.idx, chunk.text, -float(fall), said, sign))
        found += _whole(whole, scored)
    return found


def _from_judges(store: Store, wholes: Sequence[StageTrajectory]) -> dict[str, list[Solution]]:
    """By judge: the solutions of which it read every chunk; a chunk's score is the share of its positive verdicts, or
    the mean of the judge's own scores (a discriminative one)."""
    chunks = [chunk.id for whole in wholes for chunk in whole.chunks]
    votes = store.votes(chunks)
    scoring = {judge.id for judge in store.judges() if judge.kind == "discriminative"}
    found = {}
    for judge in sorted({judge for by_judge in votes.values() for judge in by_judge}):
        scores = store.chunk_scores(judge, chunks)
        mine = {chunk: by_judge[judge] for chunk, by_judge in votes.items() if judge in by_judge}
        found[str(judge)] = [
            one
            for whole in wholes
            for one in _whole(whole, list(_voted(whole, mine, scores, own=judge in scoring)))
        ]
    return found


def _voted(
    whole: StageTrajectory,
    votes: Mapping[int, tuple[int, int, int]],
    scores: Mapping[int, float],
    *,
    own: bool,
) -> Iterable[ScoredChunk]:
    """The chunks that one judge read; ``own``: its score is its own, not a share of verdicts."""
    for chunk in whole.chunks:
        if chunk.id in votes and chunk.id in scores:
            positive, negative, none = votes[chunk.id]
            sign = "+" if positive > negative else "-" if negative > positive else ""
            said = "p(+)" if own else f"{positive} of {positive + negative + none} verdicts +"
            yield ScoredChunk(chunk.idx, chunk.text, scores[chunk.id], said, sign)


def _whole(whole: StageTrajectory, scored: Sequence[ScoredChunk]) -> list[Solution]:
    """The solution in a list if every chunk of it has a score, else nothing."""
    if len(scored) != len(whole.chunks):
        return []
    n_tokens = len(whole.token_ids) if whole.token_ids else None
    return [Solution(whole.id, whole.outcome, n_tokens, tuple(scored))]

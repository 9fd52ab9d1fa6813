"""What the Rewards page says of the solutions it shows: sentences made from their numbers, never from a template's claim.

All words are ours; texts of chunks are not repeated here.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.views.rewards_group import ROLLOUTS, Group, Solution
from app.widgets.reward_rows import NOTHING, signed
from training.process_rewards import RewardComparison


def telling_solution(group: Group) -> Solution:
    """The one to read first: wrong, with the longest good beginning; else right with a bad chunk; else the first."""
    wrong = [one for one in group.solutions if not one.right]
    with_good_start = max(wrong, key=lambda one: len(good_start(one)), default=None)
    if with_good_start is not None and good_start(with_good_start):
        return with_good_start
    return next((one for one in group.solutions if one.right and bad_chunks(one)), group.solutions[0])


def good_start(solution: Solution) -> list[int]:
    """Indices of the ``+`` chunks before the first that is not ``+``; empty where no ``-`` follows."""
    start: list[int] = []
    for chunk in solution.chunks:
        if chunk.sign != "+":
            return start if bad_chunks(solution) else []
        start.append(chunk.idx)
    return []


def bad_chunks(solution: Solution) -> list[int]:
    return [chunk.idx for chunk in solution.chunks if chunk.sign == "-"]


def sentences(group: Group, compared: RewardComparison) -> list[str]:
    """Three sentences on what to see: a wrong solution's good chunks, a right one's bad chunk, the group as a whole."""
    return [
        _wrong_with_good_start(group, compared),
        _right_with_bad_chunk(group, compared),
        _whole_group(group, compared),
    ]


def _wrong_with_good_start(group: Group, compared: RewardComparison) -> str:
    one = telling_solution(group)
    start = good_start(one)
    if one.right or not start:
        return (
            "**No wrong solution here begins well**: each loses at its first chunk, or is scored + to its end, so the "
            "two rewards punish it alike or the scores missed its error."
            if any(not solution.right for solution in group.solutions)
            else "**No solution here is wrong**, so there is none whose good chunks a sparse reward would punish."
        )
    place = group.solutions.index(one)
    sparse, dense = compared.outcome_advantages[place], compared.step_advantages[place].chunks
    first_bad = bad_chunks(one)[0]
    return (
        f"**Solution {one.id} is wrong, and its {_chunks(start)} {'was' if len(start) == 1 else 'were'} good** "
        f"({_scores(one, start, group)}). Outcome only gives {signed(sparse)} to every chunk of it, good or bad. "
        f"A reward for each chunk gives {_each(start, dense)}, and {signed(dense[first_bad])} to chunk {first_bad}, "
        f"the first bad one: {_spared(start, dense, sparse)}."
    )


def _spared(start: Sequence[int], dense: Sequence[float], sparse: float) -> str:
    if all(dense[i] >= -NOTHING for i in start):
        return "what was good is no longer punished for what came later"
    if all(dense[i] > sparse for i in start):
        return "what was good is punished less for what came later"
    return "here it does not spare all of what was good, since their scores are below the group's mean"


def _right_with_bad_chunk(group: Group, compared: RewardComparison) -> str:
    found = [
        (compared.step_advantages[place].chunks[idx] - compared.outcome_advantages[place], place, idx)
        for place, one in enumerate(group.solutions)
        if one.right
        for idx in bad_chunks(one)
    ]
    if not found:
        if any(one.right for one in group.solutions):
            return "**No right solution here has a bad chunk**, so a sparse reward praises nothing that it should not."
        return (
            "**No solution here is right**, so there is none whose bad chunks a sparse reward would praise."
        )
    _, place, idx = min(found)
    one = group.solutions[place]
    sparse, dense = compared.outcome_advantages[place], compared.step_advantages[place].chunks[idx]
    verb = "praised all the same" if sparse > NOTHING else "not told apart from the others"
    return (
        f"**Solution {one.id} is right in the end, although chunk {idx} was bad** "
        f"({_scores(one, [idx], group)}): under outcome only that chunk is {verb} ({signed(sparse)}), "
        f"under a reward for each chunk it gets {signed(dense)}."
    )


def _whole_group(group: Group, compared: RewardComparison) -> str:
    dense = [value for row in compared.step_advantages for value in row.chunks]
    sparse = [
        value
        for value, one in zip(compared.outcome_advantages, group.solutions, strict=True)
        for _ in one.chunks
    ]
    apart = sum(abs(value) >= NOTHING for value in dense)
    if all(abs(value) < NOTHING for value in compared.outcome_advantages):
        same = "right" if group.solutions[0].right else "wrong"
        return (
            f"**All {len(group.solutions)} solutions are {same}, so outcome only teaches nothing here**: every advantage "
            f"is 0. A reward for each chunk still tells {apart} of {len(dense)} chunks apart."
        )
    against = sum(a * b < 0 for a, b in zip(sparse, dense, strict=True))
    return (
        f"**On {against} of {len(dense)} chunks the two rewards pull in opposite directions.** Outcome only knows "
        f"{len({round(value, 6) for value in sparse})} values in this group, a reward for each chunk "
        f"{len({round(value, 6) for value in dense})}: that is what sparse and dense mean."
    )


def _chunks(indices: Sequence[int]) -> str:
    if len(indices) == 1:
        return f"chunk {indices[0]}"
    if len(indices) == 2:
        return f"chunks {indices[0]} and {indices[1]}"
    return f"chunks {indices[0]} to {indices[-1]}"


def _each(indices: Sequence[int], values: Sequence[float]) -> str:
    if len(indices) > 3:
        low, high = min(values[i] for i in indices), max(values[i] for i in indices)
        return f"them {signed(low)} to {signed(high)}"
    return ", ".join(f"{signed(values[i])} to chunk {i}" for i in indices)


def _scores(one: Solution, indices: Sequence[int], group: Group) -> str:
    if group.source.key == ROLLOUTS:
        first, last = one.chunks[indices[0]].said, one.chunks[indices[-1]].said
        return f"{first.split(' → ')[0]} → {last.split(' → ')[1]}"
    scores = [one.chunks[i].score for i in indices]
    if len(scores) == 1:
        return f"score {scores[0]:.2f}: {one.chunks[indices[0]].said}"
    return f"scores {min(scores):.2f} to {max(scores):.2f}"


def sum_pays_for_chunks(group: Group) -> str:
    """What ``sum`` pays the solutions with the fewest and the most chunks; nothing where all have as many."""
    sums = [(len(one.chunks), sum(chunk.score for chunk in one.chunks), one) for one in group.solutions]
    few, many = min(sums, key=lambda row: row[0]), max(sums, key=lambda row: row[0])
    if few[0] == many[0]:
        return ""
    pays = "the longer one is paid more" if many[1] > few[1] else "the longer one is not paid more here"
    return (
        f"In this group, **sum** pays solution {few[2].id} ({few[0]} chunks, {_outcome(few[2])}) {signed(few[1])} and "
        f"solution {many[2].id} ({many[0]} chunks, {_outcome(many[2])}) {signed(many[1])}: {pays}."
    )


def _outcome(one: Solution) -> str:
    return "right" if one.right else "wrong"


def telescopes(group: Group) -> str:
    """For Q differences: that their sum is the outcome less the first value, with the numbers of one solution."""
    if group.source.key != ROLLOUTS:
        return ""
    one = telling_solution(group)
    if one.outcome == "truncated":  # where it was cut off there is a chance, not an outcome
        ended = [other for other in group.solutions if other.outcome != "truncated"]
        if not ended:
            return ""
        one = ended[0]
    total = sum(chunk.score for chunk in one.chunks)
    return (
        f"Q differences summed over a solution leave only where it began and ended: {signed(total)} for solution "
        f"{one.id}, its outcome {int(one.right)} less the chance at the start. So **sum** of them is the outcome again."
    )

"""What a rollout recipe will draw and how long it takes, from what earlier runs of its policy measured here.

Rates, tokens a rollout, the share that solutions shared, and the share that thrift or a search spared: each from the last
run that measured it, and named with it. Nothing is guessed: what no run measured is not subtracted, and said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.rows import RunRow
from engine.errors import RecipeError
from engine.labels import parse_rule
from engine.recipes import RolloutRecipe

SHARING, THRIFT, SEARCH = "spared_by_sharing", "spared_by_thrift", "spared_by_search"


@dataclass(frozen=True)
class Saving:
    """``share`` of the rollouts that would otherwise be drawn, as run ``run_id`` measured."""

    share: float
    run_id: int


@dataclass(frozen=True)
class Pace:
    """Of an earlier run: rollouts and tokens a second. ``but``: what differs from the run that is asked for."""

    run_id: int
    rollouts_per_s: float
    tokens_per_s: float
    but: str = ""

    @property
    def tokens_each(self) -> float:
        return self.tokens_per_s / self.rollouts_per_s


@dataclass(frozen=True)
class RolloutForecast:
    """``most``: M draws of every prefix; ``count``: what is left of them; ``lines``: all of it in words."""

    most: int
    count: int
    tokens: float | None
    seconds: float | None
    pace: Pace | None
    lines: tuple[str, ...]


def rollout_forecast(recipe: RolloutRecipe, most: int, runs: Sequence[RunRow]) -> RolloutForecast:
    """``most``: rollouts if every prefix were drawn out by itself; ``runs``: earlier rollout runs, newest first."""
    from app.forecast import duration

    mine = [run for run in runs if _policy(run.recipe) == _policy(recipe.model_dump(mode="json"))]
    lines = [f"{most:,} rollouts at most: M = {recipe.m} from every prefix, less what is stored already"]
    count = float(most)
    steps = [("what solutions share", _sharing(mine))]
    if recipe.places == "first-error":
        steps.append(("what the search need not look at", _searched(mine, recipe)))
    if recipe.rules:
        steps.append((f"thrift under {', '.join(recipe.rules)}", _thrift(mine, recipe)))
    for what, saving in steps:
        if saving is None:
            lines.append(f"− {what}: some, but no run has measured it yet")
        elif saving.share > 0:
            spared = count * saving.share
            count -= spared
            lines.append(
                f"− {what}: about {spared:,.0f} ({saving.share:.0%}, as run {saving.run_id} measured)"
            )
        else:
            lines.append(f"− {what}: nothing, as run {saving.run_id} measured")
    if len(lines) > 1:
        lines.append(f"= about {count:,.0f} rollouts")
    pace = _pace(mine, recipe) or _pace(runs, recipe)
    if pace is None:
        lines.append("no rollout run has been measured yet, so no tokens and no time")
        return RolloutForecast(most, round(count), None, None, None, tuple(lines))
    tokens, seconds = count * pace.tokens_each, count / pace.rollouts_per_s
    lines.append(
        f"about {tokens:,.0f} tokens ({pace.tokens_each:,.0f} a rollout) in {duration(seconds)}: run {pace.run_id} drew "
        f"{pace.tokens_per_s:,.0f} tokens/s and {pace.rollouts_per_s:,.1f} rollouts/s{pace.but}"
    )
    return RolloutForecast(most, round(count), tokens, seconds, pace, tuple(lines))


def _policy(recipe: Mapping[str, Any]) -> str | None:
    llm = recipe.get("llm")
    return str(llm.get("checkpoint")) if isinstance(llm, Mapping) else None


def _number(run: RunRow, name: str) -> float | None:
    value = run.result.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def distinct(run: RunRow) -> float | None:
    """M draws of every prefix that the run saw, each prefix once; None where its result does not say."""
    if run.total is None or _number(run, SHARING) is None:
        return None
    return run.total + (_number(run, THRIFT) or 0) + (_number(run, SEARCH) or 0)


def _sharing(runs: Sequence[RunRow]) -> Saving | None:
    """Of the last run over more than one solution: sharing is between solutions."""
    for run in runs:
        once, shared = distinct(run), _number(run, SHARING)
        if once and shared is not None and (_number(run, "trajectories") or 0) > 1:
            return Saving(shared / (once + shared), run.id)
    return None


def _thrift(runs: Sequence[RunRow], recipe: RolloutRecipe) -> Saving | None:
    """Of the last run under the same rules with the same M and the same places."""
    for run in runs:
        if not _same_rules(run.recipe.get("rules"), recipe.rules) or run.recipe.get("m") != recipe.m:
            continue
        spared, once = _number(run, THRIFT), distinct(run)
        if run.recipe.get("places", "all") == recipe.places and spared is not None and once:
            return Saving(spared / (once - (_number(run, SEARCH) or 0)), run.id)
    return None


def _searched(runs: Sequence[RunRow], recipe: RolloutRecipe) -> Saving | None:
    for run in runs:
        spared, once = _number(run, SEARCH), distinct(run)
        if run.recipe.get("places") == recipe.places and spared is not None and once:
            return Saving(spared / once, run.id)
    return None


def _same_rules(theirs: Any, ours: Sequence[str]) -> bool:
    try:
        return {parse_rule(str(rule)) for rule in theirs or ()} == {parse_rule(rule) for rule in ours}
    except RecipeError:
        return False


def _pace(runs: Sequence[RunRow], recipe: RolloutRecipe) -> Pace | None:
    """Of the last run that drew anything."""
    asked = recipe.model_dump(mode="json")
    for run in runs:
        rollouts, tokens = _number(run, "rollouts_per_s"), _number(run, "tokens_per_s")
        if not rollouts or not tokens:
            continue
        return Pace(run.id, rollouts, tokens, _differences(run.recipe, asked))
    return None


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """What else the rate was measured with, in words."""
    said = []
    if _policy(theirs) != _policy(ours):
        said.append(f"with {_policy(theirs)}")
    their_llm, our_llm = theirs.get("llm") or {}, ours.get("llm") or {}
    for name, words in (("door", "through the door {}"), ("servers", "with {} servers")):
        one, other = their_llm.get(name), our_llm.get(name)
        if one is not None and one != other:
            said.append(words.format(len(one) if isinstance(one, list | tuple) else one))
    their_most = (theirs.get("draws") or {}).get("max_tokens")
    if their_most is not None and their_most != (ours.get("draws") or {}).get("max_tokens"):
        said.append(f"with {their_most:,} tokens at most")
    return f", but {' and '.join(said)}" if said else ""

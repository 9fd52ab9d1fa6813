"""A rollout run on one page: outcomes, what was spared and how, throughput and waiting over time, recipe, versions.

One HTML file that needs nothing from outside and runs no script (its own policy forbids both); every text in it is
escaped. Every number is read from the run's result, its metrics or its rows; what was not measured is said. Not: values
and labels, which the pages show.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

from app.forecast import duration
from app.report_pictures import Series, areas_svg, lines_svg
from app.widgets.safe_text import visible
from db.rows import MetricRow, RunRow
from db.run_rollouts import RunOutcomes
from db.store import Store
from engine.errors import RecipeError
from engine.values import COUNTED

METRICS = ("tokens_per_s", "prefixes_per_s", "waiting_llm", "waiting_grader", "waiting_store")
OUTCOMES = {
    "correct": "correct",
    "wrong": "wrong",
    "unparsed": "no answer found",
    "truncated": "cut off at the token limit",
    "error": "grading failed",
}
TONES = {"correct": "t0", "wrong": "t1"}
SPARED = {
    "spared_by_sharing": "beginnings that solutions share, drawn once",
    "spared_by_samples": "bare problems, whose value is the pass rate of their sampled solutions",
    "spared_by_grades": "finished solutions, graded and not rolled out",
    "spared_by_thrift": "stopped early: the labels asked for could no longer change",
    "spared_by_search": "never rolled out: the search did not have to look there",
}
"""What a run's result says it did not have to draw, and why."""
WAITING = {"waiting_llm": "the language model", "waiting_grader": "the grader", "waiting_store": "the store"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Savings:
    """Rollouts. ``all``: M draws of every prefix of every solution by itself, a bare problem that was sampled once;
    ``spared``: {why: how many}; ``there``: in the store before; ``drawn`` by this run."""

    all: int
    spared: Mapping[str, int]
    there: int
    drawn: int


def savings(run: RunRow, drawn: int) -> Savings:
    """What the run's result says; a run without one has spared nothing that is known."""
    spared = {name: int(run.result[name]) for name in SPARED if isinstance(run.result.get(name), int)}
    done = max(run.done, drawn)
    return Savings(done + sum(spared.values()), spared, done - drawn, drawn)


def report_html(store: Store, run_id: int) -> str:
    """The page as text. Raises NotFoundError, and RecipeError for a run of another kind."""
    run = store.run(run_id)
    if run.kind != "rollout":
        raise RecipeError(f"run {run_id} is of kind {run.kind}; a report is made of rollout runs")
    outcomes = store.run_outcomes(run_id)
    series = store.metrics(run_id, METRICS)
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    title = f"Rollout run {run.id}"
    parts = [
        _head(run, outcomes, series),
        _outcomes(outcomes),
        _savings(savings(run, _drawn(outcomes)), run.result.get("too_long"), partial=outcomes.partial),
        _throughput(run, series),
        _waiting(series),
        "" if outcomes.partial else _served(run.result.get("served_by")),
        _repeat(run),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{style}</style></head>\n'
        f"<body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def _drawn(outcomes: RunOutcomes) -> int:
    return sum(n for n, _ in outcomes.counts.values())


def _text(value: object, limit: int = 200) -> str:
    line = visible(str(value))
    return html.escape(line if len(line) <= limit else line[: limit - 1] + "…")


# ---- parts


def _head(run: RunRow, outcomes: RunOutcomes, series: Mapping[str, Sequence[MetricRow]]) -> str:
    llm = run.recipe.get("llm") or {}
    drawn, tokens = _drawn(outcomes), sum(n for _, n in outcomes.counts.values())
    at_work = seconds_at_work(series)
    cards = [(f"{drawn:,}", "rollouts drawn"), (f"{tokens:,}", "tokens drawn")]
    if isinstance(prefixes := run.result.get("prefixes"), int):
        cards.append((f"{prefixes:,}", "prefixes drawn from"))
    if isinstance(solutions := run.result.get("trajectories"), int):
        cards.append((f"{solutions:,}", "solutions"))
    if isinstance(rate := run.result.get("tokens_per_s"), int | float):
        cards.append((f"{rate:,.0f}", "tokens a second"))
    if at_work:
        cards.append((duration(at_work), "at work"))
    when = f"{run.ended_at:%Y-%m-%d %H:%M} UTC" if run.ended_at else "not ended yet"
    attempts = f", {run.attempt} attempts" if run.attempt > 1 else ""
    policy = _text(llm.get("name") or llm.get("checkpoint") or "unknown")
    rules = ", ".join(_text(rule) for rule in run.recipe.get("rules") or ()) or "none: every draw is made"
    facts = f"M = {_text(run.recipe.get('m', '?'))} · labels that must be right: {rules}"
    if run.recipe.get("places") == "first-error":
        facts += " · binary search for the first error"
    boxes = "".join(f'<div class="card"><b>{value}</b><span>{name}</span></div>' for value, name in cards)
    return (
        f"<h1>Rollout run {run.id}</h1>\n"
        f'<p class="quiet">Policy <b>{policy}</b> · {_text(run.status)}{attempts} · ended {when} · '
        f"started by {_text(run.actor)}</p>\n<p>{facts}</p>\n"
        f'<div class="cards">{boxes}</div>'
    )


def seconds_at_work(series: Mapping[str, Sequence[MetricRow]]) -> int:
    """Seconds of all attempts that the metrics cover; 0 where there are none."""
    return max((row.step for rows in series.values() for row in rows), default=0)


def _outcomes(outcomes: RunOutcomes) -> str:
    total = _drawn(outcomes)
    if not total:
        return "<h2>Outcomes</h2><p>This run drew nothing: all that it wants was in the store.</p>"
    rows = []
    for name, words in OUTCOMES.items():
        n, tokens = outcomes.counts.get(name, (0, 0))
        mean = f"{tokens / n:,.0f}" if n else "–"
        rows.append(_row(words, n, total, TONES.get(name, "t2"), mean))
    graded = sum(outcomes.counts.get(name, (0, 0))[0] for name in COUNTED)
    right, cut = (outcomes.counts.get(name, (0, 0))[0] for name in ("correct", "truncated"))
    said = f"{right / graded:.1%} of what was graded is correct; " if graded else ""
    said += f"{cut / total:.1%} of all rollouts were cut off before they ended."
    left = (
        "<p class='quiet'>Rollouts of solutions that you still review blind are left out.</p>"
        if outcomes.partial
        else ""
    )
    head = _heads(("Outcome", ""), ("", ""), ("Rollouts", "n"), ("Share", "n"), ("Tokens each", "n"))
    return f"<h2>Outcomes</h2>\n<p>{said}</p>{left}\n<table>{head}{''.join(rows)}</table>"


def _heads(*heads: tuple[str, str]) -> str:
    return "<tr>" + "".join(f'<th class="{kind}">{title}</th>' for title, kind in heads) + "</tr>"


def _row(name: str, n: int, of: int, tone: str, *more: str, strong: bool = False) -> str:
    share = n / of if of else 0.0
    bar = f'<td class="bar"><i class="{tone}" style="width:{100 * share:.2f}%"></i></td>'
    cells = "".join(f'<td class="n">{one}</td>' for one in (f"{n:,}", f"{share:.1%}", *more))
    return f"<tr{' class=sum' if strong else ''}><td>{name}</td>{bar}{cells}</tr>\n"


def _savings(found: Savings, too_long: object, *, partial: bool) -> str:
    if partial:
        return "<h2>What was spared</h2>\n<p>Not counted: some rollouts of this run are hidden from you.</p>"
    head = _heads(("", ""), ("", ""), ("Rollouts", "n"), ("Share", "n"))
    every = "M draws of every prefix of every solution, each by itself; a bare problem that was sampled, once"
    rows = [_row(every, found.all, found.all, "t2")]
    rows += [_row(f"− {SPARED[name]}", n, found.all, "t1") for name, n in found.spared.items() if n]
    if found.there:
        rows.append(_row("− in the store before this run", found.there, found.all, "t1"))
    rows.append(_row("drawn by this run", found.drawn, found.all, "t0", strong=True))
    unsaid = "" if found.spared else "<p class='quiet'>The run has no result that says what it spared.</p>"
    if isinstance(too_long, int) and too_long:
        some = "1 prefix does" if too_long == 1 else f"{too_long:,} prefixes do"
        unsaid += f"<p>{some} not fit the context: no rollouts there, and no value.</p>"
    return f"<h2>What was spared</h2>{unsaid}\n<table>{head}{''.join(rows)}</table>"


def _throughput(run: RunRow, series: Mapping[str, Sequence[MetricRow]]) -> str:
    panels = [
        (title, line)
        for name, title in (("tokens_per_s", "tokens a second"), ("prefixes_per_s", "prefixes a second"))
        if (line := _series(title, series.get(name, ())))
    ]
    if not panels:
        return "<h2>Throughput</h2>\n<p>Not measured: the run was over within the first seconds, or an earlier version made it.</p>"
    said = "; ".join(f"{title}: {mean_of(line):,.1f} on the whole" for title, line in panels)
    rate = run.result.get("rollouts_per_s")
    also = f" {rate:,.1f} rollouts a second in the last attempt." if isinstance(rate, int | float) else ""
    picture = lines_svg("throughput", panels, f"Throughput over the run. {said}.")
    return (
        f"<h2>Throughput</h2>\n<p>{said[:1].upper()}{said[1:]}.{also}</p>\n<div class='fig'>{picture}</div>"
    )


def _waiting(series: Mapping[str, Sequence[MetricRow]]) -> str:
    parts = [line for name, words in WAITING.items() if (line := _series(words, series.get(name, ())))]
    if len(parts) < len(WAITING) or len({tuple(part.seconds) for part in parts}) > 1:
        return "<h2>Where the time went</h2>\n<p>Not measured.</p>"
    own = [max(0.0, 1 - sum(values)) for values in zip(*(part.values for part in parts), strict=True)]
    parts.append(Series("its own work", parts[0].seconds, own))
    said = "; ".join(f"{mean_of(part):.1%} {part.name}" for part in parts)
    picture = areas_svg("waiting", parts, f"Shares of the run's time over its length. On the whole: {said}.")
    return f"<h2>Where the time went</h2>\n<p>Waiting for, on the whole: {said}.</p>\n<div class='fig'>{picture}</div>"


def _served(members: object) -> str:
    """Which server or engine drew how much; nothing where there was one."""
    if not isinstance(members, Mapping) or not members:
        return ""
    total = sum(use["draws"] for use in members.values())
    rows = [
        _row(_text(name), use["draws"], total, "t0", f"{use['handed_on']:,}", f"{use['outages']:,}")
        for name, use in members.items()
    ]
    head = _heads(
        ("In the last attempt", ""),
        ("", ""),
        ("Rollouts", "n"),
        ("Share", "n"),
        ("Requests that others took over", "n"),
        ("Outages", "n"),
    )
    return f"<h2>Who drew</h2>\n<table>{head}{''.join(rows)}</table>"


def _series(name: str, rows: Sequence[MetricRow]) -> Series | None:
    known = [(float(row.step), float(row.value)) for row in rows if row.value is not None and row.step > 0]
    return Series(name, [at for at, _ in known], [value for _, value in known]) if known else None


def mean_of(series: Series) -> float:
    """Its mean over time: each value holds from the second before it on."""
    spans = [now - before for before, now in pairwise((0.0, *series.seconds))]
    return sum(v * s for v, s in zip(series.values, spans, strict=True)) / sum(spans)


def _repeat(run: RunRow) -> str:
    recipe = yaml.safe_dump(run.recipe, sort_keys=False, allow_unicode=True, default_flow_style=None).rstrip()
    times = {
        "queued": run.created_at,
        "started": run.started_at,
        "ended": run.ended_at,
    }
    facts = {
        "versions": run.versions,
        "prompts, by the hash of their wording": run.prompt_hashes,
        "times (UTC)": {name: f"{at:%Y-%m-%d %H:%M:%S}" for name, at in times.items() if at},
    }
    boxes = "".join(
        f"<p class='quiet'>{title[:1].upper()}{title[1:]}</p><pre>{_lines(pairs.items())}</pre>"
        for title, pairs in facts.items()
        if pairs
    )
    return (
        '<h2>To repeat it</h2>\n<div class="two"><div><p class="quiet">Recipe, every field</p>'
        f"<pre>{_text(recipe, limit=20_000)}</pre></div><div>{boxes}</div></div>"
    )


def _lines(pairs: Iterable[tuple[str, object]]) -> str:
    return "\n".join(f"{_text(name)}  {_text(value)}" for name, value in pairs)


def write_report(store: Store, run_id: int, out: Path) -> int:
    """Write the page to ``out``; returns its bytes. Raises as ``report_html`` does, and OSError."""
    data = report_html(store, run_id).encode("utf-8", errors="replace")
    out.write_bytes(data)
    return len(data)

"""docs/lab.md from what is finished: the comparisons, what they cost, and every run behind them.

Every number is read from a run's stored result, or counted from runs; what is not finished is named. Not: the
comparisons themselves (``sections``) or the figures' drawing (``pictures``).
"""

from __future__ import annotations

import platform
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from app.lab.findings import Findings
from app.lab.run import Standing, seconds_of
from app.lab.sections import PAPER, ablations, majority, search, selection, signals, table
from app.machine import GIB, this_machine
from app.runs import duration
from db.rows import RunRow

NAMED = 40
"""Unfinished parts that are named one by one."""


def write_report(found: Standing, out: Path, *, command: str) -> list[Path]:
    """Write the report to ``out`` and its figures into the folder of that name; returns the figures' paths."""
    findings = Findings(found)
    folder = out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    sections = [
        _head(found, command),
        _data(findings),
        signals(findings, folder),
        ablations(findings, folder),
        majority(findings, folder),
        search(findings, folder),
        selection(findings, folder),
        _costs(found),
        _method(),
        _settings(found),
        _appendix(found),
    ]
    out.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return sorted(folder.glob("*.svg"))


def _head(found: Standing, command: str) -> str:
    here, recipe = this_machine(), found.recipe
    done = len(found.state.done)
    versions: dict[str, set[str]] = defaultdict(set)
    for row in found.state.done.values():
        for name, version in row.versions.items():
            versions[name].add(version)
    libraries = ", ".join(f"{name} {' and '.join(sorted(some))}" for name, some in sorted(versions.items()))
    gpus = ", ".join(map(str, here.gpus)) or "no GPU"
    lines = [
        "# The laboratory",
        "The paper's comparisons, rerun small in the nano world: generated arithmetic, a policy and judges of a few "
        "million parameters, every run of the same kinds as for a large model. Only directions can be compared with "
        "the paper: another world, another size, and stepwise accuracy on held-out chunks instead of ProcessBench.",
        f"Made by `{command}` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC from run {found.run.id} ({found.run.status}) "
        f"and its parts; do not edit. Machine: {_processor()}, {here.cores} cores, "
        f"{here.memory_total / GIB:.0f} GiB, {gpus}, Python {platform.python_version()}. {libraries}.",
        f"**{done} of {len(found.lab.parts)} parts are finished**, of {recipe.seeds} "
        f"seed{'s' if recipe.seeds > 1 else ''}.",
    ]
    if found.missing:
        by_kind = Counter(part.kind for part in found.lab.parts if part.name in set(found.missing))
        lines[-1] += " Not finished: " + ", ".join(f"{n} {kind}" for kind, n in by_kind.items()) + "."
        lines += ["\n".join(f"- {name}: {_unfinished(found, name)}" for name in found.missing[:NAMED])]
        if len(found.missing) > NAMED:
            lines += [f"- and {len(found.missing) - NAMED} more"]
    return "\n\n".join(lines)


def _processor() -> str:
    """What the processor is called, where the system says so (Linux)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _unfinished(found: Standing, name: str) -> str:
    row = found.state.open.get(name)
    if row is not None:
        return f"run {row.id} {row.status}"  # why is in its log: errors name this machine's folders
    return found.state.refused.get(name, "not begun").splitlines()[0]


def _data(findings: Findings) -> str:
    done = findings.found.state.done
    rows = []
    for name, row in done.items():
        result = row.result
        if row.kind == "sample":
            what = f"{result['problems']} problems, pass rate {result['pass_rate']:.3f}, {result['mixed_problems']} mixed"
        elif row.kind == "rollout":
            what = f"{row.done:,} rollouts, M = {row.recipe['m']}"
        elif row.kind == "build-set":
            counts = result["counts"]
            what = f"{counts['train']} chunks to train on, {counts['held_out']} kept back; of {counts['chunks']} chunks "
            what += f"{counts.get('unsure', 0)} were unsure, {counts['positive']} + and {counts['negative']} − were left"
        else:
            continue
        rows.append([name, what, str(row.id)])
    return "## Data\n\n" + (table(["part", "what", "run"], rows) if rows else "Not finished.")


def _costs(found: Standing) -> str:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for row in found.state.done.values():
        if (seconds := seconds_of(row)) is not None:
            by_kind[row.kind].append(seconds)
    rows = [
        [
            kind,
            str(len(some)),
            duration(sum(some) / len(some)),
            duration(max(some)),
            duration(sum(some)),
        ]
        for kind, some in by_kind.items()
    ]
    return (
        f"## What it cost\n\nWall time of each run's last attempt, {found.recipe.jobs} side by side.\n\n"
        + table(["kind", "runs", "mean", "longest", "together"], rows)
    )


def _method() -> str:
    return (
        "## How the intervals are made\n\n"
        "Every figure is a mean over seeds of trainings; brackets are 95 % intervals. The variance of a mean adds the "
        "problems' (the ratio's linearisation, clustered by problem) and s²/S of the S seeds' accuracies; the interval is "
        "Student's t with Satterthwaite's degrees of freedom, so three seeds give wide intervals rather than lucky ones. "
        "Differences are taken problem by problem. A direction *holds* when the whole interval of the difference lies on "
        "the paper's side of 0, *does not hold* when it lies on the other, and is *inside the noise* otherwise; with one "
        "seed of a trained thing nothing is decided. An untrained judge or policy has no seed: only the problems' chance "
        f"counts. The paper's figures: {PAPER}."
    )


def _settings(found: Standing) -> str:
    text = ["## Settings", "The laboratory:", _yaml(found.run.recipe)]
    shown: set[str] = set()
    for row in found.state.done.values():
        if row.kind.startswith("train-") and row.kind not in shown:
            shown.add(row.kind)
            text += [f"{row.kind} (run {row.id}, {row.name}):", _yaml(row.recipe)]
    return "\n\n".join(text)


def _yaml(data: dict[str, Any]) -> str:
    return f"```yaml\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None)}```"


def _appendix(found: Standing) -> str:
    rows = [
        [
            name,
            row.kind,
            str(row.id),
            str(row.recipe.get("seed", "")),
            str(row.attempt),
            "" if (seconds := seconds_of(row)) is None else duration(seconds),
            _in_short(row),
        ]
        for name, row in found.state.done.items()
    ]
    head = ["part", "kind", "run", "seed", "attempts", "time", "result"]
    return (
        "## Every run\n\nIds are those of the laboratory's own store.\n\n"
        + table(head, rows)
        + f"\n\nNot finished: {len(found.missing)}."
    )


def _in_short(row: RunRow) -> str:
    """The figure by which a run is known."""
    result = row.result
    if row.kind == "evaluate-judge":
        return "; ".join(
            f"{name} {one['accuracy']:.3f} (n {one['n']})" for name, one in result["measures"].items()
        )
    if row.kind == "evaluate-policy":
        return f"accuracy {result['accuracy']:.3f} (n {result['n']})"
    if row.kind == "search":
        return f"chunk-reset {result['chunk-reset']['accuracy']:.3f} (n {result['chunk-reset']['n']})"
    return next((f"{key} {result[key]}" for key in ("checkpoint", "set", "judge") if key in result), "")

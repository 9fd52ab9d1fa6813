"""The report's sections that compare: tables with intervals beside the paper's figures, and their pictures.

A direction is decided by the interval of the difference, never by hand; where a figure is not finished the section
says so. Not: how figures are read (``findings``) or drawn (``pictures``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from app.lab import pictures
from app.lab.cells import ABLATIONS, RULES, SURE
from app.lab.findings import Comparison, Findings, judged, searched, solved
from app.lab.intervals import Estimate
from app.lab.pictures import Bar
from db.rows import RunRow
from engine.labels import parse_rule

REL = "rel-ratio"
PAPER = "StepWiser, 2508.19229, 7B unless it says 1.5B; judges on ProcessBench"
PAPER_SIGNALS = {"abs-q": "35.7–39.7 → 53.8", "rel-effective": "35.7–39.7 → 61.9", REL: "35.7–39.7 → 60.5"}
PAPER_RSFT = "23.1 → 36.2 (1.5B)"
PAPER_ABLATIONS = {
    "no-cot": "60.5 against 47.9",
    "no-balance": "60.5 against 47.9",
    "all-labels": "not in the paper: ours",
    "after-errors": "not in the paper: ours",
}
PAPER_MAJORITY = "maj@8: +1.3 … +2.2"
PAPER_SEARCH = "57.4 → 63.3"
PAPER_SELECTION = "60.1 → 63.0"
BAR_POINTS = 15
"""Points of accuracy that the trained judge should gain over its base."""


def points(found: Estimate | None, *, signed: bool = False) -> str:
    """``71.3 [68.0, 74.6]``: in percent, or percentage points where ``signed``; how many seeds, if not all alike."""
    if found is None:
        return "not finished"
    sign = "+" if signed else ""
    text = f"{100 * found.value:{sign}.1f} [{100 * found.low:{sign}.1f}, {100 * found.high:{sign}.1f}]"
    return text + (" (1 seed)" if found.seeds == 1 else "")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _compared(rows: Sequence[Comparison]) -> str:
    return table(
        ["compared", "difference, points", "the paper", "direction"],
        [[row.what, points(row.gap, signed=True), row.paper, row.verdict] for row in rows],
    )


def _picture(folder: Path, name: str, about: str, drawn: bool) -> str:
    """The figure's line, or nothing where there was nothing to draw."""
    path = folder / f"{name}.svg"
    if not drawn:
        path.unlink(missing_ok=True)
        return ""
    return f"\n\n![{about}]({folder.name}/{path.name})"


def signals(findings: Findings, folder: Path) -> str:
    rules = findings.found.recipe.rules
    text = ["## Label rules, discriminative and generative judges"]
    for yardstick in ("own rule", REL):
        rows, bars = [], []
        for rule in rules:
            read = judged(rule if yardstick == "own rule" else REL)
            base, sft, grpo = (
                findings.estimate(key, read) for key in ("base", f"sft {rule}", f"grpo {rule}")
            )
            gap = findings.gap(f"grpo {rule}", f"sft {rule}", read)
            verdict = Comparison(rule, "", "", gap, PAPER_SIGNALS[rule]).verdict
            rows.append(
                [
                    rule,
                    points(base),
                    points(sft),
                    points(grpo),
                    points(gap, signed=True),
                    PAPER_SIGNALS[rule],
                    verdict,
                ]
            )
            bars += [Bar(rule, "discriminative", sft), Bar(rule, "generative (GRPO)", grpo)]
            bars += [Bar(rule, "base", base)]
        head = ["rule", "base", "discriminative", "generative (GRPO)", "difference", "the paper", "direction"]
        what = "labels of the judge's own rule" if yardstick == "own rule" else f"labels of {REL}, for all"
        drawn = pictures.bars(
            folder / f"signals-{yardstick.replace(' ', '-')}.svg", bars, "accuracy, %", chance=50
        )
        text.append(f"Stepwise accuracy (%) of one judgment on balanced held-out chunks, {what}:")
        text.append(
            table(head, rows)
            + _picture(
                folder, f"signals-{yardstick.replace(' ', '-')}", f"Accuracy by rule and judge, {what}", drawn
            )
        )
    return "\n\n".join([*text, _gains(findings)])


def _gains(findings: Findings) -> str:
    """Gain over the base by each way of training, and relative against absolute signals on one yardstick."""
    read, main = judged(REL), f"grpo {REL}"
    trained = [
        [
            findings.cell(key).title,
            points(findings.estimate(key, read)),
            points(findings.gap(key, "base", read), signed=True),
        ]
        for key in (f"sft {REL}", "rs-ft", main, "best")
    ]
    compared = [
        Comparison("GRPO against RS-FT", "", "", findings.gap(main, "rs-ft", read), PAPER_RSFT),
        Comparison(
            "RS-FT then GRPO against RS-FT",
            "",
            "",
            findings.gap("best", "rs-ft", read),
            "no figure",
        ),
    ]
    gain = findings.gap("best", "base", read)
    reached = gain is not None and 100 * gain.value >= BAR_POINTS
    text = [
        f"Ways of training, under {REL}:",
        table(["judge", "accuracy", "gain on the base, points"], trained),
        f"Asked of the judge that is used further down (RS-FT then GRPO): at least {BAR_POINTS} points; "
        + ("not finished." if gain is None else "reached." if reached else "not reached."),
        _compared(compared),
    ]
    rows = [
        Comparison(
            f"GRPO on {rule} against GRPO on abs-q",
            "",
            "",
            findings.gap(f"grpo {rule}", "grpo abs-q", read),
            paper,
        )
        for rule, paper in ((REL, "53.8 → 60.5"), ("rel-effective", "53.8 → 61.9"))
        if findings.has(f"grpo {rule}") and findings.has("grpo abs-q")
    ]
    if rows:
        text += [f"Relative against absolute signals, all measured under {REL} (which favours {REL}):"]
        text += [_compared(rows)]
    return "\n\n".join(text)


def ablations(findings: Findings, folder: Path) -> str:
    read, main = judged(REL), f"grpo {REL}"
    asked = [name for name in ABLATIONS if findings.has(name)]
    rows = [
        [
            "the judge as it is",
            points(findings.estimate(main, read)),
            "",
            "",
            "",
        ]
    ]
    bars = [Bar("the judge as it is", "", findings.estimate(main, read))]
    for name in asked:
        gap, paper = findings.gap(main, name, read), PAPER_ABLATIONS.get(name, "no figure")
        own = findings.estimate(name, read)
        verdict = Comparison(name, "", "", gap, paper).verdict
        rows.append([ABLATIONS[name], points(own), points(gap, signed=True), paper, verdict])
        bars.append(Bar(ABLATIONS[name], "", own))
    head = [
        "changed",
        "accuracy",
        "lost by the change",
        "the paper",
        "direction (the judge as it is, is better)",
    ]
    drawn = pictures.bars(folder / "ablations.svg", bars, "accuracy, %", chance=50)
    return (
        f"## One thing left out\n\nGRPO on {REL}, one judgment, the same held-out chunks under {REL}. The judge as it is "
        f"trains on labels of confidence {SURE} or more, up to a solution's first negative one; the held-out chunks are chosen "
        "alike.\n\n"
        + table(head, rows)
        + _picture(folder, "ablations", "Accuracy with one thing left out", drawn)
    )


def majority(findings: Findings, folder: Path) -> str:
    k, rows, lines = findings.found.recipe.k, [], []
    for key, rule in [("base", REL), *((f"grpo {rule}", rule) for rule in findings.found.recipe.rules)]:
        single, votes = judged(rule), judged(rule, votes=True)
        gap = findings.gap(key, key, votes, single, same_runs=True)
        verdict = Comparison(key, "", "", gap, PAPER_MAJORITY).verdict
        rows.append(
            [
                findings.cell(key).title,
                points(findings.estimate(key, single)),
                points(findings.estimate(key, votes)),
                points(gap, signed=True),
                PAPER_MAJORITY,
                verdict,
            ]
        )
        lines.append((findings.cell(key).title, _by_votes(findings.rows(key), rule)))
    drawn = pictures.lines(folder / "majority.svg", lines, "judgments that vote", "accuracy, %")
    head = ["judge", "one judgment", f"maj@{k}", "gain", "the paper", "direction"]
    return (
        "## Votes of several judgments\n\nA tied vote is a miss, so an even number of votes can lose.\n\n"
        + table(head, rows)
        + _picture(folder, "majority", "Accuracy by the number of judgments that vote", drawn)
    )


def _by_votes(rows: Sequence[RunRow], rule: str) -> dict[int, float]:
    """{votes: mean accuracy over the finished seeds}."""
    found: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        majority = row.result["measures"].get(str(parse_rule(RULES[rule])), {}).get("majority", {})
        for votes, measured in majority.items():
            found[int(votes)].append(measured["accuracy"])
    return {votes: sum(some) / len(some) for votes, some in sorted(found.items())}


def search(findings: Findings, folder: Path) -> str:
    if not findings.has("search base"):
        return "## Chunk-reset search\n\nNot asked for by this laboratory's recipe."
    reset, plain = searched("chunk-reset"), searched("plain")
    base, keys = "search base", ["search base", f"search sft {REL}", "search best"]
    rows = [["plain sampling", points(findings.estimate(base, plain)), "", "", "", ""]]
    bars = [Bar("plain sampling", "", findings.estimate(base, plain))]
    for key in keys:
        own, gain = findings.estimate(key, reset), findings.gap(key, base, reset, plain)
        rows.append(
            [
                f"chunk-reset, {findings.cell(key).title}",
                points(own),
                points(gain, signed=True),
                PAPER_SEARCH if key == "search best" else "",
                "" if gain is None or key == base else gain.direction(),
                _rejected(findings.rows(key)),
            ]
        )
        bars.append(Bar(findings.cell(key).title, "", own))
    head = ["policy nano with", "solved", "gain on plain", "the paper", "direction", "tokens rejected"]
    trained = [
        Comparison(
            f"{findings.cell(key).title} against the untrained judge",
            "",
            "",
            findings.gap(key, base, reset),
            PAPER_SEARCH if key == "search best" else "no figure",
        )
        for key in keys[1:]
    ]
    drawn = pictures.bars(folder / "search.svg", bars, "problems solved, %")
    return (
        "## Chunk-reset search\n\n"
        + table(head, rows)
        + "\n\n"
        + _compared(trained)
        + _picture(folder, "search", "Problems solved by plain sampling and by chunk-reset search", drawn)
    )


def _rejected(rows: Sequence[RunRow]) -> str:
    kept = sum(row.result["chunk-reset"]["accepted_tokens"] for row in rows)
    lost = sum(row.result["chunk-reset"]["rejected_tokens"] for row in rows)
    return f"{lost / (kept + lost):.0%}" if kept + lost else ""


def selection(findings: Findings, folder: Path) -> str:
    if not findings.has("select base"):
        return "## Data selection\n\nNot asked for by this laboratory's recipe."
    keys = ["select base", "select outcome", "select sft", "select best"]
    rows, bars = [], []
    for key in keys:
        own = findings.estimate(key, solved)
        gap = None if key == "select base" else findings.gap(key, "select base", solved)
        rows.append(
            [
                findings.cell(key).title,
                points(own),
                "" if key == "select base" else points(gap, signed=True),
            ]
        )
        bars.append(Bar(findings.cell(key).title, "", own))
    compared = [
        Comparison(
            "selected by the generative judge against outcome only",
            "",
            "",
            findings.gap("select best", "select outcome", solved),
            PAPER_SELECTION,
        ),
        Comparison(
            "selected by the generative against the discriminative judge",
            "",
            "",
            findings.gap("select best", "select sft", solved),
            "no figure",
        ),
    ]
    drawn = pictures.bars(folder / "selection.svg", bars, "problems solved, %")
    return (
        "## Data selection\n\nThe policy is fine-tuned on one correct solution a problem.\n\n"
        + table(["policy", "solved", "gain on the policy before"], rows)
        + "\n\n"
        + _compared(compared)
        + _picture(folder, "selection", "Problems solved after fine-tuning on selected solutions", drawn)
    )

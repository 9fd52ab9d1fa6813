"""What a run's row says in words and as cells of a row table: status, progress, pace. Not: a run's own page."""

from __future__ import annotations

from app.kinds import KINDS
from app.settings import get_settings
from app.widgets.chips import STATUSES
from app.widgets.rows import Chip, Column, Progress, Row, Tone
from app.widgets.when import ago, lasting
from db.rows import RunRow

KIND_GROUPS: dict[str, tuple[str, ...]] = {
    "Make data": ("sample", "rollout", "segment", "build-set", "select-solutions"),
    "Judges": ("judge", "train-judge", "train-judge-rsft", "train-judge-sft"),
    "Policies": ("train-policy", "train-sft"),
    "Measure": ("evaluate-judge", "evaluate-policy", "search"),
    "Loops": ("loop", "lab"),
}
"""How the form that starts a run sorts the kinds; one that is in no group is under "Other"."""
ALIVE = ("queued", "running", "stalled")
RUN_COLUMNS = (
    Column("Run", "link"),
    Column("Status", "chips"),
    Column("Kind", "small"),
    Column("Progress", "progress", "wide"),
    Column("What it does", "text", "wide"),
    Column("By", "small", "hide"),
    Column("Queued", "small"),
)
PART_COLUMNS = (RUN_COLUMNS[0], Column("Part", "text", "wide"), *RUN_COLUMNS[1:5])
"""For runs that are parts of another one: which part, and no word of who queued it when."""
TONES: dict[str, Tone] = {"green": "good", "red": "bad", "orange": "warn", "blue": "info", "gray": "quiet"}


def shown_status(run: RunRow) -> str:
    """The status, but a running run whose process has been silent for too long is called stalled at once."""
    age = run.heartbeat_age_s
    silent = age is not None and age > get_settings().stalled_after_s
    return "stalled" if run.status == "running" and silent else run.status


def status_cell(status: str) -> Chip:
    colour, _, words = STATUSES.get(status, ("gray", "", status))
    return Chip(words, TONES[colour])


def kind_groups() -> dict[str, list[str]]:
    """The kinds that can be started, by group."""
    known = {name for kinds in KIND_GROUPS.values() for name in kinds}
    groups = {group: [name for name in kinds if name in KINDS] for group, kinds in KIND_GROUPS.items()}
    groups["Other"] = [name for name in KINDS if name not in known]
    return {group: kinds for group, kinds in groups.items() if kinds}


def kind_title(kind: str) -> str:
    return KINDS[kind].title if kind in KINDS else kind.capitalize()


def rate_text(rate: float | None, unit: str) -> str:
    """Units a second, or a minute where that is the readable number."""
    if rate is None:
        return "–"
    if rate < 1:
        return f"{rate * 60:.1f} {unit}/min"
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.1f} {unit}/s"


def amount_text(run: RunRow) -> str:
    """How much is done, of how much."""
    if run.total is None:
        return f"{run.done:,} {run.unit}" if run.done else ""
    return f"{run.done:,} / {run.total:,} {run.unit}"


def share(run: RunRow) -> float | None:
    """Done of total in [0, 1]; None where the total is not known."""
    return None if not run.total else min(1.0, run.done / run.total)


def progress_cell(run: RunRow) -> Progress | None:
    """Bar and numbers; None for a run that has none yet."""
    status = shown_status(run)
    pace = []
    if status == "running":
        pace += [rate_text(run.rate, run.unit)] if run.rate else []
        pace += [f"{lasting(run.remaining_s)} to go"] if run.remaining_s is not None else []
    tone = TONES[STATUSES.get(status, ("gray", "", ""))[0]]
    text = "\n".join(part for part in (amount_text(run), " · ".join(pace)) if part)
    if status == "running" and not text:
        text = "starting"
    return Progress(share(run), text, tone, bar=status in ALIVE and run.attempt > 0) if text else None


def what_happens(run: RunRow) -> str:
    """The one sentence that matters now: why it waits, what it does, why it failed."""
    status = shown_status(run)
    if status == "stalled":
        where = "it from its page" if run.parent_id is None else f"run {run.parent_id}, it goes on here"
        return f"no sign of life for {lasting(run.heartbeat_age_s)}; resume {where}"
    if run.status == "queued":
        turn = (
            "waiting for the worker"
            if run.parent_id is None
            else f"waiting for its turn in run {run.parent_id}"
        )
        return run.waiting_for or turn
    if run.stop_requested and run.status == "running":
        return "stopping after the batch in hand"
    return (run.error or run.message or "").strip().split("\n")[0]


def run_row(run: RunRow) -> Row:
    """Cells for ``RUN_COLUMNS``."""
    return Row(
        id=str(run.id),
        href=f"/runs?run={run.id}",
        label=f"Run {run.id}, {kind_title(run.kind)}, {shown_status(run)}",
        cells=(
            f"Run {run.id}",
            [status_cell(shown_status(run))],
            kind_title(run.kind),
            progress_cell(run),
            what_happens(run) or None,
            run.actor,
            ago(run.created_at, run.now),
        ),
    )


def part_row(run: RunRow) -> Row:
    """Cells for ``PART_COLUMNS``."""
    row = run_row(run)
    return Row(row.id, row.href, row.label, (row.cells[0], run.name, *row.cells[1:5]))

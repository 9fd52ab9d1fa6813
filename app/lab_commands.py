"""``stepwiser lab …``: start, follow, stop and report the laboratory. Only parsing and printing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from app.settings import get_settings

if TYPE_CHECKING:
    from app.lab.run import Standing

lab_app = typer.Typer(
    no_args_is_help=True, help="The laboratory: the paper's comparisons, rerun in the nano world."
)
console = Console(highlight=False)
Quick = Annotated[bool, typer.Option("--quick", help="The small one: every kind of run once, in minutes")]
BAR = 24


@lab_app.command()
def start(
    quick: Quick = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs side by side; by default the recipe's")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Set a field of the recipe: --set seeds=1")
    ] = None,
) -> None:
    """Start the laboratory, or go on with it; it goes on without this terminal."""
    from app.lab.run import lab_settings
    from app.lab.run import start as start_lab

    own = lab_settings(get_settings(), quick)
    fields = [*(set_ or []), *([f"jobs={jobs}"] if jobs else [])]
    run, already = start_lab(get_settings(), quick, fields)
    option = " --quick" if quick else ""
    console.print(
        f"run {run.id} in {own.home} {'is going on already' if already else 'was started'}", soft_wrap=True
    )
    console.print(f"follow it: stepwiser lab status{option} · stop it: stepwiser lab stop{option}")
    console.print(f"its pages: STEPWISER_HOME={own.home} stepwiser app --no-sample", soft_wrap=True)


@lab_app.command()
def status(quick: Quick = False) -> None:
    """Show what is done, what runs, and how long the rest takes by what was measured."""
    from app.lab.run import groups, lab_settings, open_lab, standing, time_left
    from app.runs import duration

    store, row = open_lab(get_settings(), quick)
    found = standing(store, row, lab_settings(get_settings(), quick).home)
    counted = groups(found)
    console.print(
        f"laboratory, run {row.id}: {row.status}, {len(found.state.done)} of {len(found.lab.parts)} parts done"
    )
    for group in counted:
        filled = BAR * group.done // group.total
        each = "not measured yet" if group.seconds is None else f"{duration(group.seconds)} each"
        console.print(
            f"  {'█' * filled}{'·' * (BAR - filled)} {group.done:3d}/{group.total:<3d} {group.name}, {each}"
        )
    _show_open(found)
    left, unknown = time_left(counted, found.recipe.jobs)
    if found.missing:
        parts = [f"about {duration(left)}"] if left else []
        parts += [f"{', '.join(unknown)}: not measured yet"] if unknown else []
        console.print(f"left: {'; '.join(parts)}", soft_wrap=True)
    if row.error:
        console.print(Text(row.error))


def _show_open(found: Standing) -> None:
    from app.runs import progress_text

    for name, row in found.state.open.items():
        note = row.error or progress_text(row)
        console.print(Text(f"  {name}: run {row.id} {row.status}, {note}"), soft_wrap=True)
    for name, why in found.state.refused.items():
        console.print(Text(f"  {name}: {why}"), soft_wrap=True)


@lab_app.command()
def stop(quick: Quick = False) -> None:
    """Ask the laboratory to stop; what is in hand stops after its batch, and `lab start` goes on with it."""
    from app.lab.run import stop as stop_lab

    run = stop_lab(get_settings(), quick)
    console.print(f"run {run.id} is {run.status}" + (", asked to stop" if run.stop_requested else ""))


@lab_app.command()
def report(
    quick: Quick = False,
    out: Annotated[Path, typer.Option(help="Markdown file; its figures go into a folder beside it")] = Path(
        "docs/lab.md"
    ),
) -> None:
    """Write the report of what is finished; it says what is not."""
    from app.lab.report import write_report
    from app.lab.run import lab_settings, open_lab, standing

    store, row = open_lab(get_settings(), quick)
    found = standing(store, row, lab_settings(get_settings(), quick).home)
    files = write_report(found, out, command="stepwiser lab report" + (" --quick" if quick else ""))
    console.print(f"{out} and {len(files)} figures; {len(found.missing)} parts are not finished")

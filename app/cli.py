"""``stepwiser …``: the same functions as the buttons. Only parsing and printing; the work is in the modules named below."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app import segmenter
from app.bench_commands import bench_app
from app.lab_commands import lab_app
from app.people_commands import people_app
from app.set_commands import set_app
from app.settings import get_settings
from app.smollm2 import smollm2_app
from db.errors import StoreError
from engine.errors import StepWiserError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
db_app = typer.Typer(no_args_is_help=True, help="The store: make or migrate it, check it.")
sample_app = typer.Typer(no_args_is_help=True, help="The sample: load it, or make it anew.")
nano_app = typer.Typer(no_args_is_help=True, help="The nano world: train its checkpoint, report its facts.")
for name, group in (("db", db_app), ("sample", sample_app), ("nano", nano_app)):
    app.add_typer(group, name=name)
app.add_typer(bench_app, name="bench")
app.add_typer(set_app, name="set")
app.add_typer(lab_app, name="lab")
app.add_typer(people_app, name="people")

console = Console(highlight=False)
Set = Annotated[list[str] | None, typer.Option("--set", help="Set a field: --set draws.temperature=0.7")]


def table(columns: list[str], rows: list[list[Any]]) -> None:
    """Print rows; every cell is text, never markup: it may come from a model or a file."""
    out = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        out.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console.print(out)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """An error of the operating system in here is the file's: it is named, without a traceback."""
    try:
        yield
    except BrokenPipeError:
        raise  # `export - | head`: no error
    except OSError as error:
        raise StepWiserError(f"{file} cannot be written ({error.strerror}); name another file") from error


@app.command("app")
def app_command(
    host: Annotated[str, typer.Option(help="Address to serve on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve on")] = 8501,
    sample: Annotated[bool, typer.Option(help="Load the sample into an empty store")] = True,
) -> None:
    """Start worker and pages; Ctrl-C ends both."""
    from app.launcher import launch

    raise typer.Exit(launch(get_settings(), host, port, sample))


@app.command()
def worker() -> None:
    """Take queued runs and work on them, until Ctrl-C."""
    from app.worker import main as worker_main

    raise typer.Exit(worker_main([]))


@app.command()
def doctor(
    server: Annotated[
        list[str] | None, typer.Option(help="Address of a model server to look at; may be given again")
    ] = None,
) -> None:
    """Say what is attached and installed, and what each missing thing would need."""
    from app.doctor import examine

    findings = examine(get_settings(), server or ())
    mark = {True: "ok", False: "missing", None: "-"}
    table(["", "", "found", "needs"], [[mark[f.ok], f.what, f.found, f.needs] for f in findings])
    if any(f.ok is False for f in findings):
        raise typer.Exit(1)


@app.command("llm-server")
def llm_server(
    checkpoint: Annotated[str, typer.Argument(help="Checkpoint by name")],
    host: Annotated[str, typer.Option(help="Address to serve on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve on")] = 8000,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Set a field of the door: --set max_num_seqs=64")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only print the command, for another machine")] = False,
) -> None:
    """Start a vLLM server that serves a checkpoint to runs with door=server; Ctrl-C ends it."""
    from app.llm_server import serve

    serve(get_settings(), checkpoint, host, port, set_ or [], show, console)


@app.command()
def run(
    kind: Annotated[
        str, typer.Argument(help="sample, rollout, judge, train-judge …; a name that is none lists all")
    ],
    recipe: Annotated[Path | None, typer.Option(help="YAML recipe; without it the defaults")] = None,
    set_: Set = None,
    detach: Annotated[bool, typer.Option(help="Queue it and return; a worker takes it")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would happen; exit 1 if it cannot run here")
    ] = False,
) -> None:
    """Start a run from a recipe and follow it."""
    from app.dry_run import say_what_would_happen
    from app.runs import follow, queue_run, without_worker
    from app.store import open_or_make_store
    from engine.recipes import read_recipe, set_fields

    data = set_fields(read_recipe(recipe) if recipe else {}, set_ or [])
    settings = get_settings()
    if dry_run:
        raise typer.Exit(say_what_would_happen(settings, kind, data, console))
    store = open_or_make_store(settings)
    run_id = queue_run(store, kind, data, settings.actor, settings)
    if detach:
        console.print(f"run {run_id} is queued{without_worker(store)}")
        return
    raise typer.Exit(follow(store, settings, run_id, console))


@app.command()
def runs(limit: Annotated[int, typer.Option(min=1, max=500)] = 20) -> None:
    """List the newest runs."""
    from app.runs import progress_text
    from app.store import open_store

    store = open_store()
    store.mark_stalled(get_settings().stalled_after_s)
    rows = [
        [r.id, r.kind, r.status, progress_text(r), r.actor, r.error or r.waiting_for or r.message]
        for r in store.runs(limit=limit)
    ]
    table(["run", "kind", "status", "progress", "actor", ""], rows)


@app.command()
def report(
    run_id: int,
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write; by default rollout-run-ID.html in this folder")
    ] = None,
) -> None:
    """Write a rollout run's one-page report: outcomes, what was spared, throughput over time, recipe."""
    from app.rollout_report import write_report
    from app.store import open_store

    path = out or Path(f"rollout-run-{run_id}.html")
    with writing(path):
        size = write_report(open_store(), run_id, path)
    console.print(Text(f"{path}: {size:,} bytes"))


@app.command()
def stop(run_id: int) -> None:
    """Ask a run to stop after the batch in hand; a queued run is taken off the queue."""
    from app.store import open_store

    open_store().request_stop(run_id, actor=get_settings().actor)
    console.print(f"run {run_id} was asked to stop")


@app.command()
def resume(run_id: int, detach: bool = False) -> None:
    """Queue a stopped, failed or stalled run again; it goes on where it was."""
    from app.runs import follow, without_worker
    from app.store import open_store

    settings = get_settings()
    store = open_store(settings)
    store.mark_stalled(settings.stalled_after_s)
    store.resume_run(run_id, actor=settings.actor)
    console.print(f"run {run_id} is queued again{without_worker(store) if detach else ''}")
    if not detach:
        raise typer.Exit(follow(store, settings, run_id, console))


@app.command()
def soak(
    kills: Annotated[
        int, typer.Option(min=1, max=1000, help="How often something is killed (signal 9)")
    ] = 50,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="No further kill after so many minutes")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which things are killed, and when")] = 0,
) -> None:
    """Kill a rollout run, its worker and its vLLM servers again and again; exit 1 if a committed rollout is lost."""
    from app.soak import soak as run_soak

    raise typer.Exit(run_soak(kills, minutes, seed, console))


@app.command("import")
def import_command(
    file: Annotated[
        Path, typer.Argument(help="JSONL: problem, answer, and optionally solutions; or CSV of problems")
    ],
    dataset: Annotated[
        str | None, typer.Option(help="Data set to put them in; otherwise the file's, or its name")
    ] = None,
    cutter: Annotated[
        str | None, typer.Option(help="tags, blank-line, numbered-step or sentence; otherwise the best fit")
    ] = None,
) -> None:
    """Import problems, or one's own solutions. Bad lines are reported and left out; the rest is taken."""
    from app.store import open_or_make_store
    from engine.pipeline.imports import import_file

    settings = get_settings()
    report = import_file(
        open_or_make_store(settings), file, dataset=dataset, cutter=cutter, actor=settings.actor
    )
    for rejected in report.rejected:
        console.print(Text(f"left out: {rejected}"), style="yellow")
    console.print(Text(report.summary()))
    if report.rejected:
        raise typer.Exit(1)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="JSONL to write; - for standard output")],
    dataset: Annotated[str | None, typer.Option(help="Only this data set")] = None,
    rule: Annotated[
        str, typer.Option(help="Rule whose labels stand where nobody reviewed")
    ] = "rel-ratio:gamma=0.8",
) -> None:
    """Export the effective label of every chunk as JSONL."""
    from app.store import open_store
    from engine.pipeline.export import export_labels

    store = open_store()
    if dataset is not None and dataset not in (known := store.datasets()):
        there = ", ".join(known) or "none"  # a slip must not put an empty file in an export's place
        raise StepWiserError(f"there is no data set {dataset!r}; there are {there}. Nothing was written")
    with writing(file):
        count = export_labels(store, file, dataset=dataset, rule=rule)
    print(f"{count} chunks written to {file}", file=sys.stderr)


@db_app.command()
def upgrade() -> None:
    """Make the store, or migrate it to this version's schema."""
    from app.store import open_or_make_store

    open_or_make_store()
    console.print(f"{get_settings().store_url.rsplit('@', 1)[-1]} is at the current schema")


@db_app.command()
def check() -> None:
    """Check foreign keys, orphans, chunks that do not rejoin, draws with gaps."""
    from app.store import open_store
    from db.check import check as check_store

    findings = check_store(open_store())
    for finding in findings:
        console.print(Text(str(finding)))
    console.print(f"{len(findings)} findings")
    if findings:
        raise typer.Exit(1)


@sample_app.command("load")
def sample_load() -> None:
    """Load the sample; what is there already stays as it is."""
    from app.sample import load_sample
    from app.store import open_or_make_store

    console.print(load_sample(open_or_make_store()))


@sample_app.command("make")
def sample_make(
    out: Annotated[Path | None, typer.Option(help="Where to write; the packaged sample by default")] = None,
    set_: Set = None,
) -> None:
    """Make the sample's nano part anew: generate, sample, roll out, judge, then dump."""
    from app.sample import make_sample

    console.print(make_sample(get_settings(), out, set_ or []))


@nano_app.command("train")
def nano_train(
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new checkpoint; home/checkpoints/nano-new by default")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="YAML recipe; the packaged one by default")] = None,
    set_: Set = None,
) -> None:
    """Train the nano checkpoint from scratch."""
    from app.nano import train

    train(get_settings(), out, recipe, set_ or [], console)


nano_app.command("segmenter")(segmenter.make)
nano_app.command("self-segment")(segmenter.chain)
app.add_typer(smollm2_app, name="smollm2")


@nano_app.command("report")
def nano_report(checkpoint: Annotated[str, typer.Option(help="Checkpoint by name")] = "nano") -> None:
    """Measure the facts that the nano world must show; exit 1 where one does not hold."""
    from app.nano import report

    raise typer.Exit(report(get_settings(), checkpoint, console))


def main() -> None:
    """Entry point: errors meant for the user are printed without a traceback."""
    try:
        app()
    except (StepWiserError, StoreError) as error:
        Console(stderr=True, highlight=False).print(Text(f"error: {error}"), style="red", soft_wrap=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main()

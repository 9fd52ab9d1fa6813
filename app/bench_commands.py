"""``stepwiser bench …``: which benchmark runs. What each measures, and its bars, is in ``app.bench``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.settings import get_settings

console = Console(highlight=False)
bench_app = typer.Typer(
    no_args_is_help=True, help="Benchmarks: a table, then one line of JSON; exit 1 where a bar is missed."
)


@bench_app.command("rollouts")
def bench_rollouts(
    checkpoint: Annotated[str, typer.Option(help="Checkpoint by name: nano, smollm2, …")] = "nano",
    pairs: Annotated[int, typer.Option(help="Interleaved pairs; the median counts")] = 3,
) -> None:
    """Our rollout stage, grader and store included, against the same requests given straight to vLLM."""
    from app.bench.rollouts import rollouts

    raise typer.Exit(rollouts(get_settings(), checkpoint, pairs, console))


@bench_app.command("peers")
def bench_peers(
    checkpoint: Annotated[str, typer.Option(help="Checkpoint by name: nano, smollm2, …")] = "nano",
    pairs: Annotated[int, typer.Option(help="Interleaved pairs; the median counts")] = 3,
) -> None:
    """Our rollout stage against the way of other projects: one problem at a time, one call per prefix."""
    from app.bench.rollouts import peers

    raise typer.Exit(peers(get_settings(), checkpoint, pairs, console))


@bench_app.command("thrift")
def bench_thrift(
    store: Annotated[
        Path | None, typer.Option(help="Folder of the store whose rollouts are replayed; else the sample's")
    ] = None,
) -> None:
    """What thrift spares on recorded draws, beside an oracle; no label may change."""
    from app.bench.thrift import thrift

    raise typer.Exit(thrift(store, console))


@bench_app.command("store")
def bench_store(
    rollouts: Annotated[int, typer.Option(min=1_000, help="Rollouts to insert")] = 1_000_000,
) -> None:
    """A store of a million rollouts: a trajectory's values, and what a resumed run has left to do."""
    from app.bench.store import store

    raise typer.Exit(store(get_settings(), rollouts, console))


@bench_app.command("annotate")
def bench_annotate(policy: Annotated[str, typer.Option(help="Checkpoint by name")] = "nano") -> None:
    """20 problems × 2 trajectories rolled out with M = 16, once the LLM is loaded."""
    from app.bench.rollouts import annotate

    raise typer.Exit(annotate(get_settings(), policy, console))


@bench_app.command("grpo")
def bench_grpo(
    base: Annotated[str, typer.Option(help="Checkpoint by name")] = "nano",
    steps: Annotated[int, typer.Option(min=4, help="Optimizer steps of 64 completions")] = 100,
    least_tokens: Annotated[
        int, typer.Option(min=0, max=63, help="No completion ends before this many tokens; 0: where it ends")
    ] = 39,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; by default all cores")] = os.cpu_count()
    or 1,
) -> None:
    """A judge's GRPO: time of 100 steps, and the share of it in our callback, rewards and writes."""
    from app.bench.grpo import grpo

    raise typer.Exit(grpo(get_settings(), base, steps, least_tokens, threads, console))


@bench_app.command("label-studio")
def bench_label_studio(
    trajectories: Annotated[int, typer.Option(min=50, help="Solutions given to both")] = 2000,
    items: Annotated[int, typer.Option(min=20, help="Answers given by keyboard")] = 40,
    label_studio: Annotated[
        Path | None, typer.Option(help="Its program; by default it is installed from PyPI below the home")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Markdown file for the table")] = None,
) -> None:
    """The same work here and in Label Studio, side by side in a browser."""
    from app.bench.annotation.compare import compare

    raise typer.Exit(compare(get_settings(), trajectories, items, label_studio, out, console))


@bench_app.command("ui")
def bench_ui(
    scale: Annotated[float, typer.Option(min=0.001, help="Share of 200,000 trajectories")] = 1.0,
    store: Annotated[
        Path | None,
        typer.Option(help="Folder of the store: used again if it is there, else made and left there"),
    ] = None,
) -> None:
    """The pages over a store of 200,000 trajectories: seconds and bytes of lists, searches, items, writes."""
    from app.bench.ui import ui

    raise typer.Exit(ui(scale, store, console))


@bench_app.command("servers")
def bench_servers(policy: Annotated[str, typer.Option(help="Checkpoint by name")] = "nano") -> None:
    """Two vLLM servers, one of them killed on the way: how long a healthy one is short of work that waits."""
    from app.bench.servers import servers

    raise typer.Exit(servers(get_settings(), policy, console))


@bench_app.command("grading")
def bench_grading() -> None:
    """Answers graded a second and core, cache cold, and what an answer that never finishes costs."""
    from app.bench.grading import grading

    raise typer.Exit(grading(console))


@bench_app.command("memory")
def bench_memory() -> None:
    """Resident memory of the pages' process after every page was opened, and of a run with many trajectories."""
    from app.bench.memory import memory

    raise typer.Exit(memory(get_settings(), console))

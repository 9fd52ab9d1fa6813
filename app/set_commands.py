"""``stepwiser set …``: build, preview, list, show, sweep and export training sets. Only parsing and printing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from app.settings import get_settings

if TYPE_CHECKING:
    from training.sets.frozen import Balance
    from training.sets.sweep import Agreement

set_app = typer.Typer(
    no_args_is_help=True, help="Training sets: build, list, show, sweep label rules, export."
)
console = Console(highlight=False)
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="Set a field: --set labels.balance=false")
]
RecipeFile = Annotated[Path | None, typer.Option(help="YAML recipe; without it the defaults")]


@set_app.command()
def build(
    name: Annotated[str | None, typer.Option(help="Name of the set; otherwise the recipe's")] = None,
    recipe: RecipeFile = None,
    set_: Assignments = None,
    preview: Annotated[bool, typer.Option(help="Only show what the set would hold")] = False,
    detach: Annotated[bool, typer.Option(help="Queue it and return; a worker takes it")] = False,
) -> None:
    """Choose labels, split by problem, balance, and freeze the set."""
    from app.runs import follow, queue_run, without_worker
    from app.store import open_or_make_store
    from engine.recipes import read_recipe, resolve, set_fields
    from training.sets import BuildSetRecipe

    data = set_fields(read_recipe(recipe) if recipe else {}, set_ or [])
    if name is not None:
        data["name"] = name
    settings = get_settings()
    store = open_or_make_store(settings)
    if preview:
        _show_preview(store, resolve(BuildSetRecipe, data))
        return
    run_id = queue_run(store, "build-set", data, settings.actor, settings)
    if detach:
        console.print(f"run {run_id} is queued{without_worker(store)}")
        return
    raise typer.Exit(follow(store, settings, run_id, console))


def _show_preview(store: Any, recipe: Any) -> None:
    from training.sets import preview

    found = preview(store, recipe)
    _facts(found.counts | {f"problems {part}": n for part, n in found.problems.items()})
    console.print(f"labels from people in it: {found.from_people}; tokens are not counted here")
    _positions({"labelled": found.labelled, "train": found.train, "held out": found.held_out})
    for warning in (*found.warnings, *([found.refusal] if found.refusal else [])):
        console.print(Text(warning), style="yellow")


@set_app.command("list")
def list_command() -> None:
    """List the frozen sets, newest first."""
    from training.sets import list_sets

    rows = [
        [
            m.name,
            m.form,
            m.files["train.jsonl"].rows,
            m.files["held_out.jsonl"].rows,
            m.from_people,
            m.made_at,
            m.hash[:12],
        ]
        for m in list_sets(get_settings().home)
    ]
    _table(["set", "form", "train", "held out", "from people", "made", "hash"], rows)


@set_app.command()
def show(name: Annotated[str, typer.Argument(help="Name of a frozen set")]) -> None:
    """Show a set's manifest and check its files against it."""
    from training.sets import read_manifest, read_rows

    home = get_settings().home
    manifest = read_manifest(home, name)
    for file in manifest.files:
        read_rows(home, name, file.removesuffix(".jsonl"))  # raises where a file is not what was frozen
    console.print(
        Text(
            f"{manifest.name}: form {manifest.form}, made by run {manifest.run_id} on {manifest.made_at:%F %T}"
        )
    )
    _facts(manifest.counts | {f"problems {part}": n for part, n in manifest.problems.items()})
    console.print(
        f"labels from people: {manifest.from_people}, from rollouts: {manifest.from_rule}, "
        f"from a judge's votes: {manifest.from_judge}"
    )
    for what, counts in (("data set", manifest.datasets), ("policy", manifest.policies)):
        for key, n in counts.items():
            console.print(Text(f"{what} {key}: {n} labels"))
    _positions({part.replace("_", " "): tuple(rows) for part, rows in manifest.positions.items()})
    _table(["file", "rows", "sha256"], [[file, f.rows, f.sha256] for file, f in manifest.files.items()])
    console.print("files are as they were frozen")


@set_app.command()
def sweep(
    recipe: RecipeFile = None,
    set_: Assignments = None,
    gamma: Annotated[str, typer.Option(help="γ of rel-ratio, with commas")] = "",
    alpha: Annotated[str, typer.Option(help="α of rel-effective, with commas")] = "",
    n: Annotated[str, typer.Option(help="n of rel-effective, with commas")] = "",
) -> None:
    """Label rules side by side on what a set's recipe selects: counts, confidence, agreement with people."""
    from app.store import open_store
    from engine.recipes import read_recipe, resolve, set_fields
    from training.sets import BuildSetRecipe, swept_rules
    from training.sets import sweep as sweep_rules
    from training.sets.sweep import ALPHAS, GAMMAS, NS

    resolved = resolve(BuildSetRecipe, set_fields(read_recipe(recipe) if recipe else {}, set_ or []))
    values = [_values(text) or default for text, default in ((gamma, GAMMAS), (alpha, ALPHAS), (n, NS))]
    rules = swept_rules(*values)
    found = sweep_rules(
        open_store(),
        resolved.select,
        rules=rules,
        min_confidence=resolved.labels.min_confidence,
        seed=resolved.seed,
    )
    console.print(f"{found.chunks:,} chunks, {found.reviewed:,} with a person's + or -")
    columns = ["rule", "+", "-", "none", "sure", f"≥ {found.min_confidence:g}"]
    rows = [
        [
            r.rule.replace(":", " ").replace(",", " ").replace("alpha", "α").replace("gamma", "γ"),
            *(r.positive, r.negative, r.unlabelled, _share(r.mean_confidence), _share(r.sure)),
            *((_said(r.agreement), r.agreement.n) if r.agreement else ()),
        ]
        for r in found.rows
    ]
    _table(columns + (["people", "n"] if found.reviewed else []), rows)
    console.print(
        f"sure: mean confidence of the labels; ≥ {found.min_confidence:g}: share of them that sure or more"
        + (
            "; people: share that agrees with a person's, 95 % interval by problem, n chunks"
            if found.reviewed
            else ""
        )
    )
    for warning in {rule.warning: rule for rule in rules if rule.warning}:
        console.print(Text(str(warning)), style="yellow")
    for chosen in found.chosen:
        if chosen.held_out:
            console.print(
                Text(
                    f"{chosen.name}: one half of the reviewed problems chooses {chosen.first}, the other "
                    f"{chosen.second}; each on the half that did not choose it: {_said(chosen.held_out)}, "
                    f"n={chosen.held_out.n} chunks of {chosen.held_out.problems} problems"
                )
            )


@set_app.command()
def export(
    name: Annotated[str, typer.Argument(help="Name of a frozen set")],
    file: Annotated[Path, typer.Argument(help="JSONL to write")],
    style: Annotated[
        str, typer.Option(help="conversational, prompt-completion or messages (for sets of turns)")
    ] = "conversational",
    part: Annotated[str, typer.Option(help="train or held_out")] = "train",
) -> None:
    """Write one part of a set in a format that TRL reads."""
    from training.sets import export_set

    count = export_set(get_settings().home, name, style, part, file)
    console.print(Text(f"{count} rows written to {file}"))


def _values(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _said(agreement: Agreement) -> str:
    return f"{agreement.share:.2f} {agreement.low:.2f}–{agreement.high:.2f}"


def _facts(counts: dict[str, int]) -> None:
    console.print(", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in counts.items()))


def _positions(parts: dict[str, tuple[Balance, ...]]) -> None:
    places = sorted({row.position or 0 for rows in parts.values() for row in rows})
    found = {part: {row.position: row for row in rows} for part, rows in parts.items()}
    table = [
        [
            place,
            *(f"{b.positive} / {b.negative}" if (b := rows.get(place)) else "" for rows in found.values()),
        ]
        for place in places
    ]
    _table(["chunk", *(f"{part} + / -" for part in parts)], table)


def _table(columns: list[str], rows: list[list[Any]]) -> None:
    from app.cli import table  # which imports this module

    table(columns, rows)

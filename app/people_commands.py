"""``stepwiser people …``: who may do what, and who did what. Only parsing and printing; the rules are the store's.

Whoever may run commands on this machine could change the store's file, so the first owner is named here:
``stepwiser people set owner 'SUBJECT @ ISSUER'``, with the line that the People page shows to whoever signed in.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.settings import get_settings
from db.people_store import ISSUER

people_app = typer.Typer(no_args_is_help=True, help="People: their roles, and the list of what was done.")
console = Console(highlight=False)


def _table(columns: list[str], rows: list[list[str]]) -> None:
    """Cells are text, never markup: names come from people."""
    out = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        out.add_row(*map(Text, row))
    console.print(out)


@people_app.command("list")
def list_people() -> None:
    """Everybody whose role was set."""
    from app.store import open_store
    from app.widgets.when import stamp

    people = open_store().people()
    if not people:
        console.print(
            "No role was set: names on this machine are owners, whoever signed in is a reader.\n"
            "Name the first owner: stepwiser people set owner 'SUBJECT @ ISSUER'"
        )
        return
    rows = [[row.name, row.role, row.actor, row.set_by, stamp(row.created_at)] for row in people]
    _table(["name", "role", "signs as", "set by", "since"], rows)


@people_app.command("set")
def set_role(
    role: Annotated[str, typer.Argument(help="reader, annotator or owner")],
    actor: Annotated[
        str, typer.Argument(help="'SUBJECT @ ISSUER' as the People page shows it, or a name here")
    ],
    name: Annotated[str, typer.Option(help="What the pages call the person")] = "",
) -> None:
    """Give somebody a role."""
    from app.store import open_or_make_store

    open_or_make_store().set_role(actor, role, by=get_settings().actor, name=name)
    where = "" if ISSUER in actor else " (a name on this machine: an honour system)"
    console.print(Text(f"{actor} is now {'an' if role[0] in 'ao' else 'a'} {role}{where}"))


@people_app.command()
def audit(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The newest so many")] = 30,
    actor: Annotated[str | None, typer.Option(help="Only this person's")] = None,
) -> None:
    """What people did, newest first."""
    from app.store import open_store
    from app.widgets.audit_words import said
    from app.widgets.when import stamp

    entries = open_store().audit(actor=actor, limit=limit)
    rows = [[stamp(e.at), e.actor, e.action, e.target, said(e.detail)] for e in entries]
    _table(["when", "who", "did", "to", ""], rows)

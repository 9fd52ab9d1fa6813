"""Who may do what, and the list of what was done. Roles are enforced here and in every write that a page can make.

``reader`` looks, ``annotator`` also reviews, ``owner`` also makes queues, starts runs, adjudicates and sets roles.
A name without an issuer belongs to somebody at this machine, who could change the file itself: an owner, unless a
role was set. Anybody who signed in and has no role is a reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from db.blind import hidden, is_blind
from db.errors import NotAllowedError, StoreValueError
from db.session import StoreBase, columns, one_at_a_time, rows_of, store_now, upsert
from db.tables import AuditEntry, Chunk, KeyBinding, Person
from db.tables.people import ROLES

ISSUER = " @ "
"""Between subject and issuer in the name of somebody who signed in."""


@dataclass(frozen=True)
class PersonRow:
    actor: str
    role: str
    name: str
    set_by: str
    created_at: datetime


@dataclass(frozen=True)
class AuditRow:
    """One write by a person. ``place``: (trajectory id, index) where the target is a chunk."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    detail: dict[str, Any]
    place: tuple[int, int] | None = None


def role_of(db: Connection, actor: str) -> str:
    """reader, annotator or owner."""
    role = db.scalar(select(Person.role).where(Person.actor == actor))
    return role or ("reader" if ISSUER in actor else "owner")


def need(db: Connection, actor: str, role: str, doing: str) -> None:
    """Raises NotAllowedError unless the actor's role is at least ``role``; ``doing`` says what was refused."""
    has = role_of(db, actor)
    if ROLES.index(has) < ROLES.index(role):
        raise NotAllowedError(
            f"{actor} is {'an' if has[0] in 'aeiou' else 'a'} {has}; {doing} takes "
            f"{'an' if role[0] in 'aeiou' else 'a'} {role}. An owner sets roles on the People page"
        )


def note(db: Connection, actor: str, action: str, target: str, **detail: Any) -> None:
    """Put a write on the audit list, in the transaction that makes it."""
    values = {"actor": actor, "action": action, "target": target, "detail": detail, "at": store_now(db)}
    db.execute(insert(AuditEntry), [values])


class PeopleStore(StoreBase):
    """Roles, the audit list, keys that people chose."""

    def role(self, actor: str) -> str:
        """The actor's role: reader, annotator or owner."""
        with self.read() as db:
            return role_of(db, actor)

    def people(self) -> list[PersonRow]:
        """Everybody whose role was set."""
        with self.read() as db:
            query = select(*columns(PersonRow, Person)).order_by(Person.name, Person.actor)
            return rows_of(PersonRow, db.execute(query))

    def set_role(self, actor: str, role: str, by: str, *, name: str = "") -> None:
        """Give ``actor`` a role. Raises NotAllowedError unless ``by`` is an owner, and when the last signed-in owner
        would take the role from themselves; StoreValueError for a role that there is not."""
        if role not in ROLES:
            raise StoreValueError(f"a role is one of {', '.join(ROLES)}, not {role!r}")
        if not actor.strip():
            raise StoreValueError("a role belongs to somebody: give the actor's name")
        with self.write() as db:
            one_at_a_time(db, "people")
            need(db, by, "owner", "setting roles")
            before = role_of(db, actor)
            others = select(Person.actor).where(Person.role == "owner", Person.actor != actor).limit(1)
            if by == actor and before == "owner" != role and db.scalar(others) is None:
                raise NotAllowedError(f"{actor} is the only owner: name another before giving the role up")
            values = {"actor": actor, "role": role, "set_by": by, "created_at": store_now(db)}
            # a name that was given once stays where only the role changes
            named = ["name"] if name.strip() else []
            statement = upsert(db, Person, ["actor"], ["role", *named, "set_by", "created_at"])
            db.execute(statement, [{**values, "name": name.strip() or actor.partition(ISSUER)[0]}])
            note(db, by, "set role", f"person {actor}"[:200], before=before, after=role)

    def audit(
        self, *, before: int | None = None, actor: str | None = None, limit: int = 50
    ) -> list[AuditRow]:
        """Writes by people, newest first; ``before``: only rows with a smaller id (the next page).

        Whoever is not an owner sees their own only; to whoever works in a blind queue, others' carry
        no particulars, and on what it hides from the viewer only the time is told.
        """
        chosen = [AuditEntry.id, AuditEntry.at, AuditEntry.actor]
        chosen += [AuditEntry.action, AuditEntry.target, AuditEntry.detail]
        query = select(*chosen).order_by(AuditEntry.id.desc()).limit(limit)
        if before is not None:
            query = query.where(AuditEntry.id < before)
        with self.read() as db:
            if self.viewer is not None and role_of(db, self.viewer) != "owner":
                query = query.where(AuditEntry.actor == self.viewer)
            if actor is not None:
                query = query.where(AuditEntry.actor == actor)
            rows = rows_of(AuditRow, db.execute(query))
            places = _places(db, rows)
            placed = [replace(row, place=places.get(row.target)) for row in rows]
            return [self._for_viewer(db, row) for row in placed] if is_blind(db, self.viewer) else placed

    def _for_viewer(self, db: Connection, row: AuditRow) -> AuditRow:
        """Somebody else's write without its particulars; one to a hidden chunk says nothing but when it was."""
        if row.actor == self.viewer:
            return row
        if row.place is not None and hidden(db, self.viewer, [row.place[0]]):
            return replace(row, actor="", action="withheld", target="in a blind queue", detail={}, place=None)
        return replace(row, detail={})

    def key_bindings(self, actor: str) -> dict[str, str]:
        """{action: key} that the actor chose instead of the usual ones."""
        query = select(KeyBinding.action, KeyBinding.key).where(KeyBinding.actor == actor)
        with self.read() as db:
            return {action: key for action, key in db.execute(query)}

    def set_key_bindings(self, actor: str, keys: dict[str, str]) -> None:
        """Replace the actor's own keys; empty: the usual ones. Raises StoreValueError if one key has two actions,
        NotAllowedError for a reader."""
        if len(set(keys.values())) < len(keys):
            raise StoreValueError("every action needs a key of its own; nothing was stored")
        with self.write() as db:
            need(db, actor, "annotator", "choosing keys")
            note(db, actor, "choose keys", f"person {actor}"[:200], keys=keys)
            db.execute(delete(KeyBinding).where(KeyBinding.actor == actor))
            if keys:
                rows = [{"actor": actor, "action": action, "key": key} for action, key in keys.items()]
                db.execute(insert(KeyBinding), rows)


def _places(db: Connection, rows: Iterable[AuditRow]) -> dict[str, tuple[int, int]]:
    """{target: (trajectory id, index)} of the targets that are chunks."""
    ids = {
        int(row.target[6:]) for row in rows if row.target.startswith("chunk ") and row.target[6:].isdecimal()
    }
    query = select(Chunk.id, Chunk.trajectory_id, Chunk.idx).where(Chunk.id.in_(ids))
    return {f"chunk {id_}": (trajectory, idx) for id_, trajectory, idx in db.execute(query)} if ids else {}

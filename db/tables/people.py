"""Who may do what, what was done, and what people set up for themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.column_types import Id, UtcDateTime, utc_now
from db.tables.base import Base

ROLES = ("reader", "annotator", "owner")


class Person(Base):
    """Somebody whose role was set. ``actor``: subject and issuer of the sign-in, or a name on localhost."""

    __tablename__ = "people"
    actor: Mapped[str] = mapped_column(String(200), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(200))
    """What pages call the person."""
    set_by: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    __table_args__ = (CheckConstraint(f"role IN {ROLES}", name="role"),)


class AuditEntry(Base):
    """One write by a person, put down in the transaction that made it. Append-only."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    actor: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(64))
    """A verb and its noun: ``review``, ``undo``, ``create queue``, ``set role``, ``start run``, …"""
    target: Mapped[str] = mapped_column(String(200))
    """What it was done to, as ``noun id``: ``chunk 17``, ``queue 2``, ``run 5``."""
    detail: Mapped[dict[str, Any]] = mapped_column(JSON)
    __table_args__ = (Index("ix_audit_actor_id", "actor", "id"),)


class SavedSearch(Base):
    """A filter under a name: the query string of a page."""

    __tablename__ = "saved_searches"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    page: Mapped[str] = mapped_column(String(32))
    query: Mapped[str] = mapped_column(Text)
    actor: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class KeyBinding(Base):
    """A key that somebody chose instead of the usual one for an action."""

    __tablename__ = "key_bindings"
    actor: Mapped[str] = mapped_column(String(200), primary_key=True)
    action: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(32))

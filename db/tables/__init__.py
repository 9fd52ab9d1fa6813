"""The tables (SQLAlchemy 2 declarative). What each row means is in its docstring; queries are in the modules of store.py.

Append-only: rollouts, judgments, reviews, guidelines and the audit list are never updated or deleted by a page or a run.
"""

from db.column_types import utc_now
from db.tables.annotation import Assignment, Guideline, Queue, QueueItem, QueueMember
from db.tables.base import OUTCOMES, Base
from db.tables.judging import ChunkVote, Judge, Judgment
from db.tables.people import AuditEntry, KeyBinding, Person, SavedSearch
from db.tables.reviews import ChunkOpinion, Draft, Review
from db.tables.runs import RUN_KINDS, RUN_STATUSES, Metric, Run, RunSample, Worker
from db.tables.solutions import (
    Chunk,
    ChunkLabel,
    Grade,
    Prefix,
    PrefixStop,
    Problem,
    Rollout,
    RolloutText,
    Total,
    Trajectory,
    TrajectoryText,
)

__all__ = [
    "OUTCOMES",
    "RUN_KINDS",
    "RUN_STATUSES",
    "Assignment",
    "AuditEntry",
    "Base",
    "Chunk",
    "ChunkLabel",
    "ChunkOpinion",
    "ChunkVote",
    "Draft",
    "Grade",
    "Guideline",
    "Judge",
    "Judgment",
    "KeyBinding",
    "Metric",
    "Person",
    "Prefix",
    "PrefixStop",
    "Problem",
    "Queue",
    "QueueItem",
    "QueueMember",
    "Review",
    "Rollout",
    "RolloutText",
    "Run",
    "RunSample",
    "SavedSearch",
    "Total",
    "Trajectory",
    "TrajectoryText",
    "Worker",
    "utc_now",
]

"""The store as the other rooms see it: one object with every write and every named query.

    store = open_store("sqlite:///stepwiser.db")

Each noun's part lies in its own module: runs_store, worker_lock, problems_store, stages_store, selections,
stops_store, rolled_out, run_rollouts, labels_store, judges_store, reviews_store, drafts_store, imported_reviews,
people_store, queues_store,
totals; what pages read: reads_list, reads_trajectory, find_store, saved_searches; what a blind queue hides from
whom: blind.
Not: the schema's version (migrate), copies (snapshot), checks (check).
"""

from __future__ import annotations

from db.agreement_reads import AgreementReads
from db.connect import BUSY_TIMEOUT_S, connect
from db.disputes import DisputeReads
from db.drafts_store import DraftsStore
from db.find_store import FindStore
from db.imported_reviews import ImportedReviewsStore
from db.judges_store import JudgesStore
from db.labels_store import LabelsStore
from db.migrate import check_current, upgrade
from db.people_store import PeopleStore
from db.problems_store import ProblemsStore
from db.queues_store import QueuesStore
from db.reads_list import ListReads
from db.reads_trajectory import TrajectoryReads
from db.reviews_store import ReviewsStore
from db.rolled_out import RolledOutStore
from db.run_rollouts import RunRollouts
from db.runs_store import RunsStore
from db.saved_searches import SavedSearches
from db.selections import SelectionStore
from db.totals import TotalsStore
from db.worker_lock import WorkerLock


class Store(
    RunsStore,
    WorkerLock,
    ProblemsStore,
    SelectionStore,
    RolledOutStore,
    RunRollouts,
    LabelsStore,
    JudgesStore,
    ReviewsStore,
    DraftsStore,
    ImportedReviewsStore,
    QueuesStore,
    PeopleStore,
    TotalsStore,
    ListReads,
    FindStore,
    SavedSearches,
    TrajectoryReads,
    AgreementReads,
    DisputeReads,
):
    """Short sessions over one engine; safe to share between threads. Every error it raises is a StoreError."""


def open_store(url: str, *, migrate: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Store:
    """Open the store at ``url`` and check its schema; ``migrate`` brings it up to date first.

    Raises StoreUnreachableError, StoreOutdatedError, StoreLockedError.
    """
    engine = connect(url, busy_timeout_s=busy_timeout_s)
    if migrate:
        upgrade(engine)
    check_current(engine)
    return Store(engine)

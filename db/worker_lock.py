"""One worker a store: the lock's row, its heartbeat, and who holds it. Not: what the worker does (app.worker)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection, delete, select, update

from db.errors import WorkerLockedError
from db.rows import WorkerRow
from db.session import StoreBase, insert_new, one_at_a_time, store_now
from db.tables import Worker

LOCK = "worker"
EXPIRES_S = 15.0


class WorkerLock(StoreBase):
    """Held by (pid, host); a worker whose heartbeat is older than ``expires_s`` has lost it."""

    def take_worker_lock(
        self,
        *,
        pid: int,
        host: str,
        expires_s: float = EXPIRES_S,
        is_alive: Callable[[int], bool] | None = None,
    ) -> None:
        """Become the worker. Raises WorkerLockedError, naming pid and host, while another one lives.

        ``is_alive`` tells of a pid on this host whether it lives, so that a killed worker need not be waited out.
        """
        with self.write() as db:
            one_at_a_time(db, "worker")
            now = store_now(db)
            values = {"pid": pid, "host": host, "started_at": now, "heartbeat_at": now}
            db.execute(insert_new(db, Worker), [{"name": LOCK, **values}])
            held = _held(db)
            mine = (held.pid, held.host) == (pid, host)
            dead = held.host == host and is_alive is not None and not is_alive(held.pid)
            if not mine and not dead and held.age_s < expires_s:
                raise WorkerLockedError(
                    f"a worker is at work already: process {held.pid} on {held.host}, last heard of "
                    f"{held.age_s:.0f} s ago. End it first, or wait {expires_s:.0f} s after it died"
                )
            db.execute(update(Worker).where(Worker.name == LOCK).values(values))

    def beat_worker_lock(self, *, pid: int, host: str) -> None:
        """Keep the lock. Raises WorkerLockedError if another worker has taken it over meanwhile."""
        with self.write() as db:
            kept = db.execute(
                update(Worker)
                .where(Worker.name == LOCK, Worker.pid == pid, Worker.host == host)
                .values(heartbeat_at=store_now(db))
            )
            if kept.rowcount == 0:
                raise WorkerLockedError(
                    f"process {pid} on {host} no longer is the worker of {self.name}: another one took over"
                )

    def release_worker_lock(self, *, pid: int, host: str) -> None:
        """Give the lock back, if it is still held."""
        with self.write() as db:
            db.execute(delete(Worker).where(Worker.name == LOCK, Worker.pid == pid, Worker.host == host))

    def worker_alive(self, expires_s: float = EXPIRES_S) -> bool:
        """True while a worker's heartbeat is recent."""
        worker = self.worker()
        return worker is not None and worker.age_s < expires_s

    def worker(self) -> WorkerRow | None:
        """Who holds the lock, dead or alive (see ``age_s``); None: nobody."""
        with self.read() as db:
            exists = db.scalar(select(Worker.name).where(Worker.name == LOCK))
            return _held(db) if exists else None


def _held(db: Connection) -> WorkerRow:
    row = db.execute(
        select(Worker.pid, Worker.host, Worker.started_at, Worker.heartbeat_at).where(Worker.name == LOCK)
    ).one()
    heartbeat: datetime = row.heartbeat_at
    return WorkerRow(
        row.pid, row.host, row.started_at, heartbeat, (store_now(db) - heartbeat).total_seconds()
    )

"""Runs in the store: create, claim, heartbeat, stop, resume, finish, metrics. Not: processes (app.worker) or logs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from db.errors import NotFoundError, RunStateError
from db.people_store import need, note
from db.rows import MetricRow, NewRunSample, RunRow
from db.session import StoreBase, columns, insert_new, one_at_a_time, rows_of, store_now
from db.tables import RUN_KINDS, Judgment, Metric, Rollout, Run, RunSample, Trajectory

HEAVY_KINDS = frozenset(RUN_KINDS) - {"import", "build-set", "select-solutions"}
"""Kinds that use the device: one of them runs at a time."""
RESUMABLE = ("stopped", "failed", "stalled")
_RUN_COLUMNS = [Run.__table__.c[name] for name in RunRow.__dataclass_fields__ if name != "now"]

_QUEUED = (Run.status == "queued", Run.parent_id.is_(None))
_WRITTEN = {"trajectories": Trajectory.run_id, "rollouts": Rollout.run_id, "judgments": Judgment.run_id}


class RunsStore(StoreBase):
    """Every change of a run's state is one transaction that looks at the state it changes."""

    def create_run(
        self,
        kind: str,
        recipe: dict[str, Any],
        actor: str,
        parent_id: int | None = None,
        name: str | None = None,
    ) -> int:
        """Queue a run; ``recipe`` is resolved (every field with its value). Returns its id.

        With ``parent_id`` it is a part of that run, which starts it by ``claim_child``: the worker does not; ``name``
        says which part. Raises NotAllowedError unless the actor is an owner; a part was allowed with its whole.
        """
        with self.write() as db:
            if parent_id is None:
                need(db, actor, "owner", "starting a run")
            run_id = _insert_run(db, kind=kind, recipe=recipe, actor=actor, parent_id=parent_id, name=name)
            if parent_id is None:
                note(db, actor, "start run", f"run {run_id}", kind=kind)
            return run_id

    def start_run(self, kind: str, recipe: dict[str, Any], actor: str, pid: int) -> int:
        """A run that its own caller works on right now (an import). Returns its id.

        Raises NotAllowedError unless the actor is an owner.
        """
        with self.write() as db:
            need(db, actor, "owner", "an import" if kind == "import" else "starting a run")
            now = store_now(db)
            run_id = _insert_run(
                db,
                kind=kind,
                recipe=recipe,
                actor=actor,
                status="running",
                pid=pid,
                attempt=1,
                started_at=now,
                heartbeat_at=now,
            )
            note(db, actor, "start run", f"run {run_id}", kind=kind)
            return run_id

    def claim_next(self, pid: int, heavy: Collection[str] = HEAVY_KINDS) -> RunRow | None:
        """Take the oldest queued run that may start, mark it running (attempt + 1), and return it.

        While a heavy run is running the other heavy ones stay queued and say for what they wait.
        """
        with self.read() as db:
            if db.scalar(select(Run.id).where(*_QUEUED).limit(1)) is None:
                return None
        with self.write() as db:
            one_at_a_time(db, "claim")
            busy: Any = db.execute(
                select(Run.id, Run.kind)
                .where(Run.status == "running", Run.kind.in_(heavy), Run.parent_id.is_(None))
                .order_by(Run.id)
                .limit(1)
            ).first()
            queued = db.execute(
                select(Run.id, Run.kind, Run.waiting_for).where(*_QUEUED).order_by(Run.id).with_for_update()
            ).all()
            claimed = None
            for run in queued:
                if run.kind in heavy and busy is not None:
                    why = f"waiting for run {busy.id} ({busy.kind}) on this device"
                    if why != run.waiting_for:
                        db.execute(update(Run).where(Run.id == run.id).values(waiting_for=why))
                elif claimed is None:
                    claimed = run.id
                    busy = run if run.kind in heavy else busy
            return None if claimed is None else _start(db, claimed, pid)

    def claim_child(self, run_id: int, pid: int) -> RunRow:
        """Mark a run that has a parent running (attempt + 1), whether it is new or ended unfinished. Returns it.

        Raises RunStateError if it has no parent, is done, or is running.
        """
        with self.write() as db:
            run = _run(db, run_id, lock=True)
            if run.parent_id is None or run.status not in ("queued", *RESUMABLE):
                raise RunStateError(
                    f"run {run_id} is {run.status}: it cannot be started as a part of another run"
                )
            return _start(db, run_id, pid)

    def children(self, run_id: int) -> list[RunRow]:
        """The runs that are parts of this one, oldest first."""
        query = select(*_RUN_COLUMNS).where(Run.parent_id == run_id).order_by(Run.id)
        with self.read() as db:
            now = store_now(db)
            return [RunRow(**row._mapping, now=now) for row in db.execute(query)]

    def set_run_pid(self, run_id: int, pid: int) -> None:
        """The process that does the work (the worker claimed the run under its own)."""
        with self.write() as db:
            db.execute(update(Run).where(Run.id == run_id).values(pid=pid))

    def heartbeat(
        self,
        run_id: int,
        *,
        done: int,
        total: int | None,
        unit: str,
        message: str,
        attempt: int | None = None,
    ) -> bool:
        """Store progress at the store's time. True: stop (somebody asked, or this attempt no longer owns the run).

        A run that was marked stalled although its process lives is running again.
        """
        with self.write() as db:
            mine = [Run.id == run_id, Run.status.in_(("running", "stalled"))]
            if attempt is not None:
                mine.append(Run.attempt == attempt)
            stop = db.execute(
                update(Run)
                .where(*mine)
                .values(
                    status="running",
                    heartbeat_at=store_now(db),
                    done=done,
                    total=total,
                    unit=unit,
                    message=message,
                )
                .returning(Run.stop_requested)
            ).scalar_one_or_none()
        return True if stop is None else stop

    def finish_run(
        self,
        run_id: int,
        status: str,
        *,
        result: dict[str, Any] | None = None,
        error: str | None = None,
        attempt: int | None = None,
    ) -> None:
        """End a run as done, failed or stopped. Raises RunStateError if it is not running (or not this attempt)."""
        with self.write() as db:
            run = _run(db, run_id, lock=True)
            if run.status not in ("running", "stalled") or attempt not in (None, run.attempt):
                raise RunStateError(
                    f"run {run_id} is {run.status} in attempt {run.attempt}: it cannot become {status} now"
                )
            values: dict[str, Any] = {"status": status, "error": error, "ended_at": store_now(db)}
            if result is not None:
                values["result"] = result
            db.execute(update(Run).where(Run.id == run_id).values(values))

    def request_stop(self, run_id: int, actor: str | None = None) -> RunRow:
        """Ask a running run to stop; one that is queued or stalled is stopped at once. Returns it.

        ``actor``: who asks; by default the one whose eyes this store is for, and without either the program itself
        (a run that stops its parts). Raises NotAllowedError unless an owner asks.
        """
        with self.write() as db:
            run = _run(db, run_id, lock=True)
            _allow(db, actor or self.viewer, "stop run", "stopping a run", run_id)
            if run.status in ("done", "failed", "stopped"):
                raise RunStateError(f"run {run_id} is {run.status}: there is nothing to stop")
            values: dict[str, Any] = {"stop_requested": True}
            if run.status != "running":
                values |= {"status": "stopped", "ended_at": store_now(db), "waiting_for": ""}
            db.execute(update(Run).where(Run.id == run_id).values(values))
            return _run(db, run_id)

    def resume_run(self, run_id: int, actor: str | None = None) -> RunRow:
        """Queue a stopped, failed or stalled run again; what it committed is kept and not repeated.

        ``actor`` as in ``request_stop``. Raises NotAllowedError unless an owner asks.
        """
        with self.write() as db:
            run = _run(db, run_id, lock=True)
            _allow(db, actor or self.viewer, "resume run", "resuming a run", run_id)
            if run.status not in RESUMABLE:
                raise RunStateError(
                    f"run {run_id} is {run.status}: only a stopped, failed or stalled run can be resumed"
                )
            if run.parent_id is not None:
                raise RunStateError(
                    f"run {run_id} is a part of run {run.parent_id}: resume that one, it goes on here"
                )
            db.execute(
                update(Run)
                .where(Run.id == run_id)
                .values(
                    status="queued", stop_requested=False, error=None, ended_at=None, waiting_for="", pid=None
                )
            )
            return _run(db, run_id)

    def mark_stalled(self, after_s: float = 20.0) -> list[int]:
        """Mark running runs without a heartbeat for ``after_s`` seconds as stalled. Returns their ids."""
        with self.read() as db:
            if not _silent(db, after_s):
                return []
        with self.write() as db:
            # asked again by the change itself: a run that ends or beats meanwhile is not touched
            stalled = update(Run).where(*_is_silent(db, after_s)).values(status="stalled")
            return sorted(db.scalars(stalled.returning(Run.id)))

    def set_run_facts(
        self,
        run_id: int,
        *,
        versions: dict[str, str] | None = None,
        prompt_hashes: dict[str, str] | None = None,
        recipe: dict[str, Any] | None = None,
    ) -> None:
        """What the run's result depends on; None leaves a field as it is."""
        facts = {"versions": versions, "prompt_hashes": prompt_hashes, "recipe": recipe}
        values = {name: value for name, value in facts.items() if value is not None}
        if values:
            with self.write() as db:
                db.execute(update(Run).where(Run.id == run_id).values(values))

    def run(self, run_id: int) -> RunRow:
        """One run. Raises NotFoundError."""
        with self.read() as db:
            return _run(db, run_id)

    def runs(
        self,
        limit: int = 50,
        before: int | None = None,
        *,
        statuses: Sequence[str] = (),
        kinds: Sequence[str] = (),
        parts: bool = True,
    ) -> list[RunRow]:
        """Newest first; ``before``: only ids below it (the next page); ``parts`` off: without parts of other runs."""
        query = select(*_RUN_COLUMNS).order_by(Run.id.desc()).limit(limit)
        if before is not None:
            query = query.where(Run.id < before)
        if statuses:
            query = query.where(Run.status.in_(statuses))
        if kinds:
            query = query.where(Run.kind.in_(kinds))
        if not parts:
            query = query.where(Run.parent_id.is_(None))
        with self.read() as db:
            now = store_now(db)
            return [RunRow(**row._mapping, now=now) for row in db.execute(query)]

    def add_metrics(self, run_id: int, rows: Iterable[tuple[str, int, float]]) -> None:
        """Numbers of a run as (name, step, value). A (name, step) that is stored already stays as it is."""
        with self.write() as db:
            now = store_now(db)
            values = [
                {"run_id": run_id, "name": name, "step": step, "value": _finite(value), "at": now}
                for name, step, value in rows
            ]
            if values:
                db.execute(insert_new(db, Metric), values)

    def metrics(self, run_id: int, names: Sequence[str] | None = None) -> dict[str, list[MetricRow]]:
        """Series by name, each in the order of its steps."""
        query = select(*columns(MetricRow, Metric)).where(Metric.run_id == run_id)
        if names is not None:
            query = query.where(Metric.name.in_(names))
        series: dict[str, list[MetricRow]] = {}
        with self.read() as db:
            for row in rows_of(MetricRow, db.execute(query.order_by(Metric.name, Metric.step))):
                series.setdefault(row.name, []).append(row)
        return series

    def add_run_samples(self, run_id: int, step: int, rows: Iterable[NewRunSample]) -> None:
        """Completions drawn at a step, numbered in the order given. A step that has some already keeps them."""
        values = [{"run_id": run_id, "step": step, "idx": idx, **asdict(row)} for idx, row in enumerate(rows)]
        if values:
            with self.write() as db:
                db.execute(insert_new(db, RunSample), values)

    def run_sample_steps(self, run_id: int) -> list[int]:
        """The steps at which completions were kept, ascending."""
        query = select(RunSample.step).where(RunSample.run_id == run_id).distinct().order_by(RunSample.step)
        with self.read() as db:
            return list(db.scalars(query))

    def run_samples(self, run_id: int, step: int) -> list[NewRunSample]:
        """The completions kept at a step, in their order."""
        query = (
            select(*columns(NewRunSample, RunSample))
            .where(RunSample.run_id == run_id, RunSample.step == step)
            .order_by(RunSample.idx)
        )
        with self.read() as db:
            return rows_of(NewRunSample, db.execute(query))

    def written_by(self, run_id: int) -> dict[str, int]:
        """{trajectories, rollouts, judgments: how many the run wrote}, each counted on its index."""
        found = {}
        with self.read() as db:
            for name, column in _WRITTEN.items():
                found[name] = db.execute(select(func.count()).where(column == run_id)).scalar_one()
        return found


def _allow(db: Connection, actor: str | None, action: str, doing: str, run_id: int) -> None:
    """Refuse whoever may not do this to a run, and put what an owner does on the audit list."""
    if actor is not None:
        need(db, actor, "owner", doing)
        note(db, actor, action, f"run {run_id}")


def _insert_run(db: Connection, **values: Any) -> int:
    now: datetime = store_now(db)
    return db.execute(insert(Run).values(created_at=now, **values).returning(Run.id)).scalar_one()


def _start(db: Connection, run_id: int, pid: int) -> RunRow:
    now = store_now(db)
    db.execute(
        update(Run)
        .where(Run.id == run_id)
        .values(
            status="running",
            attempt=Run.attempt + 1,
            pid=pid,
            waiting_for="",
            stop_requested=False,
            error=None,
            started_at=now,
            heartbeat_at=now,
            ended_at=None,
            done_at_start=Run.done,
        )
    )
    return _run(db, run_id)


def _run(db: Connection, run_id: int, *, lock: bool = False) -> RunRow:
    query = select(*_RUN_COLUMNS).where(Run.id == run_id)
    row = db.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotFoundError(f"there is no run {run_id}")
    return RunRow(**row._mapping, now=store_now(db))


def _silent(db: Connection, after_s: float) -> list[int]:
    return list(db.scalars(select(Run.id).where(*_is_silent(db, after_s))))


def _is_silent(db: Connection, after_s: float) -> list[Any]:
    limit = store_now(db) - timedelta(seconds=after_s)
    return [Run.status == "running", Run.heartbeat_at < limit]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

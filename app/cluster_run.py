"""A run on the Ray cluster: ``python -m app.cluster_run ID ATTEMPT MODULE`` sends it there as a job and follows it.

To the worker, or a plan, this is the run's own process: it prints the job's log, passes a stop on, and ends with the
job. The job is ``python -m MODULE run ID ATTEMPT``, what would else run here, and writes its heartbeat and result to
the store itself; until it is placed the heartbeat is written from here. A job whose follower is killed sees at its next
heartbeat that the run is no longer its own, and stops.
"""

from __future__ import annotations

import secrets
import shlex
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from types import FrameType

from app.cluster import check_store, job_environment, job_server
from app.cluster_jobs import JobServer, JobState, NoAnswerError
from app.kinds import resolve_recipe
from app.memory_forecast import doors
from app.processes import UNSTORED_CODE
from app.settings import Settings, get_settings
from app.store import open_store
from db.errors import RunStateError, StoreError
from db.rows import RunRow
from db.store import Store
from engine.errors import RunError, StepWiserError
from engine.recipes import Recipe
from training.hardware import hardware_of, launch_command

POLL_S = 1.0
LOG_S = 2.0
JOB_GRACE_S = 40.0
"""After which a job that was asked to stop is ended: before the worker, or a plan, ends its follower."""
LOST_S = 60.0
"""Without an answer of the job server and without a heartbeat of the run: the cluster is gone."""


class Follower:
    """One attempt of one run as a job."""

    def __init__(self, settings: Settings, store: Store, run: RunRow, module: str):
        self.settings, self.store, self.run, self.module = settings, store, run, module
        self.asked: float | None = None
        self._ended = False
        self._job = ""
        self._shown = 0
        self._looked = 0.0
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.asked = self.asked or time.monotonic()

    def work(self) -> int:
        """Submit and follow to the end. Returns an exit code; raises StepWiserError."""
        check_store(self.settings)
        server = job_server(self.settings)
        self._submit(server)
        heard = time.monotonic()
        while True:
            try:
                state = server.state(self._job)
                heard = time.monotonic()
                self._show_log(server, all_of_it=state.ended)
                if state.ended:
                    return self._close(state)
                self._pass_stop_on(server, state)
            except RunStateError:
                raise
            except StoreError as error:  # locked, or its disk full: the job waits for it too
                self._say(f"waiting for the store: {error}")
            except NoAnswerError as error:
                age = self.store.run(self.run.id).heartbeat_age_s
                if time.monotonic() - heard > LOST_S and (age is None or age > LOST_S):
                    raise RunError(
                        f"{error} The run gives no sign of life either; resume it later"
                    ) from error
            time.sleep(POLL_S)

    def _submit(self, server: JobServer) -> None:
        run, cluster_gpus = self.run, server.gpus()
        recipe = resolve_recipe(run.kind, run.recipe)
        gpus = gpus_wanted(recipe) if cluster_gpus else 0
        command = launch_command(
            hardware_of(recipe), run.id, run.attempt, module=self.module, gpu=bool(cluster_gpus)
        )
        if self.settings.ray_python:
            command[0] = self.settings.ray_python
        self._job = f"stepwiser-run-{run.id}-{run.attempt}-{secrets.token_hex(4)}"
        about = {"run": str(run.id), "attempt": str(run.attempt), "kind": run.kind}
        one_machine = self.settings.store_url.startswith("sqlite")  # the head's, as check_store saw
        env = job_environment(self.settings)
        server.submit(self._job, shlex.join(command), env, about, gpus=gpus, on_head=one_machine)
        self._say(
            f"sent to the Ray cluster {server.address} as job {self._job}"
            + (f", {gpus} GPUs" if gpus else "")
        )
        if self.settings.llm_keys:
            self._say("keys of model servers are not sent along: the cluster's nodes need STEPWISER_LLM_KEYS")

    def _pass_stop_on(self, server: JobServer, state: JobState) -> None:
        """A stop reaches the job through the store; one that is not placed yet, or does not listen, is ended."""
        row = self.store.run(self.run.id)
        ours = row.status in ("running", "stalled") and row.attempt == self.run.attempt
        if (
            not ours
        ):  # it has said how it ended, or was given up, and may be queued again: only the job is left to end
            self.asked = self.asked or time.monotonic()
        if state.status == "PENDING":
            if self.asked is not None or self._beat(row):
                self._end(server)
        elif self.asked is not None and time.monotonic() - self.asked > JOB_GRACE_S:
            self._end(server)
        elif self.asked is not None and ours and not row.stop_requested:
            with suppress(RunStateError):  # it ended meanwhile
                self.store.request_stop(self.run.id)

    def _beat(self, row: RunRow) -> bool:
        """A sign of life for a job that has no place yet. Returns whether a stop was asked for."""
        return self.store.heartbeat(
            row.id,
            attempt=self.run.attempt,
            done=row.done,
            total=row.total,
            unit=row.unit,
            message="waiting for a place on the Ray cluster",
        )

    def _end(self, server: JobServer) -> None:
        self.asked = self.asked or time.monotonic()
        if not self._ended:
            self._ended = True
            self._say(f"job {self._job} is ended")
            server.stop(self._job)

    def _show_log(self, server: JobServer, all_of_it: bool) -> None:
        if all_of_it or time.monotonic() - self._looked >= LOG_S:
            self._looked = time.monotonic()
            text = server.log(self._job)
            print(text[self._shown :], end="", flush=True)
            self._shown = len(text)

    def _close(self, state: JobState) -> int:
        """Store how the run ended if its job could not."""
        self._say(f"job {self._job}: {state.status}")
        row = self.store.run(self.run.id)
        if row.status in ("running", "stalled"):
            stopped = self.asked is not None or row.stop_requested
            why = f"its Ray job ended as {state.status} before it could say why: {' '.join(state.message.split())[:300]}"
            with suppress(RunStateError):  # another attempt owns it
                status = "stopped" if stopped else "failed"
                self.store.finish_run(self.run.id, status, error=why, attempt=self.run.attempt)
        return 0 if state.status == "SUCCEEDED" else 1

    def _say(self, line: str) -> None:
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}", flush=True)


def gpus_wanted(recipe: Recipe) -> int:
    """GPUs that the run's own processes use: trainers', and those of language models that they load themselves."""
    hardware = hardware_of(recipe)
    own = [spec.tensor_parallel for _, spec in doors(recipe) if spec.door == "vllm"]
    return max(hardware.processes if hardware else 0, *own, 0)


def main(arguments: list[str]) -> int:
    run_id, attempt, module = int(arguments[0]), int(arguments[1]), arguments[2]
    settings = get_settings()
    store = open_store(settings)
    run = store.run(run_id)
    try:
        return Follower(settings, store, run, module).work()
    except (StepWiserError, StoreError) as error:
        print(f"failed: {error}", flush=True)
        try:
            store.finish_run(run_id, "failed", error=str(error), attempt=attempt)
        except RunStateError:  # the run has ended, or another attempt owns it
            return 1
        except StoreError:
            return UNSTORED_CODE
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A process that writes to a store, for test_store_processes: ``python -m tests.store_writer URL WHAT NAME COUNT``."""

from __future__ import annotations

import sys
import time

from db.store import open_store
from db.tables import Rollout
from tests.store_world import rollout


def main(url: str, what: str, name: str, count: int) -> None:
    store = open_store(url)
    ids = store.trajectory_ids()
    chunks = [chunk.id for t in store.stage_trajectories(ids) for chunk in t.chunks]
    if what == "reviews":
        for i in range(count):
            chunk = chunks[i % len(chunks)]
            head = store.chain_head(chunk, name)
            store.add_review(
                chunk, f"{name}-{i}", name, (-1, 0, 1)[i % 3], supersedes=head.id if head else None
            )
    elif what == "rollouts":
        for i in range(count):
            store.add_rollouts([rollout(1 + i % 4, i // 4 * 16 + j) for j in range(16)], run_id=1)
            store.heartbeat(1, done=i, total=count, unit="rollouts", message="")
    elif what == "hang":
        store.add_rollouts([rollout(1, j) for j in range(count)], run_id=1)
        with store.write() as db:
            values = [
                {"prefix_id": 1, "draw": count + j, "outcome": "wrong", "n_tokens": 1, "run_id": 1}
                for j in range(50)
            ]
            db.execute(Rollout.__table__.insert(), values)  # type: ignore[attr-defined]
            print("inside", flush=True)
            time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

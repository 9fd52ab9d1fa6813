"""Stopped prefixes in the store: what their rows say, when they end, and that copies carry them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.check import check
from db.snapshot import dump, load
from db.stops_store import Stop
from db.store import Store
from engine.pipeline.labelling import prefix_values, relabel
from engine.values import Value
from tests.store_world import BACKENDS, filled, fresh_store, rollout


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store


def test_the_same_m_adds_rules_and_another_replaces(store: Store):
    ids = filled(store)
    inner, start, run = ids["inner"], ids["start"], ids["run"]
    store.put_stops([inner, start], 16, [], run_id=run)
    assert store.stops([inner, start, 999]) == {inner: Stop(16, ()), start: Stop(16, ())}
    store.put_stops([inner], 16, ["rel-ratio:gamma=0.8"], run_id=run)
    store.put_stops([inner], 16, ["abs-q"], run_id=run)
    store.put_stops([inner], 16, [], run_id=run)
    assert store.stops([inner])[inner] == Stop(16, ("abs-q", "rel-ratio:gamma=0.8"))
    store.put_stops([inner], 32, [], run_id=run)
    assert store.stops([inner])[inner] == Stop(32, ())


def test_a_stop_lasts_until_there_are_m_draws(store: Store):
    ids = filled(store)  # 8 draws, 2 of them correct
    (before,) = store.label_inputs([ids["sampled"]])
    assert prefix_values(before)[1] == Value(2, 8)
    store.put_stops([ids["inner"]], 10, ["abs-q"], run_id=ids["run"])
    (inputs,) = store.label_inputs([ids["sampled"]])
    assert prefix_values(inputs)[1] == Value(2, 8, left=2, decided=("abs-q",))
    relabel(store, [ids["sampled"]])
    (chunk,) = [c.chunk_id for c in inputs.chunks if c.idx == 0]
    row = store.labels([chunk])[chunk]
    assert (row.abs_q, row.rel_ratio, row.drop, row.after_k, row.abs_q_conf) == ("+", None, None, None, None)
    assert check(store) == []
    store.add_rollouts([rollout(ids["inner"], j, "wrong") for j in (8, 9)], run_id=ids["run"])
    (inputs,) = store.label_inputs([ids["sampled"]])
    assert prefix_values(inputs)[1] == Value(2, 10)
    relabel(store, [ids["sampled"]])
    assert store.labels([chunk])[chunk].rel_ratio is not None
    assert check(store) == []


def test_a_copy_carries_stops_and_stops_nothing_that_was_there(store: Store, tmp_path: Path):
    ids = filled(store)
    store.put_stops([ids["inner"]], 16, ["abs-q"], run_id=ids["run"])
    dump(store, tmp_path / "copy.xz")
    with fresh_store("sqlite", tmp_path) as other:
        assert load(other, tmp_path / "copy.xz").added["prefix_stops"] == 1
        assert list(other.stops(range(1, 99)).values()) == [Stop(16, ("abs-q",))]
    with fresh_store("sqlite", tmp_path) as other:
        filled(other)
        assert load(other, tmp_path / "copy.xz").added["prefix_stops"] == 0
        assert other.stops(range(1, 99)) == {}

"""What a queue is made of: the orders, what each has nothing to say of, first-error mode, known items, blind order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from db.chunk_filter import ChunkFilter
from db.errors import NotFoundError
from db.queue_items import Item, choose, mix
from db.queues_store import NewQueue
from db.rows import Label
from db.store import Store
from tests.store_world import BACKENDS, add_judge, add_problem, add_run, add_trajectory, fresh_store, judgment

# chunk: (label, confidence, drop, votes of judge A, votes of judge B), + and - counted by draws of four
CHUNKS = (
    ("+", 0.90, 0.1, "++++", "++++"),  # 0 all agree
    ("+", 0.60, None, "----", "----"),  # 1 both against it, surely
    ("-", 0.95, 0.7, "+++-", "----"),  # 2 one against it
    ("-", 0.80, 0.4, "+++-", ""),  # 3 the only judge is against it
    (None, None, None, "++++", "----"),  # 4 no label, but the judges differ
    ("+", 0.50, -0.2, "++--", ""),  # 5 a tie is no verdict
    ("-", 0.70, 0.5, "", ""),  # 6 nobody judged it
    (None, None, None, "", ""),  # 7 nothing is known
)


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        _fill(store)
        yield store


def _fill(store: Store) -> None:
    """Two trajectories of four chunks, ids 1 to 8, with what CHUNKS says."""
    run = add_run(store)
    judges = [add_judge(store), add_judge(store, "other", "e")]
    chunks = [
        c
        for i in (1, 2)
        for c in add_trajectory(store, add_problem(store, f"p{i}"), steps=4, words=f"{i}")[1]
    ]
    assert chunks == list(range(1, 9))
    for chunk, (label, confidence, drop, *votes) in zip(chunks, CHUNKS, strict=True):
        if label:
            store.put_labels([Label(chunk, drop=drop, rel_ratio=label, rel_ratio_conf=confidence)])
        rows = [
            judgment(judge, chunk, draw, "positive" if vote == "+" else "negative")
            for judge, said in zip(judges, votes, strict=True)
            for draw, vote in enumerate(said)
        ]
        store.add_judgments(rows, run_id=run)


def places(store: Store, **values: object) -> list[int]:
    """Indexes into CHUNKS of the chosen chunks, in order."""
    with store.read() as db:
        chosen = choose(db, NewQueue(**({"name": "q"} | values)))  # type: ignore[arg-type]
        return [item.chunk_id - 1 for item in chosen.items if item.chunk_id is not None]


SPOKEN = {
    "disagreement": [1, 2, 3],  # two judges, then one against the surer label
    "least-confident": [5, 1, 6, 3, 0, 2],
    "biggest-drop": [2, 6, 3, 0, 5],
    "judges-disagree": [2, 4],
    "label-noise": [1, 3],  # surest judges first; 2 has a judge that agrees
    "reading": [0, 1, 2, 3, 4, 5, 6, 7],
}


@pytest.mark.parametrize("order", SPOKEN)
def test_an_order_puts_first_what_it_speaks_of_and_the_rest_in_reading_order(store: Store, order: str):
    spoken = SPOKEN[order]
    assert places(store, order=order, only=True) == spoken
    assert places(store, order=order) == spoken + [i for i in range(8) if i not in spoken]
    assert places(store, order=order, limit=2) == spoken[:2]


def test_a_judge_may_be_the_only_one_listened_to(store: Store):
    assert places(store, order="disagreement", judge_id=2, only=True) == [1]
    assert places(store, order="label-noise", judge_id=1, only=True) == [1, 2, 3]
    with pytest.raises(NotFoundError, match="there is no judge 9"):
        places(store, order="disagreement", judge_id=9)


def test_the_rule_is_the_one_asked_for(store: Store):
    store.put_labels([Label(1, abs_q="-", abs_q_conf=0.4, rel_ratio="+", rel_ratio_conf=0.9, drop=0.1)])
    assert places(store, order="disagreement", rule="abs-q", only=True) == [0]
    assert places(store, order="least-confident", rule="abs-q", only=True) == [0]


def test_random_is_a_sample_that_the_seed_repeats(store: Store):
    first = places(store, order="random", seed=3)
    assert sorted(first) == list(range(8)) and first == places(store, order="random", seed=3)
    assert any(places(store, order="random", seed=seed) != first for seed in range(5))
    assert places(store, order="random", seed=3, limit=3) == first[:3]


def test_a_filter_and_given_chunks_bound_what_is_chosen(store: Store):
    assert places(store, order="biggest-drop", where=ChunkFilter(label="-")) == [2, 6, 3]
    assert places(store, order="disagreement", chunk_ids=[8, 3, 1, 3]) == [2, 0, 7]


def test_more_chunks_than_a_database_takes_parameters_can_be_given(store: Store):
    with pytest.raises(NotFoundError, match="there are no chunks 9, 10, 11, 12, 13 …"):
        places(store, chunk_ids=range(1, 40_000))


def test_first_error_mode_takes_each_solution_once_by_its_foremost_chunk(store: Store):
    values = {"mode": "first-error", "order": "least-confident"}
    with store.read() as db:
        chosen = choose(db, NewQueue("q", **values))  # type: ignore[arg-type]
        assert chosen.items == [Item(2, None), Item(1, None)] and chosen.first == 2
        one = choose(db, NewQueue("q", limit=1, **values))  # type: ignore[arg-type]
        assert one.items == [Item(2, None)]


def test_a_blind_queue_has_the_same_items_in_an_order_that_tells_nothing(store: Store):
    plain = places(store, order="biggest-drop", limit=5)
    orders = [places(store, order="biggest-drop", limit=5, blind=True, seed=seed) for seed in range(5)]
    assert all(sorted(order) == sorted(plain) for order in orders)
    assert sum(order == plain for order in orders) < 2
    assert places(store, order="reading", blind=True) == list(range(8))


def test_known_items_are_spread_and_asked_only_as_such(store: Store):
    with store.read() as db:
        new = NewQueue("q", order="reading", known={2: -1, 7: 1}, known_rate=0.25)
        items = choose(db, new).items
        assert [i.chunk_id for i in items if i.known is None] == [1, 3, 4, 5, 6, 8]
        assert {i.chunk_id: i.known for i in items if i.known is not None} == {2: -1, 7: 1}
        with pytest.raises(NotFoundError, match="there are no chunks 99"):
            choose(db, NewQueue("q", known={99: 1}))


@pytest.mark.parametrize(
    ("n", "known", "rate", "mixed"), [(90, 20, 0.1, 10), (10, 3, 0.5, 3), (3, 5, 0.01, 1)]
)
def test_known_items_are_their_share_of_all(n: int, known: int, rate: float, mixed: int):
    items = [Item(i, i) for i in range(n)]
    found = mix(items, [Item(1000 + i, 1000 + i, 1) for i in range(known)], rate, Random(1))
    assert len(found) == n + mixed and [item for item in found if item.known is None] == items
    at = [place for place, item in enumerate(found) if item.known is not None]
    share = (n + mixed) / mixed
    assert all(which * share - 1 <= place <= (which + 1) * share for which, place in enumerate(at))

"""Sweep and preview: labels of many chunks at once equal the rules', counts and agreement by hand, no text read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from db.store import Store
from engine.errors import RecipeError, TrainingError
from engine.label_grid import LabelGrid
from engine.labels import confidence, label, parse_rule
from engine.recipes import Selection, resolve
from engine.values import UNKNOWN, Value
from tests.labelled_store import store_with
from tests.test_sets import characters
from training.sets import BuildSetRecipe, Labelled, preview, sweep, swept_rules
from training.sets.choosing import choose
from training.sets.stored import stored_chunks
from training.sets.sweep import sweep_chunks

RULES = [parse_rule(text) for text in ("abs-q", "rel-effective:alpha=0.8,n=4", "rel-ratio:gamma=0.8")]
HUMAN = Selection(policy="human")


def random_value(rng: random.Random) -> Value:
    kind = rng.randrange(8)
    if kind == 0:
        return UNKNOWN
    if kind == 1:
        return Value(exact=rng.random() < 0.5)
    n = rng.choice([1, 15, 16, 16, 16, 64])
    return Value(rng.randint(0, n), n, errors=rng.choice([0, 0, 1, 5]))


def test_many_labels_at_once_equal_the_rules_one_by_one() -> None:
    rng = random.Random(1)
    pairs = [(random_value(rng), random_value(rng)) for _ in range(600)]
    grid = LabelGrid(pairs)
    for rule in (*RULES, *swept_rules()):
        found = grid.under(rule)
        for place, (before, after) in enumerate(pairs):
            wanted = label(rule, before, after)
            assert {1: "+", -1: "-", 0: None}[int(found.sign[place])] == wanted, (rule, before, after)
            if wanted:
                assert found.confidence[place] == pytest.approx(confidence(rule, before, after), abs=1e-12)
    assert LabelGrid([]).under(RULES[0]).sign.size == 0


def test_the_grid_compares_exactly() -> None:
    tie = [(Value(15, 20), Value(9, 20))]  # 9/20 = 0.6 · 15/20: not above it
    assert LabelGrid(tie).under(parse_rule("rel-ratio:gamma=0.6")).sign[0] == -1
    assert LabelGrid(tie).under(parse_rule("rel-ratio:gamma=0.59")).sign[0] == 1


def test_sweep_counts_by_hand(tmp_path: Path) -> None:
    # 8/16 before, then (16, 2) or (1, 12) of 16, and both solutions are correct at their end
    store, _ = store_with(tmp_path, [(16, 2), (1, 12)])
    table = sweep(store, HUMAN, rules=swept_rules(["0.8", "1.4"], ["0.4"], ["4"]), min_confidence=0.9)
    assert table.chunks == 6 and table.reviewed == 0
    counts = {row.rule: (row.positive, row.negative, row.unlabelled) for row in table.rows}
    assert counts == {
        "abs-q": (6, 0, 0),
        # 1/16 after 8/16: 0.0625 + 0.4 · (0.2275 - 0.9375) < 0; 2/16 after 16/16: 0.125 + 0.4 · (0.4138 - 1) < 0
        "rel-effective:alpha=0.4,n=4": (4, 2, 0),
        "rel-ratio:gamma=0.8": (4, 2, 0),
        "rel-ratio:gamma=1.4": (3, 3, 0),  # and 1 after 12/16: 1 < 1.4 · 0.75
    }
    ratio = table.rows[2]
    sure = [
        confidence(RULES[2], *pair)
        for pair in [
            (Value(8, 16), Value(16, 16)),
            (Value(16, 16), Value(2, 16)),
            (Value(2, 16), Value(exact=True)),
            (Value(8, 16), Value(1, 16)),
            (Value(1, 16), Value(12, 16)),
            (Value(12, 16), Value(exact=True)),
        ]
    ]
    assert ratio.mean_confidence == pytest.approx(sum(sure) / 6)
    assert ratio.sure == pytest.approx(sum(s >= 0.9 for s in sure) / 6)
    assert (ratio.gamma, ratio.alpha, ratio.n, ratio.agreement) == (0.8, None, None, None)
    assert [c.held_out for c in table.chosen] == [None, None, None], "nobody reviewed"


def said(chunk: int, problem: int, k_after: int, verdict: int) -> Labelled:
    return Labelled(chunk, problem, "", Value(16, 16), Value(k_after, 16), reviews=(verdict,))


def test_sweep_agreement_is_held_out_by_problem() -> None:
    """Problem 1 alone chooses γ = 0.6, problem 2 alone γ = 0.8; either is right on one chunk of three of the other."""
    chunks = [
        *(said(i, 1, k, v) for i, (k, v) in enumerate([(10, 1), (12, 1), (9, -1)])),
        *(said(i, 2, k, v) for i, (k, v) in enumerate([(12, -1), (10, -1), (14, 1)], start=3)),
        Labelled(9, 3, "", Value(16, 16), Value(4, 16)),  # nobody reviewed it
    ]
    table = sweep_chunks(chunks, swept_rules(["0.6", "0.8"], [], []))
    assert table.chunks == 7 and table.reviewed == 6
    loose, strict = (row.agreement for row in table.rows if row.name == "rel-ratio")
    assert loose and strict
    assert (loose.n, loose.problems, loose.share) == (6, 2, pytest.approx(4 / 6))
    # people's + : 10, 12, 14 all +; people's - : 9 is -, 12 and 10 are +
    assert loose.balanced == pytest.approx((1 + 1 / 3) / 2)
    assert strict.balanced == pytest.approx((1 / 3 + 1) / 2)
    chosen = next(c for c in table.chosen if c.name == "rel-ratio")
    assert {chosen.first, chosen.second} == {"rel-ratio:gamma=0.6", "rel-ratio:gamma=0.8"}
    assert chosen.held_out and chosen.held_out.n == 6
    assert chosen.held_out.share == pytest.approx(2 / 6)
    assert chosen.held_out.low <= 0.1 and chosen.held_out.high >= 0.7, "six chunks say little"


def test_sweep_interval_follows_the_problems_and_not_the_chunks() -> None:
    """40 chunks: agreement differs between problems, not inside them; the interval is wider than for 40 problems."""
    together = [said(p * 10 + i, p, 16 if p % 2 else 4, 1) for p in range(4) for i in range(10)]
    apart = [said(i, i, 16 if i % 2 else 4, 1) for i in range(40)]
    widths = []
    for chunks in (together, apart):
        agreement = sweep_chunks(chunks, swept_rules(["0.8"], [], [])).rows[-1].agreement
        assert agreement and agreement.n == 40 and agreement.share == 0.5 and agreement.balanced is None
        widths.append(agreement.high - agreement.low)
    assert widths[0] > 0.9 > 0.4 > widths[1]
    sure = (
        sweep_chunks([said(i, i, 16, 1) for i in range(5)], swept_rules(["0.8"], [], [])).rows[-1].agreement
    )
    assert sure and sure.share == 1 and sure.high == 1 and 0.5 < sure.low < 0.6, "Wilson for 5 of 5: 0.57"


def test_sweep_takes_effective_reviews_only() -> None:
    chunks = [
        Labelled(1, 1, "", Value(16, 16), Value(16, 16), reviews=(1, -1)),
        Labelled(2, 2, "", Value(16, 16), Value(16, 16), reviews=(None, 0)),
        Labelled(3, 3, "", Value(16, 16), Value(16, 16), adjudication=-1, reviews=(1,)),
        Labelled(4, 4, "", UNKNOWN, UNKNOWN, reviews=(1,)),
    ]
    table = sweep_chunks(chunks, [RULES[2]])
    assert table.reviewed == 2 and table.rows[0].unlabelled == 1
    agreement = table.rows[0].agreement
    assert agreement and agreement.n == 1 and agreement.share == 0


def test_sweep_refuses_bad_parameters_and_empty_selections(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="gamma is 'x'"):
        swept_rules(["x"], [], [])
    store, _ = store_with(tmp_path, [(16, 2)])
    with pytest.raises(TrainingError, match=r"no trajectory that fits select .*dataset .none."):
        sweep(store, Selection(dataset="none"))


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    seen: list[str] = []

    def note(conn, cursor, statement, parameters, context, executemany):  # type: ignore[no-untyped-def]
        seen.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    yield seen
    event.remove(store.engine, "before_cursor_execute", note)


def test_sweep_and_preview_read_no_solution(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [(16, 2), (1, 12)])
    recipe = set_recipe(near_duplicates=0)
    with statements(store) as seen:
        sweep(store, HUMAN)
        preview(store, recipe)
    assert len(seen) > 5
    read = [
        s for s in seen if "_texts" in s or "chunks.text" in s or "problems.text" in s or "rationale" in s
    ]
    assert read == []
    with statements(store) as seen:
        list(stored_chunks(store, recipe))
    assert any("chunks.text" in s for s in seen), "the watch above would see it"


# ---- preview


def set_recipe(**labels: object) -> BuildSetRecipe:
    choice = {"held_out": 0.0, "min_confidence": 0.0, "balance": False, **labels}
    return resolve(BuildSetRecipe, {"select": {"policy": "human"}, "labels": choice})


def test_preview_shows_the_class_balance_by_position(tmp_path: Path) -> None:
    store, chunks = store_with(tmp_path, [(16, 2), (1, 12), (16, 14)])
    store.add_review(chunks[8], action_id="a", actor="ada", verdict=-1)
    found = preview(store, set_recipe())
    assert [(b.position, b.positive, b.negative) for b in found.labelled] == [(0, 2, 1), (1, 2, 1), (2, 2, 1)]
    assert found.train == found.labelled and found.held_out == ()
    assert found.from_people == 1 and found.counts["reviewed"] == 1
    assert found.refusal is None and found.problems["train"] == 3
    even = preview(store, set_recipe(balance=True))
    assert sum(b.positive for b in even.train) == sum(b.negative for b in even.train) == 3


def test_preview_equals_what_is_built(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [(16, 2), (1, 12), (16, 14), (2, 2), (8, 3), (7, 7)] * 3)
    recipe = set_recipe(held_out=0.3, min_confidence=0.6, balance=True)
    found = preview(store, recipe)
    built = choose(
        stored_chunks(store, recipe),
        recipe.labels,
        seed=recipe.seed,
        max_prompt_tokens=10_000,
        count_tokens=characters,
    )
    assert found.counts == {k: n for k, n in built.counts.items() if not k.startswith("too_long")}
    assert sum(b.positive + b.negative for b in found.train) == len(built.train) > 0
    assert sum(b.positive + b.negative for b in found.held_out) == len(built.held_out) > 0
    sure = [e.confidence for e in (*built.train, *built.held_out) if e.confidence is not None]
    assert sure and min(sure) >= 0.6 and found.mean_confidence and found.mean_confidence >= 0.6


def test_preview_says_why_a_set_would_be_refused(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path, [(16, 14), (15, 14)])
    found = preview(store, set_recipe())
    assert found.refusal and "no chunk labelled '-' is left" in found.refusal
    assert found.train == () and [b.negative for b in found.labelled] == [0, 0, 0]
    assert (
        "labels a chunk - that keeps a sure success"
        in preview(store, set_recipe(rule="rel-ratio:gamma=1")).warnings[0]
    )
    with pytest.raises(TrainingError, match="no judge 'nobody'"):
        preview(store, set_recipe(agree_with="nobody"))

"""What pages say of values that were not drawn out: stopped by thrift, never rolled out, drawn on by the button."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from app.views.rewards_group import candidates, read_group
from app.views.trajectory_stopped import gaps, without_rules
from db.chunk_filter import ChunkFilter
from db.rows import NewChunk, NewProblem, NewRollout, NewTrajectory
from db.store import Store
from engine.first_error import first_error
from engine.labels import REL_RATIO, label, parse_rule
from engine.llm import LLMSpec
from engine.llm.scripted import shuffled
from engine.pipeline.labelling import chunk_values, prefix_values
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from engine.recipes import Selection, resolve
from engine.values import UNKNOWN, Value
from tests import little_world as little
from tests.page_support import Open, keyed, pages, words

__all__ = ["pages"]
M = 16
RULES = ("rel-ratio", "abs-q")


@dataclass(frozen=True)
class World:
    """A thrifty run's solutions (policy's data set ``little``), and one that only a first-error search looked at."""

    store: Store
    url: str
    thrifty: int
    searched: int


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "store"
    folder.mkdir()
    store = little.open_little(folder, problems=0)
    sums = [list(range(i, i + 8)) for i in (1, 2)]
    rows = [NewProblem(little.DATASET, str(s[0]), "+".join(map(str, s)), str(sum(s))) for s in sums]
    store.add_problems(rows, run_id=None, actor="test")
    sample_with(little.context(store, little.sample_recipe(n=6), folder), little.scripted_policy())
    ids = store.trajectory_ids()
    searched = [t.id for t in store.stage_trajectories(ids) if t.outcome == "wrong"][-1]
    others = tuple(id_ for id_ in ids if id_ != searched)
    for chosen, fields in (((searched,), {"places": "first-error"}), (others, {"rules": RULES})):
        recipe = little.rollout_recipe(m=M, select=Selection(trajectory_ids=chosen), **fields)
        roll_out(
            little.context(store, recipe, folder), little.scripted_policy(order=shuffled(1), in_flight=32)
        )
    thrifty = next(
        i.trajectory_id for i in store.label_inputs(others) if sum(bool(v.left) for v in prefix_values(i)) > 1
    )
    yield World(store, f"sqlite:///{folder / 'little.db'}", thrifty, searched)
    store.close()


def values_of(world: World, trajectory: int) -> list[Value]:
    return prefix_values(world.store.label_inputs([trajectory])[0])


def test_a_stopped_value_says_why_and_the_button_draws_the_rest(world: World, pages: Open, tmp_path: Path):
    store, id_ = world.store, world.thrifty
    values = values_of(world, id_)
    stopped = [k for k, value in enumerate(values) if value.left]
    assert stopped, "the world has none"
    k = stopped[0]
    app = pages("trajectory", world.url, {"traj": id_, "chunk": k - 1})
    said = words(app)
    drawn = values[k].n
    assert (
        f"stopped after {drawn} of {M} draws because the labels under abs-q and rel-ratio (γ = 0.8) could no"
        in said
    )
    assert "drawn hollow" in said and "not named when the draws were stopped" in said  # rel-effective
    assert "the same whatever the draws left out would be" in said
    row = next(r for r in store.find_chunks(ChunkFilter(trajectory_id=id_)).rows if r.idx == k - 1)
    assert row.stopped_after == (values[k].successes, drawn, M)
    assert row.label == label(REL_RATIO, *chunk_values(store.label_inputs([id_])[0])[k - 1])
    left = sum(value.left for value in values)
    button = keyed(app, "draw-the-rest")
    assert button.label == f"Draw the rest ({left} rollouts)"
    button.click().run()
    (run,) = store.runs(statuses=["queued"])
    first = store.run(next(iter(store.stops(range(1, 99)).values())).run_id or 0)
    assert run.recipe == without_rules(first.recipe, id_) | {"select": run.recipe["select"]}
    assert run.recipe["select"]["trajectory_ids"] == [id_] and run.recipe["rules"] == []
    assert f"Run {run.id}" in [link.proto.label for link in app.get("page_link")]
    recipe = resolve(little.RolloutRecipe, run.recipe)
    result = roll_out(little.context(store, recipe, tmp_path), little.scripted_policy())
    assert not any(value.left for value in values_of(world, id_))
    assert result["done"] >= left


def test_the_only_sample_of_a_problem_is_told_to_be_sampled_more_and_not_rolled_out(
    pages: Open, tmp_path: Path
):
    folder = tmp_path / "alone"
    folder.mkdir()
    store = little.open_little(folder, problems=1)
    sample_with(little.context(store, little.sample_recipe(n=1), folder), little.scripted_policy())
    roll_out(little.context(store, little.rollout_recipe(m=4), folder), little.scripted_policy())
    (id_,) = store.trajectory_ids()
    assert prefix_values(store.label_inputs([id_])[0])[0] == UNKNOWN
    app = pages("trajectory", f"sqlite:///{folder / 'little.db'}", {"traj": id_})
    assert "the only solution sampled from it" in words(app) and "never rolled out" not in words(app)
    assert not [button for button in app.button if button.label.startswith("Draw the rest")]
    store.close()


def test_a_value_with_ungraded_draws_is_topped_up_by_the_policy_that_drew_it(pages: Open, tmp_path: Path):
    folder = tmp_path / "errors"
    folder.mkdir()
    store = little.open_little(folder, problems=1)
    sample_with(little.context(store, little.sample_recipe(n=4), folder), little.scripted_policy())
    recipe = little.rollout_recipe(m=4, llm=LLMSpec(checkpoint="seven-b"))
    roll_out(little.context(store, recipe, folder), little.scripted_policy())
    id_ = store.trajectory_ids()[0]
    prefix = store.chunk_page(id_)[0].prefix_id
    assert prefix is not None
    failed = [NewRollout(prefix, draw, "error", 1, "", None, "stop", seed=draw) for draw in (4, 5)]
    store.add_rollouts(failed, run_id=1)
    app = pages("trajectory", f"sqlite:///{folder / 'little.db'}", {"traj": id_, "chunk": 0})
    assert not app.exception
    (link,) = [one.proto for one in app.get("page_link") if one.proto.label == "Top up its rollouts"]
    asked = parse_qs(link.query_string)
    assert asked["new"] == ["rollout"] and any('"checkpoint": "seven-b"' in one for one in asked["set"])
    store.close()


@pytest.mark.parametrize(
    ("chunks", "outcome", "said"),
    [((), "wrong", "This solution has no chunks"), (("3+3=6",), "error", "grading its answer failed")],
)
def test_where_no_run_can_help_none_is_offered(
    pages: Open, tmp_path: Path, chunks: tuple[str, ...], outcome: str, said: str
):
    folder = tmp_path / "ends"
    folder.mkdir()
    store = little.open_little(folder, problems=1)
    (problem,) = store.problem_ids(little.DATASET)
    cut = tuple(NewChunk("<chunk>", text, "</chunk>") for text in chunks)
    text = "".join(f"<chunk>{one}</chunk>" for one in chunks)
    row = NewTrajectory(problem, "ada", text, "", cut, "tags", outcome, None)
    (stored,) = store.add_trajectories([row], run_id=None, actor="ada")
    roll_out(little.context(store, little.rollout_recipe(m=4), folder), little.scripted_policy())
    shown = words(pages("trajectory", f"sqlite:///{folder / 'little.db'}", {"traj": stored.id}))
    assert said in shown and "A rollout run" not in shown
    store.close()


def test_labels_that_a_moved_parameter_takes_away_are_counted_among_those_that_flip(
    world: World, pages: Open
):
    values = values_of(world, world.thrifty)
    usual = [label(REL_RATIO, before, after) for before, after in pairwise(values)]
    moved = [label(parse_rule("rel-ratio:gamma=0.9"), before, after) for before, after in pairwise(values)]
    flips = sum(now != was for now, was in zip(moved, usual, strict=True))
    assert flips > sum(now is not None for now in moved), "the world has too few"
    said = words(pages("trajectory", world.url, {"traj": world.thrifty, "gamma": "0.9"}))
    assert f"**{flips} of {sum(was is not None for was in usual)} labels flip**" in said


def test_what_was_never_rolled_out_is_said_and_the_searched_chunk_is_one_press_away(
    world: World, pages: Open
):
    values = values_of(world, world.searched)
    found = gaps(values, world.store.label_inputs([world.searched])[0], {})
    assert found.never and not found.stopped
    app = pages("trajectory", world.url, {"traj": world.searched, "chunk": found.never[0] - 1})
    said = words(app)
    assert "never rolled out" in said and "not a value of 0" in said
    assert "Nothing was rolled out" not in said, "the curve is there"
    assert keyed(app, "first-error").label == f"No rollout succeeds from chunk {first_error(values)} on"
    row = world.store.find_chunks(ChunkFilter(trajectory_id=world.searched)).rows
    assert all(one.stopped_after is None for one in row)


def test_a_reader_may_not_draw_the_rest(world: World, pages: Open):
    world.store.set_role("rosa", "annotator", "ada")
    app = pages("trajectory", world.url, {"traj": world.thrifty}, actor="rosa")
    assert keyed(app, "draw-the-rest").disabled


def test_the_rewards_page_offers_problems_whose_solutions_have_all_scores(world: World, pages: Open):
    found = candidates(world.store)
    assert found
    for one in found:
        group, _ = read_group(world.store, one.problem_id, None)
        assert group is not None
        right = sum(solution.right for solution in group.solutions)
        assert (one.right, one.wrong) == (right, len(group.solutions) - right)
    assert "No scores for this problem" not in words(pages("rewards", world.url, {}))

"""The Runs page's comparison and its checkpoints: what differs, what is laid over what, what each name is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.views.runs_compare import MOST, differing
from db.store import Store
from tests.page_support import Open, button
from tests.runs_page import cells, field, make_checkpoint, open_at, run_to, store, words

__all__ = ["open_at", "store"]


def two_runs(store: Store) -> tuple[int, int]:
    first = run_to(
        store,
        "done",
        base="tiny",
        grpo={"learning_rate": 6e-5},
        result={"held_out_after": {"single": 0.7}, "steps": 30},
    )
    second = run_to(store, "done", base="tiny", grpo={"learning_rate": 1e-4}, seed=3, result={"steps": 60})
    for run_id, last in ((first, 0.7), (second, 0.8)):
        store.add_metrics(run_id, [("reward", 1, 0.5), ("reward", 2, last), ("grad_norm", 1, 0.1)])
    return first, second


def test_the_address_holds_what_is_compared(open_at: Open, store: Store) -> None:
    first, second = two_runs(store)
    app = open_at(view="compare", runs=f"{first},{second}")
    words(app)
    assert app.multiselect[0].value == [first, second]
    reward = next(one.proto for one in app.get("plotly_chart") if one.proto.alt.startswith("Reward"))
    assert reward.alt == f"Reward: Run {first} ends at 0.7; Run {second} ends at 0.8"
    assert '"dash":"solid"' in reward.spec and '"dash":"dash"' in reward.spec  # not by colour alone


def test_only_fields_that_differ_are_in_the_table(open_at: Open, store: Store) -> None:
    first, second = two_runs(store)
    app = open_at(view="compare", runs=f"{first},{second}")
    assert cells(app, "Recipe fields that differ") == [
        ["grpo.learning_rate", "6e-05", "0.0001"],
        ["seed", "0", "3"],
    ]
    results = {row[0]: row[1:] for row in cells(app, "Results")}
    assert results["steps"] == ["30", "60"]
    assert results["held out after: single"] == ["0.7", "–"]


def test_a_part_that_only_one_recipe_has_differs() -> None:
    with_lora = {"kind": "x", "lora": {"r": 4}, "a": 1}
    assert differing([with_lora, {"kind": "x", "lora": None, "a": 1}]) == {
        "lora.r": [4, None],
    }


def test_choosing_writes_the_address(open_at: Open, store: Store) -> None:
    first, second = two_runs(store)
    app = button(open_at(run=str(first)), "Compare").click().run()
    assert (app.query_params["view"], app.query_params["runs"]) == ("compare", str(first))
    assert "Choose a second run" in words(app)
    app.multiselect[0].set_value([first, second]).run()
    assert app.query_params["runs"] == f"{first},{second}"
    words(app)
    assert len(app.get("plotly_chart")) >= 1


@pytest.mark.parametrize(
    ("runs", "said"),
    [("99", "There is no run 99"), ("x", "There is no run x"), ("{first},{other}", "only runs of one kind")],
)
def test_what_cannot_be_compared_is_said(open_at: Open, store: Store, runs: str, said: str) -> None:
    first, _ = two_runs(store)
    other = run_to(store, "done", "sample")
    assert said in words(open_at(view="compare", runs=runs.format(first=first, other=other)))


def test_runs_that_are_too_many_to_compare_are_named(open_at: Open, store: Store) -> None:
    runs = [run_to(store, "done", "sample") for _ in range(MOST + 1)]
    said = words(open_at(view="compare", runs=",".join(map(str, runs))))
    assert f"At most {MOST} runs can be compared: run {runs[-1]} is left out." in said


def test_an_unknown_view_is_named(open_at: Open) -> None:
    assert "There is no view charts here" in words(open_at(view="charts"))


def test_nothing_to_compare_yet(open_at: Open) -> None:
    assert "Nothing to compare yet" in words(open_at(view="compare"))


CARD = {
    "role": "judge",
    "base": "nano",
    "run_id": 7,
    "prompt": "judge_nano",
    "metrics": {"held_out_before": {"single": 0.64}, "held_out_after": {"single": 0.712}},
    "recipe": {"kind": "train-judge"},
}


def test_checkpoints_say_what_they_are_for(open_at: Open, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "checkpoints" / "my-judge", CARD)
    app = open_at(view="checkpoints")
    words(app)
    rows = {row[0]: row for row in cells(app, "Checkpoints")}
    assert {"nano", "tiny", "my-judge"} <= set(rows)
    _, role, base, run, measured, parameters, _ = rows["my-judge"]
    assert (base, run, measured, parameters) == ("nano", "run 7", "one judgment 64.0% → 71.2%", "92")
    assert role[0]["text"] == "judge"
    assert rows["tiny"][1][0]["text"] == "anything"


def test_a_card_shows_itself_and_what_to_do_with_it(open_at: Open, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoints" / "my-judge", CARD)
    (folder / "README.md").write_text("# my-judge ![x](https://evil.example/x.png)\n")
    app = open_at(view="checkpoints", checkpoint="my-judge")
    assert "# my-judge ![x]" in next(code.value for code in app.code)
    assert "evil" not in "".join(str(m.value) for m in app.markdown)
    facts = dict(cells(app, "Card"))
    assert facts["base"] == "nano" and facts["held out"] == "one judgment 64.0% → 71.2%"
    app = button(app, "Judge with this checkpoint").click().run()
    words(app)
    assert field(app, "judge", "llm.checkpoint").value == "my-judge"
    assert "Train a judge from it" in [b.label for b in open_at(view="checkpoints", checkpoint="tiny").button]


def test_a_folder_that_no_recipe_can_name_and_a_card_with_gaps_break_no_page(
    open_at: Open, store: Store, tmp_path: Path
) -> None:
    make_checkpoint(tmp_path / "checkpoints" / "my model")
    gaps = {"held_out_before": {"single": None}, "held_out_after": {"single": 0.5}}
    make_checkpoint(tmp_path / "checkpoints" / "gaps", gaps)
    rows = {row[0]: row for row in cells(open_at(view="checkpoints"), "Checkpoints")}
    assert rows["gaps"][4] == "one judgment 50.0%" and "my model" not in rows
    words(open_at(new="sample"))


@pytest.mark.parametrize("name", ["absent", "../etc", "x<b>"])
def test_an_unknown_checkpoint_is_named(open_at: Open, name: str) -> None:
    assert "There is no checkpoint" in words(open_at(view="checkpoints", checkpoint=name))

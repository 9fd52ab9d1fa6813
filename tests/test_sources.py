"""Rollouts, judges and people side by side, a prompted LLM told from a trained judge, and where the two agree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from db.store import open_store
from engine.checkpoints import CARD
from engine.pipeline.judging import is_prompted
from tests.filled_store import filled_store
from tests.page_support import Open, pages, table_rows, words
from tests.store_world import judgment

__all__ = ["pages"]


def prompted_judge(url: str, votes: dict[int, str]) -> int:
    """A judge off the shelf that votes so, once a chunk."""
    store = open_store(url)
    judge = store.ensure_judge(
        name="off the *shelf*",
        kind="prompted",
        checkpoint="instruct",
        checkpoint_hash="h",
        prompt_name="judge",
        prompt_hash="p",
        sampling={},
        sampling_digest="s",
    )
    run = store.create_run("judge", {}, "ada")
    store.add_judgments([judgment(judge, chunk, 0, said) for chunk, said in votes.items()], run_id=run)
    store.close()
    return judge


def test_who_says_what_stands_side_by_side_and_leads_to_the_chunks_on_which_they_agree(
    tmp_path: Path, pages: Open
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    url, ids = filled_store(folder)
    store = open_store(url)
    first, second = store.chunk_page(ids.sampled[2], 1, 2)
    assert first.label and second.label and (first.label.rel_ratio, second.label.rel_ratio) == ("-", "-")
    judge = prompted_judge(url, {first.id: "negative", second.id: "positive"})
    store.add_review(first.id, "a1", "ada", 1)
    app = pages("trajectory", url, {"traj": ids.sampled[2], "chunk": 1})
    said = words(app)
    assert "Rollouts, by rel-ratio" in said and "1 review" in said
    assert "off the &#42;shelf&#42; · prompted LLM" in said and "trained to write reasons" in said
    links = {link.label: link.proto.query_string for link in app.get("page_link")}
    agreeing = next(query for label, query in links.items() if label == "Chunks on which both agree")
    assert agreeing == f"show=chunks&judge_id={judge}&against=no&rule=rel-ratio"
    rows = table_rows(pages("trajectories", url, dict(part.split("=") for part in agreeing.split("&"))))
    (row,) = rows["Chunks"]
    assert row["cells"][0] == f"#{ids.sampled[2]} · 1"
    assert "off the *shelf* (prompted)" in json.dumps(row["cells"][5], ensure_ascii=False)
    other = pages("trajectory", url, {"traj": ids.sampled[2], "chunk": 2})
    assert "they differ" in words(other)
    assert "Chunks on which the two differ" in [link.label for link in other.get("page_link")]
    store.close()


@pytest.mark.parametrize(
    ("card", "prompted"), [({"role": "judge"}, False), ({"role": "policy"}, True), (None, True)]
)
def test_a_judge_that_no_training_made_is_prompted(
    card: dict[str, str] | None, prompted: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints" / "some"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    if card is not None:
        (folder / CARD).write_text(json.dumps(card))
    assert is_prompted("some", tmp_path) is prompted
    shutil.rmtree(folder)
    assert is_prompted("nano", tmp_path) is False

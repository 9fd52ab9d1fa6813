"""How nano-plain and nano-teacher are made, and that the packaged ones are what the recipe makes."""

import random
from itertools import islice
from pathlib import Path

import pytest
import yaml

from engine.checkpoints import resolve_checkpoint
from engine.chunks import cut
from engine.llm.checkpoint import check_checkpoint
from engine.segmentation import Segmentation, read_segmentation, untagged, well_formed
from engine.worlds.nano import generate
from training.nano.demos import solve
from training.nano.recipe import load_recipe
from training.nano.segmenter.plain import plain_solution, tagged_solution
from training.nano.segmenter.train import (
    CHECKPOINTS,
    HERE,
    examples,
    read_segmenter_recipe,
    train_segmenter,
)


@pytest.fixture(scope="module")
def nano():
    return load_recipe(HERE.parent / "recipe.yaml")


@pytest.fixture(scope="module")
def demos(nano):
    rng = random.Random(0)
    return [solve(problem, nano.policy, rng) for problem in generate(400, 1, split="train")]


def test_plain_and_tagged_solutions_differ_in_tags_alone(demos):
    for demo in demos:
        plain, tagged = plain_solution(demo), tagged_solution(demo)
        assert untagged(tagged) == plain and well_formed(tagged)
        assert read_segmentation(plain, tagged) == Segmentation(tagged)
        assert "".join(plain.split()) == "".join(untagged(demo.completion()).split())  # nano's own characters
        assert len(Segmentation(tagged).cut.chunks) == len(demo.chunks)


def test_blank_lines_cut_finer_than_the_teacher_and_at_token_boundaries(demos):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_checkpoint("nano-plain", Path("none")))
    finer = [len(cut(plain_solution(d), "blank-line").chunks) - len(d.chunks) for d in demos]
    assert min(finer) == 0 and sum(finer) > len(demos)
    for demo in demos[:100]:
        text = plain_solution(demo)
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids and tokenizer.decode(ids) == text
        pieces = text.split("\n\n")
        whole = [tokenizer(piece)["input_ids"] for piece in pieces]
        gap = tokenizer("\n\n")["input_ids"]
        assert ids == [token for n, piece in enumerate(whole) for token in (gap * bool(n)) + piece]


def test_pairs_are_seeded_and_never_of_held_out_problems(nano):
    held = {problem.text for problem in generate(3000, 0, split="heldout")}
    for role in ("plain", "teacher"):
        pairs = list(islice(examples(role, nano, 1), 200))
        assert (
            pairs == list(islice(examples(role, nano, 1), 200)) != list(islice(examples(role, nano, 2), 200))
        )
        assert not [p for p, _ in pairs if p.removeprefix("<solve>").rstrip("\n") in held]
        assert all(("<chunk>" in completion) == (role == "teacher") for _, completion in pairs)


@pytest.mark.parametrize("role", ["plain", "teacher"])
def test_a_few_steps_from_nano_make_a_checkpoint_and_lower_the_loss(role, tmp_path):
    recipe = read_segmenter_recipe()
    few = getattr(recipe, role)[0].model_copy(update={"steps": 4, "warmup": 1})
    again = few.model_copy(update={"steps": 2})
    small = recipe.model_copy(update={"batch": 8, role: [few, again]})
    seen: list[tuple[int, float]] = []
    base = resolve_checkpoint("nano", tmp_path)
    result = train_segmenter(
        role, small, base, tmp_path / role, lambda step, f: seen.append((step, f["loss"]))
    )
    assert [step for step, _ in seen] == [4, 6] and seen[1][1] < seen[0][1]
    assert result["steps"] == 6
    assert check_checkpoint(tmp_path / role).content_hash != check_checkpoint(base).content_hash


def test_the_packaged_checkpoints_are_small_and_made_by_the_packaged_recipe():
    files = [file for folder in CHECKPOINTS.values() for file in folder.iterdir()]
    assert sum(file.stat().st_size for file in files) < 7.5e6
    recipe = read_segmenter_recipe().model_dump()
    for role, folder in CHECKPOINTS.items():
        assert resolve_checkpoint(f"nano-{role}", Path("none")) == folder
        assert check_checkpoint(folder).architecture == "LlamaForCausalLM"
        made = yaml.safe_load((folder / "recipe.yaml").read_text())
        assert made[role] == recipe[role] and made["batch"] == recipe["batch"]

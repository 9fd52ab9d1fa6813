"""Every shipped recipe becomes arguments that the installed TRL knows; a dry run says what would happen, and what is
missing. No model is loaded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from app.dry_run import say_what_would_happen
from app.kinds import resolve_recipe
from app.settings import Settings
from engine.errors import RecipeError, TrainingError
from engine.recipes import read_recipe
from training import core, hardware
from training.dry_run import TRAINERS, dry_run
from training.hardware import accelerate_config, launch_command, missing
from training.jobs import TrainJudgeRecipe
from training.parts import Hardware

RECIPES = sorted((Path(__file__).parents[1] / "training" / "recipes").glob("*.yaml"))


def _test_of(path: Path) -> Any:
    def test(tmp_path: Path) -> None:
        data = read_recipe(path)
        recipe = resolve_recipe(data["kind"], data)
        found = dict(dry_run(recipe, tmp_path).rows)
        assert found["kind"] == recipe.kind
        assert "run RUN ATTEMPT" in found["command"]
        if recipe.kind in TRAINERS:
            assert "knows all" in found["TRL"] and found["steps"]
        if "nano" in path.stem:
            named = [text for text in dry_run(recipe, tmp_path).missing if "checkpoint" in text]
            assert not named, "nano recipes name checkpoints that are there, or that an earlier recipe makes"

    return test


# one test a file, named after it: `pytest -k test_dry_run_judge_grpo_7b`
for _path in RECIPES:
    _name = "test_dry_run_" + _path.stem.replace("-", "_").replace(".", "_")
    globals()[_name] = _test_of(_path)


def test_there_are_recipes_of_the_papers_size_for_the_judge() -> None:
    for size, gamma in (("1.5b", "0.8"), ("7b", "0.7")):
        path = next(path for path in RECIPES if path.stem == f"judge-grpo-{size}")
        recipe = resolve_recipe("train-judge", read_recipe(path))
        assert isinstance(recipe, TrainJudgeRecipe)
        grpo = recipe.grpo
        assert (grpo.generations, grpo.prompts_per_batch, grpo.step_completions) == (4, 1024, 4 * 256)
        assert (grpo.learning_rate, grpo.epsilon, grpo.epsilon_high, grpo.steps) == (1e-6, 0.2, 0.28, 800)
        assert (grpo.max_prompt_tokens, grpo.max_tokens) == (3096, 3096)
        assert recipe.labels.rule == f"rel-ratio:gamma={gamma}" and recipe.labels.balance


def test_an_argument_that_the_installed_trl_does_not_know_is_named() -> None:
    @dataclasses.dataclass
    class Config:
        beta: float = 0.0

    with pytest.raises(TrainingError, match=r"Config of TRL \d.* does not know max_prompt_length"):
        core.check_arguments(Config, {"beta": 0.1, "max_prompt_length": 3})


def test_a_recipe_field_that_does_not_exist_is_named() -> None:
    with pytest.raises(RecipeError, match=r"grpo\.max_prompt_length"):
        resolve_recipe("train-judge", {"grpo": {"max_prompt_length": 3}})


def test_the_command_says_what_would_happen_and_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(home=tmp_path, database_url="")
    assert say_what_would_happen(settings, "train-judge", {}, Console(width=200)) == 0
    said = capsys.readouterr().out
    for words in (
        "16 prompts × 8 = 128 a generation batch",
        "knows all",
        "activations",
        "nothing was started",
    ):
        assert words in said
    lacking = {"base": "qwen", "hardware": {"processes": 2, "sharding": "fsdp"}}
    assert say_what_would_happen(settings, "train-judge", lacking, Console(width=200)) == 1
    said = capsys.readouterr().out
    assert "missing here: there is no checkpoint 'qwen'" in said
    assert not list(tmp_path.glob("*.db")), "nothing is made"


def test_several_processes_are_started_by_the_launcher_that_the_recipe_needs() -> None:
    alone = launch_command(Hardware(), 7, 2)
    assert alone[1:] == ["-m", "app.worker", "run", "7", "2"] == launch_command(None, 7, 2)[1:]
    on_cpu = launch_command(Hardware(processes=2), 7, 2, gpu=False)
    assert "torch.distributed.run" in on_cpu and on_cpu[-5:] == ["--module", "app.worker", "run", "7", "2"]
    for sharding in ("ddp", "fsdp", "deepspeed"):
        hardware = Hardware(processes=8, sharding=sharding)  # type: ignore[arg-type]
        command = launch_command(hardware, 7, 2, gpu=True)
        assert "accelerate.commands.launch" in command and str(accelerate_config(hardware)) in command
        assert command[command.index("--num_processes") + 1] == "8"


def test_accelerate_reads_every_configuration_that_is_shipped() -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    kinds = {"ddp": "MULTI_GPU", "fsdp": "FSDP", "deepspeed": "DEEPSPEED"}
    for sharding, kind in kinds.items():
        hardware = Hardware(processes=8, sharding=sharding)  # type: ignore[arg-type]
        config = load_config_from_file(str(accelerate_config(hardware)))
        assert config.distributed_type == kind and config.num_machines == 1


def test_what_the_hardware_lacks_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(Hardware(), gpu=False) == []
    (said,) = missing(Hardware(processes=2, sharding="fsdp"), gpu=False)
    assert "there is none here" in said
    monkeypatch.setattr(hardware, "find_spec", lambda name: None)
    (said,) = missing(Hardware(), gpu=True)
    assert "vLLM" in said and missing(Hardware(vllm="off"), gpu=True) == []
    monkeypatch.setattr(hardware, "has_gpu", lambda: True)
    sft, grpo = (resolve_recipe(kind, {}) for kind in ("train-judge-sft", "train-judge"))
    assert dry_run(sft, tmp_path).missing == (), "fine-tuning draws nothing"
    assert dry_run(grpo, tmp_path).missing == (said,)
    assert any("deepspeed" in text for text in missing(Hardware(processes=2, sharding="deepspeed"), gpu=True))

"""Forecasts: time from runs that were measured here, memory from the headers of checkpoints, what the machine has."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.forecast import duration, examples_a_step, forecast, main_checkpoint
from app.kinds import resolve_recipe
from app.machine import GIB, Gpu, Machine, parse_gpus, this_machine
from app.memory_forecast import LEARNING, adapter_parameters, memory_forecast, millions, read_weights, size
from db.store import Store, open_store
from engine.errors import CheckpointError
from tests.runs_page import LAYERS, make_checkpoint, run_to
from training.parts import Lora

PARAMETERS = 40 + 16 + 32 + 4
ON_CPU = Machine(2, 16 * GIB, 8 * GIB, ())
ON_GPUS = Machine(16, 128 * GIB, 100 * GIB, (Gpu("A", 80 * GIB, 70 * GIB), Gpu("B", 80 * GIB, GIB)))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_checkpoint(tmp_path / "checkpoints" / "tiny")
    make_checkpoint(tmp_path / "checkpoints" / "other")
    return tmp_path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'forecast.db'}", migrate=True)
    yield store
    store.close()


def training(**fields: object):  # type: ignore[no-untyped-def]
    return resolve_recipe("train-judge", {"base": "tiny", "grpo": {"steps": 100}, **fields})


def test_no_time_without_a_measured_run(store: Store) -> None:
    found = forecast(store, "train-judge", training())
    assert (found.count, found.unit, found.seconds) == (100, "steps", None)
    assert "no such run has been measured" in found.text


def test_the_last_run_with_the_same_base_counts(store: Store) -> None:
    same = run_to(store, "done", base="tiny")
    store.add_metrics(same, [("step_time", 1, 3.0), ("step_time", 2, 5.0)])
    other = run_to(store, "done", base="nano")
    store.add_metrics(other, [("step_time", 1, 1.0)])
    assert forecast(store, "train-judge", training()).seconds == pytest.approx(400)
    elsewhere = forecast(store, "train-judge", training(base="other"))
    assert elsewhere.seconds == pytest.approx(100)
    assert f"run {other}" in elsewhere.text and "but with nano" in elsewhere.text


def test_a_failed_run_is_no_measure(store: Store) -> None:
    failed = run_to(store, "failed", base="tiny")
    store.add_metrics(failed, [("step_time", 1, 3.0)])
    assert forecast(store, "train-judge", training()).seconds is None


def test_twice_the_batch_takes_twice_the_time(store: Store) -> None:
    run = run_to(store, "stopped", base="tiny", grpo={"prompts_per_batch": 16})
    store.add_metrics(run, [("step_time", 1, 2.0)])
    found = forecast(store, "train-judge", training(grpo={"steps": 100, "prompts_per_batch": 32}))
    assert found.seconds == pytest.approx(400)
    assert "32 examples a step are scaled to 64" in found.text


def test_a_run_that_measured_its_own_rate_is_believed(store: Store) -> None:
    run = store.start_run("sample", resolve_recipe("sample", {}).model_dump(mode="json"), "ada", pid=1)
    store.heartbeat(run, done=40, total=40, unit="solutions", message="")
    store.finish_run(run, "done", result={"solutions_per_s": 8.0})
    recipe = resolve_recipe("sample", {"generate": {"count": 10}, "n": 16})
    assert forecast(store, "sample", recipe).seconds == pytest.approx(20)


def test_what_a_run_spends_its_time_on() -> None:
    kinds = {
        "train-judge": "tiny",
        "judge": "tiny",
        "evaluate-judge": "tiny",
    }
    fields = {
        "train-judge": {"base": "tiny"},
        "judge": {"llm": {"checkpoint": "tiny"}},
        "evaluate-judge": {"judge": {"llm": {"checkpoint": "tiny"}}},
    }
    found = {k: main_checkpoint(resolve_recipe(k, fields[k]).model_dump(mode="json")) for k in kinds}
    assert found == kinds
    assert examples_a_step({"sft": {"batch": 32}}) == 32
    assert examples_a_step({"m": 16}) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (89, "89 s"), (120, "2 min"), (5400, "1 h 30 min"), (50 * 3600, "2 d 2 h")],
)
def test_durations_read_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_parameters_come_from_the_header_alone(home: Path) -> None:
    weights = read_weights(home / "checkpoints" / "tiny")
    assert weights.parameters == PARAMETERS
    assert weights.stored_bytes == 4 * PARAMETERS
    assert dict(weights.linear) == {"q_proj": LAYERS["q_proj.weight"], "up_proj": LAYERS["up_proj.weight"]}


def test_shards_are_added_up(home: Path) -> None:
    folder = home / "checkpoints" / "tiny"
    second = (folder / "model.safetensors").read_bytes()
    (folder / "model-2.safetensors").write_bytes(second)
    assert read_weights(folder).parameters == 2 * PARAMETERS


@pytest.mark.parametrize(
    "content", [b"", struct.pack("<Q", 2**40), struct.pack("<Q", 4) + b"{{{{", struct.pack("<Q", 2) + b"[]"]
)
def test_a_broken_header_is_named(home: Path, content: bytes) -> None:
    (home / "checkpoints" / "tiny" / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        read_weights(home / "checkpoints" / "tiny")


def test_full_training_costs_sixteen_bytes_a_parameter(home: Path) -> None:
    found = memory_forecast(training(), home, ON_CPU)
    assert found is not None
    assert found.bytes == LEARNING * PARAMETERS == 16 * PARAMETERS
    assert (found.free, found.total, found.fits) == (8 * GIB, 16 * GIB, True)


def test_lora_costs_its_additions_and_the_frozen_weights(home: Path) -> None:
    found = memory_forecast(training(lora={"r": 2}, hardware={"precision": "float32"}), home, ON_CPU)
    assert found is not None
    adapter = 2 * (4 + 4) + 2 * (8 + 4)
    assert [need.bytes for need in found.needs] == [4 * PARAMETERS, LEARNING * adapter]
    weights = read_weights(home / "checkpoints" / "tiny")
    assert adapter_parameters(weights, Lora(r=2, target="q_proj, v_proj")) == 2 * (4 + 4)


def test_on_a_gpu_the_roomiest_counts_and_vllm_takes_its_share(home: Path) -> None:
    found = memory_forecast(training(hardware={"vllm_memory": 0.25}), home, ON_GPUS)
    assert found is not None
    assert (found.where, found.free) == ("B", 79 * GIB)
    assert [need.bytes for need in found.needs] == [LEARNING * PARAMETERS, 20 * GIB]
    off = memory_forecast(training(hardware={"vllm": "off"}), home, ON_GPUS)
    assert off is not None and off.bytes == LEARNING * PARAMETERS


def test_weights_cut_up_are_shared_by_the_processes(home: Path) -> None:
    recipe = training(hardware={"processes": 4, "sharding": "fsdp", "vllm": "off"})
    found = memory_forecast(recipe, home, ON_GPUS)
    assert found is not None and found.bytes == LEARNING * PARAMETERS // 4


def test_whole_copies_lie_in_one_memory_where_there_is_no_gpu(home: Path) -> None:
    on_cpu = memory_forecast(training(hardware={"processes": 2}), home, ON_CPU)
    assert on_cpu is not None and on_cpu.bytes == 2 * LEARNING * PARAMETERS
    lora = memory_forecast(
        training(lora={"r": 2}, hardware={"processes": 2, "precision": "float32"}), home, ON_CPU
    )
    assert lora is not None and lora.bytes == 2 * (4 * PARAMETERS + LEARNING * (2 * (4 + 4) + 2 * (8 + 4)))
    each = memory_forecast(training(hardware={"processes": 2, "vllm": "off"}), home, ON_GPUS)
    assert each is not None and each.bytes == LEARNING * PARAMETERS


def test_a_door_costs_weights_and_cache_and_what_does_not_fit_is_seen(home: Path) -> None:
    recipe = resolve_recipe("judge", {"llm": {"checkpoint": "tiny", "kv_cache_gib": 9}})
    found = memory_forecast(recipe, home, ON_CPU)
    assert found is not None
    assert found.bytes == 4 * PARAMETERS + 9 * GIB
    assert not found.fits
    on_gpu = memory_forecast(resolve_recipe("judge", {"llm": {"checkpoint": "tiny"}}), home, ON_GPUS)
    assert on_gpu is not None and on_gpu.bytes == int(0.9 * 80 * GIB)


def test_building_a_set_takes_no_memory_worth_naming(home: Path) -> None:
    assert memory_forecast(resolve_recipe("build-set", {}), home, ON_CPU) is None


def test_a_missing_base_is_named(home: Path) -> None:
    with pytest.raises(CheckpointError, match="'absent'"):
        memory_forecast(training(base="absent"), home, ON_CPU)


def test_numbers_of_parameters_and_bytes_in_words() -> None:
    assert [millions(n) for n in (92, 1_800_000, 1_540_000_000)] == ["92", "1.8 M", "1.54 B"]
    assert [size(n) for n in (5, 3 * 2**20, 3 * GIB)] == ["under 1 MiB", "3 MiB", "3.0 GiB"]


def test_nvidia_smi_is_read_and_what_it_cannot_tell_is_left_out() -> None:
    found = parse_gpus("NVIDIA H200, 143771, 1024\nOdd, [N/A], [N/A]\nnonsense\n")
    assert found == (Gpu("NVIDIA H200", 143771 * 2**20, 1024 * 2**20),)
    assert str(found[0]) == "NVIDIA H200, 139 of 140 GiB free"


def test_this_machine_has_memory() -> None:
    machine = this_machine()
    assert 0 < machine.memory_free <= machine.memory_total and machine.cores >= 1

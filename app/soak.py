"""``stepwiser soak``: a real rollout run is killed again and again (signal 9), resumed, and compared with one that was not.

Nano rolls out its own solutions, first with vLLM in the run's process, then through two vLLM servers. Killed are the
run (after a random number of committed rollouts, before a random statement inside a transaction, and when one is about
to commit), the worker, both, and a server. What was committed before each kill must be there, unchanged, at every look
after it; at the end nothing may be missing, doubled or different beside an uninterrupted run of the same seeds.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from app.bench import Bar, conclude
from app.processes import log_path
from app.runs import queue_run
from app.settings import Settings
from app.soak_run import Order
from app.soak_scene import Scene, Servers, place_of
from app.store import open_or_make_store, open_store
from db.check import check
from db.contents import StoredRollout, digests, labels, last_rollout, rollouts
from db.rows import RunRow
from db.store import Store
from engine.checkpoints import resolve_checkpoint
from engine.errors import RunError
from engine.llm import LLMSpec
from engine.llm.checkpoint import check_checkpoint
from engine.recipes import Draws, Generate, Recipe, RolloutRecipe, SampleRecipe, Selection

Victim = Literal["run", "worker", "run and worker", "server"]
Moment = Literal["between transactions", "inside a transaction", "at a commit"]
DATASET, ACTOR = "soak", "soak"
LLM = LLMSpec(checkpoint="nano", dtype="float32", max_num_seqs=64, kv_cache_gib=0.5)
"""float32: a draw follows from its seed up to rounding, and what is in flight with it differs after each kill."""
DRAWS = Draws(max_tokens=256)
IN_PROCESS = 0.12
"""Share of the kills, and of the work, with vLLM in the run's own process: there each one costs a start of vLLM."""
ROLLOUTS_A_KILL = 400
SOLUTIONS, M = 2, 32
PREFIXES = 4.5
"""About how many of a problem's prefixes are rolled out: enough work for the kills, no more."""
KILLED_UNTIL = 0.8
"""Share of the work within which the kills are meant to fall, so that no run has ended before its last one."""
ROUNDED = 0.001
"""Share of draws that may differ from the uninterrupted run's because float sums were rounded otherwise."""


@dataclass(frozen=True)
class Kill:
    """``share``: of the rollouts that one kill has on average, how many are committed before it."""

    victim: Victim
    moment: Moment
    share: float
    statement: int

    @property
    def words(self) -> str:
        return f"{self.victim}, {self.moment}" if self.victim == "run" else self.victim


def draw_kills(count: int, dice: random.Random, victims: tuple[Victim, ...]) -> list[Kill]:
    """``count`` kills at random: half of them of the run, and a third of those at each kind of moment."""
    moments: tuple[Moment, ...] = ("between transactions", "inside a transaction", "at a commit")
    kills = []
    for number in range(count):
        victim: Victim = "run" if number % 2 == 0 else dice.choice(victims)
        moment = moments[number // 2 % 3] if victim == "run" else moments[0]
        kills.append(Kill(victim, moment, dice.uniform(0, 1.2), dice.randint(1, 6)))
    return kills


@dataclass
class Soak:
    """What has happened so far. ``marks``: the last committed row before each kill, and the hash of all up to it."""

    console: Console
    scene: Scene
    count: int
    until: float
    made: Counter[str] = field(default_factory=Counter)
    marks: dict[int, str] = field(default_factory=dict)
    changed: int = 0

    def work(self, run_id: int, kills: list[Kill], rows: int, servers: Servers | None = None) -> list[Kill]:
        """Kill on the way to ``rows`` committed rollouts, then let the run end. Returns the kills that it ended before."""
        missed: list[Kill] = []
        for place, kill in enumerate(kills):
            run = self.scene.under_way(run_id)
            if run is None or time.monotonic() > self.until:
                missed += kills[place:]
                break
            left = max(0, KILLED_UNTIL * rows - last_rollout(self.scene.store)) / (len(kills) - place)
            if self._strike(run, kill, int(kill.share * left), servers):
                self.made[kill.words] += 1
                self.say(f"kill {self.made.total()} of {self.count}: {kill.words}; {self.look()}")
            else:
                missed.append(kill)
        while (run := self.scene.under_way(run_id)) is not None:
            self.scene.reaches(run, sys.maxsize)
        return missed

    def _strike(self, run: RunRow, kill: Kill, rows: int, servers: Servers | None) -> bool:
        """False: the run was done before it could be killed."""
        if kill.moment != "between transactions":
            order = Order(run.attempt, rows, kill.statement if kill.moment == "inside a transaction" else 0)
            return self.scene.dies(run, order)
        if not self.scene.reaches(run, last_rollout(self.scene.store) + rows):
            return False
        if kill.victim == "server":
            assert servers is not None
            servers.kill(self.made["server"])
        if kill.victim in ("run", "run and worker"):
            self.scene.kill(run)
        if kill.victim in ("worker", "run and worker"):
            self.scene.kill_worker()
        return True

    def look(self) -> str:
        """Compare what was there at every earlier kill with what is there now, and remember what is there now."""
        now = digests(self.scene.store, list(self.marks))
        changed = sum(now[mark] != digest for mark, digest in self.marks.items())
        self.changed += changed
        self.marks = now | self.marks
        state = f"{changed} EARLIER STATES ARE NOT THERE ANY MORE" if changed else "all earlier ones intact"
        return f"{max(now):,} rollouts committed, {state}"

    def say(self, words: str) -> None:
        self.console.print(Text(words), soft_wrap=True)


def soak(kills: int, minutes: float | None, seed: int, console: Console) -> int:
    """Run it in a folder of its own, which is kept where something was lost. Returns the exit code.

    ``minutes``: no further kill after so many; the run is still led to its end.
    """
    folder = Path(tempfile.mkdtemp(prefix="stepwiser-soak-"))
    whole, killed = _prepare(folder, kills, console)
    dice = random.Random(seed)
    first = max(1, round(kills * IN_PROCESS))
    in_process = draw_kills(first, dice, ("worker", "run and worker"))
    served = draw_kills(kills - first, dice, ("worker", "run and worker", "server", "server"))
    expected, store = rollouts(whole), open_store(killed)
    trajectories = store.count_selection(dataset=DATASET)[0]
    part = max(1, round(trajectories * IN_PROCESS))
    until = time.monotonic() + minutes * 60 if minutes else float("inf")
    checkpoint = check_checkpoint(resolve_checkpoint(LLM.checkpoint, killed.home))
    with Scene(killed, store) as scene:
        state = Soak(console, scene, kills, until)
        run_id = _queue(killed, store, _roll_out(Selection(dataset=DATASET, limit=part), LLM))
        missed = state.work(run_id, in_process, round(len(expected) * IN_PROCESS))
        if served:
            named = LLM.model_copy(update={"checkpoint": str(checkpoint.path), "name": LLM.checkpoint})
            with Servers(named, checkpoint, folder) as servers:
                through = LLM.model_copy(update={"door": "server", "servers": servers.addresses})
                run_id = _queue(killed, store, _roll_out(Selection(dataset=DATASET), through))
                state.work(run_id, missed + served, len(expected), servers)
        else:
            state.work(_queue(killed, store, _roll_out(Selection(dataset=DATASET), LLM)), [], len(expected))
        state.say(f"the run has ended: {state.look()}")
    code = conclude_soak(console, state, kills if minutes is None else 1, whole, expected, store)
    store.close()
    if code:
        console.print(Text(f"stores and logs are kept in {folder}"))
    else:
        shutil.rmtree(folder)
    return code


def _roll_out(select: Selection, llm: LLMSpec) -> RolloutRecipe:
    return RolloutRecipe(select=select, m=M, llm=llm, draws=DRAWS)


def _queue(settings: Settings, store: Store, recipe: Recipe) -> int:
    return queue_run(store, recipe.kind, recipe.model_dump(mode="json"), ACTOR, settings)


def _prepare(folder: Path, kills: int, console: Console) -> tuple[Store, Settings]:
    """The uninterrupted run's store, and the settings of a copy of it from before that run."""
    homes = [
        Settings(home=folder / name, database_url="", actor=ACTOR) for name in ("uninterrupted", "killed")
    ]
    for settings in homes:
        settings.home.mkdir()
    store = open_or_make_store(homes[0])
    problems = max(4, round(kills * ROLLOUTS_A_KILL / (M * PREFIXES)))
    generate = Generate(count=problems, seed=11)
    sample = SampleRecipe(dataset=DATASET, generate=generate, n=SOLUTIONS, llm=LLM, draws=DRAWS)
    _finish(homes[0], store, _queue(homes[0], store, sample))
    store.close()
    for settings in homes[1:]:
        shutil.copy(homes[0].home / "stepwiser.db", settings.home)
    store = open_store(homes[0])
    started = time.monotonic()
    _finish(homes[0], store, _queue(homes[0], store, _roll_out(Selection(dataset=DATASET), LLM)))
    console.print(
        f"uninterrupted: {last_rollout(store):,} rollouts from the solutions of {problems} problems in "
        f"{time.monotonic() - started:.0f} s"
    )
    return store, homes[1]


def _finish(settings: Settings, store: Store, run_id: int) -> None:
    """Work on a run to its end. Raises RunError where it does not end well."""
    subprocess.run(
        [sys.executable, "-m", "app.worker", "until", str(run_id)],
        env=environ | place_of(settings),
        check=False,
    )
    run = store.run(run_id)
    if run.status != "done":
        raise RunError(
            f"the {run.kind} run before any kill is {run.status}: {run.error or ''}; see {log_path(settings, run_id)}"
        )


def _by_draw(rows: list[StoredRollout]) -> dict[tuple[str, int], tuple[object, ...]]:
    return {(r.key, r.draw): (r.seed, r.outcome, r.n_tokens, r.text, r.finish_reason) for r in rows}


def conclude_soak(
    console: Console, state: Soak, least: int, whole: Store, expected: list[StoredRollout], store: Store
) -> int:
    """Compare the two stores, print the table and the line of JSON. Returns the exit code."""
    found = rollouts(store)
    one, other = _by_draw(expected), _by_draw(found)
    rounded = sum(one[place] != other[place] for place in one.keys() & other.keys())
    findings = check(store)
    for finding in findings:
        console.print(Text(str(finding)))
    for failure in state.scene.own_failures:
        console.print(Text(f"failed without being killed: {failure}"))
    right, ours = labels(whole), labels(store)
    different = len(set(right) ^ set(ours))
    rows = [(f"kills: {what}", str(n)) for what, n in sorted(state.made.items())]
    for name, kept in (("uninterrupted", expected), ("killed and resumed", found)):
        outcomes = ", ".join(f"{n:,} {what}" for what, n in sorted(Counter(r.outcome for r in kept).items()))
        rows.append((name, f"{len(kept):,} rollouts of {len({r.key for r in kept}):,} prefixes: {outcomes}"))
    rows += [
        ("draws that rounding changed", f"{rounded} of {len(one):,}"),
        ("labels", f"{len(ours):,} of {len(right):,}, differences: {different}"),
    ]
    bars = [
        Bar("kills", state.made.total(), least),
        Bar("earlier states lost or changed", state.changed, 0, "<="),
        Bar("rollouts missing", len(one.keys() - other.keys()), 0, "<="),
        Bar("rollouts doubled", len(found) - len(other), 0, "<="),
        Bar("rollouts too many", len(other.keys() - one.keys()), 0, "<="),
        Bar("share that rounding changed", rounded / max(1, len(one)), ROUNDED, "<="),
        Bar("labels different though no draw is", 0 if rounded else different, 0, "<="),
        Bar("runs that failed by themselves", len(state.scene.own_failures), 0, "<="),
        Bar("findings of db check", len(findings), 0, "<="),
    ]
    return conclude(console, "soak", rows, bars)

"""Nano problems: chains of +, - and × on small integers, stated as arithmetic or as a short story.

Covers the generator and its split into training and held-out problems. How a policy solves a
problem, rightly or wrongly, is no part of this module (training/nano/demos.py).
"""

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.errors import InputError

Kind = Literal["arithmetic", "word"]
Split = Literal["train", "heldout"]
Op = Literal["+", "-", "×"]

MAX_VALUE = 99
OPERANDS = range(2, 21)
FACTORS = range(2, 5)
OP_WEIGHTS = {"+": 4, "-": 4, "×": 3}


@dataclass(frozen=True)
class NanoProblem:
    """One problem; `values[i]` is the running value after `ops[i]`, the last one is the answer."""

    key: str
    text: str
    answer: str
    kind: Kind
    start: int
    ops: tuple[tuple[Op, int], ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class Story:
    """A setting for a chain: `start`, one of the sentences of an operation each, then `ask`."""

    start: str
    add: tuple[str, ...]
    take: tuple[str, ...]
    times: tuple[str, ...]
    ask: str


NAMES = ("Mia", "Tom", "Ada", "Leo", "Ina", "Max", "Zoe", "Ben")

_TIMES = ("Then the number becomes {n} times as large. ", "Soon there are {n} times as many. ")
_OWN_TIMES = ("Then {who} has {n} times as many. ", *_TIMES)

STORIES = (
    Story(
        "{who} has {n} apples. ",
        ("{who} picks {n} more. ", "{who} buys {n} more. "),
        ("{who} eats {n}. ", "{who} gives away {n}. "),
        _OWN_TIMES,
        "How many apples are left?",
    ),
    Story(
        "{who} owns {n} books. ",
        ("{who} buys {n} more. ", "{who} is given {n}. "),
        ("{who} sells {n}. ", "{who} loses {n}. "),
        _OWN_TIMES,
        "How many books does {who} own now?",
    ),
    Story(
        "{who} has {n} coins. ",
        ("{who} earns {n} more. ", "{who} finds {n}. "),
        ("{who} spends {n}. ", "{who} loses {n}. "),
        _OWN_TIMES,
        "How many coins does {who} have now?",
    ),
    Story(
        "{who} has {n} marbles. ",
        ("{who} wins {n}. ", "{who} finds {n}. "),
        ("{who} loses {n}. ", "{who} gives away {n}. "),
        _OWN_TIMES,
        "How many marbles are left?",
    ),
    Story(
        "{who} bakes {n} cakes. ",
        ("{who} bakes {n} more. ", "{who} is given {n}. "),
        ("{who} sells {n}. ", "{who} burns {n}. "),
        _OWN_TIMES,
        "How many cakes are there now?",
    ),
    Story(
        "A bus carries {n} people. ",
        ("At a stop {n} get on. ", "Then {n} climb in. "),
        ("At a stop {n} get off. ", "Then {n} leave. "),
        _TIMES,
        "How many people are on the bus now?",
    ),
    Story(
        "A farm keeps {n} hens. ",
        ("The farm buys {n} more. ", "Then {n} hatch. "),
        ("The farm sells {n}. ", "A fox takes {n}. "),
        _TIMES,
        "How many hens are there now?",
    ),
    Story(
        "A pond holds {n} fish. ",
        ("A river brings {n} more. ", "Then {n} hatch. "),
        ("A heron eats {n}. ", "{who} catches {n}. "),
        _TIMES,
        "How many fish are left?",
    ),
    Story(
        "In a game {who} has {n} points. ",
        ("{who} scores {n} more. ", "{who} wins {n}. "),
        ("{who} loses {n}. ", "A foul costs {n}. "),
        _OWN_TIMES,
        "How many points does {who} have now?",
    ),
    Story(
        "A shop stocks {n} lamps. ",
        ("A van brings {n} more. ", "The shop orders {n} more. "),
        ("The shop sells {n}. ", "{who} buys {n} of them. "),
        _TIMES,
        "How many lamps are in the shop now?",
    ),
    Story(
        "{who} plants {n} roses. ",
        ("{who} plants {n} more. ", "{who} adds {n}. "),
        ("{who} cuts {n}. ", "A storm breaks {n}. "),
        _TIMES,
        "How many roses are left?",
    ),
    Story(
        "A class has {n} pens. ",
        ("The class gets {n} more. ", "{who} adds {n}. "),
        ("The class uses up {n}. ", "{who} borrows {n}. "),
        _TIMES,
        "How many pens are there now?",
    ),
    Story(
        "{who} has {n} stamps. ",
        ("{who} trades for {n} more. ", "{who} is given {n}. "),
        ("{who} gives away {n}. ", "{who} sells {n}. "),
        _OWN_TIMES,
        "How many stamps does {who} have now?",
    ),
    Story(
        "A jar holds {n} beans. ",
        ("{who} adds {n}. ", "{who} drops in {n} more. "),
        ("{who} removes {n}. ", "{who} takes out {n}. "),
        _TIMES,
        "How many beans are in the jar now?",
    ),
)

VERBS: dict[str, str] = {"+": "Add", "-": "Subtract", "×": "Multiply by"}


def apply(op: str, a: int, b: int) -> int:
    """The value of `a op b`, op one of + - ×."""
    return a + b if op == "+" else a - b if op == "-" else a * b


def _chain(rng: random.Random, length: int) -> tuple[int, tuple[tuple[Op, int], ...], tuple[int, ...]]:
    start = rng.choice(OPERANDS)
    ops: list[tuple[Op, int]] = []
    values = [start]
    while len(ops) < length:
        op: Op = rng.choices(list(OP_WEIGHTS), list(OP_WEIGHTS.values()))[0]  # type: ignore[assignment]
        b = rng.choice(FACTORS if op == "×" else OPERANDS)
        value = apply(op, values[-1], b)
        # 0 × b would say nothing, so 0 is only left by adding
        if 0 <= value <= MAX_VALUE and (op != "×" or values[-1] > 1):
            ops.append((op, b))
            values.append(value)
    return start, tuple(ops), tuple(values[1:])


def _arithmetic_text(rng: random.Random, start: int, ops: Sequence[tuple[Op, int]]) -> str:
    form = rng.randrange(3)
    if form == 0:
        return f"Start with {start}. " + " ".join(f"{VERBS[op]} {b}." for op, b in ops)
    if form == 1:
        return f"Take {start}" + "".join(f", then {op}{b}" for op, b in ops) + "."
    # one pair of brackets around every operation but the last: no precedence to argue about
    text = "(" * (len(ops) - 1) + str(start)
    for i, (op, b) in enumerate(ops):
        text += f"{op}{b}" + (")" if i < len(ops) - 1 else "")
    return f"Compute {text}."


def _story_text(rng: random.Random, start: int, ops: Sequence[tuple[Op, int]]) -> str:
    story = rng.choice(STORIES)
    who = rng.choice(NAMES)
    by_op = {"+": story.add, "-": story.take, "×": story.times}
    parts = [story.start.format(who=who, n=start)]
    parts += [rng.choice(by_op[op]).format(who=who, n=b) for op, b in ops]
    return "".join(parts) + story.ask.format(who=who)


def split_of(start: int, ops: Sequence[tuple[str, int]]) -> Split:
    """The side of a chain: one in ten is held out, by its hash, whatever words state it."""
    chain = f"{start}" + "".join(f"{op}{b}" for op, b in ops)
    return "heldout" if hashlib.sha256(chain.encode()).digest()[0] % 10 == 0 else "train"


def draw(rng: random.Random, kinds: Sequence[Kind], split: Split, lengths: Sequence[int]) -> NanoProblem:
    """One problem from `rng`, its length (number of operations) and kind uniform over those given."""
    length = rng.choice(lengths)
    while True:
        start, ops, values = _chain(rng, length)
        if split_of(start, ops) == split:
            break
    kind = rng.choice(kinds)
    text = _arithmetic_text(rng, start, ops) if kind == "arithmetic" else _story_text(rng, start, ops)
    key = "nano-" + hashlib.sha256(text.encode()).hexdigest()[:12]
    return NanoProblem(key, text, str(values[-1]), kind, start, ops, values)


def generate(
    n: int,
    seed: int,
    kinds: Sequence[Kind] = ("arithmetic", "word"),
    split: Split = "heldout",
    lengths: Sequence[int] = (2, 3, 4, 5),
) -> list[NanoProblem]:
    """`n` different problems, the same for the same arguments.

    The nano policy never saw a chain of the `heldout` split. Raises InputError for an unknown kind
    or length, or if the kinds and lengths given do not hold `n` different problems.
    """
    if n < 0 or not kinds or set(kinds) - {"arithmetic", "word"}:
        raise InputError(
            f"nano problems: n={n}, kinds={list(kinds)}; give n of at least 0 and kinds among arithmetic, word"
        )
    if not lengths or min(lengths) < 1 or max(lengths) > 8:
        raise InputError(f"nano problems: lengths={list(lengths)}; give numbers of operations from 1 to 8")
    rng = random.Random(f"nano/{split}/{seed}")
    problems: dict[str, NanoProblem] = {}
    misses = 0
    while len(problems) < n:
        problem = draw(rng, kinds, split, lengths)
        misses = misses + 1 if problem.text in problems else 0
        if misses > 1000:
            raise InputError(
                f"nano problems: found only {len(problems)} different ones of {n}, kinds={list(kinds)}, "
                f"lengths={list(lengths)}; ask for fewer or allow more lengths"
            )
        problems[problem.text] = problem
    return list(problems.values())


_LINK = re.compile(r"(\d+)([-+×])(\d+)=(\d+)")


def sound(problem: NanoProblem, chunks: Sequence[str]) -> list[bool]:
    """For each chunk text of a solution: is there no error *here*?

    The answer to a person's question, not to a rule's: a chunk that goes on correctly from an earlier wrong
    value is sound. A step must do the problem's next operation on the value reached, "Wait, …" the last
    one again, "Check: …" all of them; a chunk without a calculation is sound.
    """
    before, value, done = problem.start, problem.start, 0
    verdicts = []
    for text in chunks:
        links = [(int(a), op, int(b), int(c)) for a, op, b, c in _LINK.findall(text)]
        if not links:
            verdicts.append(True)
            continue
        if text.startswith("Check"):
            starts = (problem.start, *problem.values)
            verdicts.append(
                links == [(starts[i], op, b, starts[i + 1]) for i, (op, b) in enumerate(problem.ops)]
            )
        else:
            if not text.startswith("Wait"):
                before, done = value, done + 1
            wanted = problem.ops[done - 1] if 0 < done <= len(problem.ops) else None
            verdicts.append(
                wanted is not None and links == [(before, *wanted, apply(wanted[0], before, wanted[1]))]
            )
        value = links[-1][3]
    return verdicts

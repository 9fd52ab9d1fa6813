"""The probe corpus: text that would do something if a page took it for more than text, in every place that holds text.

Each probe that could run sets ``window.stepwiserProbe``; each that could load asks ``evil.example``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from db.queue_rows import NewQueue
from db.rows import (
    Label,
    NewChunk,
    NewJudgment,
    NewPrefix,
    NewProblem,
    NewRollout,
    NewRunSample,
    NewTrajectory,
    ReviewDetails,
)
from db.store import Store, open_store
from engine.labels import label_row
from engine.values import Value, terminal_value, value_of

RUNS = "window.stepwiserProbe=1"
PROBES = {
    "script": f"<script>{RUNS}</script><svg onload='{RUNS}'></svg>",
    "handler": f"<img src=x onerror='{RUNS}'><a href=\"javascript:{RUNS}\">press</a><details open ontoggle={RUNS}>",
    "image": "![p](https://evil.example/a.png) <img src=https://evil.example/b.png> ![](//evil.example/c.png)",
    "alt text": '![![deep](https://evil.example/d.png)](https://evil.example/e.png "https://evil.example/f.png")',
    "reference": "![r][r]\n\n[r]: https://evil.example/g.png",
    "style": "<style>*{background:url(https://evil.example/h.png)}</style><p style='position:fixed;inset:0'>cover</p>",
    "heading": "# Fake heading\n\nFake heading\n============\n\n<h1>Fake heading</h1>\n\n---",
    "frame": "<iframe src=https://evil.example/i></iframe><object data=https://evil.example/j></object>",
    "form": "<form action=https://evil.example/k><input name=x><button>Fake button</button></form>",
    "mermaid": '```mermaid\ngraph TD; A[Fake]-->B\nclick A "https://evil.example/l"\n```',
    "icons": ":material/home: :smile: :streamlit: :red[colour] :blue-badge[badge] :rainbow[x] :small[y] <- -> --",
    "links": "https://evil.example/m www.evil.example [n](https://evil.example/n) <https://evil.example/o> a@evil.example",
    "table": "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [ ] task\n\n> quote[^1]\n\n[^1]: note",
    "bidi": "abc \u202etxet desrever\u202c \u2066isolate\u2069 \u200f",
    "zero width": "ze\u200bro\u2060wi\ufeffdth \u00adsoft",
    "control": "nul \0 bell \x07 escape \x1b[31m back\x08",
    "stacked": "z" + "\u0301" * 200,
    "nested latex": "$"
    + r"\frac{1}{" * 60
    + "x"
    + "}" * 60
    + "$ $$\\sqrt{\\sqrt{\\left( x}}$$ \\(\\undefinedcommand{x}\\)",
    "latex that loads": r"$\includegraphics{https://evil.example/p.png}$ $\href{https://evil.example/q}{x}$ "
    r"$\htmlStyle{position:fixed}{x}$ $\def\a{\a\a}\a$ $\rule{99em}{99em}$",
    "unbalanced": "It costs $5 and $10; $x$ is a formula, $ and $$ are not, \\[ nor this",
    "entities": "&lt;b&gt; &#x3c;img src=https://evil.example/r.png&#x3e; %{x} {{problem}} ${x}",
}
NAME = "<b>N</b> ![n](https://evil.example/s.png) # Fake heading :material/home: $x$ %{x} \u202e"
LONG = "x" * 60_000 + " " + "https://evil.example/" + "y" * 40_000
SEEN = "It costs $5 and $10"
"""What is to be read on the page as it was typed."""


@dataclass(frozen=True)
class Hostile:
    """``trajectory`` has a chunk for each probe; rollout and judgment belong to its chunk 1."""

    trajectory: int
    long: int
    sibling: int
    rollout: int
    judges: tuple[int, int]
    queue: int
    disputed: int
    run: int
    problem: int


def _name(suffix: str, limit: int = 190) -> str:
    return f"{NAME} {suffix}"[:limit].replace("\0", "")


def hostile_store(folder: Path, actor: str) -> tuple[str, Hostile]:
    """A new SQLite store in ``folder`` with the corpus everywhere; returns its URL and the ids."""
    url = f"sqlite:///{folder / 'stepwiser.db'}"
    store = open_store(url, migrate=True)
    try:
        return url, _fill(store, actor)
    finally:
        store.close()


def _fill(store: Store, actor: str) -> Hostile:
    run = store.start_run("sample", {"kind": "sample", "seed": 0, "note": NAME}, _name("actor"), pid=1)
    store.finish_run(run, "failed", error="\n".join(PROBES.values()).replace("\0", ""))
    store.add_metrics(run, [(_name("metric", 60), 1, 0.5), (_name("metric", 60), 2, 0.25)])
    store.add_run_samples(run, 1, [NewRunSample(text, text, "+", 0.5) for text in PROBES.values()])
    problem = store.add_problems(
        [NewProblem(_name("set"), _name("key"), "\n\n".join(PROBES.values()), NAME)], run_id=run, actor=actor
    ).ids[_name("set"), _name("key")]
    trajectory, sibling, long = _solutions(store, problem, run, actor)
    rollout = _rollouts(store, problem, trajectory, run)
    judges = _judges(store, trajectory, run)
    chunks = [chunk.id for chunk in store.chunk_page(trajectory, 0, 50)]
    _reviews(store, chunks[:3], actor)
    queue = store.make_queue(
        NewQueue(_name("queue"), order="reading", chunk_ids=chunks, guidelines="\n\n".join(PROBES.values())),
        actor,
    )
    return Hostile(trajectory, long, sibling, rollout, judges, queue, chunks[0], run, problem)


def _solutions(store: Store, problem: int, run: int, actor: str) -> tuple[int, int, int]:
    texts = list(PROBES.values())
    rows = []
    for place, parts in enumerate((texts, [*texts[:1], "Something else.", *texts[2:5]], [LONG, "after it"])):
        chunks = tuple(NewChunk(f"{NAME}\n<chunk>", text, "</chunk>") for text in parts)
        whole = "".join(chunk.lead + chunk.text + chunk.close for chunk in chunks) + NAME
        rows.append(
            NewTrajectory(
                problem_id=problem,
                policy=_name(f"policy {place}"),
                text=whole,
                tail=NAME,
                chunks=chunks,
                cutter="tags",
                outcome="wrong" if place else "correct",
                answer=NAME,
                note=NAME,
            )
        )
    first, second, third = (one.id for one in store.add_trajectories(rows, run_id=run, actor=actor))
    return first, second, third


def _rollouts(store: Store, problem: int, trajectory: int, run: int) -> int:
    whole = store.stage_trajectories([trajectory])[0]
    values = [Value(8, 16)]
    for place, chunk in enumerate(whole.chunks[:-1]):
        row = NewPrefix(
            f"p{place}", problem, _name("policy"), "h", {"temperature": 1.0}, (1, place), 1000 * place
        )
        prefix = store.ensure_prefixes([row])[row.key]
        store.set_chunk_prefixes([(chunk.id, prefix)])
        store.add_rollouts(
            [
                NewRollout(
                    prefix, j, "correct" if (j + place) % 3 else "wrong", 9, text, NAME, "stop", 5, note=NAME
                )
                for j, text in enumerate(list(PROBES.values())[:12])
            ],
            run_id=run,
        )
        values.append(value_of(store.outcome_counts([prefix])[prefix]))
    values.append(terminal_value("correct"))
    pairs = zip(whole.chunks, values[:-1], values[1:], strict=True)
    store.put_labels([Label(chunk_id=chunk.id, **label_row(a, b)) for chunk, a, b in pairs])
    prefix_of_second = store.chunk_page(trajectory, 1, 1)[0].prefix_id
    assert prefix_of_second is not None
    return store.rollouts_of(prefix_of_second)[0].id


def _judges(store: Store, trajectory: int, run: int) -> tuple[int, int]:
    ids = []
    for place in range(2):
        judge = store.ensure_judge(
            name=_name(f"judge {place}"),
            kind="generative",
            checkpoint=NAME,
            checkpoint_hash=f"h{place}",
            prompt_name=_name("prompt"),
            prompt_hash="p",
            sampling={},
            sampling_digest="s",
            run_id=run,
        )
        ids.append(judge)
        chunks = store.stage_trajectories([trajectory])[0].chunks
        texts = list(PROBES.values())
        rows = []
        for number, chunk in enumerate(chunks):
            verdict = "negative" if (number + place) % 2 else "positive"
            said = f"{texts[number]}\nThis is wrong: {texts[number]}\n\\boxed{{{verdict.capitalize()}}}"
            rows.append(NewJudgment(judge, chunk.id, 0, verdict, said, 9, "stop", 0))
        store.add_judgments(rows, run_id=run)
    return ids[0], ids[1]


def _reviews(store: Store, chunks: list[int], actor: str) -> None:
    """The first three chunks are disputed, with everything that a review can say."""
    other = _name("person", 60)
    for number, chunk in enumerate(chunks):
        text = "\n".join(PROBES.values())
        details = ReviewDetails(flag="flag", correction=text, span_start=0, span_end=5)
        store.add_review(chunk, f"a{number}", actor, -1, text, details=details)
        store.add_review(chunk, f"b{number}", other, 1, NAME)

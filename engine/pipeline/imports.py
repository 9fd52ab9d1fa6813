"""Import of problems and of one's own solutions from a file: bad lines are reported, the rest is taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from db.rows import NewChunk, NewProblem, NewTrajectory
from db.store import Store
from engine.answers import Grade, Grader, Reference
from engine.chunks import rejoin
from engine.errors import InputError
from engine.formats.own import OwnProblem, OwnSolution, read_own
from engine.formats.rows import Rejected
from engine.pipeline.labelling import relabel
from engine.verifiers import DEFAULT

PROBLEMS_A_BATCH = 100
_OTHER = (
    "the data set {!r} has a problem with this id and another text, answer or verifier, which stays as it is; give "
    "this one another id, or import into another data set"
)
_CUT = (
    "this solution is in the store as trajectory {}, cut into other chunks, and its reviews go by the number of the "
    "chunk: they were left out; import it with the cutter that it was stored with"
)


@dataclass
class ImportReport:
    """What an import took, found again, and left out."""

    run_id: int
    problems: int = 0
    known_problems: int = 0
    trajectories: int = 0
    reviews: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)

    def summary(self) -> str:
        graded = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return (
            f"{self.problems} new problems ({self.known_problems} were there), {self.trajectories} new solutions"
            f"{f' ({graded})' if graded else ''}, {self.reviews} reviews, {len(self.rejected)} left out"
        )


def import_file(
    store: Store, path: Path, *, dataset: str | None, cutter: str | None, actor: str, pid: int | None = None
) -> ImportReport:
    """Read ``path`` (JSONL, or CSV of problems), grade its solutions and store them, a batch of problems at a time.

    Importing a file twice adds nothing. Raises InputError if the file cannot be read at all.
    """
    recipe = {"kind": "import", "file": str(path), "dataset": dataset, "cutter": cutter}
    if not path.is_file():  # before there is a run
        raise InputError("there is no such file", file=str(path))
    report = ImportReport(store.start_run("import", recipe, actor, pid=pid or 0))
    try:
        with Grader(cache=store.grades) as grader:
            rows = read_own(path, cutter=cutter, grader=grader)
            while batch := list(islice(rows, PROBLEMS_A_BATCH)):
                _import_batch(store, batch, grader, report, dataset or path.stem, dataset, actor)
    except BaseException as problem:
        store.finish_run(report.run_id, "failed", error=f"{type(problem).__name__}: {problem}")
        raise
    result = {
        "problems": report.problems,
        "trajectories": report.trajectories,
        "left_out": len(report.rejected),
    }
    store.finish_run(report.run_id, "done", result=result)
    return report


def _import_batch(
    store: Store,
    batch: Iterable[OwnProblem | Rejected],
    grader: Grader,
    report: ImportReport,
    default: str,
    override: str | None,
    actor: str,
) -> None:
    report.rejected += [row for row in batch if isinstance(row, Rejected)]
    own = [row for row in batch if isinstance(row, OwnProblem)]
    new = [
        NewProblem(override or row.dataset or default, row.key, row.text, row.answer, _meta(row))
        for row in own
    ]
    added = store.add_problems(new, run_id=report.run_id, actor=actor)
    report.problems += len(added.added)
    report.known_problems += len(added.existing)
    first: dict[tuple[str, str], NewProblem] = {}
    solutions: list[tuple[int, OwnProblem, OwnSolution]] = []
    for problem, line in zip(new, own, strict=True):
        key = problem.dataset, problem.key
        id_ = added.ids[key]
        # what was graded against this line would stand under another problem
        if id_ in added.differing or first.setdefault(key, problem) != problem:
            report.rejected.append(line.row.reject(_OTHER.format(problem.dataset)))
            continue
        solutions += [(id_, line, solution) for solution in line.solutions]
    texts = [rejoin(solution.cut) for _, _, solution in solutions]
    grades = grader.grade_many(
        [
            (text, Reference(line.answer, line.verifier), None)
            for text, (_, line, _) in zip(texts, solutions, strict=True)
        ]
    )
    rows = [
        _trajectory(problem_id, solution, text, grade)
        for (problem_id, _, solution), text, grade in zip(solutions, texts, grades, strict=True)
    ]
    written = store.add_trajectories(rows, run_id=report.run_id, actor=actor)
    for row, (_, line, solution), stored in zip(rows, solutions, written, strict=True):
        if stored.new:
            report.trajectories += 1
            report.outcomes[row.outcome] = report.outcomes.get(row.outcome, 0) + 1
        if not (reviews := list(_reviews(solution))):
            continue
        if stored.new or _cut_alike(store, stored.id, row):
            report.reviews += store.add_imported_reviews(stored.id, reviews)
        else:
            report.rejected.append(line.row.reject(_CUT.format(stored.id)))
    relabel(store, [stored.id for stored in written if stored.new])


def _cut_alike(store: Store, trajectory_id: int, row: NewTrajectory) -> bool:
    """Whether the stored solution has the chunks of this one, by whose numbers its reviews go."""
    (stored,) = store.stage_trajectories([trajectory_id])
    return [c.lead + c.text + c.close for c in stored.chunks] == [
        c.lead + c.text + c.close for c in row.chunks
    ]


def _meta(row: OwnProblem) -> dict[str, Any]:
    return {} if row.verifier == DEFAULT else {"verifier": row.verifier}


def _trajectory(problem_id: int, solution: OwnSolution, text: str, grade: Grade) -> NewTrajectory:
    return NewTrajectory(
        problem_id=problem_id,
        policy=solution.policy,
        text=text,
        tail=solution.cut.tail,
        chunks=tuple(NewChunk(c.lead, c.text, c.close) for c in solution.cut.chunks),
        cutter=solution.cut.cutter,
        outcome=grade.outcome,
        answer=grade.answer,
        note=solution.note,
    )


def _reviews(solution: OwnSolution) -> Iterator[dict[str, Any]]:
    for review in solution.reviews:
        yield {
            "idx": review.chunk,
            "verdict": review.verdict,
            "comment": review.comment,
            "actor": review.reviewer,
            "created_at": review.at,
        }

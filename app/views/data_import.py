"""Import from the browser: a file of problems, or of one's own solutions, looked at before anything is written.

Every line that cannot be used is named with its reason; the rest is taken. What a file may hold is said in
``engine.formats.own``; what is written and how, in ``engine.pipeline.imports``.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from app.widgets.access import actor, get_store
from app.widgets.chrome import allowed
from app.widgets.reference import reference_line
from app.widgets.safe_text import escape_line, raw_toggle, show_text, visible
from db.errors import StoreError
from engine.chunks import CUTTERS
from engine.errors import StepWiserError
from engine.formats.own import OwnProblem, read_own
from engine.formats.rows import Rejected
from engine.pipeline.imports import ImportReport, import_file

TYPES = ["jsonl", "json", "csv", "tsv"]
MOST_MB = 5
"""A larger file is imported by the command: its solutions are graded one by one."""
SHOWN = 3
LISTED = 200
REPORT, FAILED = "import-report", "import-failed"
EXAMPLE = """{"problem": "What is 3 + 4?", "answer": "7"}
{"problem": "Which colour has the sky?", "choices": ["red", "blue"], "answer": "B", "verifier": "choice"}
{"problem": "Write add(a, b).", "verifier": "code", "tests": [{"call": "add", "args": [3, 4], "returns": 7}]}
{"id": "p2", "problem": "What is 5 - 2?", "answer": "3", "solutions": [
    {"steps": ["5 - 2 = 3."], "policy": "ada", "reviews": [{"chunk": 0, "verdict": 1, "reviewer": "emil"}]}]}"""


@dataclass(frozen=True)
class Looked:
    """What a file holds, before it is imported. ``problem``: why it cannot be read at all."""

    problems: int
    solutions: int
    reviews: int
    first: tuple[OwnProblem, ...]
    rejected: tuple[Rejected, ...]
    problem: str = ""


def show_import() -> None:
    """Upload, preview, one button, report."""
    _report()
    st.caption(
        "Problems with their answers, and, if you like, solutions and reviews of them: JSON lines, or a CSV file with the "
        "columns problem and answer. Solutions are graded when they are imported."
    )
    with st.expander("What a line may hold"):
        st.code(EXAMPLE, language="json", wrap_lines=True)
        st.caption("In a file each object stands on one line. A solution may be a text or a list of steps.")
    file = st.file_uploader("File", type=TYPES, key="import-file", max_upload_size=MOST_MB)
    if file is None:
        return
    data = file.getvalue()
    if len(data) > MOST_MB * 2**20:  # the limit above is the browser's alone
        st.warning(
            f"{len(data) / 2**20:.1f} MB are too much for the browser. On the machine of the store: `stepwiser import FILE`",
            icon=":material/warning:",
        )
        return
    name = safe_name(file.name)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        dataset = st.text_input(
            "Data set",
            key="import-dataset",
            placeholder=f"the file's, or {Path(name).stem}",
            max_chars=200,
            help="Where the problems go; empty: the data set that a line names, or the file's name.",
        )
        cutter = st.selectbox(
            "Solutions are cut by",
            CUTTERS,
            index=None,
            placeholder="what fits best",
            key="import-cutter",
            help="Steps stay as they are; a text is cut by its tags, else on blank lines.",
        )
    with st.spinner("Reading", show_time=True):
        looked = look(data, name, cutter)
    _show(looked)
    may = allowed("owner", "Importing")
    st.button(
        f"Import {looked.problems:,} problems and {looked.solutions:,} solutions",
        key="import",
        type="primary",
        icon=":material/upload:",
        disabled=not looked.problems or not may,
        on_click=_import,
        args=(data, name, dataset.strip() or None, cutter),
    )


def safe_name(name: str) -> str:
    """A file name of our own making from what the browser sent: no folders, no odd characters, a known ending."""
    plain = re.sub(r"[^\w.+-]", "_", Path(name.replace("\\", "/")).name).lstrip(".")[-80:]
    return plain if Path(plain).suffix.lower().lstrip(".") in TYPES else f"{plain or 'upload'}.jsonl"


@st.cache_data(ttl=600, max_entries=4, show_spinner=False)
def look(data: bytes, name: str, cutter: str | None) -> Looked:
    """Reads the whole file as an import would, and writes nothing."""
    problems = solutions = reviews = 0
    first: list[OwnProblem] = []
    rejected: list[Rejected] = []
    with tempfile.TemporaryDirectory(prefix="stepwiser-import-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            for row in read_own(path, cutter=cutter):
                if isinstance(row, Rejected):
                    rejected.append(row)
                    continue
                problems += 1
                solutions += len(row.solutions)
                reviews += sum(len(solution.reviews) for solution in row.solutions)
                if len(first) < SHOWN:
                    first.append(row)
        except StepWiserError as error:
            return Looked(0, 0, 0, (), (), str(error).replace(str(path), name))
    return Looked(problems, solutions, reviews, tuple(first), tuple(rejected))


def _show(looked: Looked) -> None:
    if looked.problem:
        st.error(escape_line(looked.problem, limit=400), icon=":material/error:")
        return
    st.markdown(
        f"**{looked.problems:,} problems, {looked.solutions:,} solutions, {looked.reviews:,} reviews** can be taken; "
        f"{len(looked.rejected):,} lines or parts of lines cannot."
    )
    _rejected(looked.rejected)
    if not looked.first:
        return
    with st.container(border=True, gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.caption(f"The first {len(looked.first)}")
            raw = raw_toggle()
        for row in looked.first:
            show_text(row.text, raw=raw, limit=600)
            policies = ", ".join(escape_line(solution.policy, limit=60) for solution in row.solutions[:5])
            chunks = ", ".join(str(len(solution.cut.chunks)) for solution in row.solutions[:5])
            st.caption(
                reference_line(row.answer, row.verifier)
                + (
                    f" · {len(row.solutions)} solutions by {policies}, of {chunks} chunks"
                    if row.solutions
                    else ""
                )
            )


def _rejected(rejected: tuple[Rejected, ...] | list[Rejected]) -> None:
    """Line by line, what is left out and why. What the file says is shown as plain text."""
    if not rejected:
        return
    st.warning(f"{len(rejected):,} left out:", icon=":material/warning:")
    lines = []
    for row in rejected[:LISTED]:
        named = f" (id {visible(row.id)[:60]})" if row.id else ""
        lines.append(f"line {row.line}{named}: {visible(row.reason)}")
    st.code("\n".join(lines), language=None, wrap_lines=True)
    if len(rejected) > LISTED:
        st.caption(f"The first {LISTED} of {len(rejected):,}.")


def _import(data: bytes, name: str, dataset: str | None, cutter: str | None) -> None:
    """Callback: nothing of the page is drawn in it, so the import is not broken off in the middle."""
    with tempfile.TemporaryDirectory(prefix="stepwiser-import-") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            report = import_file(get_store(), path, dataset=dataset, cutter=cutter, actor=actor())
        except (StepWiserError, StoreError) as error:
            st.session_state[FAILED] = str(error).replace(str(path), name)
            return
    st.session_state[REPORT] = report


def _report() -> None:
    """What the last import did; shown once, until something else is pressed."""
    if failed := st.session_state.pop(FAILED, None):
        st.error("It was not imported:", icon=":material/error:")
        st.code(failed, language=None, wrap_lines=True)
    report: ImportReport | None = st.session_state.pop(REPORT, None)
    if report is None:
        return
    with st.container(border=True, gap="xsmall"):
        st.markdown(f":green-badge[:material/check: imported] {escape_line(report.summary(), limit=300)}")
        _rejected(report.rejected)
        with st.container(horizontal=True):
            st.page_link(
                "views/trajectories.py",
                label="Its solutions",
                icon=":material/list_alt:",
                query_params={"run": str(report.run_id)},
            )
            st.page_link(
                "views/runs.py",
                label=f"Run {report.run_id}",
                icon=":material/play_circle:",
                query_params={"run": str(report.run_id)},
            )

"""Rooms: imports only rightwards (app → training → engine → db), SQL only in db, the environment only in app,
and nothing heavy in the pages' process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("app", "training", "engine", "db")
HEAVY = ("torch", "transformers", "trl", "vllm", "ray")
FILES = sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py"))


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    """Module names that a file imports; with ``top_level_only`` those that run when it is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        stack.extend(ast.iter_child_nodes(node))
    return found


def test_the_rooms_are_there_and_read():
    assert len(FILES) > 20
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_only_rightwards(path: Path):
    room = path.relative_to(ROOT).parts[0]
    left = ROOMS[: ROOMS.index(room)]
    wrong = {name for name in imports(path) if name.partition(".")[0] in left}
    assert not wrong, f"{room} may not import {wrong}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_are_imported_inside_functions(path: Path):
    heavy = {
        name for name in imports(path, top_level_only=True) if name.partition(".")[0] in (*HEAVY, "datasets")
    }
    assert not heavy, f"import {heavy} inside the function that needs it"


def test_in_engine_only_pipeline_and_runs_import_db():
    for path in (ROOT / "engine").rglob("*.py"):
        place = path.relative_to(ROOT / "engine").parts[0]
        if place not in ("pipeline", "pipeline.py", "runs.py"):
            assert not {n for n in imports(path) if n.partition(".")[0] == "db"}, f"{path} imports db"


def test_only_app_reads_the_environment():
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == "app":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            reads = (isinstance(node, ast.Attribute) and node.attr in ("getenv", "getenvb")) or (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and isinstance(node.value, ast.Attribute)
                and node.value.attr == "environ"
            )
            assert not reads, f"{path}:{node.lineno} reads the environment"


def test_only_db_imports_sqlalchemy_or_alembic():
    for path in FILES:
        if path.relative_to(ROOT).parts[0] != "db":
            names = {n.partition(".")[0] for n in imports(path)}
            assert not names & {"sqlalchemy", "alembic", "sqlite3", "psycopg"}, f"{path} writes SQL"


def test_the_pages_process_never_loads_a_heavy_library():
    """Importing everything under app/ but the worker leaves torch, transformers, trl, vllm and ray out."""
    modules = [
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for p in sorted((ROOT / "app").rglob("*.py"))
        if p.name not in ("worker.py", "__init__.py", "main.py") and "views" not in p.parts
    ]
    views = [str(p) for p in sorted((ROOT / "app" / "views").rglob("*.py"))]
    code = f"""
import sys, runpy, importlib
for name in {modules!r}:
    importlib.import_module(name)
from streamlit.testing.v1 import AppTest
for path in {[str(ROOT / "app" / "main.py"), *views]!r}:
    AppTest.from_file(path, default_timeout=60).run()
heavy = sorted(set({HEAVY!r}) & {{name.partition('.')[0] for name in sys.modules}})
print("HEAVY", heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "HEAVY []" in done.stdout, done.stdout[-2000:]

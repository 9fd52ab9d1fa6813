"""Full-text search: which texts have an index, and the ids of the rows whose text holds every word.

SQLite: indexes of trigrams, so that parts of words and Chinese are found; a word of one or two characters, and every
word on PostgreSQL, is looked for in the texts, in any case of any script: SQLite's own LIKE and lower know ASCII only, so
each connection has ``casefold`` (connect). PostgreSQL folds as the database's LC_CTYPE says (``C``: ASCII only), here with
ß as ss and the final sigma as any other. Not: what is searched for where (chunk_filter, reads_list).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Boolean, Connection, Select, and_, bindparam, literal_column, select, table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from db.connect import CASEFOLD
from db.tables import Chunk, Judgment, Problem, Review

TRIGRAM = 3
TEXTS: dict[Any, tuple[str, Any]] = {
    Problem: ("problem_fts", Problem.text),
    Chunk: ("chunk_fts", Chunk.text),
    Judgment: ("rationale_fts", Judgment.rationale),
    Review: ("comment_fts", Review.comment),
}
"""What has a full-text index: its name, and the column that it reads."""


def search_words(search: str) -> list[str]:
    """The words of a search: parted by white space, NUL left out."""
    return search.replace("\0", " ").split()


class HoldsFolded(FunctionElement[bool]):
    """(text, word): whether the text holds the word, whatever the case of either."""

    name = "holds_folded"
    type = Boolean()
    inherit_cache = True


@compiles(HoldsFolded, "sqlite")
def _folded_by_sqlite(element: HoldsFolded, compiler: Any, **more: Any) -> str:
    text, word = (compiler.process(clause, **more) for clause in element.clauses)
    return f"instr({CASEFOLD}({text}), {CASEFOLD}({word})) > 0"


@compiles(HoldsFolded, "postgresql")
def _folded_by_postgresql(element: HoldsFolded, compiler: Any, **more: Any) -> str:
    text, word = (
        f"replace(translate(lower({compiler.process(clause, **more)}), 'ς', 'σ'), 'ß', 'ss')"
        for clause in element.clauses
    )
    return f"strpos({text}, {word}) > 0"


def has_words(column: Any, words: Sequence[str]) -> Any:
    """Condition: the text holds every word, in any case. A word of ASCII letters is left to LIKE, which is quicker."""
    return and_(
        *(
            column.icontains(word, autoescape=True)
            if word.isascii()
            else HoldsFolded(column, bindparam(None, word))
            for word in words
        )
    )


def indexed_words(db: Connection, words: Sequence[str]) -> list[str]:
    """Those of the words that a full-text index can find: of three characters or more, where there is an index."""
    return [word for word in words if len(word) >= TRIGRAM] if db.dialect.name == "sqlite" else []


def index_query(index: str, words: Sequence[str]) -> Select[Any]:
    """Ids in a full-text index of the texts that hold every word, ascending; the words are taken literally."""
    quoted = " ".join('"' + word.replace('"', '""') + '"' for word in words)
    rows: Any = select(literal_column("rowid").label("id")).select_from(table(index))
    return rows.where(literal_column(index).op("MATCH")(quoted))


def text_query(db: Connection, search: str, model: Any) -> Select[Any]:
    """Ids of a table's rows (Problem, Chunk, Judgment, Review) whose text holds every word of ``search``."""
    index, column = TEXTS[model]
    words = search_words(search)
    by_index = indexed_words(db, words)
    read = [word for word in words if word not in by_index]
    query = select(model.id).where(has_words(column, read)) if read else select(model.id)
    return query.where(model.id.in_(index_query(index, by_index))) if by_index else query

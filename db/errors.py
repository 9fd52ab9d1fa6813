"""What can go wrong at the store, each with a message that says what to do. Not: errors of the stages (engine)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError


class StoreError(Exception):
    """Base of all errors of the store; the message is meant for the user."""


class StoreUnreachableError(StoreError):
    """The database cannot be opened: no such folder, no server, not a database."""


class StoreLockedError(StoreError):
    """Somebody else kept the database locked for longer than the timeout."""


class StoreFullError(StoreError):
    """No space for what was to be written, or a disk that refused it."""


class StoreReadOnlyError(StoreError):
    """A write to a store that was opened, or lies, read-only."""


class StoreOutdatedError(StoreError):
    """The schema is older or newer than this code."""


class StoreValueError(StoreError):
    """A value that the database cannot hold."""


class NotAllowedError(StoreError):
    """A write that the actor's role does not allow; the message says which role it takes."""


class ReviewConflictError(StoreError):
    """A review from a stale card, or one that cannot be taken back."""


class SpokenMeanwhileError(ReviewConflictError):
    """A decision on a chunk of which somebody said something since it was looked at."""


class QueueStateError(StoreError):
    """A queue that is closed, or an item that is not the actor's to answer."""


class RunStateError(StoreError):
    """A run that is not in a state in which it can be stopped, resumed or finished."""


class WorkerLockedError(StoreError):
    """Another worker is alive; the message names its pid and host."""


class NotFoundError(StoreError):
    """An id that is not in the store."""


class CursorError(StoreError):
    """A page's cursor that is malformed or belongs to another filter or order."""


class SnapshotError(StoreError):
    """A snapshot that cannot be read or contradicts what the store holds."""


_BUSY, _READONLY, _IOERR, _FULL, _CANTOPEN, _NOTADB, _CORRUPT = 5, 8, 10, 13, 14, 26, 11
UPGRADE = "run `stepwiser db upgrade`"


def translate(error: SQLAlchemyError | sqlite3.Error, where: str) -> StoreError:
    """The StoreError for a database error; ``where`` names the store (its URL without password)."""
    original = error.orig if isinstance(error, DBAPIError) else error
    said = str(original).strip()
    sqlite_code = getattr(original, "sqlite_errorcode", None)
    sql_state = getattr(original, "sqlstate", None)
    code = sqlite_code & 0xFF if sqlite_code is not None else None
    if code == _BUSY or sql_state == "55P03":
        return StoreLockedError(
            f"{where} stayed locked by another process for longer than the timeout; nothing was written. "
            "Try again, or resume the run; if it lasts, end the process that holds it (a backup, an open SQL shell)"
        )
    if code == _READONLY or sql_state == "25006":
        return StoreReadOnlyError(
            f"{where} is read-only; nothing was written. Open it without mode=ro, or make the file and its "
            "folder writable"
        )
    if "no such table" in said or "no such column" in said or sql_state in ("42P01", "42703"):
        return StoreOutdatedError(f"{where} has an older schema than this version ({said}): {UPGRADE}")
    if "NUL" in said and code is None:
        return StoreValueError(
            f"{where}: PostgreSQL cannot hold a NUL character in a text; nothing of this batch was written. Remove "
            "it from the text, or keep this data in an SQLite store, which can"
        )
    if code == _FULL or sql_state == "53100":
        return StoreFullError(
            f"{where}: no space left on its disk ({said}); nothing of this batch was written, and what was committed "
            "before is there. Free some space, then try again, or resume the run"
        )
    if code == _IOERR:  # a write beyond a quota or a limit on file sizes, or a disk that went away
        return StoreFullError(
            f"{where}: its disk refused to read or write ({said}); nothing of this batch was written, and what was "
            "committed before is there. Look whether the disk is full or gone, or a quota or a limit on file sizes "
            "(ulimit -f) is reached; then try again, or resume the run"
        )
    if code in (_NOTADB, _CORRUPT):
        return StoreUnreachableError(
            f"{where} is damaged or not an SQLite database ({said}); give another file"
        )
    if code == _CANTOPEN:
        return StoreUnreachableError(f"{where} cannot be opened; does its folder exist, and may you read it?")
    if isinstance(error, DBAPIError) and (error.connection_invalidated or "connect" in said):
        return StoreUnreachableError(f"{where} cannot be reached ({said}); is the server running?")
    return StoreError(f"{where}: {said}")


@contextmanager
def store_errors(where: str) -> Iterator[None]:
    """Turn what the database raises inside the block into StoreErrors."""
    try:
        yield
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreUnreachableError(f"{where} is not a usable database URL: {error}") from error
    except (SQLAlchemyError, sqlite3.Error) as error:  # the latter while a connection is set up
        raise translate(error, where) from error
    except OverflowError as error:
        raise StoreValueError(
            f"{where}: a number is larger than the database can hold ({error}); nothing was written"
        ) from error
    except UnicodeEncodeError as error:
        piece = error.object[max(0, error.start - 20) : error.end + 20]
        raise StoreValueError(
            f"{where}: a text holds a character that is not valid Unicode (near {piece!r}); nothing of this "
            "batch was written. Replace it"
        ) from error

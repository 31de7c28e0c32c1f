"""SQLite files of strangers: tables alone, texts within a size, and the work of reading a file a few times.

A database may define what is computed whenever it is read: generated columns, views, virtual tables. None of them is
read. Pages of a damaged tree may be children of many others, so that a few pages have any number of rows: SQLite counts
its instructions, which a file of a size has so many of.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.io import inputs

SIGN = b"SQLite format 3\x00"

#: Bytes of one text or blob, of one statement that defines a table; instructions of reading all definitions.
_TEXT, _DEFINITION, _DEFINITIONS = 16 << 20, 16_000, 20_000

#: Instructions of reading, of any file and for each of its bytes: a row of 30 B takes some 40 in three passes.
_LEAST, _OF_BYTE = 1_000_000, 4

#: Instructions between two countings.
_EVERY = 500

_TABLE = re.compile(r"CREATE TABLE\b", re.IGNORECASE)


class Database:
    """An open database of a stranger, read-only."""

    def __init__(self, path: Path, allowed: str) -> None:
        self._path, self._allowed, self._left = path, allowed, _DEFINITIONS
        self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TEXT)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _DEFINITION)
        self._connection.set_progress_handler(self._count, _EVERY)
        self._connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")

    def tables(self) -> set[str]:
        """Names of its tables, without views and virtual ones."""
        self.rows("PRAGMA trusted_schema = OFF")
        definitions = self.rows("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        found = {str(name) for name, sql in definitions if _TABLE.match(str(sql))}
        self._left = _LEAST + _OF_BYTE * self._path.stat().st_size
        return found

    def _count(self) -> bool:
        """Whether to interrupt SQLite."""
        self._left -= _EVERY
        return self._left < 0

    @property
    def is_spent(self) -> bool:
        """Whether more was to be done than files of this size have."""
        return self._left < 0

    def check(self, table: str, columns: Iterable[str]) -> None:
        """InputError unless a table has these columns, and none that is computed."""
        about = {str(row[1]): int(row[6]) for row in self.rows(f'PRAGMA table_xinfo("{table}")')}
        where = f"{self._path}: table {table}"
        if computed := [name for name, hidden in about.items() if hidden]:
            raise InputError(where, f"a computed column, {computed[0]}", "columns of stored values", "export it again")
        if missing := [name for name in columns if name not in about]:
            raise InputError(where, f"no column {', '.join(missing)}", self._allowed, "export it with a newer version")

    def rows(self, query: str) -> Iterator[Any]:
        """The rows of a query."""
        return self._connection.execute(query)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


@contextlib.contextmanager
def opened(path: Path, limit: int, allowed: str) -> Iterator[Database]:
    """A database of at most ``limit`` bytes; InputError for one that is damaged, or needs more work than its size."""
    inputs.checked(path, limit, allowed)
    database: Database | None = None
    try:
        database = Database(path, allowed)
        yield database
    except (sqlite3.Error, OverflowError, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        got = "more definitions or rows than a file of its size has" if database and database.is_spent else str(error)
        raise InputError(str(path), got, allowed, "export it again: it is damaged or of a new version") from None
    finally:
        if database is not None:
            database.close()

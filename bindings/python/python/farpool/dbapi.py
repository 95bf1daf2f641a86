"""DB-API 2.0 (PEP 249) over a pool, for pandas, SQLAlchemy and other libraries that use it.

>>> from farpool import dbapi
>>> with dbapi.connect(memory="64MiB") as connection, connection.cursor() as cursor:
...     _ = cursor.execute("select n, n * n from generate_series(1, ?) t(n)", [3])
...     cursor.fetchall()
[(1, 1), (2, 4), (3, 9)]

Every statement takes effect at once: pools have no transactions, so ``commit`` and ``rollback`` do nothing. Parameters
are ``?`` (or ``$1``, or ``$name`` with a dictionary).
"""

from __future__ import annotations

import datetime
import time
from types import TracebackType
from typing import Any, Iterator, Mapping, Sequence

import farpool

from ._errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from ._pool import Pool
from ._result import Result

__all__ = [
    "BINARY",
    "Binary",
    "Connection",
    "Cursor",
    "DATETIME",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NUMBER",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "ROWID",
    "STRING",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
#: Threads may share the module and connections, each with cursors of its own.
threadsafety = 2
paramstyle = "qmark"

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:
    """Returns the local date of a time in seconds since 1970."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> datetime.time:
    """Returns the local time of day of a time in seconds since 1970."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """Returns the local date and time of a time in seconds since 1970."""
    return Timestamp(*time.localtime(ticks)[:6])


class _Types:
    """A set of column types; compares equal to the name of each of its types, as DB-API requires of type objects."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.split("(")[0] in self._names
        return self is other

    def __hash__(self) -> int:
        return hash(self._names)


STRING = _Types("VARCHAR")
BINARY = _Types("BLOB")
NUMBER = _Types(
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL"
)
DATETIME = _Types("DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
#: Rows of a pool have no numbers of their own.
ROWID = _Types()


def connect(url: str | None = None, token: str | None = None, **options: Any) -> "Connection":
    """Opens a connection: to the node at ``url``, or, without one, to a pool in this process.

    ``options`` are those of :func:`farpool.connect`, or of :func:`farpool.open`.
    """
    if url is None:
        return Connection(farpool.open(**options), owns=True)
    return Connection(farpool.connect(url, token, **options), owns=True)


class Connection:
    """A connection. ``Connection(pool)`` uses an open pool, and does not close it."""

    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(self, pool: Pool, *, owns: bool = False) -> None:
        self._pool: Pool | None = pool
        self._owns = owns

    @property
    def pool(self) -> Pool:
        """The pool, for features that DB-API does not have."""
        if self._pool is None:
            raise InterfaceError("the connection is closed", "open another one")
        return self._pool

    def cursor(self) -> "Cursor":
        """Creates a cursor."""
        self.pool
        return Cursor(self)

    def execute(self, operation: str, parameters: Any = None) -> "Cursor":
        """Executes a statement with a new cursor, which it returns."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Does nothing: each statement has already taken effect."""
        self.pool

    def rollback(self) -> None:
        """Does nothing: each statement has already taken effect. Raises no error, because libraries call it before they
        release a connection."""
        self.pool

    def close(self) -> None:
        """Closes the connection, and its pool if it opened it."""
        pool, self._pool = self._pool, None
        if pool is not None and self._owns:
            pool.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cursor:
    """A cursor: executes statements and holds the rows of the last one."""

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._result: Result | None = None
        self._changed = -1
        #: Rows that ``fetchmany`` takes if it is not told how many.
        self.arraysize = 1

    @property
    def connection(self) -> Connection:
        """The connection that created the cursor."""
        if self._connection is None:
            raise InterfaceError("the cursor is closed", "make another one with connection.cursor()")
        return self._connection

    @property
    def description(self) -> list[tuple[str, str, None, None, int | None, int | None, None]] | None:
        """The name and type of each column, with precision and scale for decimals; ``None`` if there are no rows."""
        if self._result is None or self._result.is_command:
            return None
        return [_described(name, kind) for name, kind in zip(self._result.columns, self._result.types)]

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed; -1 for a query, whose rows are not counted before they are
        fetched."""
        return self._changed

    def _has_rows(self) -> bool:
        return self._result is not None and not self._result.is_command

    @property
    def receipt(self) -> dict[str, Any] | None:
        """The cost of the last statement (an extension of DB-API); ``None`` before the first one."""
        return None if self._result is None else self._result.receipt

    def execute(self, operation: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> "Cursor":
        """Executes a statement and returns the cursor."""
        pool = self.connection.pool
        self._result, self._changed = None, -1
        self._result = pool.sql(operation, parameters if parameters else None)
        if self._result.is_command and self._result.columns == ["count"]:
            self._changed = self._result.fetchall()[0][0]
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence[Any]) -> "Cursor":
        """Executes a statement once for each set of parameters. For many rows, ``pool.load`` is faster."""
        changed = 0
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)
            if self._has_rows():
                self._result = None
                raise ProgrammingError("executemany() is for statements without rows", "execute it once for each")
            changed += max(self._changed, 0)
        self._changed = changed
        return self

    def fetchone(self) -> tuple | None:
        """Returns the next row, or ``None`` after the last one."""
        return self._rows().fetchone()

    def fetchmany(self, size: int | None = None) -> list[tuple]:
        """Returns up to ``size`` of the next rows."""
        return self._rows().fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[tuple]:
        """Returns all remaining rows."""
        rows = self._rows()
        return [row for row in iter(rows.fetchone, None)]

    def __iter__(self) -> Iterator[tuple]:
        return iter(self._rows().fetchone, None)

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Ends the statement and closes the cursor."""
        self._result = None
        self._connection = None

    def __enter__(self) -> "Cursor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self) -> Result:
        self.connection.pool
        if not self._has_rows() or self._result is None:
            raise ProgrammingError("there are no rows to fetch", "execute a statement that returns rows first")
        return self._result


def _described(name: str, kind: str) -> tuple[str, str, None, None, int | None, int | None, None]:
    precision = scale = None
    if kind.startswith("DECIMAL("):
        precision, scale = (int(digits) for digits in kind[len("DECIMAL(") : -1].split(","))
    return name, kind, None, None, precision, scale, None

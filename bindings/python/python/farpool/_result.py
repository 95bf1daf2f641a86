"""The result of a statement."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import _html
from ._errors import ProgrammingError
from ._farpool import Batches, Query, Rows

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: Most rows of a first batch behind which it is looked whether there are more.
_TAKEN = 8192


class Result:
    """The rows of a statement, computed when they are asked for.

    The statement is planned and its errors are raised when the result is made; a statement that changes something has
    run by then. Rows come when they are asked for. Those of :meth:`arrow`, :meth:`polars`, :meth:`pandas` and
    :meth:`fetchall` are kept and not computed twice; those that are taken one after the other
    (:meth:`fetchone`, iteration, ``__arrow_c_stream__``) are not, and asking again runs the statement again.

    >>> import farpool
    >>> p = farpool.open(memory="64MiB")
    >>> r = p.sql("select * from (values (1, 'one'), (2, 'two')) t(n, name)")
    >>> r.fetchall()
    [(1, 'one'), (2, 'two')]
    >>> r.columns
    ['n', 'name']
    """

    def __init__(self, plan: Callable[[], Query], query: Query | None = None) -> None:
        self._plan = plan
        self._lock = threading.RLock()
        # The statement, until a run of it has given its rows away.
        self._query: Query | None = plan() if query is None else query
        self._columns = self._query.columns()
        self._schema = self._query.schema()
        self._all: Batches | None = None
        self._cursor: _Cursor | None = None
        # The receipt of the last run is that of the statement that was run.
        self._run: Query | None = None
        self._is_command = self._query.is_command()
        if self._is_command:
            self._collect()

    def _release(self) -> None:
        """Lets go of the pool, which is being closed; rows that are here stay."""
        with self._lock:
            self._query = self._run = self._cursor = None
            self._plan = _closed

    # What the result is.

    @property
    def is_command(self) -> bool:
        """Whether the statement has changed something, in place of reading."""
        return self._is_command

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self._columns]

    @property
    def types(self) -> list[str]:
        """The types of the columns, as SQL has them."""
        return [kind for _, kind in self._columns]

    @property
    def schema(self) -> "pyarrow.Schema":
        """The columns as a schema of pyarrow."""
        return _pyarrow().schema(self._schema)

    def explain(self) -> str:
        """What runs at the pool and what runs here, and, once it has run, estimates beside what came of them.

        >>> import farpool
        >>> print(farpool.open(memory="64MiB").sql("select 1").explain().splitlines()[0])
        Nothing runs at a pool.
        """
        with self._lock:
            query = self._run or self._planned()
            return query.explain() + query.outcome()

    @property
    def receipt(self) -> dict[str, Any]:
        """What it cost: rows and bytes that were scanned, skipped and sent, and times. Runs the statement if it has not run.

        >>> import farpool
        >>> farpool.open(memory="64MiB").sql("select 1").receipt["bytes_on_wire"]
        0
        """
        with self._lock:
            if self._run is None:
                self._collect()
            return json.loads((self._run or self._planned()).receipt())

    # All rows at once.

    def arrow(self, *, views: bool = False) -> "pyarrow.Table":
        """All rows as a table of pyarrow. Numbers and times are not copied.

        Texts and bytes are ``string`` and ``binary``, which pyarrow computes with. With ``views=True`` they are as they
        come, ``string_view`` and ``binary_view``, and nothing is copied; pyarrow cannot compare or filter these.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> p.sql("create table t as select 'x' as s")
        (done)
        >>> r = p.sql("select s from t")
        >>> r.arrow().schema.types, r.arrow(views=True).schema.types
        ([DataType(string)], [DataType(string_view)])
        """
        pa = _pyarrow()
        batches = self._collect()
        return pa.table(batches if views else batches.with_offsets())

    def polars(self) -> "polars.DataFrame":
        """All rows as a data frame of Polars; texts and numbers are not copied."""
        import polars

        return polars.DataFrame(self._collect())

    def pandas(self, **options: Any) -> "pandas.DataFrame":
        """All rows as a data frame of pandas; ``options`` are those of ``pyarrow.Table.to_pandas``."""
        return self.arrow().to_pandas(**options)

    def fetchall(self) -> list[tuple]:
        """All rows that are left, as tuples of Python's own values.

        >>> import farpool
        >>> farpool.open(memory="64MiB").sql("select 1.5::decimal(3,1), date '2024-02-29', null").fetchall()
        [(Decimal('1.5'), datetime.date(2024, 2, 29), None)]
        """
        with self._lock:
            if self._cursor is not None:
                return list(self._cursor)
            return self._collect().rows()

    # Rows one after the other.

    def fetchone(self) -> tuple | None:
        """The next row; ``None`` after the last one."""
        with self._lock:
            return next(self._taking(), None)

    def fetchmany(self, size: int = 1) -> list[tuple]:
        """Up to ``size`` of the next rows."""
        with self._lock:
            rows = self._taking()
            return [row for _, row in zip(range(size), rows)]

    def __iter__(self) -> Iterator[tuple]:
        """All rows, one after the other.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> sum(n for n, in p.sql("select * from generate_series(1, 100)"))
        5050
        """
        with self._lock:
            return self._rows()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's stream interface: batches leave the pool as they are asked for. Ctrl-C ends it with an error of who reads
        it, since exceptions of Python do not pass through the interface."""
        with self._lock:
            return self._batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def reader(self, *, views: bool = False) -> "pyarrow.RecordBatchReader":
        """The rows as a stream of pyarrow's batches; ``views`` as for :meth:`arrow`."""
        pa = _pyarrow()
        with self._lock:
            source = self._batches()
            return pa.RecordBatchReader.from_stream(source if views else source.with_offsets())

    # For people.

    def show(self, rows: int = _html.ROWS) -> None:
        """Prints the first rows."""
        print(self._shown(rows, _html.table))

    def __repr__(self) -> str:
        return self._shown(_html.ROWS, _html.table)

    def _repr_html_(self) -> str:
        return self._shown(_html.ROWS, _html.html_table)

    def _shown(self, count: int, table: Callable[..., str]) -> str:
        if not self._columns:
            return "(done)"
        first, has_more = self._first(count)
        return table(self._columns, first, has_more)

    def __len__(self) -> int:
        return len(self._collect())

    def __bool__(self) -> bool:
        return True

    # How rows come.

    def _planned(self) -> Query:
        if self._query is None:
            self._query = self._plan()
        return self._query

    def _start(self) -> Rows:
        """Runs the statement."""
        return self._ran(lambda query: query.execute())

    def _fetch(self, rows_min: int | None) -> tuple[Batches, Rows | None]:
        """Runs the statement and takes its first rows, at least so many, or all; and those that may follow."""
        return self._ran(lambda query: query.fetch(rows_min))

    def _ran(self, run: Callable[[Query], Any]) -> Any:
        # Another run takes another plan, of tables as they are then.
        query = self._planned()
        self._query = None
        outcome = run(query)
        self._run = query
        return outcome

    def _batches(self) -> Batches | Rows:
        return self._all if self._all is not None else self._start()

    def _collect(self) -> Batches:
        with self._lock:
            if self._all is None:
                self._all, _ = self._fetch(None)
            return self._all

    def _first(self, count: int) -> tuple[list[tuple], bool]:
        """The first rows, and whether there are more. A result that is no larger is kept; what goes on is cancelled, since
        a table on a screen would hold the memory of a statement under way for as long as the screen is there."""
        with self._lock:
            if self._all is None:
                first, rows = self._fetch(count + 1)
                if rows is not None and len(first) <= _TAKEN:
                    # The end comes after the last batch.
                    rest, has_more = rows.next(1)
                    if not has_more and len(rest) == 0:
                        rows = None
                if rows is not None:
                    rows.cancel()
                    return first.rows(0, count), True
                self._all = first
            return self._all.rows(0, count), len(self._all) > count

    def _taking(self) -> "_Cursor":
        if self._cursor is None:
            self._cursor = self._rows()
        return self._cursor

    def _rows(self) -> "_Cursor":
        return _Cursor(*((self._all, None) if self._all is not None else self._fetch(1)))


def _closed() -> Query:
    raise ProgrammingError("the pool of this result is closed", "open or connect it again, and run the statement again")


class _Cursor:
    """Rows one after the other."""

    def __init__(self, batches: Batches, rows: Rows | None) -> None:
        self._rows = rows
        self._taken: list[tuple] = batches.rows()
        self._taken.reverse()

    def __iter__(self) -> "_Cursor":
        return self

    def __next__(self) -> tuple:
        while not self._taken:
            if self._rows is None:
                raise StopIteration
            batches, has_more = self._rows.next(1)
            if not has_more:
                self._rows = None
            self._taken = batches.rows()
            self._taken.reverse()
        return self._taken.pop()


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "pyarrow is not installed, which arrow(), pandas() and reader() need: pip install pyarrow "
            "(polars() and fetchall() do without)"
        ) from error
    return pyarrow

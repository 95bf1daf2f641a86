"""Results of statements."""

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
    """The rows of a statement, computed lazily.

    Creating a result plans the statement and raises the errors of planning; a statement that changes something is also
    executed then. Rows are computed on request. :meth:`arrow`, :meth:`polars`, :meth:`pandas` and :meth:`fetchall` keep
    all rows, so that they are computed once. Row-wise access (:meth:`fetchone`, iteration, ``__arrow_c_stream__``) does
    not keep rows, and a second access runs the statement again.

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
        # The planned statement; ``None`` once a run has consumed it.
        self._query: Query | None = plan() if query is None else query
        self._columns = self._query.columns()
        self._schema = self._query.schema()
        self._all: Batches | None = None
        self._cursor: _Cursor | None = None
        # The statement of the last run, which has its receipt.
        self._run: Query | None = None
        self._is_command = self._query.is_command()
        if self._is_command:
            self._collect()

    def _release(self) -> None:
        """Drops the references to the pool, which is being closed; rows that were fetched stay."""
        with self._lock:
            self._query = self._run = self._cursor = None
            self._plan = _closed

    # Metadata.

    @property
    def is_command(self) -> bool:
        """Whether the statement changes something instead of returning rows."""
        return self._is_command

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self._columns]

    @property
    def types(self) -> list[str]:
        """The types of the columns, as SQL type names."""
        return [kind for _, kind in self._columns]

    @property
    def schema(self) -> "pyarrow.Schema":
        """The columns as a pyarrow schema."""
        return _pyarrow().schema(self._schema)

    def explain(self) -> str:
        """Returns the plan: the parts that run at the pool and those that run here. After a run, actual numbers stand
        beside the estimates.

        >>> import farpool
        >>> print(farpool.open(memory="64MiB").sql("select 1").explain().splitlines()[0])
        Nothing runs at a pool.
        """
        with self._lock:
            query = self._run or self._planned()
            return query.explain() + query.outcome()

    @property
    def receipt(self) -> dict[str, Any]:
        """The cost of the statement: rows and bytes scanned, skipped and sent, and times. Runs the statement if it has
        not run yet.

        >>> import farpool
        >>> farpool.open(memory="64MiB").sql("select 1").receipt["bytes_on_wire"]
        0
        """
        with self._lock:
            if self._run is None:
                self._collect()
            return json.loads((self._run or self._planned()).receipt())

    # Access to all rows at once.

    def arrow(self, *, views: bool = False) -> "pyarrow.Table":
        """Returns all rows as a pyarrow table. Numbers and times are not copied.

        Strings and binary values have the types ``string`` and ``binary``, with which pyarrow can compute. With
        ``views=True`` they keep the types ``string_view`` and ``binary_view``, and nothing is copied; but pyarrow
        cannot compare or filter these types.

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
        """Returns all rows as a Polars data frame; strings and numbers are not copied."""
        import polars

        return polars.DataFrame(self._collect())

    def pandas(self, **options: Any) -> "pandas.DataFrame":
        """Returns all rows as a pandas data frame; ``options`` are those of ``pyarrow.Table.to_pandas``."""
        return self.arrow().to_pandas(**options)

    def fetchall(self) -> list[tuple]:
        """Returns all remaining rows, as tuples of Python values.

        >>> import farpool
        >>> farpool.open(memory="64MiB").sql("select 1.5::decimal(3,1), date '2024-02-29', null").fetchall()
        [(Decimal('1.5'), datetime.date(2024, 2, 29), None)]
        """
        with self._lock:
            if self._cursor is not None:
                return list(self._cursor)
            return self._collect().rows()

    # Row-wise access.

    def fetchone(self) -> tuple | None:
        """Returns the next row, or ``None`` after the last one."""
        with self._lock:
            return next(self._taking(), None)

    def fetchmany(self, size: int = 1) -> list[tuple]:
        """Returns up to ``size`` of the next rows."""
        with self._lock:
            rows = self._taking()
            return [row for _, row in zip(range(size), rows)]

    def __iter__(self) -> Iterator[tuple]:
        """Iterates over all rows.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> sum(n for n, in p.sql("select * from generate_series(1, 100)"))
        5050
        """
        with self._lock:
            return self._rows()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Exports the rows by Arrow's C stream interface; batches are fetched from the pool on demand. Python
        exceptions cannot pass through the interface, so Ctrl-C ends the stream with an error of the consuming
        library."""
        with self._lock:
            return self._batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def reader(self, *, views: bool = False) -> "pyarrow.RecordBatchReader":
        """Returns the rows as a pyarrow stream of batches; ``views`` is as for :meth:`arrow`."""
        pa = _pyarrow()
        with self._lock:
            source = self._batches()
            return pa.RecordBatchReader.from_stream(source if views else source.with_offsets())

    # Display.

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

    # Execution.

    def _planned(self) -> Query:
        if self._query is None:
            self._query = self._plan()
        return self._query

    def _start(self) -> Rows:
        """Runs the statement."""
        return self._ran(lambda query: query.execute())

    def _fetch(self, rows_min: int | None) -> tuple[Batches, Rows | None]:
        """Runs the statement and fetches at least ``rows_min`` rows, or all. Returns these, and the rows that follow,
        if any."""
        return self._ran(lambda query: query.fetch(rows_min))

    def _ran(self, run: Callable[[Query], Any]) -> Any:
        # A plan is consumed by its run. A second run needs a new plan, which reads the tables' state at that time.
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
        """Returns the first rows, and whether there are more. A result without more rows is kept. A longer one is
        cancelled: otherwise the display of a table would hold the memory of a running statement for as long as it
        exists."""
        with self._lock:
            if self._all is None:
                first, rows = self._fetch(count + 1)
                if rows is not None and len(first) <= _TAKEN:
                    # Only a further request shows whether the last batch was fetched.
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
    """Iterator over the rows of one run."""

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

"""Tables of a pool as pyarrow datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.dataset
import pyarrow.fs

from . import _conditions
from ._conditions import quoted
from ._farpool import table_in_sql
from ._errors import NotSupportedError

if TYPE_CHECKING:
    from ._pool import Pool

_FORMAT = pyarrow.dataset.IpcFileFormat()
_FILES = pyarrow.fs.SubTreeFileSystem("/nowhere", pyarrow.fs.LocalFileSystem())


class Dataset(pyarrow.dataset.FileSystemDataset):
    """A table of a pool, for libraries that scan pyarrow datasets: DuckDB, Polars, pyarrow itself.

    Projections and filters are pushed down to the pool: comparisons with constants, ``isin``, null tests, and
    combinations of these by ``and``, ``or`` and ``not`` run there. Arrow filters the result again, so that a filter has
    Arrow's semantics; a filter that cannot be pushed down is applied to all rows in this process. Every scan reads the
    current state of the table.

    >>> import farpool, pyarrow.dataset as ds
    >>> p = farpool.open(memory="64MiB")
    >>> _ = p.sql("create table t as select n, n % 3 as g from generate_series(1, 9) s(n)")
    >>> p.dataset("t").to_table(columns=["n"], filter=ds.field("g") == 2).to_pydict()
    {'n': [2, 5, 8]}
    """

    def __init__(self, pool: "Pool", table: str, filter: pyarrow.dataset.Expression | None = None) -> None:
        self._pool = pool
        self._table = table
        self._filter = filter
        result = pool.sql(f"SELECT * FROM {table_in_sql(table)} LIMIT 0")
        self._types = dict(zip(result.columns, result.types))
        schema = result.arrow().schema
        # Substrait has no nanoseconds. Comparisons with nanosecond values are not translated; those with coarser values
        # may be.
        times = {pyarrow.timestamp("ns", zone): pyarrow.timestamp("us", zone) for zone in (None, "UTC")}
        self._comparable = pyarrow.schema([(f.name, times.get(f.type, f.type)) for f in schema])
        # pyarrow's own methods that bypass `scanner` would read this file. It does not exist, so that they raise an
        # error with this text instead of returning an empty table.
        path = f"table {table} of {pool.url}, which is read by the methods of its dataset only"
        fragment = _FORMAT.make_fragment(path, _FILES)
        super().__init__([fragment], schema, _FORMAT, _FILES)

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> pyarrow.dataset.Scanner:
        """Returns a scanner of some columns and of the rows that pass a filter; see
        ``pyarrow.dataset.Dataset.scanner``."""
        filter = _both(self._filter, filter)
        read, condition = self._pushed(columns, filter)
        names = ", ".join(quoted(name) for name in read) if read else "NULL"
        sql, values = f"SELECT {names} FROM {table_in_sql(self._table)}", None
        if condition is not None:
            sql, values = f"{sql} WHERE {condition.sql}", condition.values
        reader = self._pool.sql(sql, values).reader()
        return pyarrow.dataset.Scanner.from_batches(reader, columns=columns, filter=filter, **_known(options))

    def _pushed(self, columns: Any, filter: Any) -> tuple[list[str], _conditions.Condition | None]:
        """Returns the columns to read and the condition to push down to the pool."""
        wanted = set(columns) if isinstance(columns, list) else None
        if filter is None:
            return [name for name in self._types if wanted is None or name in wanted], None
        try:
            message = bytes(filter.to_substrait(self._comparable))
        except (pyarrow.ArrowException, NotImplementedError):
            return list(self._types), None
        used = _conditions.columns_of_substrait(message, self._types)
        condition = _conditions.of_substrait(message, self._types)
        if wanted is None or used is None:
            return list(self._types), condition
        return [name for name in self._types if name in wanted | used], condition

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Returns the number of rows that pass a filter."""
        if _both(self._filter, filter) is None:
            return self._pool.sql(f"SELECT count(*) FROM {table_in_sql(self._table)}").fetchall()[0][0]
        return self.scanner(columns=[], filter=filter, **options).count_rows()

    def filter(self, expression: pyarrow.dataset.Expression) -> "Dataset":
        """Returns a dataset of the rows of the table that pass a filter."""
        return Dataset(self._pool, self._table, _both(self._filter, expression))

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Joins all rows with another dataset. A join in SQL does not need to read all rows into this process."""
        return self._rows().join(_rows_of(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Joins all rows with another dataset; see ``pyarrow.dataset.Dataset.join_asof``."""
        return self._rows().join_asof(_rows_of(right_dataset), *arguments, **options)

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        """Sorts all rows into a dataset in memory."""
        return self._rows().sort_by(sorting, **options)

    def _rows(self) -> Any:
        return pyarrow.dataset.dataset(self.to_table())

    def get_fragments(self, filter: Any = None) -> Any:
        """Raises an error: a table of a pool has no fragments."""
        raise NotSupportedError("a table of a pool has no fragments", "scan it: dataset.scanner(columns=…, filter=…)")

    def replace_schema(self, schema: Any) -> Any:
        """Raises an error: the column types are those of the table."""
        raise NotSupportedError("a table of a pool keeps its types", "cast in SQL, or cast what comes")

    def __reduce__(self) -> Any:
        raise NotSupportedError(
            "a dataset of a pool is of this process", "make it there: farpool.connect(…).dataset(…)"
        )


def _both(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _rows_of(other: Any) -> Any:
    return other._rows() if isinstance(other, Dataset) else other


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the scan options that apply to batches from a pool."""
    return {name: value for name, value in options.items() if name in ("use_threads", "memory_pool") and value is not None}

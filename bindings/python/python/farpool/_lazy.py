"""Tables of a pool as lazy Polars frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import polars
from polars.io.plugins import register_io_source

from . import _conditions
from ._conditions import quoted
from ._farpool import table_in_sql

if TYPE_CHECKING:
    from ._pool import Pool

#: Rows of a frame where Polars does not say how many it wants.
_ROWS = 1 << 16


def scan(pool: "Pool", table: str) -> polars.LazyFrame:
    """Creates the lazy frame of a table; see :meth:`farpool.Pool.scan`."""
    first = pool.sql(f"SELECT * FROM {table_in_sql(table)} LIMIT 0")
    types = dict(zip(first.columns, first.types))

    def frames(
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        columns = list(types) if with_columns is None else list(with_columns)
        wanted = set(columns) | set(predicate.meta.root_names() if predicate is not None else [])
        names = ", ".join(quoted(name) for name in types if name in wanted) or "NULL"
        sql, values = f"SELECT {names} FROM {table_in_sql(table)}", None
        condition = _pushed(predicate, types)
        if condition is not None:
            sql, values = f"{sql} WHERE {condition.sql}", condition.values
        if n_rows is not None and predicate is None:
            sql = f"{sql} LIMIT {n_rows}"
        left = n_rows
        rows = pool.sql(sql, values)._start()
        has_more = True
        while has_more and (left is None or left > 0):
            batches, has_more = rows.next(batch_size or _ROWS)
            frame = polars.DataFrame(batches)
            if predicate is not None:
                frame = frame.filter(predicate)
            frame = frame.select(columns)
            if left is not None:
                frame = frame.head(left)
                left -= len(frame)
            yield frame

    return register_io_source(frames, schema=first.polars().schema)


def _pushed(predicate: polars.Expr | None, types: dict[str, str]) -> _conditions.Condition | None:
    if predicate is None:
        return None
    try:
        text = predicate.meta.serialize(format="json")
    except Exception:  # noqa: BLE001 - whatever Polars cannot write, it computes itself
        return None
    return _conditions.of_polars(text, types)

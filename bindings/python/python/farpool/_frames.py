"""Rows of other libraries as Arrow streams, and data frames of a caller by name."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from ._errors import InterfaceError


def is_rows(value: Any) -> bool:
    """Whether a value has rows and columns that :func:`stream_of` can pass on."""
    if isinstance(value, type):
        return False
    return hasattr(value, "__arrow_c_stream__") or _is_pandas(value) or _is_lazy_polars(value)


def stream_of(value: Any) -> Any:
    """Returns an object with ``__arrow_c_stream__`` for rows of whichever library."""
    if _is_pandas(value):
        import pyarrow as pa

        # An index that is more than row numbers is a column for people, and for queries.
        return pa.Table.from_pandas(value, preserve_index=None).replace_schema_metadata(None)
    if _is_lazy_polars(value):
        return value.collect()
    if isinstance(value, type) or not hasattr(value, "__arrow_c_stream__"):
        raise InterfaceError(
            f"{type(value).__name__} has no rows that a pool can take",
            "give files, a pandas or Polars frame, or an object with __arrow_c_stream__ (pyarrow, DuckDB, …)",
        )
    return value


def is_lasting(rows: Any) -> bool:
    """Whether rows can be read again: a stream, such as pyarrow's ``RecordBatchReader``, cannot, and does not say so."""
    kind = type(rows)
    package = kind.__module__.partition(".")[0]
    return (package, kind.__name__) in (
        ("farpool", "Result"),
        ("polars", "DataFrame"),
        ("pyarrow", "RecordBatch"),
        ("pyarrow", "Table"),
    )


def named(names: list[str], frame: FrameType | None) -> dict[str, Any]:
    """Finds rows by name among the variables of a caller: its own, then those of its module.

    SQL lowers names that have no quotes, so that ``Trips`` is found by ``trips`` where nothing else is.
    """
    found: dict[str, Any] = {}
    if frame is None:
        return found
    for variables in (frame.f_locals, frame.f_globals):
        for name in names:
            if name not in found:
                rows = _variable(variables, name)
                if rows is not None:
                    found[name] = stream_of(rows)
    return found


def _variable(variables: Any, name: str) -> Any:
    exact = variables.get(name)
    if exact is not None and is_rows(exact):
        return exact
    alike = [key for key in variables if isinstance(key, str) and key.lower() == name]
    if len(alike) == 1 and is_rows(variables[alike[0]]):
        return variables[alike[0]]
    return None


def _is_pandas(value: Any) -> bool:
    # Who has a frame of pandas has imported pandas.
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, getattr(pandas, "DataFrame", ()))


def _is_lazy_polars(value: Any) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(value, getattr(polars, "LazyFrame", ()))

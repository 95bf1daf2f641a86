"""Conversion of other libraries' rows to Arrow streams, and lookup of the caller's data frames by name."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from ._errors import InterfaceError


def is_rows(value: Any) -> bool:
    """Returns whether :func:`stream_of` accepts a value."""
    if isinstance(value, type):
        return False
    return hasattr(value, "__arrow_c_stream__") or _is_pandas(value) or _is_lazy_polars(value)


def stream_of(value: Any) -> Any:
    """Returns an object with ``__arrow_c_stream__`` for the rows of any supported library."""
    if _is_pandas(value):
        import pyarrow as pa

        # With `None`, an index becomes a column unless it is a plain range of row numbers.
        try:
            return pa.Table.from_pandas(value, preserve_index=None).replace_schema_metadata(None)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InterfaceError(
                "the data frame has a column that is no column of Arrow: " + "; ".join(map(str, error.args)),
                "convert it to one type, for example to text: frame[name].astype(str)",
            ) from error
    if _is_lazy_polars(value):
        value = value.collect()
    if _is_polars(value):
        return _exportable(value)
    if isinstance(value, type) or not hasattr(value, "__arrow_c_stream__"):
        raise InterfaceError(
            f"{type(value).__name__} has no rows that a pool can take",
            "give files, a pandas or Polars frame, or an object with __arrow_c_stream__ (pyarrow, DuckDB, …)",
        )
    return value


def is_lasting(rows: Any) -> bool:
    """Returns whether rows can be read more than once. A stream, such as pyarrow's ``RecordBatchReader``, cannot, and
    has no attribute that says so, so the repeatable types are listed."""
    kind = type(rows)
    package = kind.__module__.partition(".")[0]
    return (package, kind.__name__) in (
        ("farpool", "Result"),
        ("polars", "DataFrame"),
        ("pyarrow", "RecordBatch"),
        ("pyarrow", "Table"),
    )


def named(names: list[str], frame: FrameType | None) -> dict[str, Any]:
    """Finds rows by name among the variables of a caller: its local ones, then those of its module.

    SQL converts unquoted names to lower case, so that the name ``trips`` also finds a variable ``Trips`` if there is no
    ``trips``.
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
    # A caller that has a pandas frame has imported pandas, so this need not import it.
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, getattr(pandas, "DataFrame", ()))


def _exportable(frame: Any) -> Any:
    """Casts the columns of a Polars frame that Polars would not export to Arrow with their own type."""
    import polars as pl

    types = {name: _exported(name, dtype) for name, dtype in frame.schema.items()}
    others = {name: to for name, to in types.items() if to != frame.schema[name]}
    try:
        # Polars interprets some names as patterns, so columns are selected one at a time.
        return frame.with_columns([frame.get_column(name).cast(to) for name, to in others.items()])
    except pl.exceptions.PolarsError as error:
        raise InterfaceError(
            f"the data frame has a column that is no column of Arrow: {error}",
            "cast it to text, a decimal or a double in Polars",
        ) from error


def _exported(name: str, dtype: Any) -> Any:
    """Returns the type to export a column as. Polars exports objects as their addresses, 128-bit integers as a type
    that only Polars knows, and columns of type Null with one buffer more than the C interface specifies.
    """
    import polars as pl

    if dtype == pl.Object:
        raise InterfaceError(
            f"column {name!r} of the data frame has Python objects, which are no values of a table",
            f"cast it in Polars, for example to text: pl.col({name!r}).map_elements(str, return_dtype=pl.String)",
        )
    if dtype == pl.Null:
        return pl.String
    if dtype in (getattr(pl, "Int128", None), getattr(pl, "UInt128", None)):
        return pl.Decimal(38, 0)
    if isinstance(dtype, pl.List):
        return pl.List(_exported(name, dtype.inner))
    if isinstance(dtype, pl.Array):
        return pl.Array(_exported(name, dtype.inner), dtype.size)
    if isinstance(dtype, pl.Struct):
        return pl.Struct([pl.Field(field.name, _exported(name, field.dtype)) for field in dtype.fields])
    return dtype


def _is_polars(value: Any) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(value, getattr(polars, "DataFrame", ()))


def _is_lazy_polars(value: Any) -> bool:
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(value, getattr(polars, "LazyFrame", ()))

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


def _exportable(frame: Any) -> Any:
    """Returns a frame of Polars whose columns arrive in Arrow as what they are."""
    import polars as pl

    types = {name: _exported(name, dtype) for name, dtype in frame.schema.items()}
    others = {name: to for name, to in types.items() if to != frame.schema[name]}
    try:
        # By columns, since Polars takes some names for patterns.
        return frame.with_columns([frame.get_column(name).cast(to) for name, to in others.items()])
    except pl.exceptions.PolarsError as error:
        raise InterfaceError(
            f"the data frame has a column that is no column of Arrow: {error}",
            "cast it to text, a decimal or a double in Polars",
        ) from error


def _exported(name: str, dtype: Any) -> Any:
    """The type under which a column is exported. Polars exports objects as their addresses, 128-bit integers as a type that
    only itself knows, and columns that have no type with a buffer more than the interface has.
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

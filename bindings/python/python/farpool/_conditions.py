"""Translation of filter expressions of Polars and pyarrow into SQL conditions over the columns of a table.

The other library filters the result again, so that its own semantics of NULL, NaN and types hold. A SQL condition
therefore only has to keep every row that the library would keep, and expressions without a safe translation are left to
the library. A condition is either *exact* or *wide*: a wide one may keep more rows than wanted. ``NOT`` may only negate
an exact condition, because the negation of a wide one could drop wanted rows.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
from dataclasses import dataclass, field
from typing import Any, Iterator, Sequence

#: Types of SQL whose values all libraries order and compare alike, by the values that Python has for them.
_KINDS: dict[str, type] = {
    "BOOLEAN": bool,
    "TINYINT": int,
    "SMALLINT": int,
    "INTEGER": int,
    "BIGINT": int,
    "UTINYINT": int,
    "USMALLINT": int,
    "UINTEGER": int,
    "UBIGINT": int,
    "FLOAT": float,
    "DOUBLE": float,
    "VARCHAR": str,
    "DATE": datetime.date,
    "TIMESTAMP": datetime.datetime,
    "TIMESTAMP WITH TIME ZONE": datetime.datetime,
    "DECIMAL": decimal.Decimal,
}

_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

#: Deepest nesting and most values of a list that are translated.
_DEPTH_MAX = 100
_VALUES_MAX = 10_000


@dataclass(frozen=True)
class Column:
    """A reference to a column by name."""

    name: str


@dataclass(frozen=True)
class Condition:
    """A condition in SQL, with a ``?`` for each of its values."""

    sql: str
    values: list[Any] = field(default_factory=list)
    is_exact: bool = True


class Writer:
    """Builder of conditions over the columns of a table.

    A method returns ``None`` if there is no SQL condition for the expression. ``nan_is_greatest`` says how the library
    compares NaN: as greater than all other floats (Polars), or as unequal and unordered (Arrow).
    """

    def __init__(self, types: dict[str, str], nan_is_greatest: bool) -> None:
        self._types = types
        self._nan_is_greatest = nan_is_greatest

    def compare(self, left: Any, op: str, right: Any) -> Condition | None:
        if isinstance(right, Column):
            left, op, right = right, _FLIPPED[op], left
        if not isinstance(left, Column) or isinstance(right, Column) or not self._fits(left, right):
            return None
        name = quoted(left.name)
        if self._kind(left) is not float:
            return Condition(f"{name} {op} ?", [right])
        # In SQL, a NaN without a sign bit sorts above all floats and one with a sign bit below; and -0.0 may sort below
        # 0.0.
        if right == 0:
            right = -0.0 if op in (">", ">=") else 0.0
        if op in (">", ">=") and self._nan_is_greatest:
            below = "<=" if op == ">" else "<"
            return Condition(f"NOT ({name} >= '-infinity'::double AND {name} {below} ?)", [right], is_exact=False)
        return Condition(f"{name} {op} ?", [right], is_exact=False)

    def among(self, value: Any, values: Sequence[Any]) -> Condition | None:
        """Tests whether the value is one of a list. The condition is wide, because libraries differ in the result for a
        NULL."""
        if not isinstance(value, Column) or len(values) > _VALUES_MAX:
            return None
        if not values or not all(self._fits(value, one) for one in values):
            return None
        places = ", ".join("?" * len(values))
        return Condition(f"{quoted(value.name)} IN ({places})", list(values), is_exact=False)

    def is_null(self, value: Any) -> Condition | None:
        return Condition(f"{quoted(value.name)} IS NULL") if self._is_known(value) else None

    def is_not_null(self, value: Any) -> Condition | None:
        return Condition(f"{quoted(value.name)} IS NOT NULL") if self._is_known(value) else None

    def holds(self, value: Any) -> Condition | None:
        """Tests a Boolean column or a constant."""
        if isinstance(value, bool):
            return Condition("true" if value else "false")
        is_boolean = isinstance(value, Column) and self._kind(value) is bool
        return Condition(quoted(value.name)) if is_boolean else None

    def conjunction(self, parts: Sequence[Condition | None]) -> Condition | None:
        """Joins conditions by AND. If some parts are unknown (``None``), the conjunction of the others is a wide
        condition."""
        known = [part for part in parts if part is not None]
        return self._joined(" AND ", known, len(known) == len(parts)) if known else None

    def disjunction(self, parts: Sequence[Condition | None]) -> Condition | None:
        known = [part for part in parts if part is not None]
        return self._joined(" OR ", known, True) if known and len(known) == len(parts) else None

    def negation(self, part: Condition | None) -> Condition | None:
        return Condition(f"NOT {part.sql}", part.values) if part is not None and part.is_exact else None

    @staticmethod
    def _joined(word: str, parts: list[Condition], is_exact: bool) -> Condition:
        sql = "(" + word.join(part.sql for part in parts) + ")"
        values = [value for part in parts for value in part.values]
        return Condition(sql, values, is_exact and all(part.is_exact for part in parts))

    def _is_known(self, value: Any) -> bool:
        return isinstance(value, Column) and value.name in self._types

    def _kind(self, column: Column) -> type | None:
        return _KINDS.get(self._types.get(column.name, "").split("(")[0])

    def _fits(self, column: Column, value: Any) -> bool:
        """Returns whether a value has exactly the Python type of the column; conversions differ between libraries."""
        kind = self._kind(column)
        if kind is None or type(value) is not kind:
            return False
        if isinstance(value, float):
            # For a FLOAT column, libraries differ: some widen the column to DOUBLE, others round the value to FLOAT.
            return not math.isnan(value) and self._types[column.name] == "DOUBLE"
        if isinstance(value, datetime.datetime):
            # Outside these years the value does not fit a timestamp in nanoseconds, and the statement would fail.
            is_alike = (value.tzinfo is not None) == self._types[column.name].endswith("ZONE")
            return is_alike and 1678 <= value.year <= 2261
        if isinstance(value, int) and not isinstance(value, bool):
            return -(2**63) <= value < 2**63
        return True


def quoted(name: str) -> str:
    """Returns a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


# Polars expressions, as JSON. The format may change with any version, so nodes that are not known are not translated.

_POLARS_OPS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}


def of_polars(text: str, types: dict[str, str]) -> Condition | None:
    """Translates the JSON of a Polars expression."""
    try:
        return _polars(json.loads(text), Writer(types, nan_is_greatest=True), 0)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _polars(node: Any, writer: Writer, depth: int) -> Condition | None:
    if depth > _DEPTH_MAX or not isinstance(node, dict):
        return None
    if "BinaryExpr" in node:
        binary = node["BinaryExpr"]
        op, sides = binary["op"], (binary["left"], binary["right"])
        if op in ("And", "LogicalAnd"):
            return writer.conjunction([_polars(side, writer, depth + 1) for side in sides])
        if op in ("Or", "LogicalOr"):
            return writer.disjunction([_polars(side, writer, depth + 1) for side in sides])
        left, right = (_polars_value(side) for side in sides)
        return writer.compare(left, _POLARS_OPS[op], right)
    if "Function" in node:
        function, inputs = node["Function"]["function"], node["Function"]["input"]
        return _polars_function(function["Boolean"], inputs, writer, depth)
    return writer.holds(_polars_value(node))


def _polars_function(function: Any, inputs: list[Any], writer: Writer, depth: int) -> Condition | None:
    if function == "Not":
        return writer.negation(_polars(inputs[0], writer, depth + 1))
    value = _polars_value(inputs[0])
    if function == "IsNull":
        return writer.is_null(value)
    if function == "IsNotNull":
        return writer.is_not_null(value)
    if "IsBetween" in function:
        low, high = _polars_value(inputs[1]), _polars_value(inputs[2])
        closed = function["IsBetween"]["closed"]
        above = ">=" if closed in ("Both", "Left") else ">"
        below = "<=" if closed in ("Both", "Right") else "<"
        return writer.conjunction([writer.compare(value, above, low), writer.compare(value, below, high)])
    if "IsIn" in function and function["IsIn"] == {"nulls_equal": False}:
        return writer.among(value, _polars_value(inputs[1]))
    return None


def _polars_value(node: Any) -> Any:
    if "Column" in node:
        return Column(node["Column"])
    literal = node["Literal"]
    if "Dyn" in literal:
        (value,) = literal["Dyn"].values()
        return value
    ((kind, value),) = literal["Scalar"].items()
    if kind in ("Boolean", "String") or kind.startswith(("Int", "UInt")):
        return value
    if kind == "Float64":
        return float(value)
    if kind == "Date":
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
    if kind == "Datetime":
        return _moment(value[0], {"Milliseconds": 3, "Microseconds": 6, "Nanoseconds": 9}[value[1]], value[2] is not None)
    if kind == "Decimal":
        return decimal.Decimal(value[0]).scaleb(-value[2])
    if kind == "List":
        return _polars_list(bytes(value))
    raise KeyError(kind)


def _polars_list(stream: bytes) -> list[Any]:
    import io

    import polars

    return polars.read_ipc_stream(io.BytesIO(stream)).to_series(0).to_list()


def _moment(count: int, digits: int, is_instant: bool) -> datetime.datetime:
    """Returns the time ``count`` units after 1970, where a unit is ``10**-digits`` seconds."""
    count, rest = divmod(count * 10**6, 10**digits)
    if rest:
        raise ValueError("between microseconds")
    zone = datetime.timezone.utc if is_instant else None
    return datetime.datetime(1970, 1, 1, tzinfo=zone) + datetime.timedelta(microseconds=count)


# pyarrow expressions, as Substrait messages in the protocol buffers encoding; only the fields used here are parsed.


def of_substrait(message: bytes, types: dict[str, str]) -> Condition | None:
    """Translates an ``ExtendedExpression`` with one expression, over a schema whose columns are those of ``types``."""
    try:
        fields = _fields(message)
        functions = {}
        for declaration in fields.get(2, []):
            # Declarations without field 3 declare types, such as unsigned integers.
            for declared in _fields(declaration).get(3, []):
                names = _fields(declared)
                functions[_number(names, 2)] = names[3][0].decode().split(":")[0]
        (referred,) = fields[3]
        (expression,) = _fields(referred)[1]
        return _Substrait(functions, types).condition(expression, 0)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return None


def columns_of_substrait(message: bytes, types: dict[str, str]) -> set[str] | None:
    """Returns the columns that the expression refers to; ``None`` if they cannot be determined."""
    try:
        (referred,) = _fields(message)[3]
        (expression,) = _fields(referred)[1]
        return _columns(expression, list(types), 0)
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _columns(expression: bytes, names: list[str], depth: int) -> set[str]:
    fields = _fields(expression)
    if depth > _DEPTH_MAX or len(fields) != 1:
        raise ValueError("too deep, or nothing")
    if 1 in fields:
        return set()
    if 2 in fields:
        return {_column(fields[2][0], names).name}
    inputs = []
    if 3 in fields:
        inputs = [_fields(argument)[3][0] for argument in _fields(fields[3][0]).get(4, [])]
    elif 6 in fields:
        choice = _fields(fields[6][0])
        clauses = [_fields(clause) for clause in choice[1]]
        inputs = [part for clause in clauses for name in (1, 2) for part in clause[name]] + choice[2]
    elif 8 in fields:
        either = _fields(fields[8][0])
        inputs = [*either[1], *either.get(2, [])]
    elif 11 in fields:
        inputs = _fields(fields[11][0])[2]
    else:
        raise KeyError("an expression of another kind")
    return set().union(*(_columns(part, names, depth + 1) for part in inputs))


def _column(reference: bytes, names: list[str]) -> Column:
    (segment,) = _fields(reference)[1]
    step = _fields(_fields(segment)[2][0])
    if 2 in step:
        raise KeyError("a part of a column")
    return Column(names[_number(step, 1)])


class _Substrait:
    _OPS = {"equal": "=", "not_equal": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}

    def __init__(self, functions: dict[int, str], types: dict[str, str]) -> None:
        self._functions = functions
        self._columns = list(types)
        self._writer = Writer(types, nan_is_greatest=False)

    def condition(self, expression: bytes, depth: int) -> Condition | None:
        if depth > _DEPTH_MAX:
            return None
        fields, writer = _fields(expression), self._writer
        if 8 in fields:
            either = _fields(fields[8][0])
            return writer.among(self._value(either[1][0]), [self._value(option) for option in either[2]])
        if 6 in fields:
            return self._guarded(_fields(fields[6][0]), depth)
        if 3 not in fields:
            return writer.holds(self._value(expression))
        call = _fields(fields[3][0])
        function = self._functions[_number(call, 1)]
        arguments = [_fields(argument)[3][0] for argument in call.get(4, [])]
        if function in ("and", "or", "not"):
            parts = [self.condition(argument, depth + 1) for argument in arguments]
            if function == "and":
                return writer.conjunction(parts)
            return writer.disjunction(parts) if function == "or" else writer.negation(parts[0])
        values = [self._value(argument) for argument in arguments]
        if function == "is_null":
            return writer.is_null(values[0])
        if function == "is_not_null":
            return writer.is_not_null(values[0])
        return writer.compare(values[0], self._OPS[function], values[1])

    def _guarded(self, choice: dict[int, list[Any]], depth: int) -> Condition | None:
        """Translates ``if_else(guard, condition, null)``, the form in which DuckDB passes IN."""
        (clause,), (otherwise,) = choice[1], choice[2]
        if _fields(_fields(otherwise)[1][0]).keys() - {50, 51} != {_NULL}:
            return None
        parts = [self.condition(part, depth + 1) for name in (1, 2) for part in _fields(clause)[name]]
        both = self._writer.conjunction(parts)
        return None if both is None else Condition(both.sql, both.values, is_exact=False)

    def _value(self, expression: bytes) -> Any:
        fields = _fields(expression)
        if 2 in fields:
            return _column(fields[2][0], self._columns)
        return _literal(_fields(fields[1][0]))


#: The field of a literal without a value.
_NULL = 29


def _literal(fields: dict[int, list[Any]]) -> Any:
    (kind,) = fields.keys() - {50, 51}
    (value,) = fields[kind]
    if kind == 1:
        return bool(value)
    if kind in (2, 3, 5, 7):
        return _signed(value)
    if kind == 11:
        import struct

        return struct.unpack("<d", value)[0]
    if kind == 12:
        return value.decode()
    if kind in (14, 27):
        return _moment(_signed(value), 6, kind == 27)
    if kind in (34, 35):
        parts = _fields(value)
        return _moment(_signed(_number(parts, 2)), _number(parts, 1), kind == 35)
    if kind == 16:
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=_signed(value))
    if kind == 24:
        parts = _fields(value)
        return decimal.Decimal(int.from_bytes(parts[1][0], "little", signed=True)).scaleb(-_number(parts, 3))
    raise KeyError(kind)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _number(fields: dict[int, list[Any]], field: int) -> int:
    """Returns an integer field; a missing field is 0, as in protocol buffers."""
    return fields.get(field, [0])[-1]


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Parses the fields of a message: a list of integers or bytes for each field number."""
    found: dict[int, list[Any]] = {}
    for field, value in _read(message):
        found.setdefault(field, []).append(value)
    return found


def _read(message: bytes) -> Iterator[tuple[int, Any]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        length = {1: lambda: 8, 2: varint, 5: lambda: 4}[kind]()
        if at + length > len(message):
            raise ValueError("a damaged message")
        yield key >> 3, message[at : at + length]
        at += length

"""Key-value spaces as mappings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, MutableMapping

from ._conditions import quoted
from ._errors import Error, InterfaceError

if TYPE_CHECKING:
    from ._pool import Pool

#: How often a key is set anew where others set and remove it at the same moment.
_TRIES = 16


class Space(MutableMapping[Any, Any]):
    """A key-value space, which clients of the Redis protocol share with SQL (docs/redis.md), as a dictionary.

    The values of a space without a schema are strings, or bytes if the space is ``BINARY``. In a space with a schema,
    keys have the type of the first column, and values are dictionaries of the other columns. Each access is a SQL
    statement over the space's table.
    """

    def __init__(self, pool: "Pool", name: str) -> None:
        self._pool = pool
        self._table = quoted(name)
        columns = pool.sql(f"SELECT * FROM {self._table} LIMIT 0")
        self.name = name
        self._columns = columns.columns
        self._types = columns.types
        self._key = quoted(self._columns[0])
        # A space without a schema has the columns `key`, `value` and `ttl`.
        self._is_plain = self._columns == ["key", "value", "ttl"]

    def __getitem__(self, key: Any) -> Any:
        row = self._pool.sql(f"SELECT * FROM {self._table} WHERE {self._key} = ?", [self._of_key(key)]).fetchone()
        if row is None:
            raise KeyError(key)
        return self._value(row)

    def __setitem__(self, key: Any, value: Any) -> None:
        names, values = self._given(value)
        key = self._of_key(key)
        update = ", ".join(f"{quoted(name)} = ?" for name in names)
        into = ", ".join([self._key, *map(quoted, names)])
        places = ", ".join("?" * (len(names) + 1))
        failed: Error | None = None
        for _ in range(_TRIES):
            sql = f"UPDATE {self._table} SET {update} WHERE {self._key} = ?"
            if self._pool.sql(sql, [*values, key]).fetchall()[0][0]:
                return
            try:
                self._pool.sql(f"INSERT INTO {self._table} ({into}) VALUES ({places})", [key, *values])
                return
            except Error as error:
                # Another client may have inserted the key since the update: then the next update succeeds. After any
                # other error the key is still missing.
                failed = error
                if key not in self:
                    raise
        assert failed is not None
        raise failed

    def __delitem__(self, key: Any) -> None:
        sql = f"DELETE FROM {self._table} WHERE {self._key} = ?"
        if not self._pool.sql(sql, [self._of_key(key)]).fetchall()[0][0]:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        sql = f"SELECT count(*) FROM {self._table} WHERE {self._key} = ?"
        return self._pool.sql(sql, [self._of_key(key)]).fetchall()[0][0] > 0

    def __iter__(self) -> Iterator[Any]:
        return (key for key, in self._pool.sql(f"SELECT {self._key} FROM {self._table}"))

    def __len__(self) -> int:
        return self._pool.sql(f"SELECT count(*) FROM {self._table}").fetchall()[0][0]

    def items(self) -> Any:
        """Returns all keys and values, from one snapshot."""
        return [(row[0], self._value(row)) for row in self._pool.sql(f"SELECT * FROM {self._table}")]

    def clear(self) -> None:
        """Removes all keys."""
        self._pool.sql(f"DELETE FROM {self._table}")

    def __repr__(self) -> str:
        return f"<farpool.Space {self.name}: {', '.join(self._columns)}>"

    def _value(self, row: tuple) -> Any:
        return row[1] if self._is_plain else dict(zip(self._columns[1:], row[1:]))

    def _given(self, value: Any) -> tuple[list[str], list[Any]]:
        if self._is_plain:
            return ["value"], [_as(self._types[1], value)]
        if not isinstance(value, dict) or not value or not set(value) <= set(self._columns[1:]):
            raise InterfaceError(
                f"a value of space {self.name} is a dictionary of its columns", f"there are {', '.join(self._columns[1:])}"
            )
        return list(value), list(value.values())

    def _of_key(self, key: Any) -> Any:
        return _as(self._types[0], key)


def _as(kind: str, value: Any) -> Any:
    """Converts a string or bytes to the column's type."""
    if kind == "BLOB" and isinstance(value, str):
        return value.encode()
    if kind == "VARCHAR" and isinstance(value, (bytes, bytearray)):
        return bytes(value).decode()
    return value

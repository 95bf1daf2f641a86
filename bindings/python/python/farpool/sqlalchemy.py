"""SQLAlchemy dialect: ``sqlalchemy.create_engine("farpool://node7:9797")``, or ``"farpool://"`` for a pool in this
process, which all connections of the engine share.

The user name in the URL is ignored; the password is the token. The query string has options of :func:`farpool.connect`
or :func:`farpool.open`. ``create_engine("farpool://", connect_args={"pool": p})`` uses an open pool.

Tables can be read and written; there are no transactions, constraints or sequences (see :mod:`farpool.dbapi`).
"""

from __future__ import annotations

import datetime
import re
from typing import Any

from sqlalchemy import exc, pool, types
from sqlalchemy.engine import URL, default, reflection
from sqlalchemy.sql import compiler, sqltypes, type_api

from . import dbapi as farpool_dbapi
from ._conditions import quoted

#: SQLAlchemy's names for types of SQL.
_TYPES: dict[str, Any] = {
    "BOOLEAN": types.BOOLEAN,
    "TINYINT": types.SMALLINT,
    "SMALLINT": types.SMALLINT,
    "INTEGER": types.INTEGER,
    "BIGINT": types.BIGINT,
    "UTINYINT": types.SMALLINT,
    "USMALLINT": types.INTEGER,
    "UINTEGER": types.BIGINT,
    "UBIGINT": types.NUMERIC,
    "FLOAT": types.REAL,
    "DOUBLE": types.DOUBLE,
    "VARCHAR": types.VARCHAR,
    "BLOB": types.LargeBinary,
    "DATE": types.DATE,
    "TIME": types.TIME,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": types.TIMESTAMP,
    "INTERVAL": types.Interval,
}


class Interval(type_api.NativeForEmulated, sqltypes._AbstractInterval):
    """Intervals as a native type. SQLAlchemy would otherwise emulate them as timestamps relative to 1970."""

    __visit_name__ = "INTERVAL"
    native = True

    @classmethod
    def adapt_emulated_to_native(cls, impl: Any, **options: Any) -> Interval:
        """Returns this type in place of SQLAlchemy's emulated one."""
        return cls()

    @property
    def _type_affinity(self) -> Any:
        return types.Interval

    @property
    def python_type(self) -> type[datetime.timedelta]:
        """The Python type of values."""
        return datetime.timedelta


class FarpoolTypes(compiler.GenericTypeCompiler):
    """Names of the SQL types for which a pool differs from the standard."""

    def visit_TEXT(self, type_: Any, **options: Any) -> str:
        return "VARCHAR"

    def visit_VARCHAR(self, type_: Any, **options: Any) -> str:
        # VARCHAR has no maximum length in a pool.
        return "VARCHAR"

    visit_CHAR = visit_NVARCHAR = visit_NCHAR = visit_CLOB = visit_uuid = visit_JSON = visit_VARCHAR

    def visit_BLOB(self, type_: Any, **options: Any) -> str:
        return "BYTEA"

    visit_large_binary = visit_BINARY = visit_VARBINARY = visit_BLOB

    def visit_FLOAT(self, type_: Any, **options: Any) -> str:
        return "DOUBLE"

    visit_DOUBLE = visit_DOUBLE_PRECISION = visit_FLOAT

    def visit_INTERVAL(self, type_: Any, **options: Any) -> str:
        return "INTERVAL"

    def visit_DATETIME(self, type_: Any, **options: Any) -> str:
        return self.visit_TIMESTAMP(type_, **options)

    def visit_TIMESTAMP(self, type_: Any, **options: Any) -> str:
        return "TIMESTAMP WITH TIME ZONE" if getattr(type_, "timezone", False) else "TIMESTAMP"


class FarpoolDDL(compiler.DDLCompiler):
    """Statements that create tables, without constraints and indexes, which pools do not have."""

    def create_table_constraints(self, table: Any, *arguments: Any, **options: Any) -> str:
        return ""

    def get_column_specification(self, column: Any, **options: Any) -> str:
        kind = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        return f"{self.preparer.format_column(column)} {kind}"

    def visit_create_index(self, create: Any, *arguments: Any, **options: Any) -> str:
        # Pools have no indexes: they skip row groups by their bounds. SQLAlchemy needs some statement to execute.
        return "SELECT 1"


class FarpoolDialect(default.DefaultDialect):
    """SQLAlchemy dialect of farpool; see the module documentation."""

    name = "farpool"
    driver = "farpool"
    type_compiler_cls = FarpoolTypes
    ddl_compiler = FarpoolDDL
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_multivalues_insert = True
    supports_default_values = False
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = False
    supports_alter = False
    postfetch_lastrowid = False
    insert_null_pk_autoincrement = False
    div_is_floordiv = True
    default_paramstyle = "qmark"
    colspecs = {types.Interval: Interval}

    @classmethod
    def import_dbapi(cls) -> Any:
        """Returns the DB-API module."""
        return farpool_dbapi

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        """Returns the pool class: connections to a node are pooled; connections to a pool in this process share one."""
        return pool.QueuePool if url.host else pool.StaticPool

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """Returns the arguments for :func:`farpool.dbapi.connect`."""
        options: dict[str, Any] = {name: _option(value) for name, value in url.query.items()}
        if not url.host:
            return [], options
        if url.password:
            options["token"] = url.password
        scheme = "farpools" if options.pop("tls", False) else "farpool"
        return [f"{scheme}://{url.host}:{url.port or 9797}"], options

    def connect(self, *arguments: Any, **options: Any) -> Any:
        """Connects to a node, or uses the pool in ``connect_args``."""
        given = options.pop("pool", None)
        return farpool_dbapi.Connection(given) if given is not None else super().connect(*arguments, **options)

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Does nothing: pools have no transactions."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """Does nothing: each statement has already taken effect."""

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        import farpool

        return tuple(int(part) for part in re.findall(r"\d+", farpool.__version__)[:3])

    def _get_default_schema_name(self, connection: Any) -> str:
        return "public"

    # Reflection.

    def _pool(self, connection: Any) -> Any:
        return connection.connection.dbapi_connection.pool

    @reflection.cache
    def get_schema_names(self, connection: Any, **options: Any) -> list[str]:
        """Returns the names of the schemas."""
        return self._pool(connection).schemas()

    @reflection.cache
    def get_table_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        """Returns the names of the tables of a schema."""
        return self._names(connection, "BASE TABLE", schema)

    @reflection.cache
    def get_view_names(self, connection: Any, schema: str | None = None, **options: Any) -> list[str]:
        """Returns the names of the views of a schema."""
        return self._names(connection, "VIEW", schema)

    def _names(self, connection: Any, kind: str, schema: str | None) -> list[str]:
        sql = "SELECT table_name FROM information_schema.tables WHERE table_type = ? AND table_schema = ? ORDER BY 1"
        return [name for (name,) in self._pool(connection).sql(sql, [kind, schema or "public"]).fetchall()]

    @reflection.cache
    def has_schema(self, connection: Any, schema_name: str, **options: Any) -> bool:
        """Returns whether a schema exists."""
        return schema_name in self._pool(connection).schemas()

    @reflection.cache
    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> bool:
        """Returns whether a table or view exists."""
        kinds = ("BASE TABLE", "VIEW")
        return any(table_name in self._names(connection, kind, schema) for kind in kinds)

    @reflection.cache
    def get_columns(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> list[Any]:
        """Returns the names and types of a table's columns."""
        if not self.has_table(connection, table_name, schema):
            raise exc.NoSuchTableError(table_name)
        name = f"{quoted(schema or 'public')}.{quoted(table_name)}"
        result = self._pool(connection).sql(f"SELECT * FROM {name} LIMIT 0")
        return [
            {"name": name, "type": _type(kind), "nullable": True, "default": None}
            for name, kind in zip(result.columns, result.types)
        ]

    def get_pk_constraint(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> Any:
        """Returns no primary key: pools have no constraints."""
        return {"constrained_columns": [], "name": None}

    def get_foreign_keys(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> Any:
        """Returns no foreign keys: pools have no constraints."""
        return []

    def get_indexes(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> Any:
        """Returns no indexes: pools have none."""
        return []


def _type(kind: str) -> Any:
    name, _, digits = kind.partition("(")
    if name == "DECIMAL":
        precision, scale = (int(part) for part in digits.rstrip(")").split(","))
        return types.NUMERIC(precision, scale)
    if kind == "TIMESTAMP WITH TIME ZONE":
        return types.TIMESTAMP(timezone=True)
    return _TYPES.get(name, types.NullType)()


def _option(value: Any) -> Any:
    """Parses an option of the URL as a number or a Boolean if it is one."""
    if isinstance(value, str):
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value)
    return value

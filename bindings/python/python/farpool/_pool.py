"""Pools, and the descriptions of their tables."""

from __future__ import annotations

import html
import json
import os
import pathlib
import sys
import warnings
import weakref
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence, Union

from . import _farpool, _frames
from ._errors import InterfaceError, ProgrammingError, Warning
from ._progress import Progress
from ._result import Result

if TYPE_CHECKING:
    import polars

    from ._dataset import Dataset
    from ._space import Space

#: A file, or several: paths, patterns, folders and URLs.
Files = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
#: Values of parameters: in order, or by name.
Parameters = Union[Sequence[Any], Mapping[str, Any], None]

_OPEN: "weakref.WeakSet[Pool]" = weakref.WeakSet()


class Pool:
    """Tables that answer SQL; :func:`farpool.open` and :func:`farpool.connect` create pools.

    A pool may be shared between threads, but not with a forked process, which must open its own. As a context manager,
    a pool closes itself on exit.

    >>> import farpool
    >>> with farpool.open(memory="64MiB") as p:
    ...     p.sql("create table t as select * from (values (1, 'x'), (2, 'y')) v(n, s)")
    ...     p.sql("select s from t where n = $1", [2]).fetchall()
    (done)
    [('y',)]
    """

    def __init__(self, native: _farpool.Pool) -> None:
        self._native = native
        self._results: "weakref.WeakSet[Result]" = weakref.WeakSet()
        _OPEN.add(self)

    @property
    def url(self) -> str:
        """The address of the node, or ``embedded``."""
        return self._native.url

    # SQL.

    def sql(self, query: str, params: Parameters = None) -> Result:
        """Plans a statement and returns its lazy :class:`Result`. A statement that changes something is executed at
        once.

        ``params`` is a list for ``$1``, ``$2``, … and ``?``, or a dictionary for ``$name``. A name in the statement
        that is neither a table nor a file is looked up among the caller's variables: data frames of pandas and Polars,
        and any object with ``__arrow_c_stream__``, can be queried by name. If ``query`` has several statements,
        separated by ``;``, all are executed in order and the result is that of the last one.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> p.sql("select $city as city, $n + 1 as n", {"city": "Oslo", "n": 1}).fetchall()
        [('Oslo', 2)]
        """
        return self._sql(query, params, sys._getframe(1))

    def _sql(self, query: str, params: Parameters, frame: FrameType | None) -> Result:
        # A result may run its statement later, and again, so it needs a copy of the parameters.
        if isinstance(params, Mapping):
            params = dict(params)
        elif isinstance(params, Iterable) and not isinstance(params, (str, bytes)):
            params = list(params)
        statements = _farpool.split(query) if ";" in query else [(query, 1)]
        if not statements:
            raise ProgrammingError("there is no SQL statement to run", "write one, such as SELECT 1")
        if len(statements) > 1 and params:
            raise ProgrammingError("several statements share no parameters", "run them one by one")
        for text, line in statements[:-1]:
            self._result(text, line, None, frame)._collect()
        text, line = statements[-1]
        return self._result(text, line, params, frame)

    def _result(self, text: str, line: int, params: Any, frame: FrameType | None) -> Result:
        tables: dict[str, Any] = {}
        plan = self._planner(text, line, params, tables)
        query = None
        try:
            query = plan()
        except ProgrammingError:
            # Names that the planner does not find may be variables of the caller. Most statements have none, so this
            # comes second.
            tables.update(self._variables(text, frame))
            if not tables:
                raise
        result = Result(plan, query)
        self._results.add(result)
        return result

    def _planner(self, text: str, line: int, params: Any, tables: dict[str, Any]) -> Callable[[], _farpool.Query]:
        native = self._native
        return lambda: native.plan(text, line, params, tables)

    def _variables(self, text: str, frame: FrameType | None) -> dict[str, Any]:
        """Returns the caller's variables that a statement names."""
        native = self._native
        tables = _frames.named(native.unknown_names(text), frame)
        for name, rows in tables.items():
            if not _frames.is_lasting(rows):
                # The statement may run again, but a stream can be read only once: its rows are read into memory.
                tables[name] = native.plan("SELECT * FROM rows", 1, None, {"rows": rows}).fetch(None)[0]
        return tables

    def batch(self, queries: Iterable[str]) -> list[Result]:
        """Runs statements together on one snapshot of their tables; columns that several statements need are read once.
        Returns the results, with all of their rows.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> p.sql("create table t as select * from generate_series(1, 10) g(n)")
        (done)
        >>> [r.fetchall() for r in p.batch(["select sum(n) from t", "select max(n) from t"])]
        [[(55,)], [(10,)]]
        """
        texts = list(queries)
        batch = self._native.batch(texts)
        results = []
        for text in texts:
            query = batch.next()
            if query is None:
                break
            result = Result(self._planner(text, 1, None, {}), query)
            result._collect()
            self._results.add(result)
            results.append(result)
        return results

    # Tables.

    def load(
        self,
        table: str,
        source: Any,
        *,
        mode: str = "create",
        columns: Sequence[str] | None = None,
        nested: str | None = None,
        encrypt: str | None = None,
        pin: bool = False,
        keep: bool = True,
        progress: bool | None = None,
        **options: Any,
    ) -> "Table":
        """Loads a table and returns its description.

        ``source`` is a file, a pattern such as ``trips-*.parquet``, a folder, a URL (``s3://``, ``https://``, …) or a
        list of these (Parquet, CSV, JSON, Arrow IPC); or a data frame of pandas or Polars, or any object with
        ``__arrow_c_stream__``. ``mode`` is ``create``, ``append`` or ``replace``. ``options`` are those of ``read_csv``
        and ``read_json`` in SQL, such as ``nullstr="NA"`` or ``types={"zip": "text"}``. A pool cannot store lists and
        structs: ``nested="json"`` loads them as JSON text; by default they are left out, with a warning. ``encrypt`` is
        the mode in which values are encrypted in memory: ``fast``, ``standard`` or ``strict``. ``pin`` exempts the
        table from eviction; ``keep=False`` leaves it on the node's disk only.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> p.load("trips", p.sql("select 'Oslo' as city, 12 as fare")).rows
        1
        """
        if nested not in (None, "json"):
            raise InterfaceError(f"there is no way {nested!r} to load nested columns", 'write nested="json"')
        with Progress(f"loading {table}", progress) as bar:
            described, rows, note = self._native.load(
                table,
                _files(source) or _frames.stream_of(source),
                mode=mode,
                columns=list(columns) if columns is not None else None,
                options=options,
                nested_as_json=nested == "json",
                encryption=encrypt,
                pin=pin,
                keep=keep,
                tell=bar if bar.is_shown else None,
            )
        if note is not None:
            advice = '; nested="json" loads nested ones as text' if "(nested)" in note else ""
            warnings.warn(note + advice, Warning, stacklevel=2)
        return Table(json.loads(described))

    def tables(self) -> list["Table"]:
        """Returns the descriptions of the tables, sorted by name."""
        return [Table(table) for table in json.loads(self._native.list())[0]]

    def views(self) -> list[str]:
        """Returns the names of the views; views outside of the schema ``public`` are named SCHEMA.VIEW."""
        return json.loads(self._native.list())[1]

    def schemas(self) -> list[str]:
        """Returns the names of the schemas. ``public`` always exists; ``CREATE SCHEMA`` creates others.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> p.sql("create schema staging")
        (done)
        >>> p.schemas(), p.load("staging.t", p.sql("select 1 as n")).schema
        (['public', 'staging'], 'staging')
        """
        return ["public", *json.loads(self._native.list())[2]]

    def table(self, name: str) -> "Table":
        """Returns the description of a table."""
        return Table(json.loads(self._native.table(name)))

    def drop(self, name: str) -> None:
        """Drops a table."""
        self._native.drop(name)

    def export(self, source: str, file: "str | os.PathLike[str]", **options: Any) -> int:
        """Writes a table, or the rows of a query, to a file or URL, and returns the number of rows.

        The format is that of the file's extension, or ``format``: ``csv``, ``tsv``, ``json``, ``parquet`` or ``arrow``;
        other ``options`` are those of COPY in SQL. The file becomes visible once it is complete.

        >>> import farpool, tempfile, os
        >>> p = farpool.open(memory="64MiB")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     p.export("select 1 as n, 'x' as s", os.path.join(folder, "t.csv"), header=False)
        1
        """
        words = source.split(None, 1)
        is_query = len(words) > 1 and words[0].lower() in ("select", "with", "from", "values", "table")
        rows = f"({source})" if is_query else _farpool.table_in_sql(source)
        given = ", ".join(f"{name} {_literal(value)}" for name, value in options.items())
        target = os.fspath(file).replace("'", "''")
        statement = f"COPY {rows} TO '{target}'" + (f" ({given})" if given else "")
        return self._sql(statement, None, sys._getframe(1)).fetchall()[0][0]

    def profile(self, table: str, columns: Sequence[str] | None = None, *, progress: bool | None = None) -> "Profile":
        """Profiles the columns of a table: distinct and frequent values, quartiles, histograms, correlations.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> _ = p.sql("create table t as select n, n % 3 as g from generate_series(1, 9) s(n)")
        >>> p.profile("t")["columns"][1]["distinct"]["value"]
        3
        """
        with Progress(f"profiling {table}", progress) as bar:
            tell = bar if bar.is_shown else None
            described, page = self._native.profile(table, None if columns is None else list(columns), tell)
        return Profile(json.loads(described), page)

    def dataset(self, table: str) -> "Dataset":
        """Returns the table as a pyarrow dataset, for DuckDB, Polars and other libraries that scan datasets.
        Projections and filters are pushed down to the pool; Arrow applies the filters again (:mod:`farpool._dataset`).

        >>> import farpool, pyarrow.dataset as ds
        >>> p = farpool.open(memory="64MiB")
        >>> _ = p.sql("create table t as select n, n % 3 as g from generate_series(1, 9) s(n)")
        >>> p.dataset("t").count_rows(filter=ds.field("g") == 2)
        3
        """
        from ._dataset import Dataset

        return Dataset(self, table)

    def scan(self, table: str) -> "polars.LazyFrame":
        """Returns the table as a lazy Polars frame. Projections and filters are pushed down to the pool; Polars applies
        the filters again.

        >>> import farpool, polars as pl
        >>> p = farpool.open(memory="64MiB")
        >>> _ = p.sql("create table t as select n, n % 3 as g from generate_series(1, 9) s(n)")
        >>> p.scan("t").filter(pl.col("g") == 2).select("n").collect()["n"].to_list()
        [2, 5, 8]
        """
        from ._lazy import scan

        return scan(self, table)

    def space(self, name: str) -> "Space":
        """Returns a key-value space of the node as a dictionary: ``p.space("carts")["carts:7"] = "…"``. Clients of the
        Redis protocol create spaces and share them (docs/redis.md)."""
        from ._space import Space

        return Space(self, name)

    def status(self) -> dict[str, Any]:
        """Returns the state of the pool: its memory, and the statements and loads in progress."""
        return json.loads(self._native.status())

    # Closing.

    def close(self) -> None:
        """Closes the pool. Its results keep the rows that they have fetched, and can fetch no more. Running statements
        of a pool in this process end; its data directory is then complete and may be opened by another process."""
        for result in list(self._results):
            result._release()
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether the pool is closed."""
        return self._native.is_closed()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<farpool.Pool {self.url}>"


class Table(Mapping[str, Any]):
    """Description of a table: ``name``, ``rows``, ``columns`` and sizes; each column has its type and statistics.

    >>> import farpool
    >>> p = farpool.open(memory="64MiB")
    >>> t = p.load("t", p.sql("select * from (values (1), (3)) v(n)"))
    >>> t.name, t.rows, t["columns"][0]["max"]
    ('t', 2, 3)
    """

    def __init__(self, described: dict[str, Any]) -> None:
        self._described = described

    @property
    def name(self) -> str:
        """The name within the schema."""
        return self._described["name"]

    @property
    def schema(self) -> str:
        """The name of the schema; ``public`` by default."""
        return self._described["schema"]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._described["rows"]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [column["name"] for column in self._described["columns"]]

    def __getitem__(self, key: str) -> Any:
        return self._described[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._described)

    def __len__(self) -> int:
        return len(self._described)

    def __repr__(self) -> str:
        return f"<farpool.Table {self.name}: {self.rows:,} rows, {', '.join(self.columns)}>"


class Profile(Mapping[str, Any]):
    """Profile of a table's columns: ``name``, ``rows``, ``columns`` and ``correlation``, with the keys of the output of
    ``farpool profile --format json``. A notebook shows it as a page."""

    def __init__(self, described: dict[str, Any], page: str) -> None:
        self._described = described
        #: The page as HTML that needs nothing else.
        self.html = page

    def __getitem__(self, key: str) -> Any:
        return self._described[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._described)

    def __len__(self) -> int:
        return len(self._described)

    def __repr__(self) -> str:
        columns = (f"{column['name']} {column['type']}" for column in self["columns"])
        return f"<farpool.Profile {self['name']}: {self['rows']:,} rows, {', '.join(columns)}>"

    def _repr_html_(self) -> str:
        # An iframe keeps the styles of the page from affecting the notebook.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:36em;border:0" '
            'sandbox="allow-same-origin"></iframe>'
        )


def _files(source: Any) -> list[str] | None:
    """Returns the paths if a source consists of paths."""
    if isinstance(source, (str, pathlib.PurePath)):
        return [os.fspath(source)]
    if isinstance(source, (list, tuple)) and source and all(isinstance(f, (str, os.PathLike)) for f in source):
        return [os.fspath(file) for file in source]
    return None


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def close_all() -> None:
    """Closes all open pools when the interpreter exits, so that data directories are complete."""
    for pool in list(_OPEN):
        try:
            pool.close()
        except Exception:
            # At exit there is no caller to report the error to.
            pass

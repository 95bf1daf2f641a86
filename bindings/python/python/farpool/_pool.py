"""A pool."""

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
    """Tables in memory, which answer SQL: made by :func:`farpool.open` and :func:`farpool.connect`.

    Threads may share it. A fork of the process may not use it, and opens its own. It is a context manager, which closes it.

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
        """Plans a statement, and returns its lazy :class:`Result`. One that changes something is run at once.

        ``params`` are a list for ``$1``, ``$2``, … and ``?``, or a dictionary for ``$name``. Where the statement names
        neither a table nor a file, variables of the caller are looked at: data frames of pandas and Polars, and whatever
        has ``__arrow_c_stream__``, can be queried by their names. Of several statements with ``;`` between them, the
        result is that of the last.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> p.sql("select $city as city, $n + 1 as n", {"city": "Oslo", "n": 1}).fetchall()
        [('Oslo', 2)]
        """
        return self._sql(query, params, sys._getframe(1))

    def _sql(self, query: str, params: Parameters, frame: FrameType | None) -> Result:
        # Copies, since the statement may run later and once more.
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
            # What the statement does not find may be variables of the caller; most statements find all.
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
        """Rows of the caller that a statement names."""
        native = self._native
        tables = _frames.named(native.unknown_names(text), frame)
        for name, rows in tables.items():
            if not _frames.is_lasting(rows):
                # The statement may run a second time.
                tables[name] = native.plan("SELECT * FROM rows", 1, None, {"rows": rows}).fetch(None)[0]
        return tables

    def batch(self, queries: Iterable[str]) -> list[Result]:
        """Runs statements together: they read tables as these are at one moment, and what several of them read alike is
        read once. Returns their results, which have all of their rows.

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

        ``source`` is a file, a pattern such as ``trips-*.parquet``, a folder, a URL (``s3://``, ``https://``, …) or a list
        of these (Parquet, CSV, JSON, Arrow IPC); or a data frame of pandas or Polars, or anything with
        ``__arrow_c_stream__``. ``mode`` is ``create``, ``append`` or ``replace``. ``options`` are those of ``read_csv`` and
        ``read_json`` in SQL, such as ``nullstr="NA"`` or ``types={"zip": "text"}``. ``nested="json"`` loads lists and
        structs, which a pool does not hold, as text; without it they are left out, with a warning. ``encrypt`` is
        ``fast``, ``standard`` or ``strict``: how values are encrypted in memory. ``pin`` keeps the table in memory for
        good, ``keep=False`` leaves it on the node's disk.

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
        """The tables, by name."""
        return [Table(table) for table in json.loads(self._native.list())[0]]

    def views(self) -> list[str]:
        """The names of the views, as SCHEMA.VIEW outside of the schema ``public``."""
        return json.loads(self._native.list())[1]

    def schemas(self) -> list[str]:
        """The schemas that tables and views are in; ``public`` is always there. ``CREATE SCHEMA`` makes others.

        >>> import farpool
        >>> p = farpool.open(memory="64MiB")
        >>> p.sql("create schema staging")
        (done)
        >>> p.schemas(), p.load("staging.t", p.sql("select 1 as n")).schema
        (['public', 'staging'], 'staging')
        """
        return ["public", *json.loads(self._native.list())[2]]

    def table(self, name: str) -> "Table":
        """Describes a table."""
        return Table(json.loads(self._native.table(name)))

    def drop(self, name: str) -> None:
        """Drops a table."""
        self._native.drop(name)

    def export(self, source: str, file: "str | os.PathLike[str]", **options: Any) -> int:
        """Writes a table, or the rows of a query, to a file or URL, and returns the number of rows.

        The format is that of the file's ending, or of ``format=``: ``csv``, ``tsv``, ``json``, ``parquet`` or ``arrow``;
        other ``options`` are those of COPY in SQL. The file is there once all rows are in it.

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
        """What the columns of a table hold: distinct and frequent values, quartiles, histograms, correlations.

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
        """The table as a dataset of pyarrow, for DuckDB, Polars and whatever else scans these: columns and filters run at
        the pool, and filters are applied once more by Arrow (:mod:`farpool._dataset`).

        >>> import farpool, pyarrow.dataset as ds
        >>> p = farpool.open(memory="64MiB")
        >>> _ = p.sql("create table t as select n, n % 3 as g from generate_series(1, 9) s(n)")
        >>> p.dataset("t").count_rows(filter=ds.field("g") == 2)
        3
        """
        from ._dataset import Dataset

        return Dataset(self, table)

    def scan(self, table: str) -> "polars.LazyFrame":
        """The table as a lazy frame of Polars: columns and filters run at the pool, and filters are applied once more by
        Polars.

        >>> import farpool, polars as pl
        >>> p = farpool.open(memory="64MiB")
        >>> _ = p.sql("create table t as select n, n % 3 as g from generate_series(1, 9) s(n)")
        >>> p.scan("t").filter(pl.col("g") == 2).select("n").collect()["n"].to_list()
        [2, 5, 8]
        """
        from ._lazy import scan

        return scan(self, table)

    def space(self, name: str) -> "Space":
        """A space of keys and values of the node as a dictionary: ``p.space("carts")["carts:7"] = "…"``. Clients of the Redis
        protocol make spaces and share them (docs/redis.md)."""
        from ._space import Space

        return Space(self, name)

    def status(self) -> dict[str, Any]:
        """What the pool says of itself: its memory, and what is under way."""
        return json.loads(self._native.status())

    # Its end.

    def close(self) -> None:
        """Closes the pool. Its results keep rows that they have, and no more can be asked for. Statements of a pool in this
        process end; a data directory is complete then, and may be opened by another process."""
        for result in list(self._results):
            result._release()
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
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
    """The description of a table: ``name``, ``rows``, ``columns`` and sizes; its columns have types and statistics.

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
        """Its name within its schema."""
        return self._described["name"]

    @property
    def schema(self) -> str:
        """Its schema, ``public`` where it was given none."""
        return self._described["schema"]

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self._described["rows"]

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
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
    """What the columns of a table hold: ``name``, ``rows``, ``columns`` and ``correlation``, with the keys that
    ``farpool profile --format json`` has. In a notebook it is a page."""

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
        # A page of its own within the notebook: its styles stay there.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:36em;border:0" '
            'sandbox="allow-same-origin"></iframe>'
        )


def _files(source: Any) -> list[str] | None:
    """Returns the paths, if that is what a source is."""
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
    """Closes the pools that are open when the interpreter exits; data directories are complete then."""
    for pool in list(_OPEN):
        try:
            pool.close()
        except Exception:
            # Nobody is there to hear of it.
            pass

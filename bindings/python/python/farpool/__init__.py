"""Farpool: a compressed memory pool that runs the first operators of a query next to the data.

>>> import farpool
>>> p = farpool.open(memory="64MiB")
>>> p.sql("select 6 * 7 as answer").fetchall()
[(42,)]

A pool lives in this process (:func:`open`) or is a remote node (:func:`connect`). Tables are loaded from files and data
frames (:meth:`Pool.load`) and queried with SQL (:meth:`Pool.sql`).
"""

from __future__ import annotations

import atexit
import os
from typing import Any

from . import _farpool
from ._errors import (
    BusyError,
    CancelledError,
    CorruptError,
    DatabaseError,
    DataError,
    DeniedError,
    Error,
    ExistsError,
    IntegrityError,
    InterfaceError,
    InternalError,
    LimitError,
    NotFoundError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    TimeOutError,
    UnavailableError,
    Warning,
)
from ._pool import Pool, Profile, Table, close_all
from ._result import Result

__version__ = _farpool.__version__

__all__ = [
    "BusyError",
    "CancelledError",
    "CorruptError",
    "DataError",
    "DatabaseError",
    "DeniedError",
    "Error",
    "ExistsError",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "LimitError",
    "NotFoundError",
    "NotSupportedError",
    "OperationalError",
    "Pool",
    "Profile",
    "ProgrammingError",
    "Result",
    "Table",
    "TimeOutError",
    "UnavailableError",
    "Warning",
    "connect",
    "open",
]


def connect(
    url: str | None = None,
    token: str | None = None,
    *,
    timeout: float | None = None,
    cache: int | str | None = None,
    memory: int | str | None = None,
    work_memory: int | str | None = None,
    results: str = "auto",
    tls_ca: "str | os.PathLike[str] | bytes | None" = None,
    encrypt_results: bool = False,
    node_key: str | None = None,
) -> Pool:
    """Connects to the memory node at ``url``, such as ``farpool://node7:9797``, or ``farpools://…`` with TLS.

    Without a URL, connects to the node named by the environment variable ``FARPOOL_POOL``, or to
    ``farpool://127.0.0.1:9797``. The default token is the value of ``FARPOOL_TOKEN``. ``timeout`` limits each
    statement, in seconds. ``cache`` is the memory for a cache of the node's columns in this process; ``memory`` is the
    memory for files that statements name, and ``work_memory`` that for joins, sorts and groupings. ``results`` is the
    format of result rows on the wire (``auto``, ``plain``, ``packed``, ``lz4`` or ``zstd``). ``tls_ca`` is the
    certificate authority to trust: the path of a PEM file, or its bytes. With ``encrypt_results``, the node encrypts
    its answers for this client alone, and authenticates itself by ``node_key`` or by the token.
    """
    pem = tls_ca
    if pem is not None and not isinstance(pem, bytes):
        with _open(pem, "rb") as file:
            pem = file.read()
    return Pool(
        _farpool.Pool.connect(
            url or os.environ.get("FARPOOL_POOL") or "farpool://127.0.0.1:9797",
            token=token or os.environ.get("FARPOOL_TOKEN") or None,
            timeout=timeout,
            cache=cache,
            memory=memory,
            work_memory=work_memory,
            results=results,
            tls_ca=pem,
            encrypt_results=encrypt_results,
            node_key=node_key,
        )
    )


_open = open


def open(  # noqa: A001 - farpool.open is what it does
    *,
    memory: int | str | None = None,
    data_dir: "str | os.PathLike[str] | None" = None,
    work_memory: int | str | None = None,
    timeout: float | None = None,
    compression: str = "auto",
    master_key_file: "str | os.PathLike[str] | None" = None,
    encryption: str = "standard",
) -> Pool:
    """Opens a pool in this process.

    ``memory`` limits the pool's tables, in bytes or as text such as ``"2GiB"``; the default is half of the machine's
    memory. ``work_memory`` limits joins, sorts and groupings, which spill to temporary files beyond it. With
    ``data_dir``, tables are durable in that directory, its existing tables can be queried, and tables may be larger
    than memory. ``compression`` is the compression of tables in the directory, ``master_key_file`` the key that
    encrypts the directory, and ``encryption`` the mode for a new directory (``standard`` or ``strict``). ``timeout``
    limits each statement, in seconds.

    >>> import farpool, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with farpool.open(memory="64MiB", data_dir=folder) as p:
    ...         _ = p.sql("create table t as select 1 as n")
    ...     with farpool.open(memory="64MiB", data_dir=folder) as p:
    ...         p.sql("from t").fetchall()
    [(1,)]
    """
    return Pool(
        _farpool.Pool.open(
            memory=memory,
            data_dir=data_dir,
            work_memory=work_memory,
            timeout=timeout,
            compression=compression,
            master_key_file=master_key_file,
            encryption=encryption,
        )
    )


def _leave() -> None:
    # Threads that wait for a pool hold pools open, so they must return before the pools are closed.
    _farpool.leave()
    close_all()


atexit.register(_leave)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_farpool.forked)

del Any, atexit

"""Exceptions: the hierarchy of DB-API 2.0, and below it what the pool tells apart.

Each has ``message`` (what was wrong, and where) and ``advice`` (what to do, or ``None``); its text is both.
"""

from __future__ import annotations


class Warning(UserWarning):  # noqa: A001 - the name is that of DB-API
    """Something that was left out, such as columns of a type that no pool holds."""


class Error(Exception):
    """Whatever the pool reports."""

    #: What was wrong, and where.
    message: str
    #: What to do about it; ``None`` where there is no advice.
    advice: str | None

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message if advice is None else f"{message}\n  {advice}")
        self.message = message
        self.advice = advice

    def __reduce__(self):
        return _restored, (type(self), self.message, self.advice, self.__dict__)


def _restored(kind, message, advice, state):
    error = kind(message, advice)
    error.__dict__.update(state)
    return error


class InterfaceError(Error):
    """The package is used in a way that it does not provide for."""


class DatabaseError(Error):
    """The pool reports it."""


class DataError(DatabaseError):
    """A value or bytes are not what they should be."""


class CorruptError(DataError):
    """Bytes are damaged: get them again."""


class OperationalError(DatabaseError):
    """The statement may be right; the pool or the process could not do it."""


class UnavailableError(OperationalError, ConnectionError):
    """The node cannot be reached, or went away: try again later."""


class DeniedError(OperationalError, PermissionError):
    """Another token is needed."""


class LimitError(OperationalError):
    """A limit was reached, of memory, size or count: ask for less, or raise it."""


class TimeOutError(OperationalError, TimeoutError):
    """It took longer than ``timeout``."""


class CancelledError(OperationalError):
    """Somebody cancelled it."""


class BusyError(OperationalError):
    """Too much is under way for this tenant: ask again after ``retry_after`` seconds."""

    #: Seconds after which the same request may succeed.
    retry_after: float = 0.0


class IntegrityError(DatabaseError):
    """Not raised: tables of a pool have no constraints. DB-API wants it."""


class InternalError(DatabaseError):
    """A defect in farpool: please report it."""


class ProgrammingError(DatabaseError):
    """The statement, the request or the data is at fault."""


class NotFoundError(ProgrammingError):
    """A table, column or file that is named does not exist."""


class ExistsError(ProgrammingError):
    """The name is taken."""


class NotSupportedError(DatabaseError):
    """DB-API has it, and pools do not: transactions, for example."""


_KINDS = {
    "invalid": ProgrammingError,
    "not_found": NotFoundError,
    "exists": ExistsError,
    "denied": DeniedError,
    "over_limit": LimitError,
    "unavailable": UnavailableError,
    "cancelled": CancelledError,
    "corrupt": CorruptError,
    "internal": InternalError,
    "stale": OperationalError,
    "timed_out": TimeOutError,
    "busy": BusyError,
}


def of_kind(kind: str | None, message: str, advice: str | None, retry_after_ms: int | None) -> Error:
    """Makes the exception for an error of the library; called by the extension module."""
    error = _KINDS.get(kind or "", OperationalError)(message, advice)
    if retry_after_ms is not None and isinstance(error, BusyError):
        error.retry_after = retry_after_ms / 1000
    return error

"""Exceptions: the hierarchy of DB-API 2.0, with a subclass for each kind of error that the pool reports.

Each has ``message`` (the error and its place) and ``advice`` (a remedy, or ``None``); ``str()`` joins both.
"""

from __future__ import annotations


class Warning(UserWarning):  # noqa: A001 - the name is that of DB-API
    """Warning about data that was left out, such as columns of a type that no pool holds."""


class Error(Exception):
    """Base class of all errors that farpool raises."""

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
    """Invalid use of the package."""


class DatabaseError(Error):
    """Base class of the errors that the pool reports."""


class DataError(DatabaseError):
    """Invalid value or invalid bytes."""


class CorruptError(DataError):
    """Damaged bytes: fetch them again."""


class OperationalError(DatabaseError):
    """Failure of the pool or the process, not of the statement."""


class UnavailableError(OperationalError, ConnectionError):
    """Unreachable node, or a lost connection: retry later."""


class DeniedError(OperationalError, PermissionError):
    """Missing permission: use another token."""


class LimitError(OperationalError):
    """Exceeded limit of memory, size or count: ask for less, or raise the limit."""


class TimeOutError(OperationalError, TimeoutError):
    """Statement that took longer than ``timeout``."""


class CancelledError(OperationalError):
    """Cancelled statement."""


class BusyError(OperationalError):
    """Too many statements of this tenant at once: retry after ``retry_after`` seconds."""

    #: Seconds after which the same request may succeed.
    retry_after: float = 0.0


class IntegrityError(DatabaseError):
    """Never raised, because tables of a pool have no constraints; DB-API requires the class."""


class InternalError(DatabaseError):
    """Bug in farpool: please report it."""


class ProgrammingError(DatabaseError):
    """Mistake in the statement, the request or the data."""


class NotFoundError(ProgrammingError):
    """Missing table, column or file."""


class ExistsError(ProgrammingError):
    """Name that is already in use."""


class NotSupportedError(DatabaseError):
    """Feature of DB-API that pools do not have, such as transactions."""


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
    """Creates the exception for an error of the library; the extension module calls this."""
    error = _KINDS.get(kind or "", OperationalError)(message, advice)
    if retry_after_ms is not None and isinstance(error, BusyError):
        error.retry_after = retry_after_ms / 1000
    return error

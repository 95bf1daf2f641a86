//! The one error type that crosses crates and the wire: a kind, which determines what the caller can do next; a
//! message, which describes the problem and where it occurred; and optional advice.

use crate::limits;
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The result of an operation that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of a failure, which determines what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request, the query or the data is wrong: change it.
    Invalid,
    /// A named object (table, column, file, …) does not exist: check the name.
    NotFound,
    /// An object of that name exists already: choose another name, or request that it be replaced.
    Exists,
    /// The caller has no right to do this: use another token or tenant.
    Denied,
    /// A limit was reached (memory, size, count): ask for less, or raise the limit.
    OverLimit,
    /// The pool cannot be reached or went away: try again later.
    Unavailable,
    /// The caller cancelled.
    Cancelled,
    /// Bytes are corrupted or not of the expected kind: get them again.
    Corrupt,
    /// A defect in farpool: report it.
    Internal,
    /// The prepared program, or the table version that it was prepared for, no longer exists: prepare again.
    Stale,
    /// The operation exceeded the time limit that its caller set: allow more, or ask for less.
    TimedOut,
    /// The caller has too many requests in progress: ask again after [`Error::retry_after_ms`].
    Busy,
}

impl ErrorKind {
    /// Every kind, in the order of their codes on the wire.
    pub const ALL: [ErrorKind; 12] = [
        ErrorKind::Invalid,
        ErrorKind::NotFound,
        ErrorKind::Exists,
        ErrorKind::Denied,
        ErrorKind::OverLimit,
        ErrorKind::Unavailable,
        ErrorKind::Cancelled,
        ErrorKind::Corrupt,
        ErrorKind::Internal,
        ErrorKind::Stale,
        ErrorKind::TimedOut,
        ErrorKind::Busy,
    ];

    /// Returns the exit status of the `farpool` program for an error of this kind: 3 if the pool is unreachable,
    /// refused or failed, and 1 if the query or the data is wrong.
    pub fn exit_status(self) -> u8 {
        match self {
            ErrorKind::Unavailable | ErrorKind::Internal | ErrorKind::Denied | ErrorKind::Busy => 3,
            _ => 1,
        }
    }
}

/// An error: what is wrong and where, and advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}{}", advice.as_ref().map(|a| format!("\n  {a}")).unwrap_or_default())]
pub struct Error {
    /// Kind of the error, which determines what the caller can do.
    pub kind: ErrorKind,
    /// Description of the problem and where it occurred, for people.
    pub message: String,
    /// Advice on what to do next, for people.
    pub advice: Option<String>,
    /// For `Busy`: milliseconds after which the same request may succeed; `None` for other kinds.
    pub retry_after_ms: Option<u64>,
}

impl Error {
    /// Creates an error of `kind`. A message longer than [`limits::ERROR_BYTES_MAX`] is truncated.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: cut(message.into()), advice: None, retry_after_ms: None }
    }

    /// Creates an [`ErrorKind::Invalid`]: the request, the query or the data is at fault.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    /// Creates an [`ErrorKind::NotFound`]: a named object does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::NotFound, message)
    }

    /// Creates an [`ErrorKind::OverLimit`]: a limit was reached.
    pub fn over_limit(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::OverLimit, message)
    }

    /// Creates an [`ErrorKind::Unavailable`]: the pool cannot be reached or went away.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Creates an [`ErrorKind::Corrupt`]: bytes are corrupted or not of the expected kind.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Corrupt, message)
    }

    /// Creates an [`ErrorKind::Stale`], for a prepared program or a table version that no longer exists.
    pub fn stale(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Stale, message).advise("prepare the query again")
    }

    /// Creates an [`ErrorKind::Busy`]: the caller has too many requests in progress, and the same request may
    /// succeed after `retry_after_ms`.
    pub fn busy(message: impl Into<String>, retry_after_ms: u64) -> Self {
        let busy = Error::new(ErrorKind::Busy, message).advise("try again later, or ask for less at once");
        Error { retry_after_ms: Some(retry_after_ms), ..busy }
    }

    /// Creates an [`ErrorKind::Internal`]: a defect in farpool.
    pub fn internal(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Internal, message)
    }

    /// Creates an [`ErrorKind::Cancelled`]: the caller cancelled.
    pub fn cancelled() -> Self {
        Error::new(ErrorKind::Cancelled, "cancelled")
    }

    /// Creates an [`ErrorKind::TimedOut`]: `what` took longer than `limit`, which the caller had set.
    pub fn timed_out(what: &str, limit: Duration) -> Self {
        let message = format!("{what} took longer than the {limit:?} that it may");
        Error::new(ErrorKind::TimedOut, message).advise("allow more time (--timeout), or ask for less")
    }

    /// Creates the error for a result of `what` (a sum or mean) that does not fit the type of the result column `name`.
    pub fn overflow(what: &str, name: &str, data_type: &DataType) -> Self {
        Error::invalid(format!("{what} of {name:?} overflows {}", crate::sql_name(data_type)))
            .advise("cast the argument to a wider type, such as DECIMAL(38, 0)")
    }

    /// Adds advice on what to do next.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Prefixes the message with `place` (a file, a table, a peer).
    #[must_use]
    pub fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.message = cut(format!("{place}: {}", self.message));
        self
    }
}

/// Truncates the message to [`limits::ERROR_BYTES_MAX`] bytes, because it may quote data of a peer.
fn cut(mut message: String) -> String {
    if message.len() > limits::ERROR_BYTES_MAX {
        message.truncate(message.floor_char_boundary(limits::ERROR_BYTES_MAX));
        message.push('…');
    }
    message
}

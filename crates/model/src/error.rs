//! The one error type that crosses crates and the wire: a kind that says what the caller should do
//! next, a message that says what was wrong and where, and, where there is one, advice.

use crate::limits;
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The result of anything that can fail with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of failure it was, which is to say what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request, the query or the data is at fault: change it.
    Invalid,
    /// A named table, column or file does not exist: check the name.
    NotFound,
    /// Something of that name exists already: choose another name or say that it may be replaced.
    Exists,
    /// The peer may not do this: use another token or tenant.
    Denied,
    /// A limit was reached (memory, size, count): ask for less, or raise the limit.
    OverLimit,
    /// The pool cannot be reached or went away: try again later.
    Unavailable,
    /// The caller cancelled.
    Cancelled,
    /// Bytes are damaged or not what they claim to be: get them again.
    Corrupt,
    /// A defect in farpool: report it.
    Internal,
    /// What was prepared, or the version of the table that it was prepared for, is gone: prepare again.
    Stale,
    /// It took longer than whoever asked allows: allow more, or ask for less.
    TimedOut,
    /// Too much is under way for the caller: ask again after [`Error::retry_after_ms`].
    Busy,
}

impl ErrorKind {
    /// Every kind, in the order of its number on the wire.
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

    /// The exit status of the program for an error of this kind: 1 when the query or the data is at
    /// fault, 3 when the pool is unreachable or failed.
    pub fn exit_status(self) -> u8 {
        match self {
            ErrorKind::Unavailable | ErrorKind::Internal | ErrorKind::Denied | ErrorKind::Busy => 3,
            _ => 1,
        }
    }
}

/// What was wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}{}", advice.as_ref().map(|a| format!("\n  {a}")).unwrap_or_default())]
pub struct Error {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// What was wrong and where, for a person.
    pub message: String,
    /// What to do next, for a person.
    pub advice: Option<String>,
    /// Of `Busy`: milliseconds after which the same request may succeed.
    pub retry_after_ms: Option<u64>,
}

impl Error {
    /// An error of `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: cut(message.into()), advice: None, retry_after_ms: None }
    }

    /// The request, the query or the data is at fault.
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    /// A named thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::NotFound, message)
    }

    /// A limit was reached.
    pub fn over_limit(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::OverLimit, message)
    }

    /// The pool cannot be reached or went away.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Bytes are damaged.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Corrupt, message)
    }

    /// What was prepared is gone.
    pub fn stale(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Stale, message).advise("prepare the query again")
    }

    /// Too much is under way for the caller; the same request may succeed after `retry_after_ms`.
    pub fn busy(message: impl Into<String>, retry_after_ms: u64) -> Self {
        let busy = Error::new(ErrorKind::Busy, message).advise("try again later, or ask for less at once");
        Error { retry_after_ms: Some(retry_after_ms), ..busy }
    }

    /// A defect in farpool.
    pub fn internal(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Internal, message)
    }

    /// The caller cancelled.
    pub fn cancelled() -> Self {
        Error::new(ErrorKind::Cancelled, "cancelled")
    }

    /// `what` took longer than `limit`, which whoever asked had set.
    pub fn timed_out(what: &str, limit: Duration) -> Self {
        let message = format!("{what} took longer than the {limit:?} that it may");
        Error::new(ErrorKind::TimedOut, message).advise("allow more time (--timeout), or ask for less")
    }

    /// The sum or the mean (`what`) in the column `name` does not fit that column's type.
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

    /// Puts `place` (a file, a table, a peer) in front of the message.
    #[must_use]
    pub fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.message = cut(format!("{place}: {}", self.message));
        self
    }
}

/// A message may quote what a peer sent: no more of it than a person reads.
fn cut(mut message: String) -> String {
    if message.len() > limits::ERROR_BYTES_MAX {
        message.truncate(message.floor_char_boundary(limits::ERROR_BYTES_MAX));
        message.push('…');
    }
    message
}

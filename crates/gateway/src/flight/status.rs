//! Errors as gRPC tells them: a code, by which programs decide, and a text with the advice for people.

use farpool_model::{Error, ErrorKind, limits};
use farpool_postgres::failure::Failure;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Code, Status};

/// The header in which a server says when the client should try again (gRPC proposal A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Returns the code of errors of a kind.
fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Exists => Code::AlreadyExists,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::OverLimit => Code::ResourceExhausted,
        ErrorKind::Unavailable | ErrorKind::Busy => Code::Unavailable,
        ErrorKind::Cancelled => Code::Cancelled,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Stale => Code::Aborted,
        ErrorKind::TimedOut => Code::DeadlineExceeded,
        ErrorKind::Internal => Code::Internal,
        // A kind that only newer nodes know.
        _ => Code::Internal,
    }
}

/// Returns the status for an error.
pub(super) fn status(error: &Error) -> Status {
    of_code(code(error.kind), error)
}

/// Returns the status with this code for an error.
pub(super) fn of_code(code: Code, error: &Error) -> Status {
    let mut headers = MetadataMap::new();
    if let Some(after) = error.retry_after_ms {
        headers.insert(PUSHBACK, AsciiMetadataValue::from(after));
    }
    Status::with_metadata(code, cut(error.to_string()), headers)
}

/// Returns the status of a request that is not done, with what to do instead.
pub(super) fn not_done(message: &str, advice: &str) -> Status {
    of_code(Code::Unimplemented, &Error::invalid(message).advise(advice))
}

/// Returns the status for an error of Arrow's about something that this server has made.
pub(super) fn defect(error: impl std::fmt::Display) -> Status {
    status(&Error::internal(error.to_string()))
}

/// Returns the status for bytes of a client that are no message of the protocol.
pub(super) fn malformed(error: impl std::fmt::Display) -> Status {
    status(&Error::invalid(format!("this is no message of Flight SQL: {error}")))
}

/// Returns the error for a failure that the grammar of statements has found.
pub(super) fn of_failure(failure: Failure) -> Error {
    let error = Error::invalid(failure.message);
    match failure.hint {
        Some(hint) => error.advise(hint),
        None => error,
    }
}

/// Truncates a text, which goes into headers.
fn cut(mut text: String) -> String {
    if text.len() > limits::FLIGHT_ERROR_BYTES_MAX {
        text.truncate(text.floor_char_boundary(limits::FLIGHT_ERROR_BYTES_MAX));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_and_the_advice_is_told() {
        let codes: Vec<Code> = ErrorKind::ALL.into_iter().map(code).collect();
        assert!(codes.iter().all(|code| ![Code::Ok, Code::Unknown].contains(code)));
        let busy = status(&Error::busy("too much", 250));
        assert_eq!(busy.metadata().get(PUSHBACK).unwrap(), "250");
        assert!(busy.message().contains("try again later"));
        let long = status(&Error::invalid("é".repeat(4000)));
        assert!(long.message().len() <= limits::FLIGHT_ERROR_BYTES_MAX + '…'.len_utf8());
    }
}

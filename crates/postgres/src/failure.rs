//! Errors as PostgreSQL's protocol tells them: with a code of five characters (SQLSTATE; PostgreSQL documentation,
//! appendix A), a hint, and a position in the statement.

use farpool_model::{Error, ErrorKind};

/// Severity of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement has failed.
    Error,
    /// The session ends.
    Fatal,
    /// The statement was carried out, but perhaps not as the client expects.
    Warning,
    /// A remark.
    Notice,
}

impl Severity {
    /// Returns the word for it, which clients expect.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// An error, a warning or a notice for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The severity.
    pub severity: Severity,
    /// The code, from [`code`].
    pub code: &'static str,
    /// The message.
    pub message: String,
    /// Advice on what to do next.
    pub hint: Option<String>,
    /// The place in the statement: the number of the character, from 1.
    pub position: Option<usize>,
}

/// Codes of failures, by their names in PostgreSQL.
#[expect(missing_docs, reason = "the names say what the codes mean")]
pub mod code {
    pub const SUCCESSFUL: &str = "00000";
    pub const WARNING: &str = "01000";
    pub const CONNECTION_FAILURE: &str = "08006";
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub const NUMERIC_OUT_OF_RANGE: &str = "22003";
    pub const INVALID_DATETIME: &str = "22007";
    pub const DATETIME_OVERFLOW: &str = "22008";
    pub const DIVISION_BY_ZERO: &str = "22012";
    pub const INVALID_PARAMETER_VALUE: &str = "22023";
    pub const INVALID_TEXT: &str = "22P02";
    pub const INVALID_BINARY: &str = "22P03";
    pub const BAD_COPY_FORMAT: &str = "22P04";
    pub const DATA_EXCEPTION: &str = "22000";
    pub const CARDINALITY_VIOLATION: &str = "21000";
    pub const SUBSTRING_ERROR: &str = "22011";
    pub const INVALID_ARGUMENT_FOR_LOG: &str = "2201E";
    pub const INVALID_ARGUMENT_FOR_POWER: &str = "2201F";
    pub const INVALID_ROW_COUNT_IN_LIMIT: &str = "2201W";
    pub const NOT_NULL_VIOLATION: &str = "23502";
    pub const ACTIVE_TRANSACTION: &str = "25001";
    pub const NO_ACTIVE_TRANSACTION: &str = "25P01";
    pub const READ_ONLY_TRANSACTION: &str = "25006";
    pub const FAILED_TRANSACTION: &str = "25P02";
    pub const INVALID_STATEMENT_NAME: &str = "26000";
    pub const INVALID_AUTHORIZATION: &str = "28000";
    pub const INVALID_PASSWORD: &str = "28P01";
    pub const INVALID_CURSOR_NAME: &str = "34000";
    pub const INVALID_CATALOG_NAME: &str = "3D000";
    pub const INVALID_SAVEPOINT: &str = "3B001";
    pub const SERIALIZATION_FAILURE: &str = "40001";
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    pub const SYNTAX_ERROR: &str = "42601";
    pub const UNDEFINED_COLUMN: &str = "42703";
    pub const UNDEFINED_OBJECT: &str = "42704";
    pub const DUPLICATE_OBJECT: &str = "42710";
    pub const GROUPING_ERROR: &str = "42803";
    pub const DATATYPE_MISMATCH: &str = "42804";
    pub const UNDEFINED_FUNCTION: &str = "42883";
    pub const UNDEFINED_TABLE: &str = "42P01";
    pub const DUPLICATE_CURSOR: &str = "42P03";
    pub const DUPLICATE_STATEMENT: &str = "42P05";
    pub const DUPLICATE_TABLE: &str = "42P07";
    pub const INVALID_SCHEMA_NAME: &str = "3F000";
    pub const OUT_OF_MEMORY: &str = "53200";
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    pub const QUERY_CANCELED: &str = "57014";
    pub const ADMIN_SHUTDOWN: &str = "57P01";
    pub const IDLE_TIMEOUT: &str = "57P05";
    pub const INTERNAL_ERROR: &str = "XX000";
    pub const DATA_CORRUPTED: &str = "XX001";
}

/// Codes of invalid statements and values by a part of the message, which is compared in lower case. The first that
/// fits counts.
const BY_MESSAGE: &[(&str, &str)] = &[
    ("non-nullable but contains null", code::NOT_NULL_VIOLATION),
    ("square root of a negative", code::INVALID_ARGUMENT_FOR_POWER),
    ("raised to a n", code::INVALID_ARGUMENT_FOR_POWER),
    ("logarithm of", code::INVALID_ARGUMENT_FOR_LOG),
    ("argument of another one", code::GROUPING_ERROR),
    ("non-boolean predicate", code::DATATYPE_MISMATCH),
    ("limit must be", code::INVALID_ROW_COUNT_IN_LIMIT),
    ("negative count", code::SUBSTRING_ERROR),
    ("more than one row", code::CARDINALITY_VIOLATION),
    ("no time zone", code::INVALID_PARAMETER_VALUE),
    ("for type interval", code::INVALID_DATETIME),
    ("can't cast value", code::NUMERIC_OUT_OF_RANGE),
    ("is compared with one of", code::SYNTAX_ERROR),
    ("to value of date type", code::INVALID_DATETIME),
    ("to value of timestamp", code::INVALID_DATETIME),
    ("to value of time type", code::INVALID_DATETIME),
    ("divide by zero", code::DIVISION_BY_ZERO),
    ("division by zero", code::DIVISION_BY_ZERO),
    ("not supported:", code::FEATURE_NOT_SUPPORTED),
    (" is not done", code::FEATURE_NOT_SUPPORTED),
    ("overflow", code::NUMERIC_OUT_OF_RANGE),
    ("out of range", code::NUMERIC_OUT_OF_RANGE),
    ("too large to store", code::NUMERIC_OUT_OF_RANGE),
    ("cannot cast string", code::INVALID_TEXT),
    ("cannot convert", code::INVALID_TEXT),
    ("error parsing timestamp", code::INVALID_DATETIME),
    ("error parsing date", code::INVALID_DATETIME),
    ("must appear in", code::GROUPING_ERROR),
    ("group by", code::GROUPING_ERROR),
    ("no function", code::UNDEFINED_FUNCTION),
    ("function", code::UNDEFINED_FUNCTION),
    ("syntax", code::SYNTAX_ERROR),
    ("expected", code::SYNTAX_ERROR),
    ("no value (", code::PROTOCOL_VIOLATION),
    ("cannot be compared", code::DATATYPE_MISMATCH),
    ("type", code::DATATYPE_MISMATCH),
];

impl Failure {
    /// Creates an error with this code.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Failure { severity: Severity::Error, code, message: message.into(), hint: None, position: None }
    }

    /// Creates a warning.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Failure { severity: Severity::Warning, ..Failure::new(code, message) }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// Returns the failure as one that ends the session.
    #[must_use]
    pub fn fatal(self) -> Self {
        Failure { severity: Severity::Fatal, ..self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = code_of(&error);
        Failure {
            severity: Severity::Error,
            code,
            message: error.message,
            hint: error.advice,
            position: None,
        }
    }
}

/// Returns the code of an error by its kind; for kinds that cover several codes, by its message.
fn code_of(error: &Error) -> &'static str {
    // Without the position, which names a column of the text.
    let message = error.message.split(" (line ").next().unwrap_or_default().to_lowercase();
    let says = |part: &str| message.contains(part);
    match error.kind {
        ErrorKind::NotFound if says("column") || says("field") => code::UNDEFINED_COLUMN,
        ErrorKind::NotFound if says("function") => code::UNDEFINED_FUNCTION,
        ErrorKind::NotFound if says("no schema") => code::INVALID_SCHEMA_NAME,
        ErrorKind::NotFound => code::UNDEFINED_TABLE,
        ErrorKind::Exists if says("schema") => code::DUPLICATE_OBJECT,
        ErrorKind::Exists => code::DUPLICATE_TABLE,
        ErrorKind::Denied => code::INSUFFICIENT_PRIVILEGE,
        ErrorKind::OverLimit if says("memory") => code::OUT_OF_MEMORY,
        ErrorKind::OverLimit => code::PROGRAM_LIMIT_EXCEEDED,
        ErrorKind::Unavailable => code::CONNECTION_FAILURE,
        ErrorKind::Cancelled | ErrorKind::TimedOut => code::QUERY_CANCELED,
        ErrorKind::Corrupt => code::DATA_CORRUPTED,
        ErrorKind::Busy => code::TOO_MANY_CONNECTIONS,
        ErrorKind::Stale => code::SERIALIZATION_FAILURE,
        // The digits of a number that its type does not hold.
        ErrorKind::Invalid if quoted(&message, "cannot cast string '").is_some_and(is_integer) => {
            code::NUMERIC_OUT_OF_RANGE
        }
        ErrorKind::Invalid => {
            let known = BY_MESSAGE.iter().find(|(part, _)| says(part));
            known.map_or(code::DATA_EXCEPTION, |(_, code)| code)
        }
        _ => code::INTERNAL_ERROR,
    }
}

/// Returns the text in quotes that follows `before`.
fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    message.split_once(before)?.1.split_once('\'').map(|(text, _)| text)
}

fn is_integer(text: &str) -> bool {
    let digits = text.trim().trim_start_matches(['-', '+']);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_code_and_messages_refine_it() {
        let code = |kind, message: &str| Failure::from(Error::new(kind, message)).code;
        for (kind, message, expected) in [
            (ErrorKind::Invalid, "divide by zero", code::DIVISION_BY_ZERO),
            (ErrorKind::Invalid, "integer out of range: 2147483647 + 1", code::NUMERIC_OUT_OF_RANGE),
            (ErrorKind::Invalid, "FOR UPDATE is not done", code::FEATURE_NOT_SUPPORTED),
            (
                ErrorKind::Invalid,
                "cannot cast string '99999999999' to value of INTEGER type",
                code::NUMERIC_OUT_OF_RANGE,
            ),
            (ErrorKind::Invalid, "Cannot cast string 'x' to value of INTEGER type", code::INVALID_TEXT),
            (
                ErrorKind::Invalid,
                "Cannot cast string '2024-02-30' to value of DATE type",
                code::INVALID_DATETIME,
            ),
            (ErrorKind::Invalid, "something else", code::DATA_EXCEPTION),
            (ErrorKind::NotFound, "there is no table x", code::UNDEFINED_TABLE),
            (ErrorKind::NotFound, "there is no column x", code::UNDEFINED_COLUMN),
            (ErrorKind::Exists, "there is a table t already", code::DUPLICATE_TABLE),
            (ErrorKind::Denied, "no", code::INSUFFICIENT_PRIVILEGE),
            (ErrorKind::Cancelled, "cancelled", code::QUERY_CANCELED),
            (ErrorKind::Internal, "a defect", code::INTERNAL_ERROR),
        ] {
            assert_eq!(code(kind, message), expected, "{message}");
        }
        for kind in ErrorKind::ALL {
            assert_eq!(code(kind, "x").len(), 5, "{kind:?}");
        }
    }
}

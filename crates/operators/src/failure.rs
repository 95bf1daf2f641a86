//! Conversion of errors of Arrow's kernels.

use arrow_schema::ArrowError;
use farpool_model::Error;

/// Converts an error that Arrow reports because of the user's data or query to `Invalid`, and an error of any other
/// kind to `Internal`.
pub(crate) fn of_data(error: ArrowError) -> Error {
    let message = match error {
        ArrowError::DivideByZero => "division by zero".to_string(),
        ArrowError::ComputeError(m)
        | ArrowError::CastError(m)
        | ArrowError::ArithmeticOverflow(m)
        | ArrowError::InvalidArgumentError(m)
        | ArrowError::ParseError(m) => m,
        other => return Error::internal(other.to_string()),
    };
    Error::invalid(message)
}

/// Converts an error of Arrow that cannot occur in this crate's calls to `Internal`.
pub(crate) fn of_kernel(error: ArrowError) -> Error {
    Error::internal(error.to_string())
}

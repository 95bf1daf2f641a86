//! How the errors of Arrow's kernels become ours.

use arrow_schema::ArrowError;
use farpool_model::Error;

/// An error of a kernel that ran on the user's data: the data or the query is at fault.
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

/// An error of a kernel that cannot fail as we call it.
pub(crate) fn of_kernel(error: ArrowError) -> Error {
    Error::internal(error.to_string())
}

//! Conversion of the library's errors to the exceptions of the package, which are Python classes.

use farpool::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static RAISED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Returns the exception for an error, by its kind.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let exception = || {
        let kind = serde_json::to_value(error.kind).unwrap_or_default();
        let make = RAISED.import(py, "farpool._errors", "of_kind")?;
        make.call1((kind.as_str(), &error.message, &error.advice, error.retry_after_ms))
    };
    exception().map_or_else(|failed| failed, PyErr::from_value)
}

/// Converts a result of the library to a Python result.
pub fn checked<T>(py: Python<'_>, outcome: farpool::Result<T>) -> PyResult<T> {
    outcome.map_err(|error| raised(py, &error))
}

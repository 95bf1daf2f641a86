//! Errors of the library as exceptions of the package, which are classes in Python.

use farpool::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static RAISED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Converts an error to the exception for its kind.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let exception = || {
        let kind = serde_json::to_value(error.kind).unwrap_or_default();
        let make = RAISED.import(py, "farpool._errors", "of_kind")?;
        make.call1((kind.as_str(), &error.message, &error.advice, error.retry_after_ms))
    };
    exception().map_or_else(|failed| failed, PyErr::from_value)
}

/// Converts a result of the library to one of Python.
pub fn checked<T>(py: Python<'_>, outcome: farpool::Result<T>) -> PyResult<T> {
    outcome.map_err(|error| raised(py, &error))
}

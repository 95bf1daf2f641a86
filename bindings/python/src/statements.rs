//! Text with several statements.

use crate::errors;
use pyo3::prelude::*;

/// Splits text into statements, each with the line that it begins on.
#[pyfunction]
pub fn split(py: Python<'_>, text: &str) -> PyResult<Vec<(String, u64)>> {
    let statements = errors::checked(py, farpool::split_statements(text))?;
    Ok(statements.into_iter().map(|statement| (statement.text, statement.line)).collect())
}

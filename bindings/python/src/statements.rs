//! SQL texts: splitting into statements, and quoting names of tables.

use crate::errors;
use farpool::TableName;
use pyo3::prelude::*;

/// Returns the name of a table in SQL; `name` is `TABLE` or `SCHEMA.TABLE`.
#[pyfunction]
pub fn table_in_sql(py: Python<'_>, name: &str) -> PyResult<String> {
    Ok(errors::checked(py, TableName::parse(name))?.to_sql())
}

/// Splits text into statements, each with the line on which it begins, for errors.
#[pyfunction]
pub fn split(py: Python<'_>, text: &str) -> PyResult<Vec<(String, u64)>> {
    let statements = errors::checked(py, farpool::split_statements(text))?;
    Ok(statements.into_iter().map(|statement| (statement.text, statement.line)).collect())
}

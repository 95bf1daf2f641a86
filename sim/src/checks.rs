//! Checks of a node's answers, shared by all kinds of clients: an answer must be correct for a version that was the
//! newest between request and answer, or be an error that the model explains.

use crate::model::{Model, Rows, Span};
use crate::query::Query;
use crate::rows::Cell;
use farpool_model::{Prepared, Status, TableInfo};

/// Result of a check; the error describes what the node did wrong.
pub type Checked<T = ()> = Result<T, String>;

/// Checks the answer to a prepared program; returns the candidates for the rows of the version that it was prepared
/// for.
pub fn check_prepared(prepared: &Prepared, query: &Query, model: &Model, span: Span) -> Checked<Vec<Rows>> {
    if !prepared.is_exact() {
        return Err(format!("not everything is done at the node: {:?}", prepared.answers));
    }
    let found = model.rows_within(&query.table, prepared.version, span);
    found.ok_or_else(|| format!("{} was not the newest version meanwhile", prepared.version))
}

/// Checks the rows of a result: they must be correct for one of `may_be`, and as many as the execution statistics
/// count.
pub fn check_result(query: &Query, may_be: &[Rows], answer: &[Vec<Cell>], rows_returned: u64) -> Checked {
    if rows_returned != answer.len() as u64 {
        return Err(format!("{} rows came, and by the receipt {rows_returned}", answer.len()));
    }
    let mut outcomes = may_be.iter().map(|rows| query.check(rows, answer.to_vec()));
    let first = outcomes.next().unwrap_or_else(|| Err("its version is not known".into()));
    if first.is_ok() || outcomes.any(|outcome| outcome.is_ok()) { Ok(()) } else { first }
}

/// Checks that the description of a table is that of a version that was the newest at some moment of `span`, and has as
/// many rows.
pub fn check_table(table: &TableInfo, model: &Model, span: Span) -> Checked {
    let name = table.name.as_str();
    let Some(may_be) = model.rows_within(name, table.version, span) else {
        return Err(format!("{} of {name} was not the newest version meanwhile", table.version));
    };
    match may_be.iter().any(|rows| rows.len() as u64 == table.rows) {
        true => Ok(()),
        false => Err(format!("{name} has {} rows, and by the node {}", may_be[0].len(), table.rows)),
    }
}

/// Checks the description of each listed table, and that no table that existed throughout `span` is missing.
pub fn check_list(tables: &[TableInfo], model: &Model, span: Span) -> Checked {
    tables.iter().try_for_each(|table| check_table(table, model, span))?;
    let missing = model.names().into_iter().find(|name| {
        !model.was_absent_within(name, span) && tables.iter().all(|table| table.name.as_str() != name)
    });
    missing.map_or(Ok(()), |name| Err(format!("the list lacks table {name}")))
}

/// Checks the node's status as reported to a client of `tenant`.
pub fn check_status(status: &Status, tenant: &str) -> Checked {
    if status.tenants.iter().any(|other| other.tenant != tenant) {
        return Err(format!("it tells of other tenants: {status:?}"));
    }
    match status.memory_bytes_used <= status.memory_bytes_limit {
        true => Ok(()),
        false => Err(format!("more memory is in use than there is: {status:?}")),
    }
}

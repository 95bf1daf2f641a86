//! CREATE VIEW: produces the text that the pool (the store of the tables that the view reads) stores for a view.
//!
//! The text is printed from the parsed statement, so that it has the same meaning for every client, independently of
//! the settings of this session. Before it is stored, the text is parsed and planned again: if DataFusion's parser
//! prints a statement in another way than it was written, the statement is refused rather than stored with another
//! meaning.

use super::Reader;
use crate::catalog::PoolCatalog;
use crate::session::SCHEMA;
use datafusion::common::{TableReference, not_impl_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::{
    CreateTableOptions, CreateView, Ident, ObjectName, Query, Statement as SqlStatement, visit_relations_mut,
};
use farpool_model::{Error, TableName, View};
use farpool_sql::{dialect, error};
use std::ops::ControlFlow;

/// Returns the CREATE VIEW statement, if `statement` is one.
pub(crate) fn created(statement: &mut Statement) -> Option<&mut CreateView> {
    match statement {
        Statement::Statement(statement) => match &mut **statement {
            SqlStatement::CreateView(create) => Some(create),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the view `name` that `create` creates in `pool`, as it is stored. Returns `None` if the query reads
/// something that only this session has (a table, a view or a file), which `is_foreign` tells of a name. `qualifies`
/// tells whether a qualified name belongs to this pool.
///
/// # Errors
/// Fails if the query is invalid, with the position in the statement; `OverLimit` if its text is too long.
pub(crate) async fn text_for(
    state: &SessionState,
    pool: &PoolCatalog,
    (name, create): (TableName, &CreateView),
    qualifies: impl Fn(&TableReference) -> bool,
    is_foreign: impl Fn(&str) -> bool,
) -> Result<Option<View>> {
    check_form(create)?;
    let mut query = create.query.clone();
    unqualify(&mut query, qualifies)?;
    if names_in_public(&query)?.iter().any(|name| is_foreign(name)) {
        return Ok(None);
    }
    let (path, reader) = ([name.clone()], Reader::new(state.clone(), pool));
    let mut exact = query.clone();
    dialect::keep_digits(&mut exact)?;
    let planned = reader.plan(exact, &path).await?;
    let text = text(&query, &create.name, &create.columns.iter().map(|c| &c.name).collect::<Vec<_>>());
    let view = View::new(name, text).map_err(error::wrap)?;
    let again = reader.parse(view.text()).map_err(|_| not_kept())?;
    let replanned = reader.plan(again, &path).await?;
    let is_same = planned.display_indent().to_string() == replanned.display_indent().to_string();
    if create.columns.is_empty() && !is_same {
        return Err(not_kept());
    }
    Ok(Some(view))
}

/// Refuses clauses of CREATE VIEW that have a meaning but are not supported, rather than ignoring them.
fn check_form(create: &CreateView) -> Result<()> {
    let with_types = create.columns.iter().any(|c| c.options.is_some() || c.data_type.is_some());
    let has_more = create.materialized
        || create.or_alter
        || create.if_not_exists
        || create.with_no_schema_binding
        || create.options != CreateTableOptions::None
        || !create.cluster_by.is_empty()
        || create.comment.is_some()
        || create.to.is_some();
    if has_more || with_types {
        return not_impl_err!(
            "CREATE VIEW in this form; what there is: CREATE [OR REPLACE] [TEMPORARY] VIEW name [(columns)] AS SELECT …"
        );
    }
    Ok(())
}

/// Removes two qualifiers from the names in a query: the name of the view's pool, because other clients may have
/// registered the pool under another name; and the schema `public`, because names without a schema refer to it.
fn unqualify(query: &mut Query, qualifies: impl Fn(&TableReference) -> bool) -> Result<()> {
    let visited = visit_relations_mut(query, |name: &mut ObjectName| {
        if name.0.len() < 2 {
            return ControlFlow::Continue(());
        }
        match object_name_to_table_reference(name.clone(), true) {
            Ok(reference) if qualifies(&reference) => {
                let is_public = reference.schema().is_none_or(|schema| schema == SCHEMA);
                let kept = if is_public { 1 } else { 2 };
                name.0.drain(..name.0.len() - kept);
                ControlFlow::Continue(())
            }
            Ok(reference) => {
                let message = format!("a view reads tables of its own pool, and {reference} is elsewhere");
                ControlFlow::Break(error::wrap(Error::invalid(message)))
            }
            Err(error) => ControlFlow::Break(error),
        }
    });
    match visited {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Returns the names of the relations in `public` that the query reads.
fn names_in_public(query: &Query) -> Result<Vec<String>> {
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query.clone()))));
    let references = resolve_table_references(&statement, true)?.0;
    let in_public = references.iter().filter(|reference| reference.schema().is_none());
    Ok(in_public.map(|reference| reference.table().to_string()).collect())
}

fn text(query: &Query, name: &ObjectName, columns: &[&Ident]) -> String {
    let Some(alias) = name.0.last().filter(|_| !columns.is_empty()) else { return query.to_string() };
    let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
    format!("SELECT * FROM ({query}) AS {alias} ({})", columns.join(", "))
}

fn not_kept() -> DataFusionError {
    let error = Error::invalid("this query cannot be kept as a text that means the same");
    error::wrap(error.advise("write it in another way, or make the view TEMPORARY"))
}

//! Refuses `t.a` where two tables of one FROM are called `t` in different schemas: the engine would take the first.

use super::headers::normal;
use super::refusal;
use crate::session::SCHEMA;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
    Visit, Visitor,
};
use std::ops::ControlFlow;

/// Checks the names that a SELECT has for columns.
///
/// # Errors
/// When a name may be of either of two tables.
pub(super) fn check(select: &Select, lowers: bool) -> Result<()> {
    let tables: Vec<Vec<String>> =
        select.from.iter().flat_map(tables).map(|name| from_the_end(name, lowers)).collect();
    let names = tables.iter().enumerate().filter_map(|(place, table)| {
        let is_other = |other: &Vec<String>| {
            other.first() == table.first() && other.iter().zip(table).any(|(theirs, ours)| theirs != ours)
        };
        tables[..place].iter().any(is_other).then(|| table.first().cloned())?
    });
    let mut uses = Uses { names: names.collect(), lowers };
    if uses.names.is_empty() {
        return Ok(());
    }
    for item in &select.projection {
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
            && let [table] = name.0.as_slice()
            && let Some(table) = table.as_ident()
        {
            uses.check(&normal(table, lowers))?;
        }
    }
    match select.visit(&mut uses) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The tables of a FROM that have no other name.
fn tables(from: &TableWithJoins) -> impl Iterator<Item = &ObjectName> {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    factors.filter_map(|factor| match factor {
        TableFactor::Table { name, alias: None, args: None, .. } => Some(name),
        _ => None,
    })
}

/// The parts of a table's name: the table, its schema, and the catalog if it is written.
fn from_the_end(name: &ObjectName, lowers: bool) -> Vec<String> {
    let parts = name.0.iter().rev().filter_map(|part| part.as_ident());
    let mut parts: Vec<String> = parts.map(|part| normal(part, lowers)).collect();
    if parts.len() == 1 {
        parts.push(SCHEMA.to_string());
    }
    parts
}

struct Uses {
    /// Of two tables.
    names: Vec<String>,
    lowers: bool,
}

impl Uses {
    fn check(&self, table: &str) -> Result<()> {
        match self.names.iter().any(|name| name == table) {
            true => {
                Err(refusal(&format!("{table} may be either of two tables"), "give them other names with AS"))
            }
            false => Ok(()),
        }
    }
}

impl Visitor for Uses {
    type Break = DataFusionError;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<DataFusionError> {
        match expr {
            Expr::CompoundIdentifier(parts) if parts.len() == 2 => {
                super::flow(self.check(&normal(&parts[0], self.lowers)))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

//! Refuses what may be either of two tables of one FROM that are called `t` in different schemas: `t` among the tables, and
//! `t.a` among the columns. The engine would take the first that fits.

use super::headers::normal;
use super::refusal;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins,
    Visit, Visitor,
};
use std::ops::ControlFlow;

/// Checks the names of tables and columns in a SELECT.
///
/// # Errors
/// When a name may be of either of two tables.
pub(super) fn check(select: &Select, lowers: bool) -> Result<()> {
    let tables: Vec<Vec<String>> =
        select.from.iter().flat_map(tables).map(|name| from_the_end(name, lowers)).collect();
    let mut uses = Uses { names: Vec::new(), lowers };
    for (place, table) in tables.iter().enumerate() {
        let Some(name) = table.first() else { continue };
        let alike = tables[..place].iter().filter(|other| other.first() == Some(name));
        for other in alike {
            let is_bare = table.len() != other.len() && table.len().min(other.len()) == 1;
            let differs = table.iter().zip(other).any(|(ours, theirs)| ours != theirs);
            if is_bare || differs {
                uses.names.push(name.clone());
            }
            if is_bare {
                uses.check(name)?;
            }
        }
    }
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

/// The parts of a table's name: the table, and its schema and catalog where they are written.
fn from_the_end(name: &ObjectName, lowers: bool) -> Vec<String> {
    let parts = name.0.iter().rev().filter_map(|part| part.as_ident());
    parts.map(|part| normal(part, lowers)).collect()
}

struct Uses {
    /// Names that two tables of the FROM have in different schemas.
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

//! Refuses ambiguous names: if one FROM has two tables called `t` in different schemas, the table name `t` and a column
//! `t.a` may refer to either. DataFusion 55.2 would take the first one.

use super::headers::normal;
use super::refusal;
use super::walk::Look;
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
    TableWithJoins, Visitor, VisitorMut,
};
use farpool_model::SchemaName;
use std::ops::ControlFlow;

/// Checks the names of tables and columns in a SELECT.
///
/// # Errors
/// Fails if a name may refer to either of two tables.
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
    match select.look(&mut uses) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Returns the tables of a FROM that have no alias.
fn tables(from: &TableWithJoins) -> impl Iterator<Item = &ObjectName> {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
    factors.filter_map(|factor| match factor {
        TableFactor::Table { name, alias: None, args: None, .. } => Some(name),
        _ => None,
    })
}

/// Returns the parts of a table's name in reverse order: the table; then its schema and its catalog, as far as they are
/// written.
fn from_the_end(name: &ObjectName, lowers: bool) -> Vec<String> {
    let parts = name.0.iter().rev().filter_map(|part| part.as_ident());
    parts.map(|part| normal(part, lowers)).collect()
}

/// Refuses `s.t.a` within a query that reads another table `t`, named without its schema: the engine would take it for
/// a column of that table, even if an enclosing query reads `s.t`.
pub(super) struct Scopes {
    /// For each enclosing query, the names of its tables, with their parts in reverse order.
    tables: Vec<Vec<Vec<String>>>,
    lowers: bool,
}

impl Scopes {
    pub fn new(lowers: bool) -> Self {
        Scopes { tables: Vec::new(), lowers }
    }

    fn check(&self, schema: &str, table: &str) -> Result<()> {
        for tables in self.tables.iter().rev() {
            let alike = || tables.iter().filter(|names| names.first().is_some_and(|name| name == table));
            if alike().any(|names| names.get(1).is_some_and(|name| name == schema)) {
                return Ok(());
            }
            if schema != SchemaName::PUBLIC && alike().any(|names| names.len() == 1) {
                let what = format!("{schema}.{table} is named where {table} is another table");
                return Err(refusal(&what, "give one of them another name with AS"));
            }
        }
        Ok(())
    }
}

impl VisitorMut for Scopes {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        let mut selects = Vec::new();
        selects_of(&query.body, &mut selects);
        let names = selects.into_iter().flat_map(|select| &select.from).flat_map(tables);
        self.tables.push(names.map(|name| from_the_end(name, self.lowers)).collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<DataFusionError> {
        self.tables.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        match expr {
            Expr::CompoundIdentifier(parts) if parts.len() == 3 => {
                super::flow(self.check(&normal(&parts[0], self.lowers), &normal(&parts[1], self.lowers)))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Collects the SELECTs of a query, without those of subqueries.
fn selects_of<'a>(body: &'a SetExpr, found: &mut Vec<&'a Select>) {
    match body {
        SetExpr::Select(select) => found.push(select),
        SetExpr::SetOperation { left, right, .. } => {
            selects_of(left, found);
            selects_of(right, found);
        }
        _ => {}
    }
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

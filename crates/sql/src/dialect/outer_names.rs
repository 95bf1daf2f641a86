//! Renames outer tables whose name is also the name of a column of an inner table. In `SELECT … FROM dept WHERE EXISTS
//! (SELECT … FROM emp WHERE emp.dept = dept.id)`, DataFusion 55.2 takes `dept.id` for a field of the column `emp.dept`;
//! by the standard, the table takes precedence. If planning fails because of such a field, or the plan reads one, outer
//! tables that inner queries refer to get an alias that is no column's name.

use super::walk::Walk;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    Expr as ParsedExpr, Ident, ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableAlias, TableFactor, TableWithJoins, VisitorMut,
};
use std::ops::ControlFlow;

/// Returns whether the error reports a field of a column that is not a struct.
pub(super) fn is_cause(error: &DataFusionError) -> bool {
    let text = error.to_string();
    text.contains("Cannot access field at argument") || text.contains("could not parse compound identifier")
}

/// If the plan reads a field of a column that is not a struct, returns the error for it: the planner leaves this error
/// to the analyzer, which comes later.
pub(super) fn error_in(plan: &LogicalPlan) -> Result<Option<DataFusionError>> {
    let mut found = None;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr
                    && function.func.name() == "get_field"
                    && let Err(error) = expr.get_type(&merge_schema(&plan.inputs()))
                    && is_cause(&error)
                {
                    found = Some(error);
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// Renames those tables whose names inner queries use.
#[derive(Default)]
pub(super) struct Rename {
    count: usize,
    pub done: bool,
}

impl VisitorMut for Rename {
    type Break = DataFusionError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        for Ident { value: name, .. } in names(select) {
            let mut probe = Within { name: &name, new: None, depth: 0, hidden_at: Vec::new(), found: false };
            let visited = select.walk(&mut probe);
            debug_assert!(visited.is_continue(), "the visitor never breaks");
            if !probe.found || name.contains(' ') {
                continue;
            }
            self.count += 1;
            self.done = true;
            let new = format!("{name} ({})", self.count);
            select.from.iter_mut().for_each(|tables| rename(tables, &name, &new));
            let mut within =
                Within { name: &name, new: Some(&new), depth: 0, hidden_at: Vec::new(), found: false };
            let visited = select.walk(&mut within);
            debug_assert!(visited.is_continue(), "the visitor never breaks");
        }
        ControlFlow::Continue(())
    }
}

/// Returns the names by which columns of the tables in FROM are qualified.
pub(super) fn names(select: &Select) -> Vec<Ident> {
    let mut found = Vec::new();
    select.from.iter().for_each(|tables| collect(tables, &mut found));
    found
}

fn collect(tables: &TableWithJoins, found: &mut Vec<Ident>) {
    let joined = tables.joins.iter().map(|join| &join.relation);
    for factor in std::iter::once(&tables.relation).chain(joined) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => collect(table_with_joins, found),
            factor => found.extend(name_of(factor)),
        }
    }
}

fn name_of(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, alias: None, args: None, .. } => match name.0.last() {
            Some(ObjectNamePart::Identifier(ident)) => Some(ident.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn rename(tables: &mut TableWithJoins, name: &str, new: &str) {
    let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut tables.relation).chain(joined) {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            rename(table_with_joins, name, new);
            continue;
        }
        if name_of(factor).is_none_or(|ident| ident.value != name) {
            continue;
        }
        if let TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::NestedJoin { alias, .. } = factor
        {
            let ident = Ident::with_quote('"', new);
            match alias {
                Some(alias) => alias.name = ident,
                None => {
                    *alias = Some(TableAlias { explicit: true, name: ident, columns: Vec::new(), at: None });
                }
            }
        }
    }
}

/// Finds or renames the uses of a table's name, except in inner queries that have a table of the same name themselves.
struct Within<'a> {
    name: &'a str,
    new: Option<&'a str>,
    depth: usize,
    /// For each inner query around the visited position that has a table of this name: its nesting depth.
    hidden_at: Vec<usize>,
    /// Whether an inner query uses the table's name.
    found: bool,
}

impl VisitorMut for Within<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        if let SetExpr::Select(select) = &*query.body
            && names(select).iter().any(|name| name.value == self.name)
        {
            self.hidden_at.push(self.depth);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        if self.hidden_at.last() == Some(&self.depth) {
            self.hidden_at.pop();
        }
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if !self.hidden_at.is_empty() {
            return ControlFlow::Continue(());
        }
        for item in &mut select.projection {
            if let (SelectItem::QualifiedWildcard(kind, _), Some(new)) = (item, self.new)
                && let SelectItemQualifiedWildcardKind::ObjectName(name) = kind
                && let [ObjectNamePart::Identifier(ident)] = name.0.as_mut_slice()
                && ident.value == self.name
            {
                *ident = Ident::with_quote('"', new);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut ParsedExpr) -> ControlFlow<()> {
        if let ParsedExpr::CompoundIdentifier(parts) = expr
            && parts.len() == 2
            && parts[0].value == self.name
            && self.hidden_at.is_empty()
        {
            self.found |= self.depth > 0;
            if let Some(new) = self.new {
                parts[0] = Ident::with_quote('"', new);
            }
        }
        ControlFlow::Continue(())
    }
}

//! Rewrites the names of the join keys of USING and NATURAL. Before planning, these joins are marked with numbers. For
//! each of them, the planner reports which columns of its tables get other names ([`crate::using`]). The SELECT is then
//! rewritten to use these names instead of `t.key`, while its result columns keep their old names; `t.*` is expanded,
//! and `*` excludes the new names.

use super::headers::normal;
use super::outer_names::names;
use super::visit;
use super::walk::Walk;
use crate::using::{Found, Table, mark};
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, OrderBy, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Marks the joins with merged keys (USING, NATURAL) with numbers; returns how many there are.
pub(super) fn marked(statement: &mut Statement) -> Result<usize> {
    let mut marks = Marks { count: 0 };
    visit(statement, &mut marks)?;
    Ok(marks.count)
}

/// Rewrites the names of the join keys that `found` reports, for the join that it reports.
pub(super) fn rewrite(statement: &mut Statement, found: &Found, lowers: bool) -> Result<()> {
    visit(statement, &mut Rewrite { found, lowers })
}

struct Marks {
    count: usize,
}

impl Marks {
    fn within(&mut self, tables: &mut TableWithJoins) {
        let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut tables.relation).chain(joined) {
            if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
                self.within(table_with_joins);
            }
        }
        for join in &mut tables.joins {
            self.count += usize::from(mark(join, self.count));
        }
    }
}

impl VisitorMut for Marks {
    type Break = DataFusionError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        select.from.iter_mut().for_each(|tables| self.within(tables));
        ControlFlow::Continue(())
    }
}

struct Rewrite<'a> {
    found: &'a Found,
    lowers: bool,
}

impl VisitorMut for Rewrite<'_> {
    type Break = DataFusionError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<DataFusionError> {
        if let SetExpr::Select(select) = &mut *query.body {
            self.select(select, query.order_by.as_mut());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        self.select(select, None);
        ControlFlow::Continue(())
    }
}

impl Rewrite<'_> {
    /// Rewrites a SELECT, and the ORDER BY of its query, if its FROM contains the join.
    fn select(&self, select: &mut Select, order_by: Option<&mut OrderBy>) {
        let mut keys = Keys { rewrite: self, hidden: Vec::new() };
        let mut from = std::mem::take(&mut select.from);
        let mut is_after = false;
        for tables in &mut from {
            match is_after {
                true => keys.visit(tables),
                false => is_after = keys.within(tables),
            }
        }
        if is_after {
            self.columns(select);
            keys.visit(select);
            order_by.into_iter().for_each(|order| keys.visit(order));
        }
        select.from = from;
    }

    fn normal(&self, ident: &Ident) -> String {
        normal(ident, self.lowers)
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.found.tables.iter().find(|table| table.name == name)
    }

    /// Returns the new name of a qualified column such as `t.key`; `None` if it keeps its name.
    fn renamed(&self, path: &[Ident]) -> Option<&str> {
        let [.., table, column] = path else { return None };
        let (table, column) = (self.table(&self.normal(table))?, self.normal(column));
        table.columns.iter().find_map(|(old, new)| new.as_deref().filter(|_| *old == column))
    }

    /// Expands `t.*`, excludes the new names from `*`, and gives result columns their old names as aliases.
    fn columns(&self, select: &mut Select) {
        let mut taken: HashSet<String> = HashSet::new();
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => taken.insert(self.normal(alias)),
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => taken.insert(self.normal(name)),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) if self.renamed(path).is_none() => {
                    taken.insert(path.last().map_or_else(String::new, |name| self.normal(name)))
                }
                _ => false,
            };
        }
        let items = std::mem::take(&mut select.projection);
        for item in items {
            match item {
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) if self.renamed(&path).is_some() => {
                    let name = path.last().map_or_else(String::new, |name| self.normal(name));
                    let alias = free(name, &mut taken);
                    select
                        .projection
                        .push(SelectItem::ExprWithAlias { expr: Expr::CompoundIdentifier(path), alias });
                }
                SelectItem::QualifiedWildcard(kind, options) => match self.written_out(&kind, &options) {
                    Some(columns) => {
                        for (path, name) in columns {
                            let alias = free(name, &mut taken);
                            let expr = Expr::CompoundIdentifier(path);
                            select.projection.push(SelectItem::ExprWithAlias { expr, alias });
                        }
                    }
                    None => select.projection.push(SelectItem::QualifiedWildcard(kind, options)),
                },
                SelectItem::Wildcard(mut options) => {
                    self.leave_out(&mut options);
                    select.projection.push(SelectItem::Wildcard(options));
                }
                other => select.projection.push(other),
            }
        }
    }

    /// If `t` has keys with new names, returns the columns of `t.*`; otherwise `None`.
    fn written_out(
        &self,
        kind: &SelectItemQualifiedWildcardKind,
        options: &WildcardAdditionalOptions,
    ) -> Option<Vec<(Vec<Ident>, String)>> {
        let SelectItemQualifiedWildcardKind::ObjectName(name) = kind else { return None };
        let path: Vec<Ident> = name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
        let table = self.table(&self.normal(path.last()?))?;
        if options.opt_replace.is_some() || options.opt_rename.is_some() || options.opt_ilike.is_some() {
            return None;
        }
        let mut left_out: Vec<String> = match &options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => vec![self.last(name)],
            Some(ExcludeSelectItem::Multiple(names)) => names.iter().map(|name| self.last(name)).collect(),
            None => Vec::new(),
        };
        if let Some(except) = &options.opt_except {
            let idents = std::iter::once(&except.first_element).chain(&except.additional_elements);
            left_out.extend(idents.map(|ident| self.normal(ident)));
        }
        let columns = table.columns.iter().filter(|(name, _)| !left_out.contains(name));
        Some(
            columns
                .map(|(name, _)| {
                    let column = Ident::with_quote('"', name.as_str());
                    (path.iter().cloned().chain([column]).collect(), name.clone())
                })
                .collect(),
        )
    }

    fn last(&self, name: &ObjectName) -> String {
        let ident = name.0.last().and_then(|part| part.as_ident());
        ident.map_or_else(String::new, |ident| self.normal(ident))
    }

    fn leave_out(&self, options: &mut WildcardAdditionalOptions) {
        let new =
            self.found.tables.iter().flat_map(|table| &table.columns).filter_map(|(_, new)| new.as_ref());
        let new = new.map(|name| ObjectName::from(vec![Ident::with_quote('"', name.as_str())]));
        let old = match options.opt_exclude.take() {
            Some(ExcludeSelectItem::Single(name)) => vec![name],
            Some(ExcludeSelectItem::Multiple(names)) => names,
            None => Vec::new(),
        };
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(old.into_iter().chain(new).collect()));
    }
}

/// Returns `name`; with a number appended if the name is taken.
fn free(name: String, taken: &mut HashSet<String>) -> Ident {
    let numbered = (1_u32..).map(|n| format!("{name}_{n}"));
    let free = [name.clone()].into_iter().chain(numbered).find(|name| !taken.contains(name));
    let free = free.unwrap_or(name);
    taken.insert(free.clone());
    Ident::with_quote('"', free)
}

/// Replaces the old names of keys by the new ones.
struct Keys<'a> {
    rewrite: &'a Rewrite<'a>,
    /// For each inner query around the visited position, its tables; their names hide those of the join's tables.
    hidden: Vec<Vec<String>>,
}

impl Keys<'_> {
    fn visit(&mut self, node: &mut impl VisitMut) {
        let visited = node.walk(self);
        debug_assert!(visited.is_continue(), "the visitor never breaks");
    }

    /// If these tables contain the join, marks it as rewritten and rewrites the expressions after it. Returns whether
    /// they contain it.
    fn within(&mut self, tables: &mut TableWithJoins) -> bool {
        let mut is_after = self.in_brackets(&mut tables.relation);
        for join in &mut tables.joins {
            if is_after {
                self.visit(join);
            } else if self.in_brackets(&mut join.relation) {
                is_after = true;
                self.visit(&mut join.join_operator);
            } else {
                is_after = self.rewrite.found.settle(join);
            }
        }
        is_after
    }

    fn in_brackets(&mut self, factor: &mut TableFactor) -> bool {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let is_within = self.within(table_with_joins);
                is_within && alias.is_none()
            }
            _ => false,
        }
    }

    fn tables_of(&self, select: &Select) -> Vec<String> {
        names(select).iter().map(|name| self.rewrite.normal(name)).collect()
    }
}

impl VisitorMut for Keys<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = match &*query.body {
            SetExpr::Select(select) => self.tables_of(select),
            _ => Vec::new(),
        };
        self.hidden.push(tables);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let tables = self.tables_of(select);
        self.hidden.push(tables);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(path) = expr
            && let Some(new) = self.rewrite.renamed(path)
            && let [.., table, _] = path.as_slice()
            && !self.hidden.iter().flatten().any(|name| *name == self.rewrite.normal(table))
            && let Some(column) = path.last_mut()
        {
            *column = Ident::with_quote('"', new);
        }
        ControlFlow::Continue(())
    }
}

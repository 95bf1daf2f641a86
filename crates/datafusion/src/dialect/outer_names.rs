//! Names of outer tables that are also columns of an inner one: in
//! `SELECT … FROM dept WHERE EXISTS (SELECT … FROM emp WHERE emp.dept = dept.id)`, DataFusion takes `dept.id` for
//! a field of the column `emp.dept`. By the standard, a table of that name comes first. Where planning has
//! failed for such a field, tables that inner queries name get an alias that no column has.

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableAlias, TableFactor, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Whether planning failed because a column that is not a struct has no fields.
pub(super) fn is_cause(error: &DataFusionError) -> bool {
    let text = error.to_string();
    text.contains("Cannot access field at argument") || text.contains("could not parse compound identifier")
}

/// Renames tables whose names are used in inner queries.
#[derive(Default)]
pub(super) struct Rename {
    count: usize,
    pub done: bool,
}

impl VisitorMut for Rename {
    type Break = DataFusionError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<DataFusionError> {
        for name in names(select) {
            let mut probe = Within { name: &name, new: None, depth: 0, hidden_at: Vec::new(), found: false };
            let visited = select.visit(&mut probe);
            debug_assert!(visited.is_continue(), "the visitor never breaks");
            if !probe.found || name.contains(' ') {
                continue;
            }
            self.count += 1;
            self.done = true;
            let new = format!("{name} ({})", self.count);
            rename(select, &name, &new);
            let mut within =
                Within { name: &name, new: Some(&new), depth: 0, hidden_at: Vec::new(), found: false };
            let visited = select.visit(&mut within);
            debug_assert!(visited.is_continue(), "the visitor never breaks");
        }
        ControlFlow::Continue(())
    }
}

/// Returns the names by which columns of the tables in FROM are qualified.
fn names(select: &Select) -> Vec<String> {
    let factors = select.from.iter().flat_map(|tables| {
        std::iter::once(&tables.relation).chain(tables.joins.iter().map(|join| &join.relation))
    });
    factors.filter_map(name_of).collect()
}

fn name_of(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.value.clone())
        }
        TableFactor::Table { name, alias: None, args: None, .. } => match name.0.last() {
            Some(ObjectNamePart::Identifier(ident)) => Some(ident.value.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn rename(select: &mut Select, name: &str, new: &str) {
    for tables in &mut select.from {
        let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut tables.relation).chain(joined) {
            if name_of(factor).as_deref() != Some(name) {
                continue;
            }
            if let TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } = factor {
                let ident = Ident::with_quote('"', new);
                match alias {
                    Some(alias) => alias.name = ident,
                    None => {
                        *alias =
                            Some(TableAlias { explicit: true, name: ident, columns: Vec::new(), at: None });
                    }
                }
            }
        }
    }
}

/// Finds, or renames, uses of a table's name, but in inner queries that have a table of that name themselves.
struct Within<'a> {
    name: &'a str,
    new: Option<&'a str>,
    depth: usize,
    /// Depths of inner queries that hide the name.
    hidden_at: Vec<usize>,
    /// Whether an inner query uses the name.
    found: bool,
}

impl VisitorMut for Within<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        if let SetExpr::Select(select) = &*query.body
            && names(select).iter().any(|name| name == self.name)
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

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expr
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

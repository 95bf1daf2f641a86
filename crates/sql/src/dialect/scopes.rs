//! Scopes of WITH. A query may define a name that an outer WITH has already; within the query, the new definition hides
//! the outer one, but the new definition itself still refers to the outer one. DataFusion 55.2 refuses the second
//! definition, so that inner names are renamed here.

use super::walk::Walk;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Statement, TableAlias, TableFactor, VisitorMut,
};
use std::ops::ControlFlow;

/// Renames WITH queries that hide WITH queries of an outer query.
pub(super) fn apply(statement: &mut Statement, lowers: bool) {
    let mut scopes = Scopes { lowers, queries: Vec::new(), count: 0 };
    let visited = statement.walk(&mut scopes);
    debug_assert!(visited.is_continue(), "the visitor never breaks");
}

/// A query that encloses the visited position.
#[derive(Default)]
struct Scope {
    /// Names of its WITH queries, with their new names.
    names: Vec<(String, String)>,
    /// Number of these names that are visible at the visited position.
    visible: usize,
    /// Number of its WITH queries that have not been visited yet.
    pending: usize,
}

struct Scopes {
    lowers: bool,
    queries: Vec<Scope>,
    count: usize,
}

impl Scopes {
    fn normal(&self, ident: &Ident) -> String {
        match ident.quote_style.is_none() && self.lowers {
            true => ident.value.to_ascii_lowercase(),
            false => ident.value.clone(),
        }
    }

    fn found(&self, name: &str) -> Option<&str> {
        let visible = |scope: &'_ Scope| scope.visible;
        self.queries.iter().rev().find_map(|scope| {
            let names = &scope.names[..visible(scope).min(scope.names.len())];
            names.iter().rev().find(|(known, _)| known == name).map(|(_, new)| new.as_str())
        })
    }
}

impl VisitorMut for Scopes {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut scope = Scope::default();
        if let Some(with) = &mut query.with {
            for cte in &mut with.cte_tables {
                let name = self.normal(&cte.alias.name);
                let new = match self.found(&name) {
                    Some(_) => {
                        self.count += 1;
                        format!("{name} ({})", self.count)
                    }
                    None => name.clone(),
                };
                if new != name {
                    cte.alias.name = Ident::with_quote('"', new.as_str());
                }
                scope.names.push((name, new));
            }
            scope.pending = scope.names.len();
            scope.visible = if with.recursive { scope.names.len() } else { 0 };
        }
        self.queries.push(scope);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries.pop();
        if let Some(scope) = self.queries.last_mut()
            && scope.pending > 0
        {
            // The query that has ended was the next WITH query, because these are visited before all other parts.
            scope.pending -= 1;
            scope.visible = scope.visible.max(scope.names.len() - scope.pending);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = table else {
            return ControlFlow::Continue(());
        };
        let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else {
            return ControlFlow::Continue(());
        };
        let old = self.normal(ident);
        if let Some(new) = self.found(&old)
            && new != old
        {
            let ident = ident.clone();
            let new = ObjectName::from(vec![Ident::with_quote('"', new)]);
            if alias.is_none() {
                *alias = Some(TableAlias { explicit: true, name: ident, columns: Vec::new(), at: None });
            }
            *name = new;
        }
        ControlFlow::Continue(())
    }
}

//! Limits statements whose WITH queries refer to one another. DataFusion 55.2 plans a WITH query again for each
//! reference to it. If each query of a chain reads the previous one twice, the plan has exponential size, and planning
//! would take exponential time before there is a plan whose operators could be counted.

use super::walk::Look;
use crate::error;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, Visit, Visitor};
use farpool_model::{Error, limits};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Refuses a statement that would read too many tables when each reference to a WITH query is expanded.
///
/// # Errors
/// `OverLimit` if there are too many.
pub(super) fn check(statement: &impl Visit) -> Result<()> {
    let mut relations = Relations { open: vec![Level::default()] };
    let visited = statement.look(&mut relations);
    debug_assert!(visited.is_continue(), "the visitor never breaks");
    let count = relations.open.first().map_or(0, |level| level.relations);
    match count <= limits::SQL_RELATIONS_MAX {
        true => Ok(()),
        false => {
            let most = limits::SQL_RELATIONS_MAX;
            let message = format!(
                "the statement reads more than {most} tables, with each WITH query as often as it is named"
            );
            let advice = "keep a part of it as a table (CREATE TABLE … AS), and read that";
            Err(error::wrap(Error::over_limit(message).advise(advice)))
        }
    }
}

/// Counts the tables and other relations of the queries around the visited position.
struct Relations {
    open: Vec<Level>,
}

#[derive(Default)]
struct Level {
    relations: usize,
    /// Names of the WITH queries that have not been visited yet, in reverse order. WITH queries are visited before the
    /// body of their query.
    coming: Vec<String>,
    /// For each WITH query that has been visited: its number of relations, with references to other WITH queries
    /// expanded.
    known: HashMap<String, usize>,
}

impl Visitor for Relations {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let names = query.with.iter().flat_map(|with| &with.cte_tables);
        let coming = names.map(|cte| cte.alias.name.value.to_lowercase()).rev().collect();
        self.open.push(Level { coming, ..Level::default() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        let relations = self.open.pop().map_or(0, |level| level.relations);
        if let Some(around) = self.open.last_mut() {
            match around.coming.pop() {
                Some(name) => {
                    around.known.insert(name, relations);
                }
                None => around.relations = around.relations.saturating_add(relations),
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let name = relation.to_string().to_lowercase();
        let known = self.open.iter().rev().find_map(|level| level.known.get(name.trim_matches('"'))).copied();
        if let Some(level) = self.open.last_mut() {
            level.relations = level.relations.saturating_add(known.unwrap_or(1));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Grammar;
    use datafusion::sql::sqlparser::parser::Parser;

    fn is_refused(text: &str) -> bool {
        check(&Parser::parse_sql(&Grammar, text).unwrap().remove(0)).is_err()
    }

    fn doubled(count: usize, each: &str) -> String {
        let more = (1..count).map(|i| format!(", c{i} AS ({})", each.replace('?', &format!("c{}", i - 1))));
        format!("WITH c0 AS (SELECT * FROM t){} SELECT * FROM C{}", more.collect::<String>(), count - 1)
    }

    #[test]
    fn queries_that_double_are_refused_before_they_are_planned() {
        let union = "SELECT * FROM ? UNION ALL SELECT * FROM ?";
        assert!(!is_refused(&doubled(12, union)));
        assert!(is_refused(&doubled(24, union)));
        assert!(is_refused(&doubled(100, "SELECT * FROM ? a JOIN ? b ON a.x = b.x")));
        assert!(is_refused(&doubled(24, "SELECT (SELECT max(x) FROM ?) FROM ?")));
        assert!(is_refused(&format!("SELECT * FROM ({})", doubled(24, union))));
        assert!(!is_refused(&doubled(200, "SELECT * FROM ?")));
        assert!(!is_refused(
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r, r"
        ));
        // A name within another WITH refers to that WITH.
        assert!(!is_refused("WITH a AS (WITH a AS (SELECT 1) SELECT * FROM a) SELECT * FROM a"));
    }
}

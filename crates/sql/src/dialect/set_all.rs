//! `INTERSECT ALL` and `EXCEPT ALL`. DataFusion 55.2 returns each row of the left side once for every equal row of the
//! right side, or not at all (apache/datafusion#12955). In SQL, a row occurs in INTERSECT ALL as often as on the side
//! where it is rarer, and in EXCEPT ALL as often as the difference of its counts.
//!
//! A set operation is rewritten to a query over both sides, whose rows are tagged with their side. It has a filter
//! condition that [`crate::set_all`] replaces when the columns are known. This rule is obsolete once upstream counts
//! rows.

use super::sql;
use super::walk::Walk;
use crate::set_all::Kept;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    Query, SetExpr, SetOperator, SetQuantifier, TableFactor, Values, VisitorMut,
};
use std::ops::ControlFlow;

/// Rewrites the set operations of the query; those of nested queries are visited separately.
pub(super) fn apply(query: &mut Query) -> Result<()> {
    rewrite(&mut query.body)
}

fn rewrite(body: &mut SetExpr) -> Result<()> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return Ok(()) };
    rewrite(left)?;
    rewrite(right)?;
    let kept = match (op, set_quantifier) {
        (SetOperator::Intersect, SetQuantifier::All) => Kept::InBoth,
        (SetOperator::Except | SetOperator::Minus, SetQuantifier::All) => Kept::LeftOnly,
        _ => return Ok(()),
    };
    let nothing = || Values { explicit_row: false, value_keyword: false, rows: Vec::new() };
    let empty = || Box::new(SetExpr::Values(nothing()));
    let sides = [std::mem::replace(left, empty()), std::mem::replace(right, empty())];
    let text = format!(
        "SELECT * EXCLUDE (\"{SIDE}\") FROM (SELECT *, 0 AS \"{SIDE}\" FROM (SELECT 0) AS \"{LEFT}\" \
         UNION ALL SELECT *, 1 AS \"{SIDE}\" FROM (SELECT 1) AS \"{RIGHT}\") AS \":both\" \
         WHERE {}(\"{SIDE}\")",
        kept.function()
    );
    let mut made = sql::query(&text)?;
    let visited = made.walk(&mut Sides(sides.map(Some)));
    debug_assert!(visited.is_continue(), "the visitor never breaks");
    *body = *made.body;
    Ok(())
}

const SIDE: &str = ":side";
const LEFT: &str = ":left";
const RIGHT: &str = ":right";

/// Inserts the two sides in place of the placeholder tables of the replacement text.
struct Sides([Option<Box<SetExpr>>; 2]);

impl VisitorMut for Sides {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Derived { subquery, alias: Some(alias), .. } = table else {
            return ControlFlow::Continue(());
        };
        let side = match alias.name.value.as_str() {
            LEFT => 0,
            RIGHT => 1,
            _ => return ControlFlow::Continue(()),
        };
        if let Some(body) = self.0[side].take() {
            subquery.body = body;
        }
        ControlFlow::Continue(())
    }
}

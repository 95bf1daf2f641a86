//! Rewrites `FETCH FIRST n ROWS ONLY` (SQL:2008, 7.13), which DataFusion 55.2 does not plan, to `LIMIT n`.

use super::refusal;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{Expr, LimitClause, Query, Value};

pub(super) fn apply(query: &mut Query) -> Result<()> {
    let Some(fetch) = query.fetch.take() else { return Ok(()) };
    if fetch.with_ties || fetch.percent {
        let advice = "use FETCH FIRST n ROWS ONLY, or a condition on rank() or percent_rank()";
        return Err(refusal("FETCH FIRST with PERCENT or WITH TIES is not done", advice));
    }
    let one = || Expr::value(Value::Number("1".to_string(), false));
    let rows = fetch.quantity.unwrap_or_else(one);
    let (offset, limit_by) = match query.limit_clause.take() {
        None => (None, Vec::new()),
        Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) => (offset, limit_by),
        Some(LimitClause::LimitOffset { .. } | LimitClause::OffsetCommaLimit { .. }) => {
            return Err(refusal("LIMIT and FETCH FIRST say the same", "leave one of them out"));
        }
    };
    query.limit_clause = Some(LimitClause::LimitOffset { limit: Some(rows), offset, limit_by });
    Ok(())
}

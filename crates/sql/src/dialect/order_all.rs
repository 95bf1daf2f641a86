//! Rewrites `ORDER BY ALL`, which DataFusion 55.2 does not plan, to an ORDER BY of each column of the result, from left
//! to right, as in DuckDB.

use datafusion::sql::sqlparser::ast::{
    Expr, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, SelectItem, Value,
};

/// Rewrites ORDER BY ALL if the SELECT list has no wildcard, so that the number of columns is known.
pub(super) fn apply(query: &mut Query) {
    let columns = super::headers::leftmost(query).map_or(0, |select| {
        let is_one =
            |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
        match select.projection.iter().all(is_one) {
            true => select.projection.len(),
            false => 0,
        }
    });
    if columns > 0
        && let Some(options) = options(query)
    {
        write_out(query, options, columns);
    }
}

/// Returns the options of ORDER BY ALL, if the query has it.
fn options(query: &Query) -> Option<OrderByOptions> {
    match &query.order_by {
        Some(OrderBy { kind: OrderByKind::All(options), .. }) => Some(*options),
        _ => None,
    }
}

/// Returns whether the query has an ORDER BY ALL over columns whose number only planning can tell (`SELECT *`).
pub(super) fn is_open(query: &Query) -> bool {
    options(query).is_some()
}

/// Rewrites ORDER BY ALL to an ORDER BY of the column numbers from 1 to `columns`.
pub(super) fn write_out_open(query: &mut Query, columns: usize) {
    if let Some(options) = options(query) {
        write_out(query, options, columns);
    }
}

fn write_out(query: &mut Query, options: OrderByOptions, columns: usize) {
    let by = |number: usize| OrderByExpr {
        expr: Expr::value(Value::Number(number.to_string(), false)),
        options,
        with_fill: None,
    };
    query.order_by =
        Some(OrderBy { kind: OrderByKind::Expressions((1..=columns).map(by).collect()), interpolate: None });
}

//! Resolves column numbers within ROLLUP, CUBE and GROUPING SETS, as in `GROUP BY ROLLUP(1, 2)`: DataFusion 55.2
//! supports them in a plain list only.

use super::refusal;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, Value, ValueWithSpan};

pub(super) fn apply(select: &mut Select) -> Result<()> {
    let Select { group_by: GroupByExpr::Expressions(by, _), projection, .. } = select else { return Ok(()) };
    for expr in by {
        if let Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) = expr {
            sets.iter_mut().flatten().try_for_each(|expr| write_out(expr, projection))?;
        }
    }
    Ok(())
}

fn write_out(expr: &mut Expr, projection: &[SelectItem]) -> Result<()> {
    let Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) = expr else { return Ok(()) };
    let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    match place.and_then(|place| projection.get(place)) {
        Some(SelectItem::UnnamedExpr(column) | SelectItem::ExprWithAlias { expr: column, .. }) => {
            *expr = column.clone();
            Ok(())
        }
        _ => Err(refusal(&format!("there is no column {number} in the list"), "name what to group by")),
    }
}

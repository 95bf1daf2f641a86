//! Rewrites `(a, b) IN (SELECT …)` to EXISTS, since DataFusion 55.2 compares a single column only. Three-valued logic
//! applies: rows are equal if all parts are, unequal if one part is unequal, and otherwise the comparison is NULL.

use super::{refusal, rows, sql};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::Expr;

pub(super) fn apply(expr: &mut Expr) -> Result<()> {
    let Expr::InSubquery { expr: left, subquery, negated } = &*expr else { return Ok(()) };
    let Some(parts) = rows::parts(left) else { return Ok(()) };
    if parts.is_empty() {
        return Err(refusal("a row without columns is compared", "name the columns in the brackets"));
    }
    let places = || 0..parts.len();
    let fields: Vec<String> = places().map(|place| format!("\"part {place}\"")).collect();
    let each =
        |condition: &dyn Fn(usize) -> String| places().map(condition).collect::<Vec<_>>().join(" AND ");
    let equal = each(&|place| format!("{} = left_{place}", fields[place]));
    let open = each(&|place| format!("({} = left_{place}) IS NOT FALSE", fields[place]));
    let rows = format!("SELECT 1 FROM ({subquery}) AS \"compared rows\"({})", fields.join(", "));
    let text = format!(
        "(CASE WHEN EXISTS ({rows} WHERE {equal}) THEN true WHEN EXISTS ({rows} WHERE {open}) THEN NULL ELSE false END)"
    );
    let names: Vec<String> = places().map(|place| format!("left_{place}")).collect();
    let named: Vec<(&str, Expr)> = names
        .iter()
        .zip(parts)
        .map(|(name, part)| (name.as_str(), Expr::Nested(Box::new((*part).clone()))))
        .collect();
    let made = sql::expr_with(&text, &named)?;
    *expr = match negated {
        true => sql::expr_with("(NOT within)", &[("within", made)])?,
        false => made,
    };
    Ok(())
}

//! Limits the number of grouping sets: CUBE of `n` columns groups the rows in 2ⁿ ways, all of which are planned and
//! computed.

use crate::error;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, GroupByWithModifier, Select};
use farpool_model::{Error, limits};

/// Refuses a GROUP BY with too many grouping sets.
///
/// # Errors
/// `OverLimit` if there are too many.
pub(super) fn check(select: &Select) -> Result<()> {
    let GroupByExpr::Expressions(by, modifiers) = &select.group_by else { return Ok(()) };
    let listed = by.iter().map(sets).fold(1, usize::saturating_mul);
    let of_all = modifiers.iter().map(|modifier| match modifier {
        GroupByWithModifier::Cube => subsets(by.len()),
        GroupByWithModifier::Rollup => by.len() + 1,
        GroupByWithModifier::GroupingSets(expr) => sets(expr),
        GroupByWithModifier::Totals => 1,
    });
    let count = of_all.fold(listed, usize::saturating_mul);
    match count <= limits::GROUPING_SETS_MAX {
        true => Ok(()),
        false => {
            let most = limits::GROUPING_SETS_MAX;
            let message = format!("GROUP BY has more than {most} grouping sets; CUBE of n columns has 2^n");
            Err(error::wrap(
                Error::over_limit(message).advise("list the sets that are needed: GROUPING SETS ((a, b), …)"),
            ))
        }
    }
}

fn sets(expr: &Expr) -> usize {
    match expr {
        Expr::Cube(columns) => subsets(columns.len()),
        Expr::Rollup(columns) => columns.len() + 1,
        Expr::GroupingSets(sets) => sets.len(),
        _ => 1,
    }
}

fn subsets(columns: usize) -> usize {
    u32::try_from(columns).ok().and_then(|columns| 1_usize.checked_shl(columns)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Grammar;
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::parser::Parser;

    fn is_refused(by: &str) -> bool {
        let text = format!("SELECT 1 FROM t GROUP BY {by}");
        let statement = Parser::parse_sql(&Grammar, &text).unwrap().remove(0);
        let Statement::Query(query) = statement else { panic!("{text}") };
        check(query.body.as_select().unwrap()).is_err()
    }

    #[test]
    fn sets_are_counted() {
        let columns = |count: usize| (0..count).map(|i| format!("c{i}")).collect::<Vec<_>>().join(", ");
        assert!(!is_refused("a, b"));
        assert!(!is_refused(&format!("CUBE({})", columns(12))));
        assert!(is_refused(&format!("CUBE({})", columns(13))));
        assert!(is_refused(&format!("CUBE({})", columns(80))));
        assert!(is_refused(&format!("CUBE({}), CUBE({})", columns(7), columns(6))));
        assert!(is_refused(&format!("{} WITH CUBE", columns(16))));
        assert!(!is_refused(&format!("ROLLUP({})", columns(200))));
        assert!(is_refused(&format!("ROLLUP({0}), ROLLUP({0})", columns(200))));
    }
}

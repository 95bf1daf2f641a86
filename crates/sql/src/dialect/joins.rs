//! Puts joins with USING or NATURAL in brackets, so that [`crate::using`] plans them. Refuses joins without a
//! condition, because DataFusion 55.2 plans them as cross joins, whereas a missing ON is an error in other systems.
//! Names of join keys are rewritten later, when the planner has reported which tables have them
//! ([`super::merged_keys`]).

use super::refusal;
use crate::using::bracket;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{Join, JoinConstraint, JoinOperator, Select, TableFactor};

/// Checks the joins in FROM, and puts those with USING or NATURAL in brackets.
pub(super) fn apply(select: &mut Select) -> Result<()> {
    for tables in &mut select.from {
        tables.joins.iter().try_for_each(check)?;
        bracket(tables);
    }
    Ok(())
}

/// Checks the joins within brackets in FROM.
pub(super) fn in_brackets(table: &TableFactor) -> Result<()> {
    match table {
        TableFactor::NestedJoin { table_with_joins, .. } => table_with_joins.joins.iter().try_for_each(check),
        _ => Ok(()),
    }
}

fn check(join: &Join) -> Result<()> {
    let constraint = match &join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::RightAnti(constraint) => constraint,
        _ => return Ok(()),
    };
    match constraint {
        JoinConstraint::None => {
            let advice = "add ON … or USING (…), or write CROSS JOIN for each row with each";
            Err(refusal(&format!("JOIN {} has no condition", join.relation), advice))
        }
        _ => Ok(()),
    }
}

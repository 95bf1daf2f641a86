//! Rewrites `t SEMI JOIN u` and `t ANTI JOIN u`, which DataFusion 55.2 does not plan, to `LEFT SEMI JOIN` and `LEFT
//! ANTI JOIN`, as in DuckDB.

use datafusion::sql::sqlparser::ast::{Join, JoinOperator, Select, TableFactor};

/// Rewrites joins in FROM.
pub(super) fn apply(select: &mut Select) {
    select.from.iter_mut().flat_map(|tables| &mut tables.joins).for_each(write_out);
}

/// Rewrites joins in brackets.
pub(super) fn in_brackets(table: &mut TableFactor) {
    if let TableFactor::NestedJoin { table_with_joins, .. } = table {
        table_with_joins.joins.iter_mut().for_each(write_out);
    }
}

fn write_out(join: &mut Join) {
    join.join_operator = match join.join_operator.clone() {
        JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint),
        JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint),
        other => other,
    };
}

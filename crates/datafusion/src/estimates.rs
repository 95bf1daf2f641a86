//! Statistics of tables in pools, and of the results of programs (the parts of queries that pools run), in DataFusion's
//! types, for DataFusion's own estimates; joins are estimated in [`crate::joins`].
//!
//! Invariant: no value is marked as exact, because a statement may read a newer version of the table than the described
//! one.

use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use farpool_model::{Expr, Output, Program, TableInfo, cast};
use farpool_planner::estimate;
use farpool_sql::literal;

/// Returns the statistics of a whole table.
pub(crate) fn of_table(info: &TableInfo) -> Statistics {
    let columns = (0..info.schema.fields().len()).map(|index| of_column(index, info)).collect();
    Statistics {
        num_rows: Precision::Inexact(cast::usize_saturating(info.rows)),
        total_byte_size: Precision::Inexact(cast::usize_saturating(info.bytes_plain)),
        column_statistics: columns,
    }
}

/// Returns the estimated statistics of the result of `program`.
pub(crate) fn of_result(program: &Program, info: &TableInfo) -> Statistics {
    let (rows, bytes) = (estimate::rows(program, info), estimate::bytes(program, info));
    // At least one row, because DataFusion would regard the rest of the query as free of cost for an estimate of zero
    // rows.
    let count = rows.ceil().max(1.0) as usize;
    let of_expr = |expr: &Expr| match expr {
        Expr::Column(index) => of_column(*index, info),
        _ => ColumnStatistics::new_unknown(),
    };
    let (columns, is_whole) = match &program.output {
        Output::Rows(rows) => {
            let columns = rows.iter().map(|c| of_expr(&c.expr)).collect::<Vec<_>>();
            (columns, program.filter.is_none() && program.limit.is_none())
        }
        Output::Aggregate { keys, aggregates } => {
            let results = aggregates.iter().map(|_| ColumnStatistics::new_unknown());
            (keys.iter().map(|k| of_expr(&k.expr)).chain(results).collect(), false)
        }
    };
    let whole = Precision::Inexact(cast::usize_saturating(info.rows));
    Statistics {
        num_rows: if is_whole { whole } else { Precision::Inexact(count) },
        total_byte_size: Precision::Inexact(bytes.ceil() as usize),
        column_statistics: columns
            .into_iter()
            .map(|c| if is_whole { c } else { thinned(c, count) })
            .collect(),
    }
}

/// Returns the statistics of one of `partitions` partitions of equal size.
pub(crate) fn share(whole: Statistics, partitions: usize) -> Statistics {
    let divide = |p: Precision<usize>| p.map(|n| n.div_ceil(partitions.max(1))).to_inexact();
    let rows = divide(whole.num_rows);
    let count = rows.get_value().copied().unwrap_or(usize::MAX);
    Statistics {
        num_rows: rows,
        total_byte_size: divide(whole.total_byte_size),
        column_statistics: whole.column_statistics.into_iter().map(|c| thinned(c, count)).collect(),
    }
}

/// Limits the statistics of a column to `rows` remaining rows.
fn thinned(column: ColumnStatistics, rows: usize) -> ColumnStatistics {
    let capped = |p: Precision<usize>| p.map(|n| n.min(rows)).to_inexact();
    ColumnStatistics {
        null_count: capped(column.null_count),
        distinct_count: capped(column.distinct_count),
        byte_size: Precision::Absent,
        ..column.to_inexact()
    }
}

fn of_column(index: usize, info: &TableInfo) -> ColumnStatistics {
    let Some(column) = info.columns.get(index) else { return ColumnStatistics::new_unknown() };
    let value = |literal: &Option<farpool_model::Literal>| -> Precision<ScalarValue> {
        literal.as_ref().and_then(literal::to_scalar).map_or(Precision::Absent, Precision::Inexact)
    };
    let count = |n: u64| Precision::Inexact(cast::usize_saturating(n));
    ColumnStatistics {
        null_count: count(column.null_count),
        min_value: value(&column.min),
        max_value: value(&column.max),
        distinct_count: match (column.distinct_count, column.distinct_estimate) {
            (Some(known), _) | (None, Some(known)) => count(known),
            (None, None) => Precision::Absent,
        },
        ..ColumnStatistics::new_unknown()
    }
}

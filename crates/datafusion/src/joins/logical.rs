//! Estimates numbers of rows and distinct values of logical plans.

use super::kind;
use crate::file::pool_table;
use crate::table::unqualified;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr as Logical, Join, LogicalPlan, TableScan};
use farpool_planner::estimate;
use farpool_planner::joins::estimate::{Estimate, HERE_SELECTIVITY, Known};

/// Estimates the rows of the result of `plan`; `None` if a part of the plan has no estimate.
pub(super) fn of(plan: &LogicalPlan) -> Option<Estimate> {
    match plan {
        LogicalPlan::TableScan(scan) => of_scan(scan),
        LogicalPlan::SubqueryAlias(alias) => of(&alias.input),
        LogicalPlan::Filter(filter) => Some(of(&filter.input)?.filtered(HERE_SELECTIVITY)),
        LogicalPlan::Projection(projection) => {
            let input = of(&projection.input)?;
            let schema = projection.input.schema();
            let columns = projection.expr.iter().map(|e| known(&input, schema, e)).collect();
            Some(Estimate { columns, ..input })
        }
        LogicalPlan::Aggregate(aggregate) => {
            let input = of(&aggregate.input)?;
            let schema = aggregate.input.schema();
            let keys = aggregate.group_expr.iter().map(|e| known(&input, schema, e)).collect();
            Some(input.grouped(keys, aggregate.aggr_expr.len()))
        }
        LogicalPlan::Distinct(distinct) => {
            let input = of(distinct.input())?;
            let keys = input.columns.clone();
            Some(input.grouped(keys, 0))
        }
        LogicalPlan::Join(join) => of_join(join),
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::Repartition(_) => {
            of(plan.inputs().first()?)
        }
        _ => None,
    }
}

fn of_join(join: &Join) -> Option<Estimate> {
    let (left, right) = (of(&join.left)?, of(&join.right)?);
    let key = |(l, r): &(Logical, Logical)| {
        (known(&left, join.left.schema(), l), known(&right, join.right.schema(), r))
    };
    let keys: Vec<(Known, Known)> = join.on.iter().map(key).collect();
    Some(Estimate::joined(left, right, &keys, kind(join.join_type), join.filter.is_some()))
}

fn of_scan(scan: &TableScan) -> Option<Estimate> {
    let Some((table, positions)) = pool_table(&scan.source) else { return of_other(scan) };
    let source = table.source();
    let info = table.info();
    let sent = |filter: &Logical| table.place(&unqualified(filter)).sent;
    let shares =
        scan.filters.iter().map(|f| sent(f).map_or(HERE_SELECTIVITY, |e| estimate::selectivity(&e, info)));
    let all = info.rows as f64;
    let rows = (all * shares.product::<f64>()).max(1.0);
    let of = |position: usize| match positions.get(position).copied().flatten() {
        Some(column) => Known::of_table(&source, column),
        None => Known::new(all),
    };
    let every = || (0..positions.len()).collect();
    let projection: Vec<usize> = scan.projection.clone().unwrap_or_else(every);
    Some(Estimate { rows, rows_unfiltered: all, columns: projection.into_iter().map(of).collect() })
}

/// Estimates a table that is in no pool (a file, for instance): only its number of rows is known.
fn of_other(scan: &TableScan) -> Option<Estimate> {
    let provider = datafusion::datasource::source_as_provider(&scan.source).ok()?;
    let rows = *provider.statistics()?.num_rows.get_value()? as f64;
    Some(Estimate::of_rows(rows, scan.projected_schema.fields().len()))
}

/// Returns the statistics known for an expression over the columns of `input`.
pub(super) fn known(input: &Estimate, schema: &DFSchema, expr: &Logical) -> Known {
    let column = |c: &Column| schema.maybe_index_of_column(c).and_then(|i| input.columns.get(i));
    match expr {
        Logical::Column(c) => column(c).cloned().unwrap_or_else(|| Known::new(input.rows_unfiltered)),
        Logical::Alias(alias) => known(input, schema, &alias.expr),
        other => input.together(other.column_refs().into_iter().filter_map(column)),
    }
}

//! Estimates of physical plans, by which DataFusion decides which side of a join to build a hash table on, and whether
//! to partition a join by its keys.
//!
//! Only numbers of rows are reported, because sizes in bytes are known for some sides and not for others, and
//! DataFusion would compare the bytes of one side with the rows of the other.

use super::kind;
use crate::exec::PoolExec;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Statistics};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, JoinOnRef, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::operator_statistics::{
    DefaultStatisticsProvider, ExtendedStatistics, StatisticsProvider, StatisticsRegistry, StatisticsResult,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use farpool_planner::joins::estimate::{Estimate, HERE_SELECTIVITY, JoinKind, Known};
use std::fmt::Write;
use std::sync::Arc;

/// Returns the registry from which DataFusion gets estimates for the operators of a plan.
pub(crate) fn registry() -> StatisticsRegistry {
    StatisticsRegistry::with_providers(vec![Arc::new(Estimates), Arc::new(DefaultStatisticsProvider)])
}

/// Returns the estimated rows of a plan; `None` if nothing is known.
pub(crate) fn expected_rows(plan: &dyn ExecutionPlan) -> Option<f64> {
    registry().compute(plan).ok()?.base().num_rows.get_value().map(|rows| *rows as f64)
}

/// Describes, for each equi-join of a plan that has run, the estimated and the actual number of rows, a line each.
///
/// ```text
/// join on c_custkey = o_custkey: 227554 rows expected; 227597 rows seen
/// ```
pub(crate) fn outcomes(plan: &Arc<dyn ExecutionPlan>) -> String {
    let (registry, mut text) = (registry(), String::new());
    let visited = plan.apply(|node| {
        if let Some((on, kind)) = keys(node.as_ref())
            && let Some(seen) = node.metrics().and_then(|metrics| metrics.output_rows())
            && let Some(expected) = registry.compute(node.as_ref())?.base().num_rows.get_value()
        {
            let on: Vec<String> = on.iter().map(|(l, r)| format!("{} = {}", name(l), name(r))).collect();
            let on = on.join(" AND ");
            let kind = if kind == JoinType::Inner { String::new() } else { format!("{kind} ") };
            let _ = writeln!(text, "{kind}join on {on}: {expected} rows expected; {seen} rows seen");
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "estimates do not fail");
    text
}

/// Returns the join keys and the join type if `plan` is an equi-join; otherwise `None`.
fn keys(plan: &dyn ExecutionPlan) -> Option<(JoinOnRef<'_>, JoinType)> {
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        return Some((join.on(), join.join_type()));
    }
    plan.downcast_ref::<HashJoinExec>().map(|join| (join.on(), *join.join_type()))
}

/// Formats an expression without the column indexes that DataFusion prints.
fn name(expr: &Arc<dyn PhysicalExpr>) -> String {
    expr.downcast_ref::<Column>().map_or_else(|| expr.to_string(), |column| column.name().to_string())
}

/// Provides DataFusion with an [`Estimate`] for each operator, computed from those of its inputs.
#[derive(Debug)]
struct Estimates;

impl StatisticsProvider for Estimates {
    fn compute_statistics(
        &self,
        plan: &dyn ExecutionPlan,
        inputs: &[ExtendedStatistics],
    ) -> Result<StatisticsResult> {
        let inputs: Option<Vec<&Estimate>> = inputs.iter().map(|s| s.get_extension::<Estimate>()).collect();
        let estimate = inputs.and_then(|inputs| of(plan, &inputs));
        let Some(estimate) = estimate.or_else(|| own(plan)) else { return Ok(StatisticsResult::Delegate) };
        let base = Statistics {
            num_rows: Precision::Inexact(estimate.rows.ceil() as usize),
            ..Statistics::new_unknown(&plan.schema())
        };
        let mut statistics = ExtendedStatistics::new(base);
        statistics.set_extension(estimate);
        Ok(StatisticsResult::Computed(statistics))
    }
}

/// Estimates `plan` from its inputs; `None` for an unknown kind of operator.
fn of(plan: &dyn ExecutionPlan, inputs: &[&Estimate]) -> Option<Estimate> {
    if let Some(program) = plan.downcast_ref::<PoolExec>() {
        return Some(program.estimated());
    }
    if let Some((on, join_type)) = keys(plan) {
        let &[left, right] = inputs else { return None };
        let keys: Vec<_> = on.iter().map(|(l, r)| (known(left, l), known(right, r))).collect();
        let hashed = plan.downcast_ref::<HashJoinExec>();
        let filtered = match plan.downcast_ref::<SortMergeJoinExec>() {
            Some(merged) => merged.filter().is_some(),
            None => hashed.is_some_and(|join| join.filter().is_some()),
        };
        let joined = Estimate::joined(left.clone(), right.clone(), &keys, kind(join_type), filtered);
        return projected(joined, hashed.and_then(|join| join.projection.as_deref()));
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let &[left, right] = inputs else { return None };
        let filtered = join.filter().is_some();
        let joined = Estimate::joined(left.clone(), right.clone(), &[], kind(*join.join_type()), filtered);
        return projected(joined, join.projection().as_deref());
    }
    if plan.downcast_ref::<CrossJoinExec>().is_some() {
        let &[left, right] = inputs else { return None };
        return Some(Estimate::joined(left.clone(), right.clone(), &[], JoinKind::Inner, false));
    }
    if plan.downcast_ref::<ScalarSubqueryExec>().is_some() {
        // The subqueries come behind.
        return inputs.first().map(|input| (*input).clone());
    }
    let &[input] = inputs else { return None };
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return of_aggregate(aggregate, input);
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let share = selectivity(filter.predicate(), input);
        return projected(input.clone().filtered(share), filter.projection().as_deref());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let columns = projection.expr().iter().map(|e| known(input, &e.expr)).collect();
        return Some(Estimate { columns, ..input.clone() });
    }
    let same = matches!(plan.cardinality_effect(), CardinalityEffect::Equal)
        && plan.schema().fields().len() == input.columns.len();
    same.then(|| input.clone())
}

/// Returns the estimate that a scan of a pool or another leaf reports about itself.
fn own(plan: &dyn ExecutionPlan) -> Option<Estimate> {
    let statistics = StatisticsContext::new().compute(plan, &StatisticsArgs::new()).ok()?;
    let rows = *statistics.num_rows.get_value()? as f64;
    Some(Estimate::of_rows(rows, plan.schema().fields().len()))
}

fn of_aggregate(aggregate: &AggregateExec, input: &Estimate) -> Option<Estimate> {
    let by = aggregate.group_expr();
    // With several grouping sets (GROUPING SETS, ROLLUP), each set has its own groups.
    if by.groups().len() > 1 {
        return None;
    }
    let keys: Vec<Known> = by.expr().iter().map(|(expr, _)| known(input, expr)).collect();
    let results = plan_columns(aggregate).checked_sub(keys.len())?;
    Some(input.grouped(keys, results))
}

fn plan_columns(plan: &dyn ExecutionPlan) -> usize {
    plan.schema().fields().len()
}

/// Returns the fraction of rows for which a condition is true. A column equals a value of which nothing is known, such as a
/// parameter, in one row of each distinct value.
fn selectivity(predicate: &Arc<dyn PhysicalExpr>, input: &Estimate) -> f64 {
    let (mut share, mut others) = (1.0, 1.0);
    for condition in split_conjunction(predicate) {
        // The join that derives it leaves out the same rows.
        if condition.is::<DynamicFilterPhysicalExpr>() {
            continue;
        }
        let binary = condition.downcast_ref::<BinaryExpr>();
        let sides =
            binary.and_then(|binary| Some((of_side(input, binary.left())?, of_side(input, binary.right())?)));
        match (binary.map(BinaryExpr::op), sides) {
            (Some(Operator::Eq), Some((left, right))) => share /= left.max(right),
            (Some(Operator::NotEq), _) => {}
            _ => others = HERE_SELECTIVITY,
        }
    }
    share * others
}

/// Returns the number of distinct values of a side of a comparison: a column, or one value for all rows; `None` for another
/// expression.
fn of_side(input: &Estimate, expr: &Arc<dyn PhysicalExpr>) -> Option<f64> {
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return of_side(input, cast.expr());
    }
    let is_known = expr.is::<Column>() || collect_columns(expr).is_empty();
    is_known.then(|| known(input, expr).distinct.max(1.0))
}

fn projected(estimate: Estimate, columns: Option<&[usize]>) -> Option<Estimate> {
    let Some(columns) = columns else { return Some(estimate) };
    let kept = columns.iter().map(|&i| estimate.columns.get(i).cloned()).collect::<Option<_>>()?;
    Some(Estimate { columns: kept, ..estimate })
}

/// Returns the statistics known for an expression over the columns of `input`.
fn known(input: &Estimate, expr: &Arc<dyn PhysicalExpr>) -> Known {
    match expr.downcast_ref::<Column>() {
        Some(column) => {
            let known = input.columns.get(column.index());
            known.cloned().unwrap_or_else(|| Known::new(input.rows_unfiltered))
        }
        None => {
            let columns = collect_columns(expr);
            input.together(columns.iter().filter_map(|column| input.columns.get(column.index())))
        }
    }
}

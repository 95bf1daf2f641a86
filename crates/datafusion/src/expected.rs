//! The time that a whole statement is expected to take, at its pools and in the engine, and the rows that it returns: for
//! clients that choose between statements by them.

use crate::exec::PoolExec;
use crate::joins;
use crate::shared::Means;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use farpool_model::Output;
use std::sync::Arc;

/// Nanoseconds of an operator for a row that it takes in. These are orders of magnitude, for one core and rows of some 50
/// bytes.
const ROW_NS: f64 = 5.0;

/// Nanoseconds for a row that is hashed: of a join, or of an aggregation.
const HASHED_NS: f64 = 60.0;

/// Nanoseconds for a comparison of two rows by a sort.
const COMPARED_NS: f64 = 15.0;

/// Nanoseconds for a pair of rows that a join without keys compares.
const PAIR_NS: f64 = 3.0;

/// Expectations of a plan or a part of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    /// Nanoseconds until all rows are there.
    pub ns: f64,
    /// Nanoseconds until the first row is there.
    pub first_ns: f64,
    /// Number of rows.
    pub rows: f64,
}

impl Expected {
    /// Estimates a plan. Operators of which nothing is known return as many rows as the largest of their inputs: a join by a
    /// key, as most are, returns no more.
    pub fn of(plan: &Arc<dyn ExecutionPlan>, means: &Means) -> Self {
        let known = joins::expected_rows(plan.as_ref());
        if let Some(program) = plan.downcast_ref::<PoolExec>() {
            let ns = program.expected_ns(means);
            let asked = &program.prepared().effective;
            let is_whole = matches!(asked.output, Output::Aggregate { .. }) || !asked.order.is_empty();
            return Expected { ns, first_ns: if is_whole { ns } else { 0.0 }, rows: known.unwrap_or(0.0) };
        }
        let inputs: Vec<Expected> =
            plan.children().into_iter().map(|input| Expected::of(input, means)).collect();
        let sum = |of: fn(&Expected) -> f64| inputs.iter().map(of).sum::<f64>();
        let rows_in = sum(|input| input.rows);
        let rows = known.unwrap_or_else(|| inputs.iter().map(|input| input.rows).fold(0.0, f64::max));
        let sorts = plan.is::<SortExec>();
        let own = match plan {
            _ if sorts => rows_in * COMPARED_NS * rows_in.max(2.0).log2(),
            plan if plan.is::<NestedLoopJoinExec>() => {
                inputs.iter().map(|input| input.rows).product::<f64>() * PAIR_NS
            }
            plan if plan.is::<HashJoinExec>() || plan.is::<AggregateExec>() => rows_in * HASHED_NS,
            _ => rows_in * ROW_NS,
        };
        let ns = sum(|input| input.ns) + own;
        let first_ns = match inputs.as_slice() {
            _ if sorts || plan.is::<AggregateExec>() => ns,
            [built, probed] if plan.is::<HashJoinExec>() || plan.is::<NestedLoopJoinExec>() => {
                built.ns + probed.first_ns
            }
            _ => sum(|input| input.first_ns),
        };
        Expected { ns, first_ns, rows }
    }
}

//! Statistics in SQL: aggregates that compute states (sketches and moments) and read values from them ([`statistic`],
//! and the planner crate's `reading`), scalar functions that read values from states ([`scalars`]), rank correlations
//! ([`ranks`]), and the HyperLogLogs of the Redis protocol ([`hll`]).
//!
//! All of them work over any table. For a table of a pool, [`crate::fragment`] pushes down the computation of the
//! state, and [`push`] reads the value above it. The same code reads both, so that the results are the same with and
//! without push-down. DataFusion's own functions of these names are replaced for two reasons: they lose digits if
//! values are large compared to their differences, and two implementations would give two results.

mod accumulator;
mod aggregates;
mod hll;
mod push;
mod ranks;
mod scalars;
mod statistic;
mod values;

pub(crate) use aggregates::{merger, statistic_of};
pub(crate) use push::{read_above, states_schema};
pub(crate) use statistic::Statistic;

use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::AggregateUDF;
use datafusion::prelude::SessionContext;

/// Registers the functions in `context`.
pub(crate) fn register(context: &SessionContext) {
    for (name, kind) in statistic::FUNCTIONS {
        let builtin = context.udaf(name).ok();
        context.register_udaf(AggregateUDF::from(aggregates::Aggregate::new(name, *kind, builtin)));
    }
    ranks::all().into_iter().for_each(|function| context.register_udaf(function));
    hll::aggregates().into_iter().for_each(|function| context.register_udaf(function));
    context.register_udf(hll::count());
    scalars::all().into_iter().for_each(|function| context.register_udf(function));
}

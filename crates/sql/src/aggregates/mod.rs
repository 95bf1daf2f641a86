//! Replaces the SQL aggregates that give another result in DataFusion 55.2 than in the pool: SUM does not wrap, AVG of
//! decimals is rounded, MIN and MAX of floats handle infinities and do not depend on the order of rows, PERCENTILE_CONT
//! uses the standard's formula, and BOOL_AND and BOOL_OR work in windows whose frame moves. ARRAY_AGG of distinct
//! values keeps the sort order of the call. MODE is added.
//!
//! A query thus gives the same result wherever its aggregates run: in the pool, above a join, in a window, or where
//! partial aggregates are merged.
//!
//! - Input: the arguments of DataFusion's functions of these names, coerced to the same types. Types not
//!   named here are left to DataFusion's accumulators altogether.
//! - Output: the types of DataFusion's functions.
//! - Order: results do not depend on the order of rows, except sums of floats.
//! - Memory: what the accumulators report in `size`, which DataFusion charges to the session's budget.
//! - Parallelism: DataFusion's stages (partial, then final aggregation). The states between them are exact.
//! - Errors: a sum or a mean whose final value does not fit its type, with the pool's message.

mod distinct;
mod exact;
mod function;
mod lists;
mod mode;
mod order;
mod percentile;
mod truth;

pub use function::{max, min, percentile_cont, sum};

use datafusion::prelude::SessionContext;

/// Registers the functions in `context`, replacing DataFusion's.
pub fn register(context: &SessionContext) {
    let functions = [sum(), function::avg(), min(), max(), function::percentile_cont()];
    for function in functions.into_iter().chain(function::truths()) {
        context.register_udaf(function.as_ref().clone());
    }
    context.register_udaf(mode::mode());
    context.register_udaf(lists::array_agg().as_ref().clone());
}

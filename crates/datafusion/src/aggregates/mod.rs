//! The aggregates of SQL whose meaning in DataFusion is not that of the pool, in place of DataFusion's own: SUM
//! that does not wrap, AVG of decimals that is rounded, MIN and MAX of floats that know infinities and in which
//! the order of rows does not show, PERCENTILE_CONT by the standard's formula, BOOL_AND and BOOL_OR in windows whose
//! frame moves; and MODE. So a query gives the same wherever its
//! aggregates run: in the pool, above a join, in a window, or where parts of groups are merged.
//!
//! - Input: what DataFusion's functions of these names take, which is brought to the same types. Types that are
//!   not named here are left to DataFusion's accumulators altogether.
//! - Output: of the type that DataFusion's have.
//! - Order: none is asked for, and none shows, except in sums of floats.
//! - Memory: what the accumulators say in `size`, which DataFusion takes from the session's budget.
//! - Parallelism: DataFusion's, in stages. The states between them are exact.
//! - Errors: a sum or a mean that does not fit its type at the end, in the pool's words.

mod distinct;
mod exact;
mod function;
mod mode;
mod order;
mod percentile;
mod truth;

#[cfg(test)]
pub(crate) use function::percentile_cont;
pub(crate) use function::{max, min, sum};

use datafusion::prelude::SessionContext;

/// Makes the functions known in `context`, in place of DataFusion's.
pub(crate) fn register(context: &SessionContext) {
    let functions = [sum(), function::avg(), min(), max(), function::percentile_cont()];
    for function in functions.into_iter().chain(function::truths()) {
        context.register_udaf(function.as_ref().clone());
    }
    context.register_udaf(mode::mode());
}

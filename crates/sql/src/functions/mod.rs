//! Scalar functions that DataFusion 55.2 lacks, or that have a smaller range there. Function names of other databases
//! are mapped to the engine's functions and these (`dialect/functions`).

mod date_trunc;
mod json;
mod lambdas;
mod series;
mod texts;
mod times;
mod values;

pub use lambdas::LambdaParameters;

use datafusion::prelude::SessionContext;

/// Registers the functions in `context`.
pub fn register(context: &SessionContext) {
    date_trunc::register(context);
    values::register(context);
    times::register(context);
    json::register(context);
    texts::register(context);
    series::register(context);
}

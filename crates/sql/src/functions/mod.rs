//! Scalar functions that DataFusion 55.2 lacks, or whose range there is too small. The SQL front maps many function
//! names of other databases to the engine's functions and these (`dialect/functions`).

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

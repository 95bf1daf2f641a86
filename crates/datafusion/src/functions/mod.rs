//! Functions of values that the engine does not have. The SQL front puts the engine's functions, and these, in the places
//! of many others (`dialect/functions`).

mod json;
mod times;
mod values;

use datafusion::prelude::SessionContext;

/// Makes the functions known in `context`.
pub(crate) fn register(context: &SessionContext) {
    values::register(context);
    times::register(context);
    json::register(context);
}

//! The table functions `generate_series` and `range` between timestamps of any unit. Those of DataFusion 55.2 take only
//! timestamps in nanoseconds, whereas constants are in microseconds. This module is obsolete once upstream takes any
//! unit.

use datafusion::catalog::{TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use farpool_model::Error;
use std::sync::Arc;

/// Registers these functions in place of the engine's.
pub(super) fn register(context: &SessionContext) {
    for name in ["generate_series", "range"] {
        if let Ok(inner) = context.table_function(name) {
            context.register_udtf(name, Arc::new(Series(inner)));
        }
    }
}

#[derive(Debug)]
struct Series(Arc<TableFunction>);

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let exprs = args.exprs().iter().cloned().map(in_nanoseconds).collect::<Result<Vec<Expr>>>()?;
        self.0.create_table_provider_with_args(TableFunctionArgs::new(&exprs, args.session()))
    }
}

/// Converts a constant timestamp to nanoseconds; returns other expressions unchanged.
fn in_nanoseconds(expr: Expr) -> Result<Expr> {
    let Expr::Literal(value, metadata) = expr else { return Ok(expr) };
    let (count, factor, zone) = match value {
        ScalarValue::TimestampSecond(count, zone) => (count, 1_000_000_000, zone),
        ScalarValue::TimestampMillisecond(count, zone) => (count, 1_000_000, zone),
        ScalarValue::TimestampMicrosecond(count, zone) => (count, 1_000, zone),
        other => return Ok(Expr::Literal(other, metadata)),
    };
    let count = match count.map(|count: i64| count.checked_mul(factor)) {
        Some(None) => {
            let error = Error::invalid("a series of times has years from 1677 to 2262");
            return Err(crate::error::wrap(error.advise("add days to a date: DATE '9999-01-01' + i::int")));
        }
        Some(count) => count,
        None => None,
    };
    Ok(Expr::Literal(ScalarValue::TimestampNanosecond(count, zone), metadata))
}

//! TRY_CAST as a function call. DataFusion 55.2 unwraps TRY_CAST in comparisons as if it never returned NULL
//! (apache/datafusion#14303, #24702): `try_cast(i as int) > 1` is then true for integers that do not fit.
//!
//! Casts in conditions become function calls as well, if they may fail: while DataFusion plans, it casts the bounds of
//! columns, and a failure makes the statement fail even if another part of the condition excludes the values. This
//! module is obsolete once upstream fixes both.

use arrow_cast::cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use std::sync::Arc;

/// Replaces TRY_CAST by a function call; removes a TRY_CAST to the type that the value has already.
pub(super) fn function(cast: TryCast, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let to = cast.field.data_type().clone();
    let Ok(from) = cast.expr.get_type(columns) else { return Ok(Transformed::no(Expr::TryCast(cast))) };
    if !arrow_cast::can_cast_types(&from, &to) {
        // A cast that is not supported is left to the engine, which reports the error.
        return Ok(Transformed::no(Expr::TryCast(cast)));
    }
    Ok(Transformed::yes(call(*cast.expr, to, true)))
}

/// Returns a cast as a function call that fails on the same rows as the cast.
pub fn cast_function(cast: Cast) -> Expr {
    let to = cast.field.data_type().clone();
    call(*cast.expr, to, false)
}

/// Returns whether a function is one of [`cast_function`].
pub fn is_cast_function(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<CastTo>().is_some_and(|cast| !cast.is_safe)
}

fn call(value: Expr, to: DataType, is_safe: bool) -> Expr {
    let function = CastTo { to, is_safe, signature: Signature::any(1, Volatility::Immutable) };
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![value]))
}

/// The function for a cast. With `safe`, a value that does not fit becomes NULL instead of an error. The function is
/// not registered, so that SQL cannot call it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CastTo {
    to: DataType,
    is_safe: bool,
    signature: Signature,
}

impl ScalarUDFImpl for CastTo {
    fn name(&self) -> &str {
        if self.is_safe { "try_cast" } else { "cast" }
    }

    /// Returns the name that the engine's cast would have.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [value] => Ok(value.schema_name().to_string()),
            _ => internal_err!("a cast of {} values", arguments.len()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let options = CastOptions { safe: self.is_safe, ..CastOptions::default() };
        match arguments.args.into_iter().next() {
            Some(ColumnarValue::Scalar(value)) => {
                let cast = cast_with_options(&value.to_array()?, &self.to, &options)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&cast, 0)?))
            }
            Some(ColumnarValue::Array(values)) => {
                Ok(ColumnarValue::Array(cast_with_options(&values, &self.to, &options)?))
            }
            None => internal_err!("a cast of nothing"),
        }
    }
}

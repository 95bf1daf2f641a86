//! The functions that rules of this module insert.

use super::{even, floats, texts, times};
use arrow_schema::{DataType, IntervalUnit};
use datafusion::common::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Returns the text that PostgreSQL gives a value.
    Text,
    /// Rounds a float to a whole number, halves to an even one (the default of IEEE 754).
    Even,
    /// Makes single floats of doubles.
    Single,
    /// Divides floats of one type.
    FloatQuotient,
    /// Returns the days and the time between two timestamps in microseconds.
    TimeBetween,
}

/// Returns the call of a function.
pub(super) fn call(kind: Kind, args: Vec<Expr>) -> Expr {
    let signature = Signature::any(args.len(), Volatility::Immutable);
    let func = Arc::new(ScalarUDF::from(Function { kind, signature }));
    Expr::ScalarFunction(ScalarFunction { func, args })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: Kind,
    signature: Signature,
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Text => "postgres_text",
            Kind::Even => "round_to_even",
            Kind::Single => "postgres_single",
            Kind::FloatQuotient => "postgres_float_quotient",
            Kind::TimeBetween => "postgres_time_between",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::Text => DataType::Utf8,
            Kind::Even | Kind::FloatQuotient => types[0].clone(),
            Kind::Single => DataType::Float32,
            Kind::TimeBetween => DataType::Interval(IntervalUnit::MonthDayNano),
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let values = match self.kind {
            Kind::Text => texts(&arrays[0], &arguments.arg_fields[0]),
            Kind::Even => Ok(even(&arrays[0])),
            Kind::Single => floats::singles(&arrays[0]),
            Kind::FloatQuotient => floats::quotients(&arrays[0], &arrays[1]),
            Kind::TimeBetween => times::between(&arrays[0], &arrays[1]),
        };
        values.map(ColumnarValue::Array)
    }
}

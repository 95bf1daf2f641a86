//! Statements of PostgreSQL's clients, where PostgreSQL means something else than DuckDB, or than the engine: casts to
//! integers round, casts to text have PostgreSQL's forms, numbers with a decimal point are decimals, and columns without
//! an alias have other names. A session has this meaning if its configuration has [`PostgresMeaning`].
//!
//! The parts that follow from the text alone are in the dialect (`dialect/postgres_forms.rs`, `dialect/postgres_names.rs`);
//! those that need types are here, and are applied with the rules of [`crate::types`].

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::i256;
use arrow_schema::{ArrowError, DECIMAL128_MAX_PRECISION, DataType};
use bytes::BytesMut;
use datafusion::arrow::compute::kernels::arity::try_binary;
use datafusion::common::config::{ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result, config_err};
use datafusion::config::ConfigEntry;
use datafusion::functions::math::round;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};
use farpool_postgres::messages::Format;
use farpool_postgres::types::is_json;
use farpool_postgres::values::{Columns, Style};
use std::any::Any;
use std::sync::{Arc, LazyLock};

/// An extension of a session's configuration: statements mean what PostgreSQL means where it differs.
#[derive(Clone, Debug, Default)]
pub struct PostgresMeaning;

impl ConfigExtension for PostgresMeaning {
    const PREFIX: &'static str = "postgres_meaning";
}

/// There are no options, so that a statement cannot change it.
impl ExtensionOptions for PostgresMeaning {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        config_err!("there is no setting {key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// Returns whether statements have PostgreSQL's meaning in a session with this configuration.
pub(crate) fn is_meant(options: &ConfigOptions) -> bool {
    options.extensions.get::<PostgresMeaning>().is_some()
}

/// Rewrites a cast whose result is another one in PostgreSQL.
pub(crate) fn cast(cast: Cast, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let from = cast.expr.get_type(columns)?;
    let to = cast.field.data_type();
    let made = match (&from, to) {
        (DataType::Float32 | DataType::Float64, to) if to.is_integer() => {
            Some(Expr::Cast(Cast { expr: Box::new(call(&EVEN, vec![*cast.expr.clone()])), ..cast.clone() }))
        }
        (DataType::Decimal128(_, scale), to) if to.is_integer() && *scale > 0 => {
            let whole = call(&round(), vec![*cast.expr.clone(), lit(0_i32)]);
            Some(Expr::Cast(Cast { expr: Box::new(whole), ..cast.clone() }))
        }
        (from, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8) if has_own_text(from) => {
            Some(call(&TEXT, vec![*cast.expr.clone()]))
        }
        _ => None,
    };
    Ok(match made {
        Some(made) => Transformed::yes(made),
        None => Transformed::no(Expr::Cast(cast)),
    })
}

/// Rewrites `round` of a float, which PostgreSQL rounds to the even number in the middle between two.
pub(crate) fn function(rounding: ScalarFunction, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let is_float = |expr: &Expr| matches!(expr.get_type(columns), Ok(DataType::Float32 | DataType::Float64));
    match rounding.args.as_slice() {
        [value] if rounding.func.name() == "round" && is_float(value) => {
            Ok(Transformed::yes(call(&EVEN, rounding.args)))
        }
        _ => Ok(Transformed::no(Expr::ScalarFunction(rounding))),
    }
}

/// Digits behind the point of a quotient of decimals, if neither operand has more. Reason: PostgreSQL computes at least 16
/// significant digits (`NUMERIC_MIN_SIG_DIGITS`).
const QUOTIENT_SCALE: i8 = 16;

/// Rewrites a quotient of decimals, or of a decimal and an integer, to one with as many digits as PostgreSQL computes; and
/// rounds it.
pub(crate) fn quotient(binary: BinaryExpr, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let exact = |expr: &Expr| -> Result<Option<DataType>> {
        Ok(match expr.get_type(columns)? {
            decimal @ DataType::Decimal128(..) => Some(decimal),
            whole if whole.is_integer() => Some(DataType::Decimal128(20, 0)),
            _ => None,
        })
    };
    let (left, right) = (exact(&binary.left)?, exact(&binary.right)?);
    let is_decimal = |expr: &Expr| expr.get_type(columns).is_ok_and(|found| found.is_decimal());
    let (Some(left), Some(right)) = (left, right) else {
        return Ok(Transformed::no(Expr::BinaryExpr(binary)));
    };
    if !is_decimal(&binary.left) && !is_decimal(&binary.right) {
        return Ok(Transformed::no(Expr::BinaryExpr(binary)));
    }
    let operands = vec![
        datafusion::logical_expr::cast(*binary.left, left),
        datafusion::logical_expr::cast(*binary.right, right),
    ];
    Ok(Transformed::yes(call(&QUOTIENT, operands)))
}

static QUOTIENT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(Quotient { signature: Signature::any(2, Volatility::Immutable) }))
});

/// The function that divides decimals.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Quotient {
    signature: Signature,
}

impl ScalarUDFImpl for Quotient {
    fn name(&self) -> &str {
        "postgres_quotient"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let scale = types.iter().map(scale).fold(QUOTIENT_SCALE, i8::max);
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let to = scale(arguments.return_field.data_type());
        let shift = to - scale(arrays[0].data_type()) + scale(arrays[1].data_type());
        let power = u32::try_from(shift).ok().and_then(|shift| i256::from_i128(10).checked_pow(shift));
        let out_of_range =
            || ArrowError::ComputeError("numeric field overflow: a quotient is out of range".into());
        let (left, right) =
            (arrays[0].as_primitive::<Decimal128Type>(), arrays[1].as_primitive::<Decimal128Type>());
        let quotients = try_binary::<_, _, _, Decimal128Type>(left, right, |left, right| {
            if right == 0 {
                return Err(ArrowError::DivideByZero);
            }
            let (left, right) = (i256::from_i128(left), i256::from_i128(right));
            power
                .and_then(|power| left.checked_mul(power))
                .and_then(|left| rounded(left, right))
                .and_then(i256::to_i128)
                .filter(|quotient| quotient.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into()))
                .ok_or_else(out_of_range)
        })?;
        let quotients = quotients.with_precision_and_scale(DECIMAL128_MAX_PRECISION, to)?;
        Ok(ColumnarValue::Array(Arc::new(quotients)))
    }
}

/// Returns a quotient, rounded half away from zero.
fn rounded(left: i256, right: i256) -> Option<i256> {
    let (quotient, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2))?;
    let away = if left.is_negative() == right.is_negative() { i256::ONE } else { i256::MINUS_ONE };
    if twice >= right.wrapping_abs() { quotient.checked_add(away) } else { Some(quotient) }
}

fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// Returns whether values of a type have another text in PostgreSQL than the engine gives them.
fn has_own_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(..) | DataType::Interval(_) | DataType::Duration(_) => true,
        DataType::Float32 | DataType::Float64 => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::List(element) => !is_json(data_type) && !is_json(element.data_type()),
        _ => false,
    }
}

fn call(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: Arc::clone(function), args })
}

static TEXT: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(Text { signature: Signature::any(1, Volatility::Immutable) })));

static EVEN: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(Even { signature: Signature::any(1, Volatility::Immutable) })));

/// The function to which casts to text are rewritten.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Text {
    signature: Signature,
}

impl ScalarUDFImpl for Text {
    fn name(&self) -> &str {
        "postgres_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        Ok(ColumnarValue::Array(texts(&arrays[0])?))
    }
}

/// Returns the texts that PostgreSQL gives to values.
fn texts(values: &ArrayRef) -> Result<ArrayRef> {
    let batch = RecordBatch::try_from_iter([("x", Arc::clone(values))])?;
    let told = |error| crate::error::wrap(error);
    let columns = Columns::new(&batch, |_| Format::Text, Style::default()).map_err(told)?;
    let (mut texts, mut text) = (StringBuilder::new(), BytesMut::new());
    for row in 0..values.len() {
        text.clear();
        match columns.put_value((row, 0), &mut text).map_err(told)? {
            true => texts.append_value(std::str::from_utf8(&text).map_err(|error| {
                DataFusionError::ArrowError(Box::new(ArrowError::ComputeError(error.to_string())), None)
            })?),
            false => texts.append_null(),
        }
    }
    Ok(Arc::new(texts.finish()))
}

/// The function that rounds a float to a whole number, halves to an even one (the default of IEEE 754).
#[derive(Debug, PartialEq, Eq, Hash)]
struct Even {
    signature: Signature,
}

impl ScalarUDFImpl for Even {
    fn name(&self) -> &str {
        "round_to_even"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let values = &arrays[0];
        let rounded: ArrayRef = if let Some(floats) = values.as_primitive_opt::<Float32Type>() {
            Arc::new(floats.unary::<_, Float32Type>(f32::round_ties_even))
        } else if let Some(floats) = values.as_primitive_opt::<Float64Type>() {
            Arc::new(floats.unary::<_, Float64Type>(f64::round_ties_even))
        } else {
            // Whole numbers.
            Arc::clone(values)
        };
        Ok(ColumnarValue::Array(rounded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, TimestampMicrosecondArray};

    #[test]
    fn texts_are_those_of_postgresql() {
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![Some(1_500_000), None]));
        let shown = texts(&times).unwrap();
        let shown: Vec<Option<&str>> = shown.as_string::<i32>().iter().collect();
        assert_eq!(shown, [Some("1970-01-01 00:00:01.5"), None]);
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![35.0, 1e300, f64::INFINITY]));
        let shown = texts(&floats).unwrap();
        let shown: Vec<Option<&str>> = shown.as_string::<i32>().iter().collect();
        assert_eq!(shown, [Some("35"), Some("1e+300"), Some("Infinity")]);
    }

    #[test]
    fn quotients_are_rounded() {
        let quotient =
            |left, right| rounded(i256::from_i128(left), i256::from_i128(right)).unwrap().to_i128();
        assert_eq!((quotient(7, 2), quotient(-7, 2), quotient(7, -3)), (Some(4), Some(-4), Some(-2)));
        assert_eq!((quotient(1, 3), quotient(-2, 3), quotient(0, 5)), (Some(0), Some(-1), Some(0)));
    }
}

//! Statements of PostgreSQL's clients, where PostgreSQL means something else than DuckDB, or than the engine: casts to
//! integers round, casts to text have PostgreSQL's forms, numbers with a decimal point are decimals, and columns without
//! an alias have other names. A session has this meaning if its configuration has [`PostgresMeaning`].
//!
//! Results have PostgreSQL's types and digits: [`quotients`], [`means`], the time between timestamps ([`times`]). What is not
//! defined for floats is an error ([`floats`]).
//!
//! The parts that follow from the text alone are in the dialect (`dialect/postgres_forms.rs`, `dialect/postgres_names.rs`);
//! those that need types are here, and are applied with the rules of [`crate::types`].

mod floats;
mod function;
mod means;
mod quotients;
mod times;

pub(crate) use means::rewrite as means;
pub(crate) use quotients::quotient;
pub(crate) use times::{is_time_between, time_between};

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema};
use bytes::BytesMut;
use datafusion::common::config::{ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result, config_err};
use datafusion::config::ConfigEntry;
use datafusion::functions::math::round;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, lit};
use farpool_postgres::messages::Format;
use farpool_postgres::types::{QUOTIENT, is_json};
use farpool_postgres::values::{Columns, Style};
use function::Kind;
use std::any::Any;
use std::sync::Arc;

/// An extension of a session's configuration: statements mean what PostgreSQL means where it differs.
#[derive(Clone, Debug, Default)]
pub struct PostgresMeaning {
    /// The name of the database.
    pub database: String,
}

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
    database(options).is_some()
}

/// Returns the name of the database if statements have PostgreSQL's meaning.
pub(crate) fn database(options: &ConfigOptions) -> Option<&str> {
    options.extensions.get::<PostgresMeaning>().map(|meaning| meaning.database.as_str())
}

/// Rewrites a cast whose result is another one in PostgreSQL.
pub(crate) fn cast(cast: Cast, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let from = cast.expr.get_type(columns)?;
    let to = cast.field.data_type();
    let made = match (&from, to) {
        (DataType::Float32 | DataType::Float64, to) if to.is_integer() => Some(Expr::Cast(Cast {
            expr: Box::new(function::call(Kind::Even, vec![*cast.expr.clone()])),
            ..cast.clone()
        })),
        (DataType::Decimal128(_, scale), to) if to.is_integer() && *scale > 0 => {
            let whole = call(&round(), vec![*cast.expr.clone(), lit(0_i32)]);
            Some(Expr::Cast(Cast { expr: Box::new(whole), ..cast.clone() }))
        }
        (DataType::Float64, DataType::Float32) => {
            Some(function::call(Kind::Single, vec![*cast.expr.clone()]))
        }
        (from, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
            if has_own_text(from) || is_quotient(&cast.expr, columns)? =>
        {
            Some(function::call(Kind::Text, vec![*cast.expr.clone()]))
        }
        _ => None,
    };
    Ok(match made {
        Some(made) => Transformed::yes(made),
        None => Transformed::no(Expr::Cast(cast)),
    })
}

/// Rewrites a function of floats: PostgreSQL rounds to the even number in the middle between two, and has errors.
pub(crate) fn checked(call: ScalarFunction, columns: &DFSchema) -> Result<Transformed<Expr>> {
    let types = call.args.iter().map(|value| value.get_type(columns)).collect::<Result<Vec<_>>>()?;
    if call.func.name() == "round" && matches!(types.as_slice(), [value] if value.is_floating()) {
        return Ok(Transformed::yes(function::call(Kind::Even, call.args)));
    }
    Ok(match floats::checked(&call, &types) {
        Some(checked) => Transformed::yes(checked),
        None => Transformed::no(Expr::ScalarFunction(call)),
    })
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

fn is_quotient(expr: &Expr, columns: &DFSchema) -> Result<bool> {
    let (_, field) = expr.to_field(columns)?;
    Ok(field.metadata().contains_key(QUOTIENT))
}

fn call(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: Arc::clone(function), args })
}

/// Returns the texts that PostgreSQL gives to values.
fn texts(values: &ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
    let schema = Schema::new(vec![field.as_ref().clone().with_nullable(true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(values)])?;
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

/// Rounds floats to whole numbers, halves to even ones.
fn even(values: &ArrayRef) -> ArrayRef {
    if let Some(floats) = values.as_primitive_opt::<Float32Type>() {
        Arc::new(floats.unary::<_, Float32Type>(f32::round_ties_even))
    } else if let Some(floats) = values.as_primitive_opt::<Float64Type>() {
        Arc::new(floats.unary::<_, Float64Type>(f64::round_ties_even))
    } else {
        // Whole numbers.
        Arc::clone(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, TimestampMicrosecondArray};
    use arrow_schema::Field;

    #[test]
    fn texts_are_those_of_postgresql() {
        let field = |values: &ArrayRef| Arc::new(Field::new("x", values.data_type().clone(), true));
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![Some(1_500_000), None]));
        let shown = texts(&times, &field(&times)).unwrap();
        let shown: Vec<Option<&str>> = shown.as_string::<i32>().iter().collect();
        assert_eq!(shown, [Some("1970-01-01 00:00:01.5"), None]);
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![35.0, 1e300, f64::INFINITY]));
        let shown = texts(&floats, &field(&floats)).unwrap();
        let shown: Vec<Option<&str>> = shown.as_string::<i32>().iter().collect();
        assert_eq!(shown, [Some("35"), Some("1e+300"), Some("Infinity")]);
    }
}

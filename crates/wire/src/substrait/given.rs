//! Rows that come along with a program, as a virtual table of Substrait: the right side of a join may read one.

use super::expressions::Reader;
use super::proto::{self, RexType};
use super::{read, types};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use farpool_model::compose::{Budget, check_width, not_done};
use farpool_model::{Error, GivenRows, Literal, Result, Value, limits};
use prost::Message;
use std::sync::Arc;

/// Encodes rows whose columns have the types of `schema`. `literal` encodes a constant as an expression.
///
/// # Errors
/// Errors of `literal`; `Invalid` if a value does not belong to the type of its column.
pub(super) fn write(
    rows: &GivenRows,
    schema: &Schema,
    mut literal: impl FnMut(&Literal) -> Result<Bytes>,
) -> Result<proto::VirtualTable> {
    let mut field = |(values, data_type): (&Vec<Value>, &DataType), row: usize| {
        literal(&Literal::new(values[row].clone(), data_type.clone())?)
    };
    let types = schema.fields().iter().map(|field| field.data_type());
    let columns: Vec<_> = rows.columns().iter().zip(types).collect();
    let expressions = (0..rows.rows()).map(|row| {
        let fields = columns.iter().map(|column| field(*column, row)).collect::<Result<_>>()?;
        Ok(proto::Row { fields }.encode_to_vec().into())
    });
    Ok(proto::VirtualTable { values: Vec::new(), expressions: expressions.collect::<Result<_>>()? })
}

/// Decodes a virtual table with the schema `base`, and returns its rows with their schema. `reader` charges what they take.
///
/// # Errors
/// `Invalid` if the table has no schema, a type that is not held here, or a value that is not a constant of its column's
/// type; `OverLimit` if there are too many values; errors of the budget.
pub(super) fn read_rows(
    reader: &Reader,
    base: Option<&proto::NamedStruct>,
    table: &Bytes,
) -> Result<(SchemaRef, GivenRows)> {
    let schema = schema_of(reader, base)?;
    let proto::VirtualTable { values, expressions } = read(table)?;
    let count = values.len() + expressions.len();
    let width = schema.fields().len();
    if count.saturating_mul(width) > limits::GIVEN_VALUES_MAX {
        let most = limits::GIVEN_VALUES_MAX;
        return Err(Error::over_limit(format!("a table of values in a plan may have {most} of them")));
    }
    // The values are held twice: as such, and as a table.
    reader.charge(2 * (count * width * size_of::<Value>() + table.len()))?;
    let mut columns: Vec<Vec<Value>> = (0..width).map(|_| Vec::with_capacity(count)).collect();
    let literals = values.iter().map(|row| (row, true));
    for (row, is_literal) in literals.chain(expressions.iter().map(|row| (row, false))) {
        let fields = read::<proto::Row>(row)?.fields;
        if fields.len() != width {
            let count = fields.len();
            return Err(Error::invalid(format!(
                "a row of values has {count}, and its table {width} columns"
            )));
        }
        for ((column, field), bytes) in columns.iter_mut().zip(schema.fields()).zip(&fields) {
            let literal = match is_literal {
                true => read(bytes)?,
                false => constant(bytes)?,
            };
            let value = types::read_literal(&literal, reader.extensions().types())?;
            let value = value.filter(|value| value.is_null() || value.data_type() == field.data_type());
            let wrong = || Error::invalid(format!("a value of column {:?} has another type", field.name()));
            column.push(value.ok_or_else(wrong)?.value().clone());
        }
    }
    let rows = GivenRows::new(&schema, count, columns)?;
    Ok((schema, rows))
}

fn constant(expression: &Bytes) -> Result<proto::Literal> {
    match read::<proto::Expression>(expression)?.rex_type {
        Some(RexType::Literal(literal)) => Ok(literal),
        _ => Err(not_done("a table of values that are computed")),
    }
}

/// Returns the schema that a plan declares for its table of values.
fn schema_of(reader: &Reader, base: Option<&proto::NamedStruct>) -> Result<SchemaRef> {
    let base = base.ok_or_else(|| Error::invalid("a table of values has no schema"))?;
    let types = base.r#struct.as_ref().map(|s| s.types.as_slice()).unwrap_or_default();
    if types.len() != base.names.len() || types.is_empty() {
        let message = format!("a table of values has {} types and {} names", types.len(), base.names.len());
        return Err(Error::invalid(message));
    }
    check_width(types.len())?;
    reader.charge(types.len() * limits::EXPR_NODE_BYTES)?;
    let field = |(name, bytes): (&String, &Bytes)| {
        if name.len() > limits::NAME_BYTES_MAX {
            let most = limits::NAME_BYTES_MAX;
            return Err(Error::over_limit(format!("the name of a column may have {most} bytes")));
        }
        let data_type = types::read_type(&read(bytes)?, reader.extensions().types());
        let data_type = data_type.ok_or_else(|| not_done(format!("the type of the column {name:?}")))?;
        Ok(Field::new(name, data_type, true))
    };
    let fields = base.names.iter().zip(types).map(field).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

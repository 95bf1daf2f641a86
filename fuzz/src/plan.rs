//! Fuzz body that decodes untrusted Substrait plans.

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use farpool_model::{Result, TableName};
use farpool_wire::substrait::{decode_program, encode_program};
use std::sync::Arc;

/// Decodes a plan; a decoded program must be the same after it is encoded and decoded again.
pub fn plan_decoder(data: &[u8]) {
    let schema = table_schema();
    let schema_of = |_: &TableName| -> Result<SchemaRef> { Ok(Arc::clone(&schema)) };
    let Ok(program) = decode_program(data, &schema_of) else { return };
    let checked = program.joined_schema(&schema).and_then(|row| program.result_schema(&row));
    // The encoded plan may be too large if many expressions shared a name or an IN list.
    let Ok(written) = encode_program(&program, &schema) else { return };
    match decode_program(&written, &schema_of) {
        // Compared as text, because NaN does not equal itself.
        Ok(again) => assert_eq!(format!("{again:?}"), format!("{program:?}")),
        Err(error) => assert!(checked.is_err(), "a sound program is refused when it comes back: {error}"),
    }
}

/// Returns the schema of the table that plans in the corpus read.
pub(crate) fn table_schema() -> SchemaRef {
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("small", DataType::Int32, true),
        Field::new("u", DataType::UInt32, true),
        Field::new("price", DataType::Decimal128(15, 2), true),
        Field::new("ship", DataType::Date32, true),
        Field::new("at", micros(None), true),
        Field::new("zoned", micros(Some("Europe/Berlin")), true),
        Field::new("name", DataType::Utf8View, true),
        Field::new("score", DataType::Float64, true),
        Field::new("ok", DataType::Boolean, true),
    ]))
}

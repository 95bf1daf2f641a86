//! Schemas as IPC messages: the names, canonical types and nullability of columns. Arrow's metadata of fields is not
//! sent.

use super::{encapsulate, metadata};
use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::DictionaryTracker;
use arrow_schema::{
    DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Field, Schema, SchemaRef, TimeUnit,
};
use bytes::Bytes;
use farpool_model::schema::canonical_type;
use farpool_model::{Error, Result, limits};
use flatbuffers::FlatBufferBuilder;
use std::sync::Arc;

/// Minimum number of bytes of a field in the message, apart from its name: its entry in the list, its table with name
/// and type, the length of the name, and the table of the type.
const FIELD_BYTES_MIN: usize = 24;

/// Encodes a schema as an IPC message.
///
/// # Errors
/// `Invalid` if a type is not canonical; `OverLimit` if there are too many columns.
pub fn encode_schema(schema: &Schema) -> Result<Bytes> {
    check_count(schema.fields().len())?;
    let mut fields = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        check_type(field.name(), field.data_type())?;
        fields.push(Field::new(field.name(), field.data_type().clone(), field.is_nullable()));
    }
    let mut builder = FlatBufferBuilder::new();
    let mut tracker = DictionaryTracker::new(true);
    let header = IpcSchemaEncoder::new()
        .with_dictionary_tracker(&mut tracker)
        .schema_to_fb_offset(&mut builder, &Schema::new(fields));
    let mut message = arrow_ipc::MessageBuilder::new(&mut builder);
    message.add_version(arrow_ipc::MetadataVersion::V5);
    message.add_header_type(arrow_ipc::MessageHeader::Schema);
    message.add_bodyLength(0);
    message.add_header(header.as_union_value());
    let message = message.finish();
    builder.finish(message, None);
    Ok(encapsulate(builder.finished_data()))
}

/// Decodes the IPC message of a schema. Arrow's own conversion is not used, because it panics on types that it does not
/// know. Offsets may point many fields to the same bytes, so that a small message could expand to a large schema;
/// therefore fields that would take more bytes than the message has are rejected.
///
/// # Errors
/// `Corrupt` if the bytes are malformed; `Invalid` if a type is not canonical; `OverLimit` if there are too many
/// columns or the names are too long.
pub fn decode_schema(bytes: &[u8]) -> Result<SchemaRef> {
    let (_, message) = metadata(bytes)?;
    let schema =
        message.header_as_schema().ok_or_else(|| Error::corrupt("an Arrow message that is not a schema"))?;
    if schema.endianness() != arrow_ipc::Endianness::Little {
        return Err(Error::invalid("batches on the wire are little-endian"));
    }
    let fields = schema.fields().ok_or_else(|| Error::corrupt("a schema without its list of fields"))?;
    check_count(fields.len())?;
    let mut spare_bytes = bytes.len();
    let fields = fields.iter().map(|field| {
        let name = field.name().unwrap_or_default();
        spare_bytes = spare_bytes
            .checked_sub(FIELD_BYTES_MIN + name.len())
            .ok_or_else(|| Error::corrupt("a schema whose fields share their bytes"))?;
        if field.dictionary().is_some() {
            return Err(not_canonical(name, "a dictionary"));
        }
        let data_type = field_type(&field).ok_or_else(|| not_canonical(name, type_name(&field)))?;
        check_type(name, &data_type)?;
        Ok(Field::new(name, data_type, field.nullable()))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
}

/// Returns the canonical type that a field has; `None` if its type is not canonical.
pub(crate) fn field_type(field: &arrow_ipc::Field) -> Option<DataType> {
    Some(match field.type_type() {
        arrow_ipc::Type::Bool => DataType::Boolean,
        arrow_ipc::Type::Int => {
            let int = field.type_as_int()?;
            integer_type(int.bitWidth(), int.is_signed())?
        }
        arrow_ipc::Type::FloatingPoint => match field.type_as_floating_point()?.precision() {
            arrow_ipc::Precision::SINGLE => DataType::Float32,
            arrow_ipc::Precision::DOUBLE => DataType::Float64,
            _ => return None,
        },
        arrow_ipc::Type::Decimal => {
            let decimal = field.type_as_decimal()?;
            let (precision, scale) = (decimal.precision().try_into().ok()?, decimal.scale().try_into().ok()?);
            (decimal.bitWidth() == 128).then_some(DataType::Decimal128(precision, scale))?
        }
        arrow_ipc::Type::Date => {
            (field.type_as_date()?.unit() == arrow_ipc::DateUnit::DAY).then_some(DataType::Date32)?
        }
        arrow_ipc::Type::Timestamp => {
            let timestamp = field.type_as_timestamp()?;
            // An empty time zone stands for none in Arrow's format.
            let zone = timestamp.timezone().filter(|zone| !zone.is_empty());
            DataType::Timestamp(time_unit(timestamp.unit())?, zone.map(Arc::from))
        }
        arrow_ipc::Type::Utf8View => DataType::Utf8View,
        arrow_ipc::Type::BinaryView => DataType::BinaryView,
        _ => return None,
    })
}

/// Returns the integer type of this width; `None` if there is none.
pub(crate) fn integer_type(bits: i32, is_signed: bool) -> Option<DataType> {
    Some(match (bits, is_signed) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        _ => return None,
    })
}

/// Returns a unit of time; `None` for a number that stands for none.
pub(crate) fn time_unit(unit: arrow_ipc::TimeUnit) -> Option<TimeUnit> {
    Some(match unit {
        arrow_ipc::TimeUnit::SECOND => TimeUnit::Second,
        arrow_ipc::TimeUnit::MILLISECOND => TimeUnit::Millisecond,
        arrow_ipc::TimeUnit::MICROSECOND => TimeUnit::Microsecond,
        arrow_ipc::TimeUnit::NANOSECOND => TimeUnit::Nanosecond,
        _ => return None,
    })
}

fn check_count(columns: usize) -> Result<()> {
    if columns > limits::COLUMNS_MAX {
        return Err(Error::over_limit(format!(
            "a schema may have {} columns, this one has {columns}",
            limits::COLUMNS_MAX
        )));
    }
    Ok(())
}

fn check_type(name: &str, data_type: &DataType) -> Result<()> {
    let fits = match data_type {
        // Arrow's kernels require these conditions of a decimal, and would panic later.
        DataType::Decimal128(precision, scale) => {
            (1..=DECIMAL128_MAX_PRECISION).contains(precision)
                && (-DECIMAL128_MAX_SCALE..=DECIMAL128_MAX_SCALE).contains(scale)
                && i16::from(*scale) <= i16::from(*precision)
        }
        DataType::Timestamp(_, Some(zone)) => zone.len() <= limits::NAME_BYTES_MAX,
        _ => true,
    };
    if !fits || canonical_type(data_type).as_ref() != Some(data_type) {
        return Err(not_canonical(name, &data_type.to_string()));
    }
    Ok(())
}

fn type_name(field: &arrow_ipc::Field) -> &'static str {
    field.type_type().variant_name().unwrap_or("unknown")
}

fn not_canonical(name: &str, what: &str) -> Error {
    Error::invalid(format!("column {name:?} has a type ({what}) that does not go over the wire"))
        .advise("cast it to its canonical type: strings to Utf8View, binaries to BinaryView")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_ipc::{FieldBuilder, MessageBuilder, SchemaBuilder};
    use farpool_model::ErrorKind;

    /// Returns a schema with `count` fields that all share one place in the message.
    fn shared(count: usize, name: &str) -> Bytes {
        let mut builder = FlatBufferBuilder::new();
        let name = builder.create_string(name);
        let data_type = arrow_ipc::Bool::create(&mut builder, &arrow_ipc::BoolArgs {});
        let mut field = FieldBuilder::new(&mut builder);
        field.add_name(name);
        field.add_type_type(arrow_ipc::Type::Bool);
        field.add_type_(data_type.as_union_value());
        let field = field.finish();
        let fields = builder.create_vector(&vec![field; count]);
        let mut schema = SchemaBuilder::new(&mut builder);
        schema.add_fields(fields);
        let schema = schema.finish();
        let mut message = MessageBuilder::new(&mut builder);
        message.add_version(arrow_ipc::MetadataVersion::V5);
        message.add_header_type(arrow_ipc::MessageHeader::Schema);
        message.add_header(schema.as_union_value());
        let message = message.finish();
        builder.finish(message, None);
        encapsulate(builder.finished_data())
    }

    #[test]
    fn a_small_message_does_not_become_a_large_schema() {
        assert_eq!(decode_schema(&shared(1, "c")).unwrap().fields().len(), 1);
        for (count, name) in [(limits::COLUMNS_MAX, "c"), (64, "long".repeat(1000).as_str())] {
            let error = decode_schema(&shared(count, name)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
            assert!(error.message.contains("share their bytes"), "{error}");
        }
    }

    #[test]
    fn the_smallest_fields_have_as_many_bytes_as_is_asked_of_them() {
        let fields: Vec<Field> =
            (0..limits::COLUMNS_MAX).map(|_| Field::new("", DataType::Boolean, true)).collect();
        let schema = Schema::new(fields);
        assert_eq!(*decode_schema(&encode_schema(&schema).unwrap()).unwrap(), schema);
    }
}

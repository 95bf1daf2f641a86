//! Conversion of string and binary views to arrays with offsets, because pyarrow neither compares nor filters views.

use arrow::array::{
    Array, ArrayRef, AsArray, ByteView, GenericByteArray, GenericByteViewArray, RecordBatch,
    RecordBatchOptions,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    BinaryType, ByteArrayType, ByteViewType, DataType, FieldRef, Schema, SchemaRef, Utf8Type,
};
use arrow::error::ArrowError;
use farpool::{Error, Result};
use std::sync::Arc;

/// Maximum bytes that the 32-bit offsets of an array can address.
const BYTES_MAX: usize = 0x7FFF_FFFF;

/// Maximum bytes of a value that is stored in its view and not in a buffer.
const INLINE_BYTES_MAX: usize = 12;

/// Returns the schema in which view types, also those in lists and structs, are replaced by types with offsets.
pub fn schema_with_offsets(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(field_with_offsets).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn field_with_offsets(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(items) => DataType::List(field_with_offsets(items)),
        DataType::LargeList(items) => DataType::LargeList(field_with_offsets(items)),
        DataType::FixedSizeList(items, length) => DataType::FixedSizeList(field_with_offsets(items), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field_with_offsets).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(field_with_offsets(entries), *is_sorted),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Returns the rows of a batch with the types of `schema`, which is the batch's schema without views. Returns several
/// batches if the strings exceed the range of 32-bit offsets.
///
/// # Errors
/// Fails if the strings of one row, or those in lists, take more than 2 GiB.
pub fn with_offsets(batch: &RecordBatch, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
    if batch.columns().iter().any(|column| text_bytes(column) > BYTES_MAX) {
        let half = batch.num_rows() / 2;
        if half == 0 {
            let message =
                "texts of a column take more than 2 GiB, which the offsets of an array do not reach";
            return Err(Error::over_limit(message).advise("take them as views: views=True"));
        }
        let mut parts = with_offsets(&batch.slice(0, half), schema)?;
        parts.extend(with_offsets(&batch.slice(half, batch.num_rows() - half), schema)?);
        return Ok(parts);
    }
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| column_with_offsets(column, field.data_type()));
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>().map_err(defect)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(vec![RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(defect)?])
}

fn column_with_offsets(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let in_place = match column.data_type() {
        DataType::Utf8View => in_place::<_, Utf8Type>(column.as_string_view()),
        DataType::BinaryView => in_place::<_, BinaryType>(column.as_binary_view()),
        _ => None,
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    in_place.unwrap_or_else(|| cast_with_options(column, data_type, &options))
}

/// Returns the values as offsets into their existing buffer; `None` if they are not contiguous in it. They are after
/// decoding. Short values are stored in their views, but may also be in the buffer.
fn in_place<V: ByteViewType, T: ByteArrayType<Offset = i32>>(
    array: &GenericByteViewArray<V>,
) -> Option<Result<ArrayRef, ArrowError>> {
    let is_long = |value: &[u8]| value.len() > INLINE_BYTES_MAX;
    let long = array.iter().position(|value| value.is_some_and(|value| is_long(value.as_ref())))?;
    let view = ByteView::from(array.views()[long]);
    let before = array.iter().take(long).flatten().map(|value| AsRef::<[u8]>::as_ref(value).len()).sum();
    let buffer = array.data_buffers().get(view.buffer_index as usize)?;
    let data = buffer.slice((view.offset as usize).checked_sub(before)?);
    let mut ends = Vec::with_capacity(array.len() + 1);
    let mut end = 0;
    ends.push(0);
    for value in array.iter() {
        let value: &[u8] = value.map_or(&[], AsRef::as_ref);
        let here = data.get(end..end + value.len())?;
        let is_here = match is_long(value) {
            true => here.as_ptr() == value.as_ptr(),
            false => here == value,
        };
        if !is_here {
            return None;
        }
        end += value.len();
        ends.push(i32::try_from(end).ok()?);
    }
    let offsets = OffsetBuffer::new(ends.into());
    let values = data.slice_with_length(0, end);
    let made = GenericByteArray::<T>::try_new(offsets, values, array.nulls().cloned());
    Some(made.map(|array| Arc::new(array) as ArrayRef))
}

/// Returns the bytes of the largest string array in `array`, which may be nested. Arrays in lists count completely,
/// even if the lists are a slice, because they are converted completely.
fn text_bytes(array: &dyn Array) -> usize {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().total_bytes_len(),
        DataType::BinaryView => array.as_binary_view().total_bytes_len(),
        DataType::List(_) => text_bytes(array.as_list::<i32>().values()),
        DataType::LargeList(_) => text_bytes(array.as_list::<i64>().values()),
        DataType::FixedSizeList(_, _) => text_bytes(array.as_fixed_size_list().values()),
        DataType::Map(_, _) => text_bytes(array.as_map().entries()),
        DataType::Struct(_) => {
            array.as_struct().columns().iter().map(|column| text_bytes(column)).max().unwrap_or_default()
        }
        _ => 0,
    }
}

fn defect(error: arrow::error::ArrowError) -> Error {
    Error::internal(format!("texts cannot be converted: {error}"))
}

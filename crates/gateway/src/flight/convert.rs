//! Rows as all clients of Arrow read them: without views, dictionaries and runs, which drivers of some languages do not
//! know, and in messages of a size that all accept.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use farpool_model::{Error, Result, cast};
use std::sync::Arc;

/// Bytes of rows per message. Reason: some clients refuse messages of more than 4 MiB, and the size is an estimate.
const MESSAGE_BYTES: usize = 2 << 20;

/// Maximum bytes of a column of texts per batch that is converted: their offsets are numbers of 31 bits.
const TEXT_BYTES: usize = 1 << 30;

/// Returns the type in which values are sent.
pub(super) fn sent_type(data_type: &DataType) -> DataType {
    let child = |field: &FieldRef| Arc::new(sent_field(field));
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => sent_type(values),
        DataType::RunEndEncoded(_, values) => sent_type(values.data_type()),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::List(field) | DataType::ListView(field) => DataType::List(child(field)),
        DataType::LargeList(field) | DataType::LargeListView(field) => DataType::LargeList(child(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(child(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(child).collect::<Fields>()),
        DataType::Map(entries, is_sorted) => DataType::Map(child(entries), *is_sorted),
        other => other.clone(),
    }
}

fn sent_field(field: &FieldRef) -> Field {
    field.as_ref().clone().with_data_type(sent_type(field.data_type()))
}

/// Returns the schema in which rows with `schema` are sent.
pub(super) fn sent_schema(schema: &Schema) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().iter().map(sent_field).collect::<Vec<_>>()))
}

/// Returns rows in pieces that fit a message each, as they are sent.
///
/// # Errors
/// `OverLimit` if the texts of one row are too long.
pub(super) fn sent_batches(batch: &RecordBatch, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
    let bytes = |batch: &RecordBatch| batch.columns().iter().map(text_bytes).max().unwrap_or_default();
    let mut converted = Vec::new();
    for piece in pieces(batch, TEXT_BYTES, &bytes) {
        if bytes(&piece) > TEXT_BYTES {
            let message = format!("the texts of one row have more than {TEXT_BYTES} bytes");
            return Err(Error::over_limit(message).advise("ask for fewer or shorter texts in a list"));
        }
        converted.push(cast_batch(&piece, schema)?);
    }
    Ok(converted.iter().flat_map(|batch| pieces(batch, MESSAGE_BYTES, &row_bytes)).collect())
}

/// Splits rows in halves until each piece has at most `bytes_max`, or one row.
fn pieces(batch: &RecordBatch, bytes_max: usize, bytes: &dyn Fn(&RecordBatch) -> usize) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    if rows <= 1 || bytes(batch) <= bytes_max {
        return vec![batch.clone()];
    }
    let mut first = pieces(&batch.slice(0, rows / 2), bytes_max, bytes);
    first.extend(pieces(&batch.slice(rows / 2, rows - rows / 2), bytes_max, bytes));
    first
}

/// Returns the bytes of the rows, without those of other rows in the same buffers.
fn row_bytes(batch: &RecordBatch) -> usize {
    // An array whose part cannot be told counts as a whole.
    let bytes = |column: &ArrayRef| {
        column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
    };
    batch.columns().iter().map(bytes).sum()
}

/// Returns the bytes of the texts that views in a column refer to, each as often as it occurs.
fn text_bytes(column: &ArrayRef) -> usize {
    // The length is in the first four bytes of a view.
    let length = |view: &u128| usize::try_from(view & u128::from(u32::MAX)).unwrap_or(usize::MAX);
    let of_views = |views: &[u128]| views.iter().map(length).sum::<usize>();
    let of_part = |values: &ArrayRef, start: i64, end: i64| {
        let (start, end) =
            (usize::try_from(start).unwrap_or_default(), usize::try_from(end).unwrap_or_default());
        text_bytes(&values.slice(start, end - start))
    };
    match column.data_type() {
        DataType::Utf8View => of_views(column.as_string_view().views()),
        DataType::BinaryView => of_views(column.as_binary_view().views()),
        DataType::Struct(_) => column.as_struct().columns().iter().map(text_bytes).sum(),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets = list.value_offsets();
            of_part(list.values(), offsets[0].into(), offsets[list.len()].into())
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let offsets = list.value_offsets();
            of_part(list.values(), offsets[0], offsets[list.len()])
        }
        DataType::FixedSizeList(..) => text_bytes(column.as_fixed_size_list().values()),
        DataType::Map(..) => {
            let map = column.as_map();
            let offsets = map.value_offsets();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            of_part(&entries, offsets[0].into(), offsets[map.len()].into())
        }
        // Each row counts as the longest value.
        DataType::Dictionary(..) => longest(column.as_any_dictionary().values()) * column.len(),
        _ => 0,
    }
}

/// Returns the bytes of the longest text of a column.
fn longest(values: &ArrayRef) -> usize {
    let longest = match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().iter().flatten().map(str::len).max(),
        DataType::Utf8View => values.as_string_view().iter().flatten().map(str::len).max(),
        DataType::Binary => values.as_binary::<i32>().iter().flatten().map(<[u8]>::len).max(),
        DataType::BinaryView => values.as_binary_view().iter().flatten().map(<[u8]>::len).max(),
        _ => None,
    };
    longest.unwrap_or_default()
}

/// Returns rows with the columns of `schema`.
///
/// # Errors
/// `Invalid` if a value does not fit its column.
pub(super) fn cast_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |(column, field): (&ArrayRef, &FieldRef)| cast_column(column, field);
    let columns = batch.columns().iter().zip(schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Error::invalid(error.to_string()))
}

/// Returns a column as `field` has it.
///
/// # Errors
/// `Invalid` if a value does not fit.
pub(super) fn cast_column(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, field.data_type(), &options)
        .map_err(|error| Error::invalid(error.to_string()).at(format!("column {:?}", field.name())))
}

/// Returns the number of rows in batches.
pub(super) fn rows(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| cast::u64_from(batch.num_rows())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::Int32Type;
    use arrow_array::{DictionaryArray, Int64Array, StringViewArray};
    use arrow_select::concat::concat_batches;

    #[test]
    fn rows_are_sent_in_plain_types_and_small_messages() {
        let texts =
            StringViewArray::from_iter_values((0..40_000).map(|n| format!("a text of some length {n:090}")));
        let names: DictionaryArray<Int32Type> = (0..40_000).map(|n| ["a", "b"][n % 2]).collect();
        let batch = RecordBatch::try_from_iter([
            ("text", Arc::new(texts) as ArrayRef),
            ("name", Arc::new(names) as ArrayRef),
            ("n", Arc::new(Int64Array::from_iter_values(0..40_000)) as ArrayRef),
        ])
        .unwrap();
        let schema = sent_schema(&batch.schema());
        let types: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, [DataType::Utf8, DataType::Utf8, DataType::Int64]);
        let sent = sent_batches(&batch, &schema).unwrap();
        assert!(sent.len() > 2 && sent.iter().all(|piece| row_bytes(piece) <= MESSAGE_BYTES));
        let whole = concat_batches(&schema, &sent).unwrap();
        assert_eq!(whole.column(2), batch.column(2));
        assert_eq!(whole, cast_batch(&batch, &schema).unwrap());
        // A part of a large batch is not split by what the other rows take.
        assert_eq!(sent_batches(&batch.slice(5, 100), &schema).unwrap().len(), 1);
    }
}

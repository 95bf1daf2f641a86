//! Batches from IPC messages. Arrow's decoder validates values (UTF-8, views, null counts) but panics when
//! buffers lie outside the body or counts do not fit the schema; so those are checked here first.

use super::compress::inflate;
use super::metadata;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use farpool_model::{Error, Result, schema};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows of one batch: what Arrow's offsets and most engines can count.
const ROWS_MAX: i64 = i32::MAX as i64;

/// Reads the IPC message of a batch in `schema`, which is canonical. The arrays share the memory of `body`, unless
/// its buffers are compressed.
///
/// # Errors
/// `Corrupt`, saying what is damaged; `Invalid` when the schema is not canonical.
pub fn decode_batch(schema: &SchemaRef, body: &Bytes) -> Result<RecordBatch> {
    let (start, message) = metadata(body)?;
    let Some(header) = message.header_as_record_batch() else {
        return Err(damaged("it is not a batch"));
    };
    let data = body.slice(start..);
    if usize::try_from(message.bodyLength()).ok() != Some(data.len()) {
        return Err(damaged(format!(
            "it says that {} bytes follow, but {} do",
            message.bodyLength(),
            data.len()
        )));
    }
    if header.compression().is_some() {
        return decode_batch(schema, &inflate(&header, &data)?);
    }
    check(&header, schema, data.len())?;
    let version = message.version();
    let dictionaries = HashMap::new();
    RecordBatchDecoder::try_new(&Buffer::from(data), header, Arc::clone(schema), &dictionaries, &version)
        .and_then(RecordBatchDecoder::read_record_batch)
        .map_err(damaged)
}

/// Everything that Arrow's decoder takes for granted.
fn check(header: &arrow_ipc::RecordBatch, schema: &SchemaRef, data_bytes: usize) -> Result<()> {
    let rows = header.length();
    if !(0..=ROWS_MAX).contains(&rows) {
        return Err(damaged(format!("it says that it has {rows} rows")));
    }
    let nodes = header.nodes().ok_or_else(|| damaged("it has no list of columns"))?;
    let buffers = header.buffers().ok_or_else(|| damaged("it has no list of buffers"))?;
    if nodes.len() != schema.fields().len() {
        return Err(damaged(format!("it has {} columns, the schema {}", nodes.len(), schema.fields().len())));
    }
    let lies_within = |buffer: &arrow_ipc::Buffer| {
        let end = buffer.offset().checked_add(buffer.length());
        buffer.offset() >= 0 && buffer.length() >= 0 && end.is_some_and(|end| end <= data_bytes as i64)
    };
    if let Some(buffer) = buffers.iter().find(|buffer| !lies_within(buffer)) {
        return Err(damaged(format!(
            "bytes {} + {} lie outside its body of {data_bytes}",
            buffer.offset(),
            buffer.length()
        )));
    }
    let mut variadic_counts = header.variadicBufferCounts().into_iter().flatten();
    let mut lengths = buffers.iter().map(|buffer| buffer.length());
    for (field, node) in schema.fields().iter().zip(nodes) {
        check_column(field.data_type(), node, rows, &mut lengths, &mut variadic_counts)
            .map_err(|e| e.at(field.name()))?;
    }
    if lengths.next().is_some() || variadic_counts.next().is_some() {
        return Err(damaged("it has more buffers than its columns need"));
    }
    Ok(())
}

fn check_column(
    data_type: &DataType,
    node: &arrow_ipc::FieldNode,
    rows: i64,
    lengths: &mut impl Iterator<Item = i64>,
    variadic_counts: &mut impl Iterator<Item = i64>,
) -> Result<()> {
    if node.length() != rows || !(0..=rows).contains(&node.null_count()) {
        return Err(damaged(format!(
            "the column has {} rows and {} NULLs, the batch {rows} rows",
            node.length(),
            node.null_count()
        )));
    }
    let mut next = || lengths.next().ok_or_else(|| damaged("it has fewer buffers than its columns need"));
    let bitmap_bytes = (rows + 7) / 8;
    if next()? < bitmap_bytes && node.null_count() > 0 {
        return Err(damaged("the validity bitmap is too short"));
    }
    let is_view = schema::is_bytes(data_type);
    let (needed, width) = match data_type {
        DataType::Boolean => (bitmap_bytes, 1),
        _ if is_view => (rows * 16, 16),
        _ => match data_type.primitive_width() {
            Some(width) => (rows * width as i64, width as i64),
            None => return Err(Error::invalid(format!("{data_type} does not go over the wire"))),
        },
    };
    let values = next()?;
    if values < needed || values % width != 0 {
        return Err(damaged(format!("{values} bytes of values do not make {rows} rows")));
    }
    if is_view {
        let count = variadic_counts.next().ok_or_else(|| damaged("a count of data buffers is missing"))?;
        for _ in 0..count {
            next()?;
        }
        if count < 0 {
            return Err(damaged(format!("a column has {count} data buffers")));
        }
    }
    Ok(())
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("a damaged batch: {what}"))
}

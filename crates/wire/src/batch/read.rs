//! Reads batches from IPC messages. Arrow's decoder validates values (UTF-8, views, NULL counts), but panics if buffers
//! are outside the body or counts do not fit the schema. Therefore these are checked here first.

use super::compress::Compressed;
use super::{metadata, string_bytes};
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use farpool_model::{Error, Result, limits, schema};
use std::collections::HashMap;
use std::sync::Arc;

/// Minimum alignment of the message's memory, in bytes, at which values of any width can be used without copying them.
const VALUE_ALIGNMENT: usize = align_of::<i128>();

/// Returns the bytes of memory that [`decode_batch`] takes in addition to the message: none if its arrays share the
/// message's memory; the decompressed size of all buffers if they are compressed. Decodes nothing.
///
/// # Errors
/// `Corrupt` if the message is malformed; `OverLimit` if its buffers are too large after decompression.
pub fn bytes_to_decode(body: &Bytes) -> Result<usize> {
    let (header, data, _) = parts(body)?;
    match header.compression() {
        Some(_) => Ok(Compressed::of(&header, &data)?.bytes_inflated),
        None if (data.as_ptr() as usize).is_multiple_of(VALUE_ALIGNMENT) => Ok(0),
        None => Ok(data.len()),
    }
}

/// Decodes the IPC message of a batch with the canonical schema `schema`. The arrays share the memory of `body`, unless
/// its buffers are compressed.
///
/// # Errors
/// `Corrupt`, with what is malformed; `OverLimit` if there are too many rows or buffers, or if the strings of all rows
/// or the decompressed buffers are too long; `Invalid` if the schema is not canonical.
pub fn decode_batch(schema: &SchemaRef, body: &Bytes) -> Result<RecordBatch> {
    let (header, data, version) = parts(body)?;
    if header.compression().is_some() {
        let inflated = Compressed::of(&header, &data)?.inflate(&header)?;
        return decode_batch(schema, &inflated);
    }
    check_canonical(schema)?;
    check(&header, schema, &data)?;
    let dictionaries = HashMap::new();
    RecordBatchDecoder::try_new(&Buffer::from(data), header, Arc::clone(schema), &dictionaries, &version)
        .and_then(RecordBatchDecoder::read_record_batch)
        .map_err(damaged)
}

/// Returns the header of a batch, its body, and the version of the metadata.
fn parts(message: &Bytes) -> Result<(arrow_ipc::RecordBatch<'_>, Bytes, arrow_ipc::MetadataVersion)> {
    let (start, parsed) = metadata(message)?;
    let Some(header) = parsed.header_as_record_batch() else {
        return Err(damaged("it is not a batch"));
    };
    let data = message.slice(start..);
    if usize::try_from(parsed.bodyLength()).ok() != Some(data.len()) {
        return Err(damaged(format!(
            "it says that {} bytes follow, but {} do",
            parsed.bodyLength(),
            data.len()
        )));
    }
    check_counts(&header)?;
    Ok((header, data, parsed.version()))
}

/// Rejects counts (such as rows of a batch without columns) whose cost would be out of proportion to the size of the
/// message.
fn check_counts(header: &arrow_ipc::RecordBatch<'_>) -> Result<()> {
    let (rows, rows_max) = (header.length(), limits::MESSAGE_ROWS_MAX);
    if rows < 0 {
        return Err(damaged(format!("it says that it has {rows} rows")));
    }
    if rows > rows_max as i64 {
        return Err(Error::over_limit(format!("a batch may have {rows_max} rows, this one has {rows}"))
            .advise("send fewer rows in a batch"));
    }
    let (buffers, buffers_max) = (header.buffers().map_or(0, |b| b.len()), limits::MESSAGE_BUFFERS_MAX);
    if buffers > buffers_max {
        return Err(Error::over_limit(format!(
            "a batch may have {buffers_max} buffers, this one has {buffers}"
        ))
        .advise("send the bytes of strings in fewer, longer buffers"));
    }
    Ok(())
}

/// Rejects columns that do not go over the native protocol.
fn check_canonical(schema: &SchemaRef) -> Result<()> {
    let is_canonical = |data_type: &DataType| {
        schema::canonical_type(data_type).is_some_and(|canonical| canonical == *data_type)
    };
    match schema.fields().iter().find(|field| !is_canonical(field.data_type())) {
        Some(field) => Err(Error::invalid(format!("{} does not go over the wire", field.data_type()))),
        None => Ok(()),
    }
}

/// Checks everything that Arrow's decoder assumes without checking it, for columns that are not nested.
pub(crate) fn check(header: &arrow_ipc::RecordBatch<'_>, schema: &SchemaRef, data: &[u8]) -> Result<()> {
    check_counts(header)?;
    let rows = header.length();
    let nodes = header.nodes().ok_or_else(|| damaged("it has no list of columns"))?;
    let buffers = header.buffers().ok_or_else(|| damaged("it has no list of buffers"))?;
    if nodes.len() != schema.fields().len() {
        return Err(damaged(format!("it has {} columns, the schema {}", nodes.len(), schema.fields().len())));
    }
    let bytes_of = |buffer: &arrow_ipc::Buffer| {
        let range = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        range.and_then(|(start, length)| data.get(start..)?.get(..length)).ok_or_else(|| {
            let (start, length) = (buffer.offset(), buffer.length());
            damaged(format!("bytes {start} + {length} lie outside its body of {}", data.len()))
        })
    };
    let buffers = buffers.iter().map(bytes_of).collect::<Result<Vec<&[u8]>>>()?;
    let mut buffers = buffers.into_iter();
    let mut variadic_counts = header.variadicBufferCounts().into_iter().flatten();
    let mut strings = 0;
    for (field, node) in schema.fields().iter().zip(nodes) {
        strings += check_column(field.data_type(), node, rows, &mut buffers, &mut variadic_counts)
            .map_err(|e| e.at(field.name()))?;
    }
    if buffers.next().is_some() || variadic_counts.next().is_some() {
        return Err(damaged("it has more buffers than its columns need"));
    }
    if strings > limits::MESSAGE_BYTES_MAX {
        let most = limits::MESSAGE_BYTES_MAX;
        return Err(Error::over_limit(format!(
            "the strings of all rows of a batch may have {most} bytes, these have {strings}"
        ))
        .advise("send fewer rows in a batch"));
    }
    Ok(())
}

/// Checks the next column; returns the total length of the strings of its rows.
fn check_column<'a>(
    data_type: &DataType,
    node: &arrow_ipc::FieldNode,
    rows: i64,
    buffers: &mut impl Iterator<Item = &'a [u8]>,
    variadic_counts: &mut impl Iterator<Item = i64>,
) -> Result<usize> {
    if node.length() != rows || !(0..=rows).contains(&node.null_count()) {
        return Err(damaged(format!(
            "the column has {} rows and {} NULLs, the batch {rows} rows",
            node.length(),
            node.null_count()
        )));
    }
    if *data_type == DataType::Null {
        return Ok(0);
    }
    let mut next = || buffers.next().ok_or_else(|| damaged("it has fewer buffers than its columns need"));
    let rows = rows as usize;
    let bitmap_bytes = rows.div_ceil(8);
    if next()?.len() < bitmap_bytes && node.null_count() > 0 {
        return Err(damaged("the validity bitmap is too short"));
    }
    let is_view = schema::is_bytes(data_type);
    let (needed, width) = match data_type {
        DataType::Boolean => (bitmap_bytes, 1),
        _ if is_view => (rows * 16, 16),
        DataType::FixedSizeBinary(width) => {
            let width = usize::try_from(*width).map_err(|_| damaged("values of a negative size"))?;
            (rows.saturating_mul(width), 1)
        }
        // Offsets, one more than there are rows, if there are any.
        DataType::Utf8 | DataType::Binary => (if rows == 0 { 0 } else { 4 * (rows + 1) }, 4),
        DataType::LargeUtf8 | DataType::LargeBinary => (if rows == 0 { 0 } else { 8 * (rows + 1) }, 8),
        _ => match data_type.primitive_width() {
            Some(width) => (rows * width, width),
            None => return Err(Error::invalid(format!("{data_type} does not go over the wire"))),
        },
    };
    let values = next()?;
    if values.len() < needed || !values.len().is_multiple_of(width) {
        return Err(damaged(format!("{} bytes of values do not make {rows} rows", values.len())));
    }
    if matches!(data_type, DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary) {
        next()?;
    }
    if !is_view {
        return Ok(0);
    }
    let count = variadic_counts.next().ok_or_else(|| damaged("a count of data buffers is missing"))?;
    if count < 0 {
        return Err(damaged(format!("a column has {count} data buffers")));
    }
    for _ in 0..count {
        next()?;
    }
    // All views count, because Arrow also checks those of NULLs and those beyond the last row.
    Ok(string_bytes(values))
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("a damaged batch: {what}"))
}

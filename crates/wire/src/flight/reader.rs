//! Reads the messages of one stream of rows, one after the other.

use super::schema::{Column, columns};
use crate::batch::{check, string_bytes};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_buffer::Buffer;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::{TakeOptions, take};
use bytes::Bytes;
use farpool_model::{Error, Result, cast, limits};
use std::collections::HashMap;
use std::sync::Arc;

/// Reads a stream of rows: its schema, then dictionaries and batches.
#[derive(Debug)]
pub struct FlightReader {
    columns: Vec<Column>,
    /// The columns as batches have them.
    sent: SchemaRef,
    /// The columns as they are returned.
    schema: SchemaRef,
    /// The values of the dictionaries by their ids.
    dictionaries: HashMap<i64, ArrayRef>,
    /// The bytes of the messages with these.
    dictionary_bytes: usize,
}

impl FlightReader {
    /// Begins with the metadata of the first message, which has the schema.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are malformed; `Invalid` if a type is not accepted; `OverLimit` if there are too many
    /// columns.
    pub fn open(header: &[u8]) -> Result<Self> {
        let columns = columns(header)?;
        let sent = Arc::new(Schema::new(columns.iter().map(Column::sent).collect::<Vec<_>>()));
        let schema = Arc::new(Schema::new(columns.iter().map(returned).collect::<Vec<_>>()));
        Ok(FlightReader { columns, sent, schema, dictionaries: HashMap::new(), dictionary_bytes: 0 })
    }

    /// Returns the schema of the batches that are returned.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads the next message: its metadata and its body. Returns `None` if it is a dictionary.
    ///
    /// # Errors
    /// `Corrupt`, with what is malformed; `OverLimit` if there are too many rows, or too long strings or dictionaries;
    /// `Invalid` for a message that is neither rows nor a dictionary, or is compressed.
    pub fn read(&mut self, header: &[u8], body: &Bytes) -> Result<Option<RecordBatch>> {
        let message = message(header)?;
        if let Some(batch) = message.header_as_record_batch() {
            let batch = decoded(&batch, &self.sent, body, message.version())?;
            return self.with_values(batch).map(Some);
        }
        let Some(dictionary) = message.header_as_dictionary_batch() else {
            return Err(Error::invalid("a message that has neither rows nor a dictionary"));
        };
        let id = dictionary.id();
        let column =
            self.columns.iter().find(|column| matches!(column.dictionary, Some((_, known)) if known == id));
        let column = column.ok_or_else(|| damaged(format!("no column has the dictionary {id}")))?;
        if dictionary.isDelta() {
            return Err(
                Error::invalid("a dictionary that adds to an earlier one").advise("send whole dictionaries")
            );
        }
        self.dictionary_bytes = self.dictionary_bytes.saturating_add(body.len());
        if self.dictionary_bytes > limits::FLIGHT_DICTIONARY_BYTES_MAX {
            let most = limits::FLIGHT_DICTIONARY_BYTES_MAX;
            return Err(Error::over_limit(format!("the dictionaries of a stream may have {most} bytes"))
                .advise("send the values themselves"));
        }
        let values = dictionary.data().ok_or_else(|| damaged("a dictionary without values"))?;
        let field = column.field.clone().with_name("values").with_nullable(true);
        let values = decoded(&values, &Arc::new(Schema::new(vec![field])), body, message.version())?;
        self.dictionaries.insert(id, shared(values.column(0)));
        Ok(None)
    }

    /// Replaces keys by the values of their dictionaries.
    fn with_values(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if self.columns.iter().all(|column| column.dictionary.is_none()) {
            return Ok(batch);
        }
        let mut string_bytes = 0;
        let mut resolved = Vec::with_capacity(self.columns.len());
        for (column, sent) in self.columns.iter().zip(batch.columns()) {
            let Some((_, id)) = &column.dictionary else {
                resolved.push(Arc::clone(sent));
                continue;
            };
            let values = self.dictionaries.get(id).ok_or_else(|| damaged("keys come before their values"))?;
            let options = Some(TakeOptions { check_bounds: true });
            let values = take(values, sent, options).map_err(damaged)?;
            string_bytes += view_bytes(&values);
            resolved.push(values);
        }
        if string_bytes > limits::MESSAGE_BYTES_MAX {
            let most = limits::MESSAGE_BYTES_MAX;
            return Err(Error::over_limit(format!(
                "the strings of all rows of a batch may have {most} bytes"
            ))
            .advise("send fewer rows in a batch"));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), resolved, &options).map_err(damaged)
    }
}

/// Returns the field of a column as it is returned: texts and bytes of a dictionary become views.
fn returned(column: &Column) -> Field {
    let field = column.field.clone();
    match (&column.dictionary, field.data_type()) {
        (Some(_), DataType::Utf8 | DataType::LargeUtf8) => field.with_data_type(DataType::Utf8View),
        (Some(_), DataType::Binary | DataType::LargeBinary) => field.with_data_type(DataType::BinaryView),
        _ => field,
    }
}

/// Returns the values of a dictionary such that rows which have them share their bytes.
fn shared(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Utf8 => Arc::new(StringViewArray::from(values.as_string::<i32>())),
        DataType::LargeUtf8 => Arc::new(StringViewArray::from(values.as_string::<i64>())),
        DataType::Binary => Arc::new(BinaryViewArray::from(values.as_binary::<i32>())),
        DataType::LargeBinary => Arc::new(BinaryViewArray::from(values.as_binary::<i64>())),
        _ => Arc::clone(values),
    }
}

/// Returns the bytes of all strings of a column, each counted as often as it occurs.
fn view_bytes(column: &ArrayRef) -> usize {
    match column.data_type() {
        DataType::Utf8View => string_bytes(column.as_string_view().views().inner()),
        DataType::BinaryView => string_bytes(column.as_binary_view().views().inner()),
        _ => 0,
    }
}

/// Parses the metadata of a message.
pub(super) fn message(header: &[u8]) -> Result<arrow_ipc::Message<'_>> {
    let message = arrow_ipc::root_as_message(header).map_err(damaged)?;
    match message.version() >= arrow_ipc::MetadataVersion::V4 {
        true => Ok(message),
        false => Err(Error::invalid("the rows are in a version of Arrow's format from before 2017")),
    }
}

fn decoded(
    header: &arrow_ipc::RecordBatch<'_>,
    schema: &SchemaRef,
    body: &Bytes,
    version: arrow_ipc::MetadataVersion,
) -> Result<RecordBatch> {
    if header.compression().is_some() {
        return Err(Error::invalid("the buffers of rows are compressed").advise("send them uncompressed"));
    }
    check(header, schema, body)?;
    let empty = schema.fields().iter().filter(|field| *field.data_type() == DataType::Null).count();
    let rows = cast::usize_saturating(header.length().unsigned_abs());
    if empty > 0 && rows.saturating_mul(empty) > limits::FLIGHT_EMPTY_VALUES_MAX {
        let most = limits::FLIGHT_EMPTY_VALUES_MAX;
        return Err(Error::over_limit(format!("columns without a type may have {most} rows together"))
            .advise("send fewer rows in a batch, or give the columns a type"));
    }
    let dictionaries = HashMap::new();
    RecordBatchDecoder::try_new(
        &Buffer::from(body.clone()),
        *header,
        Arc::clone(schema),
        &dictionaries,
        &version,
    )
    .and_then(RecordBatchDecoder::read_record_batch)
    .map_err(damaged)
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("a damaged Arrow message: {what}"))
}

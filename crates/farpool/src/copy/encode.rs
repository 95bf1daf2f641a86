//! Encoding of rows in a file format, on any thread, in many parts in parallel. A part does not depend on the parts
//! before it.
//!
//! Invariant: the parts in order, with the bytes that [`super::format::Settings::write`] writes before, between and
//! after them, are the file that a single thread would write.

use super::csv::{self, Form};
use super::format::{Format, Settings};
use super::textual;
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json::writer::{JsonArray, LineDelimited};
use farpool_model::{Error, Result};
use farpool_sql::{check_json, json_writer};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;

/// Default number of rows per row group of a Parquet file. Reason: enough to compress well, and few enough that a file
/// of some millions of rows has a row group for each thread that reads or writes it.
const ROW_GROUP_ROWS: usize = 256 << 10;

/// Bytes in memory at which a row group of at least [`WIDE_GROUP_ROWS`] rows ends. Reason: as many row groups are in
/// memory as there are threads.
const ROW_GROUP_BYTES: usize = 128 << 20;

/// Minimum number of rows of a row group that ends because of [`ROW_GROUP_BYTES`].
const WIDE_GROUP_ROWS: usize = 32 << 10;

/// An encoder of rows in one format.
pub(super) enum Encoder {
    Csv(Form),
    Json { is_array: bool },
    Parquet { row_groups: ArrowRowGroupWriterFactory, schema: SchemaRef, rows: Option<usize> },
    Arrow,
}

/// The encoded rows of one part (the rows that one thread encodes at a time).
pub(super) enum Encoded {
    Bytes(Vec<u8>),
    Columns(Vec<ArrowColumnChunk>),
    Batches(Vec<RecordBatch>),
}

impl Encoder {
    /// Creates an encoder.
    ///
    /// # Errors
    /// `Invalid` if the format cannot represent a column.
    pub(super) fn new(settings: &Settings, schema: &SchemaRef) -> Result<Self> {
        Ok(match settings.format() {
            Format::Csv(csv) => Encoder::Csv(csv.form()),
            Format::Json { is_array } => Encoder::Json { is_array: *is_array },
            Format::Parquet { row_group_rows, .. } => {
                // Only the factory of column writers is used, which has the settings of the file's own writer; the
                // output of this writer is discarded.
                let writer = ArrowWriter::try_new(std::io::sink(), schema.clone(), settings.properties());
                let (_, row_groups) =
                    writer.and_then(ArrowWriter::into_serialized_writer).map_err(stopped)?;
                Encoder::Parquet { row_groups, schema: schema.clone(), rows: *row_group_rows }
            }
            Format::ArrowFile | Format::ArrowStream => Encoder::Arrow,
        })
    }

    /// Returns the number of rows that can be added to a part that has `rows` rows of `bytes` bytes.
    pub(super) fn room(&self, rows: usize, bytes: usize) -> usize {
        match self {
            Encoder::Parquet { rows: Some(most), .. } => most.saturating_sub(rows),
            Encoder::Parquet { rows: None, .. } if rows >= WIDE_GROUP_ROWS && bytes >= ROW_GROUP_BYTES => 0,
            Encoder::Parquet { rows: None, .. } => ROW_GROUP_ROWS.saturating_sub(rows),
            Encoder::Csv(_) | Encoder::Json { .. } | Encoder::Arrow => {
                if rows == 0 {
                    usize::MAX
                } else {
                    0
                }
            }
        }
    }

    /// Encodes the rows of one part.
    ///
    /// # Errors
    /// `Invalid` if the format cannot represent a value.
    pub(super) fn encode(&self, batches: Vec<RecordBatch>) -> Result<Encoded> {
        Ok(match self {
            Encoder::Csv(form) => {
                let mut bytes = Vec::new();
                for batch in &batches {
                    bytes.extend(csv::rows(form, &textual(batch)?).map_err(|error| failed(&error))?);
                }
                Encoded::Bytes(bytes)
            }
            Encoder::Json { is_array: true } => {
                batches.iter().try_for_each(check_json)?;
                let mut writer = json_writer().build::<_, JsonArray>(Vec::new());
                batches.iter().try_for_each(|batch| writer.write(batch)).map_err(|error| failed(&error))?;
                writer.finish().map_err(|error| failed(&error))?;
                // Removes the brackets around the array.
                let bytes = writer.into_inner();
                Encoded::Bytes(bytes.get(1..bytes.len() - 1).unwrap_or_default().to_vec())
            }
            Encoder::Json { is_array: false } => {
                batches.iter().try_for_each(check_json)?;
                let mut writer = json_writer().build::<_, LineDelimited>(Vec::new());
                batches.iter().try_for_each(|batch| writer.write(batch)).map_err(|error| failed(&error))?;
                Encoded::Bytes(writer.into_inner())
            }
            Encoder::Parquet { row_groups, schema, .. } => {
                Encoded::Columns(columns(row_groups, schema, &batches).map_err(stopped)?)
            }
            Encoder::Arrow => Encoded::Batches(batches),
        })
    }
}

/// Encodes the columns of a row group.
fn columns(
    row_groups: &ArrowRowGroupWriterFactory,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> std::result::Result<Vec<ArrowColumnChunk>, ParquetError> {
    let mut writers = row_groups.create_column_writers(0)?;
    for batch in batches {
        let mut leaves = writers.iter_mut();
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, column)? {
                let writer = leaves.next();
                writer.ok_or_else(|| ParquetError::General("a column too many".to_string()))?.write(&leaf)?;
            }
        }
    }
    writers.into_iter().map(|writer| writer.close()).collect()
}

/// Estimates the bytes of the rows of a batch in memory.
pub(super) fn bytes_of(batch: &RecordBatch) -> usize {
    let bytes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
    bytes.fold(0, usize::saturating_add)
}

pub(super) fn stopped(error: ParquetError) -> Error {
    Error::invalid(error.to_string())
}

pub(super) fn failed(error: &ArrowError) -> Error {
    Error::invalid(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::Message;
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::compute::concat_batches;
    use farpool_datafusion::CopyTarget;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::fs::File;
    use std::path::Path;
    use std::sync::Arc;

    fn rows() -> RecordBatch {
        let texts = (0..100).map(|i| (i % 7 > 0).then(|| format!("a \"{i}\",\n\u{e9}")));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..100).map(|i| (i % 5 > 0).then_some(i))));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap()
    }

    fn write(path: &Path, options: &[(&str, &str)], parts: &[RecordBatch]) {
        let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let target = CopyTarget { path: Some(path.display().to_string()), format: None, options };
        let settings = Settings::of(&target).unwrap();
        let encoder = Encoder::new(&settings, &rows().schema()).unwrap();
        let (sender, receiver) = tokio::sync::mpsc::channel(parts.len() + 1);
        for part in parts {
            let part = encoder.encode(vec![part.clone()]).unwrap();
            assert!(sender.try_send(Message::Part(part)).is_ok());
        }
        assert!(sender.try_send(Message::End).is_ok());
        let out = Box::new(File::create(path).unwrap());
        assert!(settings.write(out, &rows().schema(), receiver).unwrap());
    }

    #[test]
    fn parts_are_the_file_that_is_written_of_all_rows() {
        let folder = tempfile::tempdir().unwrap();
        let all = rows();
        let parts: Vec<_> = [(0, 1), (1, 30), (31, 0), (31, 69)]
            .iter()
            .map(|(start, rows)| all.slice(*start, *rows))
            .collect();
        let cases: [(&str, &[(&str, &str)]); 4] = [
            ("x.csv", &[]),
            ("x.tsv", &[("null", "NA"), ("header", "false"), ("escape", "\\")]),
            ("x.json", &[]),
            ("x.json", &[("array", "true")]),
        ];
        for (name, options) in cases {
            let path = folder.path().join(name);
            let bytes_of = |parts: &[RecordBatch]| {
                write(&path, options, parts);
                std::fs::read_to_string(&path).unwrap()
            };
            assert_eq!(bytes_of(&parts), bytes_of(std::slice::from_ref(&all)), "{name}");
            bytes_of(&[]);
        }
        let path = folder.path().join("x.parquet");
        write(&path, &[], &parts);
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), parts.len());
        let read: Vec<_> = reader.build().unwrap().map(|batch| batch.unwrap()).collect();
        assert_eq!(concat_batches(&all.schema(), &read).unwrap(), all);
    }

    #[test]
    fn an_array_is_one_whatever_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        for (parts, objects) in [(vec![], 0), (vec![rows(), rows().slice(0, 0), rows()], 200)] {
            write(&path, &[("array", "true")], &parts);
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&text).unwrap().len(), objects);
        }
    }
}

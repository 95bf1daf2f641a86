//! Output formats for programs: CSV, JSON lines and Arrow IPC.
//!
//! Strings are written as plain `Utf8` and binaries as plain `Binary`, which every reader supports; view arrays only
//! serve to share memory with the pool.

use super::{LeftOut, Out, RowWriter, stop};
use crate::cli::stop::{Outcome, Stop};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json::writer::JsonFormat;
use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

/// A writer of values separated by commas or tabs, as in COPY: nothing for NULL, and quotes for an empty text.
pub struct CsvWriter {
    out: Out,
    delimiter: u8,
}

impl CsvWriter {
    /// Creates a writer to `out`. Results of several statements are separated by an empty line.
    pub fn new(mut out: Out, delimiter: u8, schema: &SchemaRef, first: bool) -> Outcome<Self> {
        if !first {
            writeln!(out).map_err(Stop::output)?;
        }
        out.write_all(&farpool::csv_header(delimiter, schema).map_err(stop)?).map_err(Stop::output)?;
        Ok(CsvWriter { out, delimiter })
    }
}

impl RowWriter for CsvWriter {
    fn write(&mut self, batch: &RecordBatch) -> Outcome {
        let lines = farpool::csv_lines(self.delimiter, &farpool::textual(batch)?).map_err(stop)?;
        self.out.write_all(&lines).map_err(Stop::output)
    }

    fn finish(mut self: Box<Self>) -> Outcome<LeftOut> {
        self.out.flush().map_err(Stop::output)?;
        Ok(LeftOut::default())
    }
}

/// A writer of a JSON object for each row, on separate lines or in one array.
pub struct JsonWriter<F: JsonFormat> {
    writer: arrow::json::Writer<Out, F>,
    schema: SchemaRef,
}

impl<F: JsonFormat> JsonWriter<F> {
    /// Creates a writer to `out`.
    pub fn new(out: Out, schema: &SchemaRef) -> Self {
        JsonWriter { writer: farpool::json_writer().build(out), schema: with_keys(schema) }
    }
}

/// The format of an array with an object on each line.
#[derive(Debug, Default)]
pub struct LinesOfArray;

impl JsonFormat for LinesOfArray {
    fn start_stream<W: Write>(&self, out: &mut W) -> Result<(), ArrowError> {
        Ok(out.write_all(b"[")?)
    }

    fn start_row<W: Write>(&self, out: &mut W, is_first: bool) -> Result<(), ArrowError> {
        Ok(out.write_all(if is_first { b"" } else { b",\n" })?)
    }

    fn end_stream<W: Write>(&self, out: &mut W) -> Result<(), ArrowError> {
        Ok(out.write_all(b"]\n")?)
    }
}

/// Makes the column names distinct, as the keys of an object must be: `a`, `a_1`.
fn with_keys(schema: &Schema) -> SchemaRef {
    let given: HashSet<&String> = schema.fields().iter().map(|field| field.name()).collect();
    let mut taken = HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        let numbered =
            (1_u32..).map(|n| format!("{}_{n}", field.name())).filter(|name| !given.contains(name));
        let key = std::iter::once(field.name().clone()).chain(numbered).find(|key| !taken.contains(key));
        let key = key.unwrap_or_else(|| field.name().clone());
        taken.insert(key.clone());
        field.as_ref().clone().with_name(key)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

impl<F: JsonFormat + Send> RowWriter for JsonWriter<F> {
    fn write(&mut self, batch: &RecordBatch) -> Outcome {
        let columns = batch.columns().to_vec();
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(stop)?;
        farpool::check_json(&batch)?;
        self.writer.write(&batch).map_err(stop)
    }

    fn finish(mut self: Box<Self>) -> Outcome<LeftOut> {
        self.writer.finish().map_err(stop)?;
        self.writer.into_inner().flush().map_err(Stop::output)?;
        Ok(LeftOut::default())
    }
}

/// A writer of an Arrow IPC stream.
pub struct ArrowWriter {
    writer: StreamWriter<Out>,
    schema: SchemaRef,
}

impl ArrowWriter {
    /// Creates a writer and writes the schema to `out`.
    pub fn new(out: Out, schema: &SchemaRef) -> Outcome<Self> {
        let fields = schema.fields().iter();
        let fields: Vec<Field> =
            fields.map(|f| f.as_ref().clone().with_data_type(plain_type(f.data_type()))).collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(ArrowWriter { writer: StreamWriter::try_new(out, &schema).map_err(stop)?, schema })
    }
}

impl RowWriter for ArrowWriter {
    fn write(&mut self, batch: &RecordBatch) -> Outcome {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns: Result<Vec<ArrayRef>, _> = columns.map(|(c, f)| cast(c, f.data_type())).collect();
        let plain = RecordBatch::try_new(self.schema.clone(), columns.map_err(stop)?).map_err(stop)?;
        self.writer.write(&plain).map_err(stop)
    }

    fn finish(mut self: Box<Self>) -> Outcome<LeftOut> {
        self.writer.finish().map_err(stop)?;
        self.writer.get_mut().flush().map_err(Stop::output)?;
        Ok(LeftOut::default())
    }
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_equal() {
        let field = |name: &&str| Field::new(*name, DataType::Int64, true);
        let keys = |names: &[&str]| {
            let schema = with_keys(&Schema::new(names.iter().map(field).collect::<Vec<_>>()));
            schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
        };
        assert_eq!(keys(&["a", "b", "a", "a"]), ["a", "b", "a_1", "a_2"]);
        assert_eq!(keys(&["a", "a", "a_1", "a_1"]), ["a", "a_2", "a_1", "a_1_1"]);
    }
}

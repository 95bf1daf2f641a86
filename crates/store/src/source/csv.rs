//! CSV and TSV files with a header line, types guessed from the first rows.
//!
//! Guessed are: whole numbers (64-bit), fractional numbers, true/false, dates (`2024-05-31`), timestamps
//! (`2024-05-31 12:00:00.5`, held to the microsecond, finer only if the first rows are), text. An empty
//! field is NULL. Whole numbers are text if the first rows have one that begins with 0, such as a postal code. A later
//! value that does not fit is an error with its line: to read on with another type
//! would change the meaning of the rows before.

use super::progress::{Counting, Progress};
use super::{Batches, files};
use arrow_array::cast::AsArray;
use arrow_csv::reader::Format;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use farpool_model::{Error, Result, limits};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// Rows from which types are guessed: as many as DuckDB looks at.
const GUESS_ROWS: usize = 20_480;
/// Of which so many are looked at at a time.
const GUESS_BATCH_ROWS: usize = 1024;

/// How the fields of a line are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    delimiter: u8,
}

/// The columns, of type Null where the first rows have no value, and the dialect.
pub(super) fn open(path: &Path, mut file: File, tabs: bool) -> Result<(SchemaRef, Dialect)> {
    let delimiter = if tabs { b'\t' } else { guess_delimiter(path, &mut file)? };
    guess(path, file, delimiter)
}

/// The columns and the dialect of what stands at the beginning of a stream.
pub(super) fn open_head(path: &Path, head: &[u8]) -> Result<(SchemaRef, Dialect)> {
    let header = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    guess(path, Cursor::new(head), delimiter_of(header))
}

fn guess(path: &Path, mut from: impl Read + Seek, delimiter: u8) -> Result<(SchemaRef, Dialect)> {
    let format = Format::default().with_header(true).with_delimiter(delimiter);
    let (guessed, _) = format
        .infer_schema(BufReader::new(&mut from), Some(GUESS_ROWS))
        .map_err(|error| failure(path, &error, None))?;
    if guessed.fields().is_empty() {
        return Err(Error::invalid(format!("{} has no columns", path.display())));
    }
    from.rewind().map_err(|error| files::unreadable(path, &error))?;
    let texts = with_leading_zeros(&guessed, from, delimiter).map_err(|error| failure(path, &error, None))?;
    let fields = guessed.fields().iter().enumerate().map(|(i, field)| {
        let name = match field.name().trim() {
            "" => format!("column_{}", i + 1),
            name => name.to_string(),
        };
        let data_type = if texts.contains(&i) { &DataType::Utf8 } else { field.data_type() };
        Field::new(name, held_type(data_type), true)
    });
    Ok((Arc::new(Schema::new(fields.collect::<Fields>())), Dialect { delimiter }))
}

/// The columns guessed to be of whole numbers that have one with a leading zero in the first rows, which the number would
/// lose.
fn with_leading_zeros(
    guessed: &Schema,
    from: impl Read,
    delimiter: u8,
) -> std::result::Result<Vec<usize>, ArrowError> {
    let is_whole = |i: &usize| guessed.field(*i).data_type() == &DataType::Int64;
    let whole: Vec<usize> = (0..guessed.fields().len()).filter(is_whole).collect();
    if whole.is_empty() {
        return Ok(whole);
    }
    let text = |field: &FieldRef| Field::new(field.name(), DataType::Utf8, true);
    let texts = Schema::new(guessed.fields().iter().map(text).collect::<Fields>());
    let reader = arrow_csv::ReaderBuilder::new(Arc::new(texts))
        .with_header(true)
        .with_delimiter(delimiter)
        .with_batch_size(GUESS_BATCH_ROWS)
        .with_projection(whole.clone())
        .build(from)?;
    let mut found = vec![false; whole.len()];
    for batch in reader.take(GUESS_ROWS / GUESS_BATCH_ROWS) {
        for (found, column) in found.iter_mut().zip(batch?.columns()) {
            *found = *found || column.as_string::<i32>().iter().flatten().any(has_leading_zero);
        }
    }
    Ok(whole.into_iter().zip(found).filter(|(_, found)| *found).map(|(column, _)| column).collect())
}

fn has_leading_zero(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() > 1 && digits.starts_with('0')
}

/// Reads the columns at `columns`.
pub(super) fn read(
    path: &Path,
    file: File,
    schema: &SchemaRef,
    dialect: Dialect,
    columns: &[usize],
    progress: Arc<Progress>,
) -> Result<Batches> {
    read_from(path, Counting { inner: file, progress }, schema, dialect, columns)
}

/// Reads CSV from any reader; `path` is for messages.
pub(super) fn read_from(
    path: &Path,
    from: impl Read + Send + 'static,
    schema: &SchemaRef,
    dialect: Dialect,
    columns: &[usize],
) -> Result<Batches> {
    let reader = arrow_csv::ReaderBuilder::new(schema.clone())
        .with_header(true)
        .with_delimiter(dialect.delimiter)
        .with_batch_size(limits::BATCH_ROWS)
        .with_projection(columns.to_vec())
        .build(from)
        .map_err(|error| failure(path, &error, Some(schema)))?;
    let (path, schema) = (path.to_path_buf(), schema.clone());
    Ok(Box::new(reader.map(move |batch| batch.map_err(|error| failure(&path, &error, Some(&schema))))))
}

fn held_type(guessed: &DataType) -> DataType {
    match guessed {
        DataType::Utf8 => DataType::Utf8View,
        // Later rows may be finer than the first, and would be cut off silently.
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        other => other.clone(),
    }
}

/// A comma, unless the header has none and has one of the other usual separators.
fn guess_delimiter(path: &Path, file: &mut File) -> Result<u8> {
    let mut header = Vec::new();
    let io = |error: std::io::Error| files::unreadable(path, &error);
    Read::take(BufReader::new(&mut *file), limits::CSV_HEADER_BYTES_MAX)
        .read_until(b'\n', &mut header)
        .map_err(io)?;
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    Ok(delimiter_of(&header))
}

fn delimiter_of(header: &[u8]) -> u8 {
    let found = [b',', b';', b'\t', b'|'].into_iter().find(|delimiter| header.contains(delimiter));
    found.unwrap_or(b',')
}

/// What the reader says, in terms of the file. Its messages are texts; the one that matters is taken apart.
fn failure(path: &Path, error: &ArrowError, schema: Option<&SchemaRef>) -> Error {
    let text = match error {
        ArrowError::ParseError(text) | ArrowError::CsvError(text) => text.as_str(),
        ArrowError::IoError(_, io) => return files::unreadable(path, io),
        other => return Error::invalid(format!("{}: {other}", path.display())),
    };
    if let (Some(misfit), Some(schema)) = (Misfit::parse(text), schema) {
        return misfit.error(path, schema);
    }
    let text = text.replace("on CSV file", "").replace("  ", " ").replace("records", "fields");
    Error::invalid(format!("{}: {text}", path.display()))
        .advise("every line needs as many fields as the header, and UTF-8 text")
}

/// A value that does not fit the type of its column.
struct Misfit<'a> {
    value: &'a str,
    column: usize,
    line: usize,
}

impl<'a> Misfit<'a> {
    /// Takes apart "Error while parsing value 'V' as type 'T' for column C at line L. Row data: …".
    fn parse(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix("Error while parsing value '")?;
        let (value, rest) = rest.split_once("' as type '")?;
        let (_, rest) = rest.split_once("' for column ")?;
        let (column, rest) = rest.split_once(" at line ")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        // The reader counts lines from 0.
        let line = rest[..digits].parse::<usize>().ok()? + 1;
        Some(Misfit { value, column: column.parse().ok()?, line })
    }

    fn error(&self, path: &Path, schema: &SchemaRef) -> Error {
        let (name, data_type) = match schema.fields().get(self.column) {
            Some(field) => (field.name().as_str(), field.data_type().to_string()),
            None => ("?", "the column's type".to_string()),
        };
        Error::invalid(format!(
            "{}, line {}: {:?} is not a value of column {name:?}, which has type {data_type} by the first {} rows",
            path.display(),
            self.line,
            self.value,
            GUESS_ROWS
        ))
        .advise("correct the value, or write the file as Parquet, which names its types")
    }
}

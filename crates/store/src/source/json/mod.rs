//! JSON: objects, one after the other or in one array. Each is a row, its members are columns.
//!
//! Types are guessed from the first rows: those of CSV for strings that are dates or timestamps, numbers, booleans,
//! lists and structs of these. What is an object here and a number there is text, which objects cannot be read as.

mod guess;
mod scan;

use super::compressed::Bytes;
use super::convert::{self, Misfit, Origin};
use super::{Batches, damaged, files, names};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_json::reader::{Decoder, ReaderBuilder};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
use farpool_model::{Error, ReadOptions, Result, brief, limits};
use scan::{Cut, Scanner};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes after which a batch ends.
const BATCH_BYTES: usize = 16 << 20;

/// The columns, of type Null where the first rows have no value.
pub(super) fn open(path: &Path, from: impl BufRead, options: &ReadOptions) -> Result<SchemaRef> {
    guess(path, from, true, options)
}

/// The columns by what stands at the beginning of a stream, perhaps all of it.
pub(super) fn open_head(
    path: &Path,
    head: &[u8],
    is_whole: bool,
    options: &ReadOptions,
) -> Result<SchemaRef> {
    guess(path, head, is_whole, options)
}

fn guess(path: &Path, from: impl BufRead, is_whole: bool, options: &ReadOptions) -> Result<SchemaRef> {
    let rows = options.sample_rows.unwrap_or(super::csv::GUESS_ROWS);
    let mut scanner = Scanner::new(from);
    let mut guess = guess::Object::default();
    for _ in 0..rows {
        let (record, line) = match scanner.record() {
            Ok(Some(found)) => found,
            Ok(None) => break,
            Err(Cut::Short) if !is_whole => break,
            Err(why) => return Err(broken(path, why)),
        };
        guess.see(record).map_err(|error| at(path, line, &format!("no JSON object: {error}")))?;
    }
    let fields = names::with_types(path, guess.fields(), &options.types)?;
    if fields.is_empty() {
        return Err(Error::invalid(format!("{} has no columns", path.display())));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Reads the columns at `columns`; the types of those called `typed` were said.
pub(super) fn read(
    path: &Path,
    from: Bytes,
    schema: &SchemaRef,
    typed: &[String],
    columns: &[usize],
) -> Result<Batches> {
    let result = schema.project(columns).map_err(|error| Error::invalid(error.to_string()))?;
    // What is not a number, a boolean or nested is read as text first: its errors then name the value.
    let raw = |field: &Arc<Field>| match field.data_type() {
        DataType::Boolean | DataType::Int64 | DataType::Float64 => field.clone(),
        data_type if data_type.is_nested() => field.clone(),
        _ => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
    };
    let raw = Schema::new(result.fields().iter().map(raw).collect::<Fields>());
    let decoder = ReaderBuilder::new(Arc::new(raw))
        .with_batch_size(limits::BATCH_ROWS)
        .with_coerce_primitive(true)
        .build_decoder()
        .map_err(|error| Error::invalid(format!("{}: {error}", path.display())))?;
    let (path, scanner) = (path.to_path_buf(), Scanner::new(from));
    let typed = typed.to_vec();
    let mut reader = JsonBatches { path, scanner, decoder, result: Arc::new(result), typed };
    let mut is_done = false;
    Ok(Box::new(std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let batch = reader.batch().transpose();
        is_done = !matches!(batch, Some(Ok(_)));
        batch
    })))
}

struct JsonBatches {
    path: PathBuf,
    scanner: Scanner<Bytes>,
    decoder: Decoder,
    result: SchemaRef,
    typed: Vec<String>,
}

impl JsonBatches {
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut first_line = None;
        let mut bytes = 0;
        while self.decoder.len() < limits::BATCH_ROWS && bytes < BATCH_BYTES {
            let Some((record, line)) = self.scanner.record().map_err(|why| broken(&self.path, why))? else {
                break;
            };
            first_line.get_or_insert(line);
            bytes += record.len();
            let failed = |error: ArrowError| at(&self.path, line, &told(&error));
            let mut rest = record;
            while !rest.is_empty() {
                let read = self.decoder.decode(rest).map_err(failed)?;
                rest = &rest[read..];
                if read == 0 {
                    return Err(at(&self.path, line, "no JSON object"));
                }
            }
            // The decoder needs to see that the object has ended.
            if self.decoder.has_partial_record() {
                return Err(at(&self.path, line, "no JSON object"));
            }
        }
        let from_line = first_line.unwrap_or_default();
        let failed = |error: ArrowError| {
            at(&self.path, from_line, &format!("in the rows from here on, {}", told(&error)))
        };
        match self.decoder.flush().map_err(failed)? {
            Some(batch) => self.converted(&batch, from_line).map(Some),
            None => Ok(None),
        }
    }

    fn converted(&self, batch: &RecordBatch, from_line: u64) -> Result<RecordBatch> {
        let columns = batch.columns().iter().zip(self.result.fields());
        let columns = columns.map(|(column, field)| self.column(column, field, from_line));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.result.clone(), columns.collect::<Result<Vec<_>>>()?, &options)
            .map_err(|error| Error::internal(error.to_string()))
    }

    fn column(&self, column: &ArrayRef, field: &Field, from_line: u64) -> Result<ArrayRef> {
        if column.data_type() == field.data_type() {
            return Ok(column.clone());
        }
        let texts = column.as_string::<i32>();
        let origin = if self.typed.contains(field.name()) { Origin::Said } else { Origin::Guessed };
        convert::convert(texts, field.data_type(), origin).map_err(|misfit| {
            let what = match misfit {
                Misfit::Row(row) => format!(
                    "in the rows from here on, {:?} is not a value of column {:?}, which has type {}",
                    brief(texts.value(row)),
                    field.name(),
                    field.data_type()
                ),
                Misfit::Type => format!("column {:?} cannot be read as {}", field.name(), field.data_type()),
            };
            at(&self.path, from_line, &what)
        })
    }
}

/// What the decoder says, without its own prefix.
fn told(error: &ArrowError) -> String {
    match error {
        ArrowError::JsonError(text) => brief(text).to_string(),
        other => other.to_string(),
    }
}

fn at(path: &Path, line: u64, what: &str) -> Error {
    Error::invalid(format!("{}, line {line}: {what}", path.display())).advise(
        "each row is a JSON object; of a column whose values differ say the type (types = {'name': 'text'}), or look at \
         all rows for it (sample_size = -1)",
    )
}

fn broken(path: &Path, why: Cut) -> Error {
    match why {
        Cut::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => damaged(path, error),
        Cut::Io(error) => files::unreadable(path, &error),
        Cut::Syntax(line, what) => at(path, line, what),
        Cut::Short => damaged(path, "it ends within an object or array"),
        Cut::Long(line) => {
            let message = format!("{}, line {line}: this object has more than", path.display());
            Error::over_limit(format!("{message} {} bytes", limits::RECORD_BYTES_MAX)).advise(
                "rows are the objects of the outermost array, or those that stand one after the other",
            )
        }
    }
}

#[cfg(test)]
mod tests;

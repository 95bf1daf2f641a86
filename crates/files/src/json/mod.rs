//! JSON files: objects, one after the other or in one array. Each object is a row, and its members are columns.
//!
//! Types are guessed from the first rows: for strings, dates or timestamps as in CSV; numbers, booleans, lists and
//! structs of these. If a member is an object in some rows and, for example, a number in others, its column is text,
//! and reading its objects fails.

mod guess;
mod scan;

use super::compressed::Bytes;
use super::convert::{self, Misfit, Origin};
use super::tasks::{Task, Tasks, failing, in_order};
use super::{Batches, damaged, files, names};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_json::reader::{Decoder, ReaderBuilder};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};
use farpool_model::{CharacterEncoding, Error, ReadOptions, Result, brief, limits, sql_name};
use scan::{Cut, Scanner};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of text at which a batch ends. Reason: bounds the memory of a batch of long rows.
const BATCH_BYTES: usize = 16 << 20;

/// Options for reading objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Form {
    /// Names of the columns whose types the user set.
    typed: Vec<String>,
    /// Whether lines that are not an object, or have a value that does not fit, are skipped.
    ignore_errors: bool,
    pub(super) encoding: Option<CharacterEncoding>,
}

impl Form {
    pub(super) fn of(options: &ReadOptions) -> Self {
        Form { typed: options.typed(), ignore_errors: options.ignore_errors, encoding: options.encoding }
    }
}

/// Returns the columns; a column has type Null if the first rows have no value for it.
pub(super) fn open(path: &Path, from: impl BufRead, options: &ReadOptions) -> Result<SchemaRef> {
    guess(path, from, true, options)
}

/// Returns the columns of a stream from its first bytes, which may be all of it.
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
    let mut scanner = Scanner::new(from, options.ignore_errors);
    let mut guess = guess::Object::default();
    for _ in 0..rows {
        let (record, line) = match scanner.record() {
            Ok(Some(found)) => found,
            Ok(None) => break,
            Err(Cut::Short) if !is_whole => break,
            Err(why) => return Err(broken(path, why)),
        };
        if options.ignore_errors && !is_object(record) {
            continue;
        }
        guess.see(record).map_err(|error| at(path, line, &format!("no JSON object: {error}")))?;
    }
    let fields = names::with_types(path, guess.fields(), options)?;
    super::schemas::bounded(path, fields.len())?;
    if fields.is_empty() {
        return Err(Error::invalid(format!("{} has no columns", path.display())));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// Returns whether text is one valid object.
fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// Reads the columns at the indexes `columns`.
pub(super) fn read(
    path: &Path,
    from: Bytes,
    schema: &SchemaRef,
    form: &Form,
    columns: &[usize],
) -> Result<Batches> {
    Ok(in_order(tasks(path, from, schema, form, columns)?))
}

/// Reads the same rows as tasks. The ends of objects are found when a task is taken, and the task parses its objects.
pub(super) fn tasks(
    path: &Path,
    from: Bytes,
    schema: &SchemaRef,
    form: &Form,
    columns: &[usize],
) -> Result<Tasks> {
    // Which lines are left out does not depend on the columns that are read.
    let wanted = columns.len();
    let others = (0..schema.fields().len()).filter(|i| form.ignore_errors && !columns.contains(i));
    let columns: Vec<usize> = columns.iter().copied().chain(others).collect();
    let parsed = schema.project(&columns).map_err(|error| Error::invalid(error.to_string()))?;
    // Other types than numbers, booleans and nested ones are first read as text, so that errors name the
    // value.
    let raw = |field: &Arc<Field>| match field.data_type() {
        DataType::Boolean | DataType::Int64 | DataType::Float64 => field.clone(),
        data_type if data_type.is_nested() => field.clone(),
        _ => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
    };
    let raw = Arc::new(Schema::new(parsed.fields().iter().map(raw).collect::<Fields>()));
    let parse = Arc::new(Parse {
        path: path.to_path_buf(),
        raw,
        result: Arc::new(parsed),
        wanted,
        form: form.clone(),
    });
    parse.decoder()?;
    let mut scanner = Some(Scanner::new(from, form.ignore_errors));
    Ok(Box::new(std::iter::from_fn(move || {
        let objects = Objects::next_of(scanner.as_mut()?, &parse.form);
        if objects.is_err() {
            scanner = None;
        }
        match objects {
            Ok(objects) if objects.ends.is_empty() => None,
            Ok(objects) => Some(parse.clone().task(objects)),
            Err(why) => Some(failing(broken(&parse.path, why))),
        }
    })))
}

/// Consecutive objects, as JSON text.
struct Objects {
    bytes: Vec<u8>,
    /// The end of each object in `bytes`, and the line on which it begins.
    ends: Vec<(usize, u64)>,
}

impl Objects {
    /// Reads the objects of the next batch.
    fn next_of(scanner: &mut Scanner<Bytes>, form: &Form) -> std::result::Result<Self, Cut> {
        let mut objects = Objects { bytes: Vec::new(), ends: Vec::new() };
        while objects.ends.len() < limits::BATCH_ROWS && objects.bytes.len() < BATCH_BYTES {
            let Some((record, line)) = scanner.record()? else { break };
            if form.ignore_errors && !is_object(record) {
                continue;
            }
            objects.bytes.extend_from_slice(record);
            objects.ends.push((objects.bytes.len(), line));
        }
        Ok(objects)
    }
}

/// Parses objects into batches.
struct Parse {
    path: PathBuf,
    raw: SchemaRef,
    result: SchemaRef,
    /// Number of leading columns that are returned.
    wanted: usize,
    form: Form,
}

impl Parse {
    fn task(self: Arc<Self>, objects: Objects) -> Task {
        Box::new(move || Box::new(self.fitting(&objects).transpose().into_iter()))
    }

    /// Parses objects. With `ignore_errors`, skips those that do not fit.
    fn fitting(&self, objects: &Objects) -> Result<Option<RecordBatch>> {
        let batch = match self.batch(objects) {
            Err(_) if self.form.ignore_errors => self.one_by_one(objects)?,
            other => other?,
        };
        let wanted: Vec<usize> = (0..self.wanted).collect();
        let project = |batch: RecordBatch| batch.project(&wanted);
        batch.map(project).transpose().map_err(|error| Error::internal(error.to_string()))
    }

    /// Parses each object separately, and skips those that do not fit.
    fn one_by_one(&self, objects: &Objects) -> Result<Option<RecordBatch>> {
        let mut start = 0;
        let mut good = Vec::new();
        for &(end, line) in &objects.ends {
            let bytes = objects.bytes[start..end].to_vec();
            let one = Objects { ends: vec![(bytes.len(), line)], bytes };
            good.extend(self.batch(&one).ok().flatten());
            start = end;
        }
        match good.is_empty() {
            true => Ok(None),
            false => arrow_select::concat::concat_batches(&self.result, &good)
                .map(Some)
                .map_err(|error| Error::internal(error.to_string())),
        }
    }

    fn decoder(&self) -> Result<Decoder> {
        ReaderBuilder::new(self.raw.clone())
            .with_batch_size(limits::BATCH_ROWS)
            .with_coerce_primitive(true)
            .build_decoder()
            .map_err(|error| Error::invalid(format!("{}: {error}", self.path.display())))
    }

    fn batch(&self, objects: &Objects) -> Result<Option<RecordBatch>> {
        let mut decoder = self.decoder()?;
        let mut start = 0;
        for &(end, line) in &objects.ends {
            self.decode(&mut decoder, &objects.bytes[start..end], line)?;
            start = end;
        }
        let from_line = objects.ends.first().map_or(0, |(_, line)| *line);
        let failed = |error: ArrowError| {
            at(&self.path, from_line, &format!("in the rows from here on, {}", told(&error)))
        };
        match decoder.flush().map_err(failed)? {
            Some(batch) => self.converted(&batch, from_line).map(Some),
            None => Ok(None),
        }
    }

    fn decode(&self, decoder: &mut Decoder, object: &[u8], line: u64) -> Result<()> {
        let mut rest = object;
        while !rest.is_empty() {
            let read = decoder.decode(rest).map_err(|error| at(&self.path, line, &told(&error)))?;
            rest = &rest[read..];
            if read == 0 {
                return Err(at(&self.path, line, "no JSON object"));
            }
        }
        // The decoder must have seen the end of the object.
        match decoder.has_partial_record() {
            true => Err(at(&self.path, line, "no JSON object")),
            false => Ok(()),
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
        let origin = if self.form.typed.contains(field.name()) { Origin::Said } else { Origin::Guessed };
        convert::convert(texts, field.data_type(), origin).map_err(|misfit| {
            let what = match misfit {
                Misfit::Row(row) => format!(
                    "in the rows from here on, {:?} is not a value of column {:?}, which has type {}",
                    brief(texts.value(row)),
                    field.name(),
                    sql_name(field.data_type())
                ),
                Misfit::Type => {
                    format!("column {:?} cannot be read as {}", field.name(), sql_name(field.data_type()))
                }
            };
            at(&self.path, from_line, &what)
        })
    }
}

/// Returns the decoder's message without its own prefix.
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

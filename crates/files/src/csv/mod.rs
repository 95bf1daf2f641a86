//! CSV and TSV files, whose column types are guessed from the first rows.
//!
//! Guessed types are: whole numbers (64-bit), fractional numbers, true/false, dates (`2024-05-31`, `2024/05/31`),
//! timestamps (`2024-05-31 12:00:00.5`, stored in microseconds, finer only if the first rows are), instants (timestamps
//! with `Z` or an offset), text. A column that has both instants and timestamps without a zone is text. An empty field
//! is NULL. Whole numbers are text if one in the first rows begins with 0, such as a postal code. A later value that
//! does not fit is an error with its line, because continuing with another type would change the meaning of the rows
//! before.

mod cut;
mod error;
mod forms;
pub(super) mod guess;
mod marks;
mod piece;
mod read;
mod records;

use super::tasks::{Task, Tasks, failing, of_batches};
use super::{Batches, files, names};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use cut::{Cutter, Piece};
use error::broken;
use farpool_model::{CharacterEncoding, Error, ReadOptions, Result, limits};
use forms::Forms;
use guess::Guess;
use piece::PieceRecords;
use read::CsvBatches;
use records::{Record, RecordSource, Records};
use std::io::{BufRead, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Default number of rows from which types are guessed, the same as in DuckDB.
pub(super) const GUESS_ROWS: usize = 20_480;

/// The syntax of lines and of the values in their fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
    has_header: bool,
    skip_lines: usize,
    null_texts: Vec<Vec<u8>>,
    ignore_errors: bool,
    null_padding: bool,
    sample_rows: usize,
    /// Names of columns whose types the user set.
    typed: Vec<String>,
    quoted_nulls: bool,
    forms: Forms,
    /// Names that replace those of the first columns.
    names: Vec<String>,
    pub(super) encoding: Option<CharacterEncoding>,
    /// Whether a file has one column, so that an empty line is a row.
    is_single: bool,
}

impl Dialect {
    fn new(delimiter: u8, options: &ReadOptions) -> Self {
        let nulls = options.null_texts.clone().unwrap_or_else(|| vec![String::new()]);
        let quote = options.quote.unwrap_or(b'"');
        Dialect {
            delimiter,
            quote: (quote != 0).then_some(quote),
            escape: options.escape.filter(|escape| *escape != quote),
            comment: options.comment,
            has_header: options.header.unwrap_or(true),
            skip_lines: options.skip_lines,
            null_texts: nulls.into_iter().map(String::into_bytes).collect(),
            ignore_errors: options.ignore_errors,
            null_padding: options.null_padding,
            sample_rows: options.sample_rows.unwrap_or(GUESS_ROWS),
            typed: options.typed(),
            quoted_nulls: options.quoted_nulls,
            forms: Forms::of(options).unwrap_or_default(),
            names: options.names.clone(),
            encoding: options.encoding,
            is_single: false,
        }
    }

    /// Returns whether the field at index `i` of a record is NULL, in a text column (`is_text`) or another one. A
    /// quoted field is not NULL, as in PostgreSQL, unless it is empty and the column is not text, because some programs
    /// quote all fields.
    fn is_null(&self, record: &Record<'_>, i: usize, is_text: bool) -> bool {
        let field = record.field(i);
        self.null_texts.iter().any(|null| null == field)
            && (self.quoted_nulls || (field.is_empty() && !is_text) || !record.is_quoted(i))
    }

    /// Returns the number of rows from which the type of a column was guessed; `None` for all rows.
    fn rows_guessed_from(&self, column: &str) -> Option<usize> {
        (self.sample_rows != usize::MAX && !self.is_typed(column)).then_some(self.sample_rows)
    }

    /// Returns whether the user set the type of a column.
    fn is_typed(&self, column: &str) -> bool {
        self.typed.iter().any(|name| name == column)
    }

    /// Returns whether a line with `fields` fields is valid in a file with `columns` columns.
    fn fits(&self, fields: usize, columns: usize) -> bool {
        fields == columns || (self.null_padding && fields < columns)
    }
}

/// Returns the columns (of type Null if the first rows have no value) and the dialect. `again` opens the file at its
/// beginning.
pub(super) fn open<R: BufRead>(
    path: &Path,
    again: impl Fn() -> Result<R>,
    tabs: bool,
    options: &ReadOptions,
) -> Result<(SchemaRef, Dialect)> {
    Forms::of(options)?;
    let delimiter = match options.delimiter {
        Some(delimiter) => delimiter,
        None if tabs => b'\t',
        None => guess_delimiter(path, again()?, options)?,
    };
    guess(path, again()?, Dialect::new(delimiter, options), options)
}

/// Returns the columns and the dialect of a stream, from its first bytes.
pub(super) fn open_head(path: &Path, head: &[u8], options: &ReadOptions) -> Result<(SchemaRef, Dialect)> {
    open(path, || Ok(head), false, options)
}

/// Reads the columns at the indexes `columns`; `path` identifies the file in messages.
pub(super) fn read(
    path: &Path,
    from: impl BufRead + Send + 'static,
    schema: &SchemaRef,
    dialect: &Dialect,
    columns: &[usize],
) -> Result<Batches> {
    let records = Records::new(from, dialect).map_err(|error| files::unreadable(path, &error))?;
    let (schema, is_in_header) = (schema.clone(), dialect.has_header);
    Ok(Box::new(CsvBatches::new(path, records, is_in_header, schema, dialect.clone(), columns)?))
}

/// Reads the same rows as [`read`], in the same order, as tasks for several threads.
pub(super) fn tasks(
    path: &Path,
    from: impl BufRead + Send + 'static,
    schema: &SchemaRef,
    dialect: &Dialect,
    columns: &[usize],
) -> Result<Tasks> {
    if !cut::can_cut(dialect) {
        return Ok(of_batches(read(path, from, schema, dialect, columns)?));
    }
    let parse = Arc::new(Parse {
        path: path.to_path_buf(),
        schema: schema.clone(),
        dialect: dialect.clone(),
        columns: columns.to_vec(),
    });
    let mut cutter = Cutter::new(from, dialect).map_err(|error| files::unreadable(path, &error))?;
    Ok(Box::new(std::iter::from_fn(move || match cutter.next() {
        Ok(piece) => piece.map(|piece| parse.clone().task(piece)),
        Err(error) => Some(failing(broken(&parse.path, records::Broken::Io(error)))),
    })))
}

/// Parses pieces into batches.
struct Parse {
    path: PathBuf,
    schema: SchemaRef,
    dialect: Dialect,
    columns: Vec<usize>,
}

impl Parse {
    fn task<R: BufRead + Send + 'static>(self: Arc<Self>, piece: Piece<R>) -> Task {
        Box::new(move || {
            let is_in_header = piece.is_first && self.dialect.has_header;
            match piece.rest {
                None => {
                    let needed = match self.dialect.ignore_errors {
                        true => limits::CSV_FIELDS_MAX,
                        false => self.columns.iter().max().map_or(0, |last| last + 1),
                    };
                    let records =
                        PieceRecords::new(piece.bytes, piece.line, piece.is_first, &self.dialect, needed);
                    self.batches(records, is_in_header)
                }
                Some(rest) => {
                    let from = Read::chain(Cursor::new(piece.bytes), rest);
                    let records = Records::from_line(from, piece.line, piece.is_first, &self.dialect);
                    self.batches(records, is_in_header)
                }
            }
        })
    }

    fn batches(&self, records: impl RecordSource + Send + 'static, is_in_header: bool) -> Batches {
        let (schema, dialect) = (self.schema.clone(), self.dialect.clone());
        match CsvBatches::new(&self.path, records, is_in_header, schema, dialect, &self.columns) {
            Ok(batches) => Box::new(batches),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
}

fn guess(
    path: &Path,
    from: impl BufRead,
    mut dialect: Dialect,
    options: &ReadOptions,
) -> Result<(SchemaRef, Dialect)> {
    let mut records = Records::new(from, &dialect).map_err(|error| files::unreadable(path, &error))?;
    // The first record may hold the column names.
    let first = records.next().map_err(|why| broken(path, why))?;
    let Some(first) = first.filter(|first| first.len() > 0) else {
        return Err(Error::invalid(format!("{} has no columns", path.display())));
    };
    super::schemas::bounded(path, first.len())?;
    dialect.is_single = first.len() == 1;
    let mut guesses = vec![Guess::default(); first.len()];
    let names = match dialect.has_header {
        true => names::of_header(&texts(path, &first, dialect.ignore_errors)?),
        false => {
            guesses.iter_mut().enumerate().for_each(|(i, guess)| see(guess, &first, i, &dialect));
            names::of_header(&vec![String::new(); first.len()])
        }
    };
    let names = names::renamed(path, names, &dialect.names)?;
    if !options.all_text {
        guess_types(path, &mut records, &dialect, &mut guesses)?;
    }
    let mut fields = Vec::new();
    for (name, guess) in names.into_iter().zip(guesses) {
        let data_type = if options.all_text { DataType::Utf8View } else { guess.data_type() };
        fields.push(Field::new(name, data_type, true));
    }
    let fields = names::with_types(path, fields, options)?;
    Ok((Arc::new(Schema::new(fields.into_iter().collect::<Fields>())), dialect))
}

fn guess_types(
    path: &Path,
    records: &mut Records<impl BufRead>,
    dialect: &Dialect,
    guesses: &mut [Guess],
) -> Result<()> {
    let mut rows = usize::from(!dialect.has_header);
    while rows < dialect.sample_rows {
        let Some(record) = records.next().map_err(|why| broken(path, why))? else { break };
        if !dialect.fits(record.len(), guesses.len()) {
            if dialect.ignore_errors {
                continue;
            }
            return Err(error::ragged(path, record.line, record.len(), guesses.len()));
        }
        for (i, guess) in guesses.iter_mut().enumerate().take(record.len()) {
            see(guess, &record, i, dialect);
        }
        rows += 1;
    }
    Ok(())
}

/// Adds a field to the guess of its column's type. Bytes that are not UTF-8 have no effect here; reading them is an
/// error.
fn see(guess: &mut Guess, record: &Record<'_>, i: usize, dialect: &Dialect) {
    // An empty text in quotes does not tell numbers from texts.
    if !dialect.is_null(record, i, false) {
        match std::str::from_utf8(record.field(i)) {
            Ok(text) => guess.see(&dialect.forms.guessed(text)),
            Err(_) if dialect.ignore_errors => {}
            Err(_) => guess.see("no text"),
        }
    }
}

fn texts(path: &Path, record: &Record<'_>, lossy: bool) -> Result<Vec<String>> {
    let text = |i: usize| match std::str::from_utf8(record.field(i)) {
        Ok(text) => Ok(text.to_string()),
        Err(_) if lossy => Ok(String::from_utf8_lossy(record.field(i)).into_owned()),
        Err(_) => Err(error::no_text(path, record.line, i)),
    };
    (0..record.len()).map(text).collect()
}

/// Returns a comma, or another usual separator if the header has it and no comma.
fn guess_delimiter(path: &Path, from: impl BufRead, options: &ReadOptions) -> Result<u8> {
    let mut from = from.take(limits::CSV_HEADER_BYTES_MAX);
    let mut header = Vec::new();
    for _ in 0..=options.skip_lines {
        header.clear();
        from.read_until(b'\n', &mut header).map_err(|error| files::unreadable(path, &error))?;
    }
    let mut is_quoted = false;
    header.retain(|byte| {
        is_quoted ^= *byte == options.quote.unwrap_or(b'"');
        !is_quoted
    });
    let found = [b',', b';', b'\t', b'|'].into_iter().find(|delimiter| header.contains(delimiter));
    Ok(found.unwrap_or(b','))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod twins;

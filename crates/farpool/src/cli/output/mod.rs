//! Prints results on standard output in the requested format, batch by batch as they arrive.

pub mod grid;
mod kept;
pub mod layout;
mod lines;
mod rows;
mod style;
mod table;

use super::stop::{Outcome, Stop};
use super::terminal::printable_lines;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::json::writer::LineDelimited;
use clap::ValueEnum;
use farpool::{EscapeStyle, TerminalText};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use style::Style;
use table::{PlanWriter, TableWriter};

/// The format of the rows of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns
    Table,
    /// Aligned columns with borders
    Box,
    /// Markdown table
    Markdown,
    /// One line per value
    Line,
    /// Comma-separated values with a header; NULL is empty
    Csv,
    /// Tab-separated values with a header; NULL is empty
    Tsv,
    /// One JSON array per statement, with one object per row
    Json,
    /// One JSON object per row, one per line
    Ndjson,
    /// One Arrow IPC stream per statement
    Arrow,
}

impl Format {
    /// Returns whether the format is for people, who also want to see the number of rows.
    pub fn is_for_people(self) -> bool {
        match self {
            Format::Table | Format::Box | Format::Markdown | Format::Line => true,
            Format::Csv | Format::Tsv | Format::Json | Format::Ndjson | Format::Arrow => false,
        }
    }

    /// Returns the name of the format on a command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }
}

/// The limits of the output for formats that need not show a whole result: `Table`, `Box` and `Line`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Maximum number of rows; `None` for all.
    pub rows: Option<usize>,
    /// Maximum number of characters per line; `None` for no limit.
    pub width: Option<usize>,
}

/// The parts of a result that were not displayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of displayed rows; `None` if all were.
    pub rows_shown: Option<usize>,
    /// Number of displayed columns; `None` if all were.
    pub columns_shown: Option<usize>,
    /// Whether a displayed value was truncated.
    pub is_cut: bool,
}

/// The format of lists (such as of tables or queries), descriptions and measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// For people
    Table,
    /// For programs
    Json,
}

impl TextFormat {
    /// Prints `text`, which is already in this format.
    pub fn print(self, text: &str) -> Outcome {
        match self {
            TextFormat::Table => print_text(text),
            TextFormat::Json => print_exactly(text),
        }
    }
}

/// Prints lines for people: control characters are escaped.
pub fn print_text(text: &str) -> Outcome {
    print_exactly(&printable_lines(text))
}

/// Prints output for programs, unchanged.
pub fn print_exactly(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Stop::output)
}

/// The buffered destination of rows.
pub type Out = BufWriter<Box<dyn Write + Send>>;

/// Prints the rows of one statement.
pub trait RowWriter: Send {
    /// Prints a batch, or buffers it until the widths of the columns are known.
    fn write(&mut self, batch: &RecordBatch) -> Outcome;

    /// Prints buffered rows, and the end of the output if the format has one.
    fn finish(self: Box<Self>) -> Outcome<LeftOut>;
}

/// Returns standard output.
pub fn stdout() -> Out {
    BufWriter::with_capacity(64 << 10, Box::new(io::stdout()))
}

/// An output in memory.
#[derive(Clone, Debug, Default)]
pub struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    /// Returns an output that writes to this buffer.
    pub fn out(&self) -> Out {
        BufWriter::new(Box::new(self.clone()))
    }

    /// Returns the bytes that were written, and removes them from the buffer.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates a writer of rows of `schema` to `out`. `first` is true if nothing has been printed to it yet.
pub fn writer(
    format: Format,
    fit: Fit,
    out: Out,
    schema: &SchemaRef,
    first: bool,
) -> Outcome<Box<dyn RowWriter>> {
    let table = |style, out, fit| TableWriter::new(out, style, fit, schema, first);
    let out = match format {
        Format::Csv | Format::Tsv => on_terminal(out, EscapeStyle::Text),
        Format::Json | Format::Ndjson => on_terminal(out, EscapeStyle::Json),
        Format::Table | Format::Box | Format::Markdown | Format::Line | Format::Arrow => out,
    };
    Ok(match format {
        Format::Table | Format::Box if PlanWriter::takes(schema) => Box::new(PlanWriter::new(out)),
        Format::Table => Box::new(table(Style::Lines, out, fit)?),
        Format::Box => Box::new(table(Style::Boxed, out, fit)?),
        Format::Markdown => Box::new(table(Style::Markdown, out, Fit::default())?),
        Format::Line => Box::new(lines::LineWriter::new(out, fit, schema, first)),
        Format::Csv => Box::new(rows::CsvWriter::new(out, b',', schema, first)?),
        Format::Tsv => Box::new(rows::CsvWriter::new(out, b'\t', schema, first)?),
        Format::Json => Box::new(rows::JsonWriter::<rows::LinesOfArray>::new(out, schema)),
        Format::Ndjson => Box::new(rows::JsonWriter::<LineDelimited>::new(out, schema)),
        Format::Arrow => Box::new(rows::ArrowWriter::new(out, schema)?),
    })
}

/// Returns an output that escapes control characters if standard output is a terminal. A pager's output reaches the
/// terminal, too.
fn on_terminal(out: Out, style: EscapeStyle) -> Out {
    match io::stdout().is_terminal() {
        true => BufWriter::new(Box::new(TerminalText::new(out, style, true))),
        false => out,
    }
}

/// Refuses to print binary output to a terminal.
pub fn check(format: Format) -> Outcome {
    if format == Format::Arrow && io::stdout().is_terminal() {
        return Err(Stop::usage(
            "an Arrow stream is not for a terminal",
            "send it to a file: farpool sql --format arrow … > result.arrows",
        ));
    }
    Ok(())
}

/// Converts an error of Arrow's writers: standard output failed, or a value has no text.
fn stop(error: arrow::error::ArrowError) -> Stop {
    match error {
        arrow::error::ArrowError::IoError(_, source) => Stop::output(source),
        other => Stop::Failed(farpool::Error::invalid(format!("cannot write the result: {other}"))),
    }
}

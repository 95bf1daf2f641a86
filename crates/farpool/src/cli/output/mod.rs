//! Prints results on standard output in the requested format, batch by batch as they arrive.

pub mod grid;
mod rows;
mod table;

use super::stop::{Outcome, Stop};
use super::terminal::printable_lines;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::ValueEnum;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// How the rows of a query are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns for people
    Table,
    /// Comma-separated values with a header; NULL is empty
    Csv,
    /// One JSON object on a line for each row
    Json,
    /// An Arrow IPC stream for each statement
    Arrow,
}

/// How lists and states are printed.
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

/// Standard output, buffered.
pub type Out = BufWriter<Stdout>;

/// Prints the rows of one statement.
pub trait RowWriter: Send {
    /// Prints a batch, or keeps it until the widths of the columns are known.
    fn write(&mut self, batch: &RecordBatch) -> Outcome;

    /// Prints the batches that were kept, and the end of the output if the format has one.
    fn finish(self: Box<Self>) -> Outcome;
}

/// Makes a writer for rows of `schema`. `first` says that nothing has been printed yet.
pub fn writer(format: Format, schema: &SchemaRef, first: bool) -> Outcome<Box<dyn RowWriter>> {
    let out = BufWriter::with_capacity(64 << 10, io::stdout());
    Ok(match format {
        Format::Table if table::PlanWriter::takes(schema) => Box::new(table::PlanWriter::new(out)),
        Format::Table => Box::new(table::TableWriter::new(out, schema, first)?),
        Format::Csv => Box::new(rows::CsvWriter::new(out, schema, first)?),
        Format::Json => Box::new(rows::JsonWriter::new(out, schema)),
        Format::Arrow => Box::new(rows::ArrowWriter::new(out, schema)?),
    })
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
        other => csv_closed(&other).unwrap_or_else(|| {
            Stop::Failed(farpool::Error::invalid(format!("cannot write the result: {other}")))
        }),
    }
}

/// Whether `error` is a closed pipe: the CSV writer keeps only the text of an IO error.
fn csv_closed(error: &arrow::error::ArrowError) -> Option<Stop> {
    error.to_string().contains("Broken pipe").then_some(Stop::OutputClosed)
}

//! Rows for people, one line per value. Suitable for wide rows and long texts, which a table would truncate.

use super::kept::{Cells, Kept, Row};
use super::{Fit, LeftOut, Out, RowWriter};
use crate::cli::stop::{Outcome, Stop};
use crate::cli::terminal::{printable, printable_lines};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::io::Write;
use unicode_width::UnicodeWidthStr;

/// A writer of `name = value` lines, with an empty line between two rows.
pub struct LineWriter {
    out: Out,
    names: Vec<String>,
    /// Buffer of the rows to print at the end; `None` if all rows are printed as they arrive.
    kept: Option<Kept>,
    is_first: bool,
}

impl LineWriter {
    /// Creates a writer to `out`.
    pub fn new(out: Out, fit: Fit, schema: &SchemaRef, first: bool) -> Self {
        let names: Vec<String> =
            schema.fields().iter().map(|field| printable(field.name()).into_owned()).collect();
        let width = names.iter().map(|name| name.width()).max().unwrap_or(0);
        let padded = names.iter().map(|name| " ".repeat(width - name.width()) + name).collect();
        // Values are never cut.
        let kept = fit.rows.map(|most| Kept::new(most, Fit { width: None, ..fit }));
        LineWriter { out, names: padded, kept, is_first: first }
    }

    fn print(&mut self, row: &Row) -> Outcome {
        let mut text = if std::mem::take(&mut self.is_first) { String::new() } else { "\n".to_string() };
        for (name, value) in self.names.iter().zip(row) {
            let below = format!("\n{}", " ".repeat(name.width() + " = ".len()));
            text.extend([name, " = ", &printable_lines(value).replace('\n', &below), "\n"]);
        }
        self.out.write_all(text.as_bytes()).map_err(Stop::output)
    }
}

impl RowWriter for LineWriter {
    fn write(&mut self, batch: &RecordBatch) -> Outcome {
        if let Some(kept) = &mut self.kept {
            return kept.add(batch, str::to_string);
        }
        let cells = Cells::of(batch)?;
        (0..batch.num_rows()).try_for_each(|row| self.print(&cells.row(row)?))
    }

    fn finish(mut self: Box<Self>) -> Outcome<LeftOut> {
        let mut rows_shown = None;
        if let Some(kept) = self.kept.take() {
            let (first, last) = kept.parts();
            first.iter().try_for_each(|row| self.print(row))?;
            if let Some(last) = last {
                rows_shown = Some(first.len() + last.len());
                writeln!(self.out, "\n⋮").map_err(Stop::output)?;
                last.iter().try_for_each(|row| self.print(row))?;
            }
        }
        self.out.flush().map_err(Stop::output)?;
        Ok(LeftOut { rows_shown, ..LeftOut::default() })
    }
}

//! Rows for people. The first rows decide how wide the columns are; wider values in later rows break the
//! alignment, so that a result of any length is printed as it arrives and only the first rows are buffered.

use super::grid::{Align, Grid};
use super::{Out, RowWriter, stop};
use crate::cli::stop::{Outcome, Stop};
use crate::cli::terminal::{printable, printable_lines};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::io::Write;

/// Rows that are buffered to determine the widths of the columns.
const ROWS_MEASURED: usize = 1000;

/// Writes aligned columns.
pub struct TableWriter {
    out: Out,
    grid: Grid,
    head_printed: bool,
}

impl TableWriter {
    /// Makes a writer to `out`. Results of several statements are separated by an empty line.
    pub fn new(mut out: Out, schema: &SchemaRef, first: bool) -> Outcome<Self> {
        if !first {
            writeln!(out).map_err(Stop::output)?;
        }
        let columns = schema.fields().iter().map(|field| {
            let align = if field.data_type().is_numeric() { Align::Right } else { Align::Left };
            (field.name().as_str(), align)
        });
        Ok(TableWriter { out, grid: Grid::new(&columns.collect::<Vec<_>>()), head_printed: false })
    }

    fn print(&mut self) -> Outcome {
        if !self.head_printed {
            self.head_printed = true;
            self.out.write_all(self.grid.head().as_bytes()).map_err(Stop::output)?;
        }
        self.out.write_all(self.grid.take_rows().as_bytes()).map_err(Stop::output)
    }
}

/// Writes the plans of EXPLAIN: texts of many lines, which a grid would put on one line.
pub struct PlanWriter {
    out: Out,
}

impl PlanWriter {
    /// Whether rows of `schema` are plans.
    pub fn takes(schema: &SchemaRef) -> bool {
        schema.fields().iter().map(|field| field.name().as_str()).eq(["plan_type", "plan"])
    }

    /// Writes to `out`.
    pub fn new(out: Out) -> Self {
        PlanWriter { out }
    }
}

impl RowWriter for PlanWriter {
    fn write(&mut self, batch: &RecordBatch) -> Outcome {
        let options = FormatOptions::default();
        let texts = |i: usize| ArrayFormatter::try_new(batch.column(i), &options).map_err(stop);
        let (kinds, plans) = (texts(0)?, texts(1)?);
        for row in 0..batch.num_rows() {
            let (kind, plan) = (kinds.value(row).to_string(), plans.value(row).to_string());
            let (kind, plan) = (printable(&kind), printable_lines(plan.trim_end()));
            writeln!(self.out, "{kind}:\n{plan}\n").map_err(Stop::output)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        self.out.flush().map_err(Stop::output)
    }
}

impl RowWriter for TableWriter {
    fn write(&mut self, batch: &RecordBatch) -> Outcome {
        let options = FormatOptions::default().with_null("NULL");
        let columns = batch.columns().iter();
        let columns: Result<Vec<_>, _> = columns.map(|c| ArrayFormatter::try_new(c, &options)).collect();
        let columns = columns.map_err(stop)?;
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| column.value(row).try_to_string());
            self.grid.row(cells.collect::<Result<Vec<_>, _>>().map_err(stop)?);
            if self.grid.len() >= ROWS_MEASURED {
                self.print()?;
            }
        }
        if self.head_printed {
            self.print()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        self.print()?;
        self.out.flush().map_err(Stop::output)
    }
}

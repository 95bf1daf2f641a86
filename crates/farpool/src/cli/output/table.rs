//! Rows for people, as tables. If only a part of a result is displayed, its first and last rows are buffered until its
//! end. A result that is displayed completely is printed as it arrives: the first rows determine the widths of the
//! columns, and a wider value later only shifts the rest of its own line.

use super::kept::{Cells, Kept, Row};
use super::layout::{Slot, Wish, slots};
use super::style::{Align, Drawn, Style};
use super::{Fit, LeftOut, Out, RowWriter, stop};
use crate::cli::stop::{Outcome, Stop};
use crate::cli::terminal::{printable, printable_lines};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::io::Write;
use unicode_width::UnicodeWidthStr;

/// Maximum bytes of cells that are buffered to determine the widths of the columns: tens of thousands of rows.
const BYTES_MEASURED: usize = 16 << 20;

/// A writer of a table.
pub struct TableWriter {
    out: Out,
    style: Style,
    fit: Fit,
    header: Row,
    aligns: Vec<Align>,
    rows: Rows,
}

enum Rows {
    Kept(Kept),
    Measured { rows: Vec<Row>, bytes: usize },
    Printed(Drawn),
}

impl TableWriter {
    /// Creates a writer to `out`. Results of several statements are separated by an empty line.
    pub fn new(mut out: Out, style: Style, fit: Fit, schema: &SchemaRef, first: bool) -> Outcome<Self> {
        if !first {
            writeln!(out).map_err(Stop::output)?;
        }
        let fields = schema.fields().iter();
        let align = |is_number: bool| if is_number { Align::Right } else { Align::Left };
        Ok(TableWriter {
            out,
            style,
            fit,
            header: fields.clone().map(|field| style.escaped(printable(field.name()).into_owned())).collect(),
            aligns: fields.map(|field| align(field.data_type().is_numeric())).collect(),
            rows: match fit.rows {
                Some(most) => Rows::Kept(Kept::new(most, fit)),
                None => Rows::Measured { rows: Vec::new(), bytes: 0 },
            },
        })
    }

    /// Lays out the columns for these rows and the header.
    fn drawn<'a>(&self, rows: impl Iterator<Item = &'a Row> + Clone) -> Drawn {
        let least = self.style.least();
        let wish = |(column, header): (usize, &String)| Wish {
            header: header.width().max(least),
            values: rows.clone().map(|row| row[column].width()).max().unwrap_or(0),
            is_text: self.aligns[column] == Align::Left,
        };
        let wishes: Vec<Wish> = self.header.iter().enumerate().map(wish).collect();
        let room = self.fit.width.map(|width| width.saturating_sub(self.style.around()));
        let slots = slots(&wishes, room, Style::BETWEEN);
        let is_narrow = |slot: &Slot| slot.column.is_some_and(|column| slot.width < wishes[column].natural());
        Drawn {
            style: self.style,
            is_narrow: slots.iter().any(is_narrow),
            slots,
            aligns: self.aligns.clone(),
            cuts: room.is_some(),
        }
    }

    fn write_rows(&mut self, drawn: &Drawn, rows: &[Row]) -> Outcome {
        rows.iter().try_for_each(|row| self.write_text(&drawn.row(row)))
    }

    fn write_text(&mut self, text: &str) -> Outcome {
        self.out.write_all(text.as_bytes()).map_err(Stop::output)
    }

    /// Prints the header and the buffered rows. Later rows are printed when they arrive.
    fn begin(&mut self, rows: &[Row]) -> Outcome<Drawn> {
        let drawn = self.drawn(rows.iter());
        self.write_text(&drawn.head(&self.header))?;
        self.write_rows(&drawn, rows)?;
        Ok(drawn)
    }
}

impl RowWriter for TableWriter {
    fn write(&mut self, batch: &RecordBatch) -> Outcome {
        let style = self.style;
        let show = |cell: &str| style.escaped(printable(cell).into_owned());
        match &mut self.rows {
            Rows::Kept(kept) => kept.add(batch, show)?,
            Rows::Measured { rows, bytes } => {
                let cells = Cells::of(batch)?;
                for row in 0..batch.num_rows() {
                    let row: Row = cells.row(row)?.iter().map(|cell| show(cell)).collect();
                    *bytes += row.iter().map(|cell| size_of::<String>() + cell.len()).sum::<usize>();
                    rows.push(row);
                }
                if *bytes >= BYTES_MEASURED {
                    let rows = std::mem::take(rows);
                    self.rows = Rows::Printed(self.begin(&rows)?);
                }
            }
            Rows::Printed(drawn) => {
                let cells = Cells::of(batch)?;
                for row in 0..batch.num_rows() {
                    let row: Row = cells.row(row)?.iter().map(|cell| show(cell)).collect();
                    self.out.write_all(drawn.row(&row).as_bytes()).map_err(Stop::output)?;
                }
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Outcome<LeftOut> {
        let nothing = Rows::Measured { rows: Vec::new(), bytes: 0 };
        let mut rows_shown = None;
        let drawn = match std::mem::replace(&mut self.rows, nothing) {
            Rows::Kept(kept) => {
                let (first, last) = kept.parts();
                let drawn = self.drawn(first.iter().chain(last.iter().flatten()));
                self.write_text(&drawn.head(&self.header))?;
                self.write_rows(&drawn, &first)?;
                if let Some(last) = last {
                    rows_shown = Some(first.len() + last.len());
                    self.write_text(&drawn.left_out())?;
                    self.write_rows(&drawn, &last)?;
                }
                drawn
            }
            Rows::Measured { rows, .. } => self.begin(&rows)?,
            Rows::Printed(drawn) => drawn,
        };
        self.write_text(&drawn.foot())?;
        self.out.flush().map_err(Stop::output)?;
        let columns = drawn.slots.iter().filter(|slot| slot.column.is_some()).count();
        let columns_shown = (columns < self.header.len()).then_some(columns);
        Ok(LeftOut { rows_shown, columns_shown, is_cut: drawn.is_narrow })
    }
}

/// A writer for the results of EXPLAIN, which are texts of many lines that a table would put on one line.
pub struct PlanWriter {
    out: Out,
}

impl PlanWriter {
    /// Returns whether rows of `schema` are plans.
    pub fn takes(schema: &SchemaRef) -> bool {
        schema.fields().iter().map(|field| field.name().as_str()).eq(["plan_type", "plan"])
    }

    /// Creates a writer to `out`.
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

    fn finish(mut self: Box<Self>) -> Outcome<LeftOut> {
        self.out.flush().map_err(Stop::output)?;
        Ok(LeftOut::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Buffer, Format, writer};
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use std::sync::Arc;

    fn shown(format: Format, fit: Fit, batches: &[RecordBatch]) -> (String, LeftOut) {
        let screen = Buffer::default();
        let mut writer = writer(format, fit, screen.out(), &batches[0].schema(), true).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        let left_out = writer.finish().unwrap();
        (String::from_utf8(screen.take()).unwrap(), left_out)
    }

    fn batch(numbers: std::ops::Range<i64>, text: &str) -> RecordBatch {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(numbers.clone().map(|_| text)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap()
    }

    const WHOLE: Fit = Fit { rows: None, width: None };

    #[test]
    fn every_style_draws_the_same_rows() {
        let batches = [batch(8..11, "東京|\n")];
        let lines = " n │ text\n───┼────────\n 8 │ 東京|\\n\n 9 │ 東京|\\n\n10 │ 東京|\\n\n";
        assert_eq!(shown(Format::Table, WHOLE, &batches).0, lines);
        let boxed = "┌────┬─────────┐\n│  n │ text    │\n├────┼─────────┤\n│  8 │ 東京|\\n │\n\
                     │  9 │ 東京|\\n │\n│ 10 │ 東京|\\n │\n└────┴─────────┘\n";
        assert_eq!(shown(Format::Box, WHOLE, &batches).0, boxed);
        let markdown = "|   n | text     |\n| --: | -------- |\n|   8 | 東京\\|\\n |\n|   9 | 東京\\|\\n |\n\
                        |  10 | 東京\\|\\n |\n";
        assert_eq!(shown(Format::Markdown, WHOLE, &batches).0, markdown);
        let line = "   n = 8\ntext = 東京|\n       \n\n   n = 9\ntext = 東京|\n       \n";
        assert_eq!(shown(Format::Line, WHOLE, &[batch(8..10, "東京|\n")]).0, line);
    }

    #[test]
    fn a_long_result_shows_both_ends() {
        let fit = Fit { rows: Some(4), width: Some(20) };
        let batches = [batch(0..3, "a"), batch(3..1000, "a text that is long")];
        let (text, left_out) = shown(Format::Table, fit, &batches);
        let expected = "  n │ text\n────┼───────────────\n  0 │ a\n  1 │ a\n  ⋮ │ ⋮\n\
                        998 │ a text …s long\n999 │ a text …s long\n";
        assert_eq!(text, expected);
        assert_eq!(left_out, LeftOut { rows_shown: Some(4), columns_shown: None, is_cut: true });
        let (text, left_out) = shown(Format::Line, fit, &batches);
        assert_eq!(text.matches(" n = ").count(), 4);
        assert_eq!(left_out.rows_shown, Some(4));
    }

    #[test]
    fn columns_that_do_not_fit_are_counted() {
        let number = |i: i64| (format!("column{i}"), Arc::new(Int64Array::from(vec![i])) as ArrayRef);
        let batch = RecordBatch::try_from_iter((0..100).map(number)).unwrap();
        let (text, left_out) = shown(Format::Box, Fit { rows: Some(40), width: Some(40) }, &[batch]);
        let expected = "┌─────────┬─────────┬───┬──────────┐\n│ column0 │ column1 │ … │ column99 │\n\
                        ├─────────┼─────────┼───┼──────────┤\n│       0 │       1 │ … │       99 │\n\
                        └─────────┴─────────┴───┴──────────┘\n";
        assert_eq!(text, expected);
        assert_eq!(left_out, LeftOut { rows_shown: None, columns_shown: Some(3), is_cut: false });
    }

    #[test]
    fn a_wide_value_moves_its_own_line_only() {
        let text = "x".repeat(1000);
        let many = i64::try_from(BYTES_MEASURED / 1000).unwrap();
        let (text, _) = shown(
            Format::Table,
            WHOLE,
            &[batch(0..many, &text), batch(0..1, &"y".repeat(2000)), batch(0..1, "z")],
        );
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(last[0], "    0 │ z");
        assert_eq!(last[1].len(), "    0 │ ".len() + 2000);
    }
}

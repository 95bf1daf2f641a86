//! The rows of a result that are displayed: all of them, or the first and the last ones if there are too many.

use super::layout::cut;
use super::{Fit, stop};
use crate::cli::stop::Outcome;
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::collections::VecDeque;

/// The cells of a row.
pub type Row = Vec<String>;

/// A buffer of at most [`Fit::rows`] rows of a result of any length.
pub struct Kept {
    most: usize,
    /// Width to which a cell is truncated before it is stored.
    width: Option<usize>,
    first: Vec<Row>,
    last: VecDeque<Row>,
    rows: u64,
}

impl Kept {
    /// Creates a buffer of at most `most` rows. Cells are truncated to the width of `fit`.
    pub fn new(most: usize, fit: Fit) -> Self {
        let (first, last) = Default::default();
        Kept { most, width: fit.width, first, last, rows: 0 }
    }

    /// Adds rows. `show` escapes their cells for the screen.
    pub fn add(&mut self, batch: &RecordBatch, show: impl Fn(&str) -> String) -> Outcome {
        let count = batch.num_rows();
        let first = self.most.saturating_sub(self.first.len()).min(count);
        let last = (count - first).min(self.most / 2);
        let cells = Cells::of(batch)?;
        let shown = |row: usize| -> Outcome<Row> {
            let row = cells.row(row)?;
            let cell = |cell: String| match self.width {
                // Both ends of a cell are kept, so that the layout can cut it again.
                Some(width) => cut(&show(&cell), width.max(1)),
                None => show(&cell),
            };
            Ok(row.into_iter().map(cell).collect())
        };
        let begin = (0..first).map(shown).collect::<Outcome<Vec<Row>>>()?;
        let end = (count - last..count).map(shown).collect::<Outcome<Vec<Row>>>()?;
        self.first.extend(begin);
        self.last.extend(end);
        self.last.drain(..self.last.len().saturating_sub(self.most / 2));
        self.rows += farpool::model::cast::u64_from(count);
        Ok(())
    }

    /// Returns the first rows, and, if rows in the middle are left out, the last ones.
    pub fn parts(mut self) -> (Vec<Row>, Option<Vec<Row>>) {
        if self.rows <= farpool::model::cast::u64_from(self.most) {
            return (self.first, None);
        }
        let half = self.most / 2;
        let mut last = self.first.split_off(self.most - half);
        last.extend(self.last);
        let last = last.split_off(last.len().saturating_sub(half));
        (self.first, Some(last))
    }
}

/// The values of a batch as text.
pub struct Cells<'a>(Vec<ArrayFormatter<'a>>);

impl<'a> Cells<'a> {
    /// Prepares the columns of a batch.
    pub fn of(batch: &'a RecordBatch) -> Outcome<Self> {
        const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_null("NULL");
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &OPTIONS));
        Ok(Cells(columns.collect::<Result<_, _>>().map_err(stop)?))
    }

    /// Returns the cells of a row.
    pub fn row(&self, row: usize) -> Outcome<Row> {
        let cells = self.0.iter().map(|column| column.value(row).try_to_string());
        cells.collect::<Result<_, _>>().map_err(stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use std::sync::Arc;

    fn numbers(rows: i64, batch_rows: usize, most: usize) -> (Vec<i64>, Option<Vec<i64>>) {
        let mut kept = Kept::new(most, Fit { rows: Some(most), width: None });
        let all: Vec<i64> = (0..rows).collect();
        for chunk in all.chunks(batch_rows) {
            let column: ArrayRef = Arc::new(Int64Array::from(chunk.to_vec()));
            kept.add(&RecordBatch::try_from_iter([("n", column)]).unwrap(), str::to_string).unwrap();
        }
        let (first, last) = kept.parts();
        let values = |rows: Vec<Row>| rows.iter().map(|row| row[0].parse().unwrap()).collect();
        (values(first), last.map(values))
    }

    #[test]
    fn rows_at_both_ends_are_kept_whatever_the_batches() {
        for batch_rows in [1, 2, 3, 5, 7, 100] {
            for most in [1, 2, 3, 5, 8] {
                for rows in 0..30 {
                    let (first, last) = numbers(rows, batch_rows, most);
                    let most = most as i64;
                    if rows <= most {
                        assert_eq!((first, last), ((0..rows).collect(), None));
                        continue;
                    }
                    let expected = ((0..most - most / 2).collect(), Some((rows - most / 2..rows).collect()));
                    assert_eq!((first, last), expected, "{rows} rows, {batch_rows} a batch, {most} shown");
                }
            }
        }
    }
}

//! Runs statements and prints their results, for `farpool sql` and the shell.

use super::output::{self, Fit, Format, LeftOut, Out};
use super::size;
use super::stop::Outcome;
use super::terminal::printable_lines;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use farpool::model::cast::u64_from;
use farpool::{Query, Receipt};
use futures::StreamExt;
use std::time::{Duration, Instant};

/// The settings for the output of results.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    pub format: Format,
    pub fit: Fit,
    /// Whether to print the plan (the parts that run at the pool, with the pool's answers, and those that run here),
    /// and after the run the estimates next to the actual figures.
    pub explains: bool,
    /// Whether to print the elapsed time of a statement.
    pub times: bool,
}

/// A query result buffered in memory before it is displayed, up to a size limit.
pub struct Taken {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
    /// Whether the result was truncated at the limit.
    pub is_cut: bool,
}

impl Printer {
    /// Runs a statement that started at `start` and prints its rows. `is_first` is true if nothing has been printed
    /// yet. Returns whether the statement has a result.
    pub async fn print(&self, query: &Query, start: Instant, is_first: bool) -> Outcome<bool> {
        self.explain(query);
        let mut batches = query.execute().await?;
        let schema = query.schema().clone();
        let has_result = !schema.fields().is_empty();
        let mut rows = 0;
        let mut left_out = LeftOut::default();
        if has_result {
            let mut writer = output::writer(self.format, self.fit, output::stdout(), &schema, is_first)?;
            while let Some(batch) = batches.next().await {
                let batch = batch?;
                rows += batch.num_rows();
                writer.write(&batch)?;
            }
            left_out = writer.finish()?;
        }
        drop(batches);
        self.explain_outcome(query);
        if has_result {
            self.summarize(rows, schema.fields().len(), left_out, start);
        }
        Ok(has_result)
    }

    /// Runs a statement and buffers its result, up to `bytes_max` in memory; a larger result is truncated. Returns
    /// `None` if the statement has no result.
    pub async fn take(&self, query: &Query, bytes_max: usize) -> Outcome<Option<Taken>> {
        self.explain(query);
        let mut batches = query.execute().await?;
        let mut taken = Taken { schema: query.schema().clone(), batches: Vec::new(), is_cut: false };
        let mut bytes = 0;
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            bytes += batch.get_array_memory_size();
            if bytes > bytes_max {
                taken.is_cut = true;
                break;
            }
            taken.batches.push(batch);
        }
        drop(batches);
        self.explain_outcome(query);
        Ok((!taken.schema.fields().is_empty()).then_some(taken))
    }

    /// Prints a result to `out`, within the limits of `fit`.
    pub fn write(&self, taken: &Taken, fit: Fit, out: Out, is_first: bool) -> Outcome<LeftOut> {
        let mut writer = output::writer(self.format, fit, out, &taken.schema, is_first)?;
        taken.batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()
    }

    /// Prints the size of a result on standard error, if the format is for people.
    pub fn summarize(&self, rows: usize, columns: usize, left_out: LeftOut, start: Instant) {
        if self.format.is_for_people() {
            let time = self.times.then(|| start.elapsed());
            eprintln!("{}", summary(u64_from(rows), columns, left_out, time));
        }
    }

    fn explain(&self, query: &Query) {
        if self.explains {
            eprintln!("{}", printable_lines(query.explain().trim_end()));
        }
    }

    fn explain_outcome(&self, query: &Query) {
        if self.explains {
            eprint!("{}", printable_lines(&query.outcome()));
        }
    }
}

/// Returns a line with the size of a result, the part of it that was displayed, and the elapsed time: `(1,000 rows, 40
/// shown, 12 ms)`.
pub fn summary(rows: u64, columns: usize, left_out: LeftOut, time: Option<Duration>) -> String {
    let mut parts = vec![size::counted(rows, "row")];
    parts.extend(left_out.rows_shown.map(|shown| format!("{shown} shown")));
    if let Some(shown) = left_out.columns_shown {
        parts.push(format!("{}, {shown} shown", size::counted(u64_from(columns), "column")));
    }
    parts.extend(time.map(size::duration));
    format!("({})", parts.join(", "))
}

/// Adds the execution statistics of another statement to `total`. Statements run one after the other, so that their
/// elapsed times are added, whereas [`Receipt::merge`] takes the longest because the programs of one query overlap.
pub fn add_receipt(total: &mut Receipt, more: &Receipt) {
    let elapsed_ns = total.elapsed_ns + more.elapsed_ns;
    total.merge(more);
    total.elapsed_ns = elapsed_ns;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_tells_what_is_missing() {
        let time = Some(Duration::from_millis(12));
        assert_eq!(summary(1, 1, LeftOut::default(), time), "(1 row, 12.0 ms)");
        let left_out = LeftOut { rows_shown: Some(40), columns_shown: Some(9), is_cut: false };
        assert_eq!(summary(1000, 100, left_out, None), "(1,000 rows, 40 shown, 100 columns, 9 shown)");
    }
}

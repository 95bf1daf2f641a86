//! Measures one query alternately with and without push-down, so that other load on the machine affects both equally.

use super::queries::DemoQuery;
use crate::cli::stop::Outcome;
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use farpool::{Error, Receipt, Session};
use std::time::{Duration, Instant};

/// The measured costs of a query without and with push-down.
pub struct Measured {
    /// Number of rows of the result.
    pub rows: usize,
    /// Without push-down: the node sends plain columns.
    pub off: Costs,
    /// With push-down.
    pub on: Costs,
}

/// Costs of a query, with or without push-down.
pub struct Costs {
    /// Median of the elapsed times.
    pub time: Duration,
    /// The execution statistics of the last run.
    pub receipt: Receipt,
}

/// Runs `query` once to warm up and `runs` times measured, both without and with push-down.
///
/// # Errors
/// Fails if a run fails, or the results differ.
pub async fn measure(query: &DemoQuery, off: &Session, on: &Session, runs: usize) -> Outcome<Measured> {
    let expected = answer(&once(query, off).await?.batches)?;
    let (mut off_runs, mut on_runs) = (Vec::new(), vec![once(query, on).await?]);
    compare(query, &expected, &on_runs[0].batches)?;
    on_runs.clear();
    for _ in 0..runs {
        off_runs.push(once(query, off).await?);
        on_runs.push(once(query, on).await?);
    }
    for run in off_runs.iter().chain(&on_runs) {
        compare(query, &expected, &run.batches)?;
    }
    Ok(Measured { rows: expected.len(), off: costs(off_runs), on: costs(on_runs) })
}

struct OneRun {
    time: Duration,
    batches: Vec<RecordBatch>,
    receipt: Receipt,
}

async fn once(query: &DemoQuery, session: &Session) -> Outcome<OneRun> {
    let start = Instant::now();
    let planned = session.sql(query.sql).await?;
    let batches = planned.collect().await?;
    Ok(OneRun { time: start.elapsed(), batches, receipt: planned.receipt() })
}

fn costs(mut runs: Vec<OneRun>) -> Costs {
    runs.sort_by_key(|run| run.time);
    let time = runs.get(runs.len() / 2).map_or(Duration::ZERO, |run| run.time);
    Costs { time, receipt: runs.pop().map(|run| run.receipt).unwrap_or_default() }
}

fn compare(query: &DemoQuery, expected: &[String], batches: &[RecordBatch]) -> Outcome {
    if answer(batches)? == expected {
        return Ok(());
    }
    let wrong = format!("{}: the answers with and without push-down differ", query.title);
    Err(Error::internal(wrong).advise("this is a defect in farpool: please report it").into())
}

/// Returns the rows as sorted texts: SQL guarantees no order without ORDER BY.
fn answer(batches: &[RecordBatch]) -> Outcome<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        append_rows(batch, &mut rows).map_err(|error| Error::internal(error.to_string()))?;
    }
    rows.sort_unstable();
    Ok(rows)
}

fn append_rows(batch: &RecordBatch, rows: &mut Vec<String>) -> Result<(), arrow::error::ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        let cells = columns.iter().map(|column| column.value(row).try_to_string());
        rows.push(cells.collect::<Result<Vec<_>, _>>()?.join("\t"));
    }
    Ok(())
}

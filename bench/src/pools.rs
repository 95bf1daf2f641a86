//! Sessions over farpool's pools, as clients use them: tables are loaded, statements run and answered.

use crate::answers::Answer;
use anyhow::{Context, Result};
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::error::ArrowError;
use farpool::{LoadMode, LoadOptions, Pool, Query, Receipt, Session, SessionOptions, TableInfo, TableName};
use futures::stream;
use std::sync::Arc;
use std::time::Instant;

/// Opens a session over a pool, with or without push-down, whose queries run on `threads` threads.
pub async fn session(pool: Arc<dyn Pool>, pushdown: bool, threads: usize) -> Result<Arc<Session>> {
    let target_partitions = Some(threads);
    session_with(pool, SessionOptions { pushdown, target_partitions, ..SessionOptions::default() }).await
}

/// Opens a session over a pool.
pub async fn session_with(pool: Arc<dyn Pool>, options: SessionOptions) -> Result<Arc<Session>> {
    let session = Session::new(options);
    session.register_pool("farpool", pool).await?;
    Ok(Arc::new(session))
}

/// The result and the time of a statement that has run.
pub struct Ran {
    /// Milliseconds from the text of the statement to the last batch.
    pub ms: f64,
    pub batches: Vec<RecordBatch>,
    pub receipt: Receipt,
    columns: Vec<String>,
}

impl Ran {
    /// Returns the rows.
    pub fn answer(&self) -> Result<Answer> {
        Answer::from_batches(self.columns.clone(), &self.batches).map_err(anyhow::Error::msg)
    }
}

/// Runs a statement.
pub async fn run(session: &Session, sql: &str) -> farpool::Result<Ran> {
    let start = Instant::now();
    execute(session.sql(sql).await?, start).await
}

/// Runs a statement; its time is that of the execution, without planning.
pub async fn run_planned(session: &Session, sql: &str) -> farpool::Result<Ran> {
    let query = session.sql(sql).await?;
    execute(query, Instant::now()).await
}

/// Executes a query that is planned already; its time begins at `start`.
pub async fn execute(query: Query, start: Instant) -> farpool::Result<Ran> {
    let batches = query.collect().await?;
    let ms = milliseconds(start);
    let columns = query.schema().fields().iter().map(|field| field.name().clone()).collect();
    Ok(Ran { ms, batches, receipt: query.receipt(), columns })
}

/// Returns the milliseconds since `start`.
pub fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Loads batches into a table; they must have a row.
pub async fn load(
    pool: &dyn Pool,
    table: &str,
    mode: LoadMode,
    batches: Vec<RecordBatch>,
) -> Result<TableInfo> {
    let schema = batches.first().with_context(|| format!("{table} has no rows"))?.schema();
    let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    let batches = Box::pin(stream::iter(batches.into_iter().map(Ok)));
    Ok(pool.load(&TableName::new(table)?, mode.into(), schema, Some(rows), batches).await?)
}

/// Loads what a reader reads, of `rows` rows if that is known, into a table.
pub async fn load_from(
    reader: impl RecordBatchReader + Send + 'static,
    pool: &dyn Pool,
    table: &str,
    options: LoadOptions,
    rows: Option<u64>,
) -> Result<TableInfo> {
    let schema = reader.schema();
    let failed = |error: ArrowError| farpool::Error::internal(error.to_string());
    let batches = Box::pin(stream::iter(reader.map(move |batch| batch.map_err(failed))));
    Ok(pool.load(&TableName::new(table)?, options, schema, rows, batches).await?)
}

/// Waits until a table's profile is computed, so that computing it does not disturb measurements.
pub async fn await_profile(pool: &dyn Pool, table: &str) -> Result<()> {
    pool.statistics(&TableName::new(table)?, None).await?;
    Ok(())
}

//! Fills a data directory through a node, as clients do.

use super::definition::{APPEND_ROWS, Store};
use super::served::Served;
use crate::pools::await_profile;
use crate::tables::{Content, batches_between};
use crate::text;
use anyhow::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use farpool::{LoadMode, Pool, TableInfo, TableName};
use futures::{StreamExt, TryStreamExt, stream};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Number of loads and appends that are sent at the same time.
const LOADERS: usize = 4;

/// The contents of a filled store.
pub struct Filled {
    /// Encoded bytes of all tables of the store.
    pub bytes_encoded: u64,
    /// Number of appends that the log contains.
    pub appends: u64,
}

/// Fills the data directory of a store through a node.
pub async fn fill(
    store: &Store,
    columns: &[(String, Content)],
    data: &Path,
    threads: usize,
) -> Result<Filled> {
    let memory_mib = store.memory_mib.iter().copied().max().unwrap_or(0);
    let served = Served::start(data, memory_mib, threads, false)?;
    let (pool, _) = served.connect().await?;
    let loads = (0..store.tables).map(|place| {
        let rows = place * store.rows..(place + 1) * store.rows;
        load(&*pool, store.table_name(place), LoadMode::Create, columns, rows)
    });
    let mut loads = stream::iter(loads).buffer_unordered(LOADERS);
    let mut loaded = 0;
    while loads.try_next().await?.is_some() {
        loaded += 1;
        text::progress(&format!("{}: {loaded} tables ", store.name));
    }
    drop(loads);
    if store.tables == 1 {
        await_profile(&*pool, "t").await?;
    }
    while pool.tables().await?.iter().any(|table| table.rows_profiled.is_some()) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    served.end(false)?;
    let appends =
        if store.log_mib > 0 { append(store, columns, data, (memory_mib, threads)).await? } else { 0 };
    Ok(Filled { bytes_encoded: bytes_encoded(data, (memory_mib, threads), store).await?, appends })
}

/// Appends rows, which stay in the node's log, and kills the node.
async fn append(
    store: &Store,
    columns: &[(String, Content)],
    data: &Path,
    (memory_mib, threads): (usize, usize),
) -> Result<u64> {
    let served = Served::start(data, memory_mib, threads, true)?;
    let (pool, _) = served.connect().await?;
    let one = |number: u64| {
        let first = store.rows + number * APPEND_ROWS;
        load(&*pool, "t".to_string(), LoadMode::Append, columns, first..first + APPEND_ROWS)
    };
    let before = pool.table(&TableName::new("t")?).await?.bytes_encoded;
    let bytes = one(0).await?.bytes_encoded.saturating_sub(before).max(1);
    let appends = (store.log_mib << 20).div_ceil(bytes);
    text::progress(&format!("{}: {appends} appends ", store.name));
    stream::iter((1..appends).map(one)).buffer_unordered(LOADERS).try_for_each(|_| async { Ok(()) }).await?;
    served.end(true)?;
    Ok(appends)
}

async fn bytes_encoded(data: &Path, (memory_mib, threads): (usize, usize), store: &Store) -> Result<u64> {
    let served = Served::start(data, memory_mib, threads, store.is_killed())?;
    let (pool, _) = served.connect().await?;
    let bytes = pool.tables().await?.iter().map(|table| table.bytes_encoded).sum();
    served.end(store.is_killed())?;
    Ok(bytes)
}

async fn load(
    pool: &dyn Pool,
    name: String,
    mode: LoadMode,
    columns: &[(String, Content)],
    rows: Range<u64>,
) -> Result<TableInfo> {
    let (hint, columns) = (rows.end - rows.start, Arc::<[_]>::from(columns));
    let schema = schema(&columns)?;
    // One batch at a time: the generator borrows the columns.
    let starts = rows.clone().step_by(farpool::model::limits::BATCH_ROWS);
    let batches = starts.map(move |start| {
        let end = rows.end.min(start + farpool::model::limits::BATCH_ROWS as u64);
        one_batch(&columns, start..end).map_err(|error| farpool::Error::internal(error.to_string()))
    });
    let batches = Box::pin(stream::iter(batches));
    Ok(pool.load(&TableName::new(name)?, mode.into(), schema, Some(hint), batches).await?)
}

fn schema(columns: &[(String, Content)]) -> Result<SchemaRef> {
    Ok(one_batch(columns, 0..1)?.schema())
}

fn one_batch(columns: &[(String, Content)], rows: Range<u64>) -> Result<RecordBatch> {
    let count = rows.end - rows.start;
    let mut batches = batches_between(columns, rows.end, rows, count);
    batches.next().ok_or_else(|| anyhow::anyhow!("a batch without rows"))?
}

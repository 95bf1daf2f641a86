//! Farpool's sides of the comparison: a node in a separate process, over loopback TCP, in plain text or with TLS, with
//! its tables unencrypted or encrypted in memory.

use crate::digest::Digest;
use crate::machine;
use crate::node::NodeProcess;
use crate::pools::{self, milliseconds};
use crate::tables;
use anyhow::{Context, Result, bail};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use farpool::{LoadMode, LoadOptions, Pool, Receipt, Session, TableInfo, TableName, Tier};
use futures::future::try_join_all;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a string that an Arrow view stores inline.
const INLINE_BYTES: usize = 12;

/// A node in a separate process, and its clients in this one.
pub struct Remote {
    node: NodeProcess,
    threads: usize,
    pool: Arc<dyn Pool>,
}

/// One run of one query by all clients.
pub struct Ran {
    /// Milliseconds, from the text of the query to the last batch of the last client.
    pub ms: f64,
    pub digest: Digest,
    /// The sum of the execution statistics (receipts) of the pool over all clients.
    pub receipt: Receipt,
    /// Bytes of the results in the clients' memory.
    pub result_bytes: u64,
    /// CPU time of the clients' process in milliseconds.
    pub client_cpu_ms: f64,
}

impl Remote {
    /// Connects to the node.
    pub async fn over(node: NodeProcess, threads: usize) -> Result<Remote> {
        let pool = node.connect().await?;
        Ok(Remote { node, threads, pool })
    }

    /// Loads a file, with its values encrypted in the node's memory if a tier is given.
    pub async fn load(&self, table: &str, file: &Path, encryption: Option<Tier>) -> Result<TableInfo> {
        let options = LoadOptions { encryption, ..LoadMode::Replace.into() };
        let info = pools::load_from(tables::read(file)?, &*self.pool, table, options, None).await?;
        if encryption.is_none() {
            pools::await_profile(&*self.pool, table).await?;
        }
        Ok(info)
    }

    /// Drops a table.
    pub async fn drop_table(&self, table: &str) -> Result<()> {
        Ok(self.pool.drop_table(&TableName::new(table)?).await?)
    }

    /// Opens sessions, each with a separate connection.
    pub async fn clients(&self, count: usize) -> Result<Vec<Arc<Session>>> {
        try_join_all((0..count).map(|_| async { self.session(true, self.node.connect().await?).await })).await
    }

    /// Opens sessions like [`Remote::clients`], with results that the node encrypts.
    pub async fn sealed_clients(&self, count: usize) -> Result<Vec<Arc<Session>>> {
        let one = |_| async { self.session(true, self.node.connect_sealed().await?).await };
        try_join_all((0..count).map(one)).await
    }

    /// Returns the result of a query that DataFusion computes without push-down, from plain columns.
    pub async fn without_pushdown(&self, sql: &str) -> Result<Digest> {
        let session = self.session(false, self.node.connect().await?).await?;
        Digest::of(&pools::run(&session, sql).await?.batches)
    }

    async fn session(&self, pushdown: bool, pool: Arc<dyn Pool>) -> Result<Arc<Session>> {
        pools::session(pool, pushdown, self.threads).await
    }
}

/// Returns the bytes of a column's values, without unused parts of its buffers.
fn bytes_of(column: &ArrayRef) -> u64 {
    let data = column.to_data();
    if let Some(strings) = column.as_string_view_opt() {
        // Counts the strings that do not fit in their views; the buffers may also contain strings of other columns.
        let outside = |text: &str| if text.len() > INLINE_BYTES { text.len() } else { 0 };
        let outside: usize = strings.iter().flatten().map(outside).sum();
        return (outside + strings.len() * size_of::<u128>()) as u64;
    }
    data.get_slice_memory_size().unwrap_or_else(|_| data.get_buffer_memory_size()) as u64
}

/// Runs a query by all clients concurrently.
pub async fn run(clients: &[Arc<Session>], sql: &str) -> Result<Ran> {
    let cpu = machine::cpu_ns();
    let start = Instant::now();
    let running = clients.iter().map(|client| {
        let (client, sql) = (client.clone(), sql.to_string());
        tokio::spawn(async move { pools::run(&client, &sql).await })
    });
    let results = try_join_all(running).await.context("a client failed")?;
    let ms = milliseconds(start);
    let client_cpu_ms = machine::cpu_ns().saturating_sub(cpu) as f64 / 1e6;
    let (mut receipt, mut result_bytes, mut digest) = (Receipt::default(), 0, None);
    for result in results {
        let pools::Ran { batches, receipt: own, .. } = result?;
        receipt.merge(&own);
        result_bytes += batches.iter().flat_map(RecordBatch::columns).map(bytes_of).sum::<u64>();
        let own = Digest::of(&batches)?;
        if digest.get_or_insert_with(|| own.clone()) != &own {
            bail!("the clients' answers differ");
        }
    }
    let digest = digest.context("there is no client")?;
    Ok(Ran { ms, digest, receipt, result_bytes, client_cpu_ms })
}

//! The compute side: a DataFusion session with LiquidCache's optimizer rule, and the server's process.
//!
//! Invariant: a query that panics or hangs becomes an error. LiquidCache's client panics when a stream fails, and its
//! other streams wait forever if the server refuses a plan.

use crate::protocol::milliseconds;
use crate::server::ServerProcess;
use crate::tables;
use anyhow::{Context, Result, anyhow};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::future::join_all;
use liquid_cache_client::LiquidCacheBuilder;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Time after which a query is considered to hang.
const LONGEST: Duration = Duration::from_secs(120);

/// The client of LiquidCache, and the process of its server.
pub struct Client {
    runtime: Runtime,
    context: SessionContext,
    server: ServerProcess,
}

/// A complete result.
pub struct Answer {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

impl Client {
    /// Starts the server, and a session that uses it.
    pub fn start(threads: usize) -> Result<Client> {
        let server = ServerProcess::start(threads)?;
        let config = SessionConfig::new().with_target_partitions(threads);
        let context = LiquidCacheBuilder::new(format!("http://127.0.0.1:{}", server.port)).build(config)?;
        Ok(Client { runtime: crate::runtime(threads)?, context, server })
    }

    /// Registers a file; the server caches a column when a query first reads it.
    pub fn load(&mut self, table: &str, file: &Path) -> Result<()> {
        let parquet = tables::parquet(file)?;
        let path = parquet.to_str().context("the path is not UTF-8")?;
        let registered = self.context.register_parquet(table, path, ParquetReadOptions::default());
        self.runtime.block_on(registered).map_err(said)
    }

    /// Drops a table, and empties the server's whole cache. Columns of other tables are cached again when they are
    /// read.
    pub fn drop_table(&mut self, table: &str) -> Result<()> {
        self.context.deregister_table(table)?;
        self.server.reset()
    }

    /// Runs a statement `clients` times concurrently; returns the results, and the milliseconds until the last was
    /// complete.
    pub fn run(&mut self, statement: &str, clients: usize) -> Result<(Vec<Answer>, f64)> {
        let statement: Arc<str> = statement.into();
        let all = (0..clients).map(|_| query(self.context.clone(), statement.clone()));
        let start = Instant::now();
        let results = self.runtime.block_on(async {
            join_all(all.map(|one| tokio::spawn(tokio::time::timeout(LONGEST, one)))).await
        });
        let ms = milliseconds(start);
        let answers = results.into_iter().map(|joined| {
            let in_time = joined.map_err(|panic| anyhow!("LiquidCache's client panicked: {panic}"))?;
            in_time.map_err(|_| anyhow!("no end after {} s", LONGEST.as_secs()))?
        });
        Ok((answers.collect::<Result<_>>()?, ms))
    }

    /// Returns the bytes that server and clients have sent each other so far.
    pub fn bytes_on_wire(&mut self) -> Result<u64> {
        self.server.bytes_on_wire()
    }
}

/// Converts the error without its causes, which its text already contains.
fn said(error: DataFusionError) -> anyhow::Error {
    anyhow!("{error}")
}

/// Runs a query, from its text to the last batch.
async fn query(context: SessionContext, statement: Arc<str>) -> Result<Answer> {
    let frame = context.sql(&statement).await.map_err(said)?;
    let schema = Arc::new(frame.schema().as_arrow().clone());
    let batches = frame.collect().await.map_err(said)?;
    Ok(Answer { schema: batches.first().map_or(schema, RecordBatch::schema), batches })
}

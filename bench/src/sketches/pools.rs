//! Farpool's sides besides the library: a pool in this process, and a node behind loopback TCP.
//!
//! Both run the same SQL over a loaded table; the state is returned as one value.

use super::data::{COLUMN, Data, TABLE};
use crate::node::{self, NodeProcess};
use crate::{pools, suite};
use anyhow::{Context, Result, ensure};
use arrow::array::AsArray;
use farpool::model::{SketchParameters, TenantName};
use farpool::{EmbeddedPool, LoadMode, Pool, Session, TableInfo};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A pool and the runtime of its client.
pub struct InPool {
    pub name: &'static str,
    runtime: Runtime,
    pool: Arc<dyn Pool>,
    session: Arc<Session>,
    /// The process of the pool's node, if it has one; it ends when this value is dropped.
    _process: Option<NodeProcess>,
}

impl InPool {
    /// Opens a pool in this process whose queries run on `threads` threads.
    pub fn embedded(threads: usize) -> Result<InPool> {
        let pool = EmbeddedPool::over(node::start(0)?, TenantName::default());
        InPool::over("pool", suite::runtime(threads)?, pool, threads, None)
    }

    /// Starts a node with `threads` workers in a process of its own.
    pub fn remote(threads: usize) -> Result<InPool> {
        let process = NodeProcess::start(threads)?;
        let runtime = suite::runtime(threads)?;
        let pool = runtime.block_on(farpool::connect(&process.url, None))?;
        InPool::over("remote", runtime, pool, threads, Some(process))
    }

    fn over(
        name: &'static str,
        runtime: Runtime,
        pool: Arc<dyn Pool>,
        threads: usize,
        process: Option<NodeProcess>,
    ) -> Result<InPool> {
        let session = runtime.block_on(pools::session(pool.clone(), true, threads))?;
        Ok(InPool { name, runtime, pool, session, _process: process })
    }

    /// Replaces the table.
    pub fn load(&self, data: &Data) -> Result<TableInfo> {
        self.runtime.block_on(async {
            let info = load(&*self.pool, data).await?;
            pools::await_profile(&*self.pool, TABLE).await?;
            Ok(info)
        })
    }

    /// Returns the milliseconds from the text of the query to its last byte, and the state of these sketches.
    pub fn sketch(&self, parameters: SketchParameters) -> Result<(f64, Vec<u8>)> {
        let (session, sql) =
            (self.session.clone(), format!("SELECT sketch({COLUMN}, '{parameters}') FROM {TABLE}"));
        let ran = self.runtime.spawn(async move {
            let ran = pools::run(&session, &sql).await?;
            ensure!(ran.receipt.rows_returned == 1, "the pool sent rows in place of one state");
            let column = ran.batches.iter().find(|batch| batch.num_rows() > 0).map(|batch| batch.column(0));
            let state = column.and_then(|c| c.as_binary_view_opt()).context("a state was expected")?;
            Ok((ran.ms, state.value(0).to_vec()))
        });
        self.runtime.block_on(ran)?
    }
}

/// Replaces the table of a pool.
pub async fn load(pool: &dyn Pool, data: &Data) -> Result<TableInfo> {
    pools::load(pool, TABLE, LoadMode::Replace, data.record_batches()?).await
}

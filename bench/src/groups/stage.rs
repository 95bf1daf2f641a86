//! A node with tables in a separate process, and the ways of running statements over it.

use super::definition::Definition;
use super::statements::{self, Answers, Ran, WORK_BYTES, concurrently, sequentially, session};
use crate::node::NodeProcess;
use crate::stats::median_of;
use crate::tables::{self, Content};
use crate::{pools, text};
use anyhow::Result;
use farpool::{
    ClientOptions, LoadMode, NearPool, Nearness, Pool, PoolUrl, RemotePool, TableName, WorkMemory,
};
use serde::Serialize;
use std::sync::Arc;

/// A node with tables.
pub struct Stage<'a> {
    pub definition: &'a Definition,
    pub node: NodeProcess,
}

/// Costs of statements that read the same columns, in each of the ways: median seconds, and bytes that are moved.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Ways {
    /// One after the other without push-down, with rows sent for each statement.
    pub rows_s: f64,
    pub rows_bytes: u64,
    /// One after the other at the client, with a separate transfer of all columns for each statement.
    pub isolated_s: f64,
    pub isolated_bytes: u64,
    /// Concurrently, with columns sent once.
    pub grouped_s: f64,
    pub grouped_bytes: u64,
    /// Encoded bytes of the columns that are read.
    pub distinct_bytes: u64,
    /// Concurrently, over columns that are already at the client.
    pub local_s: f64,
    /// As a batch, with push-down as the cost model decides.
    pub free_s: f64,
    pub free_bytes: u64,
}

impl<'a> Stage<'a> {
    pub fn start(definition: &'a Definition) -> Result<Stage<'a>> {
        Ok(Stage { definition, node: NodeProcess::start(definition.threads)? })
    }

    /// Loads a table. Returns the encoded bytes of its columns.
    pub async fn load(&self, name: &str, columns: &[(String, Content)], rows: u64) -> Result<Vec<u64>> {
        load(&*self.node.connect().await?, name, columns, rows).await
    }

    pub async fn remote(&self) -> Result<Arc<RemotePool>> {
        let url: PoolUrl = self.node.url.parse()?;
        Ok(Arc::new(RemotePool::connect(&url, ClientOptions::default()).await?))
    }

    /// Returns a pool without any columns at the client. With [`Nearness::Always`], nothing runs at the node.
    pub async fn near(&self, nearness: Nearness) -> Result<Arc<NearPool>> {
        let work = WorkMemory::new(WORK_BYTES);
        Ok(NearPool::open(self.remote().await?, self.definition.cache_mib << 20, work, nearness)?)
    }

    /// Runs statements in each of the ways, in turns. `distinct_bytes` are the bytes of the columns that they read.
    pub async fn ways(&self, statements: &[String], distinct_bytes: u64) -> Result<Ways> {
        let Definition { runs, threads, .. } = *self.definition;
        let all = statements.len();
        let threads_each = threads.div_ceil(all);
        let mut answers = Answers::default();
        let mut rounds: Vec<[(f64, u64); 5]> = Vec::new();
        for run in 0..=runs {
            let remote: Arc<dyn Pool> = self.remote().await?;
            let session_of_rows = session(&remote, false, threads).await?;
            let rows = answers.check(sequentially(&session_of_rows, statements).await?)?;
            let isolated = answers.check(self.isolated(statements).await?)?;
            let near = self.near(Nearness::Always).await?;
            let pool: Arc<dyn Pool> = near.clone();
            let session_of_group = session(&pool, true, threads_each).await?;
            let (seconds, _) = answers.check(concurrently(&session_of_group, statements, all).await?)?;
            let grouped = (seconds, near.bytes_fetched());
            let local = answers.check(concurrently(&session_of_group, statements, all).await?)?;
            let pool: Arc<dyn Pool> = self.near(Nearness::Auto).await?;
            let session_of_batch = session(&pool, true, threads).await?;
            let free = answers.check(statements::batch(&session_of_batch, statements).await?)?;
            // The first round is a warm-up and does not count.
            if run > 0 {
                rounds.push([rows, isolated, grouped, local, free]);
            }
        }
        let [rows, isolated, grouped, local, free] = std::array::from_fn(|way| {
            (median_of(&rounds, |round| round[way].0), rounds.last().map_or(0, |round| round[way].1))
        });
        Ok(Ways {
            rows_s: rows.0,
            rows_bytes: rows.1,
            isolated_s: isolated.0,
            isolated_bytes: isolated.1,
            grouped_s: grouped.0,
            grouped_bytes: grouped.1,
            distinct_bytes,
            local_s: local.0,
            free_s: free.0,
            free_bytes: free.1,
        })
    }

    /// Runs each statement with a separate client, without any columns at the client.
    async fn isolated(&self, statements: &[String]) -> Result<Ran> {
        let (mut seconds, mut bytes, mut results) = (0.0, 0, Vec::new());
        for statement in statements {
            let near = self.near(Nearness::Always).await?;
            let pool: Arc<dyn Pool> = near.clone();
            let session = session(&pool, true, self.definition.threads).await?;
            let (of_one, _, result) = sequentially(&session, std::slice::from_ref(statement)).await?;
            seconds += of_one;
            bytes += near.bytes_fetched();
            results.extend(result);
        }
        Ok((seconds, bytes, results))
    }
}

/// Loads a table into a pool. Returns the encoded bytes of its columns.
pub async fn load(pool: &dyn Pool, name: &str, columns: &[(String, Content)], rows: u64) -> Result<Vec<u64>> {
    text::progress(&format!("loading {rows} rows "));
    let batches = tables::batches(columns, rows).collect::<Result<_>>()?;
    pools::load(pool, name, LoadMode::Create, batches).await?;
    pools::await_profile(pool, name).await?;
    Ok(pool.table(&TableName::new(name)?).await?.columns.iter().map(|column| column.bytes_encoded).collect())
}

//! A node with tables in a separate process, and the ways of running statements over it: they differ in what is sent to
//! the client, columns or rows, and how often.

use super::definition::Definition;
use super::statements::{Answers, Ran, WORK_BYTES, batch, concurrently, sequentially, session};
use crate::node::NodeProcess;
use crate::suite::{Samples, turns_after_warm_up};
use crate::tables::{self, Content};
use crate::{pools, text};
use anyhow::{Context, Result};
use farpool::{
    ClientOptions, LoadMode, NearPool, Nearness, Pool, RemotePool, Session, TableName, WorkMemory,
};
use serde::Serialize;
use std::sync::Arc;

/// A node with tables, in a separate process.
pub struct Stage<'a> {
    pub definition: &'a Definition,
    pub node: NodeProcess,
}

/// Costs of a list of statements in each way of running them: median seconds, and bytes on the wire in the last run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Ways {
    /// One statement after the other without push-down: the node sends the rows that each statement reads.
    pub rows_s: f64,
    pub rows_bytes: u64,
    /// One statement after the other at the client, which fetches the encoded columns again for each.
    pub isolated_s: f64,
    pub isolated_bytes: u64,
    /// All statements concurrently at the client, which fetches the encoded columns once.
    pub grouped_s: f64,
    pub grouped_bytes: u64,
    /// Encoded bytes of the columns that the statements read, each column counted once.
    pub distinct_bytes: u64,
    /// All statements concurrently at the client, whose cache already holds the columns.
    pub local_s: f64,
    /// As one batch, with an empty cache: the cost model decides what runs at the node and which columns are fetched.
    pub free_s: f64,
    pub free_bytes: u64,
}

/// A way of running statements; [`Ways`] describes them.
#[derive(Clone, Copy, Debug)]
enum Execution {
    Rows,
    Isolated,
    Grouped,
    Local,
    Free,
}

/// All ways, in the order of the turns: `Local` needs the cache that `Grouped` has filled.
const EXECUTIONS: [Execution; 5] =
    [Execution::Rows, Execution::Isolated, Execution::Grouped, Execution::Local, Execution::Free];

impl<'a> Stage<'a> {
    /// Starts a node without tables.
    pub fn start(definition: &'a Definition) -> Result<Stage<'a>> {
        Ok(Stage { definition, node: NodeProcess::start(definition.threads)? })
    }

    /// Loads a table into the node. Returns the encoded bytes of each of its columns.
    pub async fn load(&self, name: &str, columns: &[(String, Content)], rows: u64) -> Result<Vec<u64>> {
        load(&*self.node.connect().await?, name, columns, rows).await
    }

    /// Connects a client without a column cache.
    pub async fn remote(&self) -> Result<Arc<RemotePool>> {
        connect(&self.node.url).await
    }

    /// Connects a client with an empty column cache. With [`Nearness::Always`], nothing runs at the node: the client
    /// fetches the columns that it needs.
    pub async fn near(&self, nearness: Nearness) -> Result<Arc<NearPool>> {
        let work = WorkMemory::new(WORK_BYTES);
        Ok(NearPool::open(self.remote().await?, self.definition.cache_mib << 20, work, nearness)?)
    }

    /// Runs statements in each of the ways, in turns. `distinct_bytes` are the encoded bytes of the columns that they
    /// read.
    pub async fn ways(&self, statements: &[String], distinct_bytes: u64) -> Result<Ways> {
        let (mut answers, mut samples) = (Answers::of(statements), Samples::new(EXECUTIONS.len()));
        let mut group = None;
        for turn in turns_after_warm_up(EXECUTIONS.len(), self.definition.runs) {
            let execution = EXECUTIONS[turn.side];
            let Ran { seconds, bytes, answers: actual } =
                self.execute(execution, statements, &mut group).await?;
            answers.check(&format!("{execution:?}"), &actual)?;
            samples.add(turn, (seconds, bytes));
        }
        let cost = |side| {
            let bytes = samples.of(side).last().map_or(0, |(_, bytes)| *bytes);
            (samples.median(side, |(seconds, _)| *seconds), bytes)
        };
        let [rows, isolated, grouped, local, free] = std::array::from_fn(cost);
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

    /// Runs statements in one of the ways. [`Execution::Grouped`] leaves its session, whose cache then holds all
    /// columns, in `group`, from which the [`Execution::Local`] that follows takes it.
    async fn execute(
        &self,
        execution: Execution,
        statements: &[String],
        group: &mut Option<Arc<Session>>,
    ) -> Result<Ran> {
        let (all, threads) = (statements.len(), self.definition.threads);
        match execution {
            Execution::Rows => {
                let remote: Arc<dyn Pool> = self.remote().await?;
                sequentially(&session(&remote, false, threads).await?, statements).await
            }
            Execution::Isolated => self.isolated(statements).await,
            Execution::Grouped => {
                let near = self.near(Nearness::Always).await?;
                let pool: Arc<dyn Pool> = near.clone();
                let session = group.insert(session(&pool, true, threads.div_ceil(all)).await?);
                let ran = concurrently(session, statements, all).await?;
                Ok(Ran { bytes: near.bytes_fetched(), ..ran })
            }
            Execution::Local => {
                let session = group.take().context("no session has the columns")?;
                concurrently(&session, statements, all).await
            }
            Execution::Free => {
                let near: Arc<dyn Pool> = self.near(Nearness::Auto).await?;
                batch(&*session(&near, true, threads).await?, statements).await
            }
        }
    }

    /// Runs each statement with a client of its own, whose column cache is empty.
    async fn isolated(&self, statements: &[String]) -> Result<Ran> {
        let mut all = Ran { seconds: 0.0, bytes: 0, answers: Vec::new() };
        for statement in statements {
            let near = self.near(Nearness::Always).await?;
            let pool: Arc<dyn Pool> = near.clone();
            let session = session(&pool, true, self.definition.threads).await?;
            let ran = sequentially(&session, std::slice::from_ref(statement)).await?;
            all.seconds += ran.seconds;
            all.bytes += near.bytes_fetched();
            all.answers.extend(ran.answers);
        }
        Ok(all)
    }
}

/// Connects a client to the node at `url`.
pub async fn connect(url: &str) -> Result<Arc<RemotePool>> {
    Ok(Arc::new(RemotePool::connect(&url.parse()?, ClientOptions::default()).await?))
}

/// Loads a table of generated rows into a pool, and waits for its profile. Returns the encoded bytes of each of its
/// columns.
pub async fn load(pool: &dyn Pool, name: &str, columns: &[(String, Content)], rows: u64) -> Result<Vec<u64>> {
    text::progress(&format!("loading {rows} rows "));
    let batches = tables::batches(columns, rows).collect::<Result<_>>()?;
    pools::load(pool, name, LoadMode::Create, batches).await?;
    pools::await_profile(pool, name).await?;
    Ok(pool.table(&TableName::new(name)?).await?.columns.iter().map(|column| column.bytes_encoded).collect())
}

//! The sides of a comparison: DuckDB, and farpool in-process and over TCP, with and without push-down.

use crate::answers::Answer;
use crate::node;
use crate::rival::{Rival, Statement};
use anyhow::{Result, bail};
use farpool::model::TenantName;
use farpool::{EmbeddedPool, Pool, Receipt, Session, SessionOptions};
use std::sync::Arc;
use std::time::Instant;

/// One side.
pub struct Side {
    /// Its name in the definition.
    pub name: String,
    engine: Engine,
}

enum Engine {
    DuckDb(Box<Rival>),
    Farpool(Session),
}

/// One run of one query.
pub struct Sample {
    /// Milliseconds, from the text of the query to the last batch.
    pub ms: f64,
    /// What came out.
    pub answer: Answer,
    /// What the pool reported; empty for a rival.
    pub receipt: Receipt,
}

/// A node of this process, and both ways to it.
pub struct Farpool {
    /// Without a socket.
    pub embedded: Arc<EmbeddedPool>,
    /// Over loopback TCP.
    pub remote: Arc<dyn Pool>,
}

impl Farpool {
    /// Starts the node, with workers and a runtime of its own.
    pub async fn start(threads: usize) -> Result<Farpool> {
        let node = node::start(threads)?;
        let embedded = EmbeddedPool::over(node.clone(), TenantName::default());
        let address = node::serve(node, threads)?;
        let remote = farpool::connect(&format!("farpool://{address}"), None).await?;
        Ok(Farpool { embedded, remote })
    }

    /// The side of that name, such as `remote on`.
    pub async fn side(&self, name: &str, threads: usize) -> Result<Side> {
        let Some((way, switch)) = name.split_once(' ') else { bail!("there is no side {name:?}") };
        let pool = match way {
            "embedded" => self.embedded.clone(),
            "remote" => self.remote.clone(),
            _ => bail!("there is no side {name:?}"),
        };
        let options = SessionOptions {
            pushdown: switch == "on",
            target_partitions: Some(threads),
            ..SessionOptions::default()
        };
        let session = Session::new(options);
        session.register_pool("farpool", pool).await?;
        Ok(Side { name: name.to_string(), engine: Engine::Farpool(session) })
    }
}

impl Side {
    /// The rival.
    pub fn duckdb(duckdb: Rival) -> Side {
        Side { name: "duckdb".to_string(), engine: Engine::DuckDb(Box::new(duckdb)) }
    }

    /// Runs a query.
    pub async fn run(&mut self, sql: &str) -> Result<Sample> {
        match &mut self.engine {
            Engine::DuckDb(duckdb) => {
                let statement = Statement { text: sql, table: "", columns: &[], clients: 1 };
                let (ms, answer) = duckdb.run_for_answer(&statement)?;
                Ok(Sample { ms, answer, receipt: Receipt::default() })
            }
            Engine::Farpool(session) => {
                let start = Instant::now();
                let query = session.sql(sql).await?;
                let batches = query.collect().await?;
                let ms = start.elapsed().as_secs_f64() * 1e3;
                let columns = query.schema().fields().iter().map(|field| field.name().clone()).collect();
                let answer = Answer::from_batches(columns, &batches).map_err(anyhow::Error::msg)?;
                Ok(Sample { ms, answer, receipt: query.receipt() })
            }
        }
    }
}

//! The sides of a comparison: DuckDB, and farpool in-process and over TCP, with and without push-down.

use crate::answers::Answer;
use crate::duckdb::DuckDb;
use anyhow::{Result, anyhow, bail};
use farpool::model::TenantName;
use farpool::node::{Node, NodeConfig, server};
use farpool::{EmbeddedPool, Pool, Receipt, Session, SessionOptions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Memory that the node may use: enough for scale 10.
const NODE_BYTES: usize = 16 << 30;

/// One side.
pub struct Side {
    /// Its name in the definition.
    pub name: String,
    engine: Engine,
}

enum Engine {
    DuckDb(Box<DuckDb>),
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
    pub embedded: Arc<dyn Pool>,
    /// Over loopback TCP.
    pub remote: Arc<dyn Pool>,
}

impl Farpool {
    /// Starts the node, with workers and a runtime of its own.
    pub async fn start(threads: usize) -> Result<Farpool> {
        let node = Node::start(NodeConfig { memory_bytes: NODE_BYTES, workers: threads, tokens: None })?;
        let embedded = EmbeddedPool::over(node.clone(), TenantName::default());
        let address = serve(node, threads)?;
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

/// Serves the node on threads of its own until the process ends.
fn serve(node: Arc<Node>, threads: usize) -> Result<SocketAddr> {
    let (ready, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || -> Result<()> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            ready.send(listener.local_addr()?)?;
            Ok(server::serve(node, listener, std::future::pending()).await?)
        })
    });
    address.recv().map_err(|_| anyhow!("the node could not listen on a loopback port"))
}

impl Side {
    /// The rival.
    pub fn duckdb(duckdb: DuckDb) -> Side {
        Side { name: "duckdb".to_string(), engine: Engine::DuckDb(Box::new(duckdb)) }
    }

    /// Runs a query.
    pub async fn run(&mut self, sql: &str) -> Result<Sample> {
        match &mut self.engine {
            Engine::DuckDb(duckdb) => {
                let (ms, answer) = duckdb.run(sql)?;
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

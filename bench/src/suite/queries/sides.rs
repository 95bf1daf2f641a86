//! The sides of a comparison: rivals (the systems that farpool is compared with), and farpool in-process and over TCP,
//! with and without push-down.

use crate::answers::Answer;
use crate::node::{self, NodeProcess};
use crate::pools;
use crate::rival::{Rival, RivalDefinition, Statement};
use crate::tables::parquet;
use anyhow::{Result, bail};
use farpool::model::TenantName;
use farpool::{EmbeddedPool, Pool, Receipt, Session};
use std::path::Path;
use std::sync::Arc;

/// One side of the comparison.
pub struct Side {
    /// Name of the side in the definition.
    pub name: String,
    engine: Engine,
}

enum Engine {
    Rival(Box<Rival>),
    Farpool(Arc<Session>),
}

/// The measurements of one run of one query.
pub struct Sample {
    /// Milliseconds, from the text of the query to the last batch.
    pub ms: f64,
    /// The result of the query.
    pub answer: Answer,
    /// The pool's execution statistics; for a rival only the bytes on the wire, if it counts them.
    pub receipt: Receipt,
}

/// The pools of farpool's sides: over one node, or over two.
pub struct Farpool {
    /// The pool without a socket.
    pub embedded: Arc<EmbeddedPool>,
    /// The pool over loopback TCP.
    remote: Arc<dyn Pool>,
    /// The process of the remote pool's node, if that is not the embedded pool's.
    process: Option<NodeProcess>,
}

impl Farpool {
    /// Starts one node for both pools in this process, with workers and a runtime of its own.
    pub async fn start(threads: usize) -> Result<Farpool> {
        let node = node::start(threads)?;
        let embedded = EmbeddedPool::over(node.clone(), TenantName::default());
        let address = node::serve(node, threads)?;
        let remote = farpool::connect(&format!("farpool://{address}"), None).await?;
        Ok(Farpool { embedded, remote, process: None })
    }

    /// Starts a node in this process for the embedded pool, and one in a process of its own for the remote pool.
    pub async fn start_separate(threads: usize) -> Result<Farpool> {
        let embedded = EmbeddedPool::over(node::start(threads)?, TenantName::default());
        let process = NodeProcess::start(threads)?;
        Ok(Farpool { embedded, remote: process.connect().await?, process: Some(process) })
    }

    /// Returns the remote pool if it has tables of its own.
    pub fn separate(&self) -> Option<&dyn Pool> {
        self.process.as_ref().map(|_| &*self.remote)
    }

    /// Opens the side of farpool with this name, such as `remote on`: the way to the pool, and whether operators are
    /// pushed down.
    pub async fn side(&self, name: &str, threads: usize) -> Result<Side> {
        let (way, switch) = name.split_once(' ').unwrap_or((name, ""));
        let pool: Arc<dyn Pool> = match way {
            "embedded" => self.embedded.clone(),
            "remote" => self.remote.clone(),
            _ => bail!("there is no side {name:?}"),
        };
        let session = pools::session(pool, switch == "on", threads).await?;
        Ok(Side { name: name.to_string(), engine: Engine::Farpool(session) })
    }
}

/// Opens the sides with these names over the tables of a folder, which farpool's pools have loaded; notes tell which
/// rivals cannot take part.
pub async fn open(
    farpool: &Farpool,
    names: &[String],
    (folder, tables): (&Path, &[&str]),
    threads: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<Side>> {
    let mut sides = Vec::new();
    for name in names {
        if !Side::names_rival(name) {
            sides.push(farpool.side(name, threads).await?);
            continue;
        }
        match Side::rival(name, folder, tables, threads) {
            Ok(side) => sides.push(side),
            Err(error) => notes.push(format!("nothing is compared with {name}: {error:#}")),
        }
    }
    Ok(sides)
}

impl Side {
    /// Returns whether a name is that of a rival: names of farpool's sides contain a space.
    pub fn names_rival(name: &str) -> bool {
        !name.contains(' ')
    }

    /// Starts a rival, and loads these tables into it.
    pub fn rival(name: &str, folder: &Path, tables: &[&str], threads: usize) -> Result<Side> {
        let mut rival = Rival::start(RivalDefinition::named(name)?, threads)?;
        parquet::load_into(&mut rival, folder, tables)?;
        Ok(Side { name: name.to_string(), engine: Engine::Rival(Box::new(rival)) })
    }

    /// Returns name and version of a rival.
    pub fn version(&self) -> Option<String> {
        match &self.engine {
            Engine::Rival(rival) => Some(format!("{} {}", rival.definition.name, rival.version)),
            Engine::Farpool(_) => None,
        }
    }

    /// Returns farpool's explanation of a query.
    pub async fn explain(&self, sql: &str) -> Result<String> {
        match &self.engine {
            Engine::Farpool(session) => Ok(session.sql(sql).await?.explain()),
            Engine::Rival(_) => bail!("{} explains nothing", self.name),
        }
    }

    /// Runs a query.
    pub async fn run(&mut self, sql: &str) -> Result<Sample> {
        match &mut self.engine {
            Engine::Rival(rival) => {
                let statement = Statement { text: sql, table: "", columns: &[], clients: 1 };
                let (ms, answer) = rival.run_for_answer(&statement)?;
                let bytes_on_wire = rival.bytes_on_wire.unwrap_or(0);
                Ok(Sample { ms, answer, receipt: Receipt { bytes_on_wire, ..Receipt::default() } })
            }
            Engine::Farpool(session) => {
                let ran = pools::run(session, sql).await?;
                Ok(Sample { ms: ran.ms, answer: ran.answer()?, receipt: ran.receipt })
            }
        }
    }
}

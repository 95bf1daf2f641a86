//! Cost of profiling during a load: the same column is streamed to two nodes over loopback TCP, one of which computes a
//! profile of the rows in the background (through the tap) and one that does not.

use super::data::{Data, TABLE};
use crate::node::NodeProcess;
use crate::pools::milliseconds;
use crate::suite::{self, turns_after_warm_up};
use crate::{machine, stats};
use anyhow::{Result, ensure};
use farpool::{Pool, TableName};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Results of loading a column.
#[derive(Clone, Debug, Serialize)]
pub struct IngestResult {
    pub column: String,
    pub with_tap: IngestSide,
    pub without: IngestSide,
}

/// Times of loading the column.
#[derive(Clone, Debug, Default, Serialize)]
pub struct IngestSide {
    pub times_ms: Vec<f64>,
    pub gb_s: f64,
    /// CPU time of the node's process.
    pub cpu_ms: Vec<f64>,
    /// CPU time of the node's process per GB of the column.
    pub cpu_ms_per_gb: f64,
    /// Time from the end of the load until its profile is computed, if there is one.
    pub profile_ms: Vec<f64>,
}

/// Two nodes, of which one profiles loaded rows, and a client of each.
pub struct Ingest {
    runtime: Runtime,
    nodes: [Side; 2],
}

struct Side {
    process: NodeProcess,
    pool: Arc<dyn Pool>,
}

impl Ingest {
    /// Starts the nodes.
    pub fn start(threads: usize) -> Result<Ingest> {
        let runtime = suite::runtime(threads)?;
        let side = |process: NodeProcess| -> Result<Side> {
            let pool = runtime.block_on(farpool::connect(&process.url, None))?;
            Ok(Side { process, pool })
        };
        let nodes = [side(NodeProcess::start(threads)?)?, side(NodeProcess::start_without_taps(threads)?)?];
        Ok(Ingest { runtime, nodes })
    }

    /// Loads a column into both nodes, in turns.
    pub fn measure(&self, column: &str, data: &Data, runs: usize) -> Result<IngestResult> {
        let mut sides = [IngestSide::default(), IngestSide::default()];
        for turn in turns_after_warm_up(sides.len(), runs) {
            let loaded = self.runtime.block_on(self.nodes[turn.side].load(data, turn.side == 0))?;
            if turn.counts {
                let side = &mut sides[turn.side];
                side.times_ms.push(loaded.ms);
                side.cpu_ms.extend(loaded.cpu_ms);
                side.profile_ms.extend(loaded.profile_ms);
            }
        }
        let gb = size_of::<u32>() as f64 * data.rows() as f64 / 1e9;
        for side in &mut sides {
            side.gb_s = 1e3 * gb / stats::median(&side.times_ms);
            side.cpu_ms_per_gb = stats::median(&side.cpu_ms) / gb;
        }
        let [with_tap, without] = sides;
        Ok(IngestResult { column: column.to_string(), with_tap, without })
    }
}

/// Costs of one load.
struct Loaded {
    ms: f64,
    /// CPU time of the node until the profile is computed.
    cpu_ms: Option<f64>,
    profile_ms: Option<f64>,
}

impl Side {
    /// Loads the column, and drops the table again.
    async fn load(&self, data: &Data, tapped: bool) -> Result<Loaded> {
        let cpu = || machine::cpu_seconds_of(&self.process.id().to_string());
        let (before, start) = (cpu(), Instant::now());
        let info = super::pools::load(&*self.pool, data).await?;
        let ms = milliseconds(start);
        ensure!(info.rows == data.rows() as u64, "{} rows arrived", info.rows);
        let (name, start) = (TableName::new(TABLE)?, Instant::now());
        if tapped {
            let statistics = self.pool.statistics(&name, None).await?;
            let found = farpool::statistics::Profile::read(&statistics)?.map(|profile| profile.rows());
            ensure!(found == Some(info.rows), "the profile is of {found:?} rows");
        }
        let profile_ms = tapped.then(|| milliseconds(start));
        let cpu_ms = before.zip(cpu()).map(|(before, after)| 1e3 * (after - before));
        self.pool.drop_table(&name).await?;
        Ok(Loaded { ms, cpu_ms, profile_ms })
    }
}

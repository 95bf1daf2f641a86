//! Loads tables into pools, and measures the largest one.

use super::Farpool;
use crate::tables::parquet;
use crate::{machine, pools};
use anyhow::{Context, Result};
use arrow::array::RecordBatch;
use farpool::{LoadMode, Pool, TableInfo};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// Costs of loading the largest table from Arrow batches in memory.
#[derive(Clone, Debug, Serialize)]
pub struct Loading {
    pub table: String,
    pub rows: u64,
    pub bytes_plain: u64,
    pub bytes_encoded: u64,
    /// With a profile, as in normal use: elapsed time until the load is acknowledged, and all CPU time until the
    /// profile, which is computed in the background, is complete.
    pub profiled: Cost,
    /// Costs of a load without a profile.
    pub encoded: Cost,
}

/// Time of a load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    pub elapsed_s: f64,
    pub cpu_s: f64,
}

impl Loading {
    /// Returns GB of plain Arrow data per second of CPU time.
    pub fn gb_s_per_core(&self, cost: Cost) -> f64 {
        self.bytes_plain as f64 / cost.cpu_s.max(1e-9) / 1e9
    }

    /// Returns GB of plain Arrow data per second of elapsed time.
    pub fn gb_s(&self, cost: Cost) -> f64 {
        self.bytes_plain as f64 / cost.elapsed_s.max(1e-9) / 1e9
    }

    /// Returns the ratio of the encoded size to the plain size.
    pub fn size_ratio(&self) -> f64 {
        self.bytes_encoded as f64 / (self.bytes_plain as f64).max(1.0)
    }
}

/// Bytes of the largest Parquet file whose rows are held in memory while they are loaded. A larger one is loaded as it is
/// read, so that its times contain those of reading.
const HELD_FILE_BYTES_MAX: u64 = 3 << 30;

/// Loads every table into all pools; measures the last and largest, which is loaded twice, in the embedded one.
pub async fn load(farpool: &Farpool, folder: &Path, tables: &[&str]) -> Result<Loading> {
    let (mut encoded, mut last) = (Cost::default(), None);
    for table in tables {
        if parquet::bytes(folder, table)? > HELD_FILE_BYTES_MAX {
            let (info, cost) = load_streamed(farpool, folder, table).await?;
            (encoded, last) = (cost, Some((table, (info, cost))));
            continue;
        }
        if tables.last() == Some(table) {
            let batches = parquet::read(folder, table)?;
            (_, encoded) = load_table(&*farpool.embedded.without_taps(), table, batches, false).await?;
        }
        last = Some((table, load_into_all(farpool, folder, table).await?));
    }
    let (table, (info, profiled)) = last.context("there is no table")?;
    let TableInfo { rows, bytes_plain, bytes_encoded, .. } = info;
    Ok(Loading { table: table.to_string(), rows, bytes_plain, bytes_encoded, profiled, encoded })
}

/// Loads a table of a folder into all pools as it is read; returns the costs of the embedded one.
async fn load_streamed(farpool: &Farpool, folder: &Path, table: &str) -> Result<(TableInfo, Cost)> {
    if let Some(separate) = farpool.separate() {
        pools::load_from(parquet::reader(folder, table)?, separate, table, LoadMode::Replace.into(), None)
            .await?;
    }
    let (cpu, start) = (machine::cpu_seconds(), Instant::now());
    let pool = &*farpool.embedded;
    let info = pools::load_from(parquet::reader(folder, table)?, pool, table, LoadMode::Replace.into(), None)
        .await?;
    let elapsed_s = start.elapsed().as_secs_f64();
    pools::await_profile(pool, table).await?;
    let cpu_s = cpu.zip(machine::cpu_seconds()).map_or(elapsed_s, |(before, after)| after - before);
    Ok((info, Cost { elapsed_s, cpu_s }))
}

/// Loads a table of a folder into all pools; returns the costs of the embedded one.
pub async fn load_into_all(farpool: &Farpool, folder: &Path, table: &str) -> Result<(TableInfo, Cost)> {
    let batches = parquet::read(folder, table)?;
    if let Some(separate) = farpool.separate() {
        load_table(separate, table, batches.clone(), true).await?;
    }
    load_table(&*farpool.embedded, table, batches, true).await
}

/// Loads a table, with a profile or without waiting for one.
pub async fn load_table(
    pool: &dyn Pool,
    table: &str,
    batches: Vec<RecordBatch>,
    profiled: bool,
) -> Result<(TableInfo, Cost)> {
    let (cpu, start) = (machine::cpu_seconds(), Instant::now());
    let info = pools::load(pool, table, LoadMode::Replace, batches).await?;
    let elapsed_s = start.elapsed().as_secs_f64();
    if profiled {
        pools::await_profile(pool, table).await?;
    }
    let cpu_s = cpu.zip(machine::cpu_seconds()).map_or(elapsed_s, |(before, after)| after - before);
    Ok((info, Cost { elapsed_s, cpu_s }))
}

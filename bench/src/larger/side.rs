//! Farpool as one side of a comparison with rivals: a process that speaks the protocol of the rivals' drivers
//! (`bench/rivals/driver.py`): an embedded pool over a data directory.

use crate::pools::{self, milliseconds};
use crate::suite;
use anyhow::{Context, Result, anyhow};
use arrow::ipc::writer::FileWriter;

use farpool::node::{
    AccessKind, AccessTrace, CompressionPolicy, LocalDirectory, Node, NodeConfig, compressing, place_on_disk,
    unlock,
};
use farpool::{EmbeddedPool, LoadMode, Pool, Session, SessionOptions, TableName, TenantName, WorkMemory};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Options of the process.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The data directory.
    #[arg(long)]
    data: PathBuf,
    /// Memory of the pool, in MiB.
    #[arg(long)]
    pool_mib: usize,
    /// Memory for work, in MiB.
    #[arg(long)]
    work_mib: usize,
}

/// Maximal number of accesses in a trace, 32 bytes each: ten times those of the suite at its full size.
const ACCESSES_MAX: usize = 4 << 20;

struct Side {
    pool: Arc<EmbeddedPool>,
    session: Arc<Session>,
    trace: Arc<AccessTrace>,
}

/// Answers requests until the input ends.
pub fn serve(options: &Options) -> Result<()> {
    let (mut side, mut runtime) = (None, None);
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        if request["do"] == "start" {
            let threads = request["threads"].as_u64().unwrap_or(1) as usize;
            let made = suite::runtime(threads)?;
            let answer = match made.block_on(Side::open(options, threads)) {
                Ok(opened) => {
                    side = Some(opened);
                    json!({ "version": env!("CARGO_PKG_VERSION") })
                }
                Err(error) => json!({ "error": format!("{error:#}") }),
            };
            runtime = Some(made);
            tell(&answer)?;
            continue;
        }
        let (Some(side), Some(runtime)) = (&side, &runtime) else { return Err(anyhow!("not started")) };
        let answer = runtime.block_on(side.answer(&request));
        tell(&answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") })))?;
    }
    Ok(())
}

fn tell(answer: &Value) -> Result<()> {
    println!("{answer}");
    Ok(std::io::stdout().flush()?)
}

impl Side {
    async fn open(options: &Options, threads: usize) -> Result<Side> {
        let work = WorkMemory::new(options.work_mib << 20);
        let trace = Arc::new(AccessTrace::new(ACCESSES_MAX));
        let directory = unlock(LocalDirectory::open(&options.data)?, None, None)?;
        let node = Node::start(NodeConfig {
            memory_bytes: options.pool_mib << 20,
            work: work.clone(),
            data: Some(compressing(directory, CompressionPolicy::Auto)),
            trace: Some(trace.clone()),
            ..NodeConfig::default()
        })?;
        let pool = EmbeddedPool::over(node, TenantName::default());
        let session = SessionOptions {
            target_partitions: Some(threads),
            work: Some(work),
            ..SessionOptions::default()
        };
        let session = pools::session_with(pool.clone(), session).await?;
        Ok(Side { pool, session, trace })
    }

    async fn answer(&self, request: &Value) -> Result<Value> {
        let text = |name: &str| request[name].as_str().unwrap_or_default();
        let start = Instant::now();
        if request["do"] == "load" {
            self.load(text("table"), Path::new(text("file"))).await?;
            return Ok(json!({ "ms": milliseconds(start) }));
        }
        if request["do"] == "trace" {
            return self.write_trace(Path::new(text("file"))).await;
        }
        if request["do"] == "places" {
            return self.places(text("table"));
        }
        let query = self.session.sql(text("statement")).await?;
        let batches = query.collect().await?;
        let ms = milliseconds(start);
        let file = File::create(text("answer")).context("no file for the answer")?;
        let mut writer = FileWriter::try_new(file, query.schema())?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()?;
        let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        Ok(json!({ "ms": ms, "rows": rows, "wire": query.receipt().bytes_from_disk }))
    }

    /// Writes the accesses recorded since the start, a line for each: `used` or `read`, the chunk, its bytes in memory
    /// and on disk.
    async fn write_trace(&self, file: &Path) -> Result<Value> {
        let recorded = self.trace.take();
        let mut out = BufWriter::new(File::create(file)?);
        for access in &recorded.accesses {
            let kind = match access.kind {
                AccessKind::Used => "used",
                AccessKind::Read => "read",
            };
            writeln!(out, "{kind} {} {} {}", access.chunk, access.bytes, access.bytes_on_disk)?;
        }
        out.flush()?;
        let capacity = self.pool.status().await?.memory_bytes_limit;
        Ok(json!({ "capacity": capacity, "lost": recorded.lost }))
    }

    /// Returns the locations of the column chunks of a table on disk, row group by row group.
    fn places(&self, table: &str) -> Result<Value> {
        let caller = self.pool.node().owner(TenantName::default());
        let (_, table) = caller.source(&TableName::new(table)?)?;
        let columns: Vec<&str> = table.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut chunks = Vec::new();
        for (group, row_group) in table.row_groups.iter().enumerate() {
            for (column, chunk) in columns.iter().zip(&row_group.chunks) {
                let Some(place) = place_on_disk(chunk) else { continue };
                chunks.push(json!({
                    "group": group,
                    "column": column,
                    "file": place.file,
                    "offset": place.offset,
                    "bytes": place.bytes,
                }));
            }
        }
        Ok(json!({ "chunks": chunks }))
    }

    async fn load(&self, table: &str, file: &Path) -> Result<()> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file)?)?;
        let rows = u64::try_from(reader.metadata().file_metadata().num_rows()).ok();
        let reader = reader.with_batch_size(farpool::model::limits::BATCH_ROWS).build()?;
        pools::load_from(reader, &*self.pool, table, LoadMode::Replace.into(), rows).await?;
        pools::await_profile(&*self.pool, table).await
    }
}

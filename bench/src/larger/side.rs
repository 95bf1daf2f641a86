//! Farpool as a process that speaks the protocol of the rivals' drivers (`bench/rivals/driver.py`): an embedded pool over a
//! data directory.

use crate::suite;
use anyhow::{Context, Result, anyhow};
use arrow::ipc::writer::FileWriter;

use farpool::{EmbeddedPool, LoadMode, Pool, Session, SessionOptions, TableName, WorkMemory};
use futures::stream;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What the process is told.
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

struct Side {
    pool: Arc<EmbeddedPool>,
    session: Session,
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
        let pool = EmbeddedPool::open_durable(options.pool_mib << 20, work.clone(), &options.data)?;
        let session = SessionOptions {
            target_partitions: Some(threads),
            work: Some(work),
            ..SessionOptions::default()
        };
        let session = Session::new(session);
        session.register_pool("farpool", pool.clone()).await?;
        Ok(Side { pool, session })
    }

    async fn answer(&self, request: &Value) -> Result<Value> {
        let text = |name: &str| request[name].as_str().unwrap_or_default();
        let start = Instant::now();
        if request["do"] == "load" {
            self.load(text("table"), Path::new(text("file"))).await?;
            return Ok(json!({ "ms": milliseconds(start) }));
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

    async fn load(&self, table: &str, file: &Path) -> Result<()> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file)?)?;
        let (schema, rows) = (reader.schema().clone(), reader.metadata().file_metadata().num_rows());
        let reader = reader.with_batch_size(farpool::model::limits::BATCH_ROWS).build()?;
        let failed = |error: arrow::error::ArrowError| farpool::Error::invalid(error.to_string());
        let batches = Box::pin(stream::iter(reader.map(move |batch| batch.map_err(failed))));
        let name = TableName::new(table)?;
        self.pool.load(&name, LoadMode::Replace.into(), schema, u64::try_from(rows).ok(), batches).await?;
        suite::await_profile(&*self.pool, &name).await
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

//! `farpool calibrate --pool`: measures with which request sizes column chunks arrive fastest over the link to a node.
//!
//! A table of random numbers is created at the node, and read with each combination of a request size and a number of
//! concurrent requests. The smallest combination that is nearly as fast as the fastest is stored, because concurrent
//! requests need memory.

use super::super::config::Config;
use super::super::output::TextFormat;
use super::super::pool_args::ClientArgs;
use super::super::progress::{Progress, Unit};
use super::super::stop::{Outcome, Stop};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use farpool::model::limits::{NEAR_BYTES_MIN, ROW_GROUP_ROWS, WORK_BYTES_DEFAULT};
use farpool::{
    CalibratedLink, ClientOptions, LoadMode, NearPool, Nearness, Pool, PoolUrl, Program, RemotePool,
    TableInfo, TableName, Transfer, WorkMemory,
};
use futures::StreamExt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of row groups of the table, which has two columns of 64-bit numbers: 16 MiB.
const GROUPS: u64 = 16;
const REQUEST_BYTES: [usize; 5] = [512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20];
const REQUESTS: [usize; 3] = [1, 2, 4];
/// Number of runs per combination. The fastest counts, because it was disturbed least.
const RUNS: u64 = 3;
/// Time after which no further combination is measured.
const PATIENCE: Duration = Duration::from_secs(30);
/// Minimum share of the highest speed that counts as equally fast.
const AS_GOOD: f64 = 0.95;

pub fn run(url: PoolUrl, client: ClientArgs, format: TextFormat) -> Outcome {
    super::super::run_until_interrupted(async move {
        let options = client.options(&url, &Config::read()?)?;
        let link = measure(&url, options).await?;
        match farpool::link_file() {
            Some(path) => {
                farpool::keep_link(&url, link.clone(), &path)?;
                eprintln!("kept in {}", path.display());
            }
            None => eprintln!("not kept: there is no home folder"),
        }
        let text = match format {
            TextFormat::Table => format!(
                "latency            {:>9.3} ms\ncolumns            {:>9.1} MB/s\na request asks for {:>9} KiB\n\
                 requests at a time {:>9}\n",
                link.latency_s * 1e3,
                link.bytes_per_s / 1e6,
                link.transfer.request_bytes >> 10,
                link.transfer.requests
            ),
            TextFormat::Json => {
                let json = serde_json::to_string_pretty(&link);
                json.map_err(|error| farpool::Error::internal(error.to_string()))? + "\n"
            }
        };
        std::io::stdout().write_all(text.as_bytes()).map_err(Stop::output)
    })
}

async fn measure(url: &PoolUrl, options: ClientOptions) -> Outcome<CalibratedLink> {
    let remote = Arc::new(RemotePool::connect(url, options.clone()).await?);
    let latency_s = remote.latency().await?.as_secs_f64();
    let table = Loaded { name: load(&remote).await?.name, url: url.clone(), options };
    let info = remote.table(&table.name).await?;
    let (bytes, start) = (info.bytes_encoded, Instant::now());
    let done = Arc::new(AtomicU64::new(0));
    let ways = REQUEST_BYTES.len() as u64 * REQUESTS.len() as u64;
    let _bar = Progress::follow("calibrating", Unit::Rows, ways * RUNS * info.rows, done.clone(), None);
    let mut found: Vec<(f64, Transfer)> = Vec::new();
    'ways: for requests in REQUESTS {
        for request_bytes in REQUEST_BYTES {
            let transfer = Transfer { request_bytes, requests };
            let mut best = f64::INFINITY;
            for _ in 0..RUNS {
                best = best.min(read(&remote, &info, transfer).await?);
                done.fetch_add(info.rows, Ordering::Relaxed);
                if start.elapsed() > PATIENCE {
                    break;
                }
            }
            found.push((best, transfer));
            if start.elapsed() > PATIENCE {
                break 'ways;
            }
        }
    }
    let fastest = found.iter().map(|(seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
    let as_good = found.iter().filter(|(seconds, _)| fastest / seconds >= AS_GOOD);
    let least = as_good.min_by_key(|(_, transfer)| transfer.request_bytes * transfer.requests);
    let (seconds, transfer) = least.copied().unwrap_or((fastest, Transfer::default()));
    let bytes_per_s = bytes as f64 / seconds;
    Ok(CalibratedLink { machine: farpool::machine_name(), latency_s, bytes_per_s, transfer })
}

/// Returns the seconds in which the columns of a table arrive, for one combination.
async fn read(remote: &Arc<RemotePool>, info: &TableInfo, transfer: Transfer) -> Outcome<f64> {
    let work = WorkMemory::new(WORK_BYTES_DEFAULT);
    let near = NearPool::open(remote.clone(), 4 * NEAR_BYTES_MIN, work, Nearness::Always)?;
    near.set_transfer(transfer);
    let program = Program::scan(info.name.clone(), &info.schema, &[0, 1]);
    let handle = near.prepare(&program, &info.schema).await?;
    let start = Instant::now();
    for mut stream in near.execute_prepared(&handle, None, 1).await?.streams {
        while let Some(batch) = stream.next().await {
            batch?;
        }
    }
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    if near.bytes_fetched() == 0 {
        return Err(farpool::Error::invalid("the node hands out no columns to be kept elsewhere").into());
    }
    Ok(seconds)
}

async fn load(remote: &RemotePool) -> Outcome<TableInfo> {
    let batch = |first: u64| {
        let column = |salt: u64| -> ArrayRef {
            let rows = first..first + ROW_GROUP_ROWS as u64;
            let mixed = |row: u64| (row ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
            let mixed = move |row| mixed(row).wrapping_mul(0xbf58_476d_1ce4_e5b9).cast_signed();
            Arc::new(Int64Array::from_iter_values(rows.map(mixed)))
        };
        RecordBatch::try_from_iter([("a", column(1)), ("b", column(2))])
            .map_err(|error| farpool::Error::internal(error.to_string()))
    };
    let schema = batch(0)?.schema();
    let rows = GROUPS * ROW_GROUP_ROWS as u64;
    let batches: Vec<_> = (0..rows).step_by(ROW_GROUP_ROWS).map(batch).collect();
    let mut number = [0; 8];
    getrandom::fill(&mut number).map_err(|error| farpool::Error::internal(error.to_string()))?;
    let name = TableName::new(format!("calibration_{:016x}", u64::from_le_bytes(number)))?;
    let batches = futures::stream::iter(batches).boxed();
    Ok(remote.load(&name, LoadMode::Create.into(), schema, Some(rows), batches).await?)
}

/// The table at the node, which is dropped with this value, even if the command is interrupted.
struct Loaded {
    name: TableName,
    url: PoolUrl,
    options: ClientOptions,
}

impl Drop for Loaded {
    #[expect(
        clippy::disallowed_methods,
        reason = "dropping the table must not depend on a runtime that ends"
    )]
    fn drop(&mut self) {
        let (name, url, options) = (self.name.clone(), self.url.clone(), self.options.clone());
        let shown = name.clone();
        let dropped = std::thread::spawn(move || -> farpool::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| farpool::Error::internal(error.to_string()))?;
            runtime.block_on(async { RemotePool::connect(&url, options).await?.drop_table(&name).await })
        });
        if !matches!(dropped.join(), Ok(Ok(()))) {
            eprintln!("note: the table {shown} is still at the node: farpool drop {shown}");
        }
    }
}

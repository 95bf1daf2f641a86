//! Measures restarts of farpool and its rival: starts both repeatedly, each time with the data dropped from the
//! system's page cache.

use super::definition::{Definition, Store};
use super::rival::{Duckdb, Times};
use super::served::{Answered, Served};
use super::stores;
use crate::answers::Answer;
use crate::disk::{Dropping, bytes_below, disk_gb_s};
use crate::suite::{self, Expected, Head, RivalResult};
use crate::{places, stats, text};
use anyhow::{Context, Result, bail};
use farpool::Pool;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Time for which memory usage must be constant to consider loading complete, and the time limit for that.
const QUIET: Duration = Duration::from_millis(700);
const FILLED_WITHIN: Duration = Duration::from_secs(60);

/// Results of the suite.
#[derive(Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub runs: usize,
    pub threads: usize,
    /// A description of the data that was dropped from the page cache before each start.
    pub dropped: String,
    pub duckdb: RivalResult,
    /// Goals of the suite, which its definition explains: for the time and the bytes of the selective query, and for
    /// the scan's share of the disk's speed.
    pub selective_ms: f64,
    pub selective_bytes: u64,
    pub of_disk: f64,
    pub stores: Vec<StoreResult>,
    pub notes: Vec<String>,
}

/// Results for one store: the same data in a data directory of farpool and in a file of DuckDB.
#[derive(Debug, Serialize)]
pub struct StoreResult {
    pub name: String,
    /// Encoded bytes of the store's tables, and bytes of the files of each side.
    pub bytes_encoded: u64,
    pub bytes_farpool: u64,
    pub bytes_duckdb: Option<u64>,
    /// Number of appends in the log, and their bytes.
    pub appends: u64,
    pub starts: Vec<StartResult>,
}

/// Starts within one memory limit: medians.
#[derive(Debug, Serialize)]
pub struct StartResult {
    pub memory_mib: usize,
    /// Milliseconds from the start of the process until a client is connected.
    pub connected_ms: f64,
    /// Time from then on to the answer of the selective query, in milliseconds, and the bytes that it read.
    pub selective_ms: f64,
    pub selective_bytes: u64,
    /// Time until nothing more is read into memory, in milliseconds, and the part of the tables that is in memory by
    /// then.
    pub filled_ms: f64,
    pub filled_part: f64,
    pub scan: Option<ScanResult>,
    pub duckdb_selective: Option<RivalTimes>,
    pub duckdb_scan: Option<RivalTimes>,
}

/// The scan of a column as the first query.
#[derive(Debug, Serialize)]
pub struct ScanResult {
    /// Milliseconds from the start of the process, and of the query alone.
    pub since_start_ms: f64,
    pub ms: f64,
    pub bytes_from_disk: u64,
    /// GB/s of the scan, of the disk with O_DIRECT just before, and the median ratio of the two.
    pub gb_s: f64,
    pub disk_gb_s: f64,
    pub of_disk: Option<f64>,
}

/// Median times of DuckDB's processes.
#[derive(Debug, Serialize)]
pub struct RivalTimes {
    /// Milliseconds from the start of the process to the answer.
    pub whole_ms: f64,
    /// Time without Python and the import.
    pub own_ms: f64,
}

impl RivalTimes {
    /// Returns the medians; `None` without processes.
    fn of(times: &[Times]) -> Option<RivalTimes> {
        (!times.is_empty()).then(|| RivalTimes {
            whole_ms: stats::median_of(times, |times| times.whole),
            own_ms: stats::median_of(times, |times| times.own),
        })
    }
}

impl ScanResult {
    /// Returns the medians of scans, each with the speed of the disk just before; `None` without scans.
    fn of(scans: &[(Answered, f64)]) -> Option<ScanResult> {
        let rate = |answered: &Answered| answered.receipt.bytes_from_disk as f64 / answered.ms / 1e6;
        // For a small table everything may be in memory already.
        let from_disk = scans.iter().filter(|(answered, _)| answered.receipt.bytes_from_disk > 0);
        let ratios: Vec<f64> = from_disk.map(|(answered, disk_gb_s)| rate(answered) / disk_gb_s).collect();
        let (last, _) = scans.last()?;
        Some(ScanResult {
            since_start_ms: stats::median_of(scans, |(answered, _)| answered.since_start_ms),
            ms: stats::median_of(scans, |(answered, _)| answered.ms),
            bytes_from_disk: last.receipt.bytes_from_disk,
            gb_s: stats::median_of(scans, |(answered, _)| rate(answered)),
            disk_gb_s: stats::median_of(scans, |(_, disk_gb_s)| *disk_gb_s),
            of_disk: (!ratios.is_empty()).then(|| stats::median(&ratios)),
        })
    }
}

/// A folder that is removed with its contents.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: PathBuf) -> Result<Scratch> {
        // The folder may be left from a run that was killed.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed is removed before the next run.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Run<'a> {
    definition: &'a Definition,
    runtime: Runtime,
    dropping: Dropping,
    duckdb: Option<Duckdb>,
    folder: &'a Path,
}

/// The first answer to each query, with which the others are compared.
#[derive(Default)]
struct Answers {
    selective: Expected<Answer>,
    scan: Expected<Answer>,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let folder = Scratch::new(places::cache()?.join("restart"))?;
    let dropping = Dropping::find(&folder.0, definition.is_quick)?;
    let found = Duckdb::find();
    let duckdb = RivalResult::of("DuckDB", &found, |duckdb| duckdb.version.clone());
    let runtime = suite::runtime(definition.threads)?;
    let run = Run { definition, runtime, dropping, duckdb: found.ok(), folder: &folder.0 };
    let mut results = Results {
        head: Head::of("restart"),
        runs: definition.runs,
        threads: definition.threads,
        dropped: match dropping {
            Dropping::Cache => "the system's whole cache".to_string(),
            Dropping::Files => "the cached pages of the data's files".to_string(),
        },
        duckdb,
        selective_ms: definition.selective_ms,
        selective_bytes: definition.selective_mib << 20,
        of_disk: definition.of_disk,
        stores: Vec::new(),
        notes: Vec::new(),
    };
    for store in &definition.stores {
        let measured = run.store(store, &mut results.notes).with_context(|| store.name.clone())?;
        results.stores.push(measured);
    }
    text::progress("");
    Ok(results)
}

impl Run<'_> {
    fn store(&self, store: &Store, notes: &mut Vec<String>) -> Result<StoreResult> {
        let folder = Scratch::new(self.folder.join("store"))?;
        let (data, file) = (folder.0.join("farpool"), folder.0.join("duckdb"));
        let columns = self.definition.columns(store)?;
        text::progress(&format!("{}: filling ", store.name));
        let filled = self.runtime.block_on(stores::fill(store, &columns, &data, self.definition.threads))?;
        let mut duckdb = self.duckdb.as_ref();
        if let Some(rival) = duckdb {
            text::progress(&format!("{}: filling DuckDB's file ", store.name));
            if let Err(error) = rival.fill(store, &columns, &file, filled.appends) {
                notes.push(format!("{}: DuckDB has no such store: {error:#}", store.name));
                duckdb = None;
            }
        }
        let (mut answers, mut starts) = (Answers::default(), Vec::new());
        for &memory_mib in &store.memory_mib {
            starts.push(self.starts(store, memory_mib, (&data, &file), duckdb, &mut answers)?);
        }
        let log = file.with_extension("wal");
        Ok(StoreResult {
            name: store.name.clone(),
            bytes_encoded: filled.bytes_encoded,
            bytes_farpool: bytes_below(&data),
            bytes_duckdb: duckdb.map(|_| bytes_below(&file) + bytes_below(&log)),
            appends: filled.appends,
            starts,
        })
    }

    /// Measures all starts within a memory limit.
    fn starts(
        &self,
        store: &Store,
        memory_mib: usize,
        (data, file): (&Path, &Path),
        duckdb: Option<&Duckdb>,
        answers: &mut Answers,
    ) -> Result<StartResult> {
        let (mut connected_ms, mut selective, mut scans) = (Vec::new(), Vec::new(), Vec::new());
        let mut theirs: [Vec<Times>; 2] = Default::default();
        for run in 1..=self.definition.runs {
            text::progress(&format!("{}, {memory_mib} MiB, run {run} ", store.name));
            let queries =
                [(Some(store.selective()), &mut answers.selective), (store.scan(), &mut answers.scan)];
            for ((sql, expected), theirs) in queries.into_iter().zip(&mut theirs) {
                let (Some(sql), Some(duckdb)) = (sql, duckdb) else { continue };
                self.drop_caches(data, file)?;
                let limits = (memory_mib, self.definition.threads);
                let (took, answer) = duckdb.query(file, &sql, limits, self.folder)?;
                theirs.push(took);
                expected.check("DuckDB", &answer).context(sql)?;
            }
            let sql = store.selective();
            let (was_connected, answered, filled) =
                self.farpool(store, memory_mib, (data, file), &sql, true)?;
            connected_ms.push(was_connected);
            answers.selective.check("farpool", &answered.answer).context(sql)?;
            selective.push((answered, filled.context("nothing was said of memory")?));
            let Some(sql) = store.scan() else { continue };
            let disk_gb_s = disk_gb_s(data)?;
            let (was_connected, answered, _) = self.farpool(store, memory_mib, (data, file), &sql, false)?;
            connected_ms.push(was_connected);
            answers.scan.check("farpool", &answered.answer).context(sql)?;
            scans.push((answered, disk_gb_s));
        }
        let [duckdb_selective, duckdb_scan] = theirs.map(|times| RivalTimes::of(&times));
        Ok(StartResult {
            memory_mib,
            connected_ms: stats::median(&connected_ms),
            selective_ms: stats::median_of(&selective, |(answered, _)| answered.since_start_ms),
            selective_bytes: selective.last().map_or(0, |(answered, _)| answered.receipt.bytes_from_disk),
            filled_ms: stats::median_of(&selective, |(_, (filled_ms, _))| *filled_ms),
            filled_part: stats::median_of(&selective, |(_, (_, part))| *part),
            scan: ScanResult::of(&scans),
            duckdb_selective,
            duckdb_scan,
        })
    }

    /// Starts a node and runs a query as the first; then, if requested, waits until memory is full. Returns the time
    /// when a client was connected, the answer, and the time when memory was full with the part of the tables in it.
    fn farpool(
        &self,
        store: &Store,
        memory_mib: usize,
        (data, file): (&Path, &Path),
        sql: &str,
        fills: bool,
    ) -> Result<(f64, Answered, Option<Filled>)> {
        self.drop_caches(data, file)?;
        let served = Served::start(data, memory_mib, self.definition.threads, store.is_killed())?;
        let measured = self.runtime.block_on(async {
            let (pool, connected) = served.connect().await?;
            let answered = served.query(&pool, sql).await?;
            let filled = if fills { Some(filled(&served, &pool).await?) } else { None };
            Ok::<_, anyhow::Error>((connected, answered, filled))
        })?;
        served.end(store.is_killed())?;
        Ok(measured)
    }

    /// Drops the data from the page cache, but keeps the programs in it.
    fn drop_caches(&self, data: &Path, file: &Path) -> Result<()> {
        self.dropping.drop(&[data, file])?;
        std::io::copy(&mut std::fs::File::open(places::program()?)?, &mut std::io::sink())?;
        self.duckdb.as_ref().map_or(Ok(()), |duckdb| duckdb.warm().map(|_| ()))
    }
}

/// The time when a node had finished reading into memory, in milliseconds from its start, and the part of the tables in
/// memory by then.
type Filled = (f64, f64);

/// Waits until a node stops reading into memory.
async fn filled(served: &Served, pool: &Arc<dyn Pool>) -> Result<Filled> {
    let (begun, mut used, mut grown) = (Instant::now(), 0, Instant::now());
    let mut grown_ms = served.since_start_ms();
    while grown.elapsed() < QUIET {
        if begun.elapsed() > FILLED_WITHIN {
            bail!("memory is still being filled after {} s", FILLED_WITHIN.as_secs());
        }
        let now = pool.status().await?.memory_bytes_used;
        if now > used {
            (used, grown, grown_ms) = (now, Instant::now(), served.since_start_ms());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let tables = pool.tables().await?;
    let resident: u64 = tables.iter().filter_map(|table| table.bytes_resident).sum();
    let encoded: u64 = tables.iter().map(|table| table.bytes_encoded).sum();
    Ok((grown_ms, resident as f64 / encoded.max(1) as f64))
}

//! Measures tables that are larger than memory: loads the data of each side (farpool and its rivals) once, and runs the
//! queries within each memory limit.

use super::cgroup::Cgroup;
use super::definition::Definition;
use super::trace::TraceResult;
use super::units::{self, UnitsResult};
use crate::answers::Answer;
use crate::disk::{Dropping, bytes_below, disk_gb_s};
use crate::rival::{Rival, RivalDefinition, Statement};
use crate::suite::{Expected, Head};
use crate::tables::parquet;
use crate::tpch::data;
use crate::{places, stats, text};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Memory of the pool without a limit, in MiB.
const UNLIMITED_MIB: u64 = 12 << 10;

/// Memory of the side that only reports the locations of column chunks, in MiB: enough to describe them all.
const READER_MIB: u64 = 1 << 10;

/// Results of the suite.
#[derive(Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub scale: f64,
    pub runs: usize,
    pub threads: usize,
    /// GB/s of the disk for reads that bypass the page cache, of the data directory's own files.
    pub disk_gb_s: f64,
    /// Bytes of the files of each side: farpool's, then DuckDB's.
    pub bytes_farpool: u64,
    pub bytes_duckdb: Option<u64>,
    /// Goals of the suite; its definition explains them.
    pub bytes_goal: f64,
    pub optimum_goal: f64,
    pub reading_goal: f64,
    pub limits: Vec<LimitResult>,
    /// Scans in units of several sizes; `None` if the file system does not support reads that bypass the page cache.
    pub units: Option<UnitsResult>,
    pub notes: Vec<String>,
}

/// The results of all queries within one memory limit.
#[derive(Debug, Serialize)]
pub struct LimitResult {
    pub mib: u64,
    pub queries: Vec<QueryResult>,
    /// Farpool's reads compared with the lower bounds.
    pub trace: TraceResult,
}

/// The results of one query within a memory limit.
#[derive(Debug, Serialize)]
pub struct QueryResult {
    pub query: usize,
    /// Milliseconds with everything in memory.
    pub in_memory_ms: f64,
    pub farpool: Option<Sample>,
    pub duckdb: Option<Sample>,
}

/// The median run of one side.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    pub ms: f64,
    /// Bytes that the process read from the disk, in the last run.
    pub bytes_read: u64,
}

/// A side of the comparison.
#[derive(Clone, Copy, PartialEq)]
enum Name {
    Farpool,
    Duckdb,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let folder = data::folder(definition.scale)?;
    let kept = places::cache()?.join("larger").join(places::scale_name(definition.scale));
    std::fs::create_dir_all(&kept)?;
    let mut notes = Vec::new();
    let stores = [(Name::Farpool, kept.join("farpool")), (Name::Duckdb, kept.join("duckdb"))];
    let mut sides = Vec::new();
    for (name, place) in stores {
        match fill(name, &place, &folder, definition) {
            Ok(()) => sides.push((name, place)),
            Err(error) if name == Name::Duckdb => {
                notes.push(format!("nothing is compared with DuckDB: {error:#}"))
            }
            Err(error) => return Err(error),
        }
    }
    let mut answers = vec![Expected::default(); definition.queries.len()];
    let (_, farpool) = sides.first().context("there are no sides")?;
    let (in_memory, _) = queries(Name::Farpool, farpool, None, definition, &mut answers, &mut notes)?;
    let mut limits = Vec::new();
    for &mib in &definition.limits_mib {
        let (mut of_sides, mut trace) = (Vec::new(), TraceResult::default());
        for (name, place) in &sides {
            let (samples, traced) = queries(*name, place, Some(mib), definition, &mut answers, &mut notes)?;
            of_sides.push((*name, samples));
            if *name == Name::Farpool {
                trace = traced;
            }
        }
        let of = |name: Name, at: usize| {
            of_sides.iter().find(|(side, _)| *side == name).and_then(|(_, samples)| samples[at])
        };
        let queries = definition.queries.iter().enumerate().map(|(at, query)| QueryResult {
            query: *query,
            in_memory_ms: in_memory[at].map_or(f64::NAN, |sample| sample.ms),
            farpool: of(Name::Farpool, at),
            duckdb: of(Name::Duckdb, at),
        });
        limits.push(LimitResult { mib, queries: queries.collect(), trace });
    }
    let reader = start(Name::Farpool, farpool, None, READER_MIB, definition.threads)?;
    let units = units::measure(&definition.units, reader, farpool, &mut notes)?;
    let bytes =
        |name: Name| sides.iter().find(|(side, _)| *side == name).map(|(_, place)| bytes_below(place));
    Ok(Results {
        head: Head::of("larger"),
        scale: definition.scale,
        runs: definition.runs,
        threads: definition.threads,
        disk_gb_s: disk_gb_s(farpool)?,
        bytes_farpool: bytes(Name::Farpool).unwrap_or(0),
        bytes_duckdb: bytes(Name::Duckdb),
        bytes_goal: definition.bytes_of_duckdb,
        optimum_goal: definition.bytes_of_optimum,
        reading_goal: definition.reading,
        limits,
        units,
        notes,
    })
}

/// Starts the process of a side within a memory limit in MiB.
fn start(name: Name, place: &Path, cgroup: Option<&Cgroup>, mib: u64, threads: usize) -> Result<Rival> {
    let (program, arguments, environment): (OsString, Vec<OsString>, Vec<(&str, OsString)>) = match name {
        Name::Farpool => {
            let (pool, work) = ((mib / 2).to_string(), (mib / 4).to_string());
            let data: OsString = place.into();
            let arguments = ["driver".into(), "--data".into(), data, "--pool-mib".into(), pool.into()];
            let mut arguments = arguments.to_vec();
            arguments.extend(["--work-mib".into(), OsString::from(work)]);
            (std::env::current_exe()?.into(), arguments, Vec::new())
        }
        Name::Duckdb => {
            let (program, driver) = RivalDefinition::named("duckdb")?.command()?;
            let limit = format!("{}MiB", mib / 4 * 3);
            let environment = vec![("DUCKDB_FILE", place.into()), ("DUCKDB_MEMORY", OsString::from(limit))];
            (
                program.into(),
                std::iter::once("-B".into()).chain(driver.map(Into::into)).collect(),
                environment,
            )
        }
    };
    let (program, mut before) = match cgroup {
        Some(cgroup) => cgroup.wrap(&program),
        None => (program, Vec::new()),
    };
    before.extend(arguments);
    let mut command = Command::new(program);
    command.args(before).envs(environment);
    Rival::run_by(RivalDefinition::named("duckdb")?, command, threads)
}

/// Loads the tables into the files of a side, unless an earlier run has done so.
fn fill(name: Name, place: &PathBuf, folder: &Path, definition: &Definition) -> Result<()> {
    let complete = place.with_extension("complete");
    if complete.exists() {
        return Ok(());
    }
    text::progress("loading ");
    if place.is_dir() {
        std::fs::remove_dir_all(place)?;
    } else if place.exists() {
        std::fs::remove_file(place)?;
    }
    let mut side = start(name, place, None, UNLIMITED_MIB, definition.threads)?;
    parquet::load_into(&mut side, folder, &data::TABLES)?;
    side.end()?;
    Ok(std::fs::write(complete, "")?)
}

/// Runs the queries on one side; a query that fails on it has no sample. Farpool's runs also have a trace.
fn queries(
    name: Name,
    place: &Path,
    mib: Option<u64>,
    definition: &Definition,
    answers: &mut [Expected<Answer>],
    notes: &mut Vec<String>,
) -> Result<(Vec<Option<Sample>>, TraceResult)> {
    let label = if name == Name::Farpool { "farpool" } else { "duckdb" };
    let cgroup = match mib.map(|mib| Cgroup::new(label, mib)).transpose() {
        Err(error) if definition.is_quick => {
            notes.push(format!("{label} is not limited: {error:#}"));
            None
        }
        cgroup => cgroup?,
    };
    // Pages cached for earlier processes would be read for free, and are not counted in the cgroup.
    let drop_cached = || Dropping::find(place.parent().unwrap_or(place), definition.is_quick)?.drop(&[place]);
    match if mib.is_some() { drop_cached() } else { Ok(()) } {
        Err(error) if definition.is_quick => {
            notes.push(format!("{label} found its files in the system's cache: {error:#}"))
        }
        dropped => dropped?,
    }
    let open = || start(name, place, cgroup.as_ref(), mib.unwrap_or(UNLIMITED_MIB), definition.threads);
    let mut side = open()?;
    let (mut samples, mut trace) = (Vec::new(), TraceResult::default());
    for (&number, expected) in definition.queries.iter().zip(answers) {
        let within = mib.map_or(String::new(), |mib| format!(" within {mib} MiB"));
        text::progress(&format!("{label}{within}, q{number:02} "));
        let sql = places::query("tpch", number)?;
        match query(&mut side, &sql, definition.runs) {
            Ok((sample, answer)) => {
                expected.check_ordered(label, &answer, &sql)?;
                samples.push(Some(sample));
            }
            Err(error) => {
                notes.push(format!("{label}{within} without a time in q{number:02}: {error:#}"));
                samples.push(None);
                // A process that was killed (because its memory did not suffice) has no trace any more.
                let _ = add_trace(&mut trace, name, &mut side);
                drop(side);
                side = open()?;
            }
        }
    }
    text::progress("");
    add_trace(&mut trace, name, &mut side)?;
    side.end()?;
    Ok((samples, trace))
}

/// Adds the trace of the column chunks that a farpool process has used, from its start to now.
fn add_trace(trace: &mut TraceResult, name: Name, side: &mut Rival) -> Result<()> {
    if name == Name::Farpool {
        let bytes_of_process = bytes_read_by(side.process_id())?;
        trace.add(&TraceResult::of(side, bytes_of_process)?);
    }
    Ok(())
}

fn query(side: &mut Rival, sql: &str, runs: usize) -> Result<(Sample, Answer)> {
    let statement = Statement { text: sql, table: "", columns: &[], clients: 1 };
    let (mut times, mut bytes_read) = (Vec::new(), 0);
    let (_, answer) = side.run_for_answer(&statement)?;
    for _ in 0..runs {
        let before = bytes_read_by(side.process_id())?;
        times.push(side.run_for_answer(&statement)?.0);
        bytes_read = bytes_read_by(side.process_id())? - before;
    }
    Ok((Sample { ms: stats::median(&times), bytes_read }, answer))
}

/// Returns the bytes that a process has read from the disk.
fn bytes_read_by(process: u32) -> Result<u64> {
    let file = format!("/proc/{process}/io");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).ok_or_else(|| anyhow!("{file} does not tell bytes read"))
}

//! Scans of keys by SQL: with eight conditions, for a substring, and concurrently with point operations.

use super::client::Client;
use super::compressed;
use super::definition::{Case, Definition};
use super::generator::Generator;
use super::keys::Data;
use super::load::Job;
use super::points::{Fixture, Stage};
use super::protocol::command;
use super::results::{BesideResult, CompressedResult, ScanResult, SideResult, SubstringResult};
use super::server::{ALL, Durability, Server, Side};
use crate::limits::Limits;
use crate::random::Random;
use crate::stats::median;
use crate::{pools, suite, text};
use anyhow::{Context, Result, anyhow, bail};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use farpool::Pool;
use memchr::memmem::Finder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Number of threads of the node, and of the programs that its scans are compared with.
pub const THREADS: usize = 2;

/// Number of rows in a command that sets several, and number of these commands that wait for their replies.
const ROWS: u64 = 16;
const COMMANDS: u64 = 64;

/// Eight integers of 4 bytes, and text that fills up the size.
const SCHEMA: &str = "id u64, c0 u32, c1 u32, c2 u32, c3 u32, c4 u32, c5 u32, c6 u32, c7 u32, pad utf8";
const CONDITION_BYTES: usize = 8 * 4;

/// Number of classes in the marks of values, and in `c0`.
pub const CLASSES: u64 = 100;

/// A client of farpool's own protocol.
pub struct Sql {
    runtime: Runtime,
    pool: Arc<dyn Pool>,
}

impl Sql {
    fn connect(url: &str) -> Result<Sql> {
        let runtime = suite::runtime(1)?;
        let pool = runtime.block_on(farpool::connect(url, None))?;
        Ok(Sql { runtime, pool })
    }

    /// Runs a statement; returns its milliseconds, its rows, and the number in its first row.
    fn run(&self, sql: &str) -> Result<(f64, u64, u64)> {
        let start = Instant::now();
        self.runtime.block_on(async {
            let session = pools::session(self.pool.clone(), true, THREADS).await?;
            let pools::Ran { batches, .. } = pools::run(&session, sql).await?;
            let ms = pools::milliseconds(start);
            let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
            let first = batches.iter().find(|batch| batch.num_rows() > 0);
            let count = first.and_then(|batch| batch.column(0).as_primitive_opt::<Int64Type>());
            Ok((ms, rows, count.map_or(0, |count| count.value(0) as u64)))
        })
    }
}

/// Measures scans with eight conditions, for a substring, and of compressed values.
pub fn measure(
    definition: &Definition,
    limits: &Limits,
    generator: &mut Generator,
) -> Result<(Vec<ScanResult>, Vec<SubstringResult>, Vec<CompressedResult>)> {
    let mut fixture = Fixture::new(Server::start(Side::Farpool, ALL, THREADS, Durability::None)?);
    let sql = Sql::connect(&fixture.server.pool)?;
    let (mut scans, mut substrings) = (Vec::new(), Vec::new());
    for value_bytes in &definition.scan.value_bytes {
        text::progress(&format!("scans of {value_bytes} B "));
        scans.extend(conditions(definition, limits, &fixture.server, &sql, *value_bytes)?);
        substrings.push(substring(definition, &mut fixture, generator, &sql, *value_bytes)?);
    }
    let compressed = compressed::measure(definition, &fixture.server, &sql)?;
    Ok((scans, substrings, compressed))
}

/// Returns the number of values that make up `mib` MiB.
pub fn rows_of(mib: usize, value_bytes: usize) -> u64 {
    // A multiple of the number of classes, so that all classes have the same number of keys.
    ((mib << 20) / value_bytes) as u64 / CLASSES * CLASSES
}

fn conditions(
    definition: &Definition,
    limits: &Limits,
    server: &Server,
    sql: &Sql,
    value_bytes: usize,
) -> Result<Vec<ScanResult>> {
    let rows = rows_of(definition.scan.mib, value_bytes);
    fill_rows(server, rows, value_bytes)?;
    let gigabytes = (rows as usize * value_bytes) as f64 / 1e9;
    let mut results = Vec::new();
    for percent in &definition.scan.percents {
        let (passed, of) = (
            rows * percent / CLASSES,
            format!(
                "FROM carts WHERE c0 < {percent} AND c1 < 1000 AND c2 <> 1000 AND c3 <= 999 AND c4 < 1001 AND c5 <> 1001 \
             AND c6 < 2000 AND c7 <> 5000"
            ),
        );
        for fetches in [false, true] {
            let statement = format!("SELECT {} {of}", if fetches { "*" } else { "COUNT(*)" });
            let ms = times(definition, sql, &statement, fetches, passed)?;
            let gb_s = gigabytes / (ms / 1e3);
            let of_bandwidth = gb_s / limits.memory_read_2;
            results.push(ScanResult {
                value_bytes,
                percent: *percent,
                fetches,
                rows,
                ms,
                gb_s,
                of_bandwidth,
            });
        }
    }
    // A space with many keys cannot be dropped.
    server.clear()?;
    Client::connect(server.address)?.ask(&["FP.SPACE", "DROP", "carts"])?;
    Ok(results)
}

/// Returns the median of the runs of a statement, after a warm-up run; each must return the correct rows.
pub fn times(definition: &Definition, sql: &Sql, statement: &str, fetches: bool, passed: u64) -> Result<f64> {
    let mut times = Vec::new();
    for run in 0..=definition.scan.runs {
        let (ms, rows, count) = sql.run(statement).with_context(|| statement.to_string())?;
        let found = if fetches { rows } else { count };
        if found != passed {
            bail!("{statement}: {found} rows in place of {passed}");
        }
        if run > 0 {
            times.push(ms);
        }
    }
    Ok(median(&times))
}

fn fill_rows(server: &Server, rows: u64, value_bytes: usize) -> Result<()> {
    let mut client = Client::connect(server.address)?;
    client.ask(&["FP.SPACE", "CREATE", "carts", SCHEMA])?;
    let (mut random, pad) = (Random(9), "p".repeat(value_bytes - CONDITION_BYTES));
    for first in (0..rows).step_by((ROWS * COMMANDS) as usize) {
        let (mut bytes, mut commands) = (Vec::new(), 0);
        for start in (first..rows.min(first + ROWS * COMMANDS)).step_by(ROWS as usize) {
            let mut arguments = vec!["FP.ROWSET".to_string(), "carts".to_string()];
            for id in start..rows.min(start + ROWS) {
                arguments.extend([id.to_string(), (id % CLASSES).to_string()]);
                arguments.extend((1..8).map(|_| (random.next() % 1000).to_string()));
                arguments.push(pad.clone());
            }
            let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
            command(&arguments, &mut bytes);
            commands += 1;
        }
        client.send(&bytes)?;
        (0..commands).try_for_each(|_| client.reply().map(drop))?;
    }
    Ok(())
}

fn substring(
    definition: &Definition,
    fixture: &mut Fixture,
    generator: &mut Generator,
    sql: &Sql,
    value_bytes: usize,
) -> Result<SubstringResult> {
    let rows = rows_of(definition.scan.mib, value_bytes);
    fixture.fill(generator, rows, value_bytes)?;
    let statement = "SELECT COUNT(*) FROM \"default\" WHERE value LIKE '%@07@%'";
    let ms = times(definition, sql, statement, false, rows / CLASSES)?;
    let bytes = rows as usize * value_bytes;
    let gb_s = bytes as f64 / 1e9 / (ms / 1e3);
    fixture.server.clear()?;
    Ok(SubstringResult { value_bytes, percent: 1, gb_s, memmem_gb_s: memmem(definition, rows, value_bytes)? })
}

/// Returns the GB/s of a search of the same bytes in one contiguous buffer, on as many threads.
fn memmem(definition: &Definition, rows: u64, value_bytes: usize) -> Result<f64> {
    let (data, mut all, mut key) = (Data::new(value_bytes, 1)?, Vec::new(), Vec::new());
    for number in 0..rows {
        key.clear();
        data.key(number, &mut key);
        data.value(number, &key, number as u32, &mut all);
    }
    let half = all.len() / THREADS / value_bytes * value_bytes;
    let finder = Finder::new(b"@07@");
    let mut times = Vec::new();
    for _ in 0..definition.scan.runs {
        let start = Instant::now();
        let found: usize = std::thread::scope(|scope| {
            let (first, second) = all.split_at(half);
            let [first, second] = [first, second].map(|part| scope.spawn(|| finder.find_iter(part).count()));
            first.join().unwrap_or(0) + second.join().unwrap_or(0)
        });
        times.push(start.elapsed().as_secs_f64());
        if found as u64 != rows / CLASSES {
            bail!("memmem finds {found} in place of {}", rows / CLASSES);
        }
    }
    Ok(all.len() as f64 / 1e9 / median(&times))
}

/// Measures point operations in an open loop, alone and with concurrent scans, in turns; also scans alone.
pub fn beside(definition: &Definition, stage: &mut Stage) -> Result<BesideResult> {
    let beside = &definition.beside;
    let case = Case { depth: 1, ..definition.case("beside", &beside.mix)? };
    let (fixture, generator) = stage.farpool()?;
    fixture.fill(generator, definition.keys, case.value_bytes)?;
    let (warm_up_s, seconds) = (definition.warm_up_s, beside.seconds);
    let most =
        fixture.run(generator, &Job { warm_up_s, seconds: definition.seconds, ..fixture.job(&case) })?;
    let rate = most.rate() * beside.part;
    let scans = Scans { sql: Sql::connect(&fixture.server.pool)?, definition };
    let job = Job { rate: Some(rate), warm_up_s, seconds, ..fixture.job(&case) };
    let (mut alone, mut both, mut scans_alone, mut scans_beside) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in 0..definition.runs {
        text::progress(&format!("points beside scans: {run} "));
        alone.push(generator.run(&job)?);
        scans_alone.push(scans.rate_while(|| {
            std::thread::sleep(Duration::from_secs_f64(seconds));
            Ok(())
        })?);
        scans_beside.push(scans.rate_while(|| {
            both.push(generator.run(&job)?);
            Ok(())
        })?);
    }
    Ok(BesideResult {
        rate,
        alone: SideResult::of("farpool", &alone),
        beside: SideResult::of("farpool", &both),
        scans_alone: median(&scans_alone),
        scans_beside: median(&scans_beside),
    })
}

/// Repeated scans, one after the other.
struct Scans<'a> {
    sql: Sql,
    definition: &'a Definition,
}

impl Scans<'_> {
    /// Returns the scans per second while `work` runs.
    fn rate_while(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let scanning = scope.spawn(|| self.until(&is_over));
            let done = work();
            is_over.store(true, Ordering::Relaxed);
            let rate = scanning.join().map_err(|_| anyhow!("the scans panicked"))?;
            done?;
            rate
        })
    }

    fn until(&self, is_over: &AtomicBool) -> Result<f64> {
        let (start, mut scans) = (Instant::now(), 0.0);
        while !is_over.load(Ordering::Relaxed) || scans == 0.0 {
            let (_, _, count) = self.sql.run(&self.definition.beside.sql)?;
            if count != self.definition.keys / CLASSES {
                bail!(
                    "a scan beside updates finds {count} keys in place of {}",
                    self.definition.keys / CLASSES
                );
            }
            scans += 1.0;
        }
        Ok(scans / start.elapsed().as_secs_f64())
    }
}

//! SQL scans of the values of keys: with eight conditions, for a substring, and concurrently with point operations.

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
use crate::suite::{self, Samples, turns, turns_after_warm_up};
use crate::{pools, text, threads};
use anyhow::{Context, Result, anyhow, bail};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use farpool::Pool;
use memchr::memmem::Finder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Number of worker threads of the node, and of threads of the loops that its scans are compared with.
pub const THREADS: usize = 2;

/// Number of rows per `FP.ROWSET` command, and number of these commands that are sent before their replies are read.
const ROWS: u64 = 16;
const COMMANDS: u64 = 64;

/// Schema of the scanned rows, and the bytes of its eight integers of 4 bytes, `c0` to `c7`; the string `pad` fills a
/// row up to the wanted size.
const SCHEMA: &str = "id u64, c0 u32, c1 u32, c2 u32, c3 u32, c4 u32, c5 u32, c6 u32, c7 u32, pad utf8";
const CONDITION_BYTES: usize = 8 * 4;

/// Number of classes of values. A value has its class in its mark (`@07@`), and a row in `c0`.
pub const CLASSES: u64 = 100;

/// A client of farpool's native protocol, for SQL.
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

    /// Runs a statement in a new session. Returns its milliseconds, its number of rows, and the integer in the first
    /// column of the first row (0 if there is none).
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

/// Returns the number of values of `value_bytes` bytes in `mib` MiB, rounded down so that all classes have the same
/// number of values.
pub fn rows_of(mib: usize, value_bytes: usize) -> u64 {
    ((mib << 20) / value_bytes) as u64 / CLASSES * CLASSES
}

/// Measures scans with eight conditions that count or fetch the rows that pass, for each percentage of these.
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
            let ms = median_ms(definition, sql, &statement, fetches, passed)?;
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
    // Removes the keys first, because a keyspace with many keys cannot be dropped.
    server.clear()?;
    Client::connect(server.address)?.ask(&["FP.SPACE", "DROP", "carts"])?;
    Ok(results)
}

/// Returns the median milliseconds of a statement, after a warm-up run.
///
/// # Errors
/// Fails if a run does not find `passed` rows: in its result if it `fetches` them, else in the count that it returns.
pub fn median_ms(
    definition: &Definition,
    sql: &Sql,
    statement: &str,
    fetches: bool,
    passed: u64,
) -> Result<f64> {
    let mut samples = Samples::new(1);
    for turn in turns_after_warm_up(1, definition.scan.runs) {
        let (ms, rows, count) = sql.run(statement).with_context(|| statement.to_string())?;
        let found = if fetches { rows } else { count };
        if found != passed {
            bail!("{statement}: {found} rows in place of {passed}");
        }
        samples.add(turn, ms);
    }
    Ok(samples.median(0, |ms| *ms))
}

/// Returns the GB/s at which `work` processes `bytes` bytes, in the median of `runs` runs.
pub fn gb_s(runs: usize, bytes: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut samples = Samples::new(1);
    for turn in turns(1, runs) {
        let start = Instant::now();
        work()?;
        samples.add(turn, start.elapsed().as_secs_f64());
    }
    Ok(bytes as f64 / 1e9 / samples.median(0, |seconds| *seconds))
}

/// Creates the keyspace `carts` with [`SCHEMA`], and sets `rows` rows of `value_bytes` bytes.
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
        client.pipeline(&bytes, commands)?;
    }
    Ok(())
}

/// Measures a scan of plain values for a substring that one class has.
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
    let ms = median_ms(definition, sql, statement, false, rows / CLASSES)?;
    let bytes = rows as usize * value_bytes;
    let gb_s = bytes as f64 / 1e9 / (ms / 1e3);
    fixture.server.clear()?;
    Ok(SubstringResult { value_bytes, percent: 1, gb_s, memmem_gb_s: memmem(definition, rows, value_bytes)? })
}

/// Returns the GB/s at which `memmem` alone searches the same values in one contiguous buffer, on [`THREADS`] threads.
fn memmem(definition: &Definition, rows: u64, value_bytes: usize) -> Result<f64> {
    let (data, mut all, mut key) = (Data::new(value_bytes, 1)?, Vec::new(), Vec::new());
    for number in 0..rows {
        key.clear();
        data.key(number, &mut key);
        data.value(number, &key, number as u32, &mut all);
    }
    let finder = Finder::new(b"@07@");
    let search = |thread: usize| {
        // Parts begin and end between two values.
        let place = |thread: usize| rows as usize * thread / THREADS * value_bytes;
        Ok(finder.find_iter(&all[place(thread)..place(thread + 1)]).count() as u64)
    };
    gb_s(definition.scan.runs, all.len(), || {
        let found: u64 = threads::on_each(THREADS, search)?.into_iter().sum();
        if found != rows / CLASSES {
            bail!("memmem finds {found} in place of {}", rows / CLASSES);
        }
        Ok(())
    })
}

/// Measures point operations in an open loop and scans of the same keys, each alone and both together, in turns.
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
    // Side 0: points and then scans, each alone. Side 1: both together.
    let (mut points, mut rates) = (Samples::new(2), Samples::new(2));
    for turn in turns(2, definition.runs) {
        text::progress(&format!("points beside scans: {} ", turn.round));
        let rate = if turn.side == 0 {
            points.add(turn, generator.run(&job)?);
            scans.rate_while(|| {
                std::thread::sleep(Duration::from_secs_f64(seconds));
                Ok(())
            })
        } else {
            scans.rate_while(|| {
                points.add(turn, generator.run(&job)?);
                Ok(())
            })
        };
        rates.add(turn, rate?);
    }
    Ok(BesideResult {
        rate,
        alone: SideResult::of("farpool", points.of(0)),
        beside: SideResult::of("farpool", points.of(1)),
        scans_alone: rates.median(0, |rate| *rate),
        scans_beside: rates.median(1, |rate| *rate),
    })
}

/// The statement that scans all keys, repeated on one connection.
struct Scans<'a> {
    sql: Sql,
    definition: &'a Definition,
}

impl Scans<'_> {
    /// Repeats the scan until `work` has returned. Returns the scans per second.
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

    /// Repeats the scan until `is_over`, at least once. Returns the scans per second.
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

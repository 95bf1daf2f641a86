//! Throughput of updates that are durable before they are acknowledged, and times of starts over durable keys.

use super::definition::{Case, Definition};
use super::generator::Generator;
use super::load::Job;
use super::points::{Fixture, in_turns};
use super::results::{DurableResult, RecoveryResult, SyncResult};
use super::server::{Durability, GENERATORS, SERVERS, Server, Side};
use crate::stats::percentile;
use crate::{places, text};
use anyhow::{Context, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Pause after the last change before a server is killed. Reason: with [`Durability::EverySecond`] changes are durable
/// after about a second; the rest is a margin.
const ON_DISK: Duration = Duration::from_secs(3);

/// A folder for the data of each side, in the cache of the benchmarks; both are removed when this value is dropped.
struct Folders(TempDir);

impl Folders {
    fn new() -> Result<Folders> {
        let cache = places::cache()?;
        std::fs::create_dir_all(&cache)?;
        let folders = Folders(TempDir::with_prefix_in("caribou-", cache)?);
        for side in [Side::Farpool, Side::Redis] {
            std::fs::create_dir(folders.of(side))?;
        }
        Ok(folders)
    }

    fn of(&self, side: Side) -> PathBuf {
        self.0.path().join(side.name())
    }
}

/// Number of appends whose sync is timed, and bytes per append: about the size of a batch of updates.
const APPENDS: usize = 400;
const APPEND_BYTES: usize = 8 << 10;

/// Measures updates with [`Durability::Always`] on these sides in turns, and the time of a sync on the same disk.
pub fn always(definition: &Definition, sides: &[Side]) -> Result<(Vec<DurableResult>, Option<SyncResult>)> {
    let folders = Folders::new()?;
    let sync = syncs(folders.0.path())?;
    let start = |side: &Side| {
        Server::start(*side, SERVERS, 1, Durability::Always(&folders.of(*side))).map(Fixture::new)
    };
    let mut fixtures = sides.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut generator = Generator::start(GENERATORS)?;
    let mut results = Vec::new();
    for durable in &definition.durable {
        text::progress(&format!("always: {} connections ", durable.connections));
        let case = definition.case("always", "0/100")?;
        let case = Case { connections: durable.connections, depth: durable.depth, ..case };
        let (warm_up_s, seconds) = (definition.warm_up_s, definition.seconds);
        let sides = in_turns(&mut fixtures, definition.runs, |fixture, _| {
            fixture.fill(&mut generator, definition.keys / 10, case.value_bytes)?;
            let job = Job { warm_up_s, seconds, ..fixture.job(&case) };
            fixture.run(&mut generator, &job)
        })?;
        let (connections, depth, at_least) = (durable.connections, durable.depth, durable.at_least);
        results.push(DurableResult { connections, depth, at_least, sides });
    }
    Ok((results, Some(sync)))
}

/// Appends to a file, and times the `fdatasync` after each append.
fn syncs(folder: &Path) -> Result<SyncResult> {
    let mut file = tempfile::tempfile_in(folder)?;
    let piece = vec![7; APPEND_BYTES];
    let mut times = Vec::new();
    for _ in 0..APPENDS {
        file.write_all(&piece)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let at = |part: f64| percentile(&times, part);
    Ok(SyncResult { bytes: APPEND_BYTES, p50_us: at(0.5), p99_us: at(0.99) })
}

/// Measures how long each side takes to start over its keys, after a clean stop and after a kill. The files are in the
/// system's page cache, because the server has just written them.
pub fn recovery(definition: &Definition, sides: &[Side]) -> Result<Vec<RecoveryResult>> {
    let mut generator = Generator::start(GENERATORS)?;
    let mut results = Vec::new();
    for is_killed in [false, true] {
        let folders = Folders::new()?;
        for side in sides {
            text::progress(&format!("recovery: {} ", side.name()));
            let result = recover(definition, *side, &folders.of(*side), is_killed, &mut generator);
            results.push(result.with_context(|| side.name())?);
        }
    }
    Ok(results)
}

/// Fills a server, stops or kills it, starts it again, and checks that all keys are there.
fn recover(
    definition: &Definition,
    side: Side,
    folder: &Path,
    is_killed: bool,
    generator: &mut Generator,
) -> Result<RecoveryResult> {
    let recovery = &definition.recovery;
    let keys = ((recovery.mib << 20) / recovery.value_bytes) as u64;
    let start = || Server::start(side, SERVERS, 1, Durability::EverySecond(folder)).map(Fixture::new);
    let mut fixture = start()?;
    fixture.fill(generator, keys, recovery.value_bytes)?;
    if is_killed {
        std::thread::sleep(ON_DISK);
        drop(fixture);
    } else {
        fixture.server.stop()?;
    }
    let mut fixture = start()?;
    let seconds = fixture.server.start_s;
    fixture.all_are_there(generator, definition, keys, recovery.value_bytes)?;
    let (name, bytes) = (side.name().to_string(), keys * recovery.value_bytes as u64);
    Ok(RecoveryResult { name, is_killed, bytes, seconds })
}

//! The suite `caribou`: keys and values over the Redis protocol compared with Redis and memcached, after the evaluation
//! of Caribou (István, Sidler, Alonso, PVLDB 10(11), 2017): throughput, response times, memory, scans, scans concurrent
//! with point operations, durability.

mod client;
mod compressed;
mod definition;
mod durable;
mod generator;
mod goals;
mod histogram;
mod keys;
mod library;
mod load;
mod memory;
mod points;
mod protocol;
mod report;
mod results;
mod scans;
mod server;

pub use generator::serve;

use crate::suite::{Head, RivalResult};
use crate::{limits, suite, text};
use anyhow::{Result, bail};
use clap::ValueEnum;
use definition::{Cores, Definition};
use generator::Generator;
use points::Stage;
use results::Results;
use server::{GENERATORS, Side};

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_enum)]
    parts: Option<Vec<Part>>,
    /// Only series whose names have this in them.
    #[arg(long)]
    series: Option<String>,
}

/// A part of the suite, which `--parts` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput in a closed loop, in series of cases.
    Series,
    /// Response times of one client.
    Response,
    /// Latency in an open loop.
    Load,
    /// Bytes of memory for each entry.
    Memory,
    /// Reads with conditions.
    Conditional,
    /// Scans with conditions, for a substring, and of compressed values.
    Scans,
    /// Point operations with concurrent scans.
    Beside,
    /// Updates that are on disk before they are acknowledged.
    Always,
    /// Starts of a server over keys that are on disk.
    Recovery,
    /// Hot keys inside the library.
    Library,
    /// Results of redis-benchmark.
    Benchmark,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let definition = Definition::read(&options.common)?;
    server::allow_many_files()?;
    let parts = options.parts.as_deref().unwrap_or(Part::value_variants());
    let mut suite = Suite::new(&definition)?;
    for part in parts {
        suite.run(*part, options.series.as_deref());
    }
    text::progress("");
    let Suite { mut results, failed, .. } = suite;
    results.load_average.push(load_average());
    results.goals = goals::of(&results, &definition);
    let name = suite::name_of_parts("caribou", options.parts.as_deref());
    options.common.report(&results.head.date, &name, &results, &report::text(&results))?;
    if failed > 0 {
        bail!("{failed} parts failed: see the notes");
    }
    Ok(())
}

/// A run of the suite in progress.
struct Suite<'a> {
    definition: &'a Definition,
    /// The servers that are installed.
    sides: Vec<Side>,
    results: Results,
    /// Number of parts that failed.
    failed: usize,
}

impl Suite<'_> {
    /// Finds the installed servers and measures the limits of the machine.
    ///
    /// # Errors
    /// Fails if the program `farpool` is not built.
    fn new(definition: &Definition) -> Result<Suite<'_>> {
        let load_average = vec![load_average()];
        let all = [Side::Farpool, Side::Redis, Side::Memcached].map(|side| (side, side.version()));
        Side::Farpool.version()?;
        let named =
            |(side, version): &(Side, Result<String>)| RivalResult::of(side.name(), version, Clone::clone);
        let results = Results {
            head: Head::of("caribou"),
            limits: limits::measure()?,
            load_average,
            runs: definition.runs,
            seconds: definition.seconds,
            keys: definition.keys,
            sides: all.iter().map(named).collect(),
            recovery_at_least: definition.recovery.at_least,
            ..Results::default()
        };
        let sides = all.into_iter().filter(|(_, version)| version.is_ok()).map(|(side, _)| side).collect();
        Ok(Suite { definition, sides, results, failed: 0 })
    }

    /// Runs a part. A failure becomes a note, so that the other parts still run.
    fn run(&mut self, part: Part, series: Option<&str>) {
        if let Err(error) = self.measure(part, series) {
            let name = part.to_possible_value().map_or(String::new(), |value| value.get_name().to_string());
            self.results.notes.push(format!("{name} failed: {error:#}"));
            self.failed += 1;
        }
    }

    /// Runs a part and stores its results. `series` selects series whose names contain it.
    fn measure(&mut self, part: Part, series: Option<&str>) -> Result<()> {
        let (definition, results) = (self.definition, &mut self.results);
        let of_resp: Vec<Side> = self.sides.iter().copied().filter(|side| *side != Side::Memcached).collect();
        let stage = |sides: &[Side]| Stage::start(sides, Cores::Own);
        match part {
            Part::Series => {
                let is_wanted = |name: &str| series.is_none_or(|part| name.contains(part));
                results.cases = points::series(definition, &self.sides, &is_wanted)?;
                results.notes.extend(refusals(&results.cases));
            }
            Part::Response => results.response = points::response(definition, &mut stage(&self.sides)?)?,
            Part::Load => results.load = points::load(definition, &mut stage(&self.sides)?)?,
            Part::Memory => results.memory = memory::measure(definition, &self.sides)?,
            Part::Conditional => {
                let mut stage = stage(&[Side::Farpool])?;
                if stage.farpool()?.0.server.knows("fp.cget")? {
                    results.conditional = points::conditional(definition, &mut stage)?;
                } else {
                    results.notes.push("conditional reads: this farpool has no FP.CGET".to_string());
                }
            }
            Part::Scans => {
                let mut generator = Generator::start(GENERATORS)?;
                (results.scans, results.substrings, results.compressed) =
                    scans::measure(definition, &results.limits, &mut generator)?;
            }
            Part::Beside => results.beside = Some(scans::beside(definition, &mut stage(&[Side::Farpool])?)?),
            Part::Always | Part::Recovery if !server::has_durable_keys()? => {
                let name = if part == Part::Always { "always" } else { "recovery" };
                results.notes.push(format!("{name}: this farpool keeps keys in memory only (no --fsync)"));
            }
            Part::Always => {
                (results.durable, results.sync) = durable::always(definition, &of_resp)?;
            }
            Part::Recovery => results.recovery = durable::recovery(definition, &of_resp)?,
            Part::Library => results.library = Some(library::measure(definition)?),
            Part::Benchmark if of_resp.len() < 2 => {}
            Part::Benchmark => {
                results.second_opinion = points::second_opinion(definition, &stage(&of_resp)?)?
            }
        }
        Ok(())
    }
}

/// Returns a note for each case without a result, because the server refused connections.
fn refusals(cases: &[results::CaseResult]) -> Vec<String> {
    let all = cases.iter().flat_map(|result| result.sides.iter().map(move |side| (&result.case, side)));
    let refused = all.filter_map(|(case, side)| {
        let why = side.refused.as_ref()?;
        Some(format!("{}, {} connections, {}: {why}", case.series, case.connections, side.name))
    });
    refused.collect()
}

/// Returns the average number of runnable processes in the last minute; NaN if Linux does not report it.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(f64::NAN)
}

//! Point operations (reads and writes of single keys): throughput in a closed loop, latency in an open loop, and for
//! comparison the results of `redis-benchmark`.

use super::definition::{Case, Cores, Definition};
use super::generator::Generator;
use super::keys::Skew;
use super::load::{Job, Mix, Outcome};
use super::results::{CaseResult, ConditionalResult, LoadResult, SecondOpinion, SideResult};
use super::server::{ALL, Durability, GENERATORS, SERVERS, Server, Side, on_processors};
use crate::suite::{Samples, turns};
use crate::text;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Number of connections and pipeline depth for loading keys, and the time limit in seconds.
const FILL: (usize, usize) = (16, 64);
const FILL_S: f64 = 120.0;

/// Maximum number of requests per test of `redis-benchmark`, for each command of a pipeline.
const SECOND_OPINION_REQUESTS: u64 = 30_000;

/// A server, and what is known of its keys.
pub struct Fixture {
    pub server: Server,
    /// The keys of the server; `None` if they are unknown.
    filled: Option<Filled>,
}

/// The keys of a server: the first `keys` ones, with values of `value_bytes` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Filled {
    keys: u64,
    value_bytes: usize,
}

/// Running servers and the load generator.
pub struct Stage {
    pub servers: Vec<Fixture>,
    pub generator: Generator,
    /// Number of threads of the generator.
    threads: usize,
}

impl Stage {
    /// Starts servers and the generator on the processors that `cores` says.
    pub fn start(sides: &[Side], cores: Cores) -> Result<Stage> {
        let (of_servers, of_generator, threads) = match cores {
            Cores::Own => (SERVERS, GENERATORS, 1),
            Cores::Both => (ALL, ALL, 2),
        };
        let start =
            |side: &Side| Server::start(*side, of_servers, threads, Durability::None).map(Fixture::new);
        Ok(Stage {
            servers: sides.iter().map(start).collect::<Result<_>>()?,
            generator: Generator::start(of_generator)?,
            threads,
        })
    }

    /// Runs a case on all servers in turns; a run takes `seconds` seconds.
    pub fn case(&mut self, definition: &Definition, case: &Case, seconds: f64) -> Result<CaseResult> {
        let threads = self.threads.min(case.connections);
        let warm_up_s = if case.parts.delete > 0 { 0.0 } else { definition.warm_up_s };
        let sides = in_turns(&mut self.servers, definition.runs, |fixture, round| {
            // Keys are loaded again if a run has deleted or may have lost some.
            if round == 0 || case.parts.delete > 0 || fixture.filled.is_none() {
                fixture.fill(&mut self.generator, definition.keys, case.value_bytes)?;
            }
            let job = Job { threads, warm_up_s, seconds, ..fixture.job(case) };
            fixture.run(&mut self.generator, &job)
        })?;
        Ok(CaseResult { case: case.clone(), sides })
    }

    /// Returns farpool's server and the generator.
    ///
    /// # Errors
    /// Fails if farpool is not among the servers.
    pub fn farpool(&mut self) -> Result<(&mut Fixture, &mut Generator)> {
        let farpool = self.servers.iter_mut().find(|fixture| fixture.server.side == Side::Farpool);
        Ok((farpool.context("farpool does not run")?, &mut self.generator))
    }
}

/// Calls `run` for all servers in turns, with the number of the round from 0. Returns the medians of each server.
pub fn in_turns(
    servers: &mut [Fixture],
    runs: usize,
    mut run: impl FnMut(&mut Fixture, usize) -> Result<Outcome>,
) -> Result<Vec<SideResult>> {
    let mut samples = Samples::new(servers.len());
    for turn in turns(servers.len(), runs) {
        samples.add(turn, run(&mut servers[turn.side], turn.round)?);
    }
    let named = servers.iter().enumerate();
    Ok(named.map(|(side, fixture)| SideResult::of(fixture.server.side.name(), samples.of(side))).collect())
}

impl Fixture {
    /// Takes a server that has just started, whose keys are unknown.
    pub fn new(server: Server) -> Fixture {
        Fixture { server, filled: None }
    }

    /// Makes the server contain exactly `keys` keys with values of `value_bytes` bytes. Does nothing if it does
    /// already.
    pub fn fill(&mut self, generator: &mut Generator, keys: u64, value_bytes: usize) -> Result<()> {
        if self.filled == Some(Filled { keys, value_bytes }) {
            return Ok(());
        }
        self.server.clear()?;
        self.fill_new(generator, keys, value_bytes, 1)
    }

    /// Loads keys, distributed among `prefixes` prefixes, into a server that has none.
    pub fn fill_new(
        &mut self,
        generator: &mut Generator,
        keys: u64,
        value_bytes: usize,
        prefixes: u64,
    ) -> Result<()> {
        let job = Job {
            connections: FILL.0,
            depth: FILL.1,
            value_bytes,
            prefixes,
            mix: Mix { insert: 100, ..Mix::default() },
            operations: Some(keys),
            seconds: FILL_S,
            ..self.empty_job()
        };
        let outcome = generator.run(&job).with_context(|| format!("filling {}", self.server.side.name()))?;
        if outcome.operations != keys {
            bail!(
                "{} took {} of {keys} keys: {:?}",
                self.server.side.name(),
                outcome.operations,
                outcome.refused
            );
        }
        self.filled = Some(Filled { keys, value_bytes });
        Ok(())
    }

    /// Reads keys of a server that has been restarted.
    ///
    /// # Errors
    /// Fails if the value of a key is missing or wrong.
    pub fn all_are_there(
        &mut self,
        generator: &mut Generator,
        definition: &Definition,
        keys: u64,
        value_bytes: usize,
    ) -> Result<()> {
        self.filled = Some(Filled { keys, value_bytes });
        let case = Case { value_bytes, ..definition.case("recovery", "100/0")? };
        let job = Job { operations: Some(keys), seconds: FILL_S, ..self.job(&case) };
        self.run(generator, &job).map(drop)
    }

    /// Returns the job of a case on this server, without a duration.
    pub fn job(&self, case: &Case) -> Job {
        Job {
            connections: case.connections,
            depth: case.depth,
            value_bytes: case.value_bytes,
            mix: case.parts,
            skew: case.skew,
            keys: self.filled.map_or(0, |filled| filled.keys),
            ..self.empty_job()
        }
    }

    /// Runs a job on this server, and keeps track of the keys.
    pub fn run(&mut self, generator: &mut Generator, job: &Job) -> Result<Outcome> {
        let outcome = generator.run(job).with_context(|| self.server.side.name())?;
        if job.mix.delete > 0 || outcome.refused.is_some() {
            self.filled = None;
        } else if let Some(filled) = &mut self.filled {
            filled.keys = outcome.keys;
        }
        Ok(outcome)
    }

    /// Returns a job on this server without any operations.
    fn empty_job(&self) -> Job {
        Job {
            address: self.server.address,
            protocol: self.server.side.protocol(),
            process: self.server.id(),
            threads: 1,
            connections: 1,
            depth: 1,
            value_bytes: 0,
            prefixes: 1,
            mix: Mix::default(),
            skew: Skew::Uniform,
            keys: 0,
            operations: None,
            rate: None,
            warm_up_s: 0.0,
            seconds: 0.0,
            condition: None,
        }
    }
}

/// Measures the series for whose names `only` returns true.
pub fn series(
    definition: &Definition,
    sides: &[Side],
    only: &dyn Fn(&str) -> bool,
) -> Result<Vec<CaseResult>> {
    let cases = definition.cases()?;
    let mut results = Vec::new();
    for cores in [Cores::Own, Cores::Both] {
        let cases: Vec<&Case> =
            cases.iter().filter(|case| case.cores == cores && only(&case.series)).collect();
        if cases.is_empty() {
            continue;
        }
        let mut stage = Stage::start(sides, cores)?;
        for case in cases {
            text::progress(&format!("{}: {} ", case.series, case.mix));
            let result = stage.case(definition, case, definition.seconds);
            results.push(result.with_context(|| format!("{}, {}", case.series, case.mix))?);
        }
    }
    Ok(results)
}

/// Measures the response times of one client, which waits for each reply.
pub fn response(definition: &Definition, stage: &mut Stage) -> Result<Vec<CaseResult>> {
    let mut results = Vec::new();
    for value_bytes in &definition.response.value_bytes {
        for mix in &definition.response.mixes {
            text::progress(&format!("response: {mix}, {value_bytes} B "));
            let case = definition.case("response", mix)?;
            let case = Case { connections: 1, depth: 1, value_bytes: *value_bytes, ..case };
            results.push(stage.case(definition, &case, definition.response.seconds)?);
        }
    }
    Ok(results)
}

/// Measures an open loop at several rates, which are fractions of the slowest side's throughput in a closed loop.
pub fn load(definition: &Definition, stage: &mut Stage) -> Result<Vec<LoadResult>> {
    let load = &definition.load;
    let case = Case { depth: 1, ..definition.case("load", &load.mix)? };
    let most = stage.case(definition, &case, definition.seconds)?;
    let most = most.sides.iter().map(|side| side.rate).fold(f64::INFINITY, f64::min);
    let mut results = Vec::new();
    for part in &load.parts {
        text::progress(&format!("load: {part} "));
        let rate = most * part;
        let (warm_up_s, seconds) = (definition.warm_up_s, load.seconds);
        let sides = in_turns(&mut stage.servers, load.runs, |fixture, _| {
            let job = Job { rate: Some(rate), warm_up_s, seconds, ..fixture.job(&case) };
            fixture.run(&mut stage.generator, &job)
        })?;
        results.push(LoadResult { rate, part: *part, sides });
    }
    Ok(results)
}

/// Measures plain reads, conditional reads of matching values, and conditional reads of others on farpool, in turns.
pub fn conditional(definition: &Definition, stage: &mut Stage) -> Result<Vec<ConditionalResult>> {
    let (fixture, generator) = stage.farpool()?;
    let kinds = [None, Some(true), Some(false)];
    let mut results = Vec::new();
    for value_bytes in &definition.conditional.value_bytes {
        let case = Case { value_bytes: *value_bytes, ..definition.case("conditional", "100/0")? };
        fixture.fill(generator, definition.keys, *value_bytes)?;
        let mut samples = Samples::new(kinds.len());
        for turn in turns(kinds.len(), definition.runs) {
            let condition =
                kinds[turn.side].map(|matches| (definition.conditional.condition(matches), matches));
            let (warm_up_s, seconds) = (definition.warm_up_s, definition.seconds);
            let job = Job { condition, warm_up_s, seconds, ..fixture.job(&case) };
            samples.add(turn, fixture.run(generator, &job)?);
        }
        let [get, matching, missing] = [0, 1, 2].map(|side| SideResult::of("farpool", samples.of(side)));
        results.push(ConditionalResult { value_bytes: *value_bytes, get, matching, missing });
    }
    Ok(results)
}

/// Measures GET and SET of farpool and Redis with `redis-benchmark`, as a second opinion on the generator's ratios.
pub fn second_opinion(definition: &Definition, stage: &Stage) -> Result<Vec<SecondOpinion>> {
    let of = |side: Side| stage.servers.iter().find(|fixture| fixture.server.side == side);
    let (farpool, redis) = of(Side::Farpool).zip(of(Side::Redis)).context("one of the two does not run")?;
    let mut results = Vec::new();
    for depth in [1, 32] {
        let (ours, theirs) =
            (ask_benchmark(definition, farpool, depth)?, ask_benchmark(definition, redis, depth)?);
        for ((test, farpool), (_, redis)) in ours.into_iter().zip(theirs) {
            results.push(SecondOpinion { test, depth, farpool, redis });
        }
    }
    Ok(results)
}

/// Runs `redis-benchmark` on a server. Returns the name and the requests per second of each test.
fn ask_benchmark(definition: &Definition, fixture: &Fixture, depth: usize) -> Result<Vec<(String, f64)>> {
    let requests = (definition.keys / 5).min(SECOND_OPINION_REQUESTS) * depth.min(16) as u64;
    let (port, depth) = (fixture.server.address.port().to_string(), depth.to_string());
    let (keys, requests) = (definition.keys.to_string(), requests.to_string());
    let output = on_processors(GENERATORS, Path::new("redis-benchmark"))
        .args(["-p", &port, "-t", "get,set", "-P", &depth, "-n", &requests, "-r", &keys, "-d", "64", "--csv"])
        .output()
        .context("cannot start redis-benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = |line: &str| -> Option<(String, f64)> {
        let mut fields = line.split(',').map(|field| field.trim_matches('"'));
        Some((fields.next()?.to_string(), fields.next()?.parse().ok()?))
    };
    let rows: Vec<_> = text.lines().filter_map(row).collect();
    if rows.is_empty() {
        bail!("redis-benchmark says nothing: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(rows)
}

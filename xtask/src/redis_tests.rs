//! `cargo xtask redis-tests`: runs Redis' own tests, unchanged, against a node as an external host, then real clients
//! and a check that keys are linearizable.
//!
//! The tests come from Debian's source package (`source.rs`). Each unit runs against a separate node.
//! `testdata/redis/units.toml` lists the units that run and the known failures, with reasons;
//! `testdata/redis/recorded.toml` has the measurements: the number of tests that pass in each unit, and the tests that
//! fail because the node replied that a command or setting is absent.
//!
//! Invariant: the lists are accurate. An unlisted failure is an error, and so is a listed test that passes.

mod clients;
mod list;
mod output;
mod server;
mod source;

use crate::cargo;
use anyhow::{Context, Result, ensure};
use list::{Count, List, Recorded, Unit};
use output::Output;
use server::Server;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of units of Redis' tests that run in parallel. More than one, because they mostly wait.
const AT_ONCE: usize = 3;

/// Share of the tests that must pass, among those that use supported commands only.
const GOAL: f64 = 0.95;

/// Options of the command.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Only these units, without the clients.
    #[arg(long = "unit", value_name = "UNIT")]
    units: Vec<String>,
    /// This program in place of the one that is built from the tree.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Record how many tests pass and which use absent commands, in place of comparing with the record.
    #[arg(long)]
    record: bool,
    /// Only the check that keys are linearizable, with so many times as many operations.
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["units", "record"])]
    linearizable: Option<u32>,
}

/// The output of a unit of Redis' tests, and its deviations from the lists in `testdata/redis/`.
struct Checked {
    output: Output,
    wrong: Vec<String>,
}

/// Runs the units of Redis' tests, prints a table of their results, and runs the tests of Redis clients.
///
/// # Errors
/// Fails if the lists in `testdata/redis/` are not accurate, too few tests pass, or a client fails.
pub fn run(options: &Options) -> Result<()> {
    let program = match &options.program {
        Some(program) => program.canonicalize().with_context(|| format!("no {}", program.display()))?,
        None => cargo::build_program("farpool", &[])?,
    };
    if let Some(times) = options.linearizable {
        return clients::linearizable(&program, times.max(1));
    }
    let mut list = List::read()?;
    let harness = source::install()?;
    list.check_names(&harness)?;
    if !options.units.is_empty() {
        list.units.retain(|unit| options.units.contains(&unit.name));
        ensure!(list.units.len() == options.units.len(), "no such unit in testdata/redis/units.toml");
    }
    let results = run_units(&program, &harness, &list, options.record)?;
    let all = summary(&list, &results);
    if options.record {
        record(&list, &results)?;
    }
    let wrong: Vec<&String> = results.iter().flat_map(|result| &result.wrong).collect();
    wrong.iter().for_each(|line| eprintln!("{line}"));
    ensure!(wrong.is_empty(), "{} results of Redis' tests are not as listed (see above)", wrong.len());
    if !options.units.is_empty() {
        return Ok(());
    }
    ensure!(all.share() >= GOAL, "fewer than {GOAL} of the tests pass that use only what is there");
    clients::run(&program)
}

/// Runs every unit of Redis' tests; the results are in the order of `list`.
#[expect(clippy::disallowed_methods, reason = "units run at the same time")]
fn run_units(program: &Path, harness: &Path, list: &List, record: bool) -> Result<Vec<Checked>> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = list.units.get(index) else { return Ok(done) };
            done.push((index, run_checked(program, harness, index, unit, record)?));
        }
    };
    let mut results = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        joined.collect::<Result<Vec<Vec<_>>>>()
    })?;
    let mut results: Vec<(usize, Checked)> = results.drain(..).flatten().collect();
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Runs a unit, and repeats it if it deviates from the lists: some of Redis' tests depend on time.
fn run_checked(program: &Path, harness: &Path, index: usize, unit: &Unit, record: bool) -> Result<Checked> {
    let mut output = run_unit(program, harness, index, unit)?;
    let mut wrong = unit.compare(&output, record);
    if !wrong.is_empty() {
        output = run_unit(program, harness, index, unit)?;
        wrong = unit.compare(&output, record);
    }
    Ok(Checked { output, wrong })
}

fn run_unit(program: &Path, harness: &Path, index: usize, unit: &Unit) -> Result<Output> {
    let mut server = Server::start(program)?;
    let mut command = Command::new("tclsh");
    command.current_dir(harness).env("TERM", "dumb").arg("tests/test_helper.tcl");
    command.args(["--host", "127.0.0.1", "--port", &server.port, "--single", &unit.name]);
    // Without `--durable`, the first error ends the unit. Timeouts are in seconds without progress.
    command.args(["--durable", "--timeout", "120", "--ignore-encoding", "--ignore-digest"]);
    command.args(["--tags", "-needs:debug -needs:repl"]);
    // The ports of the harness' own processes: it tries the 32 ports below this one.
    command.args(["--baseport", &(21_111 + 100 * index).to_string()]);
    let done = command.output().context("cannot start tclsh")?;
    let mut output = Output::parse(&String::from_utf8_lossy(&done.stdout));
    if !output.is_complete {
        let end = String::from_utf8_lossy(&done.stderr).into_owned();
        output.failed.push(output::Failure::of_the_unit("the unit did not end", end));
    }
    if let Some(status) = server.ended()? {
        output.failed.push(output::Failure::of_the_unit("the node ended", status));
    }
    Ok(output)
}

/// Prints the numbers of tests by unit and reason, and returns their sum.
fn summary(list: &List, results: &[Checked]) -> Count {
    let counts: Vec<Count> =
        list.units.iter().zip(results).map(|(unit, result)| unit.count(&result.output)).collect();
    println!("{}", Count::HEAD);
    for (unit, count) in list.units.iter().zip(&counts) {
        println!("{}", count.line(&unit.name));
    }
    let all = counts.into_iter().sum::<Count>();
    println!("{}", all.line("all"));
    println!("{} units do not run (testdata/redis/units.toml says why)", list.left_out());
    println!("Redis' tests: {} pass, {} fail, {} are skipped", all.passed, all.failed, all.skipped());
    all
}

fn record(list: &List, results: &[Checked]) -> Result<()> {
    let mut recorded = list::recorded()?;
    for (unit, result) in list.units.iter().zip(results) {
        let absent: BTreeMap<String, String> = result.output.absent().collect();
        let known = |test: &String| unit.known.iter().any(|known| known.test == *test);
        let absent = absent.into_iter().filter(|(test, _)| !known(test)).collect();
        recorded.insert(unit.name.clone(), Recorded { passed: result.output.passed.len(), absent });
    }
    list::write(&recorded)
}

//! Measures rounds over all sides; times count only if the answers agree.

use super::bound::Bound;
use super::definition::{Case, Definition};
use super::goals;
use super::remote::{self, Remote, Sample};
use super::results::{
    CaseResult, FARPOOL, FARPOOL_BOTH, FARPOOL_HIDDEN, FARPOOL_SEALED, FARPOOL_TLS, Results, RivalInfo,
    SideResult, TableResult,
};
use crate::digest::Digest;
use crate::node::NodeProcess;
use crate::rival::{Rival, RivalDefinition, Statement};
use crate::tables::{self, TableDefinition};
use crate::{limits, machine, stats, text};
use anyhow::{Context, Result, bail};
use farpool::Tier;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A run in progress.
struct Run<'a> {
    definition: &'a Definition,
    remote: Remote,
    /// The connection to a node with TLS, and to one whose tables are encrypted in memory.
    tls: Remote,
    hidden: Remote,
    rivals: Vec<Rival>,
    results: Results,
}

/// Runs the whole suite.
pub async fn run(definition: &Definition) -> Result<Results> {
    let mut notes = Vec::new();
    let rivals = start_rivals(definition, &mut notes)?;
    let info = |rival: &Rival| RivalInfo {
        name: rival.definition.name.clone(),
        version: rival.version.clone(),
        place: rival.definition.place,
        about: rival.definition.about.clone(),
    };
    let results = Results {
        suite: "farview".to_string(),
        date: machine::today(),
        machine: machine::machine(),
        rows: definition.rows,
        runs: definition.runs,
        threads: definition.threads,
        rivals: rivals.iter().map(info).collect(),
        limits: limits::measure()?,
        openssl_bytes_per_s: openssl(definition.threads, &mut notes),
        tables: Vec::new(),
        cases: Vec::new(),
        notes,
    };
    let threads = definition.threads;
    let remote = Remote::over(NodeProcess::start(threads)?, threads).await?;
    let tls = Remote::over(NodeProcess::start_with_tls(threads)?, threads).await?;
    let hidden = Remote::over(NodeProcess::start(threads)?, threads).await?;
    let mut run = Run { definition, remote, tls, hidden, rivals, results };
    for table in &definition.tables {
        for &rows in &table.sizes {
            run.table(table, rows).await.with_context(|| format!("table {}, {rows} rows", table.name))?;
        }
    }
    text::progress("");
    Ok(run.results)
}

/// Returns the bytes per second at which OpenSSL decrypts with AES-128-GCM, in blocks of 64 KiB.
fn openssl(threads: usize, notes: &mut Vec<String>) -> Option<f64> {
    let (threads, seconds) = (threads.to_string(), "2");
    let args = ["speed", "-mr", "-seconds", seconds, "-bytes", "65536", "-evp", "aes-128-gcm", "-decrypt"];
    let output = Command::new("openssl").args(args).args(["-multi", &threads]).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    // The line for all processes together: `+F:25:AES-128-GCM:5284823040.00`.
    let line =
        said.ok().and_then(|said| said.lines().rfind(|line| line.starts_with("+F:")).map(str::to_string));
    let rate = line.and_then(|line| line.rsplit(':').next()?.parse().ok());
    if rate.is_none() {
        notes.push("the time of decryption is not compared: the program openssl was not found".to_string());
    }
    rate
}

fn start_rivals(definition: &Definition, notes: &mut Vec<String>) -> Result<Vec<Rival>> {
    let mut rivals = Vec::new();
    for name in &definition.rivals {
        match Rival::start(RivalDefinition::named(name)?, definition.threads) {
            Ok(rival) => rivals.push(rival),
            Err(error) => notes.push(format!("without {name}: {error:#}")),
        }
    }
    Ok(rivals)
}

impl Run<'_> {
    /// Runs the cases of a table at one size.
    async fn table(&mut self, table: &TableDefinition, rows: u64) -> Result<()> {
        let largest = rows == table.largest();
        let here = |case: &&Case| case.table == table.name && (largest || !case.largest_only);
        let cases: Vec<&Case> = self.definition.cases.iter().filter(here).collect();
        if cases.is_empty() {
            return Ok(());
        }
        let file = tables::file(table, rows)?;
        let info = self.remote.load(&table.name, &file, None).await?;
        let with_tls = cases.iter().any(|case| case.tls_at_most.is_some());
        if with_tls {
            self.tls.load(&table.name, &file, None).await?;
        }
        let is_hidden = cases.iter().any(|case| case.is_hidden());
        if is_hidden {
            self.hidden.load(&table.name, &file, Some(Tier::Standard)).await?;
        }
        self.results.tables.push(TableResult {
            name: table.name.clone(),
            rows,
            bytes_plain: info.bytes_plain,
            bytes_encoded: info.bytes_encoded,
        });
        let wanted = |rival: &Rival| cases.iter().any(|case| case.statement(&rival.definition).is_some());
        let (mut taking_part, absent): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.rivals).into_iter().partition(wanted);
        self.load_rivals(&mut taking_part, &table.name, &file);
        for case in cases {
            text::progress(&format!("{}, {rows} rows ", case.name));
            let result = self.case(case, rows, largest, &mut taking_part).await;
            self.results.cases.push(result.with_context(|| case.name.clone())?);
        }
        self.remote.drop_table(&table.name).await?;
        if with_tls {
            self.tls.drop_table(&table.name).await?;
        }
        if is_hidden {
            self.hidden.drop_table(&table.name).await?;
        }
        for rival in &mut taking_part {
            rival.drop_table(&table.name)?;
        }
        self.rivals = taking_part.into_iter().chain(absent).collect();
        Ok(())
    }

    /// Loads a table into the rivals; a rival that fails is left out from then on.
    fn load_rivals(&mut self, rivals: &mut Vec<Rival>, table: &str, file: &Path) {
        rivals.retain_mut(|rival| match rival.load(table, file) {
            Ok(_) => true,
            Err(error) => {
                self.results
                    .notes
                    .push(format!("{} could not load {table}: {error:#}", rival.definition.name));
                false
            }
        });
    }

    /// Runs one case on all sides, in turns.
    async fn case(
        &mut self,
        case: &Case,
        rows: u64,
        largest: bool,
        rivals: &mut [Rival],
    ) -> Result<CaseResult> {
        let clients = self.remote.clients(case.clients).await?;
        let mut others = Vec::new();
        if case.tls_at_most.is_some() {
            others.push((FARPOOL_TLS, self.tls.clients(case.clients).await?));
        }
        if case.is_hidden() {
            others.push((FARPOOL_HIDDEN, self.hidden.clients(case.clients).await?));
        }
        if case.sealed {
            others.push((FARPOOL_SEALED, self.remote.sealed_clients(case.clients).await?));
            others.push((FARPOOL_BOTH, self.hidden.sealed_clients(case.clients).await?));
        }
        let mut expected: Option<(String, Digest)> = None;
        if !rivals.iter().any(|rival| case.statement(&rival.definition).is_some()) {
            let digest = self.remote.without_pushdown(&case.sql).await?;
            expected = Some(("farpool without push-down".to_string(), digest));
        }
        let mut samples: Vec<Sample> = Vec::new();
        let mut sides: BTreeMap<String, SideResult> = BTreeMap::new();
        let mut failed: Vec<String> = Vec::new();
        // The first round is a warm-up and does not count.
        for round in 0..=self.definition.runs {
            let sample = remote::run(&clients, &case.sql).await.context(FARPOOL)?;
            compare(&mut expected, FARPOOL, &sample.digest)?;
            if round > 0 {
                sides.entry(FARPOOL.to_string()).or_default().add(sample.ms);
                samples.push(sample);
            }
            for (name, clients) in &others {
                let sample = remote::run(clients, &case.sql).await.context(*name)?;
                compare(&mut expected, name, &sample.digest)?;
                if round > 0 {
                    sides.entry(name.to_string()).or_default().add(sample.ms);
                }
            }
            for rival in rivals.iter_mut() {
                let name = rival.definition.name.clone();
                let Some(text) = case.statement(&rival.definition).filter(|_| !failed.contains(&name)) else {
                    continue;
                };
                let statement =
                    Statement { text, table: &case.table, columns: &case.columns, clients: case.clients };
                match rival.run(&statement) {
                    Ok((ms, digest)) => {
                        compare(&mut expected, &name, &digest)?;
                        if round > 0 {
                            let side = sides.entry(name).or_default();
                            side.add(ms);
                            side.bytes_on_wire = rival.bytes_on_wire;
                        }
                    }
                    Err(error) => {
                        self.results.notes.push(format!("{name} without a time in {}: {error:#}", case.name));
                        sides.remove(&name);
                        failed.push(name);
                    }
                }
            }
        }
        self.settle(case, rows, largest, sides, &samples)
    }

    /// Computes medians, bounds and goals of a case.
    fn settle(
        &self,
        case: &Case,
        rows: u64,
        largest: bool,
        sides: BTreeMap<String, SideResult>,
        samples: &[Sample],
    ) -> Result<CaseResult> {
        let last = samples.last().context("there is no counted run")?;
        let client_cpu: Vec<f64> = samples.iter().map(|sample| sample.client_cpu_ms).collect();
        let client_cpu_ms = stats::median(&client_cpu);
        let ms = sides.get(FARPOOL).map_or(f64::NAN, |side| side.median_ms);
        let (limits, processors) = (&self.results.limits, self.results.machine.processors);
        let bound = Bound::new(ms, &last.receipt, last.result_bytes, client_cpu_ms, limits, processors);
        let mut result = CaseResult {
            name: case.name.clone(),
            figure: case.figure.clone(),
            table: case.table.clone(),
            table_rows: rows,
            largest,
            clients: case.clients,
            result_rows: last.digest.rows,
            sides,
            receipt: last.receipt.clone(),
            result_bytes: last.result_bytes,
            client_cpu_ms,
            bound,
            goals: Vec::new(),
        };
        if largest {
            let (earlier, rivals) = (&self.results.cases, &self.results.rivals);
            let openssl = self.results.openssl_bytes_per_s;
            result.goals = goals::check(self.definition, case, &result, (earlier, rivals), openssl);
        }
        Ok(result)
    }
}

/// Compares a result with the first one, which is stored in `expected`.
fn compare(expected: &mut Option<(String, Digest)>, side: &str, digest: &Digest) -> Result<()> {
    let (by, first) = expected.get_or_insert_with(|| (side.to_string(), digest.clone()));
    if first != digest {
        bail!("{side} disagrees with {by}: {digest:?}, not {first:?}");
    }
    Ok(())
}

//! Measures rounds over all sides (farpool and its rivals); times count only if the answers agree.

use super::bound::Bound;
use super::definition::{Case, Definition};
use super::goals;
use super::remote::{self, Ran, Remote};
use super::results::{
    CaseResult, FARPOOL, FARPOOL_BOTH, FARPOOL_HIDDEN, FARPOOL_SEALED, FARPOOL_TLS, Results, RivalInfo,
    SideResult, TableResult,
};
use crate::digest::Digest;
use crate::node::NodeProcess;
use crate::rival::{Rival, Statement};
use crate::suite::{self, Expected, Head, RivalResult, Samples, turns_after_warm_up};
use crate::tables::{self, TableDefinition};
use crate::{limits, stats, text};
use anyhow::{Context, Result};
use farpool::{Receipt, Session, Tier};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The state of a run of the suite.
struct Run<'a> {
    definition: &'a Definition,
    remote: Remote,
    /// The connection to a node with TLS, and to one whose tables are encrypted in memory.
    tls: Remote,
    hidden: Remote,
    rivals: Vec<Rival>,
    results: Results,
}

/// A side of a case: clients of a node, or a rival.
enum Side<'r> {
    Farpool(&'static str, Vec<Arc<Session>>),
    Rival(&'r mut Rival),
}

/// The measurements of one run of one side.
#[derive(Clone, Debug)]
pub struct Sample {
    pub ms: f64,
    digest: Digest,
    /// Bytes on the wire, if a rival counts them.
    pub bytes_on_wire: Option<u64>,
    /// Execution statistics of farpool, the bytes of the result at the clients, and the clients' CPU time; empty for
    /// rivals.
    receipt: Receipt,
    result_bytes: u64,
    client_cpu_ms: f64,
}

impl Side<'_> {
    fn name(&self) -> &str {
        match self {
            Side::Farpool(name, _) => name,
            Side::Rival(rival) => &rival.definition.name,
        }
    }

    async fn run(&mut self, case: &Case) -> Result<Sample> {
        match self {
            Side::Farpool(_, clients) => {
                let Ran { ms, digest, receipt, result_bytes, client_cpu_ms } =
                    remote::run(clients, &case.sql).await?;
                Ok(Sample { ms, digest, bytes_on_wire: None, receipt, result_bytes, client_cpu_ms })
            }
            Side::Rival(rival) => {
                let text = case.statement(&rival.definition).context("the rival does not take part")?;
                let Case { table, columns, clients, .. } = case;
                let (ms, digest) = rival.run(&Statement { text, table, columns, clients: *clients })?;
                let (bytes_on_wire, receipt) = (rival.bytes_on_wire, Receipt::default());
                Ok(Sample { ms, digest, bytes_on_wire, receipt, result_bytes: 0, client_cpu_ms: 0.0 })
            }
        }
    }
}

/// Runs the whole suite.
pub async fn run(definition: &Definition) -> Result<Results> {
    let (rivals, started) = suite::start(&definition.rivals, definition.threads)?;
    let mut notes: Vec<String> =
        started.iter().filter(|rival| rival.missing.is_some()).map(RivalResult::text).collect();
    let info = |rival: &Rival| RivalInfo {
        name: rival.definition.name.clone(),
        version: rival.version.clone(),
        place: rival.definition.place,
        about: rival.definition.about.clone(),
    };
    let results = Results {
        head: Head::of("farview"),
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
    // openssl prints one line for all its processes together: `+F:25:AES-128-GCM:5284823040.00`.
    let line =
        said.ok().and_then(|said| said.lines().rfind(|line| line.starts_with("+F:")).map(str::to_string));
    let rate = line.and_then(|line| line.rsplit(':').next()?.parse().ok());
    if rate.is_none() {
        notes.push("the time of decryption is not compared: the program openssl was not found".to_string());
    }
    rate
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
        let mut sides = self.farpool_sides(case).await?;
        let own = sides.len();
        let wanted = rivals.iter_mut().filter(|rival| case.statement(&rival.definition).is_some());
        sides.extend(wanted.map(Side::Rival));
        let mut expected = Expected::default();
        if sides.len() == own {
            let digest = self.remote.without_pushdown(&case.sql).await?;
            expected = Expected::of("farpool without push-down", digest);
        }
        let mut samples = Samples::new(sides.len());
        for turn in turns_after_warm_up(sides.len(), self.definition.runs) {
            if samples.is_left_out(turn.side) {
                continue;
            }
            let side = &mut sides[turn.side];
            match side.run(case).await {
                Ok(sample) => {
                    expected.check(side.name(), &sample.digest)?;
                    samples.add(turn, sample);
                }
                Err(error) if turn.side < own => return Err(error.context(side.name().to_string())),
                Err(error) => {
                    let note = format!("{} without a time in {}: {error:#}", side.name(), case.name);
                    self.results.notes.push(note);
                    samples.leave_out(turn.side);
                }
            }
        }
        let runs: Vec<Sample> = samples.of(0).to_vec();
        let named = sides.iter().zip(samples.into_sides());
        let sides = named.filter_map(|(side, of)| Some((side.name().to_string(), SideResult::of(&of?))));
        self.settle(case, rows, largest, sides.collect(), &runs)
    }

    /// Connects farpool's sides of a case; the first one is remote farpool without any encryption.
    async fn farpool_sides<'r>(&self, case: &Case) -> Result<Vec<Side<'r>>> {
        let count = case.clients;
        let mut sides = vec![Side::Farpool(FARPOOL, self.remote.clients(count).await?)];
        if case.tls_at_most.is_some() {
            sides.push(Side::Farpool(FARPOOL_TLS, self.tls.clients(count).await?));
        }
        if case.is_hidden() {
            sides.push(Side::Farpool(FARPOOL_HIDDEN, self.hidden.clients(count).await?));
        }
        if case.sealed {
            sides.push(Side::Farpool(FARPOOL_SEALED, self.remote.sealed_clients(count).await?));
            sides.push(Side::Farpool(FARPOOL_BOTH, self.hidden.sealed_clients(count).await?));
        }
        Ok(sides)
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
        let client_cpu_ms = stats::median_of(samples, |sample| sample.client_cpu_ms);
        let ms = sides.get(FARPOOL).map_or(f64::NAN, |side| side.median_ms);
        let (limits, processors) = (&self.results.limits, self.results.head.machine.processors);
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

//! Throughput of concurrent clients that run the queries of TPC-H on one node over a data directory: embedded in the
//! node's process and over loopback TCP, with and without shared scans, and compared with DuckDB with as many cursors.
//!
//! The work is fixed, not the time, because within a fixed time a side that is slow at some queries would run a
//! different mix. The clients of a side take their statements from one list, so that no client is idle while statements
//! are left, and every side runs the same statements.

use super::definition::Clients;
use super::durable::{DurableNode, ROOM_BYTES, half_of};
use super::statements::{WORK_BYTES, session_within, work_through};
use crate::answers::Answer;
use crate::machine::Stopwatch;
use crate::rival::{Mix, Rival, RivalDefinition};
use crate::stats::{median_of, percentile};
use crate::suite::queries::load_table;
use crate::suite::{Expected, Samples, turns};
use crate::tables::parquet;
use crate::tpch::data;
use crate::{places, pools, text};
use anyhow::{Context, Result};
use farpool::{ErrorKind, Pool, Session, WorkMemory};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the rival, and of its side.
pub const RIVAL: &str = "DuckDB";

/// Maximum number of retries of a statement that the node refuses because it is over a limit or busy, and the pause
/// before each. Without retries, a side that refuses many statements would do less work than the others.
const AGAIN_MAX: usize = 200;
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Share of the data that the pool of the node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    All,
    Half,
}

/// The way from a client to the node: a call within the process, or loopback TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Embedded,
    Remote,
}

impl Way {
    /// Returns the name of the way in reports.
    pub fn name(self) -> &'static str {
        match self {
            Way::Embedded => "embedded",
            Way::Remote => "remote",
        }
    }

    /// Returns the name of the side whose clients take this way to a node with shared scans, or without.
    pub fn side(self, shares: bool) -> String {
        format!("{}{}", self.name(), if shares { "" } else { " without sharing" })
    }
}

/// Costs of all numbers of clients on all sides.
#[derive(Debug, Serialize)]
pub struct ClientsResult {
    pub scale: f64,
    pub runs: usize,
    /// Number of the TPC-H query whose times are all recorded: the shortest one.
    pub shortest: usize,
    /// Encoded bytes of all tables.
    pub data_bytes: u64,
    /// Name and version of the rival; `None` if it is not installed.
    pub rival: Option<String>,
    pub sides: Vec<SideResult>,
}

/// Costs of a number of clients on one side: medians of the runs.
#[derive(Debug, Serialize)]
pub struct SideResult {
    pub side: String,
    pub held: Held,
    pub clients: usize,
    /// Number of statements that all clients run together.
    pub statements: usize,
    /// Time of all statements.
    pub seconds: f64,
    /// CPU time of the clients and the node, which share this process, or of the rival's process.
    pub cpu_s: f64,
    /// Bytes that the node read from its data directory.
    pub bytes_read: u64,
    /// Number of times that the node refused a statement, in all runs. Retries are part of the statement's time.
    pub refused: usize,
    /// All times of the shortest query, in all runs.
    pub shortest_ms: Vec<f64>,
}

impl SideResult {
    /// Computes the medians of `mixes`, the runs of a side. `order` has the query of each statement.
    fn of(
        side: String,
        held: Held,
        clients: usize,
        order: &[usize],
        mixes: &[Mixed],
        shortest: usize,
    ) -> SideResult {
        let each = mixes.iter().flat_map(|mixed| order.iter().zip(&mixed.each_ms));
        SideResult {
            side,
            held,
            clients,
            statements: order.len(),
            seconds: median_of(mixes, |mixed| mixed.seconds),
            cpu_s: median_of(mixes, |mixed| mixed.cpu_s),
            bytes_read: median_of(mixes, |mixed| mixed.bytes_read as f64) as u64,
            refused: mixes.iter().map(|mixed| mixed.refused).sum(),
            shortest_ms: each.filter(|(query, _)| **query == shortest).map(|(_, ms)| *ms).collect(),
        }
    }

    /// Returns the statements per second.
    pub fn throughput(&self) -> f64 {
        self.statements as f64 / self.seconds
    }

    /// Returns the 99th percentile of the shortest query's times.
    pub fn shortest_p99_ms(&self) -> f64 {
        percentile(&self.shortest_ms, 0.99)
    }
}

impl ClientsResult {
    /// Returns the costs of a number of clients on the side `name`; `None` if they were not measured.
    pub fn side(&self, name: &str, held: Held, clients: usize) -> Option<&SideResult> {
        self.sides.iter().find(|side| (side.side.as_str(), side.held, side.clients) == (name, held, clients))
    }
}

/// Loads TPC-H into two data directories and the rival, and measures all sides in turns.
pub async fn run(clients: &Clients, threads: usize, notes: &mut Vec<String>) -> Result<ClientsResult> {
    text::progress("loading TPC-H ");
    let tables = data::folder(clients.scale)?;
    // In the cache, because the system's folder for temporary files may be in memory.
    let folder = tempfile::tempdir_in(places::cache()?)?;
    // A directory for the node with shared scans and one for the node without, because both are open at once.
    let stores = [true, false].map(|shares| (folder.path().join(format!("shares-{shares}")), shares));
    let mut data_bytes = 0;
    for (store, _) in &stores {
        data_bytes = fill(store, &tables, threads).await?;
    }
    let mut queries = Queries::read(clients)?;
    let rival = start_rival(&tables, threads)
        .map_err(|error| notes.push(format!("nothing is compared with {RIVAL}: {error:#}")))
        .ok();
    let version = rival.as_ref().map(|rival| format!("{RIVAL} {}", rival.version));
    let mut rival = rival.map(|rival| Side::Rival(Box::new(rival)));
    let mut sides_results = Vec::new();
    for held in [Held::All, Held::Half] {
        let pool_bytes = if held == Held::All { ROOM_BYTES } else { half_of(data_bytes)? };
        // The rival has all data in memory.
        let mut sides: Vec<Side> = rival.take().into_iter().collect();
        for (store, shares) in &stores {
            let node = Arc::new(DurableNode::open(store, pool_bytes, *shares, threads)?);
            for way in [Way::Embedded, Way::Remote] {
                sides.push(Side::Farpool { node: node.clone(), way, shares: *shares, threads });
            }
        }
        // A warm-up: each side runs each query before times count.
        for side in &mut sides {
            turn(side, &clients.queries, 1, &mut queries, notes).await?;
        }
        for count in clients.clients.iter().copied() {
            for (side, mixes) in in_turns(clients, count, &mut sides, &mut queries, notes).await? {
                let order = clients.order(count);
                let result = SideResult::of(side, held, count, &order, &mixes, clients.shortest);
                if result.refused > 0 {
                    let SideResult { side, refused, .. } = &result;
                    notes.push(format!(
                        "{side}, {count} clients: {refused} times, a statement was refused and asked again"
                    ));
                }
                sides_results.push(result);
            }
        }
    }
    Ok(ClientsResult {
        scale: clients.scale,
        runs: clients.runs,
        shortest: clients.shortest,
        data_bytes,
        rival: version,
        sides: sides_results,
    })
}

/// Loads the tables into a new data directory. Returns their encoded bytes.
async fn fill(store: &Path, tables: &Path, threads: usize) -> Result<u64> {
    std::fs::create_dir(store)?;
    let node = DurableNode::open(store, ROOM_BYTES, true, threads)?;
    let (pool, mut bytes) = (node.embedded(), 0);
    for table in data::TABLES {
        let (info, _) = load_table(&*pool, table, parquet::read(tables, table)?, true).await?;
        bytes += info.bytes_encoded;
    }
    Ok(bytes)
}

/// Starts the rival and loads the tables into its memory.
fn start_rival(tables: &Path, threads: usize) -> Result<Rival> {
    let mut rival = Rival::start(RivalDefinition::named(RIVAL)?, threads)?;
    parquet::load_into(&mut rival, tables, &data::TABLES)?;
    Ok(rival)
}

/// Runs the queries for `count` clients on all sides in turns. Returns each side that has not failed in all runs: its
/// name and its runs.
async fn in_turns(
    clients: &Clients,
    count: usize,
    sides: &mut [Side],
    queries: &mut Queries,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, Vec<Mixed>)>> {
    let order = clients.order(count);
    let mut samples = Samples::new(sides.len());
    for next in turns(sides.len(), clients.runs) {
        if let Some(mixed) = turn(&mut sides[next.side], &order, count, queries, notes).await? {
            samples.add(next, mixed);
        }
    }
    let named = sides.iter().map(Side::name).zip(samples.into_sides().flatten());
    Ok(named.filter(|(_, mixes)| !mixes.is_empty()).collect())
}

/// Runs queries on one side with a number of concurrent clients, and checks the answers. Returns `None` with a note if
/// the rival fails.
async fn turn(
    side: &mut Side,
    order: &[usize],
    clients: usize,
    queries: &mut Queries,
    notes: &mut Vec<String>,
) -> Result<Option<Mixed>> {
    let name = side.name();
    text::progress(&format!("{name}, {clients} clients "));
    let texts = order.iter().map(|query| queries.text(*query)).collect::<Result<Vec<&str>>>()?;
    match side.run(&texts, clients).await {
        Ok((mixed, answers)) => {
            for (query, answer) in order.iter().zip(&answers) {
                queries.check(&name, *query, answer)?;
            }
            Ok(Some(mixed))
        }
        Err(error) if matches!(side, Side::Rival(_)) => {
            notes.push(format!("{name} without times with {clients} clients: {error:#}"));
            Ok(None)
        }
        Err(error) => Err(error.context(format!("{name}, {clients} clients"))),
    }
}

/// The TPC-H queries by number, with their texts and the answers that all sides must return.
struct Queries(BTreeMap<usize, (String, Expected<Answer>)>);

impl Queries {
    fn read(clients: &Clients) -> Result<Queries> {
        let mut queries = BTreeMap::new();
        for query in clients.queries.iter().copied() {
            let recorded = places::recorded_answer("tpch", clients.scale, query);
            queries.insert(query, (places::query("tpch", query)?, Expected::recorded(recorded.as_deref())?));
        }
        Ok(Queries(queries))
    }

    fn text(&self, query: usize) -> Result<&str> {
        let (text, _) =
            self.0.get(&query).with_context(|| format!("query {query} is none of the suite's"))?;
        Ok(text)
    }

    /// Compares the answer of a side with the recorded one, or with that of the side that answered first.
    fn check(&mut self, side: &str, query: usize, answer: &Answer) -> Result<()> {
        let (text, expected) = self.0.get_mut(&query).context("a query of the suite")?;
        expected.check_ordered(side, answer, text).with_context(|| format!("q{query:02}"))
    }
}

/// A side of the comparison.
enum Side {
    Farpool { node: Arc<DurableNode>, way: Way, shares: bool, threads: usize },
    Rival(Box<Rival>),
}

/// Costs of one run of a list of statements on one side.
struct Mixed {
    seconds: f64,
    cpu_s: f64,
    bytes_read: u64,
    refused: usize,
    /// Milliseconds of each statement, in the order of the list.
    each_ms: Vec<f64>,
}

impl Side {
    fn name(&self) -> String {
        match self {
            Side::Rival(_) => RIVAL.to_string(),
            Side::Farpool { way, shares, .. } => way.side(*shares),
        }
    }

    /// Runs statements with a number of concurrent clients. Returns the answers in the order of the statements.
    async fn run(&mut self, statements: &[&str], clients: usize) -> Result<(Mixed, Vec<Answer>)> {
        match self {
            Side::Rival(rival) => {
                let Mix { ms, cpu_s, each } = rival.run_mix(statements, clients)?;
                let (each_ms, answers) = each.into_iter().unzip();
                Ok((Mixed { seconds: ms / 1e3, cpu_s, bytes_read: 0, refused: 0, each_ms }, answers))
            }
            Side::Farpool { node, way, threads, .. } => {
                let sessions = sessions(node, *way, *threads, clients).await?;
                let statements: Vec<String> = statements.iter().map(|text| (*text).to_string()).collect();
                let watch = Stopwatch::start();
                let ran = work_through(sessions, &statements, ask).await?;
                let (seconds, cpu_s) = watch.seconds();
                let bytes_read = ran.iter().map(|ran| ran.last.receipt.bytes_from_disk).sum();
                let refused = ran.iter().map(|ran| ran.refused).sum();
                let each_ms = ran.iter().map(|ran| ran.ms).collect();
                let answers = ran.iter().map(|ran| ran.last.answer()).collect::<Result<_>>()?;
                Ok((Mixed { seconds, cpu_s, bytes_read, refused, each_ms }, answers))
            }
        }
    }
}

/// Opens a session for each client. All sessions share one memory budget, as the cursors of one DuckDB do.
async fn sessions(node: &DurableNode, way: Way, threads: usize, clients: usize) -> Result<Vec<Arc<Session>>> {
    let work = WorkMemory::new(WORK_BYTES);
    let mut sessions = Vec::new();
    for _ in 0..clients {
        let pool: Arc<dyn Pool> = match way {
            Way::Embedded => node.embedded(),
            Way::Remote => node.connect().await?,
        };
        sessions.push(session_within(&pool, true, threads, work.clone()).await?);
    }
    Ok(sessions)
}

/// A statement that has run. Its rows become an [`Answer`] only after all clients have ended, because the conversion
/// would take CPU time from them.
struct Ran {
    /// Milliseconds from the first attempt to the last row.
    ms: f64,
    /// Number of attempts that the node refused.
    refused: usize,
    /// The attempt that succeeded.
    last: pools::Ran,
}

/// Runs a statement, and retries it up to [`AGAIN_MAX`] times if the node refuses it for now.
async fn ask(session: Arc<Session>, text: String) -> Result<Ran> {
    let (start, mut refused) = (Instant::now(), 0);
    let last = loop {
        match pools::run(&session, &text).await {
            Err(error) if is_for_now(error.kind) && refused < AGAIN_MAX => {
                refused += 1;
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            outcome => break outcome?,
        }
    };
    Ok(Ran { ms: pools::milliseconds(start), refused, last })
}

/// Returns whether the same statement may succeed later.
fn is_for_now(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::OverLimit | ErrorKind::Busy)
}

//! Clients that run the queries of TPC-H concurrently, each at a different one: on a node over a data directory, in its
//! process and over loopback, with and without sharing, compared with DuckDB with as many cursors.
//!
//! The work is fixed, not the time: within a fixed time, a side that is slow at some queries would have run a different
//! mix. Clients take statements from one list, so that none is idle while there are some left, and every side runs the
//! same statements.

use super::definition::Clients;
use super::durable::{DurableNode, ROOM_BYTES, half_of};
use super::statements::{WORK_BYTES, session_within};
use crate::answers::Answer;
use crate::pools;
use crate::rival::{Mix, Rival, RivalDefinition};
use crate::stats::{median_of, percentile};
use crate::suite::Expected;
use crate::tpch::{data, loading};
use crate::{machine, places, text};
use anyhow::{Context, Result};
use farpool::{ErrorKind, Pool, Session, WorkMemory};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The rival.
pub const RIVAL: &str = "DuckDB";

/// Maximal number of retries of a statement that a node refuses for lack of memory or turns, and the pause before each.
const AGAIN_MAX: usize = 200;
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The part of the data that fits in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    All,
    Half,
}

/// The connection of clients to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Embedded,
    Remote,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Embedded => "embedded",
            Way::Remote => "remote",
        }
    }

    /// Returns the name of the side, depending on whether its node shares the rows that programs read and the results
    /// of filters.
    pub fn side(self, shares: bool) -> String {
        format!("{}{}", self.name(), if shares { "" } else { " without sharing" })
    }
}

/// Costs of the clients on all sides.
#[derive(Debug, Serialize)]
pub struct ClientsResult {
    pub scale: f64,
    pub runs: usize,
    /// The query whose times are recorded.
    pub shortest: usize,
    /// Encoded bytes of all tables.
    pub data_bytes: u64,
    /// Name and version of the rival, if it is available.
    pub rival: Option<String>,
    pub sides: Vec<SideResult>,
}

/// Costs for a number of clients on one side; medians.
#[derive(Debug, Serialize)]
pub struct SideResult {
    pub side: String,
    pub held: Held,
    pub clients: usize,
    pub statements: usize,
    pub seconds: f64,
    /// CPU time of the clients and the node, or of the rival's process.
    pub cpu_s: f64,
    /// Bytes that the node read from its data directory.
    pub bytes_read: u64,
    /// Number of times that a statement was refused and repeated, in all runs. The repetitions are part of its time.
    pub refused: usize,
    /// Every time of the shortest query, in all runs.
    pub shortest_ms: Vec<f64>,
}

impl SideResult {
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

    pub fn shortest_p99_ms(&self) -> f64 {
        percentile(&self.shortest_ms, 0.99)
    }
}

impl ClientsResult {
    pub fn side(&self, name: &str, held: Held, clients: usize) -> Option<&SideResult> {
        self.sides.iter().find(|side| (side.side.as_str(), side.held, side.clients) == (name, held, clients))
    }
}

pub async fn run(clients: &Clients, threads: usize, notes: &mut Vec<String>) -> Result<ClientsResult> {
    text::progress("loading TPC-H ");
    let tables = data::folder(clients.scale)?;
    // Not in the folder for temporary files, which may be in memory.
    let folder = tempfile::tempdir_in(places::cache()?)?;
    // A separate directory for each, so that both can be open and take turns.
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
        // All sides have answered each query before times count.
        turns(&clients.queries, 1, &mut sides, &mut queries, notes).await?;
        for count in clients.clients.iter().copied() {
            let order = clients.order(count);
            let mut mixes: Vec<Vec<Mixed>> = sides.iter().map(|_| Vec::new()).collect();
            for _ in 0..clients.runs {
                let turns = turns(&order, count, &mut sides, &mut queries, notes).await?;
                mixes.iter_mut().zip(turns).for_each(|(mixes, mixed)| mixes.extend(mixed));
            }
            for (side, mixes) in sides.iter().zip(&mixes).filter(|(_, mixes)| !mixes.is_empty()) {
                let result = SideResult::of(side.name(), held, count, &order, mixes, clients.shortest);
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

/// Loads the tables into a data directory. Returns their encoded bytes.
async fn fill(store: &Path, tables: &Path, threads: usize) -> Result<u64> {
    std::fs::create_dir(store)?;
    let node = DurableNode::open(store, ROOM_BYTES, true, threads)?;
    let (pool, mut bytes) = (node.embedded(), 0);
    for table in data::TABLES {
        let (info, _) = loading::load_table(&*pool, table, data::read(tables, table)?, true).await?;
        bytes += info.bytes_encoded;
    }
    Ok(bytes)
}

fn start_rival(tables: &Path, threads: usize) -> Result<Rival> {
    let mut rival = Rival::start(RivalDefinition::named(RIVAL)?, threads)?;
    data::load_into(&mut rival, tables, &data::TABLES)?;
    Ok(rival)
}

/// Lets a number of clients run queries on each side, one side after the other. A rival that fails has no times, but a
/// note.
async fn turns(
    order: &[usize],
    clients: usize,
    sides: &mut [Side],
    queries: &mut Queries,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<Mixed>>> {
    let mut turns = Vec::new();
    for side in sides {
        let name = side.name();
        text::progress(&format!("{name}, {clients} clients "));
        let texts = order.iter().map(|query| queries.text(*query)).collect::<Result<Vec<&str>>>()?;
        turns.push(match side.run(&texts, clients).await {
            Ok((mixed, answers)) => {
                for (query, answer) in order.iter().zip(&answers) {
                    queries.check(&name, *query, answer)?;
                }
                Some(mixed)
            }
            Err(error) if matches!(side, Side::Rival(_)) => {
                notes.push(format!("{name} without times with {clients} clients: {error:#}"));
                None
            }
            Err(error) => return Err(error.context(format!("{name}, {clients} clients"))),
        });
    }
    Ok(turns)
}

/// The texts of the queries, and the answers that all sides must return.
struct Queries(BTreeMap<usize, (String, Expected<Answer>)>);

impl Queries {
    fn read(clients: &Clients) -> Result<Queries> {
        let mut queries = BTreeMap::new();
        for query in clients.queries.iter().copied() {
            let recorded = places::recorded_answer(clients.scale, query);
            queries.insert(query, (places::query(query)?, Expected::recorded(recorded.as_deref())?));
        }
        Ok(Queries(queries))
    }

    fn text(&self, query: usize) -> Result<&str> {
        let (text, _) =
            self.0.get(&query).with_context(|| format!("query {query} is none of the suite's"))?;
        Ok(text)
    }

    /// Compares an answer with the first one of any side.
    fn check(&mut self, side: &str, query: usize, answer: &Answer) -> Result<()> {
        let (text, expected) = self.0.get_mut(&query).context("a query of the suite")?;
        expected.check_ordered(side, answer, text).with_context(|| format!("q{query:02}"))
    }
}

enum Side {
    Farpool { node: Arc<DurableNode>, way: Way, shares: bool, threads: usize },
    Rival(Box<Rival>),
}

/// Costs of one run.
struct Mixed {
    seconds: f64,
    cpu_s: f64,
    bytes_read: u64,
    refused: usize,
    /// Times of the statements, in order.
    each_ms: Vec<f64>,
}

impl Side {
    fn name(&self) -> String {
        match self {
            Side::Rival(_) => RIVAL.to_string(),
            Side::Farpool { way, shares, .. } => way.side(*shares),
        }
    }

    /// Lets a number of clients run statements. The answers are in the order of the statements.
    async fn run(&mut self, statements: &[&str], clients: usize) -> Result<(Mixed, Vec<Answer>)> {
        match self {
            Side::Rival(rival) => {
                let Mix { ms, cpu_s, each } = rival.run_mix(statements, clients)?;
                let (each_ms, answers) = each.into_iter().unzip();
                Ok((Mixed { seconds: ms / 1e3, cpu_s, bytes_read: 0, refused: 0, each_ms }, answers))
            }
            Side::Farpool { node, way, threads, .. } => {
                let sessions = sessions(node, *way, *threads, clients).await?;
                let statements = statements.iter().map(|text| (*text).to_string()).collect();
                let (start, cpu) = (Instant::now(), machine::cpu_seconds().unwrap_or(f64::NAN));
                let ran = go_through(sessions, statements).await?;
                let seconds = start.elapsed().as_secs_f64();
                let cpu_s = machine::cpu_seconds().unwrap_or(f64::NAN) - cpu;
                let bytes_read = ran.iter().map(|ran| ran.last.receipt.bytes_from_disk).sum();
                let refused = ran.iter().map(|ran| ran.refused).sum();
                let each_ms = ran.iter().map(|ran| ran.ms).collect();
                let answers = ran.iter().map(|ran| ran.last.answer()).collect::<Result<_>>()?;
                Ok((Mixed { seconds, cpu_s, bytes_read, refused, each_ms }, answers))
            }
        }
    }
}

/// Opens a session for each client, with one memory budget for all of them, as in one engine.
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

/// A statement that has run. Its rows are converted to an answer when no client is running any more.
struct Ran {
    /// Milliseconds, with those of all times that it was refused.
    ms: f64,
    refused: usize,
    last: pools::Ran,
}

/// Runs the statements: each session takes the next one as soon as it has all rows of its last one.
async fn go_through(sessions: Vec<Arc<Session>>, statements: Vec<String>) -> Result<Vec<Ran>> {
    let (statements, next) = (Arc::new(statements), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for session in sessions {
        let (statements, next) = (statements.clone(), next.clone());
        tasks.spawn(async move {
            let mut ran = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(statement) = statements.get(place) else { break anyhow::Ok(ran) };
                ran.push((place, ask(&session, statement).await.with_context(|| statement.clone())?));
            }
        });
    }
    let mut ran = BTreeMap::new();
    while let Some(ended) = tasks.join_next().await {
        ran.extend(ended??);
    }
    Ok(ran.into_values().collect())
}

/// Runs a statement, and repeats it if the node reports that it is busy.
async fn ask(session: &Session, text: &str) -> Result<Ran> {
    let (start, mut refused) = (Instant::now(), 0);
    let last = loop {
        match pools::run(session, text).await {
            Err(error) if is_for_now(error.kind) && refused < AGAIN_MAX => {
                refused += 1;
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            outcome => break outcome?,
        }
    };
    Ok(Ran { ms: pools::milliseconds(start), refused, last })
}

fn is_for_now(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::OverLimit | ErrorKind::Busy)
}

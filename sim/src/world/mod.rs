//! The simulated world: a node without threads, its clients of all kinds, and the seed that determines all
//! events.
//!
//! Everything runs on one thread. Tasks of the runtime take turns in a fixed order; the runtime's time is paused and
//! advanced only by the simulation, and nothing waits for real time.

mod accounts;
mod disk;
mod peers;
mod replica;
mod watch;

use crate::checks::Checked;
use crate::client::{Client, token_of};
use crate::clock::{BadLuck, SimClock};
use crate::engine::{Engine, LoadSize};
use crate::fairness::Fairness;
use crate::hostile::Hostile;
use crate::log::Log;
use crate::network::Network;
use crate::query::Queries;
use crate::random::Random;
use crate::state::{Shared, State, Weather};
use accounts::Patience;
use disk::Disk;
use farpool_disk::{Directory, LogOver, Records, SimulatedDirectory};
use farpool_memory::{Failures, WorkMemory};
use farpool_model::{TenantName, limits};
use farpool_node::{Access, Caller, Environment, Node, NodeConfig, Right, TenantLimits, native};
use farpool_wire::Socket;
use parking_lot::Mutex;
use replica::Replica;
use std::sync::Arc;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::{JoinHandle, yield_now};

/// Tenants whose clients are checked.
const TENANTS: [&str; 2] = ["ada", "bob"];

/// The tenant of clients that violate the protocol.
const HOSTILE: &str = "eve";

const TABLES: [&str; 3] = ["orders", "parts", "prices"];

/// Number of events before the simulation begins to end.
const EVENTS: std::ops::Range<usize> = 100..700;

/// Maximal number of concurrent participants of each kind.
const CLIENTS_MAX: usize = 4;
const ENGINES_MAX: usize = 3;
const HOSTILES_MAX: usize = 2;

/// Maximal number of appends of one errand in a world that focuses on appends.
const APPENDS_MAX: usize = 60;

/// Pages of the pool in a world of scans: some row groups of the table fit, but not all.
const SCANNED_PAGES: [usize; 3] = [3, 4, 5];

/// The predominant activity of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Focus {
    Everything,
    /// A thousand or more appends of a few rows each.
    Appends,
    /// Many concurrent scans of a table that is larger than the pool.
    Scans,
}

/// The simulated world.
pub struct World {
    random: Random,
    clock: Arc<SimClock>,
    node: Arc<Node>,
    owners: Vec<Caller>,
    shared: Shared,
    fairness: Fairness,
    patience: Patience,
    clients: Vec<Client>,
    hostiles: Vec<Hostile>,
    engines: Vec<Arc<Engine>>,
    /// The running errands (requests of simulated engines), each with a description.
    errands: Vec<(String, JoinHandle<Checked<Option<Engine>>>)>,
    peers_seen: usize,
    network: Arc<Network>,
    sockets: UnboundedSender<Arc<dyn Socket>>,
    serving: JoinHandle<farpool_model::Result<()>>,
    focus: Focus,
    queries: Queries,
    loads: LoadSize,
    /// The data directory, if there is one.
    disk: Option<Disk>,
    /// Minimal capacity in bytes of a pipe to a client.
    pipe_bytes: usize,
    /// Maximal number of concurrent errands; with many of them, tenants compete for the node for long.
    errands_max: usize,
    programs: u64,
}

impl World {
    /// Creates the world of `seed`, on the current runtime.
    pub fn new(seed: u64) -> Checked<Self> {
        let mut random = Random::new(seed);
        let clock = Arc::new(SimClock::new(random.next()));
        let focus = match random.below(100) {
            0..5 => Focus::Appends,
            // Each of these worlds takes as long as about thirty others, so that few seeds have them.
            5..8 => Focus::Scans,
            _ => Focus::Everything,
        };
        let are_scans = focus == Focus::Scans;
        let has_disk = are_scans || random.chance(15);
        let has_little_memory = are_scans || random.chance(20);
        let has_bad_luck = random.chance(if focus == Focus::Appends { 60 } else { 20 });
        let weather = Weather {
            is_tight: has_little_memory || has_bad_luck,
            is_short: random.chance(25) && !are_scans,
            is_slow: random.chance(30),
            has_bad_reads: has_disk && random.chance(30),
            is_crowded: are_scans,
        };
        let work_bytes = limits::WORK_BYTES_MIN * if weather.is_short { 1 } else { 128 };
        let memory_bytes = match focus {
            Focus::Scans => random.pick(&SCANNED_PAGES) * limits::PAGE_BYTES,
            Focus::Everything | Focus::Appends if has_little_memory => (2 + random.below(12)) << 20,
            Focus::Everything | Focus::Appends => 512 << 20,
        };
        // With little memory for work, groups of many rows would be returned in parts, which the clients here do not
        // merge.
        let rows_max = match random.chance(5) {
            _ if weather.is_short || focus == Focus::Appends => 2_000,
            true => 150_000,
            false => 6_000,
        };
        let (queries, loads) = match focus {
            Focus::Scans => (Queries::Dashboard(random.next()), LoadSize::LargeGroup),
            Focus::Everything | Focus::Appends => (Queries::Any, LoadSize::Batches(rows_max)),
        };
        let errands_max = random.pick(if are_scans { &[4, 8, 12] } else { &[4, 12, 48] });
        // Frames may be split anywhere; very small pipes for large results would only be slow.
        let pipe_bytes = if are_scans { 64 << 10 } else { rows_max / 100 };
        let percent = 1 + random.below(40);
        let luck = has_bad_luck.then(|| Arc::new(BadLuck::new(random.next(), percent)) as Arc<dyn Failures>);
        let directory = has_disk.then(SimulatedDirectory::new);
        let config = NodeConfig { memory_bytes, work: WorkMemory::new(work_bytes), ..NodeConfig::default() };
        let records = Records::default();
        let replica = directory.clone().map(|of| Replica::new(of, records.clone())).transpose()?;
        let data = directory.clone().map(|of| (of, LogOver::new(move |log| records.of(log))));
        let node = start_node(&mut random, clock.clone(), config, data, luck)?;
        let disk = directory.and_then(|directory| Disk::of(directory, replica, &node));
        let owners = TENANTS.iter().chain([&HOSTILE]).map(|name| Ok(node.owner(tenant(name)?)));
        let owners = owners.collect::<Checked<Vec<_>>>()?;
        let (sockets, serving) = serve(&node);
        let models = TENANTS.iter().map(|_| Default::default()).collect();
        let mut log = Log::new();
        log.event(format!(
            "a pool of {memory_bytes} bytes, loads: {loads:?}, on disk: {has_disk}, {weather:?}, {focus:?}"
        ));
        let shared = Arc::new(Mutex::new(State { log, models, weather, is_ending: false }));
        let (clients, hostiles, engines, errands, network) = Default::default();
        let (fairness, patience, peers_seen, programs) = Default::default();
        Ok(World {
            random,
            clock,
            node,
            owners,
            shared,
            fairness,
            patience,
            clients,
            hostiles,
            engines,
            errands,
            peers_seen,
            network,
            sockets,
            serving,
            focus,
            queries,
            loads,
            disk,
            pipe_bytes,
            errands_max,
            programs,
        })
    }

    /// Returns the state that all participants share, with the log of events.
    pub fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Runs the simulation to its end.
    ///
    /// # Errors
    /// The first violation that was found.
    pub async fn run(mut self) -> Checked {
        if self.focus == Focus::Scans {
            self.load_large_table().await?;
        }
        let events = EVENTS.start + self.random.below(EVENTS.len());
        for _ in 0..events {
            let step = {
                let mut state = self.shared.lock();
                state.log.step += 1;
                state.log.step
            };
            let cut = self.network.cut_due(step);
            if cut > 0 {
                self.shared.lock().log.event(format!("{cut} connections of an engine break behind a load"));
            }
            self.event().await?;
            self.work_disk()?;
            let turns = self.random.magnitude(12);
            turns_of_others(turns).await;
            self.see_to_errands()?;
            self.check_accounts()?;
        }
        self.quiesce().await?;
        self.end().await
    }

    async fn event(&mut self) -> Checked {
        match self.random.below(100) {
            0..3 => self.connect_client(),
            3..6 => self.connect_engine(),
            6..7 => self.connect_hostile(),
            7..13 => self.ask(),
            13..21 => self.write(),
            21..31 => self.read(),
            31..34 => self.some_client(|client, _, _| client.grant().map(|()| None)),
            34..36 => self.some_client(|client, random, _| {
                let cancelled = client.cancel(random)?;
                Ok(cancelled.map(|stream| format!("client {} cancels stream {stream}", client.number)))
            }),
            36..37 => self.some_client(|client, _, _| {
                client.leave();
                Ok(Some(format!("client {} ends its side", client.number)))
            }),
            37..38 => self.vanish(),
            38..50 => self.send_on_errand(),
            50..51 => self.give_up_errand(),
            51..70 => self.pass_bytes(),
            70..71 => self.break_off(),
            71..75 => self.misbehave(),
            75..77 => self.pass_time().await,
            _ => {
                let most = if self.focus == Focus::Scans { 60 } else { 20 };
                let steps = self.random.magnitude(most);
                self.work(steps).map(drop)
            }
        }
    }
}

fn start_node(
    random: &mut Random,
    clock: Arc<SimClock>,
    config: NodeConfig,
    directory: Option<(Arc<SimulatedDirectory>, LogOver)>,
    failures: Option<Arc<dyn Failures>>,
) -> Checked<Arc<Node>> {
    let mut access = Access::of_nobody();
    for name in TENANTS.iter().chain([&HOSTILE]) {
        access = access.with_token(&token_of(name), tenant(name)?, Right::Write);
    }
    let limits = TenantLimits { weight: 1 + random.below(5) as u32, ..TenantLimits::default() };
    let access = access.with_limits(tenant(TENANTS[0])?, limits);
    let (directory, log_over) = directory.unzip();
    let data = directory.map(|directory| directory as Arc<dyn Directory>);
    // In some worlds there is a checkpoint after every few loads.
    let log_bytes = if random.chance(50) { 64 << 10 } else { limits::LOG_BYTES_DEFAULT };
    let config = NodeConfig { workers: 0, access, data, log_bytes, ..config };
    let hash_seed = random.next();
    let processors = 1 + random.below(4);
    let environment = Environment {
        clock,
        hash_seed,
        instance: 1,
        processors,
        failures,
        background_threads: 0,
        disk_threads: false,
        log_over: log_over.unwrap_or_default(),
        ..Environment::of_system()
    };
    Node::assemble(config, environment).map_err(|error| error.to_string())
}

/// Starts the node's server; returns the channel through which clients connect, and the server's task.
fn serve(node: &Arc<Node>) -> (UnboundedSender<Arc<dyn Socket>>, JoinHandle<farpool_model::Result<()>>) {
    let (sockets, listener) = mpsc::unbounded_channel();
    (sockets, tokio::spawn(native::serve(node.clone(), listener, std::future::pending())))
}

fn tenant(name: &str) -> Checked<TenantName> {
    TenantName::new(name).map_err(|error| error.to_string())
}

async fn turns_of_others(turns: usize) {
    for _ in 0..turns {
        yield_now().await;
    }
}

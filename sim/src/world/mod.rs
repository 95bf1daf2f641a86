//! The simulated world: a node without threads, its clients of all kinds, and the seed that determines all
//! events.
//!
//! Everything runs on one thread. Tasks of the runtime take turns in a fixed order; the runtime's time is
//! paused and advanced only by the simulation, and nothing waits for real time.

mod accounts;
mod peers;
mod watch;

use crate::checks::Checked;
use crate::client::{Client, token_of};
use crate::clock::{BadLuck, SimClock};
use crate::engine::Engine;
use crate::fairness::Fairness;
use crate::hostile::Hostile;
use crate::log::Log;
use crate::network::Network;
use crate::random::Random;
use crate::state::{Shared, State, Weather};
use accounts::Patience;
use farpool_memory::{Failures, WorkMemory};
use farpool_model::{TenantName, limits};
use farpool_node::{Access, Caller, Environment, Node, NodeConfig, Right, TenantLimits, server};
use farpool_wire::Socket;
use parking_lot::Mutex;
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

/// Most participants of each kind at once.
const CLIENTS_MAX: usize = 4;
const ENGINES_MAX: usize = 3;
const HOSTILES_MAX: usize = 2;

/// Most appends of one errand in a world that focuses on appends.
const APPENDS_MAX: usize = 60;

/// What clients mostly do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Focus {
    Everything,
    /// A thousand or more appends of a few rows each.
    Appends,
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
    /// The running errands, each with a description.
    errands: Vec<(String, JoinHandle<Checked<Option<Engine>>>)>,
    peers_seen: usize,
    network: Arc<Network>,
    sockets: UnboundedSender<Arc<dyn Socket>>,
    serving: JoinHandle<farpool_model::Result<()>>,
    focus: Focus,
    rows_max: usize,
    /// Most errands at once; with many of them, tenants compete for the node for long.
    errands_max: usize,
    programs: u64,
}

impl World {
    /// Makes the world of `seed`, on the current runtime.
    pub fn new(seed: u64) -> Checked<Self> {
        let mut random = Random::new(seed);
        let clock = Arc::new(SimClock::new(random.next()));
        let focus = if random.chance(5) { Focus::Appends } else { Focus::Everything };
        let has_little_memory = random.chance(20);
        let has_bad_luck = random.chance(if focus == Focus::Appends { 60 } else { 20 });
        let is_tight = has_little_memory || has_bad_luck;
        let weather = Weather { is_tight, is_short: random.chance(25), is_slow: random.chance(30) };
        let work_bytes = limits::WORK_BYTES_MIN * if weather.is_short { 1 } else { 128 };
        let memory_bytes = if has_little_memory { (2 + random.below(12)) << 20 } else { 512 << 20 };
        // With little memory for work, groups of many rows would leave in parts, which the clients here do
        // not merge.
        let rows_max = match random.chance(5) {
            _ if weather.is_short || focus == Focus::Appends => 2_000,
            true => 150_000,
            false => 6_000,
        };
        let errands_max = random.pick(&[4, 12, 48]);
        let percent = 1 + random.below(40);
        let luck = has_bad_luck.then(|| Arc::new(BadLuck::new(random.next(), percent)) as Arc<dyn Failures>);
        let node = start_node(&mut random, clock.clone(), memory_bytes, work_bytes, luck)?;
        let owners = TENANTS.iter().chain([&HOSTILE]).map(|name| Ok(node.owner(tenant(name)?)));
        let owners = owners.collect::<Checked<Vec<_>>>()?;
        let (sockets, listener) = mpsc::unbounded_channel();
        let serving = tokio::spawn(server::serve(node.clone(), listener, std::future::pending()));
        let models = TENANTS.iter().map(|_| Default::default()).collect();
        let mut log = Log::new();
        log.event(format!(
            "a pool of {memory_bytes} bytes, loads of up to {rows_max} rows, {weather:?}, {focus:?}"
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
            rows_max,
            errands_max,
            programs,
        })
    }

    /// The state that all participants share, with the log of events.
    pub fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Runs the simulation to its end.
    ///
    /// # Errors
    /// The first violation that was found.
    pub async fn run(mut self) -> Checked {
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
                let steps = self.random.magnitude(20);
                self.work(steps).map(drop)
            }
        }
    }
}

fn start_node(
    random: &mut Random,
    clock: Arc<SimClock>,
    memory_bytes: usize,
    work_bytes: usize,
    failures: Option<Arc<dyn Failures>>,
) -> Checked<Arc<Node>> {
    let mut access = Access::of_nobody();
    for name in TENANTS.iter().chain([&HOSTILE]) {
        access = access.with_token(&token_of(name), tenant(name)?, Right::Write);
    }
    let limits = TenantLimits { weight: 1 + random.below(5) as u32, ..TenantLimits::default() };
    let access = access.with_limits(tenant(TENANTS[0])?, limits);
    let work = WorkMemory::new(work_bytes);
    let config = NodeConfig { memory_bytes, work, workers: 0, access, ..NodeConfig::default() };
    let hash_seed = random.next();
    let processors = 1 + random.below(4);
    let environment = Environment {
        clock,
        hash_seed,
        instance: 1,
        processors,
        failures,
        background_threads: 0,
        ..Environment::of_system()
    };
    Node::assemble(config, environment).map_err(|error| error.to_string())
}

fn tenant(name: &str) -> Checked<TenantName> {
    TenantName::new(name).map_err(|error| error.to_string())
}

async fn turns_of_others(turns: usize) {
    for _ in 0..turns {
        yield_now().await;
    }
}

//! The simulated world: a node without threads, its clients, the owners of its tables, and the seed that
//! decides what happens next.
//!
//! Everything runs on one thread. Tasks of the runtime take turns in a fixed order, and nothing in a run waits
//! for real time to pass.

use crate::client::{Checked, Client, token_of};
use crate::clock::SimClock;
use crate::loads::{self, Loading};
use crate::log::Log;
use crate::model::Model;
use crate::random::Random;
use farpool_model::{TableName, TenantName};
use farpool_node::{Caller, Environment, Node, NodeConfig, Tokens, server};
use farpool_pipeline::{Attempt, Class};
use farpool_wire::Socket;
use farpool_wire::socket::pipe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::{JoinHandle, yield_now};

const TENANTS: [&str; 2] = ["ada", "bob"];
const TABLES: [&str; 3] = ["orders", "parts", "prices"];

/// Events of a run before everybody comes to an end.
const EVENTS: std::ops::Range<usize> = 100..700;

const CLIENTS_MAX: usize = 6;

/// Rounds in which nothing happens after which an answer that has not come never will.
const QUIET_ROUNDS: usize = 50;

/// A tick of connections: longer than any run, for ticks come by real time.
const TICK: Duration = Duration::from_secs(24 * 3600);

/// See the file's comment.
pub struct World {
    random: Random,
    clock: Arc<SimClock>,
    node: Arc<Node>,
    owners: Vec<Caller>,
    models: Vec<Model>,
    clients: Vec<Client>,
    clients_seen: usize,
    loads: Vec<Loading>,
    sockets: UnboundedSender<Arc<dyn Socket>>,
    serving: JoinHandle<farpool_model::Result<()>>,
    /// The pool may be too small for the tables.
    tight: bool,
    rows_max: usize,
    programs: u64,
}

impl World {
    /// The world of `seed`, on the current runtime.
    pub fn new(seed: u64) -> Checked<Self> {
        let mut random = Random::new(seed);
        let clock = Arc::new(SimClock::new(random.next()));
        let tight = random.chance(30);
        let memory_bytes = if tight { (2 + random.below(12)) << 20 } else { 512 << 20 };
        let rows_max = if random.chance(5) { 150_000 } else { 6_000 };
        let node = start_node(&mut random, clock.clone(), memory_bytes)?;
        let owners = TENANTS.iter().map(|name| Ok(node.owner(tenant(name)?))).collect::<Checked<Vec<_>>>()?;
        let (sockets, listener) = mpsc::unbounded_channel();
        let serving = server::serve_ticking(node.clone(), listener, std::future::pending(), TICK);
        let serving = tokio::spawn(serving);
        let models = TENANTS.iter().map(|_| Model::default()).collect();
        let (clients, loads) = Default::default();
        let (clients_seen, programs) = (0, 0);
        Ok(World {
            random,
            clock,
            node,
            owners,
            models,
            clients,
            clients_seen,
            loads,
            sockets,
            serving,
            tight,
            rows_max,
            programs,
        })
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// What went wrong first.
    pub async fn run(mut self, log: &mut Log) -> Checked {
        let events = EVENTS.start + self.random.below(EVENTS.len());
        for _ in 0..events {
            log.step += 1;
            self.event(log)?;
            let turns = self.random.magnitude(12);
            turns_of_others(turns).await;
            self.check_accounts()?;
        }
        self.quiesce(log).await?;
        self.end(log).await
    }

    fn event(&mut self, log: &mut Log) -> Checked {
        match self.random.below(100) {
            0..5 => self.connect(log),
            5..17 => self.ask(log),
            17..35 => self.write(),
            35..55 => self.read(log),
            55..60 => self.some_client(log, |client, _, _| client.grant().map(|()| None)),
            60..64 => self.some_client(log, |client, random, _| {
                let cancelled = client.cancel(random)?;
                Ok(cancelled.map(|stream| format!("client {} cancels stream {stream}", client.number)))
            }),
            64..65 => self.some_client(log, |client, _, _| {
                client.leave();
                Ok(Some(format!("client {} ends its side", client.number)))
            }),
            65..66 => self.vanish(log),
            66..76 => self.load(log),
            76..77 => self.drop_table(log),
            77..79 => {
                self.clock.jump(1 << self.random.below(40));
                Ok(())
            }
            _ => {
                let steps = self.random.magnitude(20);
                self.work(steps);
                Ok(())
            }
        }
    }

    fn connect(&mut self, log: &mut Log) -> Checked {
        if self.clients.len() >= CLIENTS_MAX {
            return Ok(());
        }
        // Frames are cut anywhere; large results through the smallest pipes would only take time.
        let bytes_max = self.rows_max / 100 + self.random.magnitude(256 << 10);
        let (ours, theirs) = pipe(bytes_max);
        self.clients_seen += 1;
        let tenant = self.random.below(TENANTS.len());
        log.event(format!(
            "client {} of {} connects through {bytes_max} bytes",
            self.clients_seen, TENANTS[tenant]
        ));
        self.clients.push(Client::new(self.clients_seen, tenant, TENANTS[tenant].to_string(), ours)?);
        self.sockets.send(Arc::new(theirs)).map_err(|_| "the server has ended".to_string())
    }

    fn ask(&mut self, log: &mut Log) -> Checked {
        let table = self.random.pick(&TABLES).to_string();
        self.some_client(log, |client, random, step| {
            let told = client.ask(random, table, step)?;
            Ok(Some(format!("client {} asks for {told}", client.number)))
        })
    }

    fn write(&mut self) -> Checked {
        let Some(index) = self.some_index() else { return Ok(()) };
        let most = self.random.magnitude(64 << 10);
        self.clients[index].write(most).map(drop)
    }

    fn read(&mut self, log: &mut Log) -> Checked {
        let Some(index) = self.some_index() else { return Ok(()) };
        let most = 1 + self.random.magnitude(1 << 20);
        let client = &mut self.clients[index];
        client.read(most, &self.models[client.tenant], log).map(drop)
    }

    /// A client is gone without a word, wherever it was in what it wrote.
    fn vanish(&mut self, log: &mut Log) -> Checked {
        if let Some(index) = self.some_index() {
            let client = self.clients.swap_remove(index);
            log.event(format!("client {} vanishes", client.number));
            self.programs += client.programs;
        }
        Ok(())
    }

    fn load(&mut self, log: &mut Log) -> Checked {
        if self.loads.len() < 3 && (self.loads.is_empty() || self.random.chance(30)) {
            return self.begin_load(log);
        }
        let loading = self.loads.swap_remove(self.random.below(self.loads.len()));
        let tenant = loading.tenant;
        match self.random.below(10) {
            0 => log.event(format!("a load of {} is given up", TENANTS[tenant])),
            1..6 => self.loads.extend(loading.push(&mut self.random, self.rows_max, self.tight)?),
            _ => {
                let told = loading.commit(&mut self.models[tenant], log.step, self.tight)?;
                log.event(format!("{}: {told}", TENANTS[tenant]));
            }
        }
        Ok(())
    }

    fn begin_load(&mut self, log: &mut Log) -> Checked {
        let tenant = self.random.below(TENANTS.len());
        let table = self.random.pick(&TABLES).to_string();
        log.event(format!("{}: a load of {table} begins", TENANTS[tenant]));
        let (owner, model) = (&self.owners[tenant], &self.models[tenant]);
        self.loads.extend(loads::begin(&mut self.random, owner, tenant, model, table)?);
        Ok(())
    }

    fn drop_table(&mut self, log: &mut Log) -> Checked {
        let tenant = self.random.below(TENANTS.len());
        let names = self.models[tenant].names();
        if names.is_empty() {
            return Ok(());
        }
        let table = names[self.random.below(names.len())].clone();
        self.drop_named(tenant, &table, log)
    }

    fn drop_named(&mut self, tenant: usize, table: &str, log: &mut Log) -> Checked {
        log.event(format!("{}: {table} is dropped", TENANTS[tenant]));
        let name = TableName::new(table).map_err(|error| error.to_string())?;
        self.owners[tenant].drop_table(&name).map_err(|error| error.to_string())?;
        self.models[tenant].change(log.step, table, None);
        Ok(())
    }

    fn some_client(
        &mut self,
        log: &mut Log,
        act: impl FnOnce(&mut Client, &mut Random, u64) -> Checked<Option<String>>,
    ) -> Checked {
        let Some(index) = self.some_index() else { return Ok(()) };
        if let Some(told) = act(&mut self.clients[index], &mut self.random, log.step)? {
            log.event(told);
        }
        Ok(())
    }

    fn some_index(&mut self) -> Option<usize> {
        (!self.clients.is_empty()).then(|| self.random.below(self.clients.len()))
    }

    /// Does up to `steps` steps of the node's work; true when there was any.
    fn work(&self, steps: usize) -> bool {
        let scheduler = self.node.scheduler();
        let did = |class| scheduler.try_work(class) == Attempt::Worked;
        (0..steps).take_while(|_| did(Class::Foreground) || did(Class::Background)).count() > 0
    }

    /// What must hold of the node's numbers at any moment.
    fn check_accounts(&self) -> Checked {
        let status = self.node.status();
        let of_tenants: u64 = status.tenants.iter().map(|tenant| tenant.memory_bytes_used).sum();
        if of_tenants != status.memory_bytes_used || status.memory_bytes_used > status.memory_bytes_limit {
            return Err(format!("the accounts of memory are wrong: {status:?}"));
        }
        let tables: usize = self.models.iter().map(|model| model.names().len()).sum();
        if status.tables != tables as u64 {
            return Err(format!("there are {tables} tables, and by the node {}", status.tables));
        }
        match status.connections <= self.clients_seen as u64 {
            true => Ok(()),
            false => Err(format!("there are more connections than clients: {status:?}")),
        }
    }

    /// Everybody reads, writes and works until all requests are answered.
    async fn quiesce(&mut self, log: &mut Log) -> Checked {
        log.event("everybody waits for their answers".into());
        let mut quiet = 0;
        while quiet < QUIET_ROUNDS {
            log.step += 1;
            if self.clients.iter().all(Client::is_done) {
                return Ok(());
            }
            let moved = self.round(log)?;
            quiet = if moved { 0 } else { quiet + 1 };
            turns_of_others(20).await;
        }
        let waiting = self.clients.iter().filter(|client| !client.is_done());
        let told: Vec<String> = waiting.map(Client::waits_for).collect();
        Err(format!("answers never come: {}", told.join("; ")))
    }

    fn round(&mut self, log: &mut Log) -> Checked<bool> {
        let mut moved = self.work(1000);
        for client in &mut self.clients {
            moved |= client.write(usize::MAX)?;
            client.grant()?;
            moved |= client.read(1 << 20, &self.models[client.tenant], log)?;
        }
        Ok(moved)
    }

    /// All clients leave, all loads are given up and all tables dropped: nothing may be left.
    async fn end(mut self, log: &mut Log) -> Checked {
        log.event("everybody leaves".into());
        self.loads.clear();
        self.programs += self.clients.drain(..).map(|client| client.programs).sum::<u64>();
        for _ in 0..QUIET_ROUNDS {
            turns_of_others(20).await;
            self.work(1000);
        }
        self.check_programs()?;
        for tenant in 0..TENANTS.len() {
            for table in self.models[tenant].names() {
                self.drop_named(tenant, &table, log)?;
            }
        }
        self.check_nothing_left()?;
        self.serving.abort();
        Ok(())
    }

    /// A program that was answered is in the totals.
    fn check_programs(&self) -> Checked {
        let counted: u64 = self.node.status().tenants.iter().map(|tenant| tenant.programs).sum();
        match counted >= self.programs {
            true => Ok(()),
            false => {
                Err(format!("{} programs were answered, and {counted} are in the totals", self.programs))
            }
        }
    }

    fn check_nothing_left(&self) -> Checked {
        let status = self.node.status();
        let tasks = self.node.scheduler().running();
        let left = [status.connections, status.programs_running, status.memory_bytes_used, status.tables];
        match tasks == 0 && left == [0; 4] {
            true => Ok(()),
            false => Err(format!("something is left when everybody is gone: {tasks} tasks, {status:?}")),
        }
    }
}

fn start_node(random: &mut Random, clock: Arc<SimClock>, memory_bytes: usize) -> Checked<Arc<Node>> {
    let lines: Vec<String> = TENANTS.iter().map(|name| format!("{} {name}", token_of(name))).collect();
    let tokens = Tokens::parse(&lines.join("\n")).map_err(|error| error.to_string())?;
    let weights = [(tenant(TENANTS[0])?, 1 + random.below(5) as u32)].into();
    let config = NodeConfig { memory_bytes, workers: 0, tokens: Some(tokens), weights };
    let hash_seed = random.next();
    let environment =
        Environment { clock, hash_seed, processors: 1 + random.below(4), ..Environment::of_system() };
    let node = Node::assemble(config, environment).map_err(|error| error.to_string())?;
    // Profiles are made by threads.
    node.close_taps();
    Ok(node)
}

fn tenant(name: &str) -> Checked<TenantName> {
    TenantName::new(name).map_err(|error| error.to_string())
}

async fn turns_of_others(turns: usize) {
    for _ in 0..turns {
        yield_now().await;
    }
}

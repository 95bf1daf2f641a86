//! The node without its sockets: the memory pool, the catalog of tables, the scheduler, worker threads and usage
//! totals. Clients reach all of it through a [`Caller`].
//!
//! Worker threads hold a reference to the scheduler and none to the node, so that the node shuts down and ends its
//! workers when its last owner drops it.

use crate::access::{Access, Grant, Proof};
use crate::admission::WAITING_PART;
use crate::background::BackgroundThreads;
use crate::caller::Caller;
use crate::clock::SystemClock;
use crate::cpu_placement::CpuPlacement;
use crate::disk::{DiskJobs, DiskThreads};
use crate::key_controls::KeyControls;
use crate::precedence::{self, Precedence};
use crate::queries::{Identity, Queries};
use crate::rights::Right;
use crate::shares::{ConnectionSeat, Connections, Port, Shares};
use crate::threads::ScopedThreads;
use crate::totals::Totals;
use farpool_catalog::{AccessTrace, Catalog, Recovery};
use farpool_disk::{Directory, LogOver};
use farpool_keystore::{Fsync, KeyLog, KeyLogOptions, KeysFound, Keyspaces, LogThresholds, has_keys};
use farpool_memory::{Account, Failures, Pool, PoolConfig, WorkMemory};
use farpool_model::{Clock, Error, Result, Status, TenantName, cast, limits, status::TenantStatus};
use farpool_pipeline::{Budget, HashKey, Scheduler, WorkerThread};
use farpool_wire::ServerTls;
use farpool_wire::sealed::PrivateKey;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Interval at which a connection checks whether the access token of its client has expired.
const PASS_TICK: Duration = Duration::from_millis(500);

/// Configuration of a node that its operator chooses: sizes of memory, number of threads, access, data directory.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Bytes of memory for tables; rounded down to whole pages.
    pub memory_bytes: usize,
    /// Budget of the memory outside the pool (memory for work). May be shared with other parts of the process.
    pub work: Arc<WorkMemory>,
    /// Number of worker threads, which execute the steps of programs. With 0, the node's owner must execute the steps.
    pub workers: usize,
    /// Tokens of clients, and limits of tenants.
    pub access: Access,
    /// Data directory that makes tables and views durable; with `None`, they are in memory only.
    pub data: Option<Arc<dyn Directory>>,
    /// Durability mode of keys in `data`; with `None`, changes of keys are not logged. If `data` contains keys, they
    /// are read in any case.
    pub keys: Option<Fsync>,
    /// Bytes of the log of tables after which a checkpoint is made. Limits the time of recovery.
    pub log_bytes: usize,
    /// Records which values in `data` programs access, for measurements of the pool as a cache.
    pub trace: Option<Arc<AccessTrace>>,
    /// Whether concurrent programs over the same table share scans; turned off only for measurements.
    pub share_scans: bool,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig {
            memory_bytes: 0,
            work: WorkMemory::new(limits::WORK_BYTES_DEFAULT),
            workers: 0,
            access: Access::of_everybody(),
            data: None,
            keys: None,
            log_bytes: limits::LOG_BYTES_DEFAULT,
            trace: None,
            share_scans: true,
        }
    }
}

/// Resources that a node gets from the system or, in tests, from a simulation: clock, random numbers, threads, faults.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Clock that measures the work charged to tenants and the times in execution statistics
    /// ([`farpool_model::Receipt`]).
    pub clock: Arc<dyn Clock>,
    /// Seed of the hash functions of programs and keys. Clients must not be able to guess it, because they could choose
    /// values with equal hashes.
    pub hash_seed: u64,
    /// Id of this process, never 0. It tells clients that outcomes of earlier loads are unknown after a restart. A node
    /// with a data directory uses the id of that directory instead.
    pub instance: u64,
    /// Number of processors; a node without workers expects as many threads of its owner to step programs.
    pub processors: usize,
    /// Maximum bytes for the groups (of GROUP BY) of one program, if that is less than the part of the memory outside
    /// the pool that a program may take.
    pub group_bytes: usize,
    /// Maximum number of low-priority threads that a node without workers starts for background work. 0 in a
    /// simulation, which does that work itself.
    pub background_threads: usize,
    /// Whether the node starts threads that wait for the disk. A simulation does their work itself
    /// ([`crate::SteppedDisk`]).
    pub disk_threads: bool,
    /// Makes allocations in the pool fail, for simulations.
    pub failures: Option<Arc<dyn Failures>>,
    /// Function that makes the log of changes of tables from the log in the data directory: the log itself or, with
    /// replicas, a log that replicates it.
    pub log_over: LogOver,
}

impl Environment {
    /// Returns the environment of a node in production: the system's clock and random numbers, and threads for all
    /// work.
    pub fn of_system() -> Self {
        Environment {
            clock: Arc::new(SystemClock::new()),
            // The random seeds of the standard library's hash maps are unpredictable enough.
            hash_seed: RandomState::new().hash_one(()),
            instance: RandomState::new().hash_one(()).max(1),
            processors: std::thread::available_parallelism().map_or(1, NonZero::get),
            group_bytes: usize::MAX,
            background_threads: std::thread::available_parallelism().map_or(1, NonZero::get),
            disk_threads: true,
            failures: None,
            log_over: LogOver::default(),
        }
    }
}

/// A memory node: the server's state without its sockets, that is, the memory pool, the catalog of tables, the keys,
/// the scheduler and the worker threads.
pub struct Node {
    pool: Arc<Pool>,
    work: Arc<WorkMemory>,
    /// Budget of the plans of programs that wait for a turn, a part of `work` (see [`WAITING_PART`]).
    places: Arc<WorkMemory>,
    catalog: Arc<Catalog>,
    scheduler: Arc<Scheduler>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    workers_count: usize,
    precedence: Arc<Precedence>,
    share_scans: bool,
    budget: Budget,
    access: watch::Sender<Arc<Access>>,
    /// The key of the tickets of servers in this process (see [`Node::allow_tickets`]).
    tickets: OnceLock<[u8; 32]>,
    tls: Mutex<Option<ServerTls>>,
    node_key: Mutex<Option<Arc<PrivateKey>>>,
    shares: Arc<Shares>,
    keyspaces: Arc<Keyspaces>,
    key_controls: KeyControls,
    keys_found: Option<KeysFound>,
    totals: Totals,
    queries: Arc<Queries>,
    connections: Arc<Connections>,
    programs: AtomicU64,
    clock: Arc<dyn Clock>,
    started_ns: u64,
    instance: u64,
    disk: Mutex<Option<DiskThreads>>,
    recovery: Option<Recovery>,
}

impl Node {
    /// Starts a node: reserves the memory of the pool, opens the data directory and starts the threads.
    ///
    /// # Errors
    /// `Invalid` when there is too little memory for work; errors of the system when memory or threads are lacking;
    /// errors of [`Catalog::open`] for the data directory.
    pub fn start(config: NodeConfig) -> Result<Arc<Self>> {
        Node::assemble(config, Environment::of_system())
    }

    /// Starts a node that allows the groups of one program at most `group_bytes` bytes. Groups that do not fit are sent
    /// in parts, which the client must merge.
    ///
    /// # Errors
    /// Errors of [`Node::start`].
    pub fn start_within(config: NodeConfig, group_bytes: usize) -> Result<Arc<Self>> {
        Node::assemble(config, Environment { group_bytes, ..Environment::of_system() })
    }

    /// Starts a node in a given environment; a simulation passes a deterministic one.
    ///
    /// # Errors
    /// Errors of [`Node::start`].
    pub fn assemble(config: NodeConfig, environment: Environment) -> Result<Arc<Self>> {
        let Environment { clock, hash_seed, instance, processors, group_bytes, .. } = environment;
        let Environment { background_threads, disk_threads, failures, log_over, .. } = environment;
        // Without workers, threads of the node's owner step programs, one per processor.
        let workers_expected = if config.workers > 0 { config.workers } else { processors };
        check_work(config.work.limit())?;
        let pool = Pool::failing(PoolConfig { bytes_limit: config.memory_bytes }, failures)?;
        let work = config.work;
        let state_bytes_max = group_bytes.min(work.limit() / limits::GROUPS_PART);
        let scheduler = Scheduler::new(clock.clone());
        let (cpu_placement, precedence) =
            (Arc::new(CpuPlacement::new(config.workers)), Arc::<Precedence>::default());
        let workers = (0..config.workers)
            .map(|index| start_worker(index, scheduler.clone(), cpu_placement.clone(), precedence.clone()))
            .collect::<Result<Vec<_>>>()
            .inspect_err(|_| scheduler.shutdown())?;
        let threads = (config.workers == 0 && background_threads > 0)
            .then(|| BackgroundThreads::new(scheduler.clone(), background_threads));
        let new_jobs = || Arc::new(DiskJobs { is_stepped: !disk_threads, ..DiskJobs::default() });
        let jobs = config.data.is_some().then(new_jobs);
        let shares = Arc::new(Shares::new(scheduler.clone(), threads, jobs.clone()));
        let catalog = Catalog::new(pool.clone(), Arc::new(ScopedThreads), shares.clone());
        let catalog = catalog.within(work.clone()).with_log_bytes(cast::u64_from(config.log_bytes));
        let catalog = Arc::new(catalog.with_trace(config.trace).with_log(log_over));
        let data = config.data.clone();
        let opened = config.data.map(|data| catalog.open(data, instance)).transpose();
        let recovery = opened.inspect_err(|_| scheduler.shutdown())?;
        if let Some(recovery) = &recovery {
            for (tenant, loads) in &recovery.loads {
                shares.outcomes(tenant).restore(loads, &work.account(tenant), clock.now_ns());
            }
        }
        let jobs = jobs.filter(|_| disk_threads);
        let disk = jobs.map(|jobs| DiskThreads::start(&catalog, &jobs)).transpose();
        let disk = disk.inspect_err(|_| scheduler.shutdown())?;
        catalog.preload();
        let keyspaces = Arc::new(Keyspaces::new(&pool, processors, hash_seed, &clock));
        let key_controls = KeyControls::new(keyspaces.time().now_ms());
        let keys_found = match data {
            Some(data) => open_keys(data, config.keys, &keyspaces, &clock, (instance, processors)),
            None => Ok(None),
        };
        let keys_found = keys_found.inspect_err(|_| scheduler.shutdown())?;
        let node = Arc::new(Node {
            catalog,
            keyspaces,
            key_controls,
            keys_found,
            pool,
            places: WorkMemory::new(work.limit() / WAITING_PART),
            work,
            scheduler,
            workers: Mutex::new(workers),
            workers_count: config.workers,
            precedence,
            share_scans: config.share_scans,
            budget: Budget { state_bytes_max, workers: workers_expected, hash_key: HashKey::new(hash_seed) },
            access: watch::Sender::new(Arc::new(Access::of_nobody())),
            tickets: OnceLock::new(),
            tls: Mutex::default(),
            node_key: Mutex::default(),
            shares,
            totals: Totals::default(),
            queries: Arc::default(),
            connections: Arc::default(),
            programs: AtomicU64::new(0),
            started_ns: clock.now_ns(),
            clock,
            instance: recovery.as_ref().map_or(instance, |recovery| recovery.node),
            disk: Mutex::new(disk),
            recovery,
        });
        node.set_access(config.access);
        Ok(node)
    }

    /// Changes which tokens are valid and the limits of tenants. Clients whose token is no longer valid, or has other
    /// rights now, are disconnected. What a tenant already has beyond a new limit stays until it ends.
    pub fn set_access(&self, access: Access) {
        let before = self.access.borrow().clone();
        let tenants: BTreeSet<&TenantName> = before.tenants().chain(access.tenants()).collect();
        for tenant in tenants {
            let limits = access.limits(tenant);
            self.pool.set_quota(tenant, limits.pool_bytes_max);
            self.catalog.set_disk_quota(tenant, limits.disk_bytes_max);
            self.work.set_tenant_limit(tenant, limits.work_bytes_max);
            let places = limits.work_bytes_max.map(|bytes| bytes / WAITING_PART);
            self.places.set_tenant_limit(tenant, places);
            self.shares.set_limits(tenant, limits);
        }
        self.access.send_replace(Arc::new(access));
    }

    /// Enables TLS with this certificate for connections accepted from now on. Without this call, connections are not
    /// encrypted.
    pub fn set_tls(&self, tls: ServerTls) {
        *self.tls.lock() = Some(tls);
    }

    pub(crate) fn tls(&self) -> Option<ServerTls> {
        self.tls.lock().clone()
    }

    /// Returns the caller for a client with this access token. The token is checked once, here, and not at each
    /// request.
    ///
    /// # Errors
    /// `Denied` when the node requires a token and `token` is not valid.
    pub fn caller(self: &Arc<Self>, token: Option<&str>) -> Result<Caller> {
        let (caller, pass) = self.admit(token)?;
        let token = pass.token_name().map(str::to_string);
        Ok(caller.known_as(Identity { token, ..Identity::default() }))
    }

    /// Authenticates a token. Returns the caller, and an [`AccessPass`] that tells when the connection must end.
    ///
    /// # Errors
    /// Errors of [`Node::caller`].
    pub(crate) fn admit(self: &Arc<Self>, token: Option<&str>) -> Result<(Caller, AccessPass)> {
        let mut access = self.access.subscribe();
        let clock = self.clock.clone();
        let (known, now_s) = (access.borrow_and_update().clone(), clock.unix_s());
        let ticket = match (token, self.tickets.get()) {
            (Some(ticket), Some(key)) => known.admit_ticket(ticket, key, now_s)?,
            _ => None,
        };
        let grant = ticket.map_or_else(|| known.admit(token, now_s), Ok)?;
        Ok((
            Caller::new(self.clone(), grant.tenant.clone(), grant.right),
            AccessPass { clock, access, grant },
        ))
    }

    /// Allows a server in this process, whose own clients need not send their tokens, to ask for them with tickets
    /// ([`Node::proof`]). They are made with `key`, which must be random.
    pub fn allow_tickets(&self, key: [u8; 32]) {
        self.tickets.get_or_init(|| key);
    }

    /// Returns the proof that a server in this process asks of its client with the token of this name; `None` if the
    /// client has to send the token.
    ///
    /// # Errors
    /// `Internal` only on a bug.
    pub fn proof(&self, name: &str) -> Result<Option<Proof>> {
        let access = self.access.borrow().clone();
        self.tickets.get().map_or(Ok(None), |key| access.proof(name, key))
    }

    /// Returns whether clients need no token.
    pub(crate) fn is_open(&self) -> bool {
        self.access.borrow().is_open()
    }

    /// Returns whether `text` is a valid token of this node.
    pub(crate) fn has_token(&self, text: &str) -> bool {
        let access = self.access.borrow().clone();
        access.has_token(text)
    }

    /// Returns a caller with every right that acts for `tenant`, for the process that owns the node.
    pub fn owner(self: &Arc<Self>, tenant: TenantName) -> Caller {
        Caller::new(self.clone(), tenant, Right::Admin)
    }

    /// Disables computing profiles (statistics) in the background for loads that start after this call. A profile is
    /// then computed at the first request.
    pub fn close_taps(&self) {
        self.catalog.close_taps();
    }

    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Returns the budget of the memory outside the pool (memory for work).
    pub fn work(&self) -> &Arc<WorkMemory> {
        &self.work
    }

    /// Returns the account of `tenant` in the budget of memory outside the pool.
    pub(crate) fn account(&self, tenant: &TenantName) -> Account {
        self.work.account(tenant)
    }

    /// Returns the account from which memory for the plans of waiting programs of `tenant` is reserved.
    pub(crate) fn places(&self, tenant: &TenantName) -> Account {
        self.places.account(tenant)
    }

    /// Returns the scheduler, which divides the time of the node's threads among all tasks. The owner of a node without
    /// workers calls it to execute steps of tasks.
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the flag that makes workers yield the CPU to threads that serve Redis clients.
    pub(crate) fn precedence(&self) -> &Precedence {
        &self.precedence
    }

    /// Returns the keyspaces of all tenants.
    pub fn keyspaces(&self) -> &Arc<Keyspaces> {
        &self.keyspaces
    }

    /// Returns the node's state about keyspaces: pauses of commands, locks of schemas, version numbers for reads by
    /// SQL.
    pub(crate) fn key_controls(&self) -> &KeyControls {
        &self.key_controls
    }

    /// Returns a summary of the keys that were read from the data directory; `None` if there is no log of keys.
    pub fn keys_found(&self) -> Option<&KeysFound> {
        self.keys_found.as_ref()
    }

    /// Returns the list of running programs of clients.
    pub(crate) fn queries(&self) -> &Arc<Queries> {
        &self.queries
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns a summary of the recovery from the data directory; `None` if the node has none.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// Returns the id of the data directory or, without one, of this process.
    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }

    /// Returns the bytes of memory outside the pool that results of finished requests take: outcomes of loads, and
    /// cached filter results.
    pub fn remembered_bytes(&self) -> u64 {
        cast::u64_from(self.shares.remembered_bytes())
    }

    /// Drops old outcomes of loads, and cached filter results of row groups that no longer exist.
    pub(crate) fn forget_old(&self) {
        self.shares.forget_old(self.clock.now_ns());
    }

    /// Returns the per-tenant state of all tenants.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Returns whether concurrent programs over the same table share scans.
    pub(crate) fn shares_scans(&self) -> bool {
        self.share_scans
    }

    /// Counts a program as running, until [`Node::run_ends`].
    pub(crate) fn run_begins(&self) {
        self.programs.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a program that [`Node::run_begins`] has counted as ended.
    pub(crate) fn run_ends(&self) {
        self.programs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the state of the node, including all tenants.
    pub fn status(&self) -> Status {
        let usage = self.pool.usage();
        let work = self.work.usage();
        let tenants = self.tenants(&usage.tenants, &work.tenants);
        Status {
            version: env!("CARGO_PKG_VERSION").to_string(),
            memory_bytes_limit: usage.bytes_limit,
            memory_bytes_used: usage.bytes_used,
            work_bytes_limit: work.bytes_limit,
            work_bytes_used: work.bytes_used,
            work_bytes_used_most: work.bytes_used_most,
            page_bytes: cast::u64_from(limits::PAGE_BYTES),
            huge_pages: usage.huge_pages.name().to_string(),
            tables: tenants.iter().map(|t| t.tables).sum(),
            connections: cast::u64_from(self.connections.count()),
            programs_running: self.programs.load(Ordering::Relaxed),
            workers: cast::u64_from(self.workers_count),
            uptime_s: self.clock.now_ns().saturating_sub(self.started_ns) / 1_000_000_000,
            tenants,
        }
    }

    /// Returns the state of the node, without information about tenants other than `tenant`.
    pub(crate) fn status_for(&self, tenant: &TenantName) -> Status {
        let mut status = self.status();
        status.tenants.retain(|t| t.tenant == tenant.as_str());
        status.tables = status.tenants.iter().map(|t| t.tables).sum();
        status
    }

    /// Shuts the node down: ends running programs with an error, blocks until the workers have ended, and closes the
    /// data directory.
    pub fn shutdown(&self) {
        self.scheduler.shutdown();
        let own = std::thread::current().id();
        for worker in self.workers.lock().drain(..) {
            // A worker must not join itself, and a worker may be the thread that drops the node, with the last program.
            if worker.thread().id() == own {
                continue;
            }
            if worker.join().is_err() {
                tracing::error!("a worker had panicked");
            }
        }
        let disk = self.disk.lock().take();
        if disk.is_some()
            && let Some(log) = self.keyspaces.log()
            && let Err(error) = log.close(&self.keyspaces, self.clock.unix_s())
        {
            tracing::error!(%error, "the log of keys was not closed as it should be");
        }
        if let Some(disk) = disk {
            disk.stop();
        }
    }

    /// Sets the private key with which the node proves its identity to clients that request sealed (end-to-end
    /// encrypted) results.
    pub fn set_node_key(&self, key: PrivateKey) {
        *self.node_key.lock() = Some(Arc::new(key));
    }

    /// Returns the private key of the node; `None` if none was set.
    pub(crate) fn node_key(&self) -> Option<Arc<PrivateKey>> {
        self.node_key.lock().clone()
    }

    /// Counts a new connection of `tenant` until the guard is dropped.
    ///
    /// # Errors
    /// `OverLimit` when the tenant or the port has too many connections. A part of the port's connections is reserved
    /// for tenants that have few, so that no tenant can lock others out.
    pub(crate) fn connect(&self, tenant: &TenantName, port: Port) -> Result<ConnectionGuard> {
        let of_tenant = self.shares.connect(tenant, port)?;
        let limit = match port {
            Port::Native => limits::CONNECTIONS_MAX,
            Port::Redis => limits::RESP_CONNECTIONS_MAX,
        };
        let has_few = of_tenant.count_at_port() <= limit / limits::CONNECTIONS_FEW_PART;
        // Nothing is reserved at a node without tokens, which has a single tenant.
        let reserved = if has_few || self.is_open() { 0 } else { limit / limits::CONNECTIONS_RESERVED_PART };
        match ConnectionSeat::take(&self.connections, port, (usize::MAX, limit - reserved)) {
            Some(of_node) => Ok(ConnectionGuard { _seats: (of_tenant, of_node) }),
            None => Err(Error::over_limit(format!("the pool serves {limit} connections at once"))
                .advise("close some, or try again later")),
        }
    }

    fn tenants(&self, memory: &[(TenantName, u64)], work: &[(TenantName, u64)]) -> Vec<TenantStatus> {
        let totals = self.totals.get();
        let mut names = self.catalog.tenant_names();
        names.extend(totals.keys().cloned());
        names.extend(memory.iter().map(|(name, _)| name.clone()));
        let access = self.access.borrow().clone();
        names.extend(access.tenants().cloned());
        names.sort();
        names.dedup();
        let bytes_of = |name: &TenantName, use_of_all: &[(TenantName, u64)]| {
            use_of_all.iter().find(|(tenant, _)| tenant == name).map_or(0, |(_, bytes)| *bytes)
        };
        let status = |name: TenantName| {
            let total = totals.get(&name).copied().unwrap_or_default();
            let limits = access.limits(&name);
            let count = |limit: NonZero<usize>| cast::u64_from(limit.get());
            TenantStatus {
                weight: limits.weight,
                memory_bytes_limit: limits.pool_bytes_max.map(cast::u64_from),
                work_bytes_limit: limits.work_bytes_max.map(cast::u64_from),
                programs_limit: limits.programs_max.map(count),
                // Without a limit on running programs, no program waits for its turn.
                programs_waiting_limit: limits
                    .programs_max
                    .map(|_| cast::u64_from(limits.programs_waiting_max)),
                result_bytes_limit: limits.result_bytes_max,
                connections_limit: limits.connections_max.map(count),
                memory_bytes_used: bytes_of(&name, memory),
                work_bytes_used: bytes_of(&name, work),
                tables: cast::u64_from(self.catalog.tables(&name).len()),
                programs: total.programs,
                bytes_scanned: total.bytes_scanned,
                cpu_ns: total.cpu_ns,
                tenant: name.into(),
            }
        };
        names.into_iter().map(status).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("workers", &self.workers_count).finish_non_exhaustive()
    }
}

/// The authorization of one connection: tells when the connection must end because its token is no longer valid.
pub(crate) struct AccessPass {
    clock: Arc<dyn Clock>,
    access: watch::Receiver<Arc<Access>>,
    grant: Grant,
}

impl AccessPass {
    /// Returns the name of the client's token; `None` if it needs none.
    pub fn token_name(&self) -> Option<&str> {
        self.grant.name.as_deref()
    }

    /// Waits until the client's token has expired or was changed or removed; returns the error to close the connection
    /// with.
    pub async fn ended(&mut self) -> Error {
        loop {
            let confirmed = self.access.borrow_and_update().confirm(&self.grant, self.clock.unix_s());
            if let Err(error) = confirmed {
                return error;
            }
            // Sleeps for a short time only, because the system's time of day may be changed.
            let tick = async {
                match self.grant.until {
                    Some(_) => sleep(PASS_TICK).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tick => {}
                changed = self.access.changed() => {
                    if changed.is_err() {
                        // The node was dropped, so the token cannot be changed any more.
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
    }
}

/// A guard that counts an open connection of the node and of a tenant until it is dropped.
pub(crate) struct ConnectionGuard {
    _seats: (ConnectionSeat, ConnectionSeat),
}

/// Opens the log of keys in a data directory and reads the keys; returns `None` if `fsync` is `None` and the directory
/// contains no keys.
fn open_keys(
    directory: Arc<dyn Directory>,
    fsync: Option<Fsync>,
    keyspaces: &Arc<Keyspaces>,
    clock: &Arc<dyn Clock>,
    (instance, threads): (u64, usize),
) -> Result<Option<KeysFound>> {
    if fsync.is_none() && !has_keys(&directory)? {
        return Ok(None);
    }
    let (fsync, thresholds) = (fsync.unwrap_or_default(), LogThresholds::default());
    // The id of the log must differ from that of the log of tables.
    let opening = KeyLogOptions {
        directory,
        fsync,
        thresholds,
        new_log: !instance,
        threads,
        log_over: LogOver::default(),
    };
    KeyLog::open(opening, keyspaces, clock.clone()).map(|(_, found)| Some(found))
}

fn check_work(bytes: usize) -> Result<()> {
    let (least, given) = (limits::WORK_BYTES_MIN, bytes);
    if given >= least {
        return Ok(());
    }
    let size = |bytes: usize| farpool_memory::size_text(cast::u64_from(bytes));
    Err(Error::invalid(format!("a pool needs {} of memory for work, not {}", size(least), size(given)))
        .advise("give it more: --work-memory 256MiB"))
}

#[expect(clippy::disallowed_methods, reason = "the node is where threads come from")]
fn start_worker(
    index: usize,
    scheduler: Arc<Scheduler>,
    cpu_placement: Arc<CpuPlacement>,
    precedence: Arc<Precedence>,
) -> Result<JoinHandle<()>> {
    let seated = PlacedWorker { cpu_placement, index, precedence, has_stepped_back: Cell::new(false) };
    std::thread::Builder::new()
        .name(format!("farpool-worker-{index}"))
        .spawn(move || work(&scheduler, &seated))
        .map_err(|error| Error::internal(format!("cannot start worker thread {index}: {error}")))
}

/// A worker thread, as the scheduler sees it, and the CPU that it occupies.
struct PlacedWorker {
    cpu_placement: Arc<CpuPlacement>,
    index: usize,
    precedence: Arc<Precedence>,
    has_stepped_back: Cell<bool>,
}

impl WorkerThread for PlacedWorker {
    /// Returns whether the worker does background work. The first of several workers does none, so that a request need
    /// not wait for a step of background work to end.
    fn works_in_background(&self) -> bool {
        self.index > 0 || self.cpu_placement.count() == 1
    }

    fn begin(&self) {
        if self.precedence.are_answers_first() && !self.has_stepped_back.replace(true) {
            precedence::step_back();
        }
        self.cpu_placement.take(self.index);
    }

    fn rest(&self) {
        self.cpu_placement.leave(self.index);
    }
}

fn work(scheduler: &Scheduler, thread: &PlacedWorker) {
    // A panic is a bug in the operators of one program and must not end the worker thread, which other programs need.
    let step = || scheduler.work(thread);
    while catch_unwind(AssertUnwindSafe(step)).unwrap_or(true) {}
}

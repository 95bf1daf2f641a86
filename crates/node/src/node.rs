//! The node without its sockets: pool, catalog, scheduler, worker threads and totals.
//!
//! The workers hold nothing of the node but the scheduler, so that the node ends, and they with it, when
//! its last owner lets go.

use crate::clock::{self, Stopwatch, SystemClock};
use crate::seats::Seats;
use crate::tokens::Tokens;
use crate::totals::Totals;
use arrow_array::RecordBatch;
use farpool_columns::RowGroup;
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{
    Error, Prepared, Program, Receipt, Result, Status, TenantName, cast, limits, status::TenantStatus,
};
use farpool_pipeline::{Budget, HashKey, Region, Run, Scheduler, Sink, WorkerThread};
use farpool_store::Catalog;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// What a node is made of.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Memory for tables; rounded down to whole pages.
    pub memory_bytes: usize,
    /// Threads that run programs. None is allowed: then only runs that their owner steps make progress.
    pub workers: usize,
    /// Who may connect; everyone, as the default tenant, when there are none.
    pub tokens: Option<Tokens>,
}

/// A memory node.
pub struct Node {
    pool: Arc<Pool>,
    catalog: Arc<Catalog>,
    scheduler: Arc<Scheduler>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    workers_count: usize,
    budget: Budget,
    tokens: Option<Tokens>,
    totals: Arc<Totals>,
    connections: AtomicU64,
    started: Stopwatch,
}

impl Node {
    /// Reserves the memory and starts the workers.
    ///
    /// # Errors
    /// What the system says about the memory or the threads.
    pub fn start(config: NodeConfig) -> Result<Arc<Self>> {
        Node::start_within(config, limits::GROUP_BYTES_MAX)
    }

    /// The same with `group_bytes` for the groups of one program; what may not fit leaves in parts, for the
    /// client to merge.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_within(config: NodeConfig, group_bytes: usize) -> Result<Arc<Self>> {
        // Without workers, threads of the owner do the work: as many as there are processors.
        let threads = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let workers_expected = if config.workers > 0 { config.workers } else { threads() };
        let pool = Pool::new(PoolConfig { bytes_limit: config.memory_bytes })?;
        let scheduler = Scheduler::new(Arc::new(SystemClock::new()));
        let seats = Arc::new(Seats::new(config.workers));
        let workers = (0..config.workers)
            .map(|index| start_worker(index, scheduler.clone(), seats.clone()))
            .collect::<Result<Vec<_>>>()
            .inspect_err(|_| scheduler.shutdown())?;
        Ok(Arc::new(Node {
            catalog: Arc::new(Catalog::new(pool.clone())),
            pool,
            scheduler,
            workers: Mutex::new(workers),
            workers_count: config.workers,
            budget: Budget {
                state_bytes_max: group_bytes,
                workers: workers_expected,
                // The system gives these keys, for hash tables as well.
                hash_key: HashKey::new(RandomState::new().hash_one(())),
            },
            tokens: config.tokens,
            totals: Arc::default(),
            connections: AtomicU64::new(0),
            started: Stopwatch::start(),
        }))
    }

    /// What each program may use.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// The tables.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// How far each operator of `program` would be carried out on the table as it is now.
    ///
    /// # Errors
    /// `NotFound` for the table, or what is wrong with the program.
    pub fn prepare(&self, tenant: &TenantName, program: &Program) -> Result<Prepared> {
        let (version, table) = self.catalog.get(tenant, &program.table)?;
        farpool_pipeline::prepare_within(program, &table, version, self.budget)
    }

    /// Binds `program` to the newest version of its table. Nothing runs until somebody steps the run or
    /// gives it to [`Node::submit`].
    ///
    /// # Errors
    /// `NotFound` for the table, or what is wrong with the program.
    pub fn start_run(&self, tenant: &TenantName, program: &Program) -> Result<Arc<Run>> {
        let (version, table) = self.catalog.get(tenant, &program.table)?;
        let prepared = farpool_pipeline::prepare_within(program, &table, version, self.budget)?;
        Run::start_within(prepared, table, self.budget)
    }

    /// Has the workers run `run` within the share of `region`; `sink` gets its batches and in the end its
    /// receipt.
    pub fn submit(&self, tenant: &TenantName, region: &Arc<Region>, run: Arc<Run>, sink: Arc<dyn Sink>) {
        let accounted = Accounted {
            sink,
            run: run.clone(),
            tenant: tenant.clone(),
            totals: self.totals.clone(),
            watch: Stopwatch::start(),
        };
        self.scheduler.submit_to(region, run, Arc::new(accounted));
    }

    /// Adds a program that its owner stepped to the totals of `tenant`; `finished` says whether it ran to
    /// its end.
    pub fn record(&self, tenant: &TenantName, receipt: &Receipt, finished: bool) {
        self.totals.add(tenant, receipt, finished);
    }

    /// Tells the workers that a sink has room again, or that a run was cancelled.
    pub fn wake(&self) {
        self.scheduler.wake();
    }

    /// The tenant of a client that shows `token`.
    ///
    /// # Errors
    /// `Denied` when the node asks for tokens and this is none of them.
    pub fn tenant(&self, token: Option<&str>) -> Result<TenantName> {
        match &self.tokens {
            Some(tokens) => tokens.tenant(token),
            None => Ok(TenantName::default()),
        }
    }

    /// The state of the node, all tenants included.
    pub fn status(&self) -> Status {
        let usage = self.pool.usage();
        let tenants = self.tenants(&usage.tenants);
        Status {
            version: env!("CARGO_PKG_VERSION").to_string(),
            memory_bytes_limit: usage.bytes_limit,
            memory_bytes_used: usage.bytes_used,
            page_bytes: cast::u64_from(limits::PAGE_BYTES),
            huge_pages: usage.huge_pages.name().to_string(),
            tables: tenants.iter().map(|t| t.tables).sum(),
            connections: self.connections.load(Ordering::Relaxed),
            programs_running: cast::u64_from(self.scheduler.running()),
            workers: cast::u64_from(self.workers_count),
            uptime_s: self.started.elapsed_s(),
            tenants,
        }
    }

    /// The state of the node as `tenant` may see it: where tokens keep tenants apart, without the others.
    pub fn status_for(&self, tenant: &TenantName) -> Status {
        let mut status = self.status();
        if self.tokens.is_some() {
            status.tenants.retain(|t| t.tenant == tenant.as_str());
            status.tables = status.tenants.iter().map(|t| t.tables).sum();
        }
        status
    }

    /// Ends the workers and waits for them. Programs that are running end with an error.
    pub fn shutdown(&self) {
        self.scheduler.shutdown();
        let own = std::thread::current().id();
        for worker in self.workers.lock().drain(..) {
            // The last owner may be a program that a worker lets go of: that worker cannot wait for itself.
            if worker.thread().id() == own {
                continue;
            }
            if worker.join().is_err() {
                tracing::error!("a worker had panicked");
            }
        }
    }

    /// Counts a connection for as long as the guard lives.
    ///
    /// # Errors
    /// `OverLimit` when there are too many.
    pub(crate) fn connect(self: &Arc<Self>) -> Result<ConnectionGuard> {
        let limit = cast::u64_from(limits::CONNECTIONS_MAX);
        let more = |open: u64| (open < limit).then_some(open + 1);
        let admitted = self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match admitted {
            Ok(_) => Ok(ConnectionGuard(self.clone())),
            Err(_) => Err(Error::over_limit(format!("the pool serves {limit} connections at once"))
                .advise("close some, or try again later")),
        }
    }

    fn tenants(&self, memory: &[(TenantName, u64)]) -> Vec<TenantStatus> {
        let totals = self.totals.get();
        let mut names = self.catalog.tenant_names();
        names.extend(totals.keys().cloned());
        names.extend(memory.iter().map(|(name, _)| name.clone()));
        names.sort();
        names.dedup();
        let status = |name: TenantName| {
            let total = totals.get(&name).copied().unwrap_or_default();
            TenantStatus {
                memory_bytes_used: memory.iter().find(|(n, _)| *n == name).map_or(0, |(_, bytes)| *bytes),
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

/// A connection that counts.
pub(crate) struct ConnectionGuard(Arc<Node>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A sink that adds to the tenant's totals what its program cost.
struct Accounted {
    sink: Arc<dyn Sink>,
    run: Arc<Run>,
    tenant: TenantName,
    totals: Arc<Totals>,
    watch: Stopwatch,
}

impl Sink for Accounted {
    fn ready(&self) -> bool {
        self.sink.ready()
    }

    fn batch(&self, batch: RecordBatch) {
        self.sink.batch(batch);
    }

    fn encoded(&self, group: RowGroup) {
        self.sink.encoded(group);
    }

    fn finish(&self, result: Result<Receipt>) {
        let result = result.map(|mut receipt| {
            receipt.elapsed_ns = self.watch.elapsed_ns();
            receipt
        });
        match &result {
            Ok(receipt) => self.totals.add(&self.tenant, receipt, true),
            Err(_) => self.totals.add(&self.tenant, &self.run.receipt(), false),
        }
        self.sink.finish(result);
    }
}

fn start_worker(index: usize, scheduler: Arc<Scheduler>, seats: Arc<Seats>) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("farpool-worker-{index}"))
        .spawn(move || work(&scheduler, &Seated { seats, index }))
        .map_err(|error| Error::internal(format!("cannot start worker thread {index}: {error}")))
}

/// A worker thread, with the clock and the CPU it has.
struct Seated {
    seats: Arc<Seats>,
    index: usize,
}

impl WorkerThread for Seated {
    fn cpu_ns(&self) -> u64 {
        clock::thread_cpu_ns()
    }

    fn begin(&self) {
        self.seats.take(self.index);
    }

    fn rest(&self) {
        self.seats.leave(self.index);
    }
}

fn work(scheduler: &Scheduler, thread: &Seated) {
    // A panic is a defect of one program's operators: it must not cost the node a worker.
    let step = || scheduler.work(thread);
    while catch_unwind(AssertUnwindSafe(step)).unwrap_or(true) {}
}

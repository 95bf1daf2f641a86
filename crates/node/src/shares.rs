//! The per-tenant state of a node: the share of the workers' time, the queue of background work, the limits on
//! concurrent programs and profile requests (turns), the counts of connections, and the outcomes of loads.

use crate::access::TenantLimits;
use crate::background::BackgroundThreads;
use crate::chores::{ChoreCounters, ChoreQueue};
use crate::disk::DiskJobs;
use crate::outcomes::Outcomes;
use crate::turns::Turns;
use farpool_catalog::{Background, Chore, after_a_moment};
use farpool_model::{Error, Result, TenantName, limits};
use farpool_pipeline::{Region, Scheduler, SharedScans, TenantShare};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The per-tenant state of all tenants; the state of a tenant is created on first use.
pub(crate) struct Shares {
    scheduler: Arc<Scheduler>,
    limits: Mutex<BTreeMap<TenantName, TenantLimits>>,
    /// Threads for background work, if the node has no workers.
    threads: Option<Arc<BackgroundThreads>>,
    /// Jobs for the disk, if the node has a data directory.
    jobs: Option<Arc<DiskJobs>>,
    counters: Arc<ChoreCounters>,
    shares: Mutex<BTreeMap<TenantName, Share>>,
}

#[derive(Clone)]
struct Share {
    time: Arc<TenantShare>,
    chores: Arc<ChoreQueue>,
    turns: Arc<Turns>,
    programs: Arc<ProgramTurns>,
    connections: Arc<Connections>,
    outcomes: Arc<Outcomes>,
    shared_scans: Arc<SharedScans>,
}

/// The turns (a limit of concurrent programs, with a queue) of one tenant's programs, and the programs' average
/// duration.
pub(crate) struct ProgramTurns {
    pub turns: Arc<Turns>,
    /// Exponential moving average of the programs' duration in nanoseconds; each new program has a weight of one
    /// eighth.
    mean_ns: AtomicU64,
}

impl ProgramTurns {
    fn new(limits: &TenantLimits) -> Self {
        let turns = Arc::new(Turns::new(at_once_max(limits)));
        ProgramTurns { turns, mean_ns: AtomicU64::new(0) }
    }

    /// Adds the duration of a finished program to the average.
    pub fn took(&self, ns: u64) {
        let mean_ns = self.mean_ns.load(Ordering::Relaxed);
        self.mean_ns.store(mean_ns - mean_ns / 8 + ns / 8, Ordering::Relaxed);
    }

    /// Returns the error of a program that got no turn in time, or no place in the queue. It advises the client when to
    /// try again.
    pub fn busy(&self, tenant: &TenantName, why: &str) -> Error {
        let (running, waiting) = self.turns.count();
        let turn = self.mean_ns.load(Ordering::Relaxed) / 1_000_000 * (waiting as u64 + 1);
        let retry_after_ms = (turn / running.max(1) as u64)
            .clamp(*limits::RETRY_AFTER_MS.start(), *limits::RETRY_AFTER_MS.end());
        let message = format!("{why}: tenant {tenant} has {running} programs running and {waiting} waiting");
        Error::busy(message, retry_after_ms)
    }
}

fn at_once_max(limits: &TenantLimits) -> usize {
    limits.programs_max.map_or(usize::MAX, NonZero::get)
}

/// A port that the node listens on, by protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Native,
    Redis,
}

/// Counters of open connections, in total and by port.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: AtomicUsize,
    by_port: [AtomicUsize; 2],
}

impl Connections {
    /// Returns the total number of open connections.
    pub fn count(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    fn at(&self, port: Port) -> &AtomicUsize {
        &self.by_port[port as usize]
    }
}

/// Increments `count` unless it has reached `most`; returns whether it was incremented.
fn add(count: &AtomicUsize, most: usize) -> bool {
    let more = |open: usize| (open < most).then_some(open + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// A guard that counts one open connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSeat {
    connections: Arc<Connections>,
    port: Port,
}

impl ConnectionSeat {
    /// Counts a new connection at `port`; returns `None` if there are `most` connections in total or `most_at_port` at
    /// this port already.
    pub fn take(
        connections: &Arc<Connections>,
        port: Port,
        (most, most_at_port): (usize, usize),
    ) -> Option<Self> {
        if !add(&connections.all, most) {
            return None;
        }
        if !add(connections.at(port), most_at_port) {
            connections.all.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(ConnectionSeat { connections: Arc::clone(connections), port })
    }

    /// Returns the number of open connections at the port of this connection, which is included.
    pub fn count_at_port(&self) -> usize {
        self.connections.at(self.port).load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionSeat {
    fn drop(&mut self) {
        self.connections.at(self.port).fetch_sub(1, Ordering::Relaxed);
        self.connections.all.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shares {
    /// Creates the shares of a node. No tenant has limits yet. `threads` are woken for background work; `jobs` are the
    /// queues for the threads that wait for the disk.
    pub fn new(
        scheduler: Arc<Scheduler>,
        threads: Option<Arc<BackgroundThreads>>,
        jobs: Option<Arc<DiskJobs>>,
    ) -> Self {
        let (limits, counters, shares) = Default::default();
        Shares { scheduler, limits, threads, jobs, counters, shares }
    }

    /// Changes the limits of a tenant. Connections and programs that already exceed them stay until they end.
    pub fn set_limits(&self, tenant: &TenantName, limits: TenantLimits) {
        // Stored before the share is looked up, so that a share created by another thread at the same time gets them.
        self.limits.lock().insert(tenant.clone(), limits.clone());
        let share = self.shares.lock().get(tenant).cloned();
        if let Some(share) = share {
            self.scheduler.set_weight(&share.time, limits.weight);
            share.programs.turns.set_at_once_max(at_once_max(&limits));
        }
    }

    /// Returns the queues of jobs that wait for the disk; `None` if the node has no data directory.
    pub fn jobs(&self) -> Option<&Arc<DiskJobs>> {
        self.jobs.as_ref()
    }

    /// Returns the limits of a tenant; the default limits if none were set.
    pub fn limits(&self, tenant: &TenantName) -> TenantLimits {
        self.limits.lock().get(tenant).cloned().unwrap_or_default()
    }

    /// Returns the turns of the programs of `tenant`.
    pub fn programs(&self, tenant: &TenantName) -> Arc<ProgramTurns> {
        self.share(tenant).programs
    }

    /// Counts a new connection of `tenant`, until the result is dropped.
    ///
    /// # Errors
    /// `OverLimit` when the tenant has as many connections as it may have.
    pub fn connect(&self, tenant: &TenantName, port: Port) -> Result<ConnectionSeat> {
        let most = self.limits(tenant).connections_max.map_or(usize::MAX, NonZero::get);
        let connections = self.share(tenant).connections;
        ConnectionSeat::take(&connections, port, (most, usize::MAX)).ok_or_else(|| {
            Error::over_limit(format!("tenant {tenant} may have {most} connections at once"))
                .advise("close some, or have its limit raised")
        })
    }

    /// Creates a scheduler region for one more client of `tenant`; the clients of a tenant divide its share of the
    /// workers' time equally.
    pub fn new_region(&self, tenant: &TenantName) -> Arc<Region> {
        self.scheduler.add_region(&self.share(tenant).time)
    }

    /// Returns the turns that limit how many requests of `tenant` compute profiles (statistics) at the same time.
    pub fn turns(&self, tenant: &TenantName) -> Arc<Turns> {
        self.share(tenant).turns
    }

    /// Returns the outcomes of the loads of `tenant`.
    pub fn outcomes(&self, tenant: &TenantName) -> Arc<Outcomes> {
        self.share(tenant).outcomes
    }

    /// Returns the state by which concurrent programs of `tenant` over the same table share scans.
    pub fn shared_scans(&self, tenant: &TenantName) -> Arc<SharedScans> {
        self.share(tenant).shared_scans
    }

    /// Returns the bytes of memory outside the pool that the outcomes of loads and cached filter results of all tenants
    /// take.
    pub fn remembered_bytes(&self) -> usize {
        self.all().iter().map(|share| share.outcomes.bytes_held() + share.shared_scans.bytes_held()).sum()
    }

    /// Drops outcomes of loads that are kept long enough, and cached filter results of row groups that no longer exist.
    pub fn forget_old(&self, now_ns: u64) {
        for share in self.all() {
            share.outcomes.forget_old(now_ns);
            share.shared_scans.forget_gone();
        }
    }

    fn all(&self) -> Vec<Share> {
        self.shares.lock().values().cloned().collect()
    }

    fn share(&self, tenant: &TenantName) -> Share {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(tenant) {
            return share.clone();
        }
        let limits = self.limits(tenant);
        let time = self.scheduler.add_tenant(limits.weight);
        let region = self.scheduler.add_region(&time);
        let chores = Arc::new(ChoreQueue::new(self.scheduler.clone(), region, self.counters.clone()));
        let share = Share {
            time,
            chores,
            turns: Arc::new(Turns::new(limits::PROFILES_AWAITED_MAX)),
            programs: Arc::new(ProgramTurns::new(&limits)),
            connections: Arc::default(),
            outcomes: Arc::default(),
            shared_scans: Arc::default(),
        };
        shares.insert(tenant.clone(), share.clone());
        share
    }
}

impl Background for Shares {
    fn submit(&self, chore: Chore) {
        self.share(chore.tenant()).chores.submit(chore);
        if let Some(threads) = &self.threads {
            threads.call();
        }
    }

    fn rows_came(&self) {
        self.scheduler.rows_came();
    }

    fn write(&self, job: Box<dyn FnOnce() + Send>) {
        match &self.jobs {
            Some(jobs) => jobs.writes.submit(job),
            None => job(),
        }
    }

    fn read(&self, job: Box<dyn FnOnce() + Send>) {
        match &self.jobs {
            Some(jobs) => jobs.reads.submit(job),
            None => job(),
        }
    }

    fn read_later(&self, job: Box<dyn FnOnce() + Send>) {
        match &self.jobs {
            // In a simulation, the owner of the node decides when the job reads from the disk.
            Some(jobs) if jobs.is_stepped => jobs.reads.submit(job),
            _ => self.read(after_a_moment(job)),
        }
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

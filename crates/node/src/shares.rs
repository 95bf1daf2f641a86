//! What each tenant has of the node: its share of the workers' time, the line of its work that nobody waits for, and its
//! turns to have profiles made that somebody waits for.

use crate::background::BackgroundThreads;
use crate::chores::{ChoreLine, Lines};
use crate::turns::Turns;
use farpool_model::TenantName;
use farpool_pipeline::{Region, Scheduler, TenantShare};
use farpool_store::{Background, Chore};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// See the file's comment.
pub(crate) struct Shares {
    scheduler: Arc<Scheduler>,
    weights: BTreeMap<TenantName, u32>,
    /// Threads for work in the background where the node has no workers.
    threads: Option<Arc<BackgroundThreads>>,
    lines: Arc<Lines>,
    shares: Mutex<BTreeMap<TenantName, Share>>,
}

#[derive(Clone)]
struct Share {
    time: Arc<TenantShare>,
    chores: Arc<ChoreLine>,
    turns: Arc<Turns>,
}

impl Shares {
    /// Shares of `scheduler`; a tenant that is not in `weights` has weight 1.
    pub fn new(
        scheduler: Arc<Scheduler>,
        weights: BTreeMap<TenantName, u32>,
        threads: Option<Arc<BackgroundThreads>>,
    ) -> Self {
        Shares { scheduler, weights, threads, lines: Arc::default(), shares: Mutex::default() }
    }

    /// A share for one more client of `tenant`.
    pub fn new_region(&self, tenant: &TenantName) -> Arc<Region> {
        self.scheduler.add_region(&self.share(tenant).time)
    }

    /// The turns of the requests of `tenant` that wait for profiles.
    pub fn turns(&self, tenant: &TenantName) -> Arc<Turns> {
        self.share(tenant).turns
    }

    fn share(&self, tenant: &TenantName) -> Share {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(tenant) {
            return share.clone();
        }
        let time = self.scheduler.add_tenant(self.weights.get(tenant).copied().unwrap_or(1));
        let region = self.scheduler.add_region(&time);
        let chores = Arc::new(ChoreLine::new(self.scheduler.clone(), region, self.lines.clone()));
        let share = Share { time, chores, turns: Arc::default() };
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
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("weights", &self.weights).finish_non_exhaustive()
    }
}

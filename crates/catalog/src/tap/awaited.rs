//! A profile (statistics of a table's rows) that callers wait for. The callers compute it at once, oldest rows
//! first, instead of the background, so that the work is charged to their tenants' shares of the node's time.
//!
//! Terms: a *tap* is the owner's handle of a profile's computation. It is *settled* when the profile is complete or
//! has failed.

use super::work::{Waiter, WorkerKind};
use super::{Tap, defect};
use crate::HelperThreads;
use farpool_memory::Reservation;
use farpool_model::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A profile that a caller waits for. Several threads may work on it. Dropping this ends the wait.
#[derive(Debug)]
pub struct AwaitedProfile {
    /// The taps (handles of profile computations) to work on, each followed by the tap whose profile builds on it.
    /// Held here, so that none of them is abandoned before its turn.
    line: Vec<Arc<Tap>>,
    /// Number of leading taps in `line` that are settled: complete or failed.
    settled: AtomicUsize,
    waiter: Arc<Waiter>,
}

impl AwaitedProfile {
    /// Registers a waiter with `tap` and with the unsettled taps that it builds on. `wake` is called when there may be
    /// work to do, and when all are settled.
    pub(crate) fn new(tap: Arc<Tap>, wake: Box<dyn Fn() + Send + Sync>) -> AwaitedProfile {
        let mut line = tap.before();
        line.reverse();
        line.push(tap);
        let waiter = Arc::new(Waiter { wake });
        line.iter().for_each(|tap| tap.0.add_waiter(waiter.clone()));
        line.iter().for_each(|tap| tap.want());
        AwaitedProfile { line, settled: AtomicUsize::new(0), waiter }
    }

    /// Returns whether the profile is settled: complete or failed.
    pub fn is_settled(&self) -> bool {
        self.oldest().is_none()
    }

    /// Returns whether [`AwaitedProfile::step`] has work to do, or the profile is settled.
    pub fn has_step(&self) -> bool {
        self.oldest().is_none_or(|tap| tap.0.has_step())
    }

    /// Works until `go_on` returns false, but at least on one column. Returns false if nothing is left to do for this
    /// thread, because other threads have all the work or the profile is settled.
    pub fn step(&self, go_on: &dyn Fn() -> bool) -> bool {
        self.oldest().is_some_and(|tap| tap.0.work_on(WorkerKind::Waiting, go_on))
    }

    /// Returns the bytes of memory that the next step could not reserve; `None` if it was not refused memory. No step
    /// is done until they are free, or a caller passes them to [`AwaitedProfile::give`].
    pub fn bytes_lacking(&self) -> Option<usize> {
        self.oldest()?.0.bytes_lacking()
    }

    /// Passes memory to the profile, reserved from the tenant's account, with which it continues.
    pub fn give(&self, memory: Reservation) {
        if let Some(oldest) = self.oldest() {
            oldest.0.give(memory);
        }
    }

    /// Fails the profile, and the profiles of all later versions that build on it, until they are requested again.
    pub fn give_up(&self, why: &Error) {
        self.line.iter().for_each(|tap| tap.0.give_up(why));
    }

    /// Computes the profile on the calling thread and on `helpers`. Blocks until it is complete. If memory is short,
    /// waits for it as long as requests do.
    ///
    /// # Errors
    /// The reason why there is no profile. `OverLimit` if the pool has no room for it; `OverLimit`, with sizes, if
    /// memory was short for too long, in which case the profile is not settled.
    pub fn finish(&self, helpers: &dyn HelperThreads) -> Result<()> {
        let groups = self.line.iter().map(|tap| tap.0.groups_waiting()).sum();
        let refused = OnceLock::new();
        let work = || self.line.iter().for_each(|tap| tap.0.work_until_settled(&refused));
        if !self.is_settled() && helpers.run(helpers.threads_max().min(groups), &work).is_err() {
            // If a helper panicked, its step has failed, and this thread does the rest.
            work();
        }
        refused.into_inner().map_or_else(|| self.outcome(), Err)
    }

    /// Returns whether the profile was computed. It must be settled.
    ///
    /// # Errors
    /// The reason why there is no profile.
    pub fn outcome(&self) -> Result<()> {
        let settled = self.line.last().and_then(|tap| tap.settled());
        settled.unwrap_or_else(|| Err(defect())).map(drop)
    }

    fn oldest(&self) -> Option<&Arc<Tap>> {
        loop {
            let settled = self.settled.load(Ordering::Relaxed);
            let tap = self.line.get(settled)?;
            if tap.settled().is_none() {
                return Some(tap);
            }
            self.settled.fetch_max(settled + 1, Ordering::Relaxed);
        }
    }
}

impl Drop for AwaitedProfile {
    fn drop(&mut self) {
        self.line.iter().for_each(|tap| tap.0.remove_waiter(&self.waiter));
    }
}

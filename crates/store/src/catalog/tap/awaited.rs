//! A profile that somebody waits for: it is worked on at once, oldest rows first, by those who wait, and by nobody
//! else, because they get their part of a core that others want too.

use super::work::{Waiter, Worker};
use super::{Tap, defect};
use crate::catalog::Helpers;
use farpool_memory::Reservation;
use farpool_model::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// See the file's comment. Several threads may work on it. Whoever drops it no longer waits.
#[derive(Debug)]
pub struct AwaitedProfile {
    /// Each behind the one before it. Owned, so that nobody abandons one before its turn.
    line: Vec<Arc<Tap>>,
    /// How many of them, the first ones, are settled.
    settled: AtomicUsize,
    waiter: Arc<Waiter>,
}

impl AwaitedProfile {
    /// `wake` is called when there may be more to do, or nothing more.
    pub(in crate::catalog) fn new(tap: Arc<Tap>, wake: Box<dyn Fn() + Send + Sync>) -> AwaitedProfile {
        let mut line = tap.before();
        line.reverse();
        line.push(tap);
        let waiter = Arc::new(Waiter { wake });
        line.iter().for_each(|tap| tap.0.add_waiter(waiter.clone()));
        AwaitedProfile { line, settled: AtomicUsize::new(0), waiter }
    }

    /// Whether the profile is there, or cannot be made.
    pub fn is_settled(&self) -> bool {
        self.oldest().is_none()
    }

    /// Whether [`AwaitedProfile::step`] would find something to do, or that it is settled.
    pub fn has_step(&self) -> bool {
        self.oldest().is_none_or(|tap| tap.0.has_step())
    }

    /// Works on it as long as `go_on`, and by a column at least. False when all is in others' hands, or done.
    pub fn step(&self, go_on: &dyn Fn() -> bool) -> bool {
        self.oldest().is_some_and(|tap| tap.0.work_on(Worker::Waiting, go_on))
    }

    /// Bytes of memory that are lacking for what is to be done next. Nothing is done before there are as many, or
    /// somebody gives them.
    pub fn bytes_lacking(&self) -> Option<usize> {
        self.oldest()?.0.bytes_lacking()
    }

    /// Goes on with `memory`, of the tenant's account.
    pub fn give(&self, memory: Reservation) {
        if let Some(oldest) = self.oldest() {
            oldest.0.give(memory);
        }
    }

    /// There is to be no profile, nor one of any version that comes behind this one, before somebody asks again.
    pub fn give_up(&self, why: &Error) {
        self.line.iter().for_each(|tap| tap.0.give_up(why));
    }

    /// Works on it, on the calling thread and with `helpers`, until it is settled. Where memory is lacking, the thread
    /// waits for it as long as requests do.
    ///
    /// # Errors
    /// Why there is no profile: `OverLimit` when the pool has no room for it, or, with sizes, when there was too little
    /// memory for long, in which case it is not settled.
    pub fn finish(&self, helpers: &dyn Helpers) -> Result<()> {
        let groups = self.line.iter().map(|tap| tap.0.groups_waiting()).sum();
        let refused = OnceLock::new();
        let work = || self.line.iter().for_each(|tap| tap.0.work_until_settled(&refused));
        if !self.is_settled() && helpers.run(helpers.threads_max().min(groups), &work).is_err() {
            // A helper is lost, and what it had begun has failed.
            work();
        }
        refused.into_inner().map_or_else(|| self.outcome(), Err)
    }

    /// # Errors
    /// Why there is no profile, once it is settled.
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

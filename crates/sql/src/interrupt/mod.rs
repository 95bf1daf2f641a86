//! Stops statements: at their time limit, when the caller interrupts them, and when their result is dropped.
//!
//! A poll of the engine (DataFusion) may compute for minutes without returning: a cross join makes many batches of one,
//! a filter of
//! a join discards all of them, and planning is one synchronous call. Meanwhile the task cannot be aborted, and its
//! thread handles no timers and signals. Three mechanisms together end such work:
//!
//! - A [`Scope`] is a unit of work that can be stopped: a statement, one run of it, or everything within an
//!   [`Interrupt`]. Each poll of its futures enters it on the thread ([`current`]), and so do the tasks that the engine
//!   spawns meanwhile (`tasks`).
//! - Code that runs long calls [`check`]: streams between operators ([`exec`]), filters of joins (`filters`), rules
//!   of the planner ([`rules`]), the parser ([`steps`]), and calls of functions ([`crate::bounded`]). Streams also
//!   yield after a millisecond; a join that continues within one poll runs in a separate task, which may be dropped
//!   meanwhile, and lets other tasks proceed.
//! - The time limit is enforced by a separate thread (`timer`), which wakes the waiting future.
//!
//! Invariant: a scope that is stopped stays stopped, and every check within it fails from then on.

#![expect(
    clippy::disallowed_methods,
    reason = "time limits, turns and their timer are kept here, as the engine has none"
)]

pub mod current;
pub mod exec;
mod filters;
pub mod rules;
mod scope;
pub mod sizes;
pub mod steps;
mod tasks;
mod timer;

pub use current::check;
pub use filters::execute_apart;
pub use scope::Scope;

use current::Entered;
use farpool_model::Error;
use futures::FutureExt;
use std::sync::Arc;

/// Stops work of the engine from another thread, even while the work computes. Clones stop the same work.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Scope>);

impl Default for Interrupt {
    fn default() -> Self {
        Interrupt(Scope::unlimited())
    }
}

impl Interrupt {
    /// Creates an interrupt that also stops the work when `probe` returns true. Computing threads call the probe from
    /// time to time. For callers that have to poll for an interrupt, such as Python's Ctrl-C.
    pub fn probing(probe: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Interrupt(Scope::probing(Box::new(probe)))
    }

    /// Runs `work`, which [`Interrupt::stop`] can then stop.
    pub async fn run<W: Future>(&self, work: W) -> W::Output {
        tasks::install();
        let entered = Entered::new(Arc::clone(&self.0));
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(move |context| current::enter(&entered, None, || work.poll_unpin(context))).await
    }

    /// Makes statements within the work fail as cancelled at their next check, which is within a few milliseconds. Does
    /// not wake futures that wait: the caller that runs the work should drop it as well.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Makes statements within the work fail with `error` at their next check.
    pub fn stop_for(&self, error: Error) {
        self.0.stop_for(error);
    }

    /// Returns whether the work was stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.reason().is_some()
    }
}

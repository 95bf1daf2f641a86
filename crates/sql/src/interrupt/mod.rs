//! Stops statements: at their time limit, when the caller interrupts them, and when their rows are no longer wanted.
//!
//! A poll of the engine may compute for minutes without returning: a cross join makes many batches of one, a filter of a join
//! discards them all, planning is one synchronous call. While it does, its task cannot be aborted, and nobody on that thread
//! looks after timers and signals. Three means together end such work:
//!
//! - A [`Scope`] is what may be stopped: a statement, one run of it, or whatever runs within an [`Interrupt`]. Each poll of its
//!   futures enters it on the thread ([`current`]), and so do the tasks that the engine starts meanwhile ([`tasks`]).
//! - Code that runs long asks [`check`]: streams between operators ([`exec`]), filters of joins ([`filters`]), rules of the
//!   planner ([`rules`]), the parser ([`steps`]), and calls of functions ([`crate::bounded`]). Streams also give the thread back
//!   after a millisecond; a join that goes on in one poll runs in a task of its own, which may be dropped meanwhile, and lets
//!   other tasks go on beside it.
//! - The time limit is kept by a thread of its own ([`timer`]), which wakes the future that waits.
//!
//! Invariant: a scope that is stopped stays stopped, and everything that is checked within it fails from then on.

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

/// Ends work of the engine from another thread, also while that computes. Clones end the same work.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Scope>);

impl Default for Interrupt {
    fn default() -> Self {
        Interrupt(Scope::unlimited())
    }
}

impl Interrupt {
    /// Makes one that is stopped once `probe` returns true. Whoever computes calls it now and then, on the thread that does:
    /// for callers that learn of an interrupt only by asking.
    pub fn probing(probe: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Interrupt(Scope::probing(Box::new(probe)))
    }

    /// Runs `work`, which [`Interrupt::stop`] ends.
    pub async fn run<W: Future>(&self, work: W) -> W::Output {
        tasks::install();
        let entered = Entered::new(Arc::clone(&self.0));
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(move |context| current::enter(&entered, || work.poll_unpin(context))).await
    }

    /// Has statements within the work fail as cancelled at their next check, a few milliseconds from now. Futures that wait
    /// are not woken: whoever runs the work drops it, too.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Has statements within the work fail for `error` at their next check.
    pub fn stop_for(&self, error: Error) {
        self.0.stop_for(error);
    }

    /// Whether the work was stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.reason().is_some()
    }
}

//! The [`Scope`] (unit of work that can be stopped) that the current thread works for, and when the current poll of its
//! task began.

use super::Scope;
use crate::bounded::Charge;
use crate::error;
use datafusion::error::DataFusionError;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Duration of work after which a stream yields the thread, so that other tasks, timers and aborts get their turn.
const TURN: Duration = Duration::from_millis(1);

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The work that the thread does at the moment.
#[derive(Clone)]
struct Current {
    entered: Arc<Entered>,
    /// The time at which the current poll of the task began.
    since: Instant,
    /// The account that results of functions are charged to; `None` outside the operators of a plan.
    charge: Option<Arc<Charge>>,
}

/// A scope that a thread works for, nested in others that may be stopped as well.
pub struct Entered {
    scope: Arc<Scope>,
    outer: Option<Arc<Entered>>,
    /// The account that results of functions are charged to while a statement is planned.
    charge: Arc<Charge>,
}

impl Entered {
    /// Creates an entry for `scope`, nested in the scope that the thread works for now.
    pub fn new(scope: Arc<Scope>) -> Arc<Self> {
        let outer = entered().filter(|outer| !outer.is_of(&scope));
        Arc::new(Entered { scope, outer, charge: Arc::default() })
    }

    fn is_of(&self, scope: &Arc<Scope>) -> bool {
        Arc::ptr_eq(&self.scope, scope)
    }

    fn check(&self) -> Result<(), DataFusionError> {
        match self.scope.reason() {
            Some(reason) => Err(error::wrap(reason)),
            None => self.outer.as_ref().map_or(Ok(()), |outer| outer.check()),
        }
    }
}

/// Restores the previous scope of the thread when it is dropped.
struct Restore(Option<Current>);

impl Drop for Restore {
    fn drop(&mut self) {
        let before = self.0.take();
        CURRENT.with(|current| *current.borrow_mut() = before);
    }
}

fn with<T>(f: impl FnOnce(Option<&Current>) -> T) -> T {
    CURRENT.with(|current| f(current.borrow().as_ref()))
}

/// Returns the scope that the thread works for; `None` if there is none.
pub fn entered() -> Option<Arc<Entered>> {
    with(|current| current.map(|current| Arc::clone(&current.entered)))
}

/// Runs `work` (one poll of a task) while the thread works for `entered`. Results of functions are charged to the account
/// `charge`; without one, to that of planning.
pub fn enter<T>(entered: &Arc<Entered>, charge: Option<&Arc<Charge>>, work: impl FnOnce() -> T) -> T {
    let since = with(|current| current.map(|current| current.since)).unwrap_or_else(Instant::now);
    within(Current { entered: Arc::clone(entered), since, charge: charge.cloned() }, work)
}

/// Runs `work` while results of functions are charged to the account `charge`.
pub fn charging<T>(charge: &Arc<Charge>, work: impl FnOnce() -> T) -> T {
    let Some(mut next) = with(|current| current.cloned()) else { return work() };
    // When the operator above polls again, it no longer needs the previous results of its functions, and their memory
    // is released.
    if let Some(above) = next.charge.replace(Arc::clone(charge)) {
        above.release();
    }
    within(next, work)
}

/// Runs `work` with an account of its own for results of functions, which are released when it returns.
pub fn charging_for_now<T>(work: impl FnOnce() -> T) -> T {
    let Some(next) = with(|current| current.cloned()) else { return work() };
    within(Current { charge: Some(Arc::default()), ..next }, work)
}

/// Runs `work` as the thread's current one.
fn within<T>(next: Current, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.with(|current| current.borrow_mut().replace(next)));
    work()
}

/// Returns the scope that the thread works for, and the account that results of functions are charged to; `None` if
/// there is no account.
pub fn charged() -> Option<(Arc<Scope>, Arc<Charge>)> {
    with(|current| {
        let Current { entered, charge, .. } = current?;
        let charge = charge.as_ref().unwrap_or(&entered.charge);
        Some((Arc::clone(&entered.scope), Arc::clone(charge)))
    })
}

/// Returns whether a statement is being planned rather than run.
pub fn is_planning() -> bool {
    with(|current| current.is_some_and(|current| current.charge.is_none()))
}

/// Checks that the work may continue.
///
/// # Errors
/// The reason for the stop, if the thread's scope or one around it was stopped.
pub fn check() -> Result<(), DataFusionError> {
    // No lock is held here: a probe may run the caller's signal handlers, which may enter scopes themselves.
    entered().map_or(Ok(()), |entered| entered.check())
}

/// Returns whether the poll has taken so long that the task should yield the thread to others.
pub fn is_turn_over() -> bool {
    with(|current| current.is_some_and(|current| current.since.elapsed() >= TURN))
}

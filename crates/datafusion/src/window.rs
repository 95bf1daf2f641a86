//! Statements of concurrent callers of one session: their programs (the parts of queries that a pool runs) run as one
//! if that takes less time ([`crate::shared`]), like those of a batch.
//!
//! For this, a statement waits for a short time, the window. It waits only if it is expected to take many times as long
//! as the window, and only while other statements are running: a short look-up does not wait, and neither does a single
//! caller. Each statement reads the table versions that it was planned for; programs over different versions are not
//! combined.

use crate::shared::{Means, SharePlace, share};
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Duration of the window: how long the first statement waits for others.
const WINDOW: Duration = Duration::from_millis(2);

/// Minimum ratio of a statement's expected time to the window, so that waiting adds at most 5 % to it.
const WORTH: u32 = 20;

/// Counts the statements of a session that are being planned or run, and collects the programs that wait in the current
/// window.
#[derive(Debug, Default)]
pub(crate) struct Window {
    callers: AtomicUsize,
    open: Mutex<Option<Open>>,
}

/// The current window: the programs that wait in it, and a future that completes when it has closed.
struct Open {
    places: Vec<SharePlace>,
    closed: future::Shared<BoxFuture<'static, ()>>,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

/// Counts a statement as running until this is dropped.
pub(crate) struct Caller(Arc<Window>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Window {
    /// Counts a statement as running until the returned guard is dropped.
    pub fn enter(self: &Arc<Self>) -> Caller {
        self.callers.fetch_add(1, Ordering::Relaxed);
        Caller(Arc::clone(self))
    }

    /// Returns whether statements of other callers are running.
    pub fn has_others(&self) -> bool {
        self.callers.load(Ordering::Relaxed) > 1
    }

    /// Returns whether a statement with this expected time should wait for the window.
    pub fn is_worth(expected_ns: f64) -> bool {
        expected_ns >= (WINDOW * WORTH).as_nanos() as f64
    }

    /// Waits until the window closes. By then each of the programs has been assigned its part of a common result, if it
    /// runs as one with others.
    pub async fn wait(self: &Arc<Self>, places: Vec<SharePlace>, means: Means) {
        let closed = {
            let mut open = self.open.lock();
            let closing = || {
                let closed = Window::close(Arc::downgrade(self), means).boxed().shared();
                Open { places: Vec::new(), closed }
            };
            let open = open.get_or_insert_with(closing);
            open.places.extend(places);
            open.closed.clone()
        };
        // The window closes as long as any of its callers still polls this future, even if the first one is gone.
        closed.await;
    }

    async fn close(window: Weak<Window>, means: Means) {
        tokio::time::sleep(WINDOW).await;
        let Some(open) = window.upgrade().and_then(|window| window.open.lock().take()) else { return };
        share(open.places, &means).await;
    }
}

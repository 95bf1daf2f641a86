//! Concurrent callers of one session: the programs of their statements run as one if that takes less time
//! ([`crate::shared`]), like those of a batch.
//!
//! A statement waits only if it is expected to take many times as long as the window, and only while others are
//! running: a look-up does not wait, and neither does a single caller. Each statement reads the versions that it was
//! planned for; programs over different versions are not combined.

use crate::shared::{Means, SharePlace, share};
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time for which the first statement waits for others.
const WINDOW: Duration = Duration::from_millis(2);

/// Minimal ratio of a statement's expected time to the window.
const WORTH: u32 = 20;

/// The statements of a session that are being planned or run.
#[derive(Debug, Default)]
pub(crate) struct Window {
    callers: AtomicUsize,
    open: Mutex<Option<Open>>,
}

/// The programs that have arrived so far.
struct Open {
    places: Vec<SharePlace>,
    closed: future::Shared<BoxFuture<'static, ()>>,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

/// A statement that is planned or runs, counted until this is dropped.
pub(crate) struct Caller(Arc<Window>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Window {
    /// Counts a statement.
    pub fn enter(self: &Arc<Self>) -> Caller {
        self.callers.fetch_add(1, Ordering::Relaxed);
        Caller(Arc::clone(self))
    }

    /// Returns whether other statements than the caller's are running.
    pub fn has_others(&self) -> bool {
        self.callers.load(Ordering::Relaxed) > 1
    }

    /// Returns whether a statement with this expected time should wait for others.
    pub fn is_worth(expected_ns: f64) -> bool {
        expected_ns >= (WINDOW * WORTH).as_nanos() as f64
    }

    /// Lets programs run together with those of others that arrive before the window closes. When this returns, each
    /// has been assigned its share.
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
        // Any caller that still waits makes the window close.
        closed.await;
    }

    async fn close(window: Weak<Window>, means: Means) {
        tokio::time::sleep(WINDOW).await;
        let Some(open) = window.upgrade().and_then(|window| window.open.lock().take()) else { return };
        share(open.places, &means).await;
    }
}

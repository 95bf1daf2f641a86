//! What concurrent callers of one session ask for at about the same time: programs of their statements run as one where that
//! takes less time ([`crate::shared`]), as those of a batch do.
//!
//! A statement waits only if it is expected to take many times as long as the window, and only while others are under way: a
//! look-up does not, and neither does who is alone. Each statement reads the versions that it was planned for; programs over
//! different versions do not meet.

use crate::shared::{Means, SharePlace, share};
use futures::FutureExt;
use futures::future::{self, BoxFuture};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long the first waits for others.
const WINDOW: Duration = Duration::from_millis(2);

/// How many times as long a statement must be expected to take.
const WORTH: u32 = 20;

/// The statements of a session that are under way.
#[derive(Debug, Default)]
pub(crate) struct Window {
    callers: AtomicUsize,
    open: Mutex<Option<Open>>,
}

/// The programs that have come so far.
struct Open {
    places: Vec<SharePlace>,
    closed: future::Shared<BoxFuture<'static, ()>>,
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

/// A statement that is planned or runs, until this is dropped.
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

    /// Whether statements besides one that is counted are under way.
    pub fn has_others(&self) -> bool {
        self.callers.load(Ordering::Relaxed) > 1
    }

    /// Whether a statement that is expected to take so long should wait for others.
    pub fn is_worth(expected_ns: f64) -> bool {
        expected_ns >= (WINDOW * WORTH).as_nanos() as f64
    }

    /// Has programs run with those of others that come before the window closes. When this returns, each has been told.
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
        // Whoever still waits sees to it that it closes.
        closed.await;
    }

    async fn close(window: Weak<Window>, means: Means) {
        tokio::time::sleep(WINDOW).await;
        let Some(open) = window.upgrade().and_then(|window| window.open.lock().take()) else { return };
        share(open.places, &means).await;
    }
}

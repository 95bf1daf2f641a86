//! Pauses of the commands of a tenant (`CLIENT PAUSE`), which every protocol obeys that changes keys.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The commands that a pause blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PauseScope {
    #[default]
    Writes,
    All,
}

/// The pause of a tenant, if one is in force.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// The end, in milliseconds since the epoch; 0 without a pause.
    until_ms: AtomicU64,
    paused: Mutex<PauseScope>,
    /// Notified when a pause is ended before its time.
    ended: Notify,
}

impl Pause {
    /// Blocks commands until `until_ms`, in milliseconds since the epoch. As in Redis, a pause that is in force is extended
    /// to the later end, and blocks all commands if either of the two does.
    pub fn begin(&self, paused: PauseScope, until_ms: u64, now_ms: u64) {
        let mut current = self.paused.lock();
        let is_paused = self.until_ms.load(Ordering::Relaxed) > now_ms;
        *current = if is_paused { paused.max(*current) } else { paused };
        self.until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Ends the pause.
    pub fn end(&self) {
        self.until_ms.store(0, Ordering::Relaxed);
        self.ended.notify_waiters();
    }

    /// Returns the remaining milliseconds in which keys cannot be changed, or `None`: every pause blocks changes.
    pub fn blocks_writes(&self, now_ms: u64) -> Option<u64> {
        self.current(|| now_ms).map(|(_, left_ms)| left_ms)
    }

    /// Returns the commands that are blocked, and the remaining milliseconds.
    #[inline]
    pub fn current(&self, now_ms: impl FnOnce() -> u64) -> Option<(PauseScope, u64)> {
        match self.until_ms.load(Ordering::Relaxed) {
            0 => None,
            until_ms => {
                let Some(left_ms) = until_ms.checked_sub(now_ms()).filter(|left| *left > 0) else {
                    // Clears the expired pause so that later calls need not read the clock.
                    let _ = self.until_ms.compare_exchange(until_ms, 0, Ordering::Relaxed, Ordering::Relaxed);
                    return None;
                };
                Some((*self.paused.lock(), left_ms))
            }
        }
    }

    /// Resolves when no pause is in force.
    pub async fn over(&self, now_ms: impl Fn() -> u64) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let Some((_, left_ms)) = self.current(&now_ms) else { return };
            drop(tokio::time::timeout(std::time::Duration::from_millis(left_ms), ended).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_with_its_time_or_before() {
        let pause = Pause::default();
        assert!(pause.current(|| 0).is_none());
        pause.begin(PauseScope::Writes, 2000, 1000);
        assert!(pause.current(|| 1999) == Some((PauseScope::Writes, 1)));
        pause.begin(PauseScope::All, 1500, 1000);
        assert!(pause.current(|| 1000) == Some((PauseScope::All, 1000)));
        pause.begin(PauseScope::Writes, 1700, 1000);
        assert!(pause.current(|| 1000) == Some((PauseScope::All, 1000)));
        pause.end();
        assert!(pause.current(|| 1000).is_none());
        pause.begin(PauseScope::Writes, 1700, 1000);
        assert!(pause.current(|| 1000) == Some((PauseScope::Writes, 700)));
        assert!(pause.current(|| 1700).is_none());
    }
}

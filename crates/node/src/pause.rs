//! Pauses of a tenant's commands (`CLIENT PAUSE`), which all protocols that change keys obey.

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

/// The state of `CLIENT PAUSE` for one tenant: whether a pause is in effect, and until when.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// End of the pause in milliseconds since the epoch; 0 if there is none.
    until_ms: AtomicU64,
    paused: Mutex<PauseScope>,
    /// Notified when a pause is ended before its end time.
    ended: Notify,
}

impl Pause {
    /// Begins a pause until `until_ms`, in milliseconds since the epoch. As in Redis, if a pause is already in effect,
    /// the later of the two end times counts, and all commands are blocked if one of the two pauses blocks all.
    pub fn begin(&self, paused: PauseScope, until_ms: u64, now_ms: u64) {
        let mut current = self.paused.lock();
        let is_paused = self.until_ms.load(Ordering::Relaxed) > now_ms;
        *current = if is_paused { paused.max(*current) } else { paused };
        self.until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Ends the pause now (`CLIENT UNPAUSE`) and wakes the waiting clients.
    pub fn end(&self) {
        self.until_ms.store(0, Ordering::Relaxed);
        self.ended.notify_waiters();
    }

    /// Returns for how many more milliseconds changes of keys are blocked, which every pause does; `None` if no pause
    /// is in effect.
    pub fn blocks_writes(&self, now_ms: u64) -> Option<u64> {
        self.current(|| now_ms).map(|(_, left_ms)| left_ms)
    }

    /// Returns which commands are blocked and for how many more milliseconds; `None` if no pause is in effect.
    #[inline]
    pub fn current(&self, now_ms: impl FnOnce() -> u64) -> Option<(PauseScope, u64)> {
        match self.until_ms.load(Ordering::Relaxed) {
            0 => None,
            until_ms => {
                let Some(left_ms) = until_ms.checked_sub(now_ms()).filter(|left| *left > 0) else {
                    // Clears the expired pause, so that later calls need not read the clock.
                    let _ = self.until_ms.compare_exchange(until_ms, 0, Ordering::Relaxed, Ordering::Relaxed);
                    return None;
                };
                Some((*self.paused.lock(), left_ms))
            }
        }
    }

    /// Waits until no pause is in effect.
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

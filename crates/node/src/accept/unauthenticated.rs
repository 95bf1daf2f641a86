//! The connections that are not authenticated yet. Their number is limited, and they do not count as clients.
//!
//! Invariant: peers that connect and send nothing cannot keep clients from connecting. When there are too many
//! unauthenticated connections, the oldest is closed, because a client sends its hello within a round trip and a silent
//! peer never does.

use farpool_model::limits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The set of connections that are not authenticated yet.
#[derive(Debug, Default)]
pub struct Unauthenticated {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    last: u64,
    /// The connections in the order of their arrival, each with the notification that evicts it.
    taken: BTreeMap<u64, Arc<Notify>>,
}

impl Unauthenticated {
    /// Adds a connection; if there are too many, evicts the oldest. The connection stays in the set until the result is
    /// dropped.
    pub fn enter(self: &Arc<Self>) -> Slot {
        let evicted = Arc::new(Notify::new());
        let mut slots = self.slots.lock();
        if slots.taken.len() >= limits::GREETINGS_MAX {
            slots.evict_oldest();
        }
        slots.last += 1;
        let number = slots.last;
        slots.taken.insert(number, evicted.clone());
        Slot { unauthenticated: self.clone(), number, evicted }
    }

    /// Makes the oldest connection close, if there is one.
    pub fn evict_oldest(&self) {
        self.slots.lock().evict_oldest();
    }
}

impl Slots {
    fn evict_oldest(&mut self) {
        if let Some((_, evicted)) = self.taken.pop_first() {
            evicted.notify_one();
        }
    }
}

/// The place of an unauthenticated connection in the set; freed when this is dropped.
#[derive(Debug)]
pub struct Slot {
    unauthenticated: Arc<Unauthenticated>,
    number: u64,
    evicted: Arc<Notify>,
}

impl Slot {
    /// Waits until this connection is evicted and must be closed.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.unauthenticated.slots.lock().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn the_oldest_leaves_for_a_newcomer_and_nobody_else_does() {
        let unauthenticated = Arc::new(Unauthenticated::default());
        let mut slots: Vec<Slot> = (0..limits::GREETINGS_MAX).map(|_| unauthenticated.enter()).collect();
        let evicted = |slot: &Slot| slot.evicted().now_or_never().is_some();
        assert!(!slots.iter().any(evicted));
        // A slot that was freed is used by the next connection.
        slots.remove(5);
        slots.push(unauthenticated.enter());
        assert!(!slots.iter().any(evicted));
        slots.push(unauthenticated.enter());
        assert!(evicted(&slots[0]));
        assert!(!slots[1..].iter().any(evicted));
        drop(slots);
        assert!(unauthenticated.slots.lock().taken.is_empty());
    }
}

//! Connections whose peers have not said who they are: a bounded number, counted apart from those of clients.
//!
//! Invariant: a peer that says nothing takes nothing from clients. When the lobby is full, whoever has been in
//! it for longest leaves: a client says hello within a round trip, a silent peer never does.

use farpool_model::limits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// See the file's comment.
#[derive(Debug, Default)]
pub(super) struct Lobby {
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    last: u64,
    /// By the order in which they came.
    taken: BTreeMap<u64, Arc<Notify>>,
}

impl Lobby {
    /// Takes a newcomer in, if need be in place of the one that came first.
    pub fn enter(self: &Arc<Self>) -> Seat {
        let evicted = Arc::new(Notify::new());
        let mut seats = self.seats.lock();
        if seats.taken.len() >= limits::GREETINGS_MAX {
            seats.evict_oldest();
        }
        seats.last += 1;
        let number = seats.last;
        seats.taken.insert(number, evicted.clone());
        Seat { lobby: self.clone(), number, evicted }
    }

    /// Sends away the one that came first, if there is one.
    pub fn evict_oldest(&self) {
        self.seats.lock().evict_oldest();
    }
}

impl Seats {
    fn evict_oldest(&mut self) {
        if let Some((_, evicted)) = self.taken.pop_first() {
            evicted.notify_one();
        }
    }
}

/// A place in the lobby, free again when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    lobby: Arc<Lobby>,
    number: u64,
    evicted: Arc<Notify>,
}

impl Seat {
    /// Resolves when another one needs the place.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.lobby.seats.lock().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn the_oldest_leaves_for_a_newcomer_and_nobody_else_does() {
        let lobby = Arc::new(Lobby::default());
        let mut seats: Vec<Seat> = (0..limits::GREETINGS_MAX).map(|_| lobby.enter()).collect();
        let evicted = |seat: &Seat| seat.evicted().now_or_never().is_some();
        assert!(!seats.iter().any(evicted));
        // A place that was left goes to the next one.
        seats.remove(5);
        seats.push(lobby.enter());
        assert!(!seats.iter().any(evicted));
        seats.push(lobby.enter());
        assert!(evicted(&seats[0]));
        assert!(!seats[1..].iter().any(evicted));
        drop(seats);
        assert!(lobby.seats.lock().taken.is_empty());
    }
}

//! The lobby: connections that have not been authenticated yet, limited in number and counted separately from
//! clients.
//!
//! Invariant: a silent peer takes no room from clients. When the lobby is full, the connection that has been
//! in it for longest is closed: a client sends its hello within a round trip, a silent peer never does.

use farpool_model::limits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The connections that have not been authenticated.
#[derive(Debug, Default)]
pub(crate) struct Lobby {
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    last: u64,
    /// The connections by order of arrival.
    taken: BTreeMap<u64, Arc<Notify>>,
}

impl Lobby {
    /// Adds a connection, if need be in place of the oldest one.
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

    /// Evicts the oldest connection, if there is one.
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

/// A place in the lobby, freed on drop.
#[derive(Debug)]
pub(crate) struct Seat {
    lobby: Arc<Lobby>,
    number: u64,
    evicted: Arc<Notify>,
}

impl Seat {
    /// Resolves when this connection is evicted.
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
        // A place that was given up goes to the next one.
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

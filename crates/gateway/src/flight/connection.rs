//! The state of a connection: how it is protected, which tokens have come over it, and whether it must end.

use super::users::User;
use crate::engines::ConnectionGuard;
use farpool_model::limits;
use farpool_wire::Socket;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The stage of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Clients are served.
    Open,
    /// No new requests are served, and those in progress may end.
    Draining,
    /// Connections are closed.
    Closed,
}

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    New,
    Authenticated,
    Gone,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    peer: String,
    /// Whether others can read what is sent: the connection is neither encrypted nor within one machine.
    pub is_open_to_others: bool,
    progress: watch::Sender<Progress>,
    must_close: AtomicBool,
    reader: AtomicWaker,
    known: Mutex<Known>,
}

/// The tokens that have come over a connection.
#[derive(Debug, Default)]
struct Known {
    /// Counts the connection among those of clients.
    guard: Option<ConnectionGuard>,
    /// The users of the tokens that have come, by the digests of these, each with the time when it was checked.
    users: Vec<([u8; 32], Instant, Arc<User>)>,
}

/// The events of a connection.
pub(super) struct Life(watch::Receiver<Progress>);

impl Life {
    /// Waits until a request has come with the right token.
    pub async fn authenticated(&mut self) {
        drop(self.0.wait_for(|progress| *progress != Progress::New).await);
    }

    /// Waits until the connection has been dropped.
    pub async fn gone(&mut self) {
        drop(self.0.wait_for(|progress| *progress == Progress::Gone).await);
    }
}

impl Connection {
    /// Creates the state of a connection over `socket`.
    pub fn new(socket: &dyn Socket, is_encrypted: bool) -> (Arc<Self>, Life) {
        let (progress, life) = watch::channel(Progress::New);
        let connection = Connection {
            peer: socket.peer(),
            is_open_to_others: !is_encrypted && !socket.is_near(),
            progress,
            must_close: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            known: Mutex::default(),
        };
        (Arc::new(connection), Life(life))
    }

    /// Returns the address of the client.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Makes the next read fail, which ends the connection.
    pub fn close(&self) {
        self.must_close.store(true, Ordering::Release);
        self.reader.wake();
    }

    /// Returns whether the connection must end; if not, wakes the task of `context` when it must.
    pub fn must_close(&self, context: &Context<'_>) -> bool {
        self.reader.register(context.waker());
        self.must_close.load(Ordering::Acquire)
    }

    /// Records that the connection has been dropped.
    pub fn end(&self) {
        *self.known.lock() = Known::default();
        self.progress.send_replace(Progress::Gone);
    }

    /// Returns the user whose token has this digest, if it has come over this connection not long ago.
    pub fn user(&self, digest: &[u8; 32]) -> Option<Arc<User>> {
        let known = self.known.lock();
        let (_, checked, user) = known.users.iter().find(|(known, ..)| known == digest)?;
        let is_new = checked.elapsed() < Duration::from_millis(limits::FLIGHT_TOKEN_MS_MAX);
        is_new.then(|| Arc::clone(user))
    }

    /// Records the user of the token with this digest. A connection counts as that of a client from its first user on,
    /// for which `guard` is called; returns false if it returns none.
    pub fn admit(
        &self,
        digest: [u8; 32],
        user: &Arc<User>,
        guard: impl FnOnce() -> Option<ConnectionGuard>,
    ) -> bool {
        let mut known = self.known.lock();
        if known.guard.is_none() {
            known.guard = guard();
        }
        if known.guard.is_none() {
            return false;
        }
        known.users.retain(|(other, ..)| *other != digest);
        if known.users.len() >= limits::FLIGHT_TOKENS_MAX {
            known.users.remove(0);
        }
        known.users.push((digest, Instant::now(), Arc::clone(user)));
        drop(known);
        self.progress.send_if_modified(|progress| {
            let is_first = *progress == Progress::New;
            if is_first {
                *progress = Progress::Authenticated;
            }
            is_first
        });
        true
    }
}

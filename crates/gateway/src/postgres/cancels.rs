//! Cancel requests: another connection names a session and its secret, and the session's statement is stopped.

use bytes::Bytes;
use farpool_datafusion::Interrupt;
use farpool_model::{Error, Result};
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::Sha256;
use std::collections::HashMap;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::sync::Notify;

/// Bytes of the secret of a session: those that protocol version 3.0 has room for.
const SECRET_BYTES: usize = 4;

/// The sessions of a server, by their numbers. The secret of each follows from its number and a key of the server.
#[derive(Debug)]
pub(super) struct Cancels {
    key: [u8; 32],
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    last: u32,
    open: HashMap<u32, Arc<Running>>,
}

/// The statement of a session that can be cancelled.
#[derive(Debug, Default)]
pub(super) struct Running {
    statement: Mutex<Option<Interrupt>>,
    cancelled: Notify,
}

/// The entry of a session; removed when this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    cancels: Arc<Cancels>,
    /// The number of the session.
    pub session: u32,
    /// The secret that a cancel request must name.
    pub secret: Bytes,
    /// The session's statement.
    pub running: Arc<Running>,
}

impl Default for Cancels {
    fn default() -> Self {
        Cancels { key: rand::random(), sessions: Mutex::default() }
    }
}

impl Cancels {
    /// Adds a session.
    ///
    /// # Errors
    /// `Internal` only on a bug.
    pub fn enter(self: &Arc<Self>) -> Result<Entry> {
        let running = Arc::new(Running::default());
        let mut sessions = self.sessions.lock();
        sessions.last = sessions.last.checked_add(1).unwrap_or(1);
        let session = sessions.last;
        let secret = self.secret(session)?;
        sessions.open.insert(session, Arc::clone(&running));
        Ok(Entry { cancels: Arc::clone(self), session, secret, running })
    }

    fn secret(&self, session: u32) -> Result<Bytes> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.key);
        let mut mac = mac.map_err(|error| Error::internal(format!("a key for secrets: {error}")))?;
        mac.update(&session.to_be_bytes());
        Ok(Bytes::copy_from_slice(&mac.finalize().into_bytes()[..SECRET_BYTES]))
    }

    /// Cancels the statement of a session, if there is one and the secret is right. The client is not told.
    pub fn cancel(&self, session: u32, secret: &[u8]) {
        let is_right = self.secret(session).is_ok_and(|expected| bool::from(expected.ct_eq(secret)));
        let running = self.sessions.lock().open.get(&session).cloned();
        if let Some(running) = running.filter(|_| is_right) {
            running.cancel();
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.cancels.sessions.lock().open.remove(&self.session);
    }
}

impl Running {
    /// Begins a statement; returns the means by which it is stopped.
    pub fn begin(&self) -> Interrupt {
        let interrupt = Interrupt::default();
        *self.statement.lock() = Some(interrupt.clone());
        interrupt
    }

    /// Goes on with a statement that has begun.
    pub fn resume(&self, statement: &Interrupt) {
        *self.statement.lock() = Some(statement.clone());
    }

    /// Ends the statement: what comes later does not cancel it.
    pub fn end(&self) {
        *self.statement.lock() = None;
    }

    fn cancel(&self) {
        let statement = self.statement.lock().clone();
        if let Some(statement) = statement {
            statement.stop();
            self.cancelled.notify_one();
        }
    }

    /// Waits until `statement`, which runs, is cancelled.
    pub async fn cancelled(&self, statement: &Interrupt) {
        while !statement.is_stopped() {
            self.cancelled.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn only_the_statement_of_the_named_session_is_cancelled() {
        let cancels = Arc::new(Cancels::default());
        let (one, other) = (cancels.enter().unwrap(), cancels.enter().unwrap());
        cancels.cancel(one.session, &one.secret);
        let (mine, theirs) = (one.running.begin(), other.running.begin());
        assert!(!mine.is_stopped(), "a request before the statement is not for it");
        cancels.cancel(one.session, b"\0\0\0\0\0");
        cancels.cancel(one.session, &[]);
        assert!(!mine.is_stopped());
        cancels.cancel(one.session, &one.secret);
        assert!(mine.is_stopped() && !theirs.is_stopped());
        assert!(one.running.cancelled(&mine).now_or_never().is_some());
        one.running.end();
        let next = one.running.begin();
        assert!(one.running.cancelled(&next).now_or_never().is_none(), "the next one goes on");
        let gone = other.session;
        drop(other);
        cancels.cancel(gone, b"");
        assert!(!theirs.is_stopped());
    }
}

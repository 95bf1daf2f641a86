//! Progress of the log of keys, and those that wait for it: connections, each by a follower, and programs that read
//! keys, by wakers.

use super::KeyLog;
use farpool_disk::Observer;
use farpool_model::{Error, Result};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::watch;

/// The durable end of the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DurableProgress {
    /// Number of records that are durable.
    pub durable: u64,
    pub has_failed: bool,
}

impl KeyLog {
    /// Returns the number of records appended since the log was created. This number and the next two are explained at
    /// the head of the crate.
    pub fn appended(&self) -> u64 {
        self.log.next_record()
    }

    /// Returns the number of committed records: at a single node, those that are durable.
    pub fn committed(&self) -> u64 {
        self.durable()
    }

    /// Returns the number of durable records.
    pub fn durable(&self) -> u64 {
        self.progress.borrow().durable
    }

    /// Returns whether record `number` is committed, or need not be for a reply.
    ///
    /// # Errors
    /// The reason why it cannot be committed.
    pub fn is_committed(&self, number: u64) -> Result<bool> {
        let progress = *self.progress.borrow();
        match progress.durable > number || !self.waits() {
            false if progress.has_failed => Err(self.failure()),
            is_committed => Ok(is_committed),
        }
    }

    /// Resolves when record `number` is committed, or cannot be; see [`KeyLog::is_committed`]. Until then, the waker of
    /// `context` is kept.
    pub fn poll_committed(&self, number: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut programs = self.programs.lock();
        // Whoever makes the record durable after this line finds the waker.
        if !matches!(self.is_committed(number), Ok(false)) {
            return Poll::Ready(());
        }
        if !programs.iter().any(|waker| waker.will_wake(context.waker())) {
            programs.push(context.waker().clone());
        }
        drop(programs);
        self.writer.wake();
        Poll::Pending
    }

    pub(super) fn wake_programs(&self) {
        let programs = std::mem::take(&mut *self.programs.lock());
        programs.into_iter().for_each(Waker::wake);
    }

    /// Returns the reason why no further record is committed.
    fn failure(&self) -> Error {
        let refusal = self.refusal.lock().as_ref().map(|refusal| refusal.error.clone());
        refusal.unwrap_or_else(|| Error::unavailable("the log of keys has ended"))
    }

    /// Returns a follower of the durable end.
    pub fn follow(self: &Arc<Self>) -> Follower {
        Follower { log: self.clone(), progress: self.progress.subscribe() }
    }

    /// Returns a relay: one follower of the log that serves all connections of a thread.
    pub fn relay(self: &Arc<Self>) -> ProgressRelay {
        let heard = self.progress.subscribe();
        let told = watch::Sender::new(*heard.borrow());
        ProgressRelay { log: self.clone(), heard, told: Arc::new(told) }
    }
}

/// The observer of the log, which publishes progress. It holds a weak reference, since the log owns its observer.
pub(super) struct DurabilityObserver {
    pub progress: watch::Sender<DurableProgress>,
    pub log: Arc<OnceLock<Weak<KeyLog>>>,
}

impl fmt::Debug for DurabilityObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DurabilityObserver")
    }
}

impl Observer for DurabilityObserver {
    fn durable(&self, count: u64) {
        self.progress.send_modify(|progress| progress.durable = count);
        if let Some(log) = self.log.get().and_then(Weak::upgrade) {
            log.wake_programs();
        }
    }

    fn failed(&self, error: &Error) {
        if let Some(log) = self.log.get().and_then(Weak::upgrade) {
            log.refuse(error, false);
        }
    }
}

/// A relay of progress to the connections of one thread. The log wakes that thread once, and the thread wakes its own
/// connections: waking another thread takes a system call, and hundreds of connections may wait for one sync.
#[derive(Clone)]
pub struct ProgressRelay {
    log: Arc<KeyLog>,
    heard: watch::Receiver<DurableProgress>,
    told: Arc<watch::Sender<DurableProgress>>,
}

impl ProgressRelay {
    /// Returns a follower for one connection.
    pub fn follow(&self) -> Follower {
        Follower { log: self.log.clone(), progress: self.told.subscribe() }
    }

    /// Relays progress until the log is dropped.
    pub async fn tell(mut self) {
        while self.heard.changed().await.is_ok() {
            let progress = *self.heard.borrow_and_update();
            self.told.send_replace(progress);
        }
    }
}

/// A handle with which one connection waits for the log.
pub struct Follower {
    log: Arc<KeyLog>,
    progress: watch::Receiver<DurableProgress>,
}

impl Follower {
    /// Waits while backpressure is on.
    pub async fn keep_up(&mut self) {
        while self.log.is_behind() && !self.progress.borrow_and_update().has_failed {
            self.log.writer.wake();
            if self.progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until record `number` is committed, if the mode is [`crate::Fsync::Always`].
    ///
    /// # Errors
    /// The reason why it cannot be committed.
    pub async fn committed(&mut self, number: u64) -> Result<()> {
        if !self.log.waits() || self.progress.borrow().durable > number || self.log.committed() > number {
            return Ok(());
        }
        self.log.writer.wake();
        let is_over = |progress: &DurableProgress| progress.durable > number || progress.has_failed;
        let progress = self.progress.wait_for(is_over).await.map(|progress| *progress);
        if progress.is_ok_and(|progress| progress.durable > number) {
            return Ok(());
        }
        Err(self.log.failure())
    }
}

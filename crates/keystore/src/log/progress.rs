//! The progress of the log of changes of keys: how many records are appended, durable on this node's disk, and
//! committed (safe from any failure, so that replies that depend on them may be sent). Connections wait for it with a
//! [`Follower`], programs that read keys with a waker.

use super::KeyLog;
use farpool_disk::Observer;
use farpool_model::{Error, Result};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use tokio::sync::watch;

/// The number of durable records, and the error after which no more become durable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DurableProgress {
    /// Number of records that are durable.
    pub durable: u64,
    pub has_failed: bool,
}

impl KeyLog {
    /// Returns the number of records that were appended since the log was created, durable or not.
    pub fn appended(&self) -> u64 {
        self.log.next_record()
    }

    /// Returns the number of committed records: those that no failure can undo, so that replies that depend on them may
    /// be sent. At a single node, these are the durable records.
    pub fn committed(&self) -> u64 {
        self.durable()
    }

    /// Returns the number of durable records: those that are on this node's disk, behind a sync.
    pub fn durable(&self) -> u64 {
        self.progress.borrow().durable
    }

    /// Returns whether a reply that depends on the record with the sequence number `number` may be sent: the record is
    /// committed, or the durability mode does not require that. Does not block.
    ///
    /// # Errors
    /// The reason why the record cannot be committed any more.
    pub fn is_committed(&self, number: u64) -> Result<bool> {
        let progress = *self.progress.borrow();
        match progress.durable > number || !self.waits() {
            false if progress.has_failed => Err(self.failure()),
            is_committed => Ok(is_committed),
        }
    }

    /// Returns `Ready` if [`KeyLog::is_committed`] returns true or an error for the record `number`. Otherwise returns
    /// `Pending` and wakes the task at later progress of the log.
    pub fn poll_committed(&self, number: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut programs = self.programs.lock();
        // Checked under the lock: if the record becomes durable after this line, the observer finds the waker.
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

    /// Returns the error for records that cannot be committed any more.
    fn failure(&self) -> Error {
        let refusal = self.refusal.lock().as_ref().map(|refusal| refusal.error.clone());
        refusal.unwrap_or_else(|| Error::unavailable("the log of keys has ended"))
    }

    /// Returns a handle with which one connection waits for the progress of the log.
    pub fn follow(self: &Arc<Self>) -> Follower {
        Follower { log: self.clone(), progress: self.progress.subscribe() }
    }

    /// Returns a relay, which passes on the progress of the log to all connections of one thread.
    pub fn relay(self: &Arc<Self>) -> ProgressRelay {
        let heard = self.progress.subscribe();
        let told = watch::Sender::new(*heard.borrow());
        ProgressRelay { log: self.clone(), heard, told: Arc::new(told) }
    }
}

/// Receives the progress of the underlying log and publishes it. It must hold the log by a weak reference, because the
/// log owns it.
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

/// Passes on the progress of the log to the connections of one thread: the log wakes the thread once, and the thread
/// wakes its connections. Reason: waking another thread takes a system call, and hundreds of connections may wait for
/// the same sync.
#[derive(Clone)]
pub struct ProgressRelay {
    log: Arc<KeyLog>,
    heard: watch::Receiver<DurableProgress>,
    told: Arc<watch::Sender<DurableProgress>>,
}

impl ProgressRelay {
    /// Returns a handle with which one connection of the relay's thread waits for the progress of the log.
    pub fn follow(&self) -> Follower {
        Follower { log: self.log.clone(), progress: self.told.subscribe() }
    }

    /// The task of the relay: wakes the connections of the thread at each progress of the log, until the log is
    /// dropped. Must be polled on the thread of the connections.
    pub async fn tell(mut self) {
        while self.heard.changed().await.is_ok() {
            let progress = *self.heard.borrow_and_update();
            self.told.send_replace(progress);
        }
    }
}

/// A handle with which one connection waits for the progress of the log.
pub struct Follower {
    log: Arc<KeyLog>,
    progress: watch::Receiver<DurableProgress>,
}

impl Follower {
    /// Waits while so many bytes are not yet written that clients must wait (backpressure).
    pub async fn keep_up(&mut self) {
        while self.log.is_behind() && !self.progress.borrow_and_update().has_failed {
            self.log.writer.wake();
            if self.progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until the record with the sequence number `number` is committed; returns at once unless the durability
    /// mode is [`crate::Fsync::Always`].
    ///
    /// # Errors
    /// The reason why the record cannot be committed any more.
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

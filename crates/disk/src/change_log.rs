//! The interface of the log of changes that the catalog of tables and the key-value store write to, so that a
//! replicated log can take the place of the log of a single node.

use crate::log::{Log, Observer, ReservePolicy};
use farpool_model::Result;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// A log that makes changes durable, in order. [`Log`] is the implementation for a single node.
///
/// Three positions describe a log, each a number of records. [`ChangeLog::next_record`] records are *appended*.
/// *Committed* records cannot be lost by any failure; the [`Observer`] is notified of them. *Durable* records are
/// synced on this node. On a single node a record is committed when it is durable; with replicas, more nodes may have
/// to sync it.
pub trait ChangeLog: Debug + Send + Sync {
    /// Sets the observer; later calls have no effect. Must be called before the first record is appended, because the
    /// observer would miss it.
    fn observe(&self, observer: Box<dyn Observer>);

    /// Appends a record as [`Log::try_append`] does, without waiting for the disk. Returns its sequence number; `None`,
    /// without appending, if the caller must call [`ChangeLog::make_room`] first.
    ///
    /// # Errors
    /// Errors of [`Log::try_append`].
    fn try_append(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<Option<u64>>;

    /// Appends a record that nobody waits for, as [`Log::try_append_unawaited`] does.
    ///
    /// # Errors
    /// Errors of [`Log::try_append_unawaited`].
    fn try_append_unawaited(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<Option<u64>> {
        self.try_append(record, reserve_policy)
    }

    /// Appends a record, and blocks while there is no room for it.
    ///
    /// # Errors
    /// Errors of [`Log::append`].
    fn append(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<u64> {
        loop {
            if let Some(number) = self.try_append(record, reserve_policy)? {
                return Ok(number);
            }
            self.make_room(record.len(), reserve_policy)?;
        }
    }

    /// Returns the number of bytes of records that fit before [`ChangeLog::make_room`] is necessary, as [`Log::room`]
    /// does. Never blocks.
    fn room(&self) -> u64;

    /// Blocks until there is room for a record of `bytes` bytes, as [`Log::make_room`] does.
    ///
    /// # Errors
    /// Errors of [`Log::make_room`].
    fn make_room(&self, bytes: usize, reserve_policy: ReservePolicy) -> Result<()>;

    /// Blocks until the record with sequence number `number` and all records before it are committed.
    ///
    /// # Errors
    /// Errors of [`Log::commit`].
    fn commit(&self, number: u64) -> Result<()>;

    /// Returns the number of records that were ever appended.
    fn next_record(&self) -> u64;

    /// Returns the number of bytes written to the log since it was opened.
    fn bytes_written(&self) -> u64;

    /// Blocks until records are buffered, and writes them; returns false if it must not be called again. See
    /// [`Log::write_next`].
    fn write_next(&self) -> bool;

    /// Writes the durability mark once a second until the log is stopped. See [`Log::keep_marked`].
    fn keep_marked(&self);

    /// Returns the number of durable records according to the durability mark; `None` if it is not known. See
    /// [`Log::records_marked`].
    fn records_marked(&self) -> Option<u64>;

    /// Writes the durability mark: the number of durable records. See [`Log::mark`].
    ///
    /// # Errors
    /// Errors of the file system.
    fn mark(&self) -> Result<()>;

    /// Begins a new file, so that [`ChangeLog::forget_before`] can remove all records appended so far. See
    /// [`Log::turn_over`].
    ///
    /// # Errors
    /// Errors of [`Log::turn_over`].
    fn turn_over(&self) -> Result<()>;

    /// Removes files that have only records before `number`, which the caller no longer needs. See
    /// [`Log::forget_before`].
    ///
    /// # Errors
    /// Errors of [`Log::forget_before`].
    fn forget_before(&self, number: u64) -> Result<()>;

    /// Makes [`ChangeLog::write_next`] and [`ChangeLog::keep_marked`] return. Does not block.
    fn stop(&self);

    /// Makes all records durable and refuses all calls afterwards, as [`Log::close`] does.
    ///
    /// # Errors
    /// Errors of [`Log::close`].
    fn close(&self) -> Result<()>;
}

/// Creates the change log of a node from the log of its directory. The default returns the log itself; a node with
/// replicas wraps it.
#[derive(Clone)]
pub struct LogOver(Arc<dyn Fn(Log) -> Box<dyn ChangeLog> + Send + Sync>);

impl LogOver {
    /// Creates a factory that calls `log_of`.
    pub fn new(log_of: impl Fn(Log) -> Box<dyn ChangeLog> + Send + Sync + 'static) -> LogOver {
        LogOver(Arc::new(log_of))
    }

    /// Returns the change log for the directory log `log`.
    pub fn over(&self, log: Log) -> Box<dyn ChangeLog> {
        (self.0)(log)
    }
}

impl Default for LogOver {
    fn default() -> Self {
        LogOver::new(|log| Box::new(log))
    }
}

impl Debug for LogOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogOver")
    }
}

impl ChangeLog for Log {
    fn observe(&self, observer: Box<dyn Observer>) {
        self.observe(observer);
    }

    fn try_append(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<Option<u64>> {
        self.try_append(record, reserve_policy)
    }

    fn try_append_unawaited(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<Option<u64>> {
        self.try_append_unawaited(record, reserve_policy)
    }

    fn room(&self) -> u64 {
        self.room()
    }

    fn make_room(&self, bytes: usize, reserve_policy: ReservePolicy) -> Result<()> {
        self.make_room(bytes, reserve_policy)
    }

    fn commit(&self, number: u64) -> Result<()> {
        self.commit(number)
    }

    fn next_record(&self) -> u64 {
        self.next_record()
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written()
    }

    fn write_next(&self) -> bool {
        self.write_next()
    }

    fn keep_marked(&self) {
        self.keep_marked();
    }

    fn records_marked(&self) -> Option<u64> {
        self.records_marked()
    }

    fn mark(&self) -> Result<()> {
        self.mark()
    }

    fn turn_over(&self) -> Result<()> {
        self.turn_over()
    }

    fn forget_before(&self, number: u64) -> Result<()> {
        self.forget_before(number)
    }

    fn stop(&self) {
        self.stop();
    }

    fn close(&self) -> Result<()> {
        self.close()
    }
}

//! Counters of the execution statistics of a run (see [`Receipt`]), updated by many threads.
//!
//! Invariant: when a run is done, rows scanned and rows skipped add up to the rows of the table, and bytes scanned and
//! bytes skipped to its encoded bytes.

use farpool_columns::RowGroup;
use farpool_model::{Encoding, OperatorAnswer, Receipt, cast};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one run. Each only grows. A reader sees the value of each at some recent time, but not of all at the
/// same time.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    rows_scanned: AtomicU64,
    rows_skipped: AtomicU64,
    rows_returned: AtomicU64,
    rows_bypassed: AtomicU64,
    bytes_scanned: AtomicU64,
    bytes_skipped: AtomicU64,
    bytes_from_disk: AtomicU64,
    bytes_again: AtomicU64,
    bytes_from_cache: AtomicU64,
    bytes_shared: AtomicU64,
    rows_known: AtomicU64,
    cpu_ns: AtomicU64,
    waited_ns: AtomicU64,
}

impl Tally {
    /// Records that `rows` rows of a row group were processed, and that `bytes` of its encoded bytes were read which
    /// this run had not read before.
    pub(crate) fn scanned(&self, rows: u64, bytes: u64) {
        self.rows_scanned.fetch_add(rows, Relaxed);
        self.bytes_scanned.fetch_add(bytes, Relaxed);
    }

    /// Records that `bytes` were read because they were not in memory; `again` of them had been read before and
    /// evicted.
    pub(crate) fn read_from_disk(&self, bytes: u64, again: u64) {
        self.bytes_from_disk.fetch_add(bytes, Relaxed);
        self.bytes_again.fetch_add(again, Relaxed);
    }

    /// Records that `bytes` encoded bytes, of values that may be evicted, were found in memory.
    pub(crate) fn found_in_cache(&self, bytes: u64) {
        self.bytes_from_cache.fetch_add(bytes, Relaxed);
    }

    /// Records that `bytes` of those found in memory were there because another run had just read them.
    pub(crate) fn shared(&self, bytes: u64) {
        self.bytes_shared.fetch_add(bytes, Relaxed);
    }

    /// Records that the filter was not evaluated on `rows` rows, because another run with the same filter had done so.
    pub(crate) fn known(&self, rows: u64) {
        self.rows_known.fetch_add(rows, Relaxed);
    }

    /// Records that a row group is done, of which `rows` rows were processed and `bytes` encoded bytes read. Its
    /// remaining rows (excluded by a zone map or a limit) and bytes count as skipped.
    pub(crate) fn left(&self, group: &RowGroup, rows: u64, bytes: u64) {
        self.rows_skipped.fetch_add(cast::u64_from(group.rows).saturating_sub(rows), Relaxed);
        self.bytes_skipped.fetch_add(bytes_encoded(group).saturating_sub(bytes), Relaxed);
    }

    /// Records that rows were returned.
    pub(crate) fn returned(&self, rows: usize) {
        self.rows_returned.fetch_add(cast::u64_from(rows), Relaxed);
    }

    /// Records that rows were returned without having been grouped.
    pub(crate) fn bypassed(&self, rows: u64) {
        self.rows_bypassed.fetch_add(rows, Relaxed);
    }

    /// Adds CPU time that a worker spent, in nanoseconds.
    pub(crate) fn add_cpu(&self, ns: u64) {
        self.cpu_ns.fetch_add(ns, Relaxed);
    }

    /// Adds time during which the run was ready and no worker was free, in nanoseconds.
    pub(crate) fn add_wait(&self, ns: u64) {
        self.waited_ns.fetch_add(ns, Relaxed);
    }

    /// Returns the encoded bytes read so far.
    pub(crate) fn bytes_scanned(&self) -> u64 {
        self.bytes_scanned.load(Relaxed)
    }

    /// Returns the execution statistics so far. Fields that only the network layer or the caller's clock can know are
    /// zero.
    pub(crate) fn receipt(&self, operators: &[OperatorAnswer]) -> Receipt {
        Receipt {
            rows_scanned: self.rows_scanned.load(Relaxed),
            rows_skipped: self.rows_skipped.load(Relaxed),
            rows_returned: self.rows_returned.load(Relaxed),
            rows_known: self.rows_known.load(Relaxed),
            rows_bypassed: self.rows_bypassed.load(Relaxed),
            bytes_scanned: self.bytes_scanned.load(Relaxed),
            bytes_skipped: self.bytes_skipped.load(Relaxed),
            bytes_from_disk: self.bytes_from_disk.load(Relaxed),
            bytes_again: self.bytes_again.load(Relaxed),
            bytes_from_cache: self.bytes_from_cache.load(Relaxed),
            bytes_shared: self.bytes_shared.load(Relaxed),
            bytes_on_wire: 0,
            bytes_saved: 0,
            bytes_plain: 0,
            encoding: Encoding::None,
            encrypted: false,
            cpu_ns: self.cpu_ns.load(Relaxed),
            waited_ns: self.waited_ns.load(Relaxed),
            elapsed_ns: 0,
            operators: operators.to_vec(),
            lookups: Vec::new(),
        }
    }
}

fn bytes_encoded(group: &RowGroup) -> u64 {
    group.chunks.iter().map(|chunk| cast::u64_from(chunk.bytes_encoded())).sum()
}

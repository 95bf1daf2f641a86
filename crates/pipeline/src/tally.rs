//! What a run has cost so far, counted by many threads: the numbers of its receipt.
//!
//! Invariant: when a run is done, rows scanned and skipped add up to the rows of the table, and bytes
//! scanned and skipped to its encoded bytes.

use farpool_columns::RowGroup;
use farpool_model::{Encoding, OperatorAnswer, Receipt, cast};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters. Each only grows; a reader sees each at some recent value.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    rows_scanned: AtomicU64,
    rows_skipped: AtomicU64,
    rows_returned: AtomicU64,
    rows_bypassed: AtomicU64,
    bytes_scanned: AtomicU64,
    bytes_skipped: AtomicU64,
    cpu_ns: AtomicU64,
    waited_ns: AtomicU64,
}

impl Tally {
    /// Some rows of a row group were looked into, and `bytes` of its encoded bytes read that had not been before.
    pub(crate) fn scanned(&self, rows: u64, bytes: u64) {
        self.rows_scanned.fetch_add(rows, Relaxed);
        self.bytes_scanned.fetch_add(bytes, Relaxed);
    }

    /// A row group is done with after `rows` rows and `bytes` encoded bytes of it: a zone map or a limit ruled the
    /// other rows out, and nobody needs the other bytes.
    pub(crate) fn left(&self, group: &RowGroup, rows: u64, bytes: u64) {
        self.rows_skipped.fetch_add(cast::u64_from(group.rows).saturating_sub(rows), Relaxed);
        self.bytes_skipped.fetch_add(bytes_encoded(group).saturating_sub(bytes), Relaxed);
    }

    /// Rows left as results.
    pub(crate) fn returned(&self, rows: usize) {
        self.rows_returned.fetch_add(cast::u64_from(rows), Relaxed);
    }

    /// Rows left without having been grouped.
    pub(crate) fn bypassed(&self, rows: u64) {
        self.rows_bypassed.fetch_add(rows, Relaxed);
    }

    /// A worker spent CPU time.
    pub(crate) fn add_cpu(&self, ns: u64) {
        self.cpu_ns.fetch_add(ns, Relaxed);
    }

    /// Nobody worked on it for a time, although somebody could have.
    pub(crate) fn add_wait(&self, ns: u64) {
        self.waited_ns.fetch_add(ns, Relaxed);
    }

    /// Encoded bytes read so far.
    pub(crate) fn bytes_scanned(&self) -> u64 {
        self.bytes_scanned.load(Relaxed)
    }

    /// The receipt so far; what only a network or a clock can know is zero.
    pub(crate) fn receipt(&self, operators: &[OperatorAnswer]) -> Receipt {
        Receipt {
            rows_scanned: self.rows_scanned.load(Relaxed),
            rows_skipped: self.rows_skipped.load(Relaxed),
            rows_returned: self.rows_returned.load(Relaxed),
            rows_bypassed: self.rows_bypassed.load(Relaxed),
            bytes_scanned: self.bytes_scanned.load(Relaxed),
            bytes_skipped: self.bytes_skipped.load(Relaxed),
            bytes_on_wire: 0,
            bytes_plain: 0,
            encoding: Encoding::None,
            cpu_ns: self.cpu_ns.load(Relaxed),
            waited_ns: self.waited_ns.load(Relaxed),
            elapsed_ns: 0,
            operators: operators.to_vec(),
        }
    }
}

fn bytes_encoded(group: &RowGroup) -> u64 {
    group.chunks.iter().map(|chunk| cast::u64_from(chunk.bytes_encoded())).sum()
}

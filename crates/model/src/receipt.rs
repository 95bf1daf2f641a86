//! Execution statistics: what each program cost and saved, as the node reports with its result. Users know them as the
//! receipt of a query.

use crate::{Encoding, OperatorAnswer};
use serde::{Deserialize, Serialize};

/// Execution statistics of one program, or of all programs of a query together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Rows of the row groups that were read.
    pub rows_scanned: u64,
    /// Rows of the row groups that were not read because of zone maps, a limit, or the predicate cache.
    pub rows_skipped: u64,
    /// Rows of `rows_scanned` for which the predicate cache had, from another program with the same filter, whether
    /// they pass.
    #[serde(default)]
    pub rows_known: u64,
    /// Rows of the result.
    pub rows_returned: u64,
    /// Rows that passed the filter of an aggregation and were returned ungrouped because the memory for groups was
    /// full. They are included in `rows_returned`.
    #[serde(default)]
    pub rows_bypassed: u64,
    /// Encoded bytes of the column chunks that were read.
    pub bytes_scanned: u64,
    /// Encoded bytes of the table's column chunks that were not read, because of their column or their row group.
    pub bytes_skipped: u64,
    /// Bytes read from disk for column chunks that were not in memory: the stored, possibly compressed bytes.
    #[serde(default)]
    pub bytes_from_disk: u64,
    /// Bytes of column chunks that were read again after they had been evicted from memory. Part of `bytes_from_disk`,
    /// or of `bytes_on_wire` for a client that caches columns.
    #[serde(default)]
    pub bytes_again: u64,
    /// Encoded bytes of the column chunks that were in memory when they were needed, among those that can be evicted. 0
    /// without a data directory, because nothing is evicted then.
    #[serde(default)]
    pub bytes_from_cache: u64,
    /// Bytes of `bytes_from_cache` that another program had just read, in a scan that several programs share.
    #[serde(default)]
    pub bytes_shared: u64,
    /// Bytes that crossed the network in both directions, frames included; 0 in-process.
    pub bytes_on_wire: u64,
    /// Bytes that were not sent over the network because the client had cached the results.
    #[serde(default)]
    pub bytes_saved: u64,
    /// Bytes that the rows sent over the network would have as plain Arrow arrays; 0 in-process.
    pub bytes_plain: u64,
    /// The encoding in which the rows crossed the network.
    pub encoding: Encoding,
    /// Whether the rows and these statistics were encrypted for the client (`--encrypt-results`), in addition to TLS.
    #[serde(default)]
    pub encrypted: bool,
    /// CPU time of the node's workers, in nanoseconds.
    pub cpu_ns: u64,
    /// Nanoseconds during which the program was ready to run but no worker was free, which is the delay caused by other
    /// clients.
    #[serde(default)]
    pub waited_ns: u64,
    /// Nanoseconds from the start of the program to its last row.
    pub elapsed_ns: u64,
    /// The operators of the program, with the planning answer for each.
    pub operators: Vec<OperatorAnswer>,
    /// The lookups of the program, each after those of its own program.
    #[serde(default)]
    pub lookups: Vec<LookupReceipt>,
}

/// Cost of the table of a lookup: the result of the lookup's program, held by its join keys. The receipt of the program
/// includes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupReceipt {
    /// Name of the table that the lookup's program scans.
    pub table: String,
    /// Rows that are held.
    pub rows: u64,
    /// Bytes of memory that they take, with their index.
    pub bytes: u64,
    /// Nanoseconds from the first step of the lookup's program until rows could be looked up; 0 if that was not reached.
    pub elapsed_ns: u64,
}

impl Receipt {
    /// Adds the statistics of `other`, a program of the same query. The elapsed time becomes the longer one, because
    /// the programs of a query run at the same time.
    pub fn merge(&mut self, other: &Receipt) {
        self.rows_scanned += other.rows_scanned;
        self.rows_skipped += other.rows_skipped;
        self.rows_known += other.rows_known;
        self.rows_returned += other.rows_returned;
        self.rows_bypassed += other.rows_bypassed;
        self.bytes_scanned += other.bytes_scanned;
        self.bytes_skipped += other.bytes_skipped;
        self.bytes_from_disk += other.bytes_from_disk;
        self.bytes_again += other.bytes_again;
        self.bytes_from_cache += other.bytes_from_cache;
        self.bytes_shared += other.bytes_shared;
        self.bytes_on_wire += other.bytes_on_wire;
        self.bytes_saved += other.bytes_saved;
        self.bytes_plain += other.bytes_plain;
        self.encoding = self.encoding.and(other.encoding);
        self.encrypted |= other.encrypted;
        self.cpu_ns += other.cpu_ns;
        self.waited_ns += other.waited_ns;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.operators.extend(other.operators.iter().cloned());
        self.lookups.extend(other.lookups.iter().cloned());
    }
}

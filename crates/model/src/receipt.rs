//! The receipt: the costs and savings that a node reports with the result of every program.

use crate::{Encoding, OperatorAnswer};
use serde::{Deserialize, Serialize};

/// The costs and savings of one program, or of all programs of one query together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Rows of the row groups that were read.
    pub rows_scanned: u64,
    /// Rows of the row groups that were skipped because of zone maps, a limit, or a judgement of their filter.
    pub rows_skipped: u64,
    /// Rows of `rows_scanned` for which another program with the same filter had determined whether they pass.
    #[serde(default)]
    pub rows_known: u64,
    /// Rows of the result.
    pub rows_returned: u64,
    /// Rows that passed the filter of a grouping and left ungrouped because the memory for groups was full;
    /// they are counted in `rows_returned`.
    #[serde(default)]
    pub rows_bypassed: u64,
    /// Encoded bytes of the column chunks that were read.
    pub bytes_scanned: u64,
    /// Encoded bytes of the table's column chunks that were not read: those of other columns and of skipped
    /// row groups.
    pub bytes_skipped: u64,
    /// Bytes read from disk for column chunks that were not in memory, as stored, compressed or not.
    #[serde(default)]
    pub bytes_from_disk: u64,
    /// Bytes of `bytes_from_disk`, or of `bytes_on_wire` for a client that keeps columns, for column chunks that had
    /// been in memory before and were evicted.
    #[serde(default)]
    pub bytes_again: u64,
    /// Encoded bytes of the column chunks that were in memory when they were wanted, of those that may leave it.
    /// Without a data directory there are none.
    #[serde(default)]
    pub bytes_from_cache: u64,
    /// Bytes of `bytes_from_cache` that another program had just read, in a scan shared by several.
    #[serde(default)]
    pub bytes_shared: u64,
    /// Bytes that crossed the network, both ways, frames included; 0 in-process.
    pub bytes_on_wire: u64,
    /// Bytes that were not sent over the network, because this client had kept the results.
    #[serde(default)]
    pub bytes_saved: u64,
    /// Size as plain Arrow arrays of the rows that crossed the network, in bytes; 0 in-process.
    pub bytes_plain: u64,
    /// The encoding of the rows that crossed the network.
    pub encoding: Encoding,
    /// Whether the rows and this receipt crossed the network encrypted to the client (`--encrypt-results`), beside TLS.
    #[serde(default)]
    pub encrypted: bool,
    /// CPU time of the node's workers, in nanoseconds.
    pub cpu_ns: u64,
    /// Time in nanoseconds during which the program was ready to run but no worker was free: the delay caused
    /// by other clients.
    #[serde(default)]
    pub waited_ns: u64,
    /// Time from the start of the program to its last row, in nanoseconds.
    pub elapsed_ns: u64,
    /// The operators and the answer for each.
    pub operators: Vec<OperatorAnswer>,
}

impl Receipt {
    /// Adds the costs of `other`, a program of the same query. Elapsed time becomes the longer of the two.
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
    }
}

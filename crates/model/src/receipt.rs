//! What a node reports about a program that ran: the receipt that comes with every result.

use crate::{Encoding, OperatorAnswer};
use serde::{Deserialize, Serialize};

/// What one program, or the programs of one query together, cost and saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Rows of the row groups that were looked into.
    pub rows_scanned: u64,
    /// Rows of the row groups that zone maps or a limit ruled out.
    pub rows_skipped: u64,
    /// Rows of the result.
    pub rows_returned: u64,
    /// Rows that passed the filter of a grouping and left without having been grouped, one by one, because
    /// the memory for groups was full; they are among the rows of the result.
    #[serde(default)]
    pub rows_bypassed: u64,
    /// Encoded bytes of the column chunks that were read.
    pub bytes_scanned: u64,
    /// Encoded bytes of the table's column chunks that were not read: other columns, other row groups.
    pub bytes_skipped: u64,
    /// Bytes that crossed the network, both ways, frames included; 0 in-process.
    pub bytes_on_wire: u64,
    /// Bytes that the rows which crossed the network have as plain Arrow arrays; 0 in-process.
    pub bytes_plain: u64,
    /// In which form those rows crossed it.
    pub encoding: Encoding,
    /// CPU time of the node's workers, in nanoseconds.
    pub cpu_ns: u64,
    /// How long the program could have gone on and no worker had time for it, in nanoseconds: what other clients
    /// cost it.
    #[serde(default)]
    pub waited_ns: u64,
    /// From the start of the program to its last row, in nanoseconds.
    pub elapsed_ns: u64,
    /// The operators and how far each was carried out.
    pub operators: Vec<OperatorAnswer>,
}

impl Receipt {
    /// Adds the costs of `other`, a program of the same query. Elapsed time is the longer of the two.
    pub fn merge(&mut self, other: &Receipt) {
        self.rows_scanned += other.rows_scanned;
        self.rows_skipped += other.rows_skipped;
        self.rows_returned += other.rows_returned;
        self.rows_bypassed += other.rows_bypassed;
        self.bytes_scanned += other.bytes_scanned;
        self.bytes_skipped += other.bytes_skipped;
        self.bytes_on_wire += other.bytes_on_wire;
        self.bytes_plain += other.bytes_plain;
        self.encoding = self.encoding.and(other.encoding);
        self.cpu_ns += other.cpu_ns;
        self.waited_ns += other.waited_ns;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.operators.extend(other.operators.iter().cloned());
    }
}

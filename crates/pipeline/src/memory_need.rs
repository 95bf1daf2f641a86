//! Upper bound of the memory that a run takes besides the pool: its program, the working memory of each thread, its
//! groups, and results that wait to be returned.
//!
//! The bound is known before the run begins, so that its owner can reserve it. Runs whose groups may be returned in
//! parts can run with less.

use crate::bound::BoundProgram;
use farpool_columns::Table;
use farpool_model::{Output, limits};
use farpool_operators::Plan;

/// Copies that a thread holds of the rows that it takes from a row group: as values, and as a message.
const COPIES: usize = 2;

/// Copies that a thread holds of a row group that is encrypted or generated.
const OPEN_COPIES: usize = 1;

/// Copies that a thread holds of a column that it re-encodes.
const FORMS: usize = 3;

/// Bytes that a thread holds for each expression node and each column while it works on a batch.
const LANE_BYTES: usize = 8 * limits::BATCH_ROWS;

/// Minimum bytes for groups that may be returned in parts.
const GROUPS_LEAST: usize = 1 << 20;

/// Groups that may be returned in parts get one part in this many of the memory for groups.
const PARTIAL_PART: usize = 2;

/// Memory that a run needs besides the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Bytes of the program, which are in use before the run begins.
    pub program: usize,
    /// Bytes of results that wait to be returned.
    pub results: usize,
    /// Bytes of each thread.
    pub thread: usize,
    /// Expected number of threads.
    pub threads: usize,
    /// Bytes of the groups of all threads, and of the merged groups.
    pub groups: usize,
    /// Minimum bytes for groups, if they may be returned in parts.
    pub groups_least: usize,
}

impl MemoryNeed {
    /// Returns the need of `program`, compiled to `plan`.
    pub(crate) fn of(program: &BoundProgram, plan: &Plan) -> MemoryNeed {
        let (prepared, table, budget) = (program.prepared(), program.table(), program.budget());
        let columns = program.columns();
        let plain: usize = columns.iter().map(|column| table.bytes_plain_most[*column]).sum();
        let is_copied = table.cipher().is_some() || table.live_rows().is_some();
        let copies = if is_copied { COPIES + OPEN_COPIES } else { COPIES };
        let parts = program.parts() + columns.len() + 1;
        // The result of an exact grouping is no larger than its groups.
        let results = match &prepared.effective.output {
            Output::Aggregate { .. } => plan.group_bytes().unwrap_or(usize::MAX),
            Output::Rows(_) => usize::MAX,
        };
        let (groups, groups_least) = match plan.group_bytes() {
            _ if prepared.is_partial() => {
                (budget.state_bytes_max / PARTIAL_PART, GROUPS_LEAST.min(budget.state_bytes_max))
            }
            // Merged groups are never more than the groups of all threads.
            Some(bytes) => {
                let bytes = bytes.saturating_mul(budget.workers + 1);
                (bytes, bytes)
            }
            None => (budget.state_bytes_max, budget.state_bytes_max),
        };
        MemoryNeed {
            program: program.bytes(),
            results: results.min(limits::STREAM_WINDOW_BYTES),
            thread: copies * plain + parts.min(limits::LANES_MAX) * LANE_BYTES,
            threads: budget.workers.min(table.row_groups.len()).max(1),
            groups,
            groups_least,
        }
    }

    /// Adds the memory for re-encoding `columns`: old values, new values, and encoded ones.
    #[must_use]
    pub(crate) fn encoding(self, table: &Table, columns: &[usize]) -> MemoryNeed {
        let plain: usize = columns.iter().map(|column| table.bytes_plain_most[*column]).sum();
        MemoryNeed { thread: self.thread + FORMS * plain, ..self }
    }

    /// Reduces the number of threads so that they take at most `bytes`; at least one remains.
    #[must_use]
    pub fn with_threads_within(self, bytes: usize) -> MemoryNeed {
        MemoryNeed { threads: self.threads.min((bytes / self.thread.max(1)).max(1)), ..self }
    }

    /// Halves the memory for groups; `None` if they may not be returned in parts, or are at their minimum.
    pub fn smaller(self) -> Option<MemoryNeed> {
        let groups = (self.groups / 2).max(self.groups_least);
        (groups < self.groups).then_some(MemoryNeed { groups, ..self })
    }

    /// Returns the sum of all bytes, for all threads.
    pub fn bytes(&self) -> usize {
        let fixed = self.program + self.results;
        fixed.saturating_add(self.thread.saturating_mul(self.threads)).saturating_add(self.groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_becomes_smaller_down_to_its_least() {
        let need =
            MemoryNeed { program: 8, results: 2, thread: 100, threads: 8, groups: 1000, groups_least: 100 };
        assert_eq!(need.bytes(), 1810);
        assert_eq!(need.with_threads_within(350).threads, 3);
        assert_eq!(need.with_threads_within(1).threads, 1);
        let groups: Vec<usize> =
            std::iter::successors(Some(need), |need| need.smaller()).map(|need| need.groups).collect();
        assert_eq!(groups, [1000, 500, 250, 125, 100]);
        assert_eq!(MemoryNeed { groups_least: 1000, ..need }.smaller(), None);
    }
}

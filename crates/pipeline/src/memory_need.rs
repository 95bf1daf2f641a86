//! Upper bound of the memory that one execution of a program (the part of a query over one table that is pushed down)
//! takes outside the memory pool of the tables: the program itself, the working memory of each thread, the groups of an
//! aggregation (those of all threads, and the merged ones), and results that wait to be returned.
//!
//! The bound is known before the execution begins, so that the memory can be reserved. If groups may be returned early
//! as partial results, or may end the execution with an error, less memory is enough.

use crate::bound::BoundProgram;
use crate::budget::Overflow;
use crate::joined::Joined;
use farpool_columns::Table;
use farpool_model::{Output, Result, limits};
use farpool_operators::Plan;

/// Number of copies that a thread holds of the rows it returns from a row group: as values, and as a message.
const COPIES: usize = 2;

/// Number of copies that a thread holds of a row group that it decrypts or generates.
const OPEN_COPIES: usize = 1;

/// Number of copies that a thread holds of a column that it re-encodes: old values, new values, and encoded ones.
const FORMS: usize = 3;

/// Bytes that a thread holds for each expression node and each column while it processes a batch.
const LANE_BYTES: usize = 8 * limits::BATCH_ROWS;

/// Minimum number of bytes for groups that are not sure to fit their memory.
const GROUPS_LEAST: usize = 1 << 20;

/// Divisor: groups that are not sure to fit their memory get one part in this many of the memory for groups.
const UNSURE_PART: usize = 2;

/// Memory that one execution needs outside the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Bytes of the program, which is in memory before the execution begins.
    pub program: usize,
    /// Bytes of the tables of lookups, and of the runs that make them, without their groups.
    pub lookups: usize,
    /// Bytes of results that wait to be returned.
    pub results: usize,
    /// Bytes per thread, without groups.
    pub thread: usize,
    /// Number of threads.
    pub threads: usize,
    /// Bytes of the groups of all threads, and of the merged groups: of the run, or of its lookups' programs together,
    /// which have none any more when the run has some.
    pub groups: usize,
    /// Minimum for `groups`, if groups that do not fit are returned early as partial results or end the run with an
    /// error; otherwise equal to `groups`.
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
        // The result of a grouping that is answered `exact` is no larger than its groups.
        let results = match &prepared.effective.output {
            Output::Aggregate { .. } => plan.group_bytes().unwrap_or(usize::MAX),
            Output::Rows(_) => usize::MAX,
        };
        let (groups, groups_least) = match (program.overflow(), plan.group_bytes()) {
            (Overflow::Parts | Overflow::Error, _) => {
                let groups = budget.state_bytes_max / UNSURE_PART;
                (groups, GROUPS_LEAST.min(groups))
            }
            // Merging makes no more groups than all threads have together.
            (Overflow::Never, Some(bytes)) => {
                let bytes = bytes.saturating_mul(budget.workers + 1);
                (bytes, bytes)
            }
            (Overflow::Never, None) => (budget.state_bytes_max, budget.state_bytes_max),
        };
        MemoryNeed {
            program: program.bytes(),
            lookups: 0,
            results: results.min(limits::STREAM_WINDOW_BYTES),
            thread: copies * plain + parts.min(limits::LANES_MAX) * LANE_BYTES,
            threads: budget.workers.min(table.row_groups.len()).max(1),
            groups,
            groups_least,
        }
    }

    /// Returns the need of `program`, which has lookups.
    ///
    /// # Errors
    /// Fails only on a bug in the operators.
    pub(crate) fn of_joined(program: &BoundProgram, joined: &Joined) -> Result<MemoryNeed> {
        let mut need = MemoryNeed::of(program, &joined.upper);
        // Each lookup has a batch that goes through it, and the upper stage one.
        let batches = joined.lookups.len() + 1;
        let row = joined.row_bytes().saturating_mul(limits::BATCH_ROWS);
        need.thread = need.thread.saturating_add(row.saturating_mul(COPIES * batches));
        need.lookups = joined.table_bytes(program.budget());
        let (mut groups, mut groups_least): (usize, usize) = (0, 0);
        for side in &joined.sides {
            let of_side = match side.joined() {
                Some(joined) => MemoryNeed::of_joined(side, joined)?,
                None => MemoryNeed::of(side, &side.plan()?),
            };
            need.lookups = need.lookups.saturating_add(MemoryNeed { groups: 0, ..of_side }.bytes());
            // Several of these programs may run at the same time.
            groups = groups.saturating_add(of_side.groups);
            groups_least = groups_least.saturating_add(of_side.groups_least);
        }
        // Together they get no more than one of them alone, unless they are sure to take more. Their groups are gone
        // when their runs end, before the program itself has groups.
        groups = groups.min(program.budget().state_bytes_max / UNSURE_PART).max(groups_least);
        need.groups = need.groups.max(groups);
        need.groups_least = need.groups_least.max(groups_least);
        Ok(need)
    }

    /// Returns the bytes for the groups of each run, if those of all `runs`, whose needs these are, take `bytes` bytes
    /// together: what it needs at least, and a share of the rest in proportion to what it can do without.
    pub(crate) fn divided(runs: &[MemoryNeed], bytes: usize) -> impl Iterator<Item = usize> + '_ {
        let spare = |need: &MemoryNeed| need.groups.saturating_sub(need.groups_least);
        let least = runs.iter().map(|need| need.groups_least).fold(0, usize::saturating_add);
        let all = runs.iter().map(spare).fold(0, usize::saturating_add);
        let rest = bytes.saturating_sub(least).min(all);
        runs.iter().map(move |need| {
            let share = spare(need) as u128 * rest as u128 / all.max(1) as u128;
            need.groups_least + share as usize
        })
    }

    /// Returns the need with the memory for re-encoding `columns`: old values, new values, and encoded ones.
    #[must_use]
    pub(crate) fn encoding(self, table: &Table, columns: &[usize]) -> MemoryNeed {
        let plain: usize = columns.iter().map(|column| table.bytes_plain_most[*column]).sum();
        MemoryNeed { thread: self.thread + FORMS * plain, ..self }
    }

    /// Reduces the number of threads, but not below one, so that their memory together takes at most `bytes`.
    #[must_use]
    pub fn with_threads_within(self, bytes: usize) -> MemoryNeed {
        MemoryNeed { threads: self.threads.min((bytes / self.thread.max(1)).max(1)), ..self }
    }

    /// Returns the need with half the memory for groups; `None` if that memory is at its minimum already.
    pub fn smaller(self) -> Option<MemoryNeed> {
        let groups = (self.groups / 2).max(self.groups_least);
        (groups < self.groups).then_some(MemoryNeed { groups, ..self })
    }

    /// Returns the bytes of all parts and threads together.
    pub fn bytes(&self) -> usize {
        let fixed = self.program.saturating_add(self.lookups).saturating_add(self.results);
        fixed.saturating_add(self.thread.saturating_mul(self.threads)).saturating_add(self.groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_groups_is_divided_among_runs_that_can_do_with_less() {
        let need = |groups, groups_least| MemoryNeed {
            program: 0,
            lookups: 0,
            results: 0,
            thread: 0,
            threads: 1,
            groups,
            groups_least,
        };
        let divided = |runs: &[MemoryNeed], bytes| MemoryNeed::divided(runs, bytes).collect::<Vec<_>>();
        let runs = [need(1000, 100), need(700, 700), need(400, 100)];
        for bytes in [900, 1000, 1500, 2100] {
            assert_eq!(divided(&runs, bytes).iter().sum::<usize>(), bytes);
        }
        assert_eq!(divided(&runs, 1300), [400, 700, 200]);
        assert_eq!(divided(&runs, 5000), [1000, 700, 400], "no more than needed");
        assert_eq!(divided(&runs, 0), [100, 700, 100], "no less than the least");
        let most = usize::MAX / 2;
        assert_eq!(divided(&[need(most, 0), need(most, 0)], most), [most / 2; 2]);
        assert!(divided(&[], 10).is_empty());
    }

    #[test]
    fn a_need_becomes_smaller_down_to_its_least() {
        let need = MemoryNeed {
            program: 8,
            lookups: 0,
            results: 2,
            thread: 100,
            threads: 8,
            groups: 1000,
            groups_least: 100,
        };
        assert_eq!(need.bytes(), 1810);
        assert_eq!(need.with_threads_within(350).threads, 3);
        assert_eq!(need.with_threads_within(1).threads, 1);
        let groups: Vec<usize> =
            std::iter::successors(Some(need), |need| need.smaller()).map(|need| need.groups).collect();
        assert_eq!(groups, [1000, 500, 250, 125, 100]);
        assert_eq!(MemoryNeed { groups_least: 1000, ..need }.smaller(), None);
    }
}

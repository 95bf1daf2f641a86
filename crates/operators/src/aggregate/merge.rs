//! Merges the partial aggregations (groups and their running values) of all worker threads.
//!
//! Groups are split into independent partitions by the top bits of their hash, which any number of threads may merge.
//! Few groups are not split. If only one worker has groups, each group is there once, and no hash table is needed.
//!
//! A *way* is an implementation of aggregation (see [`super`]).

use super::fitted::FittedAggregation;
use super::give::{give, partitions};
use super::limit::MergedBytes;
use super::partial::Partial;
use super::radix::Partitions;
use super::whole::WholeTables;
use crate::project::Emit;
use farpool_model::Result;
use farpool_model::cast::u32_checked;

/// Approximate number of groups per merge task. Merging that many takes about a millisecond.
const GROUPS_PER_TASK: usize = 8 << 10;

/// Maximum number of merge tasks. Reason: each has a list of groups for each worker.
const TASKS_MAX: usize = 4096;

/// The partial aggregations of all workers, prepared for merging.
pub(crate) struct Merging {
    /// Arrays of the whole-table way, if it was used; the partial aggregations then have no other groups.
    whole: Option<WholeTables>,
    /// Partitions of the radix way (rows partitioned by the hash of their group keys), if it was used; they then have
    /// all groups.
    radix: Option<Partitions>,
    partials: Vec<Partial>,
    /// For each partial aggregation and partition, the ids of its groups.
    partitions: Vec<Vec<Vec<u32>>>,
    merged: MergedBytes,
    tasks: usize,
}

impl Merging {
    /// Takes the partials of all workers.
    pub(crate) fn new(fitted: &FittedAggregation, mut partials: Vec<Partial>) -> Self {
        let merged = MergedBytes::of(&partials);
        if let Ok(whole) = &fitted.whole {
            let tables = partials.into_iter().filter_map(|p| p.whole).collect();
            let whole = WholeTables::new(whole, tables);
            let tasks = whole.tasks();
            return Merging { whole: Some(whole), ..Merging::of_tasks(tasks, merged) };
        }
        if partials.iter().any(|p| p.radix.is_some()) {
            let held = partials.into_iter().map(|p| (p.groups, p.stores, p.radix));
            let radix = Partitions::new(held);
            let tasks = radix.tasks();
            return Merging { radix: Some(radix), ..Merging::of_tasks(tasks, merged) };
        }
        if fitted.aggregation.keys.is_empty() {
            if partials.is_empty() {
                partials.push(Partial::new(&fitted.aggregation));
            }
        } else {
            partials.retain(|p| p.groups.len() > 0);
        }
        let groups: usize = partials.iter().map(|p| p.groups.len()).sum();
        let tasks = match partials.len() {
            0 => 0,
            _ => groups.div_ceil(GROUPS_PER_TASK).next_power_of_two().min(TASKS_MAX),
        };
        let partitions = match partials.len() {
            0 | 1 => Vec::new(),
            _ => partials.iter().map(|p| partitions(&p.groups, tasks)).collect(),
        };
        Merging { partials, partitions, ..Merging::of_tasks(tasks, merged) }
    }

    fn of_tasks(tasks: usize, merged: MergedBytes) -> Self {
        Merging { whole: None, radix: None, partials: Vec::new(), partitions: Vec::new(), merged, tasks }
    }

    /// Returns the number of merge tasks.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks
    }

    /// Merges one partition and emits its groups.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type; `OverLimit` if the groups exceed their memory limit.
    pub(crate) fn run(&self, fitted: &FittedAggregation, task: usize, emit: &mut Emit<'_>) -> Result<()> {
        let aggregation = &fitted.aggregation;
        if let (Some(tables), Ok(whole)) = (&self.whole, &fitted.whole) {
            return tables.run(aggregation, whole, task, emit);
        }
        if let (Some(partitions), Some(shape)) = (&self.radix, &fitted.radix) {
            return partitions.run(aggregation, shape, &self.merged, task, emit);
        }
        if let [partial] = self.partials.as_slice() {
            let groups = partial.groups.len();
            let (first, last) = (groups * task / self.tasks, groups * (task + 1) / self.tasks);
            let mine: Vec<u32> = (u32_checked(first)..u32_checked(last)).collect();
            let _ = give(aggregation, &partial.groups, &partial.stores, &mine, emit)?;
            return Ok(());
        }
        let mut merged = Partial::new(aggregation);
        let mut to = Vec::new();
        let mut held = self.merged.hold();
        for (partial, partitions) in self.partials.iter().zip(&self.partitions) {
            let from = &partitions[task];
            merged.groups.intern_groups(&partial.groups, from, &mut to)?;
            merged.make_room();
            for (store, other) in merged.stores.iter_mut().zip(&partial.stores) {
                store.merge(other, from, &to)?;
            }
            held.set(merged.group_bytes())?;
        }
        let all: Vec<u32> = (0..u32_checked(merged.groups.len())).collect();
        let _ = give(aggregation, &merged.groups, &merged.stores, &all, emit)?;
        Ok(())
    }
}

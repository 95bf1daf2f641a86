//! Groups the partitioned rows of all worker threads and merges their groups, partition by partition. Rows are
//! partitioned by the hash of their group keys, so that each partition can be merged alone.

use super::part::Part;
use super::records::Records;
use super::shape::{PARTITIONS, Shape};
use super::worker::Radix;
use crate::aggregate::aggregation::Aggregation;
use crate::aggregate::give::{Batches, partitions};
use crate::aggregate::limit::MergedBytes;
use crate::aggregate::store::Store;
use crate::group::Groups;
use crate::project::Emit;
use farpool_model::Result;
use parking_lot::Mutex;

/// Approximate number of records (rows that are not grouped yet) and groups per merge task. Grouping that many takes
/// half a millisecond.
const RECORDS_PER_TASK: usize = 8 << 10;

/// Minimum number of merge tasks. Reason: with that many, two to eight threads end at about the same time.
const TASKS_MIN: usize = 32;

/// The partitions of all workers.
pub(crate) struct Partitions {
    /// For each partition, the groups that workers have made of it; taken by the partition's merge task.
    parts: Vec<Mutex<Vec<Part>>>,
    /// Records of each worker that are not grouped yet.
    records: Vec<Records>,
    /// For each worker, its groups from before it began to partition rows, their accumulators, and the ids of the
    /// groups by partition.
    before: Vec<(Groups, Vec<Store>, Vec<Vec<u32>>)>,
    tasks: usize,
}

impl Partitions {
    /// Takes the groups and records of all workers.
    pub(crate) fn new(workers: impl Iterator<Item = (Groups, Vec<Store>, Option<Radix>)>) -> Self {
        let mut all = Partitions {
            parts: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            records: Vec::new(),
            before: Vec::new(),
            tasks: TASKS_MIN,
        };
        let mut count = 0;
        for (groups, stores, radix) in workers {
            count += groups.len();
            if let Some(Radix { records, parts, .. }) = radix {
                count += records.count() + parts.iter().map(|part| part.groups.len()).sum::<usize>();
                all.records.push(records);
                let places = all.parts.iter_mut().zip(parts);
                places.for_each(|(place, part)| place.get_mut().push(part));
            }
            let by_partition = partitions(&groups, PARTITIONS);
            all.before.push((groups, stores, by_partition));
        }
        all.tasks = (count / RECORDS_PER_TASK).next_power_of_two().clamp(TASKS_MIN, PARTITIONS);
        all
    }

    /// Returns the number of merge tasks.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks
    }

    /// Merges the partitions of one task and emits their groups, whose bytes count in `merged`.
    ///
    /// # Errors
    /// `Invalid` when a sum does not fit its type; `OverLimit` if the groups exceed their memory limit.
    pub(crate) fn run(
        &self,
        aggregation: &Aggregation,
        shape: &Shape,
        merged: &MergedBytes,
        task: usize,
        emit: &mut Emit<'_>,
    ) -> Result<()> {
        let mut batches = Batches::default();
        let mut expected = 0;
        let mut held = merged.hold();
        let per_task = PARTITIONS / self.tasks;
        for partition in task * per_task..(task + 1) * per_task {
            let part = self.merged(aggregation, shape, partition, expected)?;
            expected = part.groups.len();
            held.set(part.bytes())?;
            if part.give(aggregation, &mut |batch| batches.add(batch, emit))?.is_break() {
                break;
            }
        }
        batches.finish(emit)
    }

    /// Merges one partition of all workers. If no worker has groups of the partition, the hash table starts with room
    /// for `expected` groups.
    fn merged(
        &self,
        aggregation: &Aggregation,
        shape: &Shape,
        partition: usize,
        expected: usize,
    ) -> Result<Part> {
        let mut parts = std::mem::take(&mut *self.parts[partition].lock());
        let mut merged = parts.pop().unwrap_or_else(|| Part::new(aggregation, expected));
        for other in &parts {
            merged.add_part(other)?;
        }
        for (groups, stores, by_partition) in &self.before {
            merged.add_groups(groups, stores, &by_partition[partition])?;
        }
        for records in &self.records {
            merged.add_records(shape, records, partition)?;
        }
        Ok(merged)
    }
}

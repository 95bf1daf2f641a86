//! Merges of small row groups of a table into larger ones, in the background of appends.
//!
//! A merge decodes adjacent row groups column by column, encodes their rows as one row group, and replaces them by it.
//! The version stays the same, because it has the same rows in the same order; a query that reads it keeps the old row
//! groups. A table has one merge at a time, which is done in steps by the [`super::Background`] and by appends that
//! find too many small row groups.
//!
//! Invariants: row groups that were passed to a tap (settled ones, a prefix of the table) are no longer merged. A merge
//! that finds no working memory is retried when some was freed. A merge that finds the pool full is retried when one
//! more page is free than at that time, or after the next append; its encoded columns are discarded each time.

mod plan;

use super::changes::{Change, ChangeKind};
use super::{Catalog, Chore, Current, StepOutcome};
use farpool_columns::{Chunk, Encoder, RowGroup, Table};
use farpool_memory::Reservation;
use farpool_model::cast::u64_from;
use farpool_model::{ErrorKind, Result, TableName, TenantName, limits};
use parking_lot::Mutex;
use plan::GroupSize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The background task that does the merges of one table.
#[derive(Debug)]
pub struct MergeTask {
    number: u64,
    tenant: TenantName,
    name: TableName,
    catalog: Weak<Catalog>,
    job: Mutex<Option<MergeJob>>,
    /// Whether there may be row groups to merge that the task has not looked at yet.
    is_wanted: AtomicBool,
    /// Bytes of the pool that must be free before the next merge begins; set when a merge found the pool full, and 0
    /// for any number.
    room_wanted: AtomicU64,
    /// Whether the task is in the queue of the background.
    is_submitted: AtomicBool,
    /// Whether merging has ended for good, because the table was dropped or a bug has stopped it.
    is_over: AtomicBool,
}

/// A merge in progress.
#[derive(Debug)]
struct MergeJob {
    /// Index in the table of the first row group to be merged.
    first: usize,
    groups: Vec<Arc<RowGroup>>,
    encoder: Encoder,
    /// The merged chunks of the columns that are complete.
    chunks: Vec<Chunk>,
    /// Working memory for the encoded columns and for the column that is being decoded.
    _memory: Option<Reservation>,
}

/// A table's handle to the merges of its row groups. Dropping it with the last version of the table ends the merges.
#[derive(Debug)]
pub(super) struct Merges(Arc<MergeTask>);

impl Merges {
    /// Creates the merges of a table that will be added to `catalog`.
    pub fn new(catalog: &Arc<Catalog>, number: u64, tenant: &TenantName, name: &TableName) -> Arc<Merges> {
        let [is_wanted, is_submitted, is_over] = [(); 3].map(|()| AtomicBool::new(false));
        Arc::new(Merges(Arc::new(MergeTask {
            number,
            tenant: tenant.clone(),
            name: name.clone(),
            catalog: Arc::downgrade(catalog),
            job: Mutex::new(None),
            is_wanted,
            room_wanted: AtomicU64::new(0),
            is_submitted,
            is_over,
        })))
    }

    /// Submits the task to the background if `current` has row groups to merge. Does not block.
    pub fn announce(&self, current: &Current) {
        if plan::next(&sizes(current)).is_some() {
            self.0.room_wanted.store(0, Ordering::Relaxed);
            self.0.is_wanted.store(true, Ordering::SeqCst);
            self.0.submit();
        }
    }

    /// Does a step on the calling thread if there are too many small row groups and no other thread is merging.
    pub fn help(&self, current: &Current) {
        if current.table.row_groups.len() - current.settled <= limits::MERGES_BEHIND_MAX {
            return;
        }
        if let Some(mut job) = self.0.job.try_lock() {
            self.0.step_guarded(&mut job, &|| false);
        }
    }
}

impl Drop for Merges {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
        // If another thread is in the middle of a step, that thread drops the job.
        if let Some(mut job) = self.0.job.try_lock() {
            *job = None;
        }
    }
}

impl MergeTask {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    pub(super) fn step(&self, go_on: &dyn Fn() -> bool) -> StepOutcome {
        self.step_guarded(&mut self.job.lock(), go_on)
    }

    pub(super) fn leave(self: &Arc<Self>) {
        self.is_submitted.store(false, Ordering::SeqCst);
        // Row groups that were announced since the task last looked were not submitted.
        if self.is_wanted.load(Ordering::SeqCst) {
            self.submit();
        }
    }

    fn submit(self: &Arc<Self>) {
        let Some(catalog) = self.catalog.upgrade() else { return };
        if !self.is_submitted.swap(true, Ordering::SeqCst) {
            catalog.background.submit(Chore::Merge(self.clone()));
        }
    }

    fn step_guarded(&self, job: &mut Option<MergeJob>, go_on: &dyn Fn() -> bool) -> StepOutcome {
        let is_over = || self.is_over.load(Ordering::Relaxed);
        let go_on = || go_on() && !is_over();
        let attempt = catch_unwind(AssertUnwindSafe(|| self.advance(job, &go_on)));
        let mut stepped = match attempt {
            Ok(stepped) => stepped.unwrap_or(StepOutcome::Nothing),
            Err(_) => {
                // A panic ends the merges of this table, but nothing else.
                self.is_over.store(true, Ordering::Relaxed);
                StepOutcome::Nothing
            }
        };
        if is_over() {
            stepped = StepOutcome::Nothing;
        }
        if stepped != StepOutcome::Worked {
            *job = None;
        }
        stepped
    }

    fn advance(&self, job: &mut Option<MergeJob>, go_on: &dyn Fn() -> bool) -> Result<StepOutcome> {
        // Must come first. Otherwise, after the table was dropped, the flag would stay set and the chore would be
        // submitted for ever.
        if job.is_none() {
            self.is_wanted.store(false, Ordering::SeqCst);
        }
        let Some(catalog) = self.catalog.upgrade() else { return Ok(StepOutcome::Nothing) };
        let Some(current) = self.current(&catalog) else { return Ok(StepOutcome::Nothing) };
        let job_now = match job {
            Some(job) => job,
            None if !self.has_room(&catalog) => return Ok(StepOutcome::Lacked),
            None => match MergeJob::begin(&catalog, &self.tenant, &current) {
                Ok(Some(begun)) => job.insert(begun),
                Ok(None) => return Ok(StepOutcome::Nothing),
                Err(_) => return Ok(StepOutcome::Lacked),
            },
        };
        if job_now.encode(go_on)?
            && let Some(job) = job.take()
        {
            return match job.finish(&catalog, self) {
                Err(error) if error.kind == ErrorKind::OverLimit => {
                    self.want_more_room(&catalog);
                    Ok(StepOutcome::Lacked)
                }
                finished => finished.map(|()| StepOutcome::Worked),
            };
        }
        Ok(StepOutcome::Worked)
    }

    fn has_room(&self, catalog: &Catalog) -> bool {
        let wanted = self.room_wanted.load(Ordering::Relaxed);
        wanted == 0 || catalog.pool.reclaims() || catalog.pool.bytes_free(&self.tenant) >= wanted
    }

    /// Records that a merge found the pool full. The next merge waits until one more page is free.
    fn want_more_room(&self, catalog: &Catalog) {
        let wanted = catalog.pool.bytes_free(&self.tenant) + u64_from(limits::PAGE_BYTES);
        self.room_wanted.store(wanted, Ordering::Relaxed);
    }

    /// Returns the newest state of the table; `None` if these merges no longer belong to it.
    fn current(&self, catalog: &Catalog) -> Option<Current> {
        let current = catalog.newest(&self.tenant, &self.name).ok()?;
        std::ptr::eq(&*current.merges.0, self).then_some(current)
    }
}

impl MergeJob {
    fn begin(catalog: &Catalog, tenant: &TenantName, current: &Current) -> Result<Option<MergeJob>> {
        let table = &current.table;
        let Some(range) = plan::next(&sizes(current)) else { return Ok(None) };
        let first = current.settled + range.start;
        let groups: Vec<_> = table.row_groups.from(first).take(range.len()).cloned().collect();
        // Memory for all encoded columns, plus one decoded column, perhaps twice.
        let encoded: usize = groups.iter().map(|group| group.bytes_encoded()).sum();
        let column = |column: usize| groups.iter().map(|group| group.chunks[column].bytes_plain()).sum();
        let decoded: usize = (0..table.schema.fields().len()).map(column).max().unwrap_or(0);
        let memory = match &catalog.work {
            Some(work) => Some(work.account(tenant).try_reserve(encoded + 2 * decoded)?),
            None => None,
        };
        let encoder = Encoder::new(catalog.pool.clone(), tenant.clone(), table.schema.clone());
        let encoder = encoder.encrypting(table.cipher());
        Ok(Some(MergeJob { first, groups, encoder, chunks: Vec::new(), _memory: memory }))
    }

    /// Merges columns until `go_on` returns false, but at least one; returns whether all columns are complete.
    fn encode(&mut self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        let columns = self.groups.first().map_or(0, |group| group.chunks.len());
        while self.chunks.len() < columns {
            self.chunks.push(self.encoder.merge_column(&self.groups, self.chunks.len())?);
            if !go_on() {
                break;
            }
        }
        Ok(self.chunks.len() == columns)
    }

    /// Replaces the row groups by the merged one. Retries if an append has swapped the table first.
    fn finish(self, catalog: &Arc<Catalog>, merging: &MergeTask) -> Result<()> {
        let merged = catalog.place_merged(&merging.tenant, &self.encoder, &self.groups, self.chunks)?;
        loop {
            let Some(current) = merging.current(catalog) else { return Ok(()) };
            // Other changes may have been made in the meantime, in rows before the merged ones or in these.
            let is_here = |(place, group): (usize, &Arc<RowGroup>)| {
                current.table.row_groups.get(place).is_some_and(|here| Arc::ptr_eq(here, group))
            };
            if !(self.first..).zip(&self.groups).all(is_here) {
                return Ok(());
            }
            let first_row = current.table.row_groups.iter().take(self.first);
            let kind = ChangeKind::Merged {
                name: merging.name.clone(),
                first_row: first_row.map(|group| u64_from(group.rows)).sum(),
                rows: u64_from(merged.rows),
                merged: Some(merged.clone()),
            };
            let planned = catalog.plan(Change::new(&merging.tenant, kind), Some(&current), None)?;
            if let Some(made) = catalog.make(planned, |_| Ok(true))? {
                // The version is not announced as durable to anybody, because the rows are the same.
                return made.announced().map(drop);
            }
        }
    }
}

impl Catalog {
    /// Merges adjacent row groups of a table of `tenant` on the calling thread.
    ///
    /// # Errors
    /// `OverLimit` if memory is short.
    pub(super) fn merge_row_groups(
        &self,
        tenant: &TenantName,
        table: &Table,
        groups: &[Arc<RowGroup>],
    ) -> Result<Arc<RowGroup>> {
        let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
        let encoder = encoder.encrypting(table.cipher());
        let columns = 0..table.schema.fields().len();
        let chunks = columns.map(|column| encoder.merge_column(groups, column)).collect::<Result<_>>()?;
        self.place_merged(tenant, &encoder, groups, chunks)
    }

    /// Places the merged chunks of `groups` in the pool.
    fn place_merged(
        &self,
        tenant: &TenantName,
        encoder: &Encoder,
        groups: &[Arc<RowGroup>],
        chunks: Vec<Chunk>,
    ) -> Result<Arc<RowGroup>> {
        let rows = groups.iter().map(|group| group.rows).sum();
        assert!(chunks.iter().all(|chunk| chunk.rows() == rows), "a merge keeps all rows of each column");
        let merged = Arc::new(self.with_handles(tenant, encoder.place(rows, chunks)?));
        if let Some(durable) = self.durable.get() {
            durable.merged(&merged, groups);
        }
        Ok(merged)
    }
}

/// Returns whether a row group is so large that it is no longer merged.
pub(super) fn is_large(group: &RowGroup) -> bool {
    GroupSize::of(group).is_large()
}

/// Returns the sizes of the row groups that may still be merged.
fn sizes(current: &Current) -> Vec<GroupSize> {
    current.table.row_groups.from(current.settled).map(|group| GroupSize::of(group)).collect()
}

/// Returns the number of leading row groups of `table` that are no longer merged; this is known to hold for the first
/// `before`.
pub(super) fn settled(table: &Table, before: usize) -> usize {
    let sizes: Vec<GroupSize> = table.row_groups.from(before).map(|group| GroupSize::of(group)).collect();
    before + plan::settled(&sizes)
}

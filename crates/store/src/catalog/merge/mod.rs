//! Small row groups of a table become larger ones, behind whoever appends.
//!
//! A merge decodes the rows of some neighbours column by column, encodes them as one row group, and puts it in their
//! place. The version stays the same, for it has the same rows in the same order; who reads it keeps the row groups
//! that it has. A table has one merge at a time, done in steps by the [`super::Background`] and by appends that come
//! when too many small row groups wait.
//!
//! Invariants: row groups of which a tap knows, the first ones, are not merged any more; a merge that finds no memory for
//! its work is tried again when others have made room; one that finds the pool full, when a page more of it is free than
//! was then, or behind the next append: what was encoded for it is lost each time.

mod plan;

use super::{Catalog, Chore, Current, Stepped};
use farpool_columns::{Chunk, Encoder, RowGroup, Table};
use farpool_memory::Reservation;
use farpool_model::cast::u64_from;
use farpool_model::{ErrorKind, Result, TableName, TenantName, limits};
use parking_lot::Mutex;
use plan::Size;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// See the file's comment.
#[derive(Debug)]
pub struct Merging {
    number: u64,
    tenant: TenantName,
    name: TableName,
    catalog: Weak<Catalog>,
    job: Mutex<Option<Job>>,
    /// Whether there may be something to do that nobody has looked at.
    is_wanted: AtomicBool,
    /// Bytes of the pool that are to be free before a merge is begun: more than there were when one found it full.
    room_wanted: AtomicU64,
    /// Whether the background has it.
    is_submitted: AtomicBool,
    /// Nobody wants it any more: the table is gone, or a defect has stopped it.
    is_over: AtomicBool,
}

/// A merge that was begun.
#[derive(Debug)]
struct Job {
    /// Where the row groups are in the table.
    first: usize,
    groups: Vec<Arc<RowGroup>>,
    encoder: Encoder,
    /// Of the columns that are done.
    chunks: Vec<Chunk>,
    /// For what it has in hand.
    _memory: Option<Reservation>,
}

/// What a table owns: when the last version of it is gone, so are its merges.
#[derive(Debug)]
pub(super) struct Merges(Arc<Merging>);

impl Merges {
    /// Of a table that `catalog` is about to have.
    pub fn new(catalog: &Arc<Catalog>, number: u64, tenant: &TenantName, name: &TableName) -> Arc<Merges> {
        let [is_wanted, is_submitted, is_over] = [(); 3].map(|()| AtomicBool::new(false));
        Arc::new(Merges(Arc::new(Merging {
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

    /// Has the background look at it if there is something to merge in `current`.
    pub fn announce(&self, current: &Current) {
        if plan::next(&sizes(current)).is_some() {
            self.0.room_wanted.store(0, Ordering::Relaxed);
            self.0.is_wanted.store(true, Ordering::SeqCst);
            self.0.submit();
        }
    }

    /// Does a step on the calling thread if too much waits and nobody else is at it.
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
        // Who is in the middle of it sees to it himself.
        if let Some(mut job) = self.0.job.try_lock() {
            *job = None;
        }
    }
}

impl Merging {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    pub(super) fn step(&self, go_on: &dyn Fn() -> bool) -> Stepped {
        self.step_guarded(&mut self.job.lock(), go_on)
    }

    pub(super) fn leave(self: &Arc<Self>) {
        self.is_submitted.store(false, Ordering::SeqCst);
        // What was announced meanwhile was not submitted.
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

    fn step_guarded(&self, job: &mut Option<Job>, go_on: &dyn Fn() -> bool) -> Stepped {
        let is_over = || self.is_over.load(Ordering::Relaxed);
        let go_on = || go_on() && !is_over();
        let attempt = catch_unwind(AssertUnwindSafe(|| self.advance(job, &go_on)));
        let mut stepped = match attempt {
            Ok(stepped) => stepped.unwrap_or(Stepped::Nothing),
            Err(_) => {
                // A defect costs the table its merges, and nothing else.
                self.is_over.store(true, Ordering::Relaxed);
                Stepped::Nothing
            }
        };
        if is_over() {
            stepped = Stepped::Nothing;
        }
        if stepped != Stepped::Worked {
            *job = None;
        }
        stepped
    }

    fn advance(&self, job: &mut Option<Job>, go_on: &dyn Fn() -> bool) -> Result<Stepped> {
        // Before anything else: where the table is gone, nobody looks at what is wanted again and again.
        if job.is_none() {
            self.is_wanted.store(false, Ordering::SeqCst);
        }
        let Some(catalog) = self.catalog.upgrade() else { return Ok(Stepped::Nothing) };
        let Some(current) = self.current(&catalog) else { return Ok(Stepped::Nothing) };
        let job_now = match job {
            Some(job) => job,
            None if !self.has_room(&catalog) => return Ok(Stepped::Lacked),
            None => match Job::begin(&catalog, &self.tenant, &current) {
                Ok(Some(begun)) => job.insert(begun),
                Ok(None) => return Ok(Stepped::Nothing),
                Err(_) => return Ok(Stepped::Lacked),
            },
        };
        if job_now.encode(go_on)?
            && let Some(job) = job.take()
        {
            return match job.finish(&catalog, self) {
                Err(error) if error.kind == ErrorKind::OverLimit => {
                    self.want_more_room(&catalog);
                    Ok(Stepped::Lacked)
                }
                finished => finished.map(|()| Stepped::Worked),
            };
        }
        Ok(Stepped::Worked)
    }

    fn has_room(&self, catalog: &Catalog) -> bool {
        let wanted = self.room_wanted.load(Ordering::Relaxed);
        wanted == 0 || catalog.pool.bytes_free(&self.tenant) >= wanted
    }

    /// A merge has found the pool full.
    fn want_more_room(&self, catalog: &Catalog) {
        let wanted = catalog.pool.bytes_free(&self.tenant) + u64_from(limits::PAGE_BYTES);
        self.room_wanted.store(wanted, Ordering::Relaxed);
    }

    /// The newest version, if the table is still the one that this belongs to.
    fn current(&self, catalog: &Catalog) -> Option<Current> {
        let current = catalog.current(&self.tenant, &self.name).ok()?;
        std::ptr::eq(&*current.merges.0, self).then_some(current)
    }
}

impl Job {
    fn begin(catalog: &Catalog, tenant: &TenantName, current: &Current) -> Result<Option<Job>> {
        let table = &current.table;
        let Some(range) = plan::next(&sizes(current)) else { return Ok(None) };
        let first = current.settled + range.start;
        let groups: Vec<_> = table.row_groups.from(first).take(range.len()).cloned().collect();
        // All columns encoded, and one of them decoded, perhaps twice.
        let encoded: usize = groups.iter().map(|group| group.bytes_encoded()).sum();
        let column = |column: usize| groups.iter().map(|group| group.chunks[column].bytes_plain()).sum();
        let decoded: usize = (0..table.schema.fields().len()).map(column).max().unwrap_or(0);
        let memory = match &catalog.work {
            Some(work) => Some(work.account(tenant).try_reserve(encoded + 2 * decoded)?),
            None => None,
        };
        let encoder = Encoder::new(catalog.pool.clone(), tenant.clone(), table.schema.clone());
        Ok(Some(Job { first, groups, encoder, chunks: Vec::new(), _memory: memory }))
    }

    /// Goes on as long as `go_on`, and by a column at least; whether all are done.
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

    /// Puts the merged row group in the place of the others, as often as an append is faster.
    fn finish(self, catalog: &Catalog, merging: &Merging) -> Result<()> {
        let rows = self.groups.iter().map(|group| group.rows).sum();
        let merged = Arc::new(self.encoder.place(rows, self.chunks)?);
        loop {
            let Some(current) = merging.current(catalog) else { return Ok(()) };
            let Some(table) = current.table.with_merged(self.first, &self.groups, merged.clone()) else {
                return Ok(());
            };
            let table = catalog.holding(&merging.tenant, table)?;
            if catalog.put_merged(&merging.tenant, &merging.name, &current, table) {
                return Ok(());
            }
        }
    }
}

/// Sizes of the row groups that are not settled.
fn sizes(current: &Current) -> Vec<Size> {
    current.table.row_groups.from(current.settled).map(|group| Size::of(group)).collect()
}

/// How many row groups of `table` are settled, if the first `before` ones are.
pub(super) fn settled(table: &Table, before: usize) -> usize {
    let sizes: Vec<Size> = table.row_groups.from(before).map(|group| Size::of(group)).collect();
    before + plan::settled(&sizes)
}

//! Reads of row groups whose values are not in memory: a run requests them, and processes other row groups meanwhile.
//!
//! No step blocks on the disk. A row group with missing values is set aside with a request. At most
//! [`limits::READ_AHEAD_BYTES`] are requested and not yet used. When its values are in memory, any thread may continue
//! the row group. Row groups that are in memory at the start are processed first, so that a scan of a table larger than
//! memory uses the cached values before it evicts them. The columns of the filter are read first, and the others only
//! if a row passes.
//!
//! Values that were read are kept in memory until they are used, unless the run is paused ([`Run::keep_values`]) or
//! others need the memory. Values that were evicted before their use are read again, and each time the run halves the
//! limit of its read-ahead.
//!
//! Terms: a *run* is an execution of a program. A *handle* is a column chunk whose values may be evicted from memory
//! and read from disk again.

use super::joining::Joins;
use super::{Morsel, Phase, Run};
use crate::pace::StepPace;
use farpool_columns::{Chunk, HeldValues, RowGroup, Table, ValueReader};
use farpool_model::{Error, ErrorKind, Result, cast, limits};
use farpool_operators::Verdict;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// State of the read-ahead of a run.
pub(super) struct ReadAhead {
    /// Maximum of `ahead`, in bytes; reduced each time that values were evicted before their use.
    most: AtomicUsize,
    /// Bytes that are being read, or were read and not used yet.
    ahead: AtomicUsize,
    requests: AtomicU64,
    /// Whether other runs have read so far ahead that this run waits for its own requests.
    is_held_back: AtomicBool,
    /// Current value of [`HoldPolicy`].
    keeping: AtomicU8,
}

/// The values that are kept in memory from their reading until their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldPolicy {
    /// No values, because no client takes results at present.
    Nothing,
    /// Only values that were evicted before their use once. For streams that may wait for one another.
    Missed,
    /// All values.
    Everything,
}

/// Reads that were requested for a row group.
#[derive(Default)]
pub(super) struct GroupReads {
    /// Bytes that count as read ahead.
    bytes: usize,
    /// Bytes that were read since a thread claimed the row group.
    bytes_read: usize,
    kept: Option<HeldValues>,
    /// Whether a row passes the filter, so that the other columns are needed, too.
    is_wanted: bool,
    /// Whether values were evicted before their use.
    is_missed: bool,
}

/// Outcome of looking for the values of a row group in memory.
pub(super) enum GroupValues {
    /// All needed values are in memory. They are in this row group; `None` if they are in the row group of the table
    /// itself, which then has no handles and is not encrypted.
    Here(Option<Arc<RowGroup>>),
    /// Some needed values are not in memory. The list has the handles of all needed values, since all must be in memory
    /// at the same time.
    Absent(Vec<Arc<Chunk>>),
    /// No values are needed, because no row passes the filter.
    Unneeded,
}

impl GroupReads {
    /// Creates the read state of a row group whose values another run has read. `kept` keeps them in memory.
    pub fn keeping(kept: HeldValues) -> GroupReads {
        GroupReads { kept: Some(kept), ..GroupReads::default() }
    }

    /// Releases the values: they may be evicted from now on.
    pub fn let_go(&mut self) -> Option<HeldValues> {
        self.kept.take()
    }
}

impl ReadAhead {
    pub fn new() -> ReadAhead {
        ReadAhead {
            most: AtomicUsize::new(limits::READ_AHEAD_BYTES),
            ahead: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            is_held_back: AtomicBool::new(false),
            keeping: AtomicU8::new(HoldPolicy::Everything as u8),
        }
    }

    /// Returns whether so much is read ahead that nothing more may be read before some of it is used.
    pub fn is_enough(&self) -> bool {
        let ahead = self.ahead.load(Ordering::Relaxed);
        ahead > 0 && ahead >= self.most()
    }

    /// Returns whether nothing more may be read, given that other runs of the shared scan wait for `bytes`. If so, this
    /// run waits for its own requests.
    pub fn is_enough_with(&self, bytes: usize) -> bool {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let is_enough = ahead > 0 && ahead.max(bytes) >= self.most();
        self.is_held_back.store(is_enough, Ordering::Relaxed);
        is_enough
    }

    /// Returns the maximum number of bytes that may be read ahead.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Returns whether reading is suspended until values arrive or are used.
    fn waits(&self) -> bool {
        self.is_enough() || self.is_held_back.load(Ordering::Relaxed)
    }

    /// Counts the values that were read for a row group as used, so that more may be read ahead.
    pub fn used(&self, read: &mut GroupReads) {
        let used = std::mem::take(&mut read.bytes);
        let ahead = self.ahead.fetch_sub(used, Ordering::Relaxed);
        assert!(used <= ahead, "{used} bytes are used of {ahead} that were read ahead: some counted twice");
    }

    fn read_less(&self) {
        let halve = |most: usize| Some(most / 2);
        let _ = self.most.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halve);
    }
}

/// Returns whether some values of these columns are not in memory.
pub(super) fn is_absent(group: &RowGroup, columns: &[usize]) -> bool {
    columns.iter().any(|column| group.chunks[*column].is_absent())
}

impl Run {
    /// Returns whether there is nothing to do before values of the table arrive.
    pub(super) fn waits_for_values(&self) -> bool {
        if self.read_ahead.ahead.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let held = self.held.lock();
        !held.awaited.is_empty()
            && held.rests.is_empty()
            && (self.morsel_queue.is_empty() || self.read_ahead.waits() && !self.morsel_queue.has_offers())
    }

    /// Sets which values are kept in memory. [`HoldPolicy::Nothing`] also releases those kept now.
    pub fn keep_values(&self, keeping: HoldPolicy) {
        self.joins.iter().flat_map(Joins::sides).for_each(|side| side.keep_values(keeping));
        let before = self.read_ahead.keeping.swap(keeping as u8, Ordering::Relaxed);
        if keeping != HoldPolicy::Nothing || before == HoldPolicy::Nothing as u8 {
            return;
        }
        let let_go: Vec<Option<HeldValues>> = {
            let mut held = self.held.lock();
            held.rests.iter_mut().filter_map(|rest| rest.read.as_mut()).map(|read| read.kept.take()).collect()
        };
        drop(let_go);
        self.morsel_queue.let_go();
    }

    /// Offers a row group whose values another run has read.
    pub(crate) fn offered(&self, place: usize, group: &Arc<RowGroup>, kept: Option<&HeldValues>) {
        if !self.has(place, group) {
            return;
        }
        let handles = handles(group, &self.columns);
        let bytes =
            handles.iter().filter(|handle| !handle.is_absent()).map(|handle| handle.bytes_encoded()).sum();
        if bytes == 0 {
            return;
        }
        let is_whole = !handles.iter().any(|handle| handle.is_absent());
        let keeps = self.read_ahead.keeping.load(Ordering::Relaxed) == HoldPolicy::Everything as u8;
        if self.morsel_queue.offer_read(place, bytes, kept.filter(|_| keeps).cloned(), is_whole) {
            self.changed();
        }
    }

    /// Offers a row group for which another run with the same filter has recorded which rows pass.
    pub(crate) fn offered_judged(&self, place: usize, group: &Arc<RowGroup>) {
        if self.has(place, group) && !is_absent(group, &self.columns) {
            self.morsel_queue.offer_judged(place);
        }
    }

    /// Adds the row groups whose values this run waits for, by index in the table, with their bytes.
    pub(crate) fn add_awaited(&self, awaited: &mut BTreeMap<usize, usize>) {
        for morsel in self.held.lock().awaited.values() {
            awaited.insert(morsel.place, morsel.read.as_ref().map_or(0, |read| read.bytes));
        }
    }

    /// Returns whether this run's version of the table has `group` at index `place`.
    fn has(&self, place: usize, group: &Arc<RowGroup>) -> bool {
        let held = self.held.lock();
        let own = held.table.as_ref().and_then(|table| table.row_groups.get(place));
        own.is_some_and(|own| Arc::ptr_eq(own, group))
    }

    /// Returns `group` with the values that are needed of it. `verdict` is what its zone maps tell about the filter.
    pub(super) fn filled(
        &self,
        group: &RowGroup,
        verdict: Verdict,
        morsel: &mut Morsel,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<GroupValues> {
        let is_begun = morsel.progress.rows() > 0 || morsel.rewrite.is_some();
        // If it is known before the scan which rows pass, the columns of the filter are not needed.
        let columns =
            if morsel.progress.is_known() { self.scan_plan().output_columns() } else { &self.columns };
        let are_unneeded = match verdict {
            Verdict::None => true,
            Verdict::All => !is_begun && self.scan_plan().is_told_by_zones(group),
            Verdict::Some => false,
        };
        if are_unneeded {
            return Ok(GroupValues::Here(None));
        }
        if let Some(opened) = &morsel.opened {
            return Ok(GroupValues::Here(Some(opened.clone())));
        }
        let is_encrypted = table.cipher().is_some();
        let judged = match is_encrypted || is_absent(group, columns) {
            true => match self.filter_first(group, verdict, morsel, table, pace)? {
                ControlFlow::Break(filled) => return Ok(filled),
                ControlFlow::Continue(judged) => judged,
            },
            false => None,
        };
        // Reuses the columns that were decrypted for the filter.
        let Ok(filled) = judged.as_ref().unwrap_or(group).with_values(columns.iter().copied()) else {
            return Ok(GroupValues::Absent(handles(group, columns)));
        };
        let filled = filled.or(judged).map(Arc::new);
        morsel.opened = filled.clone().filter(|_| is_encrypted);
        if let Some(filled) = &filled {
            self.check_intact(filled, morsel.place, table, columns)?;
            if !is_begun {
                self.count_uses(group, columns, morsel);
            }
        } else {
            columns.iter().try_for_each(|column| group.chunks[*column].check_intact())?;
        }
        Ok(GroupValues::Here(filled))
    }

    /// Evaluates the filter before the other columns of a row group are read or decrypted. Returns `Break` if that
    /// decides the row group, or the filter's columns must be read first. Otherwise returns `Continue` with the row
    /// group that has the values of the filter's columns, if they were used.
    fn filter_first(
        &self,
        group: &RowGroup,
        verdict: Verdict,
        morsel: &mut Morsel,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<ControlFlow<GroupValues, Option<RowGroup>>> {
        let of_filter = self.scan_plan().filter_columns();
        let is_wanted = morsel.read.as_ref().is_some_and(|read| read.is_wanted);
        let is_known = is_wanted || morsel.progress.is_known();
        let is_asked = verdict == Verdict::Some && !is_known && morsel.progress.rows() == 0;
        if !is_asked
            || of_filter.is_empty()
            || morsel.rewrite.is_some()
            || self.columns.len() <= of_filter.len()
        {
            return Ok(ControlFlow::Continue(None));
        }
        let filled = match group.with_values(of_filter.iter().copied()) {
            Ok(filled) => filled,
            Err(_) => return Ok(ControlFlow::Break(GroupValues::Absent(handles(group, of_filter)))),
        };
        let judged = filled.as_ref().unwrap_or(group);
        self.check_intact(judged, morsel.place, table, of_filter)?;
        let may_pass = self.scan_plan().may_pass(judged, pace)?;
        pace.next_group();
        if may_pass {
            morsel.read.get_or_insert_default().is_wanted = true;
            return Ok(ControlFlow::Continue(filled));
        }
        self.count_uses(group, of_filter, morsel);
        let bytes: usize = of_filter.iter().map(|column| group.chunks[*column].bytes_encoded()).sum();
        let (rows, bytes) = (cast::u64_from(group.rows), cast::u64_from(bytes));
        self.tally.scanned(rows, bytes);
        self.tally.left(group, rows, bytes);
        Ok(ControlFlow::Break(GroupValues::Unneeded))
    }

    /// Counts a use of the values of `columns`, and the bytes that were found in memory.
    fn count_uses(&self, group: &RowGroup, columns: &[usize], morsel: &Morsel) {
        // If several runs share one read, only one use is counted, since they do not show that values are used
        // repeatedly.
        if !morsel.is_shared {
            columns.iter().for_each(|column| group.chunks[*column].count_use());
        }
        let wanted: usize = handles(group, columns).iter().map(|handle| handle.bytes_encoded()).sum();
        let read = morsel.read.as_ref().map_or(0, |read| read.bytes_read);
        let found = cast::u64_from(wanted.saturating_sub(read));
        self.tally.found_in_cache(found);
        if morsel.is_shared {
            self.tally.shared(found);
        }
    }

    /// Checks that no chunk of these columns has lost its values.
    fn check_intact(&self, group: &RowGroup, place: usize, table: &Table, columns: &[usize]) -> Result<()> {
        let intact = |column: usize| group.chunks[column].check_intact().map_err(|error| (column, error));
        let (column, error) = match columns.iter().try_for_each(|column| intact(*column)) {
            Ok(()) => return Ok(()),
            Err(damaged) => damaged,
        };
        if error.kind != ErrorKind::Corrupt || error.message.starts_with("rows ") {
            return Err(error);
        }
        let first: usize = table.row_groups.iter().take(place).map(|group| group.rows).sum();
        let (name, column) = (self.prepared.effective.table.as_str(), table.schema.field(column).name());
        let message = format!(
            "rows {} to {} of column {column:?} of table {name:?} are lost: {}",
            first + 1,
            first + group.rows,
            error.message
        );
        Err(Error::corrupt(message).advise("restore the table from a backup, or load it again"))
    }

    /// Sets a row group aside until the values of `handles` are in memory.
    pub(super) fn fetch(&self, mut morsel: Morsel, handles: Vec<Arc<Chunk>>) {
        let absent = || handles.iter().filter(|handle| handle.is_absent());
        let bytes: usize = absent().map(|handle| handle.bytes_encoded()).sum();
        let number = self.read_ahead.requests.fetch_add(1, Ordering::Relaxed);
        let read = morsel.read.get_or_insert_default();
        if read.kept.take().is_none() && read.is_missed {
            self.read_ahead.read_less();
        }
        // If values are missing again that were read before, they were evicted before their use.
        let is_urgent = std::mem::replace(&mut read.is_missed, true);
        read.bytes += bytes;
        self.read_ahead.ahead.fetch_add(bytes, Ordering::Relaxed);
        {
            let mut held = self.held.lock();
            if matches!(held.phase, Phase::Stopped(_) | Phase::Done) {
                return;
            }
            let before = held.awaited.insert(number, morsel);
            assert!(before.is_none(), "two row groups wait for the values of one request");
        }
        let request = Request { run: self.this.clone(), number, is_urgent };
        farpool_columns::fetch(handles, Box::new(request));
    }

    /// Counts in the execution statistics the handles in `handles` that lack values as read by this run, and other
    /// values that the run waits for as shared.
    fn asked_first(&self, number: u64, handles: &[Arc<Chunk>]) {
        let read = || handles.iter().filter(|handle| handle.is_absent());
        let bytes_on_disk = |is_counted: fn(&Chunk) -> bool| {
            let counted = read().filter(|handle| is_counted(handle));
            cast::u64_from(counted.map(|handle| handle.bytes_on_disk()).sum())
        };
        self.tally.read_from_disk(bytes_on_disk(|_| true), bytes_on_disk(Chunk::has_come));
        let bytes: usize = read().map(|handle| handle.bytes_encoded()).sum();
        let mut held = self.held.lock();
        let Some(morsel) = held.awaited.get_mut(&number) else { return };
        let read = morsel.read.get_or_insert_default();
        read.bytes_read += bytes;
        morsel.is_shared |= read.bytes > bytes;
    }

    fn arrived(&self, number: u64, is_urgent: bool, outcome: Result<HeldValues>) {
        match outcome {
            Ok(kept) => {
                let least = if is_urgent { HoldPolicy::Missed } else { HoldPolicy::Everything };
                let is_kept = self.read_ahead.keeping.load(Ordering::Relaxed) >= least as u8;
                let mut held = self.held.lock();
                let Some(mut morsel) = held.awaited.remove(&number) else { return };
                let place = morsel.place;
                let let_go = match &mut morsel.read {
                    Some(read) if is_kept => read.kept.replace(kept.clone()),
                    _ => None,
                };
                held.rests.push(morsel);
                self.read_ahead.is_held_back.store(false, Ordering::Relaxed);
                let group = held.table.as_ref().and_then(|table| table.row_groups.get(place)).cloned();
                drop(held);
                drop(let_go);
                // Only one request of a shared scan may be urgent at a time, and that turn ends with this request.
                let shared_scan = self.sharing.get().and_then(|sharing| sharing.shared_scan.as_ref());
                if let (Some(shared_scan), Some(group)) = (shared_scan, group) {
                    shared_scan.offer(self, place, &group, (!is_urgent).then_some(&kept));
                }
                drop(kept);
            }
            Err(error) => drop(self.stop(error)),
        }
        self.changed();
    }

    /// Calls the callback of [`Run::on_change`]: there may be more to do, or the run was stopped.
    pub(crate) fn changed(&self) {
        if let Some(waker) = &*self.on_change.lock() {
            waker();
        }
    }
}

/// Returns the handles among the chunks of these columns.
fn handles(group: &RowGroup, columns: &[usize]) -> Vec<Arc<Chunk>> {
    let chunks = columns.iter().map(|column| &group.chunks[*column]);
    chunks.filter(|chunk| chunk.is_handle()).cloned().collect()
}

/// Request of a run that waits for the values of a row group.
struct Request {
    run: Weak<Run>,
    number: u64,
    is_urgent: bool,
}

impl ValueReader for Request {
    fn is_waiting(&self) -> bool {
        self.run.upgrade().is_some_and(|run| run.held.lock().awaited.contains_key(&self.number))
    }

    fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    fn asked_first(&self, handles: &[Arc<Chunk>]) {
        if let Some(run) = self.run.upgrade() {
            run.asked_first(self.number, handles);
        }
    }

    fn arrived(self: Box<Self>, outcome: Result<HeldValues>) {
        if let Some(run) = self.run.upgrade() {
            run.arrived(self.number, self.is_urgent, outcome);
        }
    }
}

#[cfg(test)]
mod tests;

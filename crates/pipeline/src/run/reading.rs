//! Row groups whose values are not in memory: a run has them read, and goes on with others meanwhile.
//!
//! No step waits for a disk. A row group whose values are absent is set aside with a request, up to some bytes ahead
//! ([`limits::READ_AHEAD_BYTES`]), and becomes a rest that any thread may take when they have come. Those that are in memory
//! when the run begins come first, so that a scan of a table larger than memory uses what is there before it makes room.
//! Columns of the filter are read first, and the others only where a row passes.
//!
//! What was read stays in memory until it is used, unless the run does not go on ([`Run::keep_values`]) or others need the
//! memory. It is then read again; a run to which that happens reads less ahead.

use super::{Morsel, Phase, Run};
use crate::pace::StepPace;
use farpool_columns::{Chunk, Kept, Reader, RowGroup, Table};
use farpool_model::{Error, ErrorKind, Result, cast, limits};
use farpool_operators::Verdict;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// What a run reads ahead.
pub(super) struct Reading {
    /// Bytes that may be ahead; less once some left memory before they were used.
    most: AtomicUsize,
    /// Bytes that are being read or have not been used yet.
    ahead: AtomicUsize,
    requests: AtomicU64,
    /// Whether others read so much ahead that this run waits for what it has asked for.
    is_held_back: AtomicBool,
    /// Whether what was read is kept until it is used: see [`Keeping`].
    keeping: AtomicU8,
}

/// Which values are kept in memory from when they were read until they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeping {
    /// None: nobody takes results at present.
    Nothing,
    /// Those that left memory before they were used, once. For streams of which one may wait for another.
    Missed,
    /// All.
    Everything,
}

/// What was read for a row group.
#[derive(Default)]
pub(super) struct Read {
    /// Bytes that count as ahead.
    bytes: usize,
    /// Bytes that were read since the row group was claimed.
    bytes_read: usize,
    kept: Option<Kept>,
    /// Whether a row passes the filter, so that the other columns are wanted.
    is_wanted: bool,
    /// Whether values left memory before they were used.
    is_missed: bool,
}

/// A row group that is about to be worked on.
pub(super) enum Filled {
    /// All values that are needed are in memory: in this row group, if the table's has handles, or is encrypted.
    Here(Option<Arc<RowGroup>>),
    /// Some of these are not; all of them are wanted at once.
    Absent(Vec<Arc<Chunk>>),
    /// None are needed: no row passes.
    Unneeded,
}

impl Read {
    /// Values that another run has read.
    pub fn keeping(kept: Kept) -> Read {
        Read { kept: Some(kept), ..Read::default() }
    }

    /// Takes what keeps the values in memory.
    pub fn let_go(&mut self) -> Option<Kept> {
        self.kept.take()
    }
}

impl Reading {
    pub fn new() -> Reading {
        Reading {
            most: AtomicUsize::new(limits::READ_AHEAD_BYTES),
            ahead: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            is_held_back: AtomicBool::new(false),
            keeping: AtomicU8::new(Keeping::Everything as u8),
        }
    }

    /// Whether no more is to be read before some of it is used.
    pub fn is_enough(&self) -> bool {
        let ahead = self.ahead.load(Ordering::Relaxed);
        ahead > 0 && ahead >= self.most()
    }

    /// The same, where others wait for `bytes`. If so, this run waits for what it has asked for.
    pub fn is_enough_with(&self, bytes: usize) -> bool {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let is_enough = ahead > 0 && ahead.max(bytes) >= self.most();
        self.is_held_back.store(is_enough, Ordering::Relaxed);
        is_enough
    }

    /// Bytes that may be ahead.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Whether no more was read when it was last looked, or is to be.
    fn waits(&self) -> bool {
        self.is_enough() || self.is_held_back.load(Ordering::Relaxed)
    }

    /// Counts what was read for a row group as used.
    pub fn used(&self, read: &mut Read) {
        self.ahead.fetch_sub(std::mem::take(&mut read.bytes), Ordering::Relaxed);
    }

    fn read_less(&self) {
        let halve = |most: usize| Some(most / 2);
        let _ = self.most.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halve);
    }
}

/// Whether values of these columns have to be read.
pub(super) fn is_absent(group: &RowGroup, columns: &[usize]) -> bool {
    columns.iter().any(|column| group.chunks[*column].is_absent())
}

impl Run {
    /// Whether there is nothing to do before values have come into memory.
    pub(crate) fn waits_for_values(&self) -> bool {
        if self.reading.ahead.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let held = self.held.lock();
        !held.awaited.is_empty()
            && held.rests.is_empty()
            && (self.agenda.is_empty() || self.reading.waits() && !self.agenda.has_offers())
    }

    /// Sets which values are kept until they are used. With [`Keeping::Nothing`], none are from now on.
    pub fn keep_values(&self, keeping: Keeping) {
        let before = self.reading.keeping.swap(keeping as u8, Ordering::Relaxed);
        if keeping != Keeping::Nothing || before == Keeping::Nothing as u8 {
            return;
        }
        let let_go: Vec<Option<Kept>> = {
            let mut held = self.held.lock();
            held.rests.iter_mut().filter_map(|rest| rest.read.as_mut()).map(|read| read.kept.take()).collect()
        };
        drop(let_go);
        self.agenda.let_go();
    }

    /// Is offered a row group of which another run has read values.
    pub(crate) fn offered(&self, place: usize, group: &Arc<RowGroup>, kept: Option<&Kept>) {
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
        let keeps = self.reading.keeping.load(Ordering::Relaxed) == Keeping::Everything as u8;
        if self.agenda.offer_read(place, bytes, kept.filter(|_| keeps).cloned(), is_whole) {
            self.changed();
        }
    }

    /// Is told of a row group of which another run with the same filter has found out which rows pass.
    pub(crate) fn offered_judged(&self, place: usize, group: &Arc<RowGroup>) {
        if self.has(place, group) && !is_absent(group, &self.columns) {
            self.agenda.offer_judged(place);
        }
    }

    /// Adds the row groups that this run waits for, and their bytes.
    pub(crate) fn add_awaited(&self, awaited: &mut BTreeMap<usize, usize>) {
        for morsel in self.held.lock().awaited.values() {
            awaited.insert(morsel.place, morsel.read.as_ref().map_or(0, |read| read.bytes));
        }
    }

    /// Whether this run's version of the table has `group` at `place`, too.
    fn has(&self, place: usize, group: &Arc<RowGroup>) -> bool {
        let held = self.held.lock();
        let own = held.table.as_ref().and_then(|table| table.row_groups.get(place));
        own.is_some_and(|own| Arc::ptr_eq(own, group))
    }

    /// Returns `group`, of which the zone maps tell `verdict`, with the values that are needed of it.
    pub(super) fn filled(
        &self,
        group: &RowGroup,
        verdict: Verdict,
        morsel: &mut Morsel,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<Filled> {
        let is_begun = morsel.progress.rows() > 0 || morsel.begun.is_some();
        // Where it is known which rows pass, columns of the filter are not needed.
        let columns = if morsel.progress.is_known() { self.plan.output_columns() } else { &self.columns };
        let are_unneeded = match verdict {
            Verdict::None => true,
            Verdict::All => !is_begun && self.plan.is_told_by_zones(group),
            Verdict::Some => false,
        };
        if are_unneeded {
            return Ok(Filled::Here(None));
        }
        if let Some(opened) = &morsel.opened {
            return Ok(Filled::Here(Some(opened.clone())));
        }
        let is_encrypted = table.cipher().is_some();
        let judged = match is_encrypted || is_absent(group, columns) {
            true => match self.filter_first(group, verdict, morsel, table, pace)? {
                ControlFlow::Break(filled) => return Ok(filled),
                ControlFlow::Continue(judged) => judged,
            },
            false => None,
        };
        // What was decrypted for the filter is not decrypted again.
        let Ok(filled) = judged.as_ref().unwrap_or(group).with_values(columns.iter().copied()) else {
            return Ok(Filled::Absent(handles(group, columns)));
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
        Ok(Filled::Here(filled))
    }

    /// What comes before the columns of a row group that are not of the filter are read, or decrypted, if anything does:
    /// `Break`. Otherwise the row group with the values of the filter's columns, if these were looked at.
    fn filter_first(
        &self,
        group: &RowGroup,
        verdict: Verdict,
        morsel: &mut Morsel,
        table: &Table,
        pace: &mut StepPace<'_>,
    ) -> Result<ControlFlow<Filled, Option<RowGroup>>> {
        let of_filter = self.plan.filter_columns();
        let is_wanted = morsel.read.as_ref().is_some_and(|read| read.is_wanted);
        let is_known = is_wanted || morsel.progress.is_known();
        let is_asked = verdict == Verdict::Some && !is_known && morsel.progress.rows() == 0;
        if !is_asked
            || of_filter.is_empty()
            || morsel.begun.is_some()
            || self.columns.len() <= of_filter.len()
        {
            return Ok(ControlFlow::Continue(None));
        }
        let filled = match group.with_values(of_filter.iter().copied()) {
            Ok(filled) => filled,
            Err(_) => return Ok(ControlFlow::Break(Filled::Absent(handles(group, of_filter)))),
        };
        let judged = filled.as_ref().unwrap_or(group);
        self.check_intact(judged, morsel.place, table, of_filter)?;
        let may_pass = self.plan.may_pass(judged, pace)?;
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
        Ok(ControlFlow::Break(Filled::Unneeded))
    }

    /// Counts a use of the values of `columns`, and what of them did not have to be read.
    fn count_uses(&self, group: &RowGroup, columns: &[usize], morsel: &Morsel) {
        // What is used by many because one has read it just now is not what is used again and again.
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

    /// Checks that the values of columns are those that were written.
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
        let number = self.reading.requests.fetch_add(1, Ordering::Relaxed);
        let read = morsel.read.get_or_insert_default();
        if read.kept.take().is_none() && read.is_missed {
            self.reading.read_less();
        }
        // What is absent once more has left too early.
        let is_urgent = std::mem::replace(&mut read.is_missed, true);
        read.bytes += bytes;
        self.reading.ahead.fetch_add(bytes, Ordering::Relaxed);
        {
            let mut held = self.held.lock();
            if matches!(held.phase, Phase::Stopped(_) | Phase::Done) {
                return;
            }
            held.awaited.insert(number, morsel);
        }
        let request = Request { run: self.this.clone(), number, is_urgent };
        farpool_columns::fetch(handles, Box::new(request));
    }

    /// Counts those of `handles` that are absent as read by this run, and what else it waits for as shared.
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

    fn arrived(&self, number: u64, is_urgent: bool, outcome: Result<Kept>) {
        match outcome {
            Ok(kept) => {
                let least = if is_urgent { Keeping::Missed } else { Keeping::Everything };
                let is_kept = self.reading.keeping.load(Ordering::Relaxed) >= least as u8;
                let mut held = self.held.lock();
                let Some(mut morsel) = held.awaited.remove(&number) else { return };
                let place = morsel.place;
                let let_go = match &mut morsel.read {
                    Some(read) if is_kept => read.kept.replace(kept.clone()),
                    _ => None,
                };
                held.rests.push(morsel);
                self.reading.is_held_back.store(false, Ordering::Relaxed);
                let group = held.table.as_ref().and_then(|table| table.row_groups.get(place)).cloned();
                drop(held);
                drop(let_go);
                // What is urgent has the one turn to be kept, which ends with it.
                let pass = self.company.get().and_then(|company| company.pass.as_ref());
                if let (Some(pass), Some(group)) = (pass, group) {
                    pass.offer(self, place, &group, (!is_urgent).then_some(&kept));
                }
                drop(kept);
            }
            Err(error) => drop(self.stop(error)),
        }
        self.changed();
    }

    /// Tells whoever drives the run that there may be more to do, or that it was stopped.
    pub(crate) fn changed(&self) {
        if let Some(waker) = &*self.on_change.lock() {
            waker();
        }
    }
}

/// The handles of columns.
fn handles(group: &RowGroup, columns: &[usize]) -> Vec<Arc<Chunk>> {
    let chunks = columns.iter().map(|column| &group.chunks[*column]);
    chunks.filter(|chunk| chunk.is_handle()).cloned().collect()
}

/// A row group that waits for its values.
struct Request {
    run: Weak<Run>,
    number: u64,
    is_urgent: bool,
}

impl Reader for Request {
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

    fn arrived(self: Box<Self>, outcome: Result<Kept>) {
        if let Some(run) = self.run.upgrade() {
            run.arrived(self.number, self.is_urgent, outcome);
        }
    }
}

#[cfg(test)]
mod tests;

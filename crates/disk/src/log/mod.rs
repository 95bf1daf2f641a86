//! The log: records that are durable when [`Log::commit`] returns, and that are read back, in order, when the log is
//! opened again.
//!
//! *Group commit* (R. Johnson et al., *Aether*, PVLDB 3, 2010). Appended records wait in memory. The first caller that
//! commits writes and syncs all that wait as one batch; callers that come meanwhile wait for it, and the first of those
//! writes the next batch. A thread may do that for callers that do not wait ([`Log::write_next`]); an [`Observer`] is told
//! what has become durable.
//!
//! *Recovery.* Batches are numbered, and each is written after the one before it was synced. A damaged batch with a whole
//! one behind it was therefore acknowledged, and is an error. A damaged batch at the very end was torn by a loss of power,
//! before it was acknowledged, and is dropped. [`Log::close`] writes an empty batch, so that after a clean stop damage to
//! the last records is an error, too. A file is as long as its header says from the moment that it is used: a shorter one was
//! cut, which is an error, as is a log that has fewer records than its mark ([`Log::mark`]).
//!
//! *Failures.* After a write or sync that failed nobody knows what is on the device, and a later sync that succeeds does
//! not tell either. The log then refuses everything until it is opened again. Lack of space shows when a file is reserved,
//! before a record is accepted. A part of each file ([`RESERVED_PART`]) is kept for records that free space.
//!
//! Invariant: the records of a log that is opened again are the first n that were appended, and those that were committed
//! are among them.

mod format;
mod mark;
mod recovery;
#[cfg(test)]
mod tests;

pub use recovery::{Dropped, Recovered};

use crate::files::{Directory, File, failed};
use crate::keys::SEAL_BYTES;
use farpool_model::cast::{u32_checked, u64_from};
use farpool_model::{Error, Result, limits};
use format::{
    BATCH_HEADER_BYTES, BatchHeader, FileHeader, HEADER_BYTES, Sealer, payload_bytes, push_record,
    record_bytes, whole_bytes,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// One part in this many of each file is kept for records that free space: some thousand of them fit.
const RESERVED_PART: u64 = 64;

/// Whether a record may take the space that is kept for a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It may not.
    Normal,
    /// It may: once it is durable, space can be freed.
    FreesSpace,
}

/// Is told what becomes of the records of a log, in order, by the thread that writes: it must neither append nor commit.
pub trait Observer: fmt::Debug + Send + Sync {
    /// The first `count` records are durable. Called before any [`Log::commit`] of these returns.
    fn durable(&self, count: u64);

    /// A write failed: no further record becomes durable.
    fn failed(&self, error: &Error);
}

/// The log of a directory. Shared by all threads that change something.
#[derive(Debug)]
pub struct Log {
    /// Tells this log from any other.
    number: u64,
    directory: Arc<dyn Directory>,
    /// Size of each file.
    file_bytes: u64,
    state: Mutex<State>,
    /// See [`Log::room`].
    room: AtomicU64,
    /// Notified when the writer is back, or has failed.
    changed: Condvar,
    /// Notified when a record waits, or nobody is to wait for one any more.
    arrived: Condvar,
    /// Notified when no further mark is to be written.
    ended: Condvar,
    observer: OnceLock<Box<dyn Observer>>,
    /// Number of records that the mark says are durable, where that is known. Locked while a mark is written.
    marked: Mutex<Option<u64>>,
}

#[derive(Debug)]
struct State {
    /// Records that wait, each with its length.
    waiting: Vec<u8>,
    waiting_records: u32,
    /// Number of records that were ever appended, and of those that are durable.
    appended: u64,
    durable: u64,
    /// Bytes of the seal that each batch has in an encrypted directory.
    seal_bytes: usize,
    /// Bytes that are left in the current file.
    room: u64,
    bytes_written: u64,
    /// Taken by the thread that writes.
    writer: Option<Writer>,
    failure: Option<Error>,
    is_stopped: bool,
}

/// The files of the log.
#[derive(Debug)]
struct Writer {
    /// Number that tells this log from any other.
    log: u64,
    /// Oldest first; the last one is written.
    files: Vec<LogFile>,
    file: Arc<dyn File>,
    sealer: Option<Sealer>,
    /// Offset at which the last batch ends.
    end: u64,
    next_batch: u64,
}

#[derive(Debug)]
struct LogFile {
    /// Counts the files of a log.
    number: u64,
    first_record: u64,
}

impl LogFile {
    fn name(&self) -> String {
        file_name(self.number)
    }
}

fn file_name(number: u64) -> String {
    format!("log-{number:012}")
}

impl Log {
    /// Sets the observer; only the first one counts. Should be called before the first record is appended.
    pub fn observe(&self, observer: Box<dyn Observer>) {
        drop(self.observer.set(observer));
    }

    /// Appends a record and returns its number, counted from 0 over the life of the log. It is durable once
    /// [`Log::commit`] of that number has returned.
    ///
    /// # Errors
    /// `OverLimit` where the record is longer than [`limits::LOG_RECORD_BYTES_MAX`] or the disk is full; `Unavailable`
    /// after a write has failed.
    pub fn append(&self, record: &[u8], urgency: Urgency) -> Result<u64> {
        loop {
            if let Some(number) = self.try_append(record, urgency)? {
                return Ok(number);
            }
            self.make_room(record.len(), urgency)?;
        }
    }

    /// As [`Log::append`], without waiting for the disk; `None` where [`Log::make_room`] must be called first.
    ///
    /// # Errors
    /// As [`Log::append`], except that of a full disk.
    pub fn try_append(&self, record: &[u8], urgency: Urgency) -> Result<Option<u64>> {
        check_length(record.len())?;
        let mut state = self.state.lock();
        state.check()?;
        if !state.has_room(record.len(), urgency, self.file_bytes) {
            return Ok(None);
        }
        let number = state.push(record);
        self.note_room(&state);
        self.arrived.notify_one();
        Ok(Some(number))
    }

    /// Bytes of records for which there was room in the current file when one was last appended or written, without
    /// [`Urgency::FreesSpace`]. Does not wait for anything.
    pub fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    fn note_room(&self, state: &State) {
        self.room.store(state.room_for_records(Urgency::Normal, self.file_bytes), Ordering::Relaxed);
    }

    /// Makes room for a record of so many bytes: blocks until others are written, or another file is there.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn make_room(&self, bytes: usize, urgency: Urgency) -> Result<()> {
        check_length(bytes)?;
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.has_room(bytes, urgency, self.file_bytes) {
                return Ok(());
            }
            match state.writer.take() {
                Some(writer) if state.waiting_records > 0 => self.write_waiting(&mut state, writer),
                Some(writer) => self.begin_file(&mut state, writer)?,
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Blocks until records wait, and writes them; returns whether to go on: not after [`Log::stop`] or a failed write.
    /// For a thread that calls this in a loop.
    pub fn write_next(&self) -> bool {
        let mut state = self.state.lock();
        while state.failure.is_none() {
            if state.waiting_records > 0 {
                match state.writer.take() {
                    Some(writer) => {
                        self.write_waiting(&mut state, writer);
                        return true;
                    }
                    None => self.changed.wait(&mut state),
                }
            } else if state.is_stopped {
                return false;
            } else {
                self.arrived.wait(&mut state);
            }
        }
        false
    }

    /// Makes [`Log::write_next`] return once nothing waits, and [`Log::keep_marked`] at once.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.arrived.notify_all();
        self.ended.notify_all();
    }

    /// Blocks until the record `number`, and all before it, are durable.
    ///
    /// # Errors
    /// `Unavailable` where a write failed before. Whether the record is in the log shows when it is opened again.
    pub fn commit(&self, number: u64) -> Result<()> {
        let mut state = self.state.lock();
        while number >= state.durable {
            state.check()?;
            if number >= state.appended {
                return Err(Error::invalid(format!("record {number} of a log of {}", state.appended)));
            }
            match state.writer.take() {
                Some(writer) => self.write_waiting(&mut state, writer),
                None => self.changed.wait(&mut state),
            }
        }
        Ok(())
    }

    /// Begins another file, unless the current one has no records, so that [`Log::forget_before`] can remove all that were
    /// appended before. Blocks until these are durable.
    ///
    /// # Errors
    /// `Unavailable` after a write has failed; `OverLimit` where the disk is full: the log goes on in its file then.
    pub fn turn_over(&self) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            let writer = self.wait_for_writer(&mut state)?;
            if state.waiting_records > 0 {
                self.write_waiting(&mut state, writer);
            } else if writer.current().first_record == state.appended {
                self.give_back(&mut state, writer);
                return Ok(());
            } else {
                return self.begin_file(&mut state, writer);
            }
        }
    }

    /// Removes the files that have only records before `number`, which need not be read again.
    ///
    /// # Errors
    /// `Unavailable` where a file cannot be removed; the log goes on.
    pub fn forget_before(&self, number: u64) -> Result<()> {
        let mut state = self.state.lock();
        let mut writer = self.wait_for_writer(&mut state)?;
        let mut outcome = Ok(());
        MutexGuard::unlocked(&mut state, || {
            while outcome.is_ok() && writer.files.get(1).is_some_and(|next| next.first_record <= number) {
                outcome = self.remove_oldest(&mut writer);
            }
        });
        self.give_back(&mut state, writer);
        outcome
    }

    /// Makes all records durable and marks the end, so that whoever opens the log sees that nothing was torn. The log
    /// refuses everything then.
    ///
    /// # Errors
    /// As [`Log::commit`].
    pub fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.waiting_records > 0 {
            let writer = self.wait_for_writer(&mut state)?;
            self.write_waiting(&mut state, writer);
            state.check()?;
        }
        let writer = self.wait_for_writer(&mut state)?;
        // A file that was opened and closed very often is full of such marks.
        if whole_bytes(state.seal_bytes) <= state.room {
            self.write_batch(&mut state, writer, (Vec::new(), 0));
        }
        state.check()?;
        state.failure = Some(Error::unavailable("the log is closed"));
        self.ended.notify_all();
        Ok(())
    }

    /// Bytes that were written to the log since it was opened.
    pub fn bytes_written(&self) -> u64 {
        self.state.lock().bytes_written
    }

    /// The number of the next record.
    pub fn next_record(&self) -> u64 {
        self.state.lock().appended
    }

    fn wait_for_writer(&self, state: &mut MutexGuard<'_, State>) -> Result<Writer> {
        loop {
            state.check()?;
            match state.writer.take() {
                Some(writer) => return Ok(writer),
                None => self.changed.wait(state),
            }
        }
    }

    fn give_back(&self, state: &mut State, writer: Writer) {
        state.writer = Some(writer);
        self.changed.notify_all();
    }

    /// Writes all that waits as one batch, and syncs it.
    fn write_waiting(&self, state: &mut MutexGuard<'_, State>, writer: Writer) {
        let payload = std::mem::take(&mut state.waiting);
        let records = std::mem::take(&mut state.waiting_records);
        self.write_batch(state, writer, (payload, records));
    }

    fn write_batch(
        &self,
        state: &mut MutexGuard<'_, State>,
        mut writer: Writer,
        (mut payload, records): (Vec<u8>, u32),
    ) {
        // Records that come while this is written must find the rest of the file.
        let bytes = whole_bytes(state.seal_bytes + payload.len());
        (state.room, state.bytes_written) = (state.room - bytes, state.bytes_written + bytes);
        let durable = state.durable + u64::from(records);
        let outcome = MutexGuard::unlocked(state, || {
            writer.write(&payload, records)?;
            if let Some(observer) = self.observer.get() {
                observer.durable(durable);
            }
            Ok::<(), io::Error>(())
        });
        match outcome {
            Ok(()) => {
                state.durable = durable;
                if state.seal_bytes > 0 {
                    // It stays in memory to be used again, and records have rows.
                    payload.fill(0);
                }
                if state.waiting.is_empty() {
                    payload.clear();
                    state.waiting = payload;
                }
                self.note_room(state);
            }
            Err(error) => {
                let name = writer.current().name();
                self.fail(state, failed(&*self.directory, "write", &name, &error));
            }
        }
        self.give_back(state, writer);
    }

    fn fail(&self, state: &mut MutexGuard<'_, State>, error: Error) {
        state.failure = Some(error.clone());
        self.arrived.notify_all();
        self.ended.notify_all();
        if let Some(observer) = self.observer.get() {
            MutexGuard::unlocked(state, || observer.failed(&error));
        }
    }

    /// Begins another file for what has no room in the current one.
    fn begin_file(&self, state: &mut MutexGuard<'_, State>, mut writer: Writer) -> Result<()> {
        let first_record = state.appended;
        let outcome = MutexGuard::unlocked(state, || {
            writer.begin_file(&*self.directory, first_record, self.file_bytes)
        });
        match &outcome {
            Ok(()) => {
                state.room = self.file_bytes - u64_from(HEADER_BYTES);
                self.note_room(state);
            }
            Err(NotBegun { is_usable: false, error }) => self.fail(state, error.clone()),
            Err(_) => {}
        }
        self.give_back(state, writer);
        outcome.map_err(|not_begun| not_begun.error)
    }

    /// Removes the oldest file, durably: if several removals were under way, a loss of power could keep an older one.
    fn remove_oldest(&self, writer: &mut Writer) -> Result<()> {
        let name = writer.files[0].name();
        let removed = match self.directory.remove(&name) {
            // The sync behind an earlier removal failed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        let removed = removed.and_then(|()| self.directory.sync());
        removed.map_err(|error| failed(&*self.directory, "remove", &name, &error))?;
        writer.files.remove(0);
        Ok(())
    }
}

impl State {
    fn is_open(&self) -> bool {
        self.failure.is_none() && !self.is_stopped
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn has_room(&self, record_length: usize, urgency: Urgency, file_bytes: u64) -> bool {
        u64_from(record_bytes(record_length)) <= self.room_for_records(urgency, file_bytes)
    }

    /// Bytes of records that may wait with the others: half a file of them all together, so that any batch fits a new one.
    fn room_for_records(&self, urgency: Urgency, file_bytes: u64) -> u64 {
        let reserved = match urgency {
            Urgency::Normal => file_bytes / RESERVED_PART,
            Urgency::FreesSpace => 0,
        };
        // The batch that marks the end has room in any case.
        let end = whole_bytes(self.seal_bytes);
        let payload = payload_bytes(self.room.saturating_sub(reserved + end));
        let of_file = payload.saturating_sub(u64_from(self.seal_bytes + self.waiting.len()));
        of_file.min((file_bytes / 2).saturating_sub(u64_from(self.waiting.len())))
    }

    fn push(&mut self, record: &[u8]) -> u64 {
        push_record(&mut self.waiting, record);
        self.waiting_records += 1;
        self.appended += 1;
        self.appended - 1
    }
}

fn check_length(bytes: usize) -> Result<()> {
    let most = limits::LOG_RECORD_BYTES_MAX;
    match bytes <= most {
        true => Ok(()),
        false => Err(Error::over_limit(format!("a change of {bytes} bytes: the log takes {most} at once"))),
    }
}

/// Why there is no further file.
#[derive(Debug)]
struct NotBegun {
    error: Error,
    /// Nothing was written: the log can go on in the file that it has.
    is_usable: bool,
}

impl Writer {
    fn current(&self) -> &LogFile {
        self.files.last().expect("a log has a file")
    }

    fn write(&mut self, payload: &[u8], records: u32) -> io::Result<()> {
        let file = self.current().number;
        let seal_bytes = if self.sealer.is_some() { SEAL_BYTES } else { 0 };
        let bytes = seal_bytes + payload.len();
        let mut header = BatchHeader {
            log: self.log,
            batch: self.next_batch,
            records,
            bytes: u32_checked(bytes),
            checksum: 0,
        };
        let mut batch = Vec::with_capacity(header.whole_bytes() as usize);
        batch.resize(BATCH_HEADER_BYTES + seal_bytes, 0);
        batch.extend_from_slice(payload);
        if let Some(sealer) = &mut self.sealer {
            let sealed = sealer.seal(&header, file, &mut batch[BATCH_HEADER_BYTES..]);
            sealed.map_err(|error| io::Error::other(error.message))?;
        }
        header.checksum = crc32fast::hash(&batch[BATCH_HEADER_BYTES..]);
        batch[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
        batch.resize(header.whole_bytes() as usize, 0);
        self.file.write_at(&batch, self.end)?;
        self.file.sync()?;
        self.end += header.whole_bytes();
        self.next_batch += 1;
        Ok(())
    }

    fn begin_file(
        &mut self,
        directory: &dyn Directory,
        first_record: u64,
        file_bytes: u64,
    ) -> Result<(), NotBegun> {
        let next = LogFile { number: self.current().number + 1, first_record };
        let (log, first_batch, previous_end) = (self.log, self.next_batch, self.end);
        let header = FileHeader { log, first_batch, first_record, previous_end, file_bytes };
        self.file = create_file(directory, next.number, &header, file_bytes)?;
        self.end = u64_from(HEADER_BYTES);
        self.files.push(next);
        Ok(())
    }
}

/// Creates a file of the log with its header.
fn create_file(
    directory: &dyn Directory,
    number: u64,
    header: &FileHeader,
    file_bytes: u64,
) -> Result<Arc<dyn File>, NotBegun> {
    let name = &file_name(number);
    let header = header.encode(directory.keys(), number);
    let header = header.map_err(|error| NotBegun { error, is_usable: true })?;
    let reserved = create(directory, name).and_then(|file| {
        file.reserve(file_bytes)?;
        Ok(file)
    });
    let file = reserved.map_err(|error| {
        // It has no header yet: recovery takes it for what it is if it cannot be removed.
        let _ = directory.remove(name);
        NotBegun { error: failed(directory, "reserve space for", name, &error), is_usable: true }
    })?;
    let written = file.write_at(&header, 0).and_then(|()| file.sync()).and_then(|()| directory.sync());
    match written {
        Ok(()) => Ok(file),
        // The header may be on the device, and would contradict what is written to the file before.
        Err(error) => Err(NotBegun { error: failed(directory, "write", name, &error), is_usable: false }),
    }
}

/// Creates a file in the place of one that was not finished.
fn create(directory: &dyn Directory, name: &str) -> io::Result<Arc<dyn File>> {
    match directory.create(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            directory.remove(name)?;
            directory.create(name)
        }
        created => created,
    }
}

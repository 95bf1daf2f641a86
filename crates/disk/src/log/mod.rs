//! The write-ahead log: records are durable when [`Log::commit`] returns, and are replayed in order when the log is
//! opened again.
//!
//! *Group commit* (R. Johnson et al., *Aether*, PVLDB 3, 2010). Appended records are buffered in memory. The first
//! caller that commits writes and syncs all buffered records as one batch. Callers that arrive in the meantime block
//! until it has finished, and the first of them writes the next batch. A background thread may write in their place,
//! for callers that do not block ([`Log::write_next`]); an [`Observer`] is notified when records become durable.
//!
//! *Recovery.* Batches are numbered, and each is written only after the one before it was synced. A corrupted batch
//! that is followed by an intact one was therefore acknowledged, and is an error. A corrupted batch at the very end was
//! torn by a loss of power before it was acknowledged, and is dropped. [`Log::close`] appends an empty batch, so that
//! after a clean stop corruption of the last records is an error, too. The header of a file states its length, which is
//! reserved before the file is used: a shorter file was truncated, which is an error, as is a log that has fewer
//! records than its mark ([`Log::mark`]).
//!
//! Example: batches 1, 2 and 3 are on disk, and the checksum of batch 2 does not match. If batch 3 is intact, batch 2
//! was synced, and opening the log fails. If instead only the checksum of batch 3 does not match, the records of
//! batches 1 and 2 are recovered.
//!
//! *Failures.* After a failed write or sync the contents of the device are unknown, and a later sync that succeeds does
//! not prove that the earlier writes are durable. The log then refuses all calls until it is opened again. A full disk
//! is detected when a file is reserved, before a record is accepted. A part of each file ([`RESERVED_PART`]) is
//! reserved for records that free space.
//!
//! Invariant: when a log is opened again, its records are a prefix of those that were appended, and the prefix includes
//! all that were committed.
//!
//! *Assertions.* Where a thread has taken the writer out of the state, they are `debug_assert`, because a panic there
//! would lose the writer, and every later commit would wait for it for ever.

mod format;
mod mark;
mod recovery;
#[cfg(test)]
mod tests;

pub use recovery::{RecoveredLog, TornEnd};

use crate::files::{Directory, File, failed};
use crate::keys::SEAL_BYTES;
use farpool_model::cast::{u32_checked, u64_from};
use farpool_model::{Error, Result, limits};
use format::{
    BATCH_HEADER_BYTES, BatchEncryptor, BatchHeader, FileHeader, HEADER_BYTES, SECTOR_BYTES, payload_bytes,
    push_record, record_bytes, whole_bytes,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Divisor: 1/64 of each file is reserved for records that free space, such as drops of tables. It has room for
/// thousands of them.
const RESERVED_PART: u64 = 64;

/// Whether a record may use the space of a file that is reserved for the case that the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservePolicy {
    /// The record may not use the reserved space.
    Normal,
    /// The record may use the reserved space, because data can be deleted after the record is durable.
    FreesSpace,
}

/// Receives notifications about the records of a log, in order, on the thread that writes. Its methods must neither
/// append nor commit, because the log's next write waits until they return.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Reports that the first `count` records of the log are durable. Called before [`Log::commit`] returns for any of
    /// them.
    fn durable(&self, count: u64);

    /// Reports that a write failed, after which no further record becomes durable.
    fn failed(&self, error: &Error);
}

/// The log of a directory, shared by all threads that make changes.
#[derive(Debug)]
pub struct Log {
    /// Random id of the log.
    number: u64,
    directory: Arc<dyn Directory>,
    /// Number of bytes of each file of the log, reserved when the file is created.
    file_bytes: u64,
    state: Mutex<LogState>,
    /// Result of [`Log::room`], cached so that it takes no lock.
    room: AtomicU64,
    /// Notified when a thread that writes has put the writer back into the state, or has failed.
    changed: Condvar,
    /// Notified when a record is appended, and when [`Log::write_next`] must return.
    arrived: Condvar,
    /// Notified when [`Log::keep_marked`] must return.
    ended: Condvar,
    observer: OnceLock<Box<dyn Observer>>,
    /// Number of durable records according to the mark on disk; `None` if it is not known. Locked while a mark is
    /// written.
    marked: Mutex<Option<u64>>,
}

#[derive(Debug)]
struct LogState {
    /// Appended records that are not written yet, each after its length.
    waiting: Vec<u8>,
    waiting_records: u32,
    /// Whether a caller waits for a buffered record to become durable, so that [`Log::write_next`] writes the records
    /// at once.
    is_awaited: bool,
    /// Number of records that were ever appended.
    appended: u64,
    /// Number of records that are durable.
    durable: u64,
    /// Bytes of the seal (salt and tag) in each batch; 0 if the directory is not encrypted.
    seal_bytes: usize,
    /// Unused bytes of the current file.
    room: u64,
    bytes_written: u64,
    /// The writer; `None` while a thread has taken it out to write.
    writer: Option<Writer>,
    failure: Option<Error>,
    is_stopped: bool,
}

/// Writes the files of the log. Owned by one thread at a time.
#[derive(Debug)]
struct Writer {
    /// Random id of the log.
    log: u64,
    /// Files, oldest first. Batches are appended to the last one.
    files: Vec<LogFile>,
    file: Arc<dyn File>,
    encryptor: Option<BatchEncryptor>,
    /// Offset of the end of the last batch in the current file.
    end: u64,
    next_batch: u64,
}

#[derive(Debug)]
struct LogFile {
    /// Sequence number of the file within the log.
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
    /// Sets the observer; later calls have no effect. Must be called before the first record is appended, because the
    /// observer would miss it.
    pub fn observe(&self, observer: Box<dyn Observer>) {
        drop(self.observer.set(observer));
    }

    /// Appends a record and returns its sequence number, counted from 0 over the lifetime of the log. The record is
    /// durable when [`Log::commit`] has returned for that number. Blocks while the current file is full.
    ///
    /// # Errors
    /// `OverLimit` if the record is longer than [`limits::LOG_RECORD_BYTES_MAX`] or the disk is full; `Unavailable`
    /// after a write has failed.
    pub fn append(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<u64> {
        loop {
            if let Some(number) = self.try_append(record, reserve_policy)? {
                return Ok(number);
            }
            self.make_room(record.len(), reserve_policy)?;
        }
    }

    /// Appends a record as [`Log::append`] does, but never waits for the disk. Returns `None`, without appending, if
    /// the current file is full; the caller then calls [`Log::make_room`] and tries again.
    ///
    /// # Errors
    /// Errors of [`Log::append`], except a full disk.
    pub fn try_append(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<Option<u64>> {
        self.try_append_as(record, reserve_policy, true)
    }

    /// Appends a record that nobody waits for, as [`Log::try_append`] does. It costs no sync of its own: it becomes
    /// durable with the next record that somebody waits for, or within about a second ([`Log::keep_marked`]).
    ///
    /// # Errors
    /// Errors of [`Log::try_append`].
    pub fn try_append_unawaited(&self, record: &[u8], reserve_policy: ReservePolicy) -> Result<Option<u64>> {
        self.try_append_as(record, reserve_policy, false)
    }

    fn try_append_as(
        &self,
        record: &[u8],
        reserve_policy: ReservePolicy,
        is_awaited: bool,
    ) -> Result<Option<u64>> {
        check_length(record.len())?;
        let mut state = self.state.lock();
        state.check()?;
        if !state.has_room(record.len(), reserve_policy, self.file_bytes) {
            return Ok(None);
        }
        let number = state.push(record);
        let waiting = u64_from(state.waiting.len());
        assert!(waiting <= self.file_bytes / 2, "records that wait fit a new file");
        self.note_room(&state);
        state.is_awaited |= is_awaited;
        if is_awaited {
            self.arrived.notify_one();
        }
        Ok(Some(number))
    }

    /// Returns the number of bytes of [`ReservePolicy::Normal`] records that fitted into the current file after the
    /// last append or write. Never blocks.
    pub fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    fn note_room(&self, state: &LogState) {
        self.room.store(state.room_for_records(ReservePolicy::Normal, self.file_bytes), Ordering::Relaxed);
    }

    /// Blocks until the current file has room for a record of `bytes` bytes: writes the buffered records, and creates a
    /// new file if necessary.
    ///
    /// # Errors
    /// Errors of [`Log::append`].
    pub fn make_room(&self, bytes: usize, reserve_policy: ReservePolicy) -> Result<()> {
        check_length(bytes)?;
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.has_room(bytes, reserve_policy, self.file_bytes) {
                return Ok(());
            }
            match state.writer.take() {
                Some(writer) if state.waiting_records > 0 => self.write_waiting(&mut state, writer),
                Some(writer) => self.begin_file(&mut state, writer)?,
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Blocks until records are buffered, and writes them. Returns whether to call it again: false after [`Log::stop`]
    /// or a failed write. Meant for a background thread that calls it in a loop.
    pub fn write_next(&self) -> bool {
        let mut state = self.state.lock();
        while state.failure.is_none() {
            if state.waiting_records > 0 && (state.is_awaited || state.is_stopped) {
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

    /// Makes [`Log::write_next`] return false after the buffered records are written, and [`Log::keep_marked`] return
    /// at once. Does not block.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.arrived.notify_all();
        self.ended.notify_all();
    }

    /// Blocks until the record with sequence number `number` and all records before it are durable.
    ///
    /// # Errors
    /// `Unavailable` if a write failed. Whether the record is in the log is known only after the log is opened again.
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
        assert!(state.durable <= state.appended, "only records that were appended are durable");
        Ok(())
    }

    /// Begins a new file, unless the current one has no records, so that [`Log::forget_before`] can remove all records
    /// appended so far. Blocks until those are durable.
    ///
    /// # Errors
    /// `Unavailable` after a write has failed; `OverLimit` if the disk is full, in which case the log continues in the
    /// current file.
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

    /// Removes the files that have only records before `number`. The caller no longer needs them, because a manifest
    /// covers them.
    ///
    /// Example: files begin at records 0, 100 and 200. `forget_before(150)` removes the first file only, because the
    /// second one has record 150. The current file is never removed.
    ///
    /// # Errors
    /// `Unavailable` if a file cannot be removed; the log continues.
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

    /// Makes all records durable, and writes an empty batch as end mark. With it, corruption of the last records is
    /// distinguished from a torn write when the log is opened again. The log refuses all calls afterwards.
    ///
    /// # Errors
    /// Errors of [`Log::commit`].
    pub fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.waiting_records > 0 {
            let writer = self.wait_for_writer(&mut state)?;
            self.write_waiting(&mut state, writer);
            state.check()?;
        }
        let writer = self.wait_for_writer(&mut state)?;
        // A file that was opened and closed very often is full of end marks.
        if whole_bytes(state.seal_bytes) <= state.room {
            self.write_batch(&mut state, writer, (Vec::new(), 0));
        }
        state.check()?;
        state.failure = Some(Error::unavailable("the log is closed"));
        self.ended.notify_all();
        Ok(())
    }

    /// Returns the number of bytes written to the log since it was opened.
    pub fn bytes_written(&self) -> u64 {
        self.state.lock().bytes_written
    }

    /// Returns the sequence number that the next appended record will get.
    pub fn next_record(&self) -> u64 {
        self.state.lock().appended
    }

    fn wait_for_writer(&self, state: &mut MutexGuard<'_, LogState>) -> Result<Writer> {
        loop {
            state.check()?;
            match state.writer.take() {
                Some(writer) => return Ok(writer),
                None => self.changed.wait(state),
            }
        }
    }

    fn give_back(&self, state: &mut LogState, writer: Writer) {
        state.writer = Some(writer);
        self.changed.notify_all();
    }

    /// Writes all buffered records as one batch, and syncs it. Blocks on the disk; releases the lock of the state
    /// meanwhile.
    fn write_waiting(&self, state: &mut MutexGuard<'_, LogState>, writer: Writer) {
        let payload = std::mem::take(&mut state.waiting);
        let records = std::mem::take(&mut state.waiting_records);
        state.is_awaited = false;
        self.write_batch(state, writer, (payload, records));
    }

    fn write_batch(
        &self,
        state: &mut MutexGuard<'_, LogState>,
        mut writer: Writer,
        (mut payload, records): (Vec<u8>, u32),
    ) {
        debug_assert_eq!(
            state.durable + u64::from(records) + u64::from(state.waiting_records),
            state.appended,
            "a batch has the records between those that are durable and those that wait"
        );
        // Reserved before the lock is released, so that records appended during the write see the remaining space.
        let bytes = whole_bytes(state.seal_bytes + payload.len());
        debug_assert!(bytes <= state.room, "a batch of {bytes} bytes has room in the current file");
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
                debug_assert!(durable <= state.appended, "only records that were appended are durable");
                state.durable = durable;
                if state.seal_bytes > 0 {
                    // Overwritten, because the buffer is reused and must not keep unencrypted rows in memory.
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

    fn fail(&self, state: &mut MutexGuard<'_, LogState>, error: Error) {
        state.failure = Some(error.clone());
        self.arrived.notify_all();
        self.ended.notify_all();
        if let Some(observer) = self.observer.get() {
            MutexGuard::unlocked(state, || observer.failed(&error));
        }
    }

    /// Begins a new file because a record does not fit into the current one.
    fn begin_file(&self, state: &mut MutexGuard<'_, LogState>, mut writer: Writer) -> Result<()> {
        debug_assert_eq!(state.waiting_records, 0, "a file begins with the records that are appended next");
        let first_record = state.appended;
        let outcome = MutexGuard::unlocked(state, || {
            writer.begin_file(&*self.directory, first_record, self.file_bytes)
        });
        match &outcome {
            Ok(()) => {
                state.room = self.file_bytes - u64_from(HEADER_BYTES);
                self.note_room(state);
            }
            Err(FileCreationError { is_usable: false, error }) => self.fail(state, error.clone()),
            Err(_) => {}
        }
        self.give_back(state, writer);
        outcome.map_err(|not_begun| not_begun.error)
    }

    /// Removes the oldest file and syncs the directory. Without a sync after each, a loss of power could undo a removal
    /// and keep a later one, which would leave a gap in the log.
    fn remove_oldest(&self, writer: &mut Writer) -> Result<()> {
        debug_assert!(writer.files.len() > 1, "the current file is never removed");
        let name = writer.files[0].name();
        let removed = match self.directory.remove(&name) {
            // The file was removed before, but the sync of the directory failed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        let removed = removed.and_then(|()| self.directory.sync());
        removed.map_err(|error| failed(&*self.directory, "remove", &name, &error))?;
        writer.files.remove(0);
        Ok(())
    }
}

impl LogState {
    fn is_open(&self) -> bool {
        self.failure.is_none() && !self.is_stopped
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn has_room(&self, record_length: usize, reserve_policy: ReservePolicy, file_bytes: u64) -> bool {
        u64_from(record_bytes(record_length)) <= self.room_for_records(reserve_policy, file_bytes)
    }

    /// Returns how many more bytes of records may be buffered. All buffered records together take at most half a file,
    /// so that every batch fits into a new file.
    fn room_for_records(&self, reserve_policy: ReservePolicy, file_bytes: u64) -> u64 {
        let reserved = match reserve_policy {
            ReservePolicy::Normal => file_bytes / RESERVED_PART,
            ReservePolicy::FreesSpace => 0,
        };
        // Space for the end mark of [`Log::close`] is never used by records.
        let end = whole_bytes(self.seal_bytes);
        let payload = payload_bytes(self.room.saturating_sub(reserved + end));
        let of_file = payload.saturating_sub(u64_from(self.seal_bytes + self.waiting.len()));
        of_file.min((file_bytes / 2).saturating_sub(u64_from(self.waiting.len())))
    }

    fn push(&mut self, record: &[u8]) -> u64 {
        push_record(&mut self.waiting, record);
        self.waiting_records += 1;
        self.appended += 1;
        let accounted = self.durable + u64::from(self.waiting_records);
        assert!(accounted <= self.appended, "a record is durable, or being written, or waits");
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

/// The error of a failed creation of a file of the log.
#[derive(Debug)]
struct FileCreationError {
    error: Error,
    /// Whether the log can continue in its current file, because no header of the new file was written.
    is_usable: bool,
}

impl Writer {
    fn current(&self) -> &LogFile {
        self.files.last().expect("a log has a file")
    }

    fn write(&mut self, payload: &[u8], records: u32) -> io::Result<()> {
        debug_assert!(
            self.end.is_multiple_of(u64_from(SECTOR_BYTES)),
            "a batch begins at a sector, so that a torn write damages no batch before it"
        );
        let file = self.current().number;
        let seal_bytes = if self.encryptor.is_some() { SEAL_BYTES } else { 0 };
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
        if let Some(encryptor) = &mut self.encryptor {
            let sealed = encryptor.seal(&header, file, &mut batch[BATCH_HEADER_BYTES..]);
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
    ) -> Result<(), FileCreationError> {
        debug_assert!(
            self.current().first_record <= first_record,
            "files of a log are in the order of records"
        );
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
) -> Result<Arc<dyn File>, FileCreationError> {
    let name = &file_name(number);
    let header = header.encode(directory.keys(), number);
    let header = header.map_err(|error| FileCreationError { error, is_usable: true })?;
    let reserved = create(directory, name).and_then(|file| {
        file.reserve(file_bytes)?;
        Ok(file)
    });
    let file = reserved.map_err(|error| {
        // The file has no header yet. If it cannot be removed, recovery recognizes it as unfinished.
        let _ = directory.remove(name);
        FileCreationError { error: failed(directory, "reserve space for", name, &error), is_usable: true }
    })?;
    let written = file.write_at(&header, 0).and_then(|()| file.sync()).and_then(|()| directory.sync());
    match written {
        Ok(()) => Ok(file),
        // The header may have reached the device. Batches appended to the previous file would then contradict its
        // `previous_end`.
        Err(error) => {
            Err(FileCreationError { error: failed(directory, "write", name, &error), is_usable: false })
        }
    }
}

/// Creates a file of the log, replacing a file of this name whose creation was not finished before a crash.
fn create(directory: &dyn Directory, name: &str) -> io::Result<Arc<dyn File>> {
    match directory.create(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            directory.remove(name)?;
            directory.create(name)
        }
        created => created,
    }
}

//! Opening a write-ahead log: reads its files, passes their records to the caller, and clears the remains of a torn
//! last batch (a group of records whose write a loss of power interrupted before it was acknowledged).

use super::format::{
    BATCH_HEADER_BYTES, BatchDecryptor, BatchEncryptor, BatchHeader, DecodedFileHeader, ENCRYPTED_FORMAT,
    FileHeader, HEADER_BYTES, SECTOR_BYTES, records,
};
use super::mark::{self, DurabilityMark};
use super::{Log, LogFile, LogState, ReservePolicy, Writer, create_file, file_name};
use crate::encrypted::{changed, changed_at, needs_key, not_encrypted};
use crate::files::{Directory, File, failed};
use crate::keys::SEAL_BYTES;
use crate::sealed::other_format;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result, limits};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// Result of opening or reading a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredLog {
    /// Number of records that were passed to the caller.
    pub records: u64,
    /// Description of the torn end, if there was one.
    pub dropped: Option<TornEnd>,
}

/// The torn last write of a log: bytes that were being written when power was lost. They were not acknowledged, and are
/// dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornEnd {
    /// Full name of the file ([`Directory::full_name`]).
    pub file: String,
    /// Offset of the first dropped byte.
    pub offset: u64,
    /// Number of dropped bytes, up to the last one that is not zero.
    pub bytes: u64,
}

/// Receives a record and its sequence number.
type Sink<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

impl Log {
    /// Opens the log of `directory`, and passes all records from sequence number `from` on to `sink`, oldest first. If
    /// there is no log and `new_log` is given, begins a new log with that id.
    ///
    /// Example: a manifest covers records 0 to 99, and the log has records 80 to 120. With `from = 100`, `sink`
    /// receives 100 to 120, and corruption of records 80 to 99 loses nothing. If the first file begins with record 101,
    /// record 100 is missing, which is an error.
    ///
    /// # Errors
    /// `Corrupt`, with file and offset, if acknowledged records are corrupted or missing, or if there is no log and
    /// none may be begun; `Invalid` if the files have the format of another version; errors of the file system and of
    /// `sink`.
    pub fn open(
        directory: Arc<dyn Directory>,
        new_log: Option<u64>,
        from: u64,
        sink: &mut Sink<'_>,
    ) -> Result<(Log, RecoveredLog)> {
        Log::open_sized(directory, u64_from(limits::LOG_FILE_BYTES), new_log, from, sink)
    }

    /// Reads the log of `directory` as [`Log::open`] does, without changing anything.
    ///
    /// # Errors
    /// Errors of [`Log::open`].
    pub fn read(directory: &dyn Directory, from: u64, sink: &mut Sink<'_>) -> Result<RecoveredLog> {
        let mut scan = LogScan::new(directory, from, sink);
        match scan.files()? {
            None => Err(missing(directory)),
            Some(_) => Ok(scan.recovered),
        }
    }

    /// Opens a log as [`Log::open`] does, with files of `file_bytes` each; at most [`limits::LOG_FILE_BYTES`].
    ///
    /// # Errors
    /// Errors of [`Log::open`].
    pub fn open_sized(
        directory: Arc<dyn Directory>,
        file_bytes: u64,
        new_log: Option<u64>,
        from: u64,
        sink: &mut Sink<'_>,
    ) -> Result<(Log, RecoveredLog)> {
        let may_begin = new_log.is_some() && from == 0;
        let mut scan = LogScan { mends: true, may_begin, ..LogScan::new(&*directory, from, sink) };
        let (mut writer, found) = match (scan.files()?, new_log) {
            (Some(found), _) => found,
            (None, Some(new_log)) if from == 0 => (begin(&*directory, new_log, file_bytes)?, 0),
            (None, _) => return Err(missing(&*directory)),
        };
        let recovered = scan.recovered;
        writer.encryptor = directory.keys().map(BatchEncryptor::new).transpose()?;
        let next_record = found.max(from);
        if found < from {
            // Records before `from` are missing and not needed. The new file begins at `from`, so that no appended
            // record gets a number that the next start would skip.
            let begun = writer.begin_file(&*directory, from, file_bytes);
            begun.map_err(|not_begun| not_begun.error)?;
        }
        let (number, marked) = (writer.log, Mutex::default());
        let state = LogState {
            waiting: Vec::new(),
            waiting_records: 0,
            is_awaited: false,
            appended: next_record,
            durable: next_record,
            seal_bytes: if writer.encryptor.is_some() { SEAL_BYTES } else { 0 },
            room: file_bytes.saturating_sub(writer.end),
            bytes_written: 0,
            writer: Some(writer),
            failure: None,
            is_stopped: false,
        };
        let room = AtomicU64::new(state.room_for_records(ReservePolicy::Normal, file_bytes));
        let log = Log {
            number,
            directory,
            file_bytes,
            state: Mutex::new(state),
            room,
            changed: Condvar::new(),
            arrived: Condvar::new(),
            ended: Condvar::new(),
            observer: OnceLock::new(),
            marked,
        };
        Ok((log, recovered))
    }
}

fn missing(directory: &dyn Directory) -> Error {
    let (place, files) = (directory.describe(), directory.full_name("log-"));
    Error::corrupt(format!("the log of {place} ({files}*) is missing"))
        .advise("restore the directory from a backup")
}

fn begin(directory: &dyn Directory, log: u64, file_bytes: u64) -> Result<Writer> {
    let first = LogFile { number: 1, first_record: 0 };
    let header = FileHeader { log, first_batch: 1, first_record: 0, previous_end: 0, file_bytes };
    let file = create_file(directory, first.number, &header, file_bytes);
    let file = file.map_err(|not_begun| not_begun.error)?;
    let (end, next_batch, encryptor) = (u64_from(HEADER_BYTES), 1, None);
    Ok(Writer { log, files: vec![first], file, encryptor, end, next_batch })
}

struct LogScan<'a, 's> {
    directory: &'a dyn Directory,
    from: u64,
    /// Whether the log will be appended to, so that a torn end must be cleared.
    mends: bool,
    /// Whether a new log may be begun if there is none.
    may_begin: bool,
    /// Durability mark, which is read before the files, because another process may append to them during the scan.
    mark: Option<DurabilityMark>,
    sink: &'a mut Sink<'s>,
    decryptor: BatchDecryptor,
    recovered: RecoveredLog,
}

/// A log file that was read into memory.
struct LogFileContents {
    number: u64,
    name: String,
    file: Arc<dyn File>,
    bytes: Vec<u8>,
    header: FileHeader,
    /// Offset of the end of the last intact batch.
    end: usize,
    /// Offset of the last intact batch.
    last_batch: Option<usize>,
    next_batch: u64,
    next_record: u64,
}

impl LogFileContents {
    /// Returns the name of the file for error messages.
    fn full_name(&self, scan: &LogScan<'_, '_>) -> String {
        scan.directory.full_name(&self.name)
    }

    /// Returns whether the file is shorter than when it was created, and so was truncated.
    fn is_cut(&self) -> bool {
        u64_from(self.bytes.len()) < self.header.file_bytes
    }
}

impl<'a, 's> LogScan<'a, 's> {
    /// Creates a scan that changes nothing.
    fn new(directory: &'a dyn Directory, from: u64, sink: &'a mut Sink<'s>) -> LogScan<'a, 's> {
        let (decryptor, recovered, mark) =
            (BatchDecryptor::default(), RecoveredLog::default(), DurabilityMark::read(directory));
        LogScan { directory, from, mends: false, may_begin: false, mark, sink, decryptor, recovered }
    }

    /// Reads all files of the log. Returns the writer that appends to the log and the sequence number of the next
    /// record; `None` if the log has no file.
    fn files(&mut self) -> Result<Option<(Writer, u64)>> {
        let numbers = self.numbers()?;
        let mut files = Vec::new();
        let mut last: Option<LogFileContents> = None;
        for (i, number) in numbers.iter().enumerate() {
            let is_last = i + 1 == numbers.len();
            // Lets the disk read the next file while the records of this one are processed.
            if let Some(next) = numbers.get(i + 1)
                && let Ok(next) = self.directory.open(&file_name(*next))
            {
                next.will_be_read();
            }
            let Some(read) = self.file(*number, is_last)? else { continue };
            self.check_follows(last.as_ref(), &read)?;
            if last.is_none() && read.header.first_record > self.from {
                let (name, first, from) = (read.full_name(self), read.header.first_record, self.from);
                return Err(self.damaged(format!("{name} begins with record {first}, and {from} is needed")));
            }
            let read = self.batches(read)?;
            // A file is extended to its full length before its first batch is written, so that a shorter empty last
            // file is new.
            let is_new = is_last && without_zeros(&read.bytes[HEADER_BYTES..]).is_empty();
            if read.is_cut() && !is_new {
                return Err(self.cut(&read));
            }
            files.push(LogFile { number: *number, first_record: read.header.first_record });
            last = Some(read);
        }
        let Some(read) = last else { return self.no_file() };
        self.check_end(&read)?;
        self.check_mark(&read)?;
        self.mend_end(&read)?;
        let LogFileContents { header, file, end, next_batch, next_record, .. } = read;
        let writer = Writer { log: header.log, files, file, encryptor: None, end: u64_from(end), next_batch };
        Ok(Some((writer, next_record)))
    }

    /// Returns `None` if the log may have no file, and otherwise the error: a mark is written only after the log has a
    /// file.
    fn no_file(&self) -> Result<Option<(Writer, u64)>> {
        match self.mark {
            None => Ok(None),
            Some(DurabilityMark { records, .. }) => {
                let missing = missing(self.directory);
                let message = format!(
                    "{}: its files are gone or empty, and {records} records at least were acknowledged",
                    missing.message
                );
                let missing = Error { message, ..missing };
                Err(match self.may_begin {
                    true => missing.advise(format!(
                        "restore the directory from a backup; to begin without what was there, remove the file {}",
                        self.directory.full_name(mark::NAME)
                    )),
                    false => missing,
                })
            }
        }
    }

    fn numbers(&self) -> Result<Vec<u64>> {
        let names =
            self.directory.names().map_err(|error| failed(self.directory, "list", "files", &error))?;
        let number = |name: &String| name.strip_prefix("log-")?.parse::<u64>().ok();
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        match numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
            Some(pair) => {
                let name = self.directory.full_name(&file_name(pair[0] + 1));
                Err(self.damaged(format!("{name} is missing")))
            }
            None => Ok(numbers),
        }
    }

    /// Reads a file. Returns `None` and removes the file if it is the last one and its creation was not finished, so
    /// that it has no records.
    fn file(&self, number: u64, is_last: bool) -> Result<Option<LogFileContents>> {
        let name = file_name(number);
        let failed = |error: &std::io::Error| failed(self.directory, "read", &name, error);
        let file = self.directory.open(&name).map_err(|error| failed(&error))?;
        let bytes = file.bytes().map_err(|error| failed(&error))?;
        if bytes > u64_from(limits::LOG_FILE_BYTES) {
            let (name, most) = (self.directory.full_name(&name), limits::LOG_FILE_BYTES);
            return Err(
                self.damaged(format!("{name} has {bytes} bytes; files of the log have at most {most}"))
            );
        }
        let mut contents = vec![0; usize_saturating(bytes)];
        file.read_at(&mut contents, 0).map_err(|error| failed(&error))?;
        let opening =
            contents.first_chunk::<HEADER_BYTES>().map_or(DecodedFileHeader::Nothing, FileHeader::decode);
        let header = match opening {
            DecodedFileHeader::Header(header, seal) => {
                match (seal, self.directory.keys()) {
                    (None, None) => {}
                    (Some(_), None) => return Err(needs_key(self.directory, &name)),
                    (None, Some(_)) => return Err(not_encrypted(self.directory, &name)),
                    (Some(seal), Some(keys)) => {
                        let checked = header.check(keys, &seal, number);
                        checked.map_err(|error| changed(self.directory, &name, error))?;
                    }
                }
                header
            }
            DecodedFileHeader::Format(format) => {
                return Err(other_format(self.directory, &name, format, ENCRYPTED_FORMAT));
            }
            DecodedFileHeader::Nothing if is_last && batch_from(&contents, 0, None, 0).is_none() => {
                if self.mends {
                    self.directory.remove(&name).map_err(|error| failed(&error))?;
                }
                return Ok(None);
            }
            DecodedFileHeader::Nothing => {
                let name = self.directory.full_name(&name);
                return Err(self.damaged(format!("{name} is damaged at byte 0")));
            }
        };
        let (next_batch, next_record) = (header.first_batch, header.first_record);
        let (end, last_batch) = (HEADER_BYTES, None);
        Ok(Some(LogFileContents {
            number,
            name,
            file,
            bytes: contents,
            header,
            end,
            last_batch,
            next_batch,
            next_record,
        }))
    }

    /// Checks that a file continues where the previous one ends.
    fn check_follows(&self, before: Option<&LogFileContents>, read: &LogFileContents) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let FileHeader { log, first_batch, first_record, previous_end, .. } = read.header;
        let name = before.full_name(self);
        if log != before.header.log {
            let next = read.full_name(self);
            return Err(self.damaged(format!("{name} and {next} are of different logs")));
        }
        // A gap is allowed for records that were lost but are covered by a manifest.
        let is_next = before.next_record == first_record
            || before.next_record < first_record && first_record <= self.from;
        match u64_from(before.end) == previous_end && before.next_batch == first_batch && is_next {
            true => Ok(()),
            false => Err(self.damaged(format!("{name} is damaged at byte {}", before.end))),
        }
    }

    /// Decodes the batches of a file, up to its end or the first corrupted batch, and passes their records to the sink.
    fn batches(&mut self, mut read: LogFileContents) -> Result<LogFileContents> {
        while let Some((header, payload)) = whole_batch(&read.bytes, read.end) {
            if (header.log, header.batch) != (read.header.log, read.next_batch) {
                break;
            }
            let payload = match self.directory.keys() {
                None => payload,
                Some(keys) => {
                    let opened = self.decryptor.open(keys, &header, read.number, payload);
                    opened.map_err(|error| changed_at(self.directory, &read.name, read.end, error))?
                }
            };
            let Some(records) = records(payload, header.records) else { break };
            for record in records {
                if read.next_record >= self.from {
                    (self.sink)(read.next_record, record)?;
                    self.recovered.records += 1;
                }
                read.next_record += 1;
            }
            read.last_batch = Some(read.end);
            read.end += usize_saturating(header.whole_bytes());
            read.next_batch += 1;
        }
        Ok(read)
    }

    /// Checks that the bytes after the last intact batch can be a torn batch, which no later batch follows.
    fn check_end(&self, read: &LogFileContents) -> Result<()> {
        match batch_from(&read.bytes, read.end, Some(read.header.log), read.next_batch + 1) {
            None => Ok(()),
            Some(at) => {
                let (name, end) = (read.full_name(self), read.end);
                Err(self.damaged(format!("{name} is damaged at byte {end}: a whole batch follows at {at}")))
            }
        }
    }

    /// Clears the remains of a torn batch after the last intact one, and rewrites the intact one: if its sync had
    /// failed, reads would return it from the system's page cache although it is not on the device.
    fn mend_end(&mut self, read: &LogFileContents) -> Result<()> {
        let LogFileContents { name, file, bytes, end, last_batch, .. } = read;
        let rest = without_zeros(&bytes[*end..]).len();
        let mended = || {
            if read.is_cut() {
                file.reserve(read.header.file_bytes)?;
            }
            file.write_at(&bytes[..HEADER_BYTES], 0)?;
            if let Some(last) = last_batch {
                file.write_at(&bytes[*last..*end], u64_from(*last))?;
            }
            file.write_at(&vec![0; rest], u64_from(*end))?;
            file.sync()?;
            self.directory.sync()
        };
        if self.mends {
            mended().map_err(|error| failed(self.directory, "mend", name, &error))?;
        }
        if rest > 0 {
            let (file, offset, bytes) = (read.full_name(self), u64_from(*end), u64_from(rest));
            self.recovered.dropped = Some(TornEnd { file, offset, bytes });
        }
        Ok(())
    }

    /// Checks that the log has all records that were durable according to the mark, except those before `from`.
    fn check_mark(&self, read: &LogFileContents) -> Result<()> {
        let Some(mark) = self.mark.filter(|mark| mark.log == read.header.log) else { return Ok(()) };
        let (left, known) = (read.next_record, mark.records);
        if left.max(self.from) >= known {
            return Ok(());
        }
        let (place, name, end) = (self.directory.describe(), read.full_name(self), read.end);
        let message = format!(
            "the log of {place} has lost its end: {name} ends at byte {end} with record {left}, and {known} were acknowledged"
        );
        Err(Error::corrupt(message).advise(format!(
            "restore the directory from a backup, or copy it again if it was copied while a node had it open; to start with \
             the {left} records that are left, and lose the others, remove the file {}",
            self.directory.full_name(mark::NAME)
        )))
    }

    /// Returns the error of a truncated file.
    fn cut(&self, read: &LogFileContents) -> Error {
        let (place, name) = (self.directory.describe(), read.full_name(self));
        let (bytes, whole, end, left) =
            (read.bytes.len(), read.header.file_bytes, read.end, read.next_record);
        let message = format!(
            "the log of {place} was cut: {name} has {bytes} of {whole} bytes, and is whole up to byte {end} and record {left}; \
             what was acknowledged behind that is lost"
        );
        // The advice mentions the mark file only if it exists.
        let mark = match self.mark {
            Some(_) => format!(" and remove the file {}", self.directory.full_name(mark::NAME)),
            None => String::new(),
        };
        Error::corrupt(message).advise(format!(
            "restore {name}, or the directory from a backup; to start with the {left} records that are left, and lose the \
             others, make it as long as it was (truncate -s {whole} {name}){mark}"
        ))
    }

    fn damaged(&self, what: String) -> Error {
        let message = format!("the log of {} is damaged: {what}", self.directory.describe());
        Error::corrupt(message).advise("restore the directory from a backup; changes since then are lost")
    }
}

/// Returns the bytes up to the last one that is not zero. Compares 4 KiB at a time, which is fast, because the last
/// file of a log is mostly zeros.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut rest = bytes;
    while let Some((front, last)) = rest.split_last_chunk::<{ ZEROS.len() }>()
        && *last == ZEROS
    {
        rest = front;
    }
    let end = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &rest[..end]
}

/// Returns the batch at an offset; `None` if it is not intact.
fn whole_batch(bytes: &[u8], at: usize) -> Option<(BatchHeader, &[u8])> {
    let rest = bytes.get(at..)?;
    let header = BatchHeader::decode(rest)?;
    let payload = rest.get(BATCH_HEADER_BYTES..)?.get(..header.bytes as usize)?;
    (usize_saturating(header.whole_bytes()) <= rest.len() && crc32fast::hash(payload) == header.checksum)
        .then_some((header, payload))
}

/// Returns the offset of the first batch header at or after `from` that belongs to `log` (to any log for `None`) and
/// has at least this sequence number.
fn batch_from(bytes: &[u8], from: usize, log: Option<u64>, number: u64) -> Option<usize> {
    let is_batch = |at: &usize| {
        let header = BatchHeader::decode(&bytes[*at..]);
        header.is_some_and(|header| log.is_none_or(|log| log == header.log) && header.batch >= number)
    };
    (from..bytes.len()).step_by(SECTOR_BYTES).find(is_batch)
}

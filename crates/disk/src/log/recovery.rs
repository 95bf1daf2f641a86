//! Opening a log: its files are read, their records are given to the caller, and what a loss of power left of the last
//! batch is cleared.

use super::format::{
    BATCH_HEADER_BYTES, BatchHeader, FileHeader, HEADER_BYTES, Opener, Opening, SECTOR_BYTES, Sealer, records,
};
use super::mark::{self, Mark};
use super::{Log, LogFile, State, Urgency, Writer, create_file, file_name};
use crate::encrypted::{changed, changed_at, needs_key, not_encrypted};
use crate::files::{Directory, File, failed};
use crate::keys::SEAL_BYTES;
use crate::sealed::other_format;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result, limits};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// What was found in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of records that were given to the caller.
    pub records: u64,
    /// The end that was torn, if it was.
    pub dropped: Option<Dropped>,
}

/// What was written last, and not acknowledged, when power was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Full name of the file ([`Directory::full_name`]).
    pub file: String,
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes from there to the last that is not zero.
    pub bytes: u64,
}

/// Takes a record and its number.
type Sink<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

impl Log {
    /// Opens the log of `directory`, or begins one that is known by the number `new_log` where there is none. Gives all
    /// records from number `from` on to `sink`, oldest first.
    ///
    /// # Errors
    /// `Corrupt`, with file and offset, where acknowledged records are damaged or missing, or there is no log and none
    /// may be begun; `Invalid` where the files have
    /// the format of another version; those of the file system, and those of `sink`.
    pub fn open(
        directory: Arc<dyn Directory>,
        new_log: Option<u64>,
        from: u64,
        sink: &mut Sink<'_>,
    ) -> Result<(Log, Recovered)> {
        Log::open_sized(directory, u64_from(limits::LOG_FILE_BYTES), new_log, from, sink)
    }

    /// Reads the log of `directory` as [`Log::open`] does, and changes nothing.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn read(directory: &dyn Directory, from: u64, sink: &mut Sink<'_>) -> Result<Recovered> {
        let mut scan = Scan::new(directory, from, sink);
        match scan.files()? {
            None => Err(missing(directory)),
            Some(_) => Ok(scan.recovered),
        }
    }

    /// As [`Log::open`], with new files of another size, of [`limits::LOG_FILE_BYTES`] at most.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_sized(
        directory: Arc<dyn Directory>,
        file_bytes: u64,
        new_log: Option<u64>,
        from: u64,
        sink: &mut Sink<'_>,
    ) -> Result<(Log, Recovered)> {
        let may_begin = new_log.is_some() && from == 0;
        let mut scan = Scan { mends: true, may_begin, ..Scan::new(&*directory, from, sink) };
        let (mut writer, found) = match (scan.files()?, new_log) {
            (Some(found), _) => found,
            (None, Some(new_log)) if from == 0 => (begin(&*directory, new_log, file_bytes)?, 0),
            (None, _) => return Err(missing(&*directory)),
        };
        let recovered = scan.recovered;
        writer.sealer = directory.keys().map(Sealer::new).transpose()?;
        let next_record = found.max(from);
        if found < from {
            // What is missing is not needed. A record that is appended must not get a number that the next start skips.
            let begun = writer.begin_file(&*directory, from, file_bytes);
            begun.map_err(|not_begun| not_begun.error)?;
        }
        let (number, marked) = (writer.log, Mutex::default());
        let state = State {
            waiting: Vec::new(),
            waiting_records: 0,
            appended: next_record,
            durable: next_record,
            seal_bytes: if writer.sealer.is_some() { SEAL_BYTES } else { 0 },
            room: file_bytes.saturating_sub(writer.end),
            bytes_written: 0,
            writer: Some(writer),
            failure: None,
            is_stopped: false,
        };
        let room = AtomicU64::new(state.room_for_records(Urgency::Normal, file_bytes));
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
    let (end, next_batch, sealer) = (u64_from(HEADER_BYTES), 1, None);
    Ok(Writer { log, files: vec![first], file, sealer, end, next_batch })
}

struct Scan<'a, 's> {
    directory: &'a dyn Directory,
    from: u64,
    /// Whether the log is to go on, so that its end is put right.
    mends: bool,
    /// Whether another log may be begun where there is none.
    may_begin: bool,
    /// As it was before the files are read: who writes to them may go on meanwhile.
    mark: Option<Mark>,
    sink: &'a mut Sink<'s>,
    opener: Opener,
    recovered: Recovered,
}

/// A file that was read.
struct Read {
    number: u64,
    name: String,
    file: Arc<dyn File>,
    bytes: Vec<u8>,
    header: FileHeader,
    /// Offset behind the last whole batch, and of that batch.
    end: usize,
    last_batch: Option<usize>,
    next_batch: u64,
    next_record: u64,
}

impl Read {
    /// The name that messages have for it.
    fn full_name(&self, scan: &Scan<'_, '_>) -> String {
        scan.directory.full_name(&self.name)
    }

    /// Whether the file is shorter than it was when it was created.
    fn is_cut(&self) -> bool {
        u64_from(self.bytes.len()) < self.header.file_bytes
    }
}

impl<'a, 's> Scan<'a, 's> {
    /// Reads, and changes nothing.
    fn new(directory: &'a dyn Directory, from: u64, sink: &'a mut Sink<'s>) -> Scan<'a, 's> {
        let (opener, recovered, mark) = (Opener::default(), Recovered::default(), Mark::read(directory));
        Scan { directory, from, mends: false, may_begin: false, mark, sink, opener, recovered }
    }

    /// Reads all files; gives what goes on writing, and the number of the next record. `None` where there is no file.
    fn files(&mut self) -> Result<Option<(Writer, u64)>> {
        let numbers = self.numbers()?;
        let mut files = Vec::new();
        let mut last: Option<Read> = None;
        for (i, number) in numbers.iter().enumerate() {
            let is_last = i + 1 == numbers.len();
            // Read by the disk while the records of this one are gone through.
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
            // A file that is created gets its length before it is used.
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
        let Read { header, file, end, next_batch, next_record, .. } = read;
        let writer = Writer { log: header.log, files, file, sealer: None, end: u64_from(end), next_batch };
        Ok(Some((writer, next_record)))
    }

    /// That there may be no file: the first mark is written once the log has one.
    fn no_file(&self) -> Result<Option<(Writer, u64)>> {
        match self.mark {
            None => Ok(None),
            Some(Mark { records, .. }) => {
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

    /// Reads a file. `None` where it is the last one and was not finished when it was created, so that nothing of it was
    /// used: it is removed.
    fn file(&self, number: u64, is_last: bool) -> Result<Option<Read>> {
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
        let opening = contents.first_chunk::<HEADER_BYTES>().map_or(Opening::Nothing, FileHeader::decode);
        let header = match opening {
            Opening::Header(header, seal) => {
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
            Opening::Format(format) => return Err(other_format(self.directory, &name, format)),
            Opening::Nothing if is_last && batch_from(&contents, 0, None, 0).is_none() => {
                if self.mends {
                    self.directory.remove(&name).map_err(|error| failed(&error))?;
                }
                return Ok(None);
            }
            Opening::Nothing => {
                let name = self.directory.full_name(&name);
                return Err(self.damaged(format!("{name} is damaged at byte 0")));
            }
        };
        let (next_batch, next_record) = (header.first_batch, header.first_record);
        let (end, last_batch) = (HEADER_BYTES, None);
        Ok(Some(Read {
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

    /// That a file goes on where the one before it ends.
    fn check_follows(&self, before: Option<&Read>, read: &Read) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let FileHeader { log, first_batch, first_record, previous_end, .. } = read.header;
        let name = before.full_name(self);
        if log != before.header.log {
            let next = read.full_name(self);
            return Err(self.damaged(format!("{name} and {next} are of different logs")));
        }
        // Records that were lost and not needed leave a gap.
        let is_next = before.next_record == first_record
            || before.next_record < first_record && first_record <= self.from;
        match u64_from(before.end) == previous_end && before.next_batch == first_batch && is_next {
            true => Ok(()),
            false => Err(self.damaged(format!("{name} is damaged at byte {}", before.end))),
        }
    }

    /// Goes through the batches of a file, up to its end or the first that is damaged.
    fn batches(&mut self, mut read: Read) -> Result<Read> {
        while let Some((header, payload)) = whole_batch(&read.bytes, read.end) {
            if (header.log, header.batch) != (read.header.log, read.next_batch) {
                break;
            }
            let payload = match self.directory.keys() {
                None => payload,
                Some(keys) => {
                    let opened = self.opener.open(keys, &header, read.number, payload);
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

    /// That what is behind the last whole batch may be the torn one.
    fn check_end(&self, read: &Read) -> Result<()> {
        match batch_from(&read.bytes, read.end, Some(read.header.log), read.next_batch + 1) {
            None => Ok(()),
            Some(at) => {
                let (name, end) = (read.full_name(self), read.end);
                Err(self.damaged(format!("{name} is damaged at byte {end}: a whole batch follows at {at}")))
            }
        }
    }

    /// Clears what is left of a torn batch behind the last whole one, and writes that one again: if its sync failed, reads
    /// show it although it is not on the device.
    fn mend_end(&mut self, read: &Read) -> Result<()> {
        let Read { name, file, bytes, end, last_batch, .. } = read;
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
            self.recovered.dropped = Some(Dropped { file, offset, bytes });
        }
        Ok(())
    }

    /// That the log has all records of which it is known that they were durable, but for those that are not needed.
    fn check_mark(&self, read: &Read) -> Result<()> {
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

    /// The error of a file that is shorter than it was.
    fn cut(&self, read: &Read) -> Error {
        let (place, name) = (self.directory.describe(), read.full_name(self));
        let (bytes, whole, end, left) =
            (read.bytes.len(), read.header.file_bytes, read.end, read.next_record);
        let message = format!(
            "the log of {place} was cut: {name} has {bytes} of {whole} bytes, and is whole up to byte {end} and record {left}; \
             what was acknowledged behind that is lost"
        );
        // The command names only files that are there.
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

/// The bytes up to the last one that is not zero. Most of a log's last file is zeros, so that these are compared many at
/// once.
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

/// The batch at an offset, if it is whole.
fn whole_batch(bytes: &[u8], at: usize) -> Option<(BatchHeader, &[u8])> {
    let rest = bytes.get(at..)?;
    let header = BatchHeader::decode(rest)?;
    let payload = rest.get(BATCH_HEADER_BYTES..)?.get(..header.bytes as usize)?;
    (usize_saturating(header.whole_bytes()) <= rest.len() && crc32fast::hash(payload) == header.checksum)
        .then_some((header, payload))
}

/// The offset of a header of a batch, of the log and at least of this number, from `from` on.
fn batch_from(bytes: &[u8], from: usize, log: Option<u64>, number: u64) -> Option<usize> {
    let is_batch = |at: &usize| {
        let header = BatchHeader::decode(&bytes[*at..]);
        header.is_some_and(|header| log.is_none_or(|log| log == header.log) && header.batch >= number)
    };
    (from..bytes.len()).step_by(SECTOR_BYTES).find(is_batch)
}

//! Tests of the write-ahead log: random operations compared with a model, through crashes, device failures and
//! corruption of files.

use super::mark::DurabilityMark;
use super::*;
use crate::encrypted::tests::with_keys;
use crate::simulated::{Faults, Random, SimulatedDirectory};
use farpool_model::ErrorKind;
use std::time::{Duration, Instant};

mod lost_end;

const FILE_BYTES: u64 = 64 << 10;

/// Creates a directory, encrypted or plain.
fn new_directory(is_encrypted: bool) -> Arc<SimulatedDirectory> {
    let directory = SimulatedDirectory::new();
    if is_encrypted {
        with_keys(directory.clone());
    }
    directory
}

/// Opens a log, encrypted if its directory is.
fn open(directory: &Arc<SimulatedDirectory>, from: u64) -> Result<(Log, Vec<Vec<u8>>, RecoveredLog)> {
    let mut records = Vec::new();
    let mut sink = |number: u64, record: &[u8]| {
        assert_eq!(number, from + u64_from(records.len()));
        records.push(record.to_vec());
        Ok(())
    };
    let mut directory = Arc::clone(directory) as Arc<dyn Directory>;
    if directory.open("keys").is_ok() {
        directory = with_keys(directory);
    }
    let (log, recovered) = Log::open_sized(directory, FILE_BYTES, Some(7), from, &mut sink)?;
    assert_eq!(recovered.records, u64_from(records.len()));
    Ok((log, records, recovered))
}

/// The expected state of a log, by which a test of random operations checks it.
struct Model {
    directory: Arc<SimulatedDirectory>,
    log: Option<Log>,
    records: Vec<Vec<u8>>,
    /// Number of records that were committed, and so must exist after the log is opened again.
    durable: usize,
    /// Number of the oldest record that the caller still needs; the log may drop earlier ones.
    from: usize,
    may_fail: bool,
}

impl Model {
    fn new(is_encrypted: bool) -> Model {
        let directory = new_directory(is_encrypted);
        let log = Some(open(&directory, 0).unwrap().0);
        Model { directory, log, records: Vec::new(), durable: 0, from: 0, may_fail: false }
    }

    fn log(&self) -> &Log {
        self.log.as_ref().unwrap()
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(100) {
            0..60 => self.append(random),
            60..80 => self.commit(random),
            80..84 => self.forget(random),
            84..86 => self.turn_over(),
            // Writes the mark (count of durable records). Writing is best effort, so an error is ignored.
            86 => drop(self.log().mark()),
            87..90 => {
                self.directory.set_faults(Faults { fails_after: Some(random.below(6)), ..Faults::default() });
                self.may_fail = true;
            }
            90..94 => self.close(),
            94..97 => {
                self.log = None;
                self.directory.crash(random.next());
                self.reopen();
            }
            _ => {
                self.log = None;
                self.reopen();
            }
        }
    }

    fn append(&mut self, random: &mut Random) {
        let longest = [10, 1000, FILE_BYTES / 4][random.below(3) as usize];
        let record: Vec<u8> = (0..random.below(longest)).map(|_| random.next() as u8).collect();
        match self.log().append(&record, ReservePolicy::Normal) {
            Ok(number) => {
                assert_eq!(number, u64_from(self.records.len()));
                self.records.push(record);
            }
            Err(error) => assert!(self.may_fail, "{error}"),
        }
    }

    fn commit(&mut self, random: &mut Random) {
        let Some(last) = self.records.len().checked_sub(1) else { return };
        let number = last - random.below(3.min(u64_from(last) + 1)) as usize;
        match self.log().commit(u64_from(number)) {
            Ok(()) => self.durable = self.durable.max(number + 1),
            Err(error) => assert!(self.may_fail, "{error}"),
        }
    }

    fn forget(&mut self, random: &mut Random) {
        self.from = self.from.max(random.below(u64_from(self.durable) + 1) as usize);
        if let Err(error) = self.log().forget_before(u64_from(self.from)) {
            assert!(self.may_fail, "{error}");
        }
    }

    fn turn_over(&mut self) {
        match self.log().turn_over() {
            Ok(()) => {
                self.durable = self.records.len();
                self.log().turn_over().unwrap();
            }
            Err(error) => assert!(self.may_fail, "{error}"),
        }
    }

    fn close(&mut self) {
        let closed = self.log.take().unwrap().close();
        match closed {
            Ok(()) => self.durable = self.records.len(),
            Err(error) => assert!(self.may_fail, "{error}"),
        }
        self.reopen();
    }

    fn reopen(&mut self) {
        self.directory.set_faults(Faults::default());
        let (log, found, _) = open(&self.directory, u64_from(self.from)).unwrap();
        let found_end = self.from + found.len();
        assert!(found_end >= self.durable, "{found_end} records of {} that were committed", self.durable);
        assert!(found == self.records[self.from..found_end], "other records");
        assert_eq!(log.next_record(), u64_from(found_end));
        self.records.truncate(found_end);
        // The caller acts on the records that recovery has returned, so these must not get lost any more.
        self.durable = found_end;
        (self.log, self.may_fail) = (Some(log), false);
    }
}

#[test]
fn what_was_committed_is_found_again() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut model = Model::new(seed % 2 == 1);
        for _ in 0..150 {
            model.step(&mut random);
        }
        model.log = None;
        model.directory.crash(seed);
        model.reopen();
    }
}

/// Creates a log of several files with `batches` committed batches; returns the directory, the log and its records.
fn filled(batches: usize, is_encrypted: bool) -> (Arc<SimulatedDirectory>, Log, Vec<Vec<u8>>) {
    let directory = new_directory(is_encrypted);
    let log = open(&directory, 0).unwrap().0;
    let mut records = Vec::new();
    for batch in 0..batches {
        for i in 0..=batch % 3 {
            records.push(vec![batch as u8; 700 * i + 30_000 * (batch % 2)]);
            log.append(records.last().unwrap(), ReservePolicy::Normal).unwrap();
        }
        log.commit(u64_from(records.len() - 1)).unwrap();
    }
    (directory, log, records)
}

#[test]
fn damage_is_an_error_that_names_the_place() {
    damage(false);
}

#[test]
fn damage_to_an_encrypted_log_is_an_error_that_names_the_place() {
    damage(true);
}

fn damage(is_encrypted: bool) {
    let (directory, log, records) = filled(7, is_encrypted);
    log.close().unwrap();
    let mut names = directory.names().unwrap();
    names.retain(|name| name.starts_with("log-"));
    assert!(names.len() >= 3, "{names:?}");
    let (mut wrong, mut harmless) = (0, 0);
    for name in &names {
        let bytes = directory.open(name).unwrap().bytes().unwrap() as usize;
        for offset in (0..bytes).step_by(7) {
            directory.flip(name, offset, 1 << (offset % 8));
            match open(&directory, 0) {
                Ok((_, found, _)) => {
                    assert!(found == records, "{name} at {offset}");
                    harmless += 1;
                }
                Err(error) => {
                    let is_told = matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Invalid);
                    assert!(is_told && error.message.contains("log-"), "{error}");
                    wrong += 1;
                }
            }
            // Only the flipped bit is restored and not the whole file, because opening may have cleared a torn end of
            // the log.
            directory.flip(name, offset, 1 << (offset % 8));
            if open(&directory, 0).is_err() {
                directory.flip(name, offset, 1 << (offset % 8));
                assert!(open(&directory, 0).unwrap().1 == records);
            }
        }
    }
    assert!(wrong > 10_000 && harmless > 1000, "{wrong} {harmless}");
}

#[test]
fn a_missing_file_is_an_error() {
    let (directory, log, _) = filled(7, false);
    log.close().unwrap();
    let names = directory.names().unwrap();
    directory.remove(&names[1]).unwrap();
    let error = open(&directory, 0).unwrap_err();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains(&names[1]), "{error}");
    directory.remove(&names[0]).unwrap();
    let error = open(&directory, 0).unwrap_err();
    assert!(error.message.contains("begins with record"), "{error}");
    names.iter().skip(2).for_each(|name| directory.remove(name).unwrap());
    assert!(open(&directory, 3).unwrap_err().message.contains("is missing"));
}

#[test]
fn a_torn_end_is_dropped_and_told() {
    let (directory, log, records) = filled(2, false);
    drop(log);
    let name = directory.names().unwrap().pop().unwrap();
    // Corrupts a byte within the last batch, which then counts as torn.
    let file = directory.open(&name).unwrap();
    let mut contents = vec![0; file.bytes().unwrap() as usize];
    file.read_at(&mut contents, 0).unwrap();
    let last = contents.iter().rposition(|byte| *byte != 0).unwrap();
    directory.flip(&name, last, 2);
    let (_, found, recovered) = open(&directory, 0).unwrap();
    assert!(found == records[..records.len() - 1], "{} of {} records", found.len(), records.len());
    let dropped = recovered.dropped.unwrap();
    assert_eq!((&dropped.file, dropped.offset + dropped.bytes), (&name, u64_from(last) + 1));
    let (_, found, recovered) = open(&directory, 0).unwrap();
    assert_eq!((found.len(), recovered.dropped), (records.len() - 1, None));
}

#[test]
fn a_full_disk_still_takes_what_frees_space() {
    let directory = SimulatedDirectory::new();
    let log = open(&directory, 0).unwrap().0;
    directory.set_faults(Faults { capacity: Some(FILE_BYTES + FILE_BYTES / 2), ..Faults::default() });
    let record = vec![1; 200];
    let full = loop {
        match log.append(&record, ReservePolicy::Normal) {
            Ok(number) => log.commit(number).unwrap(),
            Err(error) => break error,
        }
    };
    assert!(full.kind == ErrorKind::OverLimit && full.message.contains("log-"), "{full}");
    let number = log.append(b"drop", ReservePolicy::FreesSpace).unwrap();
    log.commit(number).unwrap();
    log.append(&record, ReservePolicy::Normal).unwrap_err();
    directory.set_faults(Faults::default());
    let after = log.append(&record, ReservePolicy::Normal).unwrap();
    log.commit(after).unwrap();
    log.forget_before(after).unwrap();
    assert_eq!(directory.names().unwrap().len(), 1);
    drop(log);
    assert_eq!(open(&directory, after).unwrap().1, [record]);
}

#[test]
fn a_record_is_taken_at_once_exactly_if_there_is_room_for_it() {
    let mut random = Random(3);
    for is_encrypted in [false, true] {
        let (log, ..) = open(&new_directory(is_encrypted), 0).unwrap();
        let mut refused = 0;
        for _ in 0..2_000 {
            let bytes = random.below(9_000) as usize;
            let fits = u64_from(record_bytes(bytes)) <= log.room();
            assert_eq!(log.try_append(&vec![0; bytes], ReservePolicy::Normal).unwrap().is_some(), fits);
            if !fits {
                refused += 1;
                log.make_room(bytes, ReservePolicy::Normal).unwrap();
                assert!(u64_from(record_bytes(bytes)) <= log.room());
            } else if random.below(4) == 0 {
                log.commit(log.next_record() - 1).unwrap();
            }
        }
        assert!(refused > 50, "{refused}");
    }
}

#[test]
fn nothing_is_acknowledged_after_a_sync_that_failed() {
    let (directory, log, records) = filled(1, false);
    let number = log.append(b"more", ReservePolicy::Normal).unwrap();
    // The write succeeds; the sync fails.
    directory.set_faults(Faults { fails_after: Some(1), ..Faults::default() });
    let error = log.commit(number).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    directory.set_faults(Faults::default());
    assert_eq!(log.commit(number).unwrap_err(), error);
    log.append(b"again", ReservePolicy::FreesSpace).unwrap_err();
    log.commit(0).unwrap();
    drop(log);
    // Reads of the simulated device return the record although its sync failed. Recovery returns it, so it must stay
    // from then on.
    let (log, found, _) = open(&directory, 0).unwrap();
    assert_eq!(found.len(), records.len() + 1);
    drop(log);
    directory.crash(3);
    assert_eq!(open(&directory, 0).unwrap().1, found);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let (_, log, records) = filled(1, false);
    let error = log.append(&vec![0; limits::LOG_RECORD_BYTES_MAX + 1], ReservePolicy::Normal).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    assert_eq!(log.commit(u64_from(records.len())).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn a_format_of_another_version_is_told() {
    let directory = SimulatedDirectory::new();
    let name = file_name(1);
    let mut header = FileHeader { log: 1, first_batch: 1, first_record: 0, previous_end: 0, file_bytes: 0 }
        .encode(None, 1)
        .unwrap();
    header[8] = 99;
    let checksum = crc32fast::hash(&header[..48]);
    header[48..52].copy_from_slice(&checksum.to_le_bytes());
    directory.create(&name).unwrap().write_at(&header, 0).unwrap();
    let error = open(&directory, 0).unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("format 99"), "{error}");
}

/// An attacker changes an encrypted log and corrects the checksums, so that only authentication detects the changes.
#[test]
fn changes_on_purpose_are_noticed() {
    let (directory, log, records) = filled(7, true);
    log.close().unwrap();
    let (twin, log, _) = filled(7, true);
    log.close().unwrap();
    let names: Vec<String> = directory.names().unwrap().into_iter().filter(|name| name != "keys").collect();
    for name in &names {
        let file = directory.open(name).unwrap();
        let mut before = vec![0; file.bytes().unwrap() as usize];
        file.read_at(&mut before, 0).unwrap();
        let mut changes = 0;
        // Writes tampered contents and checks that opening fails. Called for each changed byte of the header and of a
        // batch, and for a batch copied from another log.
        let mut try_out = |changed: &[u8]| {
            file.write_at(changed, 0).unwrap();
            let error = open(&directory, 0).map(|(_, found, _)| found != records).unwrap_err();
            let is_told = error.message.contains(name) && error.message.contains("was changed");
            assert!(error.kind == ErrorKind::Corrupt && is_told, "{error}");
            file.write_at(&before, 0).unwrap();
            changes += 1;
        };
        for at in 16..48 + SEAL_BYTES {
            let mut changed = before.clone();
            changed[at] ^= 1;
            let checksum = crc32fast::hash(&changed[..48 + SEAL_BYTES]);
            changed[48 + SEAL_BYTES..][..4].copy_from_slice(&checksum.to_le_bytes());
            // The first 48 bytes (log number, offset, batch number) are checked before the authentication tag, with
            // other errors.
            if at >= 48 {
                try_out(&changed);
            }
        }
        let other = twin.open(name).unwrap();
        for at in (512..before.len()).step_by(512) {
            let Some(header) = BatchHeader::decode(&before[at..]) else { continue };
            let range = at..at + header.whole_bytes() as usize;
            for byte in [0, 31, 32, 47, 48, header.bytes as usize - 1] {
                let mut changed = before.clone();
                let payload = at + BATCH_HEADER_BYTES..at + BATCH_HEADER_BYTES + header.bytes as usize;
                if byte >= payload.len() {
                    continue;
                }
                changed[payload.start + byte] ^= 4;
                let checksum = crc32fast::hash(&changed[payload]);
                let header = BatchHeader { checksum, ..header };
                changed[at..at + BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
                try_out(&changed);
            }
            let mut changed = before.clone();
            other.read_at(&mut changed[range.clone()], range.start as u64).unwrap();
            try_out(&changed);
        }
        assert!(changes > 50, "{name}: {changes}");
    }
    assert!(open(&directory, 0).unwrap().1 == records);
}

/// A process that writes a batch number again after a torn batch, and a copy of the directory, encrypt with other keys.
#[test]
fn no_batch_is_encrypted_twice_with_one_key() {
    let (directory, log, _) = filled(2, true);
    drop(log);
    let name = directory.names().unwrap().into_iter().find(|name| name.starts_with("log-")).unwrap();
    let mut all = Vec::new();
    for _ in 0..3 {
        let (log, _, _) = open(&directory, 0).unwrap();
        log.commit(log.append(&[7; 100], ReservePolicy::Normal).unwrap()).unwrap();
        drop(log);
        let file = directory.open(&name).unwrap();
        let mut bytes = vec![0; file.bytes().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        all.push(bytes[last - 90..=last].to_vec());
        // Corrupts the last batch, so that it counts as torn and the next process writes a batch with the same number.
        directory.flip(&name, last, 1);
    }
    assert!(all[0] != all[1] && all[1] != all[2]);
    assert_eq!(all.iter().map(Vec::len).min(), Some(91));
}

#[test]
fn a_removal_whose_sync_failed_is_done_again() {
    let (directory, log, records) = filled(7, false);
    let last = u64_from(records.len() - 1);
    directory.set_faults(Faults { fails_after: Some(0), ..Faults::default() });
    assert_eq!(log.forget_before(last).unwrap_err().kind, ErrorKind::Unavailable);
    directory.set_faults(Faults::default());
    log.forget_before(last).unwrap();
    assert_eq!(directory.names().unwrap().len(), 1);
}

/// After the log has begun a new file (`turn_over`), earlier records that are no longer needed are in no file, so that
/// dropped data do not stay on disk.
#[test]
fn records_leave_with_their_file() {
    for is_encrypted in [false, true] {
        let (directory, log, _) = filled(1, is_encrypted);
        let has = |bytes: &[u8]| {
            let file = directory.names().unwrap().into_iter().rfind(|name| name.starts_with("log")).unwrap();
            let file = directory.open(&file).unwrap();
            let mut found = vec![0; file.bytes().unwrap() as usize];
            file.read_at(&mut found, 0).unwrap();
            found.windows(bytes.len()).any(|window| window == bytes)
        };
        let early = b"one of the first file";
        log.commit(log.append(early, ReservePolicy::Normal).unwrap()).unwrap();
        assert_eq!(has(early), !is_encrypted);
        log.append(b"one that waits", ReservePolicy::Normal).unwrap();
        log.turn_over().unwrap();
        log.turn_over().unwrap();
        let next = log.next_record();
        log.forget_before(next).unwrap();
        let logs = directory.names().unwrap().iter().filter(|name| name.starts_with("log")).count();
        assert!(logs == 1 && !has(early) && !has(b"one that waits"));
        let number = log.append(b"another", ReservePolicy::Normal).unwrap();
        log.commit(number).unwrap();
        drop(log);
        directory.crash(3);
        assert_eq!(open(&directory, next).unwrap().1, [b"another"]);
    }
}

#[test]
fn a_file_full_of_marks_takes_records_in_another() {
    let directory = SimulatedDirectory::new();
    for _ in 0..FILE_BYTES / 512 + 10 {
        open(&directory, 0).unwrap().0.close().unwrap();
    }
    let log = open(&directory, 0).unwrap().0;
    log.commit(log.append(b"one", ReservePolicy::Normal).unwrap()).unwrap();
    drop(log);
    assert_eq!(open(&directory, 0).unwrap().1, [b"one"]);
    assert_eq!(directory.names().unwrap().len(), 2);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "several threads commit")]
fn threads_share_batches() {
    let directory = SimulatedDirectory::new();
    let log = open(&directory, 0).unwrap().0;
    let commit = |thread: u8| {
        let mut random = Random(u64::from(thread));
        for i in 0..200_u8 {
            let mut record = vec![thread, i];
            record.resize(2 + random.below(6000) as usize, 0);
            let number = log.append(&record, ReservePolicy::Normal).unwrap();
            log.commit(number).unwrap();
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|thread| drop(scope.spawn(move || commit(thread)))));
    assert_eq!(log.next_record(), 1600);
    drop(log);
    directory.crash(1);
    let found = open(&directory, 0).unwrap().1;
    for thread in 0..8 {
        let own: Vec<u8> =
            found.iter().filter(|record| record[0] == thread).map(|record| record[1]).collect();
        assert_eq!(own, (0..200).collect::<Vec<u8>>());
    }
    for name in directory.names().unwrap() {
        assert_eq!(directory.open(&name).unwrap().bytes().unwrap(), FILE_BYTES, "{name}");
    }
}

fn cut(directory: &Arc<SimulatedDirectory>, name: &str, bytes: usize, then: usize) {
    let mut contents = vec![0; directory.open(name).unwrap().bytes().unwrap() as usize];
    directory.open(name).unwrap().read_at(&mut contents, 0).unwrap();
    contents.truncate(bytes);
    contents.resize(then.max(bytes), 0);
    directory.remove(name).unwrap();
    let file = directory.create(name).unwrap();
    file.reserve(contents.len() as u64).unwrap();
    file.write_at(&contents, 0).unwrap();
}

fn refused(directory: &Arc<SimulatedDirectory>) -> Error {
    let error = open(directory, 0).map(drop).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    assert!(error.advice.as_deref().is_some_and(|advice| advice.contains("restore")), "{error:?}");
    error
}

/// A log with a truncated file cannot be opened, whatever its length, so that committed records are never lost
/// silently.
#[test]
fn a_file_that_was_cut_is_an_error() {
    for is_encrypted in [false, true] {
        let (directory, log, records) = filled(7, is_encrypted);
        drop(log);
        let mut names = directory.names().unwrap();
        names.retain(|name| name.starts_with("log-"));
        for name in &names {
            for bytes in (1..FILE_BYTES as usize).step_by(1777) {
                let (copy, _, _) = filled(7, is_encrypted);
                cut(&copy, name, bytes, 0);
                // Opening may succeed only if the last file was truncated so far that it looks new and empty.
                match open(&copy, 0) {
                    Ok((_, found, _)) => {
                        assert!(
                            name == names.last().unwrap() && bytes < 1024,
                            "{name} of {bytes}: {}",
                            found.len()
                        );
                    }
                    Err(error) => assert_eq!(error.kind, ErrorKind::Corrupt, "{error}"),
                }
            }
        }
        let last = names.last().unwrap();
        cut(&directory, last, 2000, 0);
        let error = refused(&directory);
        assert!(error.message.contains("was cut") && error.message.contains(last.as_str()), "{error}");
        // Does what the advice of the error says.
        cut(&directory, last, 2000, FILE_BYTES as usize);
        let (_, found, _) = open(&directory, 0).unwrap();
        assert!(found.len() < records.len() && found == records[..found.len()]);
    }
}

/// If a mark states how many records were durable, a log whose end was overwritten by zeros, or whose files were
/// emptied or removed, cannot be opened.
#[test]
fn what_the_mark_knows_is_missed() {
    for is_encrypted in [false, true] {
        let damaged = |damage: &dyn Fn(&Arc<SimulatedDirectory>, &str)| {
            let (directory, log, records) = filled(7, is_encrypted);
            log.commit(log.append(b"one that is marked", ReservePolicy::Normal).unwrap()).unwrap();
            log.mark().unwrap();
            // A record after those that the mark states may be lost without an error, as if torn.
            log.commit(log.append(b"one more", ReservePolicy::Normal).unwrap()).unwrap();
            drop(log);
            assert_eq!(open(&directory, 0).unwrap().1.len(), records.len() + 2);
            let names = directory.names().unwrap();
            let last = names.iter().rfind(|name| name.starts_with("log-")).unwrap();
            damage(&directory, last);
            let error = refused(&directory);
            assert!(error.advice.as_deref().is_some_and(|advice| advice.contains("durable")), "{error:?}");
            directory.remove("durable").unwrap();
            directory
        };
        for bytes in [512, 540] {
            damaged(&|directory, name| cut(directory, name, bytes, FILE_BYTES as usize));
        }
        damaged(&|directory, name| cut(directory, name, 0, 0));
        damaged(&|directory, name| directory.remove(name).unwrap());
        let emptied = damaged(&|directory, _| {
            for name in directory.names().unwrap().iter().filter(|name| name.starts_with("log-")) {
                directory.remove(name).unwrap();
            }
        });
        // Does what the advice of the error says.
        assert_eq!(open(&emptied, 0).unwrap().1.len(), 0);
    }
}

/// A new log is marked as soon as it exists, so that removing its files is detected.
#[test]
fn a_new_log_with_a_mark_may_not_be_missing() {
    for is_removed in [false, true] {
        let directory = SimulatedDirectory::new();
        let (log, _, _) = open(&directory, 0).unwrap();
        log.mark().unwrap();
        log.commit(log.append(b"one", ReservePolicy::Normal).unwrap()).unwrap();
        drop(log);
        match is_removed {
            true => directory.remove(&file_name(1)).unwrap(),
            false => cut(&directory, &file_name(1), 0, 0),
        }
        assert!(refused(&directory).message.contains("is missing"));
        // The failed attempt to open the log has not begun a new one, so the next attempt fails in the same way.
        assert!(refused(&directory).advice.is_some_and(|advice| advice.contains("durable")));
    }
}

#[test]
fn a_mark_that_is_damaged_or_of_another_log_says_nothing() {
    let (directory, log, records) = filled(7, false);
    log.mark().unwrap();
    log.mark().unwrap();
    drop(log);
    directory.flip("durable", 30, 1);
    assert_eq!(open(&directory, 0).unwrap().1.len(), records.len());
    let other = DurabilityMark { log: 8, records: 1 << 40 };
    crate::sealed::write_sealed(
        &*directory,
        "durable",
        1,
        &[other.log.to_le_bytes(), other.records.to_le_bytes()].concat(),
    )
    .unwrap();
    assert_eq!(open(&directory, 0).unwrap().1.len(), records.len());
}

/// An observer of the log that counts durable records.
#[derive(Debug)]
struct Durable(Arc<AtomicU64>);

impl Observer for Durable {
    fn durable(&self, count: u64) {
        self.0.store(count, Ordering::SeqCst);
    }

    fn failed(&self, error: &Error) {
        panic!("nothing fails here: {error}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test has threads of its own")]
fn a_record_that_nobody_waits_for_is_written_with_the_next_one_or_after_a_while() {
    let (log, ..) = open(&new_directory(false), 0).unwrap();
    let durable = Arc::new(AtomicU64::new(0));
    log.observe(Box::new(Durable(durable.clone())));
    let reaches = |count: u64, most: Duration| {
        let begun = Instant::now();
        while durable.load(Ordering::SeqCst) < count && begun.elapsed() < most {
            std::thread::sleep(Duration::from_millis(1));
        }
        durable.load(Ordering::SeqCst) == count
    };
    std::thread::scope(|scope| {
        scope.spawn(|| while log.write_next() {});
        let policy = ReservePolicy::Normal;
        log.try_append_unawaited(b"one", policy).unwrap().unwrap();
        assert!(!reaches(1, Duration::from_millis(50)), "it costs no sync of its own");
        log.try_append(b"two", policy).unwrap().unwrap();
        assert!(reaches(2, Duration::from_secs(20)), "both are written at once");
        log.try_append_unawaited(b"three", policy).unwrap().unwrap();
        scope.spawn(|| log.keep_marked());
        assert!(reaches(3, Duration::from_secs(20)), "within about a second");
        // A record that waits to be written when the log is stopped is still written.
        log.try_append_unawaited(b"four", policy).unwrap().unwrap();
        log.stop();
        assert!(reaches(4, Duration::from_secs(20)));
    });
}

//! Tests of write-ahead logs that lost records at their ends: they are distinguished from torn writes by the mark
//! (count of durable records), and the errors give the right advice.

use super::*;
use crate::prefixed::prefixed;

/// Overwrites `bytes` bytes by zeros, the last of which is the last nonzero byte of the file.
fn zero_end(directory: &SimulatedDirectory, name: &str, bytes: usize) {
    let file = directory.open(name).unwrap();
    let mut contents = vec![0; file.bytes().unwrap() as usize];
    file.read_at(&mut contents, 0).unwrap();
    let end = contents.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    file.write_at(&vec![0; bytes], (end - bytes) as u64).unwrap();
}

fn commit(log: &Log, record: &[u8]) {
    log.commit(log.append(record, ReservePolicy::Normal).unwrap()).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the mark has a thread of its own")]
fn a_thread_keeps_the_mark_until_the_log_is_stopped_closed_or_fails() {
    for end in 0..3 {
        let directory = SimulatedDirectory::new();
        let log = open(&directory, 0).unwrap().0;
        commit(&log, b"one");
        commit(&log, b"two");
        std::thread::scope(|scope| {
            scope.spawn(|| log.keep_marked());
            while DurabilityMark::read(&*directory).is_none() {
                std::thread::yield_now();
            }
            match end {
                0 => log.stop(),
                1 => log.close().unwrap(),
                _ => {
                    directory.set_faults(Faults { fails_after: Some(0), ..Faults::default() });
                    let number = log.append(b"three", ReservePolicy::Normal).unwrap();
                    log.commit(number).unwrap_err();
                }
            }
        });
        directory.set_faults(Faults::default());
        // The mark states two records, as many as were durable before the failure.
        assert_eq!(DurabilityMark::read(&*directory), Some(DurabilityMark { log: 7, records: 2 }));
    }
}

/// After a loss of power at any moment, the mark never states more records than recovery finds.
#[test]
fn no_loss_of_power_leaves_a_mark_that_promises_too_much() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let directory = new_directory(seed % 2 == 1);
        for _ in 0..6 {
            let (log, found, _) = open(&directory, 0).unwrap();
            directory.set_faults(Faults { fails_after: Some(random.below(12)), ..Faults::default() });
            for _ in 0..4 {
                drop(log.append(b"a record", ReservePolicy::Normal).and_then(|number| log.commit(number)));
                drop(log.mark());
            }
            let is_more = log.next_record() > u64_from(found.len());
            drop(log);
            directory.crash(random.next());
            assert!(is_more || seed > 0);
        }
        open(&directory, 0).unwrap();
    }
}

/// 1. Records up to 3 are covered by a manifest and need not be in the log.
/// 2. The last of these records are corrupted, which loses nothing.
/// 3. A record appended afterwards gets a number that the next start reads.
#[test]
fn a_lost_end_that_is_not_needed_is_no_error_and_hides_nothing() {
    for is_encrypted in [false, true] {
        let directory = new_directory(is_encrypted);
        let log = open(&directory, 0).unwrap().0;
        [&b"one"[..], b"two", b"three"].into_iter().for_each(|record| commit(&log, record));
        log.mark().unwrap();
        drop(log);
        zero_end(&directory, &file_name(1), 600);
        assert!(refused(&directory).message.contains("lost its end"));
        for round in 0..3 {
            let (log, found, _) = open(&directory, 3).unwrap();
            assert_eq!((found.len(), log.next_record()), (round, 3 + u64_from(round)));
            commit(&log, b"another");
            log.mark().unwrap();
            drop(log);
            directory.crash(u64_from(round));
        }
        let read = |from| {
            let directory: Arc<dyn Directory> = match is_encrypted {
                true => with_keys(directory.clone()),
                false => directory.clone(),
            };
            Log::read(&*directory, from, &mut |_, _| Ok(()))
        };
        assert_eq!(read(3).unwrap().records, 3);
        assert_eq!(read(0).unwrap_err().kind, ErrorKind::Corrupt, "those that are gone are asked for");
    }
}

/// Creates a log of three records and a mark in a directory view whose file names get the prefix `kv-`; returns the
/// whole directory and the view.
fn part() -> (Arc<SimulatedDirectory>, Arc<dyn Directory>) {
    let whole = SimulatedDirectory::new();
    let part = prefixed(whole.clone(), "kv-");
    let (log, _) = Log::open_sized(part.clone(), FILE_BYTES, Some(7), 0, &mut |_, _| Ok(())).unwrap();
    [&b"one"[..], b"two", b"three"].into_iter().for_each(|record| commit(&log, record));
    log.mark().unwrap();
    (whole, part)
}

#[test]
fn errors_name_files_as_they_are_called() {
    const FILE: &str = "kv-log-000000000001";
    let told = |damage: &dyn Fn(&Arc<SimulatedDirectory>), new_log: Option<u64>| {
        let (whole, part) = part();
        damage(&whole);
        let opened = Log::open_sized(part, FILE_BYTES, new_log, 0, &mut |_, _| Ok(()));
        let error = opened.map(drop).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        let advice = error.advice.unwrap_or_default();
        for text in [&error.message, &advice] {
            let bare = text.replace("kv-log-", "").replace("kv-durable", "");
            assert!(!bare.contains("log-") && !bare.contains("file durable"), "{text}");
        }
        (error.message, advice)
    };
    let (message, advice) = told(&|whole| cut(whole, FILE, 1000, 0), Some(7));
    assert!(message.contains(&format!("{FILE} has 1000 of {FILE_BYTES} bytes")), "{message}");
    assert!(advice.contains(&format!("restore {FILE},")), "{advice}");
    assert!(advice.contains(&format!("truncate -s {FILE_BYTES} {FILE}")), "{advice}");
    assert!(advice.ends_with("remove the file kv-durable"), "{advice}");
    // The advice must not name a file that does not exist.
    let without_mark = |whole: &Arc<SimulatedDirectory>| {
        whole.remove("kv-durable").unwrap();
        cut(whole, FILE, 1000, 0);
    };
    assert!(!told(&without_mark, Some(7)).1.contains("durable"));
    let (message, advice) = told(&|whole| zero_end(whole, FILE, 500), Some(7));
    assert!(message.contains("lost its end") && message.contains(FILE), "{message}");
    assert!(advice.ends_with("remove the file kv-durable"), "{advice}");
    let (message, advice) = told(&|whole| whole.remove(FILE).unwrap(), Some(7));
    assert!(message.contains("(kv-log-*) is missing"), "{message}");
    assert!(advice.ends_with("remove the file kv-durable"), "{advice}");
    // If the caller does not allow beginning a new log, the advice must not be to remove the mark, because that would
    // not help.
    assert!(!told(&|whole| whole.remove(FILE).unwrap(), None).1.contains("durable"));
    let (message, _) = told(&|whole| whole.flip(FILE, 512 + 45, 1), Some(7));
    assert!(message.contains(&format!("{FILE} is damaged at byte 512")), "{message}");
    assert!(
        told(&|whole| whole.flip(FILE, 10, 1), Some(7)).0.contains(&format!("{FILE} is damaged at byte 0"))
    );
    // The report of a dropped (torn) end names the file with its full name, too.
    let (whole, part) = part();
    whole.remove("kv-durable").unwrap();
    zero_end(&whole, FILE, 4);
    let dropped = Log::read(&*part, 0, &mut |_, _| Ok(())).unwrap().dropped;
    assert_eq!(dropped.map(|dropped| dropped.file).as_deref(), Some(FILE));
}

#[test]
fn sealed_files_of_a_part_are_called_as_they_are() {
    let (whole, part) = part();
    whole.flip("kv-durable", 30, 1);
    let error = crate::sealed::read_sealed(&*part, "durable", 1).unwrap_err();
    assert!(error.message.starts_with("kv-durable in "), "{error}");
    let missing = crate::sealed::read_sealed(&*part, "other", 1).unwrap_err();
    assert!(missing.message.contains("cannot read kv-other in "), "{missing}");
}

//! Tests of the log that makes changes of keys durable, and of its snapshots, on a simulated disk that loses power,
//! runs full and fails.

use super::{Fsync, KeyLog, KeyLogOptions, KeysFound, LogThresholds, PREFIX, adopt_keys, check_keys};
use crate::keyspaces::Keyspaces;
use farpool_disk::{Directory, Faults, LogOver, SimulatedDirectory};
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{NoHost, Session, TimeAndRandom};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{Clock, ErrorKind, Result, TenantName};
use std::sync::Arc;

const SMALL: LogThresholds = LogThresholds { file_bytes: 4 << 20, snapshot_bytes: 1 << 20 };

/// A clock of the node that always shows the same time, so that tests are reproducible.
#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now_ns(&self) -> u64 {
        1_700_000_000_000_000_000
    }

    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(StoppedClock)
}

/// A log of changes, and the keyspaces whose changes it records.
struct Bench {
    keyspaces: Arc<Keyspaces>,
    log: Arc<KeyLog>,
    found: KeysFound,
}

impl Bench {
    fn open_within(
        directory: &Arc<SimulatedDirectory>,
        memory: usize,
        thresholds: LogThresholds,
    ) -> Result<Bench> {
        let pool = Pool::new(PoolConfig { bytes_limit: memory }).unwrap();
        let keyspaces = Arc::new(Keyspaces::new(&pool, 1, 7, &clock()));
        let directory = directory.clone() as Arc<dyn Directory>;
        let opening = KeyLogOptions {
            directory,
            fsync: Fsync::Always,
            thresholds,
            new_log: 9,
            threads: 2,
            log_over: LogOver::default(),
        };
        let (log, found) = KeyLog::open(opening, &keyspaces, clock())?;
        Ok(Bench { keyspaces, log, found })
    }

    fn open(directory: &Arc<SimulatedDirectory>) -> Bench {
        Bench::open_within(directory, 64 << 20, SMALL).unwrap()
    }

    /// Does the same as [`Bench::open_within`] without threads: the test decides when records are written.
    fn stepped(directory: &Arc<SimulatedDirectory>, thresholds: LogThresholds) -> Bench {
        let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
        let keyspaces = Arc::new(Keyspaces::new(&pool, 1, 7, &clock()));
        let directory = directory.clone() as Arc<dyn Directory>;
        let opening = KeyLogOptions {
            directory,
            fsync: Fsync::EverySecond,
            thresholds,
            new_log: 9,
            threads: 0,
            log_over: LogOver::default(),
        };
        let (log, found) = KeyLog::recover(opening, &keyspaces).unwrap();
        Bench { keyspaces, log, found }
    }

    /// Executes a command of a tenant; returns the reply, and the sequence number of the log record that the reply
    /// depends on.
    fn begin(&self, tenant: &str, command: &str) -> (String, Option<u64>) {
        let keys = self.keyspaces.of(&TenantName::new(tenant).unwrap());
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let (mut session, mut bytes) = (Session::default(), Vec::new());
        let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
        let moment = TimeAndRandom { now: 1_700_000_000_000, random: 5 };
        session.execute(&keys, &args, moment, &mut NoHost, &mut replies);
        (String::from_utf8_lossy(&bytes).trim_end().replace("\r\n", "|"), session.take_recorded())
    }

    /// Executes a command of a tenant and waits for its log record; returns the reply and whether the record became
    /// durable.
    fn run(&self, tenant: &str, command: &str) -> (String, bool) {
        let (reply, recorded) = self.begin(tenant, command);
        let durable = match recorded {
            Some(number) => {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(self.log.follow().committed(number)).is_ok()
            }
            None => true,
        };
        (reply, durable)
    }

    fn set(&self, key: &str, value: &str) -> bool {
        let (reply, is_durable) = self.run("default", &format!("SET {key} {value}"));
        reply == "+OK" && is_durable
    }

    fn get(&self, key: &str) -> String {
        self.run("default", &format!("GET {key}")).0
    }

    /// Simulates a killed process: threads end and waiting records are lost.
    fn kill(self, directory: &SimulatedDirectory, seed: u64) {
        directory.crash(seed);
        drop(self.log.close(&self.keyspaces, 1));
    }

    fn close(self) {
        self.log.close(&self.keyspaces, 1).unwrap();
    }
}

#[test]
fn keys_of_all_tenants_are_there_again() {
    let directory = SimulatedDirectory::new();
    for clean in [true, false, true] {
        let bench = Bench::open(&directory);
        let one = |key: &str, value: &str| assert_eq!(bench.run(key, value), ("+OK".into(), true));
        one("sales", "SET a 1");
        one("stock", "SET a 2");
        bench.run("sales", "HSET h f 1 g 2");
        if clean {
            bench.close()
        } else {
            bench.kill(&directory, 3)
        }
        let bench = Bench::open(&directory);
        assert_eq!(bench.run("sales", "GET a").0, "$1|1");
        assert_eq!(bench.run("stock", "GET a").0, "$1|2");
        assert_eq!(bench.run("sales", "HGET h g").0, "$1|2");
        assert_eq!(bench.run("default", "GET a").0, "$-1");
        bench.close();
    }
}

#[test]
fn what_was_acknowledged_survives_losses_of_power_and_snapshots() {
    let directory = SimulatedDirectory::new();
    let mut expected = vec![0_u64; 40];
    let mut next = 1;
    for round in 0..24 {
        let bench = Bench::open(&directory);
        for (key, value) in expected.iter().enumerate() {
            let reply = bench.get(&format!("key{key}"));
            assert!(
                *value == 0 && reply == "$-1" || reply.ends_with(&format!("|{value}")),
                "{reply} {value}"
            );
        }
        // In every third round the device fails after some writes, so that the last commands are not acknowledged.
        if round % 3 == 1 {
            directory.set_faults(Faults { fails_after: Some(10 + round), ..Faults::default() });
        }
        for step in 0..60 {
            let key = (round as usize * 7 + step * 3) % expected.len();
            if round % 2 == 0 && step == 30 {
                bench.log.take_snapshot(&bench.keyspaces, 1).unwrap();
            }
            if !bench.set(&format!("key{key}"), &next.to_string()) {
                // A command that was not acknowledged may or may not survive, so the key is set again after the
                // restart.
                let reply = bench.run("default", "SET other 1").0;
                assert!(reply.starts_with("-MISCONF"), "{reply}");
                directory.set_faults(Faults::default());
                bench.kill(&directory, round);
                let bench = Bench::open(&directory);
                assert!(bench.set(&format!("key{key}"), &next.to_string()));
                expected[key] = next;
                next += 1;
                bench.kill(&directory, round + 100);
                break;
            }
            expected[key] = next;
            next += 1;
            if step == 59 {
                directory.crash(round);
            }
        }
        directory.set_faults(Faults::default());
    }
}

#[test]
fn a_torn_end_is_dropped_and_damage_before_it_is_an_error() {
    let directory = SimulatedDirectory::new();
    let bench = Bench::open(&directory);
    assert!(bench.set("a", "1") && bench.set("a", "2") && bench.set("b", "3"));
    bench.kill(&directory, 1);
    let log = format!("{PREFIX}log-000000000001");
    // Flips a bit in the third batch of records: the file has a header of 512 bytes, then batches of 512 bytes each.
    directory.flip(&log, 512 * 3 + 45, 4);
    // The corrupted record was acknowledged, and the log's mark (count of durable records) includes it.
    let lost = check_keys(directory.clone()).unwrap_err();
    assert!(lost.kind == ErrorKind::Corrupt && lost.message.contains("lost its end"), "{lost}");
    assert!(lost.message.contains(&format!("{log} ends at byte")), "{lost}");
    assert!(lost.advice.is_some_and(|advice| advice.ends_with("remove the file kv-durable")));
    directory.remove(&format!("{PREFIX}durable")).unwrap();
    let found = check_keys(directory.clone()).unwrap().unwrap();
    assert!(found.dropped.as_ref().is_some_and(|dropped| dropped.bytes > 40 && dropped.file == log));
    let bench = Bench::open(&directory);
    assert_eq!(bench.found.dropped, found.dropped);
    assert_eq!((bench.get("a"), bench.get("b")), ("$1|2".into(), "$-1".into()));
    assert!(bench.set("b", "4"));
    bench.kill(&directory, 2);
    directory.flip(&log, 512 * 2 + 45, 4);
    let damaged = Bench::open_within(&directory, 64 << 20, SMALL).err().unwrap();
    assert!(damaged.kind == ErrorKind::Corrupt && damaged.message.contains("byte 1024"), "{damaged}");
    assert_eq!(check_keys(directory.clone()).unwrap_err().kind, ErrorKind::Corrupt);
}

#[test]
fn a_snapshot_that_is_damaged_or_missing_is_an_error() {
    let directory = SimulatedDirectory::new();
    let bench = Bench::open(&directory);
    assert!(bench.set("a", "1"));
    bench.log.take_snapshot(&bench.keyspaces, 77).unwrap();
    let first = bench.log.snapshots().latest;
    assert_eq!((first.number, first.unix_s), (1, 77));
    bench.log.take_snapshot(&bench.keyspaces, 78).unwrap();
    assert!(bench.set("b", "2"));
    bench.kill(&directory, 1);
    let names = directory.names().unwrap();
    let snapshots: Vec<&String> = names.iter().filter(|name| name.contains("snapshot-")).collect();
    assert_eq!(snapshots, ["kv-snapshot-000000000002-log-000000000001"]);
    let open = || Bench::open_within(&directory, 64 << 20, SMALL);
    directory.flip(snapshots[0], 512 + 50, 1);
    assert_eq!(open().err().unwrap().kind, ErrorKind::Corrupt);
    assert_eq!(check_keys(directory.clone()).unwrap_err().kind, ErrorKind::Corrupt);
    directory.flip(snapshots[0], 512 + 50, 1);
    let bench = open().unwrap();
    assert_eq!((bench.get("a"), bench.get("b")), ("$1|1".into(), "$1|2".into()));
    bench.kill(&directory, 2);
    let log = names.iter().find(|name| name.starts_with("kv-log-")).unwrap();
    directory.remove(log).unwrap();
    directory.sync().unwrap();
    let missing = open().err().unwrap();
    assert!(missing.kind == ErrorKind::Corrupt && missing.message.contains("missing"), "{missing}");
}

#[test]
fn a_snapshot_that_was_cut_is_named_and_not_to_be_used_in_parts() {
    let directory = SimulatedDirectory::new();
    let bench = Bench::open(&directory);
    assert!(bench.set("a", "1"));
    bench.log.take_snapshot(&bench.keyspaces, 77).unwrap();
    bench.kill(&directory, 1);
    const FILE: &str = "kv-snapshot-000000000001-log-000000000001";
    let mut contents = vec![0; 1000];
    directory.open(FILE).unwrap().read_at(&mut contents, 0).unwrap();
    directory.remove(FILE).unwrap();
    directory.create(FILE).unwrap().write_at(&contents, 0).unwrap();
    let cut = check_keys(directory.clone()).unwrap_err();
    assert!(cut.kind == ErrorKind::Corrupt && cut.message.contains(&format!("{FILE} has 1000 of")), "{cut}");
    assert_eq!(cut.advice.as_deref(), Some("restore the directory from a backup"));
    directory.remove(FILE).unwrap();
    let missing = check_keys(directory.clone()).unwrap_err();
    assert!(missing.message.contains("(kv-snapshot-000000000001-log-*) is missing"), "{missing}");
    directory.flip("kv-snapshot", 30, 1);
    let damaged = check_keys(directory).unwrap_err();
    assert!(damaged.message.starts_with("kv-snapshot in "), "{damaged}");
}

#[test]
fn a_thread_notes_what_is_durable() {
    let directory = SimulatedDirectory::new();
    let bench = Bench::open(&directory);
    assert!(bench.set("a", "1") && bench.set("a", "2"));
    // Waits until the mark states both records; it may state more, because the time is recorded, too.
    while bench.log.log.records_marked().is_none_or(|records| records < 2) {
        std::thread::yield_now();
    }
    bench.close();
}

#[test]
fn a_full_disk_refuses_changes_until_there_is_space() {
    let directory = SimulatedDirectory::new();
    let bench =
        Bench::open_within(&directory, 64 << 20, LogThresholds { file_bytes: 16 << 20, ..SMALL }).unwrap();
    assert!(bench.set("a", "1"));
    directory.set_faults(Faults { capacity: Some(17 << 20), ..Faults::default() });
    let value = "v".repeat(200_000);
    let mut last = 0;
    for number in 1..200 {
        let (reply, is_durable) = bench.run("default", &format!("SET a {number}{value}"));
        if reply != "+OK" {
            assert!(
                reply.starts_with("-MISCONF") && reply.contains("No space") | reply.contains("space"),
                "{reply}"
            );
            break;
        }
        assert!(is_durable);
        last = number;
    }
    assert!((10..199).contains(&last), "{last}");
    assert!(bench.get("a").starts_with(&format!("${}|{last}v", 200_000 + last.to_string().len())));
    assert!(!bench.log.is_writing());
    directory.set_faults(Faults::default());
    while !bench.log.is_writing() {
        bench.log.writer.wake();
        std::thread::yield_now();
    }
    assert!(bench.set("b", "2"));
    bench.kill(&directory, 1);
    let bench = Bench::open(&directory);
    assert!(bench.get("a").contains(&format!("|{last}v")) && bench.get("b") == "$1|2");
}

#[test]
fn small_commands_that_outrun_the_thread_find_a_full_disk_before_they_change_keys() {
    for value_bytes in [10, 1000, 60_000] {
        let directory = SimulatedDirectory::new();
        let bench = Bench::stepped(&directory, LogThresholds { file_bytes: 16 << 20, ..SMALL });
        assert_eq!(bench.begin("default", "SET a 1").0, "+OK");
        directory.set_faults(Faults { capacity: Some(17 << 20), ..Faults::default() });
        let value = "v".repeat(value_bytes);
        let mut last = 0;
        let refusal = loop {
            let (reply, recorded) = bench.begin("default", &format!("SET a {}{value}", last + 1));
            if reply != "+OK" {
                assert_eq!(recorded, None);
                break reply;
            }
            last += 1;
            assert!(last * (value_bytes + 8) < 64 << 20, "the disk is never full");
        };
        assert!(refusal.starts_with("-MISCONF") && refusal.contains("space"), "{refusal}");
        // The rejected command has changed nothing, so the value is that of the last accepted command. All accepted
        // commands are recorded.
        let stored = format!("${}|{last}{value}", value_bytes + last.to_string().len());
        assert_eq!(bench.begin("default", "GET a").0, stored);
        bench.log.write();
        assert!(!bench.log.is_writing());
        directory.set_faults(Faults::default());
        bench.log.write();
        assert!(bench.log.is_writing());
        assert_eq!(bench.begin("default", "SET b 2").0, "+OK");
        bench.log.write();
        bench.kill(&directory, 1);
        let bench = Bench::stepped(&directory, SMALL);
        assert_eq!(bench.begin("default", "GET a").0, stored);
        assert_eq!(bench.begin("default", "GET b").0, "$1|2");
    }
}

#[test]
fn a_failed_sync_ends_all_changes_and_acknowledges_none() {
    let directory = SimulatedDirectory::new();
    let bench = Bench::open(&directory);
    assert!(bench.set("a", "1"));
    directory.set_faults(Faults { fails_after: Some(1), ..Faults::default() });
    let (reply, is_durable) = bench.run("default", "SET a 2");
    assert!(reply == "+OK" && !is_durable);
    let (reply, _) = bench.run("default", "SET b 1");
    assert!(reply.starts_with("-MISCONF") && reply.contains("simulated failure"), "{reply}");
    assert_eq!(bench.get("b"), "$-1");
    directory.set_faults(Faults::default());
    bench.kill(&directory, 1);
    let bench = Bench::open(&directory);
    assert!(bench.get("a").starts_with("$1|") && bench.set("b", "1"));
}

#[test]
fn memory_that_is_too_small_is_an_error_and_no_loss() {
    let directory = SimulatedDirectory::new();
    let bench = Bench::open(&directory);
    for number in 0..300 {
        assert!(bench.set(&format!("key{number}"), &"v".repeat(50_000)));
    }
    bench.close();
    for (memory, fits) in [(8 << 20, false), (64 << 20, true)] {
        match Bench::open_within(&directory, memory, SMALL) {
            Ok(bench) => assert!(fits && bench.found.keys == 300 && bench.found.changes <= 1),
            Err(error) => {
                assert!(!fits && error.kind == ErrorKind::OverLimit && error.message.contains("do not fit"))
            }
        }
    }
}

#[test]
fn the_log_is_no_longer_than_it_should_be() {
    let directory = SimulatedDirectory::new();
    let bench = Bench::open(&directory);
    let value = "v".repeat(100_000);
    for number in 0..200 {
        assert!(bench.set(&format!("key{}", number % 10), &value));
        bench.log.keeper.wake();
    }
    while bench.log.bytes() > 2 << 20 || bench.log.snapshots().is_under_way {
        std::thread::yield_now();
    }
    // Waits until the thread that takes snapshots has also removed the obsolete files, for which it holds this lock.
    drop(bench.log.taking.lock());
    assert!(bench.log.snapshots().latest.number > 0);
    let names = directory.names().unwrap();
    assert!(names.iter().filter(|name| name.starts_with("kv-log-")).count() <= 3, "{names:?}");
    bench.close();
}

#[test]
fn a_backup_has_its_files_until_it_ends_and_a_directory_is_made_of_them() {
    let directory = SimulatedDirectory::new();
    let bench = Bench::open(&directory);
    assert!(bench.set("a", "1"));
    let backup = bench.log.back_up(&bench.keyspaces, 1).unwrap();
    assert!(bench.set("a", "2"));
    bench.log.take_snapshot(&bench.keyspaces, 1).unwrap();
    let copy = SimulatedDirectory::new();
    for file in backup.files() {
        let bytes = usize::try_from(file.bytes).unwrap();
        let mut content = Vec::new();
        while content.len() < bytes {
            let part = backup.read(&file.name, content.len() as u64, bytes).unwrap().unwrap();
            assert!(!part.is_empty());
            content.extend(part);
        }
        let written = copy.create(&file.name).unwrap();
        written.write_at(&content, 0).unwrap();
        written.sync().unwrap();
    }
    copy.sync().unwrap();
    assert!(backup.read("kv-log-000000000001", 0, 1).is_none());
    adopt_keys(&(copy.clone() as Arc<dyn Directory>), 77).unwrap();
    assert!(!copy.names().unwrap().iter().any(|name| name.contains("tail")));
    let restored = Bench::open(&copy);
    assert_eq!(restored.get("a"), "$1|1");
    assert!(restored.set("a", "3"));
    restored.kill(&copy, 1);
    assert_eq!(Bench::open(&copy).get("a"), "$1|3");
    let of_first =
        || directory.names().unwrap().iter().filter(|name| name.contains("snapshot-000000000001")).count();
    assert!(of_first() > 0);
    drop(backup);
    bench.log.take_snapshot(&bench.keyspaces, 1).unwrap();
    assert_eq!(of_first(), 0);
    // Adopting the keys in a directory that has none creates no files.
    let empty = SimulatedDirectory::new();
    adopt_keys(&(empty.clone() as Arc<dyn Directory>), 77).unwrap();
    assert!(empty.names().unwrap().is_empty());
}

/// Values are overwritten with values of other sizes, removed and set again, so that many times as many bytes are
/// written as exist at any time. Snapshots must keep the files small.
#[test]
fn log_and_snapshot_together_are_about_twice_what_lives_however_much_is_written() {
    let directory = SimulatedDirectory::new();
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    let keyspaces = Arc::new(Keyspaces::new(&pool, 1, 7, &clock()));
    let opening = KeyLogOptions {
        directory: directory.clone(),
        fsync: Fsync::EverySecond,
        thresholds: SMALL,
        new_log: 9,
        threads: 0,
        log_over: LogOver::default(),
    };
    let (log, found) = KeyLog::recover(opening, &keyspaces).unwrap();
    let bench = Bench { keyspaces, log, found };
    const BESIDE: u64 = 256 << 10;
    let (mut live, mut written, mut snapshots) = (vec![0_u64; 60], 0, 0);
    for step in 0..3000_usize {
        let key = step * 7 % live.len();
        // In the last fifth of the steps, all keys but one are removed.
        let is_ending = step > 2400 && key > 0;
        let bytes = if is_ending || step % 11 == 0 { 0 } else { 5_000 + step * 7919 % 60_000 };
        if bytes == 0 {
            bench.run("default", &format!("DEL key{key}"));
        } else {
            assert!(bench.set(&format!("key{key}"), &"v".repeat(bytes)));
        }
        (live[key], written) = (bytes as u64, written + bytes as u64);
        bench.log.write();
        if bench.log.is_due() {
            bench.log.take_snapshot(&bench.keyspaces, 1).unwrap();
            snapshots += 1;
            let (lives, latest) = (live.iter().sum::<u64>(), bench.log.snapshots().latest.bytes);
            assert!(latest <= lives + lives / 10 + BESIDE, "{latest} bytes of a snapshot of {lives}");
            assert!(bench.log.bytes() <= BESIDE, "{} bytes of a log behind it", bench.log.bytes());
            let names = directory.names().unwrap();
            let count = |of: &str| names.iter().filter(|name| name.starts_with(of)).count();
            assert!(count("kv-log-") <= 3 && count("kv-snapshot-") == 1, "{names:?}");
        }
        let most = SMALL.snapshot_bytes.max(bench.log.snapshots().latest.bytes) + BESIDE;
        assert!(bench.log.bytes() <= most, "{} bytes of a log, not {most}", bench.log.bytes());
    }
    assert!(snapshots > 20 && written > 30 * live.len() as u64 * 30_000, "{snapshots} {written}");
    bench.close();
}

/// Strings so long that a snapshot has each in several records. Several threads apply the records at recovery, and the
/// values must be whole.
#[test]
fn values_of_several_records_come_back_whole_whatever_threads_apply_them() {
    let directory = SimulatedDirectory::new();
    let value = |key: u8| char::from(b'a' + key % 26).to_string().repeat(150_000 + usize::from(key));
    let bench = Bench::open_within(&directory, 64 << 20, LogThresholds::default()).unwrap();
    for key in 0..40 {
        assert!(bench.set(&format!("k{key}"), &value(key)));
    }
    bench.log.take_snapshot(&bench.keyspaces, 1).unwrap();
    drop(bench);
    for round in 0..12 {
        let bench = Bench::open_within(&directory, 64 << 20, LogThresholds::default()).unwrap();
        for key in 0..40 {
            let expected = format!("${}|{}", value(key).len(), value(key));
            assert!(bench.get(&format!("k{key}")) == expected, "k{key} in round {round}");
        }
    }
}

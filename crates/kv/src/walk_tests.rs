//! Tests of the log of changes by random commands: replaying all records, or a walk (fuzzy snapshot) and the records
//! since it began, must give the same keys.

use super::Walk;
use crate::journal::{Journal, Recorder, Replay, WhenFull};
use crate::resp::{Protocol, Replies};
use crate::{Args, Keyspace, NoHost, Session, TimeAndRandom};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::limits::KV_RECORD_BYTES_MAX;
use farpool_model::{Error, ErrorKind, Result, TenantName};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

/// The header that the journal of these tests writes in front of each record, as a log does with the tenant's name.
const PREFIX: &[u8] = b"a tenant";

/// A log of changes (journal) that keeps its records in memory.
#[derive(Clone, Default)]
struct RecordingJournal {
    records: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Whether [`Journal::check`] fails, and whether [`Journal::append`] fails, to simulate a full or broken disk.
    refuses: Arc<Mutex<(bool, bool)>>,
}

impl Journal for RecordingJournal {
    fn check(&self, _: usize) -> Result<()> {
        if self.refuses.lock().0 { Err(Error::unavailable("no disk")) } else { Ok(()) }
    }

    fn begin(&self, record: &mut Vec<u8>) {
        record.extend_from_slice(PREFIX);
    }

    fn append(&self, record: &[u8]) -> Result<u64> {
        if self.refuses.lock().1 {
            return Err(Error::unavailable("no disk"));
        }
        assert!(record.len() <= KV_RECORD_BYTES_MAX + 64);
        let mut records = self.records.lock();
        records.push(record.strip_prefix(PREFIX).unwrap().to_vec());
        Ok(records.len() as u64 - 1)
    }
}

fn keyspace(bytes: usize, secret: u8) -> Keyspace {
    let pool = Pool::new(PoolConfig { bytes_limit: bytes }).unwrap();
    Keyspace::new(&pool, &TenantName::default(), [secret; 16], 3)
}

fn recording(bytes: usize) -> (Keyspace, RecordingJournal) {
    let (keys, kept) = (keyspace(bytes, 1), RecordingJournal::default());
    keys.set_journal(Box::new(kept.clone()));
    (keys, kept)
}

/// Executes a command at a given time.
fn run_at(keys: &Keyspace, session: &mut Session, now: u64, args: &Args<'_>) -> String {
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
    session.execute(keys, args, TimeAndRandom { now, random: now }, &mut NoHost, &mut replies);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn run(keys: &Keyspace, session: &mut Session, command: &str) -> String {
    run_at(keys, session, NOW, &command.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Returns all keys with their values and expiries, as clients read them at the time `now`.
fn seen(keys: &Keyspace, now: u64) -> Vec<String> {
    let mut found = Vec::new();
    for space in 0..3 {
        let mut session = Session::default();
        let mut run = |args: &[&str]| {
            run_at(keys, &mut session, now, &args.iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>())
        };
        run(&["SELECT", &space.to_string()]);
        let all = run(&["KEYS", "*"]);
        for key in all.split("\r\n").filter(|line| !line.starts_with(['*', '$']) && !line.is_empty()) {
            let kind = run(&["TYPE", key]);
            let value = match &*kind {
                "+string\r\n" => run(&["GET", key]),
                _ => {
                    let fields = run(&["HGETALL", key]);
                    let lines: Vec<&str> =
                        fields.split("\r\n").skip(1).filter(|line| !line.starts_with('$')).collect();
                    let mut pairs: Vec<String> =
                        lines.chunks(2).map(|pair| pair.join("=")).filter(|pair| !pair.is_empty()).collect();
                    pairs.sort();
                    pairs.join(" ")
                }
            };
            // Long values are abbreviated, so that a difference is easy to see.
            let value = match value.len() {
                0..1000 => value,
                bytes => format!(
                    "{bytes} bytes, {}",
                    value.bytes().fold(0, |sum: u64, byte| sum * 31 % 1_000_003 + u64::from(byte))
                ),
            };
            found.push(format!("{space} {key} {kind} {} {value}", run(&["PEXPIRETIME", key])));
        }
    }
    found.sort();
    found
}

fn replayed(keys: &Keyspace, records: &[Vec<u8>]) {
    let mut replay = Replay::default();
    records.iter().for_each(|record| replay.apply(keys, record).unwrap());
}

/// Returns a command on a few keys, so that commands often meet the same key.
fn command() -> impl Strategy<Value = String> {
    let key = || prop_oneof![Just("a"), Just("b"), Just("c"), Just("d"), Just("e"), Just("f")];
    let word = prop_oneof![Just("1".to_string()), Just("some text".replace(' ', "_")), "[xyz]{60,90}"];
    let hash = || prop_oneof![Just("h"), Just("i"), Just("a")];
    prop_oneof![
        (key(), word.clone()).prop_map(|(key, word)| format!("SET {key} {word}")),
        (key(), word.clone(), 1..40).prop_map(|(key, word, ms)| format!("SET {key} {word} PX {ms}")),
        (key(), word.clone()).prop_map(|(key, word)| format!("APPEND {key} {word}")),
        (key(), 0..300, word.clone()).prop_map(|(key, at, word)| format!("SETRANGE {key} {at} {word}")),
        (key(), 0..900, 0..2).prop_map(|(key, at, bit)| format!("SETBIT {key} {at} {bit}")),
        key().prop_map(|key| format!("INCR {key}")),
        key().prop_map(|key| format!("INCRBYFLOAT {key} 1.5")),
        (key(), key(), word.clone()).prop_map(|(a, b, word)| format!("MSET {a} {word} {b} 7")),
        (key(), key()).prop_map(|(a, b)| format!("MSETNX {a} 1 {b} 2")),
        (hash(), 0..9, word.clone()).prop_map(|(key, field, word)| format!("HSET {key} f{field} {word}")),
        (hash(), 0..9).prop_map(|(key, field)| format!("HINCRBY {key} n{field} 5")),
        (hash(), 0..9).prop_map(|(key, field)| format!("HDEL {key} f{field} n{field}")),
        (key(), 1..60).prop_map(|(key, ms)| format!("PEXPIRE {key} {ms}")),
        (hash(), 1..60).prop_map(|(key, ms)| format!("PEXPIRE {key} {ms}")),
        key().prop_map(|key| format!("PERSIST {key}")),
        key().prop_map(|key| format!("GETEX {key} PX 30")),
        key().prop_map(|key| format!("GETDEL {key}")),
        key().prop_map(|key| format!("DEL {key}")),
        hash().prop_map(|key| format!("DEL {key}")),
        (hash(), hash()).prop_map(|(a, b)| format!("RENAME {a} {b}")),
        (key(), key()).prop_map(|(a, b)| format!("RENAME {a} {b}")),
        (hash(), hash()).prop_map(|(a, b)| format!("COPY {a} {b} REPLACE")),
        (hash(), hash(), 0..3).prop_map(|(a, b, to)| format!("COPY {a} {b} DB {to}")),
        (0..3).prop_map(|space| format!("SELECT {space}")),
        Just("MULTI".to_string()),
        Just("EXEC".to_string()),
        Just("EXEC".to_string()),
        Just("TIDY".to_string()),
        Just("FLUSHDB".to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn records_and_walks_give_the_same_keys_again(
        commands in prop::collection::vec((command(), 0..5_u64, 0..3_u8), 1..200),
        begin in 0..100_usize,
        others in 0..400,
    ) {
        let (keys, kept) = recording(64 << 20);
        let (mut session, mut now) = (Session::default(), NOW);
        // Enough keys and fields that a walk takes several steps, a value longer than a step reads, and a transaction
        // whose record has several parts.
        let long = "v".repeat(150_000);
        for other in 0..others {
            run(&keys, &mut session, &format!("SET other{other} {other}"));
            run(&keys, &mut session, &format!("HSET many f{other} {other}"));
        }
        run(&keys, &mut session, &format!("SET long {long}"));
        run(&keys, &mut session, &format!("SET longer {}", "w".repeat(KV_RECORD_BYTES_MAX * 5 / 2)));
        let walked = RecordingJournal::default();
        let mut walk = Walk::default();
        let mut recorder = Recorder::new(Some(&walked), Vec::new(), NOW, 1).lazy();
        let mut first = 0;
        for (at, (command, ms, steps)) in commands.iter().enumerate() {
            now += ms;
            if at == begin {
                first = kept.records.lock().len();
            }
            for _ in 0..if at >= begin { *steps } else { 0 } {
                if walk.shard < keys.shards() {
                    walk.step(&keys.lock(walk.shard), &mut recorder).unwrap();
                }
            }
            if command == "TIDY" {
                keys.tidy(now);
            } else {
                // Every seventh command reads the clock slightly earlier, as threads may.
                let now = now - u64::from(at % 7 == 0) * 3;
                let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
                run_at(&keys, &mut session, now, &args);
            }
        }
        while walk.shard < keys.shards() {
            walk.step(&keys.lock(walk.shard), &mut recorder).unwrap();
        }
        recorder.finish().0.unwrap();
        let expected = seen(&keys, now);
        keys.record_time().unwrap();
        let records = kept.records.lock().clone();
        let again = keyspace(64 << 20, 2);
        replayed(&again, &records);
        prop_assert_eq!(&seen(&again, now), &expected);
        // Replays all records onto the result a second time, and onto the keys of the walk.
        replayed(&again, &records);
        prop_assert_eq!(&seen(&again, now), &expected);
        let from_walk = keyspace(64 << 20, 3);
        replayed(&from_walk, &walked.records.lock());
        replayed(&from_walk, &records[first.min(records.len())..]);
        // Read at an earlier time, because a clock that was put back must not make expired keys exist again.
        prop_assert_eq!(&seen(&from_walk, NOW - 1000), &expected);
    }
}

#[test]
fn a_transaction_in_the_midst_of_which_memory_ends_is_recorded_as_far_as_it_came() {
    let (keys, kept) = recording(6 << 20);
    let mut session = Session::default();
    run(&keys, &mut session, "MULTI");
    for number in 0..100 {
        run(&keys, &mut session, &format!("SET key{number} {}", "v".repeat(100 << 10)));
    }
    let reply = run(&keys, &mut session, "EXEC");
    assert!(reply.contains("-OOM"), "{reply}");
    assert!(session.take_recorded().is_some() && session.take_recorded().is_none());
    let expected = seen(&keys, NOW);
    assert!(!expected.is_empty() && expected.len() < 100, "{}", expected.len());
    assert!(kept.records.lock().len() > 1, "the record is in parts");
    let again = keyspace(64 << 20, 2);
    replayed(&again, &kept.records.lock());
    assert_eq!(seen(&again, NOW), expected);
}

#[test]
fn a_record_in_parts_counts_when_its_last_part_is_there() {
    let (keys, kept) = recording(64 << 20);
    let mut session = Session::default();
    run(&keys, &mut session, "SET a 1");
    run(&keys, &mut session, &format!("MSET b 1 a {}", "v".repeat(3 * KV_RECORD_BYTES_MAX)));
    let records = kept.records.lock().clone();
    assert_eq!(records.len(), 5);
    let (again, mut replay) = (keyspace(64 << 20, 2), Replay::default());
    records[..4].iter().for_each(|record| replay.apply(&again, record).unwrap());
    assert!(replay.bytes() > 2 * KV_RECORD_BYTES_MAX);
    assert_eq!(run(&again, &mut session, "GET a"), "$1\r\n1\r\n");
    assert_eq!(run(&again, &mut session, "EXISTS b"), ":0\r\n");
    replay.apply(&again, &records[4]).unwrap();
    assert_eq!(replay.bytes(), 0);
    assert_eq!(seen(&again, NOW), seen(&keys, NOW));
    // Replay ignores the last parts of a record whose first parts are missing.
    replayed(&again, &records[3..]);
    assert_eq!(seen(&again, NOW), seen(&keys, NOW));
}

#[test]
fn nothing_changes_while_changes_cannot_be_recorded() {
    let (keys, kept) = recording(16 << 20);
    let mut session = Session::default();
    run(&keys, &mut session, "SET a 1");
    kept.refuses.lock().0 = true;
    assert!(
        run(&keys, &mut session, "SET a 2").starts_with("-MISCONF the log of keys cannot be written: no")
    );
    assert_eq!(run(&keys, &mut session, "GET a"), "$1\r\n1\r\n");
    for command in ["MULTI", "GET a", "SET a 2"] {
        run(&keys, &mut session, command);
    }
    assert!(run(&keys, &mut session, "EXEC").starts_with("-MISCONF"));
    assert_eq!(run(&keys, &mut session, "GET a"), "$1\r\n1\r\n");
    // If the record cannot be appended after the change, the client gets an error.
    *kept.refuses.lock() = (false, true);
    assert!(run(&keys, &mut session, "SET a 2").starts_with("-MISCONF"));
    *kept.refuses.lock() = (false, false);
    assert_eq!(run(&keys, &mut session, "SET a 2"), "+OK\r\n");
}

#[test]
fn what_a_client_has_done_is_waited_for_when_it_begins_anew() {
    let (keys, _) = recording(16 << 20);
    let mut session = Session::default();
    run(&keys, &mut session, "SET a 1");
    run(&keys, &mut session, "GET a");
    session.reset(&keys);
    assert_eq!(session.take_recorded(), Some(0));
    assert_eq!(session.take_recorded(), None);
}

#[test]
fn a_key_that_expired_after_a_change_of_a_part_of_it_does_not_come_back() {
    let (keys, kept) = recording(16 << 20);
    let mut session = Session::default();
    run(&keys, &mut session, "SET a 1 PX 50");
    run(&keys, &mut session, "HSET h f 1");
    run(&keys, &mut session, "PEXPIRE h 50");
    let first = kept.records.lock().len();
    run(&keys, &mut session, "APPEND a 2");
    run(&keys, &mut session, "HSET h g 2");
    assert_eq!(run_at(&keys, &mut session, NOW + 60, &[b"DBSIZE"]), ":2\r\n");
    keys.tidy(NOW + 60);
    // A walk that begins now sees neither key, because both have expired; the records before it are replayed on top.
    let walked = RecordingJournal::default();
    let mut walk = Walk::default();
    while keys.walk(&mut walk, &walked).unwrap() {}
    keys.record_time().unwrap();
    let again = keyspace(16 << 20, 2);
    replayed(&again, &walked.records.lock());
    replayed(&again, &kept.records.lock()[first..]);
    assert_eq!(seen(&again, NOW), Vec::<String>::new());
}

#[test]
fn the_time_is_recorded_where_a_client_asked() {
    let (keys, kept) = recording(16 << 20);
    let mut session = Session::default();
    run(&keys, &mut session, "SET a 1 PX 50");
    keys.record_time().unwrap();
    keys.tidy(NOW + 40);
    assert_eq!(keys.record_time().unwrap(), None, "nobody has asked");
    assert_eq!(run_at(&keys, &mut session, NOW + 60, &[b"GET", b"a"]), "$-1\r\n");
    assert!(keys.record_time().unwrap().is_some());
    let again = keyspace(16 << 20, 2);
    replayed(&again, &kept.records.lock());
    assert_eq!(run(&again, &mut session, "GET a"), "$-1\r\n");
}

#[test]
fn what_no_record_is_is_refused() {
    let keys = keyspace(16 << 20, 1);
    let refused: &[&[u8]] =
        &[&[], &[0], &[9, 0], &[0, 0, 99], &[0, 0, 4, 0], &[1, 0, 1], &[7, 0, 1, 2, 3, 4, 5, 6, 7, 8]];
    for record in refused {
        assert!(Replay::default().apply(&keys, record).is_err(), "{record:?}");
    }
}

#[test]
fn a_strict_replay_fails_where_memory_ends_and_evicts_nothing() {
    let (keys, kept) = recording(64 << 20);
    let mut session = Session::default();
    let moment = TimeAndRandom { now: NOW, random: 1 };
    keys.set_limits(moment, |limits| limits.policy = crate::evict::Policy::AllKeysRandom).unwrap();
    for key in 0..300 {
        run(&keys, &mut session, &format!("SET key{key} {}", "v".repeat(40_000)));
    }
    let (small, mut replay) = (keyspace(6 << 20, 2), Replay::new(WhenFull::Fail));
    let records = kept.records.lock().clone();
    let failed = records.iter().position(|record| match replay.apply(&small, record) {
        Ok(()) => false,
        Err(error) => {
            assert!(error.kind == ErrorKind::OverLimit && error.message.contains("no key may go"), "{error}");
            true
        }
    });
    // One record more than keys was applied: the first sets the limits.
    let applied = failed.unwrap() - 1;
    assert!(applied > 50 && small.uses().evicted == 0, "{applied}");
    assert_eq!(small.count(0).keys, applied);
    // Recovery with as little memory evicts keys instead of failing.
    let small = keyspace(6 << 20, 2);
    replayed(&small, &records);
    assert!(small.uses().evicted > 0 && small.count(0).keys < 300);
}

#[test]
fn records_do_the_same_whatever_the_time_is() {
    let (keys, kept) = recording(16 << 20);
    let mut session = Session::default();
    let commands = [
        "SET a 1 PX 50",
        "SET b 1 PX 50",
        "HSET h f 1",
        "PEXPIRE h 50",
        "APPEND a 2",
        "PERSIST b",
        "HSET h g 2",
    ];
    for command in commands {
        run(&keys, &mut session, command);
    }
    let records = kept.records.lock().clone();
    let (early, late) = (keyspace(16 << 20, 2), keyspace(16 << 20, 3));
    // Advances the time of the keyspace `late` so far that all recorded keys with an expiry have expired for its
    // clients.
    run_at(&late, &mut session, NOW + 1_000_000, &[b"GET", b"a"]);
    replayed(&early, &records);
    replayed(&late, &records);
    assert_eq!(early.digest(0).unwrap(), late.digest(0).unwrap());
    assert_eq!(early.digest(NOW).unwrap(), keys.digest(NOW).unwrap());
    assert_eq!((early.digest(0).unwrap().keys, early.digest(NOW + 50).unwrap().keys), (3, 1));
    // Maintenance of a replica removes keys that have expired by the times in records, and not by the keyspace's own
    // time.
    while late.tidy_applied() {}
    assert_eq!(late.count(0).keys, 3);
    run_at(&keys, &mut session, NOW + 60_000, &[b"SET", b"c", b"1"]);
    replayed(&late, &kept.records.lock()[records.len()..]);
    for _ in 0..100 {
        late.tidy_applied();
    }
    assert_eq!(late.count(0).keys, 2);
    assert_eq!(late.digest(0).unwrap(), keys.digest(NOW + 60_000).unwrap());
}

//! Tests that every command, with the arguments for which it takes longest, either takes at most a step (some ten
//! microseconds) or is deferred to a thread for long commands.
//!
//! Bounds are in units of work as in `limits.rs`, not in time: bytes of arguments and replies, and visited keys.

use super::*;
use crate::commands::{Keys, Place};
use crate::session::{DeferReason, ExecutionMode, Outcome};
use farpool_model::limits::{KV_EXEC_WORK_MAX, KV_STEP_WORK_MAX};
use std::collections::BTreeSet;

const SHARDS: usize = 4;

/// The expected outcome of a command in [`ExecutionMode::Short`]: executed within a step, or deferred as long.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    Step,
    Long,
}
use Expected::{Long, Step};

/// Creates a keyspace with a long string, a large hash and many keys.
fn filled() -> Keyspace {
    let pool = Pool::new(PoolConfig { bytes_limit: 256 << 20 }).unwrap();
    let keys = Keyspace::new(&pool, &TenantName::default(), [7; 16], SHARDS);
    let mut client = Client::new(&keys);
    client.run("FP.SPACE CREATE space");
    client.run("SETRANGE big 2000000 x");
    client.run("SETRANGE other 2000000 x");
    client.run("SET small 1");
    client.run("PFADD sketch a b c");
    for start in (0..20_000).step_by(1000) {
        let words =
            |make: &dyn Fn(usize) -> String| (start..start + 1000).map(make).collect::<Vec<_>>().join(" ");
        client.run(&format!("MSET {}", words(&|at| format!("key:{at} value"))));
        client.run(&format!("HSET hash {}", words(&|at| format!("field:{at} {}", "v".repeat(20)))));
    }
    client.run(&format!("HSET hash long {}", "v".repeat(1 << 20)));
    keys
}

/// Each command with its worst arguments. `*` stands for 5,000 repetitions of the word before, and `@` in a word for
/// 300,000 bytes.
const WORST: &[(&str, Expected)] = &[
    ("APPEND big x", Long),
    ("APPEND small @", Long),
    ("BITCOUNT big", Long),
    ("COPY big target", Long),
    ("COPY hash target", Long),
    ("DBSIZE", Step),
    ("DECR small", Step),
    ("DECRBY small 1", Step),
    ("DEL none *", Long),
    ("EXISTS none *", Long),
    ("EXPIRE big 100000", Long),
    ("EXPIREAT big 99999999999", Long),
    ("EXPIRETIME big", Step),
    ("FLUSHALL", Long),
    ("FLUSHDB", Long),
    ("FP.CAS big @ x", Long),
    ("FP.CGET big value~'(a|a)*b'", Long),
    ("FP.ROWSET space @ x y", Long),
    ("FP.SCAN default value~'(a|a)*b' LIMIT 1000", Long),
    ("FP.SCAN default key>'z' LIMIT 1000", Step),
    ("FP.SPACE CREATE key", Long),
    ("FP.UPDATE small @", Long),
    ("GET big", Long),
    ("GETBIT big 10000000", Step),
    ("GETDEL big", Long),
    ("GETEX big PERSIST", Long),
    ("GETRANGE big 0 -1", Long),
    ("GETRANGE big 0 10", Step),
    ("GETSET big x", Long),
    ("HDEL hash none *", Long),
    ("HEXISTS hash long", Step),
    ("HGET hash long", Long),
    ("HGET hash field:1", Step),
    ("HGETALL hash", Long),
    ("HINCRBY hash count 1", Step),
    ("HINCRBYFLOAT hash count 1", Step),
    ("HKEYS hash", Long),
    ("HLEN hash", Step),
    ("HMGET hash none *", Long),
    ("HMSET hash f @", Long),
    ("HSCAN hash 0 COUNT 1000000 MATCH *[b-z]*", Step),
    ("HSET hash f @", Long),
    ("HSETNX hash f @", Long),
    ("HSTRLEN hash long", Step),
    ("HVALS hash", Long),
    ("INCR small", Step),
    ("INCRBY small 1", Step),
    ("INCRBYFLOAT small 1", Step),
    ("KEYS *[b-z]*a*b*c", Long),
    ("MGET none *", Long),
    ("MGET big other", Long),
    ("MEMORY USAGE hash", Step),
    ("MSET none *", Long),
    ("MSETNX none *", Long),
    ("OBJECT ENCODING big", Step),
    ("OBJECT FREQ big", Step),
    ("OBJECT IDLETIME big", Step),
    ("OBJECT REFCOUNT big", Step),
    ("PERSIST big", Long),
    ("PEXPIRE big 100000000", Long),
    ("PEXPIREAT big 99999999999999", Long),
    ("PEXPIRETIME big", Step),
    ("PFADD sketch x *", Long),
    ("PFCOUNT sketch *", Long),
    ("PFMERGE target sketch *", Long),
    ("PSETEX small 100000 @", Long),
    ("PTTL big", Step),
    ("RANDOMKEY", Step),
    ("RENAME big moved", Long),
    ("RENAMENX hash moved", Long),
    ("SCAN 0 COUNT 1000000 MATCH *[b-z]*a*b", Step),
    ("SET small @", Long),
    ("SETBIT big 4000000000 1", Long),
    ("SETBIT new 4000000000 1", Long),
    ("SETEX small 1000 @", Long),
    ("SETNX none @", Long),
    ("SETRANGE new 500000000 x", Long),
    ("STRLEN big", Step),
    ("SUBSTR big 0 -1", Long),
    ("TOUCH none *", Long),
    ("TTL big", Step),
    ("TYPE big", Step),
    ("UNLINK none *", Long),
    // Commands that the session or its host executes.
    ("WATCH none *", Long),
    ("PING *", Long),
];

fn args(command: &str) -> Vec<Vec<u8>> {
    let mut args: Vec<Vec<u8>> = Vec::new();
    for word in command.split(' ') {
        match word {
            // `*` repeats the word before it 5,000 times, or once more, so that the number of arguments is right for
            // commands with pairs.
            "*" => {
                let last = args.last().cloned().unwrap_or_default();
                let even = usize::from(args.len().is_multiple_of(2));
                args.extend(std::iter::repeat_n(last, 5000 + even));
            }
            "@" => args.push(vec![b'x'; 300_000]),
            word => args.push(word.into()),
        }
    }
    args
}

/// Executes a command in a mode; returns the outcome and the bytes of its reply.
fn run(keys: &Keyspace, session: &mut Session, args: &[Vec<u8>]) -> (Outcome, usize) {
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
    let ran = session.execute(
        keys,
        &args,
        TimeAndRandom { now: NOW, random: 5 },
        &mut Alone { may_write: true },
        &mut replies,
    );
    (ran.outcome, bytes.len())
}

#[test]
fn every_command_is_a_step_or_put_off_with_its_worst_arguments() {
    let named = |text: &str| command(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    let tried: BTreeSet<&str> = WORST.iter().map(|(text, _)| named(text).unwrap().name).collect();
    let has_work =
        |command: &&Command| matches!(command.place, Place::Keyspace(_)) && command.keys != Keys::None;
    let untried = COMMANDS.iter().filter(has_work).filter(|command| !tried.contains(command.name));
    let missing: Vec<_> = untried.map(|command| command.name).collect();
    assert!(missing.is_empty(), "without a worst case: {missing:?}");
    let keys = filled();
    for (command, expected) in WORST {
        let mut session = Session::default();
        session.set_mode(ExecutionMode::Short);
        let (outcome, bytes) = run(&keys, &mut session, &args(command));
        let is_long = outcome == Outcome::Deferred(DeferReason::IsLong);
        assert_eq!(if is_long { Long } else { Step }, *expected, "{command}: {outcome:?}");
        assert!(bytes <= KV_STEP_WORK_MAX + 1024 && (bytes == 0 || !is_long), "{command}: {bytes}");
    }
    // Deferred commands have changed nothing.
    let mut client = Client::new(&keys);
    assert_eq!(client.run("STRLEN big"), ":2000001");
    assert_eq!(client.run("EXISTS target moved new none"), ":0");
    assert_eq!(client.run("TTL big"), ":-1");
    assert_eq!(client.run("DBSIZE"), ":20005");
}

/// A command with a glob pattern is deferred if compiling the pattern and matching it with the entries of a step take
/// longer than a step.
#[test]
fn commands_with_costly_patterns_are_put_off() {
    let keys = filled();
    let mut client = Client::new(&keys);
    client.run("HSET little f v");
    let costly = "*[^a]".repeat(13_000);
    let middling = "?".repeat(300);
    for (command, expected) in [
        (format!("SCAN 0 MATCH {costly} COUNT 1"), Long),
        (format!("SCAN 0 COUNT 1000 MATCH {middling}"), Long),
        (format!("SCAN 0 COUNT 10 MATCH {middling}"), Step),
        (format!("SCAN 0 MATCH {middling}"), Step),
        (format!("SCAN 0 MATCH x MATCH {costly}"), Long),
        (format!("HSCAN little 0 MATCH {costly}"), Long),
        (format!("HSCAN little 0 COUNT 99999999 MATCH {middling}"), Long),
        (format!("HSCAN little 0 MATCH {middling}"), Step),
        (format!("KEYS {costly}"), Long),
    ] {
        let mut session = Session::default();
        session.set_mode(ExecutionMode::Short);
        let (outcome, _) = run(&keys, &mut session, &args(&command));
        let is_long = outcome == Outcome::Deferred(DeferReason::IsLong);
        assert_eq!(if is_long { Long } else { Step }, expected, "{}", &command[..40.min(command.len())]);
    }
}

#[test]
fn long_commands_are_executed_in_the_other_mode() {
    let keys = filled();
    let mut session = Session::default();
    session.set_mode(ExecutionMode::Short);
    assert_eq!(run(&keys, &mut session, &args("GET big")).0, Outcome::Deferred(DeferReason::IsLong));
    session.set_mode(ExecutionMode::Long);
    let (outcome, bytes) = run(&keys, &mut session, &args("GET big"));
    assert!(outcome == Outcome::Done && bytes > 2_000_000);
    assert_eq!(run(&keys, &mut session, &args("RENAME big moved")).0, Outcome::Done);
    session.set_mode(ExecutionMode::Short);
    assert_eq!(run(&keys, &mut session, &args("STRLEN moved")), (Outcome::Done, ":2000001\r\n".len()));
}

#[test]
fn no_command_waits_for_shards_that_a_long_one_has() {
    let keys = filled();
    let before = (keys.counts(), keys.count(0), keys.uses(), keys.spaces().len());
    let mut watching = Session::default();
    run(&keys, &mut watching, &args("WATCH small"));
    watching.set_mode(ExecutionMode::Short);
    let all: Vec<usize> = (0..SHARDS).collect();
    let (held, hold) = keys.hold_all(&all);
    // All shards are held by this thread, so a command that blocked on one would never return.
    for (command, expected) in WORST {
        let mut session = Session::default();
        session.set_mode(ExecutionMode::Short);
        let (outcome, bytes) = run(&keys, &mut session, &args(command));
        assert!(matches!(outcome, Outcome::Deferred(_)) && bytes == 0, "{command}: {outcome:?}");
        if *expected == Step {
            assert_eq!(outcome, Outcome::Deferred(DeferReason::IsHeld), "{command}");
        }
    }
    for command in ["UNWATCH", "WATCH other"] {
        assert_eq!(
            run(&keys, &mut watching, &args(command)).0,
            Outcome::Deferred(DeferReason::IsHeld),
            "{command}"
        );
    }
    assert_eq!(run(&keys, &mut watching, &args("MULTI")).0, Outcome::Done);
    assert_eq!(run(&keys, &mut watching, &args("GET small")).0, Outcome::Queued);
    for command in ["EXEC", "DISCARD"] {
        assert_eq!(
            run(&keys, &mut watching, &args(command)).0,
            Outcome::Deferred(DeferReason::IsHeld),
            "{command}"
        );
    }
    // Counts of keys are those copied when the shards were locked; reading them does not block.
    assert_eq!((keys.counts(), keys.count(0), keys.uses(), keys.spaces().len()), before);
    assert!(!keys.tidy(NOW));
    let releases = keys.releases();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(keys.poll_released(releases, &mut context).is_pending());
    drop((held, hold));
    assert!(keys.poll_released(releases, &mut context).is_ready() && keys.take_waited());
    // The deferred transaction is still queued, and its keys are still watched, so that it can be executed now.
    let (outcome, bytes) = run(&keys, &mut watching, &args("EXEC"));
    assert_eq!((outcome, bytes), (Outcome::Done, "*1\r\n$1\r\n1\r\n".len()));
}

#[test]
fn a_transaction_of_much_work_is_put_off_and_one_of_too_much_is_refused() {
    let keys = filled();
    let exec = |mode: ExecutionMode, commands: &[(&str, usize)]| {
        let mut session = Session::default();
        session.set_mode(ExecutionMode::Long);
        run(&keys, &mut session, &args("MULTI"));
        for (command, times) in commands {
            for _ in 0..*times {
                run(&keys, &mut session, &args(command));
            }
        }
        session.set_mode(mode);
        run(&keys, &mut session, &args("EXEC")).0
    };
    assert_eq!(exec(ExecutionMode::Short, &[("GET small", 10), ("INCR small", 10)]), Outcome::Done);
    run(&keys, &mut Session::default(), &args("HSET little f v"));
    // Each of these commands alone takes less than a step; two together in a transaction take longer.
    let scan = format!("HSCAN little 0 COUNT 1000 MATCH {}", "?".repeat(200));
    assert_eq!(exec(ExecutionMode::Short, &[(&scan, 1)]), Outcome::Done);
    assert_eq!(exec(ExecutionMode::Short, &[(&scan, 2)]), Outcome::Deferred(DeferReason::IsLong));
    let long = Outcome::Deferred(DeferReason::IsLong);
    for commands in [
        &[("GET small", 2000)][..],
        &[("BITCOUNT big", 1)],
        &[("MGET big other", 1)],
        &[("HGET hash long", 1)],
        &[("KEYS nothing", 1)],
        // Transactions whose first command makes the value large that a later command reads.
        &[("SETRANGE new 1000000 x", 1), ("BITCOUNT new", 1)],
        &[("COPY big target DB 1", 1), ("SELECT 1", 1), ("BITCOUNT target", 1)],
    ] {
        assert_eq!(exec(ExecutionMode::Short, commands), long, "{commands:?}");
    }
    assert_eq!(exec(ExecutionMode::Long, &[("BITCOUNT big", 10), ("KEYS nothing", 2)]), Outcome::Done);
    let too_many = KV_EXEC_WORK_MAX / 2_000_000 + 2;
    assert_eq!(exec(ExecutionMode::Long, &[("BITCOUNT big", too_many)]), Outcome::Failed);
    assert_eq!(
        exec(ExecutionMode::Long, &[("SETRANGE new 500000000 x", 1), ("BITCOUNT new", 10)]),
        Outcome::Failed
    );
    let mut client = Client::new(&keys);
    assert_eq!(client.run("EXISTS new"), ":0");
}

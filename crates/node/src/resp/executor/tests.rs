//! Tests of fairness: every command with its worst arguments, sent by one tenant next to a GET of another.
//!
//! Bounds are counted in turns, bytes and requests, not in time. The cost of a single turn is bounded by `farpool_kv`'s
//! test of steps.

use super::*;
use crate::Caller;
use crate::access::Access;
use crate::caller::tests::exercise::{exercise, load};
use crate::node::NodeConfig;
use crate::rights::{Right, VERBS};
use farpool_kv::{COMMANDS, KeyChange, KeyState, ReadEntry, TimeAndRandom};
use farpool_model::{ErrorKind, Expr, LoadMode, NamedExpr, Output, Program, Result, TableName, TenantName};

/// Requests that take longer than the same commands with many or with long arguments.
const HEAVY: &[&str] = &[
    "BITCOUNT big",
    "CLIENT LIST",
    "CLIENT KILL USER a USER a USER a",
    "COMMAND DOCS",
    "CONFIG GET *a*b*c*d*e*f*g*",
    "CONFIG SET maxmemory 0 maxmemory-policy allkeys-lru",
    "COPY big copy REPLACE",
    "FLUSHALL",
    "FP.SCAN default value~'(a|a)*b' LIMIT 1000000",
    "FP.SPACE CREATE key",
    "GET big",
    "INFO everything",
    "KEYS *[b-z]*a*b*c*?*z",
    "MSET key:1 a key:2 b key:3 c",
    "RENAME big other",
    "SCAN 0 MATCH *[b-z]*a*b COUNT 1000000",
    "SETRANGE new 500000000 x",
    "SLOWLOG GET -1",
];

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn node() -> Arc<Node> {
    let access = Access::of_nobody().with_token("anns", tenant("ann"), Right::Admin).with_token(
        "bobs",
        tenant("bob"),
        Right::Write,
    );
    Node::start(NodeConfig { memory_bytes: 256 << 20, access, ..NodeConfig::default() }).unwrap()
}

fn executor(node: &Arc<Node>, token: &str) -> RequestExecutor {
    let mut client = Client::new(node, &Arc::default(), 1, ("peer".into(), "local".into()));
    client.admit(Some(token)).unwrap();
    RequestExecutor::new(node, client, 1)
}

fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for argument in args {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn words(text: &str) -> Vec<u8> {
    request(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Returns requests with few, many and long arguments for each command, and those of [`HEAVY`], each with a name for
/// messages.
fn requests() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let long = vec![b'x'; 600_000];
    for command in COMMANDS {
        let (name, arity) = (command.name, command.arity.unsigned_abs());
        let words: Vec<&[u8]> = name.split('|').map(str::as_bytes).collect();
        let with = |count: usize, argument: &'static [u8]| {
            let more = std::iter::repeat_n(argument, count);
            words.iter().copied().chain(more).collect::<Vec<_>>()
        };
        let few = arity.saturating_sub(words.len());
        all.push((name.to_string(), request(&with(few, b"x"))));
        all.push((format!("{name}, many"), request(&with(50_000, b"x"))));
        let mut args = with(few, b"x");
        args.push(&long);
        all.push((format!("{name}, long"), request(&args)));
    }
    all.extend(HEAVY.iter().map(|text| ((*text).to_string(), words(text))));
    all
}

/// Executes a request as far as the serving thread of a connection would do; returns the progress. Asserts that each
/// turn is within the limits on bytes, and the number of turns as well.
fn drive(executor: &mut RequestExecutor, (name, bytes): &(String, Vec<u8>)) -> ExecutorProgress {
    executor.received.extend_from_slice(bytes);
    let turns_max = bytes.len() / limits::KV_STEP_WORK_MAX + 2;
    for _ in 0..turns_max {
        executor.replies.clear();
        let progress = executor.carry_out();
        assert!(
            executor.replies.len() <= limits::KV_STEP_WORK_MAX + 4096,
            "{name}: {}",
            executor.replies.len()
        );
        match progress {
            ExecutorProgress::HasMore => {}
            other => return other,
        }
    }
    panic!("{name}: more than {turns_max} turns");
}

/// Checks that a `GET` of another tenant is answered within one turn.
fn probe(other: &mut RequestExecutor, name: &str) {
    other.replies.clear();
    other.received.extend_from_slice(&words("GET probe"));
    // `HasMore` is accepted because the time limit of the turn may have passed just after the reply.
    assert!(matches!(other.carry_out(), ExecutorProgress::Waits | ExecutorProgress::HasMore), "{name}");
    assert_eq!(other.replies, b"$1\r\n1\r\n", "{name}");
}

fn ask(executor: &mut RequestExecutor, text: &str) {
    match drive(executor, &(text.to_string(), words(text))) {
        ExecutorProgress::Long => drop(executor.carry_out_long()),
        progress => assert!(matches!(progress, ExecutorProgress::Waits), "{text}"),
    }
    executor.replies.clear();
}

fn filled() -> (Arc<Node>, RequestExecutor) {
    let node = node();
    let (mut a, mut b) = (executor(&node, "anns"), executor(&node, "bobs"));
    ask(&mut a, "SETRANGE big 3000000 x");
    for start in (0..4_000).step_by(400) {
        let pairs: Vec<String> = (start..start + 400).map(|number| format!("key:{number} value")).collect();
        ask(&mut a, &format!("MSET {}", pairs.join(" ")));
    }
    ask(&mut b, "SET probe 1");
    (node, b)
}

/// Prepares a program that reads the keys of a tenant.
fn scan(caller: &Caller) -> Result<()> {
    let name = TableName::new("default").unwrap();
    let (version, table) = caller.source(&name)?;
    let key = NamedExpr { name: "key".to_string(), expr: Expr::Column(0) };
    let output = Output::Rows(vec![key]);
    let program = Program {
        table: name,
        version: None,
        lookups: Vec::new(),
        filter: None,
        output,
        having: None,
        order: Vec::new(),
        limit: None,
    };
    caller.prepare(&program, version, table).map(drop)
}

#[test]
fn every_command_leaves_the_thread_within_its_turns() {
    let (node, mut other) = filled();
    for wanted in &requests() {
        let mut executor = executor(&node, "anns");
        let progress = drive(&mut executor, wanted);
        probe(&mut other, &wanted.0);
        match progress {
            ExecutorProgress::Long => {
                executor.replies.clear();
                executor.carry_out_long();
                assert!(!executor.replies.is_empty(), "{}", wanted.0);
            }
            // A request that exceeds the limits of the protocol.
            ExecutorProgress::Waits | ExecutorProgress::Leaves | ExecutorProgress::Paused => {}
            ExecutorProgress::Held(_) | ExecutorProgress::HasMore => panic!("{}", wanted.0),
        }
    }
}

#[test]
fn settings_and_commands_are_not_searched_with_costly_patterns_on_the_thread_of_a_connection() {
    let node = node();
    let costly = "*[^a]".repeat(13_000);
    for command in ["CONFIG GET", "CONFIG GET maxmemory", "COMMAND LIST FILTERBY PATTERN"] {
        let mut executor = executor(&node, "anns");
        let wanted = words(&format!("{command} {costly}"));
        assert!(
            matches!(drive(&mut executor, &(command.into(), wanted)), ExecutorProgress::Long),
            "{command}"
        );
        executor.carry_out_long();
        assert!(executor.replies.starts_with(b"*"), "{command}");
    }
    for command in ["CONFIG GET max*", "COMMAND LIST FILTERBY PATTERN get*"] {
        let progress = drive(&mut executor(&node, "anns"), &(command.into(), words(command)));
        assert!(matches!(progress, ExecutorProgress::Waits), "{command}");
    }
}

/// While a long command of the same tenant holds (locks) all keys, every other command and request is either deferred
/// at once or executed without waiting for keys.
#[test]
fn no_command_and_no_verb_waits_for_a_long_command() {
    let (node, mut other) = filled();
    let caller = node.caller(Some("anns")).unwrap();
    let [own, others] = ["own", "others"].map(|name| TableName::new(name).unwrap());
    load(&node.caller(Some("bobs")).unwrap(), &others, LoadMode::Create).unwrap();
    let keys = caller.keys().unwrap();
    let cut = keys.cut(0, 0);
    let changes: Vec<KeyChange> = (0..4_000)
        .map(|number| KeyChange {
            key: format!("key:{number}").into_bytes(),
            expected: None,
            what: KeyState::Remove,
        })
        .collect();
    ask(&mut executor(&node, "anns"), "SET key:7 changed");
    let mut puts_off = 0;
    let mut again = |entries: &[ReadEntry<'_>], _| {
        assert_eq!(entries.len(), 1);
        for wanted in &requests() {
            let mut executor = executor(&node, "anns");
            let progress = drive(&mut executor, wanted);
            puts_off += usize::from(matches!(progress, ExecutorProgress::Long | ExecutorProgress::Held(_)));
            probe(&mut other, &wanted.0);
        }
        for (verb, ..) in VERBS {
            // Loaded for each verb, because some verbs drop the table.
            load(&caller, &own, LoadMode::Replace).unwrap();
            assert_eq!(exercise(verb, &caller, &own), Ok(()), "{verb:?}");
            probe(&mut other, &format!("{verb:?}"));
        }
        // Reading keys over the native protocol fails with `Busy`.
        assert_eq!(scan(&caller).unwrap_err().kind, ErrorKind::Busy);
        scan(&node.caller(Some("bobs")).unwrap()).unwrap();
        Ok(vec![Some(KeyState::Remove)])
    };
    let moment = TimeAndRandom { now: node.keyspaces().time().now_ms(), random: 1 };
    keys.change((0, None), &changes, (Some(&cut), Some(&mut again)), moment).unwrap();
    assert!(puts_off > 200, "{puts_off}");
}

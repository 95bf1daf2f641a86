//! Tests of cuts (point-in-time views of the entries of a space): their contents are compared with copies of a map,
//! while keys change, move in memory and expire.

use super::*;
use crate::resp::{Protocol, Replies};
use crate::{Args, ExecutionMode, NoHost, Session, TimeAndRandom};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::TenantName;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: u64 = 1_700_000_000_000;

fn run(keys: &Keyspace, now: u64, args: &Args<'_>) -> Vec<u8> {
    run_at(ExecutionMode::Long, keys, now, args)
}

fn run_at(mode: ExecutionMode, keys: &Keyspace, now: u64, args: &Args<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
    let moment = TimeAndRandom { now, random: 1 };
    let mut session = Session::default();
    session.set_mode(mode);
    session.execute(keys, args, moment, &mut NoHost, &mut replies);
    assert!(!bytes.starts_with(b"-"), "{}", bytes.escape_ascii());
    bytes
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// Reads all strings of a cut, divided into parts of `parts` (entries, bytes). Asserts that each key occurs once.
fn read(cut: &KeyCut, parts: (usize, usize)) -> Result<Model> {
    let mut all = Model::new();
    for part in cut.parts(parts.0, parts.1)? {
        let mut entries = 0;
        let count = cut.read(&part, None, |some| {
            for entry in some {
                entries += 1;
                let value = entry.string().map(<[u8]>::to_vec).unwrap_or_default();
                assert!(all.insert(entry.key().to_vec(), (value, entry.expiry())).is_none(), "a key twice");
            }
        })?;
        assert!(entries <= part.entries() && count.entries == entries);
    }
    Ok(all)
}

fn keyspace(mib: usize) -> (Arc<Pool>, Arc<Keyspace>) {
    let pool = Pool::new(PoolConfig { bytes_limit: mib << 20 }).unwrap();
    let keys = Arc::new(Keyspace::new(&pool, &TenantName::default(), [7; 16], 4));
    (pool, keys)
}

#[derive(Clone, Debug)]
enum Op {
    Set(u16, u16),
    Append(u16, u16),
    Delete(u16),
    Expire(u16, u64),
    Later(u64),
    Tidy,
    Flush,
    Cut,
    Read(usize),
    End(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0_u16..60;
    prop_oneof![
        8 => (key(), 0_u16..3000).prop_map(|(key, bytes)| Op::Set(key, bytes)),
        3 => (key(), 0_u16..300).prop_map(|(key, bytes)| Op::Append(key, bytes)),
        5 => key().prop_map(Op::Delete),
        2 => (key(), 1_u64..5000).prop_map(|(key, after)| Op::Expire(key, after)),
        1 => (1_u64..2000).prop_map(Op::Later),
        3 => Just(Op::Tidy),
        1 => Just(Op::Flush),
        3 => Just(Op::Cut),
        3 => (0_usize..4).prop_map(Op::Read),
        2 => (0_usize..4).prop_map(Op::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_cut_has_what_was_there(ops in prop::collection::vec(op(), 1..300)) {
        let (pool, keys) = keyspace(64);
        let (mut model, mut now) = (Model::new(), NOW);
        let mut cuts: Vec<(KeyCut, Model)> = Vec::new();
        let name = |key: u16| format!("key:{key}").into_bytes();
        for op in ops {
            model.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
            match op {
                Op::Set(key, bytes) => {
                    let value = vec![key as u8 ^ bytes as u8; bytes.into()];
                    run(&keys, now, &[b"SET", &name(key), &value]);
                    model.insert(name(key), (value, None));
                }
                Op::Append(key, bytes) => {
                    let more = vec![bytes as u8; bytes.into()];
                    run(&keys, now, &[b"APPEND", &name(key), &more]);
                    model.entry(name(key)).or_default().0.extend_from_slice(&more);
                }
                Op::Delete(key) => {
                    run(&keys, now, &[b"DEL", &name(key)]);
                    model.remove(&name(key));
                }
                Op::Expire(key, after) => {
                    run(&keys, now, &[b"PEXPIRE", &name(key), after.to_string().as_bytes()]);
                    if let Some((_, expiry)) = model.get_mut(&name(key)) {
                        *expiry = Some(now + after);
                    }
                }
                Op::Later(after) => now += after,
                Op::Tidy => drop(keys.tidy(now)),
                Op::Flush => {
                    run(&keys, now, &[b"FLUSHDB"]);
                    model.clear();
                }
                Op::Cut if cuts.len() < 4 => cuts.push((keys.cut(0, now), model.clone())),
                Op::Cut => {}
                Op::Read(at) => {
                    if let Some((cut, then)) = cuts.get(at) {
                        prop_assert_eq!(&read(cut, (at * 7 + 1, 10_000)).unwrap(), then);
                    }
                }
                Op::End(at) => {
                    if at < cuts.len() {
                        drop(cuts.swap_remove(at));
                    }
                }
            }
        }
        for (cut, then) in &cuts {
            prop_assert_eq!(&read(cut, (1000, 1 << 20)).unwrap(), then);
        }
        cuts.clear();
        // All memory is free after the keys and the cuts are gone, so no slot stays kept for a cut.
        run(&keys, now, &[b"FLUSHALL"]);
        while keys.tidy(now) {}
        prop_assert_eq!(pool.bytes_used(), 0);
    }
}

#[test]
fn a_cut_gives_way_where_memory_is_short() {
    let (_pool, keys) = keyspace(8);
    let value = vec![1; 1000];
    let set = |round: usize| {
        for key in 0..4000 {
            run(&keys, NOW, &[b"SET", format!("{key}:{round}").as_bytes(), &value]);
            if round > 0 {
                run(&keys, NOW, &[b"DEL", format!("{key}:{}", round - 1).as_bytes()]);
            }
        }
    };
    set(0);
    let cut = keys.cut(0, NOW);
    // Overwrites all keys twice, for which there is too little memory while the cut keeps the old entries.
    (1..3).for_each(set);
    assert_eq!(run(&keys, NOW, &[b"DBSIZE"]), b":4000\r\n");
    let error = read(&cut, (1000, 1 << 20)).unwrap_err();
    assert_eq!(error.kind, farpool_model::ErrorKind::Stale);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test has threads of its own")]
fn every_key_is_seen_once_while_others_write() {
    let (_pool, keys) = keyspace(64);
    for key in 0..2000 {
        run(&keys, NOW, &[b"MSET", format!("a{key}").as_bytes(), b"1", format!("b{key}").as_bytes(), b"1"]);
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (keys, stop) = (&keys, &stop);
        for writer in 0..2 {
            scope.spawn(move || {
                let mut round = 1_usize;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    round += 1;
                    // Each `MSET` sets both keys of a pair to the same value, of varying size, so that a cut must never
                    // see them differ.
                    let value = vec![b'0' + (round % 10) as u8; round * 37 % 700 + 1];
                    let key = (round * 7 + writer * 1000) % 2000;
                    let (a, b) = (format!("a{key}"), format!("b{key}"));
                    let args: [&[u8]; 5] = [b"MSET", a.as_bytes(), &value, b.as_bytes(), &value];
                    run_at(ExecutionMode::Short, keys, NOW, &args);
                    if round.is_multiple_of(100) {
                        keys.tidy(NOW);
                    }
                }
            });
        }
        for _ in 0..50 {
            let all = read(&keys.cut(0, NOW), (500, 1 << 20)).unwrap();
            assert_eq!(all.len(), 4000);
            for key in 0..2000 {
                let of = |letter: char| &all[format!("{letter}{key}").as_bytes()];
                assert_eq!(of('a'), of('b'), "a half of a change");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

//! Tests of value compression: spaces with each codec are compared with one without. Commands must have the same
//! replies, and replaying log records must give the same keys.

use super::{Compression, Packer};
use crate::cut::ReadEntry;
use crate::resp::{Protocol, Replies};
use crate::{Journal, Keyspace, NoHost, Replay, Session, TimeAndRandom, Walk};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::limits::KV_PACKED_BYTES_MAX;
use farpool_model::{Result, TenantName};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

/// The spaces of the tests, by codec (also the name of the space) and key prefix. All prefixes have the same length, so
/// that entries have the same sizes.
const SPACES: [(&str, &str); 4] = [("none", "n:"), ("lz4", "l:"), ("deflate", "d:"), ("fsst", "f:")];

#[derive(Clone, Default)]
struct RecordingJournal(Arc<Mutex<Vec<Vec<u8>>>>);

impl Journal for RecordingJournal {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn begin(&self, _: &mut Vec<u8>) {}

    fn append(&self, record: &[u8]) -> Result<u64> {
        let mut records = self.0.lock();
        records.push(record.to_vec());
        Ok(records.len() as u64)
    }
}

fn keyspace() -> Arc<Keyspace> {
    let pool = Pool::new(PoolConfig { bytes_limit: 64 << 20 }).unwrap();
    Arc::new(Keyspace::new(&pool, &TenantName::default(), [7; 16], 3))
}

fn run(keys: &Keyspace, now: u64, args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
    Session::default().execute(keys, args, TimeAndRandom { now, random: now }, &mut NoHost, &mut replies);
    bytes
}

fn create_spaces(keys: &Keyspace) {
    for (codec, prefix) in SPACES {
        let name = format!("of_{codec}");
        let args = ["FP.SPACE", "CREATE", &name, "PREFIX", prefix, "COMPRESSION", codec];
        assert_eq!(run(keys, NOW, &args.map(str::as_bytes)), b"+OK\r\n");
    }
}

fn space_id(keys: &Keyspace, codec: &str) -> u32 {
    keys.spaces().named(&format!("of_{codec}")).unwrap().id
}

/// Returns a realistic, compressible value (a web session) of about `bytes` bytes.
fn session(number: usize, bytes: usize) -> Vec<u8> {
    let mut text =
        format!("{{\"session_id\":\"{:016x}\",\"cart\":[", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    while text.len() < bytes {
        let sku = number * 31 + text.len() * 17;
        text += &format!("{{\"sku\":\"SKU-{sku:06}\",\"quantity\":{},\"currency\":\"EUR\"}},", number % 9);
    }
    text.into_bytes()
}

/// Returns incompressible bytes.
fn noise(number: usize, bytes: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(next).collect()
}

/// Sets `count` values in each space, trains the dictionaries and recompresses existing values.
fn fill(keys: &Keyspace, count: usize, value: impl Fn(usize) -> Vec<u8>) {
    for (_, prefix) in SPACES {
        for number in 0..count {
            let key = format!("{prefix}first:{number}");
            assert_eq!(run(keys, NOW, &[b"SET", key.as_bytes(), &value(number)]), b"+OK\r\n");
        }
    }
    while keys.tidy(NOW) {}
}

fn packed(keys: &Keyspace, codec: &str) -> usize {
    let id = space_id(keys, codec);
    (0..keys.shards()).filter_map(|shard| keys.lock(shard).table(id).map(|table| table.packed())).sum()
}

/// Returns the strings of all spaces as clients read them.
fn strings(keys: &Arc<Keyspace>, now: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for (codec, _) in SPACES {
        let cut = keys.cut(space_id(keys, codec), now);
        for part in cut.parts(64, 64 << 10).unwrap() {
            let (mut entries, mut bytes) = (0, 0);
            let mut each = |entry: ReadEntry<'_>| {
                (entries, bytes) = (entries + 1, bytes + entry.value().len());
                let mut value = entry.string().map_or_else(|| b"a hash".to_vec(), <[u8]>::to_vec);
                // Clears the cardinality that `PFCOUNT` caches in a HyperLogLog, because the log does not record it.
                if let Some(count) = value.get_mut(8..16).filter(|_| entry.value().starts_with(b"HYLL")) {
                    count.fill(0);
                }
                assert!(found.insert(entry.key().to_vec(), value).is_none());
            };
            cut.read(&part, None, |entries| entries.iter().for_each(|entry| each(*entry))).unwrap();
            assert!(entries <= part.entries() && bytes <= part.bytes(), "{bytes} of {}", part.bytes());
        }
    }
    found
}

/// A command; a key is written as `@` and a digit, where `@` stands for the prefix of the space.
type Line = Vec<Vec<u8>>;

fn in_space(line: &Line, prefix: &str) -> Line {
    let given = |argument: &Vec<u8>| match argument[..] {
        [b'@', digit @ b'0'..=b'9'] => [prefix.as_bytes(), &[digit]].concat(),
        _ => argument.clone(),
    };
    line.iter().map(given).collect()
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![8 => 0..1500usize, 1 => 0..40_000usize];
    prop_oneof![
        4 => (any::<u16>(), bytes.clone()).prop_map(|(number, bytes)| session(number.into(), bytes)),
        1 => (any::<u16>(), bytes.clone()).prop_map(|(number, bytes)| noise(number.into(), bytes)),
        1 => (any::<u8>(), bytes).prop_map(|(byte, bytes)| vec![byte; bytes]),
        1 => any::<i32>().prop_map(|number| number.to_string().into_bytes()),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    let key = || (0..6u8).prop_map(|key| format!("@{key}").into_bytes());
    let number = |range: std::ops::Range<i64>| range.prop_map(|number| number.to_string().into_bytes());
    let of = |name: &'static str| move |rest: Vec<Vec<u8>>| [vec![name.into()], rest].concat();
    let field = || (0..5u8).prop_map(|field| format!("field_{field}").into_bytes());
    let small = || {
        (any::<u16>(), 1..60usize)
            .prop_map(|(number, bytes)| session(number.into(), 0)[..bytes.min(40)].to_vec())
    };
    prop_oneof![
        6 => (key(), value()).prop_map(|(k, v)| vec![k, v]).prop_map(of("SET")),
        2 => (key(), value(), key(), value()).prop_map(|(a, v, b, w)| vec![a, v, b, w]).prop_map(of("MSET")),
        2 => (key(), value()).prop_map(|(k, v)| vec![k, v]).prop_map(of("APPEND")),
        2 => (key(), number(0..2000), value()).prop_map(|(k, n, v)| vec![k, n, v]).prop_map(of("SETRANGE")),
        2 => (key(), number(-200..900), number(-200..2000)).prop_map(|(k, a, b)| vec![k, a, b]).prop_map(of("GETRANGE")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("STRLEN")),
        2 => key().prop_map(|k| vec![k]).prop_map(of("GET")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("INCR")),
        1 => (key(), number(0..20_000), number(0..2)).prop_map(|(k, n, b)| vec![k, n, b]).prop_map(of("SETBIT")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("BITCOUNT")),
        2 => (key(), field(), small(), field(), small()).prop_map(|(k, f, v, g, w)| vec![k, f, v, g, w]).prop_map(of("HSET")),
        1 => (key(), field(), value()).prop_map(|(k, f, v)| vec![k, f, v]).prop_map(of("HSET")),
        1 => (key(), field()).prop_map(|(k, f)| vec![k, f]).prop_map(of("HDEL")),
        1 => (key(), field()).prop_map(|(k, f)| vec![k, f]).prop_map(of("HGET")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("HGETALL")),
        1 => (key(), field()).prop_map(|(k, f)| vec![k, f, b"7".to_vec()]).prop_map(of("HINCRBY")),
        1 => (key(), number(1..40)).prop_map(|(k, n)| vec![k, n]).prop_map(of("PEXPIRE")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("PERSIST")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("PTTL")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("DEL")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("GETDEL")),
        1 => (key(), key()).prop_map(|(a, b)| vec![a, b]).prop_map(of("RENAME")),
        1 => (key(), key()).prop_map(|(a, b)| vec![a, b, b"REPLACE".to_vec()]).prop_map(of("COPY")),
        1 => key().prop_map(|k| vec![b"ENCODING".to_vec(), k]).prop_map(of("OBJECT")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("TYPE")),
        1 => (key(), value()).prop_map(|(k, v)| vec![k, v]).prop_map(of("FP.UPDATE")),
        1 => (key(), value(), value()).prop_map(|(k, v, w)| vec![k, v, w]).prop_map(of("FP.CAS")),
        1 => key().prop_map(|k| vec![k, b"u8@40 > 57 or bytes[0:2] = '{\"'".to_vec()]).prop_map(of("FP.CGET")),
        1 => (key(), small()).prop_map(|(k, v)| vec![k, v]).prop_map(of("PFADD")),
        1 => key().prop_map(|k| vec![k]).prop_map(of("PFCOUNT")),
    ]
}

fn assert_same(found: &BTreeMap<Vec<u8>, Vec<u8>>, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for key in found.keys().chain(expected.keys()) {
        let shown = |of: &BTreeMap<Vec<u8>, Vec<u8>>| {
            of.get(key).map(|value| (value.len(), value[..value.len().min(64)].escape_ascii().to_string()))
        };
        let is_same = found.get(key) == expected.get(key);
        assert!(is_same, "{}: {:?}, not {:?}", key.escape_ascii(), shown(found), shown(expected));
    }
}

/// Checks that the records, and those of a later walk, give the current strings.
fn check_records(keys: &Arc<Keyspace>, kept: &RecordingJournal, now: u64) {
    let expected = strings(keys, now);
    let replayed = keyspace();
    let mut replay = Replay::default();
    kept.0.lock().iter().for_each(|record| replay.apply(&replayed, record).unwrap());
    assert_same(&strings(&replayed, now), &expected);
    let (walked, of_walk, mut walk) = (keyspace(), RecordingJournal::default(), Walk::default());
    while keys.walk(&mut walk, &of_walk).unwrap() {}
    let mut replay = Replay::default();
    of_walk.0.lock().iter().for_each(|record| replay.apply(&walked, record).unwrap());
    // Applies all records on top of the walk, which has the effects of some of them already.
    kept.0.lock().iter().for_each(|record| replay.apply(&walked, record).unwrap());
    assert_same(&strings(&walked, now), &expected);
    for again in [&replayed, &walked] {
        for (id, packer) in keys.spaces().packers() {
            assert!(again.spaces().packer(id).unwrap().is_like(packer));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn commands_see_the_same_in_every_space(
        lines in prop::collection::vec((line(), 0..8u64), 1..120),
        has_dictionary: bool,
    ) {
        let (keys, kept) = (keyspace(), RecordingJournal::default());
        keys.set_journal(Box::new(kept.clone()));
        create_spaces(&keys);
        if has_dictionary {
            fill(&keys, 300, |number| session(number, 100));
        }
        let mut now = NOW;
        for (line, passed) in lines {
            let mut replies = SPACES.map(|(_, prefix)| {
                let line = in_space(&line, prefix);
                run(&keys, now, &line.iter().map(|argument| &**argument).collect::<Vec<_>>())
            });
            // Sorted, because the fields of a hash have no defined order.
            if line[0] == b"HGETALL" {
                replies.iter_mut().for_each(|reply| reply.sort_unstable());
            }
            for ((codec, _), reply) in SPACES.iter().zip(&replies).skip(1) {
                prop_assert!(*reply == replies[0], "{codec}: {:?}", line.iter().map(|a| a.escape_ascii().to_string()).collect::<Vec<_>>());
            }
            if passed == 0 {
                keys.tidy(now);
            }
            now += passed;
        }
        check_records(&keys, &kept, now);
    }

    #[test]
    fn values_come_back_and_damage_is_an_error(
        values in prop::collection::vec(value(), 1..8),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        sample in prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 0..9000), Just(session(3, 9000))],
    ) {
        for compression in Compression::ALL {
            let packer = Packer::new(compression, &sample);
            for value in &values {
                let mut out = b"before".to_vec();
                if !packer.pack(value, value.len(), &mut out) {
                    prop_assert_eq!(&out, b"before");
                    continue;
                }
                prop_assert!(value.len() <= KV_PACKED_BYTES_MAX && out.len() - 6 <= value.len());
                let mut plain = vec![0xee; value.len()];
                packer.unpack(&out[6..], &mut plain).unwrap();
                prop_assert_eq!(&plain, value);
                // Unpacking fails if the buffer has another length than the plain value.
                packer.unpack(&out[6..], &mut vec![0; value.len() + 1]).unwrap_err();
                packer.unpack(&out[6..], &mut vec![0; value.len() - 1]).unwrap_err();
                packer.unpack(&out[6..out.len() - 1], &mut plain).ok();
                for (at, byte) in &damage {
                    let at = 6 + at.index(out.len() - 6);
                    out[at] ^= byte;
                    packer.unpack(&out[6..], &mut plain).ok();
                }
            }
        }
    }
}

#[test]
fn entries_take_less_memory_and_noise_stays_as_it_is() {
    let bytes_of = |value: &dyn Fn(usize) -> Vec<u8>| {
        let keys = keyspace();
        create_spaces(&keys);
        fill(&keys, 3000, value);
        let bytes = SPACES.map(|(codec, _)| keys.count(space_id(&keys, codec)).bytes);
        (bytes, SPACES.map(|(codec, _)| packed(&keys, codec)))
    };
    for (bytes, most) in [(100, [100, 72, 101, 72]), (500, [100, 50, 60, 50]), (2000, [100, 40, 35, 40])] {
        let (taken, packed) = bytes_of(&|number| session(number, bytes));
        let percent = taken.map(|bytes| bytes * 100 / taken[0]);
        assert!(
            percent.iter().zip(most).all(|(percent, most)| *percent <= most),
            "{bytes}: {percent:?} {packed:?}"
        );
        assert_eq!(packed[0], 0);
    }
    // A few values of noise are packed, because they are part of the dictionary themselves.
    let (taken, packed) = bytes_of(&|number| noise(number, 300));
    assert!(packed.iter().all(|packed| *packed <= 16), "{packed:?}");
    assert!(taken.iter().all(|bytes| bytes.abs_diff(taken[0]) <= taken[0] / 8), "{taken:?}");
}

#[test]
fn the_first_values_make_a_dictionary_and_are_packed_with_it() {
    let (keys, kept) = (keyspace(), RecordingJournal::default());
    keys.set_journal(Box::new(kept.clone()));
    create_spaces(&keys);
    let dictionary = |codec: &str| {
        let packer = keys.spaces().packer(space_id(&keys, codec)).cloned();
        packer.map_or(0, |packer| packer.dictionary().len())
    };
    let set = |number: usize| {
        for (_, prefix) in SPACES {
            let key = format!("{prefix}{number}");
            run(&keys, NOW, &[b"SET", key.as_bytes(), &session(number, 120)]);
        }
    };
    (0..200).for_each(set);
    while keys.tidy(NOW) {}
    assert_eq!(["lz4", "deflate", "fsst"].map(dictionary), [0; 3]);
    assert_eq!(packed(&keys, "fsst"), 0);
    // Spaces whose values are together too short for a dictionary, some of which come before the others in the order of
    // prefixes.
    for name in ["s1", "s2", "s3", "s4", "s5", "s6"] {
        run(&keys, NOW, &[b"FP.SPACE", b"CREATE", name.as_bytes(), b"COMPRESSION", b"fsst"]);
        (0..300).for_each(|number| {
            run(&keys, NOW, &[b"SET", format!("{name}:{number}").as_bytes(), b"1"]);
        });
    }
    while keys.tidy(NOW) {}
    let before = keys.uses().bytes;
    (200..300).for_each(set);
    // Maintenance at several times, because the space for which it first tries to train a dictionary depends on the
    // time.
    (0..8).for_each(|tick| while keys.tidy(NOW + tick * 100) {});
    assert_eq!(keys.spaces().packer(keys.spaces().named("s1").unwrap().id).unwrap().dictionary(), b"");
    while keys.tidy(NOW) {}
    let spaces = keys.spaces();
    assert!(dictionary("lz4") == 4096 && dictionary("fsst") > 8192 && dictionary("deflate") == 0);
    assert_eq!(["lz4", "fsst"].map(|codec| packed(&keys, codec)), [300; 2]);
    // The memory of the dictionaries counts as memory of the tenant's keys.
    assert!(keys.uses().bytes > before + (200 << 10), "{} {before}", keys.uses().bytes);
    // Dictionaries stay when other spaces are created and dropped, and when the log is replayed, as at a restart.
    run(&keys, NOW, &[b"FP.SPACE", b"CREATE", b"more", b"COMPRESSION", b"fsst"]);
    assert!(Arc::ptr_eq(keys.spaces().named("of_lz4").unwrap(), spaces.named("of_lz4").unwrap()));
    assert!(dictionary("lz4") == 4096 && dictionary("fsst") > 8192);
    check_records(&keys, &kept, NOW);
    let replayed = keyspace();
    let mut replay = Replay::default();
    kept.0.lock().iter().for_each(|record| replay.apply(&replayed, record).unwrap());
    while replayed.tidy(NOW) {}
    assert_eq!(["lz4", "fsst"].map(|codec| packed(&replayed, codec)), [300; 2]);
    let taken = keys.uses().bytes;
    assert_eq!(run(&keys, NOW, &[b"FP.SPACE", b"DROP", b"of_fsst"]), b"+OK\r\n");
    while keys.tidy(NOW) {}
    assert_eq!(run(&keys, NOW, &[b"GET", b"f:7"]), run(&keys, NOW, &[b"GET", b"n:7"]));
    assert!(keys.uses().bytes < taken - (150 << 10), "{} {taken}", keys.uses().bytes);
}

#[test]
fn a_cut_reads_what_was_packed_while_values_change_and_packers_do() {
    let keys = keyspace();
    create_spaces(&keys);
    fill(&keys, 400, |number| session(number, 200));
    let expected = strings(&keys, NOW);
    let cuts = SPACES.map(|(codec, _)| keys.cut(space_id(&keys, codec), NOW));
    for number in 0..400 {
        for (_, prefix) in SPACES {
            let key = format!("{prefix}first:{number}");
            match number % 3 {
                0 => run(&keys, NOW, &[b"SET", key.as_bytes(), &noise(number, 200)]),
                1 => run(&keys, NOW, &[b"APPEND", key.as_bytes(), &session(number, 300)]),
                _ => run(&keys, NOW, &[b"DEL", key.as_bytes()]),
            };
        }
    }
    // Sets a new dictionary, with which no entry of the cut (point-in-time view) could be decompressed correctly.
    for (codec, _) in SPACES {
        let id = space_id(&keys, codec);
        keys.apply_dictionary(id, &session(9, 5000));
        let key = format!("{}new", SPACES.iter().find(|(name, _)| *name == codec).unwrap().1);
        run(&keys, NOW, &[b"SET", key.as_bytes(), &session(5, 700)]);
    }
    while keys.tidy(NOW) {}
    let mut found = BTreeMap::new();
    for cut in &cuts {
        for part in cut.parts(32, 1 << 20).unwrap() {
            cut.read(&part, None, |entries| {
                let strings = entries.iter().map(|entry| (entry.key(), entry.string().unwrap()));
                found.extend(strings.map(|(key, value)| (key.to_vec(), value.to_vec())));
            })
            .unwrap();
        }
    }
    assert_same(&found, &expected);
    drop(cuts);
    let now = strings(&keys, NOW);
    while keys.tidy(NOW) {}
    assert_same(&strings(&keys, NOW), &now);
    assert_eq!(now.keys().filter(|key| key.ends_with(b"new")).count(), 4);
    let keys_read: Vec<Vec<u8>> = expected.keys().filter(|key| key.starts_with(b"l:")).cloned().collect();
    let mut read = BTreeMap::new();
    let space = space_id(&keys, "lz4");
    let fits = keys.read_keys(space, &keys_read, (1 << 30, NOW), |entry| {
        read.insert(entry.key().to_vec(), entry.string().unwrap().to_vec());
    });
    assert!(fits.unwrap() && !read.is_empty() && read.iter().all(|(key, value)| now[key] == *value));
    assert!(!keys.read_keys(space, &keys_read, (1000, NOW), |_| panic!("too much")).unwrap());
}

#[test]
fn rows_and_scans_with_conditions_are_of_plain_values() {
    let keys = keyspace();
    for codec in ["none", "lz4", "deflate", "fsst"] {
        let schema = b"id u64, name utf8, cart utf8, city utf8";
        let created = run(
            &keys,
            NOW,
            &[b"FP.SPACE", b"CREATE", codec.as_bytes(), schema, b"COMPRESSION", codec.as_bytes()],
        );
        assert_eq!(created, b"+OK\r\n");
        for number in 0..600 {
            let (id, cart) = (number.to_string(), session(number, 300));
            run(&keys, NOW, &[b"FP.ROWSET", codec.as_bytes(), id.as_bytes(), b"Ada", &cart, b"London"]);
        }
        while keys.tidy(NOW) {}
        let key = format!("{codec}:7");
        run(&keys, NOW, &[b"HSET", key.as_bytes(), b"city", b"Paris"]);
        assert_eq!(run(&keys, NOW, &[b"HGET", key.as_bytes(), b"city"]), b"$5\r\nParis\r\n");
        assert_eq!(
            run(&keys, NOW, &[b"HSTRLEN", key.as_bytes(), b"cart"]),
            format!(":{}\r\n", session(7, 300).len()).as_bytes()
        );
    }
    create_spaces(&keys);
    fill(&keys, 500, |number| session(number, 300));
    for (codec, _) in SPACES {
        let (name, mut cursor, mut found) = (format!("of_{codec}"), "0".to_string(), 0);
        loop {
            let args = [
                &b"FP.SCAN"[..],
                name.as_bytes(),
                b"bytes[0:2] = '{\"'",
                b"LIMIT",
                b"50",
                b"CURSOR",
                cursor.as_bytes(),
            ];
            let reply = String::from_utf8(run(&keys, NOW, &args)).unwrap();
            found += reply.matches("session_id").count();
            cursor = reply.lines().nth(2).unwrap().to_string();
            if cursor == "0" {
                break;
            }
        }
        assert!(found >= 500, "{codec}: {found}");
    }
}

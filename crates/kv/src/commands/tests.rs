//! Tests of commands by the bytes of their replies, and random ones against a map of keys and values.

mod spaces;

use crate::resp::{Protocol, Replies};
use crate::{Args, COMMANDS, Host, Keyspace, Moment, Refusal, Session, command};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::TenantName;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

/// Knows no commands of its own.
struct Alone {
    may_write: bool,
}

impl Host for Alone {
    fn knows(&self, args: &Args<'_>) -> Result<bool, Refusal> {
        Ok(args[0] == b"PING")
    }

    fn run(&mut self, _: &Args<'_>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
        replies.simple("PONG");
        Ok(())
    }

    fn may_write(&self) -> bool {
        self.may_write
    }
}

struct Client<'k> {
    keys: &'k Keyspace,
    session: Session,
    now: u64,
    random: u64,
    may_write: bool,
}

impl<'k> Client<'k> {
    fn new(keys: &'k Keyspace) -> Self {
        Client { keys, session: Session::default(), now: NOW, random: 1, may_write: true }
    }

    fn bytes(&mut self, args: &Args<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let moment = Moment { now: self.now, random: self.random };
        let mut host = Alone { may_write: self.may_write };
        self.session.execute(self.keys, args, moment, &mut host, &mut replies);
        bytes
    }

    /// Carries out a command whose arguments are words, and returns the reply with `|` for the ends of lines.
    fn run(&mut self, command: &str) -> String {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let reply = self.bytes(&args);
        String::from_utf8_lossy(&reply).trim_end().replace("\r\n", "|")
    }
}

fn pool(mib: usize) -> Arc<Pool> {
    Pool::new(PoolConfig { bytes_limit: mib << 20 }).unwrap()
}

fn keyspace(pool: &Arc<Pool>) -> Keyspace {
    Keyspace::new(pool, &TenantName::default(), [7; 16], 4)
}

/// Commands in their order and their replies.
fn check(lines: &[(&str, &str)]) {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    for (command, expected) in lines {
        assert_eq!(client.run(command), *expected, "{command}");
    }
}

#[test]
fn commands_are_found_by_their_names_in_any_case() {
    for known in COMMANDS {
        for name in [known.name.to_string(), known.name.to_ascii_uppercase()] {
            let found = command(name.as_bytes()).map(|found| found.name);
            assert_eq!(found, Some(known.name));
            assert!(command(format!("{name}x").as_bytes()).is_none());
        }
    }
    for unknown in [&b""[..], b"g", b"ge", b"get ", b"\xff\xff\xff", &[b'g'; 100_000]] {
        assert!(command(unknown).is_none(), "{:?}", unknown.escape_ascii().to_string());
    }
}

#[test]
fn strings() {
    check(&[
        ("GET a", "$-1"),
        ("set a 1", "+OK"),
        ("GET a", "$1|1"),
        ("SET a 2 NX", "$-1"),
        ("SET a 2 XX GET", "$1|1"),
        ("SET b 2 XX", "$-1"),
        ("SET a 2 NX XX", "-ERR syntax error"),
        ("SET a 2 EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET a 2 EX x", "-ERR value is not an integer or out of range"),
        ("SET a 2 EX 1 PX 1", "-ERR syntax error"),
        ("SET a 2 EX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
        ("SET a", "-ERR wrong number of arguments for 'set' command"),
        ("FOO bar", "-ERR unknown command 'FOO', with args beginning with: 'bar'"),
        ("GETSET a 3", "$1|2"),
        ("APPEND a 45", ":3"),
        ("APPEND new x", ":1"),
        ("STRLEN a", ":3"),
        ("GETRANGE a 1 -1", "$2|45"),
        ("GETRANGE a 5 9", "$0"),
        ("GETRANGE a -2 -3", "$0"),
        ("SETRANGE a 5 x", ":6"),
        ("GET a", "$6|345\0\0x"),
        ("SETRANGE none 5 x", ":6"),
        ("SETRANGE a -1 x", "-ERR offset is out of range"),
        ("SETRANGE a 536870911 xy", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("MSET x 1 y 2", "+OK"),
        ("MSET x 1 y", "-ERR wrong number of arguments for 'mset' command"),
        ("MGET x nothing y", "*3|$1|1|$-1|$1|2"),
        ("MSETNX y 3 z 3", ":0"),
        ("EXISTS z x x", ":2"),
        ("MSETNX z 3 zz 3", ":1"),
        ("GETDEL z", "$1|3"),
        ("GETDEL z", "$-1"),
        ("SETNX z 9", ":1"),
        ("SETNX z 9", ":0"),
        ("TYPE z", "+string"),
        ("TYPE nothing", "+none"),
        ("DEL z zz nothing", ":2"),
    ]);
}

#[test]
fn numbers_and_bits() {
    check(&[
        ("INCR n", ":1"),
        ("INCRBY n 41", ":42"),
        ("DECRBY n 2", ":40"),
        ("DECR n", ":39"),
        ("SET n 9223372036854775807", "+OK"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
        ("SET s x", "+OK"),
        ("INCR s", "-ERR value is not an integer or out of range"),
        ("INCRBYFLOAT f 10.5", "$4|10.5"),
        ("INCRBYFLOAT f 0.1", "$4|10.6"),
        ("INCRBYFLOAT f 5e0", "$4|15.6"),
        ("INCRBYFLOAT s 1", "-ERR value is not a valid float"),
        ("SETBIT b 7 1", ":0"),
        ("SETBIT b 7 1", ":1"),
        ("GETBIT b 7", ":1"),
        ("GETBIT b 700", ":0"),
        ("SETBIT b 4294967296 1", "-ERR bit offset is not an integer or out of range"),
        ("SETBIT b 1 2", "-ERR bit is not an integer or out of range"),
        ("SET m foobar", "+OK"),
        ("BITCOUNT m", ":26"),
        ("BITCOUNT m 0 0", ":4"),
        ("BITCOUNT m 1 1", ":6"),
        ("BITCOUNT m 1 1 BYTE", ":6"),
        ("BITCOUNT m 5 30 BIT", ":17"),
        ("BITCOUNT m 1", "-ERR syntax error"),
    ]);
}

#[test]
fn keys_and_expiry() {
    check(&[
        ("SET a 1 EX 100", "+OK"),
        ("TTL a", ":100"),
        ("PTTL a", ":100000"),
        ("EXPIRETIME a", ":1700000100"),
        ("PERSIST a", ":1"),
        ("PERSIST a", ":0"),
        ("TTL a", ":-1"),
        ("TTL none", ":-2"),
        ("EXPIRE a 50 XX", ":0"),
        ("EXPIRE a 50 NX", ":1"),
        ("EXPIRE a 40 GT", ":0"),
        ("EXPIRE a 40 LT", ":1"),
        ("EXPIRE a 40 NX GT", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("TTL a", ":40"),
        ("SET a 2 KEEPTTL", "+OK"),
        ("TTL a", ":40"),
        ("GETEX a PERSIST", "$1|2"),
        ("TTL a", ":-1"),
        ("GETEX a EX 9", "$1|2"),
        ("APPEND a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", ":78"),
        ("TTL a", ":9"),
        ("RENAME a b", "+OK"),
        ("RENAME a b", "-ERR no such key"),
        ("TTL b", ":9"),
        ("COPY b c", ":1"),
        ("COPY b c", ":0"),
        ("COPY b c REPLACE", ":1"),
        ("COPY b b", "-ERR source and destination objects are the same"),
        ("COPY b b DB 3", ":1"),
        ("RENAMENX b c", ":0"),
        ("RENAMENX b d", ":1"),
        ("EXPIRE d -1", ":1"),
        ("EXISTS d", ":0"),
        ("KEYS *", "*1|$1|c"),
        ("DBSIZE", ":1"),
        ("RANDOMKEY", "$1|c"),
        ("SELECT 3", "+OK"),
        ("KEYS [a-b]", "*1|$1|b"),
        ("FLUSHDB", "+OK"),
        ("RANDOMKEY", "$-1"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":1"),
        ("SCAN x", "-ERR invalid cursor"),
        ("OBJECT ENCODING c", "$3|raw"),
        ("OBJECT REFCOUNT nothing", "$-1"),
        (
            "OBJECT IDLETIME c",
            "-ERR An LRU maxmemory policy is not selected, idle time not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ),
        ("OBJECT HELP", "-ERR unknown subcommand or wrong number of arguments for 'HELP'. Try OBJECT HELP."),
        ("MEMORY USAGE c", ":384"),
        ("MEMORY USAGE nothing", "$-1"),
        ("SELECT 3", "+OK"),
        ("SET a 1", "+OK"),
        ("FLUSHALL nonsense", "-ERR syntax error"),
        ("FLUSHALL", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn hashes() {
    check(&[
        ("HSET h name Ada age 36", ":2"),
        ("HSET h name Ada2 city London", ":1"),
        ("HSET h name", "-ERR wrong number of arguments for 'hset' command"),
        ("HSET h name x age", "-ERR wrong number of arguments for 'hset' command"),
        ("HGET h name", "$4|Ada2"),
        ("HGET h none", "$-1"),
        ("HGET none none", "$-1"),
        ("HMGET h age none city", "*3|$2|36|$-1|$6|London"),
        ("HGETALL h", "*6|$3|age|$2|36|$4|name|$4|Ada2|$4|city|$6|London"),
        ("HKEYS h", "*3|$3|age|$4|name|$4|city"),
        ("HVALS h", "*3|$2|36|$4|Ada2|$6|London"),
        ("HGETALL none", "*0"),
        ("HLEN h", ":3"),
        ("HEXISTS h age", ":1"),
        ("HSTRLEN h city", ":6"),
        ("HSETNX h age 1", ":0"),
        ("HSETNX h new 1", ":1"),
        ("HINCRBY h age 6", ":42"),
        ("HINCRBY h name 6", "-ERR hash value is not an integer"),
        ("HINCRBY h age 9223372036854775807", "-ERR increment or decrement would overflow"),
        ("HINCRBYFLOAT h price 10.5", "$4|10.5"),
        ("HINCRBYFLOAT h name 1", "-ERR hash value is not a float"),
        ("HINCRBYFLOAT h price inf", "-ERR value is NaN or Infinity"),
        ("HDEL h new price none", ":2"),
        ("HSCAN h 0 MATCH n*", "*2|$1|0|*2|$4|name|$4|Ada2"),
        ("HMSET h age 1", "+OK"),
        ("TYPE h", "+hash"),
        ("OBJECT ENCODING h", "$8|listpack"),
        ("EXPIRE h 100", ":1"),
        ("HSET h long xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", ":1"),
        ("OBJECT ENCODING h", "$9|hashtable"),
        ("TTL h", ":100"),
        ("HLEN h", ":4"),
        ("HGET h age", "$1|1"),
        ("COPY h copy", ":1"),
        ("HSET copy age 2", ":0"),
        ("HGET h age", "$1|1"),
        ("RENAME copy moved", "+OK"),
        ("HGET moved age", "$1|2"),
        ("TTL moved", ":100"),
        ("PERSIST moved", ":1"),
        ("HLEN moved", ":4"),
        ("EXISTS copy", ":0"),
        ("HDEL moved name age city long", ":4"),
        ("EXISTS moved", ":0"),
        ("GET h", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("APPEND h x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("MGET h h", "*2|$-1|$-1"),
        ("SET s 1", "+OK"),
        ("HSET s a 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HGETALL s", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("SET h 1", "+OK"),
        ("GET h", "$1|1"),
    ]);
}

#[test]
fn hyperloglogs() {
    check(&[
        ("PFADD a", ":1"),
        ("PFADD a", ":0"),
        ("TYPE a", "+string"),
        ("PFCOUNT a", ":0"),
        ("EXPIRE a 100", ":1"),
        ("PFADD a x y z", ":1"),
        ("PFADD a x y z", ":0"),
        ("PFCOUNT a", ":3"),
        // The cardinality is in the value, until an element changes it.
        ("GETRANGE a 8 8", "$1|\u{3}"),
        ("SETRANGE a 8 \t", ":26"),
        ("PFCOUNT a", ":9"),
        ("PFADD a v", ":1"),
        ("PFCOUNT a", ":4"),
        ("TTL a", ":100"),
        ("PFCOUNT none", ":0"),
        ("PFCOUNT none nothing", ":0"),
        ("EXISTS none", ":0"),
        ("PFADD b x w", ":1"),
        ("PFCOUNT a b none", ":5"),
        ("PFMERGE a b none", "+OK"),
        ("PFCOUNT a", ":5"),
        ("TTL a", ":100"),
        ("PFMERGE c a", "+OK"),
        ("PFCOUNT c", ":5"),
        ("PFMERGE empty", "+OK"),
        ("PFCOUNT empty", ":0"),
        ("SET s x", "+OK"),
        ("PFADD s x", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
        ("PFCOUNT s", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
        ("PFCOUNT a s", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
        ("PFMERGE a s", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
        ("HSET h f x", ":1"),
        ("PFADD h x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("APPEND c hello", ":37"),
        ("PFADD c w", ":0"),
        ("PFCOUNT c", ":5"),
        ("PFMERGE d c", "-INVALIDOBJ Corrupted HLL object detected"),
        ("EXISTS d", ":0"),
        ("PFADD c new", ":1"),
        ("PFCOUNT c", "-INVALIDOBJ Corrupted HLL object detected"),
        ("PFCOUNT a c", "-INVALIDOBJ Corrupted HLL object detected"),
    ]);
}

#[test]
fn a_hyperloglog_of_many_elements_is_added_to_in_place() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    for number in 0..5000 {
        client.run(&format!("PFADD k element:{number}"));
    }
    assert_eq!(client.run("STRLEN k"), ":12304");
    let count = client.run("PFCOUNT k");
    client.run("PFADD all");
    let mut all = String::from("PFADD all");
    (0..5000).for_each(|number| all.push_str(&format!(" element:{number}")));
    assert_eq!((client.run(&all), client.run("PFCOUNT all")), (":1".into(), count.clone()));
    assert_eq!(client.bytes(&[b"GET", b"all"]), client.bytes(&[b"GET", b"k"]));
    // An element that changes nothing is no change to those who watch the key.
    client.run("WATCH k");
    Client::new(&keys).run("PFADD k element:1");
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), "*0");
    assert_eq!(client.run("PFCOUNT k none"), count);
}

/// Fields of a hash whose keys, values and number make it small or large.
#[derive(Clone, Debug)]
enum OfHash {
    Set(u8, u16, u8),
    Del(u8, u16),
    Drop(u8),
    Rename(u8, u8),
    Copy(u8, u8),
    Tidy,
}

fn steps_of_hashes() -> impl Strategy<Value = Vec<OfHash>> {
    let (key, field) = (0..4_u8, prop_oneof![3 => 0..10_u16, 2 => 0..300_u16]);
    let step = prop_oneof![
        20 => (key.clone(), field.clone(), any::<u8>()).prop_map(|(key, field, bytes)| OfHash::Set(key, field, bytes / 3)),
        8 => (key.clone(), field).prop_map(|(key, field)| OfHash::Del(key, field)),
        1 => key.clone().prop_map(OfHash::Drop),
        1 => (key.clone(), key.clone()).prop_map(|(from, to)| OfHash::Rename(from, to)),
        1 => (key.clone(), key).prop_map(|(from, to)| OfHash::Copy(from, to)),
        1 => Just(OfHash::Tidy)
    ];
    prop::collection::vec(step, 1..600)
}

proptest! {
    #[test]
    fn random_commands_of_hashes_do_what_maps_do(steps in steps_of_hashes()) {
        let pool = pool(64);
        let keys = keyspace(&pool);
        let mut client = Client::new(&keys);
        let mut model = BTreeMap::<u8, BTreeMap<u16, Vec<u8>>>::new();
        for step in steps {
            let (command, expected) = match step {
                OfHash::Set(key, field, bytes) => {
                    let value = vec![b'a' + bytes % 26; usize::from(bytes)];
                    let is_new = model.entry(key).or_default().insert(field, value.clone()).is_none();
                    let reply = client.bytes(&[b"HSET", &[key], field.to_string().as_bytes(), &value]);
                    prop_assert_eq!(reply, format!(":{}\r\n", i32::from(is_new)).into_bytes());
                    continue;
                }
                OfHash::Del(key, field) => {
                    let removed = model.get_mut(&key).and_then(|fields| fields.remove(&field));
                    model.retain(|_, fields| !fields.is_empty());
                    (vec![b"HDEL".to_vec(), vec![key], field.to_string().into_bytes()], i32::from(removed.is_some()))
                }
                OfHash::Drop(key) => (vec![b"DEL".to_vec(), vec![key]], i32::from(model.remove(&key).is_some())),
                OfHash::Rename(from, to) => {
                    if from == to || !model.contains_key(&from) {
                        continue;
                    }
                    let is_free = !model.contains_key(&to);
                    if is_free {
                        let fields = model.remove(&from).unwrap();
                        model.insert(to, fields);
                    }
                    (vec![b"RENAMENX".to_vec(), vec![from], vec![to]], i32::from(is_free))
                }
                OfHash::Copy(from, to) => {
                    if from == to {
                        continue;
                    }
                    let copied = model.get(&from).cloned();
                    let is_there = copied.is_some();
                    copied.into_iter().for_each(|fields| drop(model.insert(to, fields)));
                    (vec![b"COPY".to_vec(), vec![from], vec![to], b"REPLACE".to_vec()], i32::from(is_there))
                }
                OfHash::Tidy => {
                    keys.tidy(client.now);
                    continue;
                }
            };
            let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(client.bytes(&args), format!(":{expected}\r\n").into_bytes());
        }
        for key in 0..4 {
            let fields = model.get(&key);
            let expected = format!(":{}\r\n", fields.map_or(0, BTreeMap::len));
            prop_assert_eq!(client.bytes(&[b"HLEN", &[key]]), expected.into_bytes());
            let all = client.bytes(&[b"HGETALL", &[key]]);
            let count = all.split(|byte| *byte == b'\n').filter(|line| line.first() == Some(&b'$')).count();
            prop_assert_eq!(count, 2 * fields.map_or(0, BTreeMap::len));
            for (field, value) in fields.into_iter().flatten() {
                let reply = client.bytes(&[b"HGET", &[key], field.to_string().as_bytes()]);
                prop_assert_eq!(reply, [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat());
            }
        }
        client.run("FLUSHDB");
        while keys.tidy(client.now) {}
        prop_assert_eq!(pool.bytes_used(), 0);
    }
}

#[test]
fn what_has_expired_is_gone_for_good_and_its_memory_with_it() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    for number in 0..5000 {
        client.run(&format!("SET short:{number} {number} PX 100"));
    }
    client.run("SET long 1 EX 100");
    client.now += 100;
    assert_eq!((client.run("GET short:1"), client.run("EXISTS short:2")), ("$-1".into(), ":0".into()));
    while keys.tidy(client.now) {}
    let (counts, bytes) = (keys.counts(), pool.bytes_used());
    assert_eq!((counts.len(), counts[0].1.keys, counts[0].1.expiring), (1, 1, 1));
    assert!(counts[0].1.bytes < 32 << 10 && bytes <= 2 << 20, "{counts:?}, {bytes}");
    // A clock that is put back revives nothing.
    client.run("SET again 1 PX 100");
    client.now += 100;
    assert_eq!(client.run("GET again"), "$-1");
    client.now -= 100;
    assert_eq!(client.run("GET again"), "$-1");
    client.run("FLUSHDB");
    while keys.tidy(client.now) {}
    assert_eq!(pool.bytes_used(), 0);
}

#[test]
fn transactions() {
    check(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("SET a 1", "+QUEUED"),
        ("PING", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
        ("APPEND a x", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("SELECT 1", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("EXEC", "*7|+OK|+PONG|:2|:2|-ERR value is not an integer or out of range|+OK|$-1"),
        ("SELECT 0", "+OK"),
        ("MULTI", "+OK"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("MULTI", "+OK"),
        ("DEL a", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET a", "$2|2x"),
    ]);
}

#[test]
fn a_watched_key_that_has_changed_stops_the_transaction() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let (mut client, mut other) = (Client::new(&keys), Client::new(&keys));
    client.run("SET a 1 PX 1000");
    for (change, expected) in [
        ("GET a", "*1|+OK"),
        ("SET a 1", "*-1"),
        ("SET other 1", "*1|+OK"),
        ("APPEND a x", "*-1"),
        ("DEL none", "*1|+OK"),
        ("DEL a", "*-1"),
        ("MSET x 1 a 2", "*-1"),
        ("FLUSHDB", "*-1"),
    ] {
        assert_eq!(client.run("WATCH a b"), "+OK");
        other.run(change);
        assert_eq!(client.run("MULTI"), "+OK");
        assert_eq!(client.run("SET b 2"), "+QUEUED");
        assert_eq!(client.run("EXEC"), expected, "{change}");
    }
    // Time changes a key, too.
    client.run("SET a 1 PX 1000");
    client.run("WATCH a");
    client.now += 1000;
    client.run("MULTI");
    client.run("SET b 2");
    assert_eq!(client.run("EXEC"), "*-1");
    // One that had expired before does not change when it is removed.
    client.run("WATCH a");
    other.now = client.now;
    other.run("FLUSHDB");
    client.run("MULTI");
    client.run("SET b 2");
    assert_eq!(client.run("EXEC"), "*1|+OK");
    client.run("WATCH a");
    client.session.reset(&keys);
    client.may_write = false;
    assert!(client.run("SET a 1").starts_with("-NOPERM"));
    assert_eq!(client.run("GET a"), "$-1");
}

#[test]
fn a_full_pool_refuses_and_leaves_everything_as_it_was() {
    let pool = pool(4);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    let value = vec![b'v'; 1000];
    let mut stored = 0;
    while client.bytes(&[b"SET", format!("key:{stored}").as_bytes(), &value]) == b"+OK\r\n" {
        stored += 1;
    }
    assert!(stored > 2000, "{stored}");
    let large = vec![b'w'; 8 << 20];
    let refused = client.bytes(&[b"SET", b"key:0", &large]);
    assert!(refused.starts_with(b"-OOM "), "{}", refused.escape_ascii());
    let expected = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    for number in 0..stored {
        assert_eq!(client.bytes(&[b"GET", format!("key:{number}").as_bytes()]), expected, "{number}");
    }
    for number in 0..stored {
        assert_eq!(client.run(&format!("DEL key:{number}")), ":1");
    }
    while keys.tidy(client.now) {}
    assert_eq!(client.bytes(&[b"SET", b"key", &large[..1 << 20]]), b"+OK\r\n");
}

#[test]
fn a_scan_sees_every_key_that_stays() {
    let pool = pool(64);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    for number in 0..3000 {
        client.run(&format!("SET stays:{number} x"));
    }
    let mut seen = std::collections::BTreeSet::new();
    let (mut cursor, mut others) = ("0".to_string(), 0);
    loop {
        let reply = client.run(&format!("SCAN {cursor} MATCH stays:* COUNT 20"));
        let mut words = reply.split('|').skip(2);
        cursor = words.next().unwrap().to_string();
        seen.extend(words.filter(|word| word.starts_with("stays:")).map(str::to_string));
        if cursor == "0" {
            break;
        }
        // The index grows under the scan.
        for _ in 0..50 {
            others += 1;
            client.run(&format!("SET comes:{others} x"));
        }
    }
    assert_eq!(seen.len(), 3000);
    assert!(others > 1000);
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, Vec<u8>),
    SetFor(u8, Vec<u8>, u16),
    Append(u8, Vec<u8>),
    SetRange(u8, u16, Vec<u8>),
    Del(u8),
    Rename(u8, u8),
    Expire(u8, u16),
    Persist(u8),
    Get(u8),
    Wait(u16),
    Tidy,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..100),
        2 => prop::collection::vec(any::<u8>(), 100..3000),
        1 => prop::collection::vec(any::<u8>(), 30_000..70_000)
    ];
    let value = value.boxed();
    let key = 0..40_u8;
    let step = prop_oneof![
        4 => (key.clone(), value.clone()).prop_map(|(key, value)| Step::Set(key, value)),
        2 => (key.clone(), value.clone(), 1..500_u16).prop_map(|(key, value, ms)| Step::SetFor(key, value, ms)),
        3 => (key.clone(), value.clone()).prop_map(|(key, value)| Step::Append(key, value)),
        2 => (key.clone(), 0..2000_u16, value).prop_map(|(key, at, value)| Step::SetRange(key, at, value)),
        3 => key.clone().prop_map(Step::Del),
        2 => (key.clone(), key.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (key.clone(), 1..500_u16).prop_map(|(key, ms)| Step::Expire(key, ms)),
        1 => key.clone().prop_map(Step::Persist),
        4 => key.prop_map(Step::Get),
        2 => (1..200_u16).prop_map(Step::Wait),
        2 => Just(Step::Tidy)
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn random_commands_do_what_a_map_does(steps in steps()) {
        let pool = pool(64);
        let keys = keyspace(&pool);
        let mut client = Client::new(&keys);
        let mut model = BTreeMap::<Vec<u8>, (Vec<u8>, Option<u64>)>::new();
        let name = |key: u8| format!("key{key}").into_bytes();
        for step in steps {
            let now = client.now;
            model.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
            let (reply, expected) = match step {
                Step::Set(key, value) => {
                    model.insert(name(key), (value.clone(), None));
                    (client.bytes(&[b"SET", &name(key), &value]), "+OK".to_string())
                }
                Step::SetFor(key, value, ms) => {
                    model.insert(name(key), (value.clone(), Some(now + u64::from(ms))));
                    (client.bytes(&[b"PSETEX", &name(key), ms.to_string().as_bytes(), &value]), "+OK".into())
                }
                Step::Append(key, value) => {
                    let (kept, _) = model.entry(name(key)).or_default();
                    kept.extend(&value);
                    (client.bytes(&[b"APPEND", &name(key), &value]), format!(":{}", kept.len()))
                }
                Step::SetRange(key, at, value) => {
                    let bytes = model.get(&name(key)).map_or(0, |(value, _)| value.len());
                    let end = if value.is_empty() { bytes } else { bytes.max(usize::from(at) + value.len()) };
                    if !value.is_empty() {
                        let (kept, _) = model.entry(name(key)).or_default();
                        kept.resize(end, 0);
                        kept[usize::from(at)..][..value.len()].copy_from_slice(&value);
                    }
                    let at = at.to_string();
                    (client.bytes(&[b"SETRANGE", &name(key), at.as_bytes(), &value]), format!(":{end}"))
                }
                Step::Del(key) => {
                    let gone = i32::from(model.remove(&name(key)).is_some());
                    (client.bytes(&[b"DEL", &name(key)]), format!(":{gone}"))
                }
                Step::Rename(from, to) => {
                    let expected = match model.remove(&name(from)) {
                        Some(kept) => {
                            model.insert(name(to), kept);
                            "+OK"
                        }
                        None => "-ERR no such key",
                    };
                    (client.bytes(&[b"RENAME", &name(from), &name(to)]), expected.into())
                }
                Step::Expire(key, ms) => {
                    let there = model.get_mut(&name(key));
                    let expected = format!(":{}", i32::from(there.is_some()));
                    there.into_iter().for_each(|(_, expiry)| *expiry = Some(now + u64::from(ms)));
                    (client.bytes(&[b"PEXPIRE", &name(key), ms.to_string().as_bytes()]), expected)
                }
                Step::Persist(key) => {
                    let before = model.get_mut(&name(key)).and_then(|(_, expiry)| expiry.take());
                    (client.bytes(&[b"PERSIST", &name(key)]), format!(":{}", i32::from(before.is_some())))
                }
                Step::Get(key) => {
                    let reply = client.bytes(&[b"GET", &name(key)]);
                    let expected = match model.get(&name(key)) {
                        Some((value, _)) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
                        None => b"$-1\r\n".to_vec(),
                    };
                    prop_assert_eq!(reply, expected);
                    continue;
                }
                Step::Wait(ms) => {
                    client.now += u64::from(ms);
                    continue;
                }
                Step::Tidy => {
                    keys.tidy(now);
                    continue;
                }
            };
            prop_assert_eq!(String::from_utf8_lossy(&reply).trim_end().to_string(), expected);
        }
        let now = client.now;
        model.retain(|_, (_, expiry)| expiry.is_none_or(|expiry| expiry > now));
        for (key, (value, expiry)) in &model {
            let expected = [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
            prop_assert_eq!(client.bytes(&[b"GET", key]), expected);
            let expected = expiry.map_or(-1, |expiry| expiry as i64);
            prop_assert_eq!(client.bytes(&[b"PEXPIRETIME", key]), format!(":{expected}\r\n").into_bytes());
        }
        client.run("FLUSHDB");
        while keys.tidy(now) {}
        prop_assert_eq!(pool.bytes_used(), 0);
    }
}

//! Tests of the commands of the Redis protocol, by the bytes of their replies.

mod models;
mod orders;
mod spaces;
mod steps;

use crate::commands::{Place, SessionCommand};
use crate::resp::{Protocol, Replies};
use crate::{Args, COMMANDS, Command, Host, HostCommand, Keyspace, Refusal, Session, TimeAndRandom, command};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::TenantName;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

/// A host (owner of a session) for tests. Of the commands that a host executes it knows only one.
struct Alone {
    may_write: bool,
}

impl Host for Alone {
    fn check(&self, command: HostCommand, _: &Args<'_>) -> Result<(), Refusal> {
        if command == HostCommand::Ping { Ok(()) } else { Err("ERR unknown command".into()) }
    }

    fn run(
        &mut self,
        _: (&'static Command, HostCommand),
        _: &Args<'_>,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refusal> {
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
        let moment = TimeAndRandom { now: self.now, random: self.random };
        let mut host = Alone { may_write: self.may_write };
        self.session.execute(self.keys, args, moment, &mut host, &mut replies);
        bytes
    }

    /// Executes a command whose arguments are words; returns the reply with `|` for line ends.
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

/// Executes pairs of command and expected reply in order, in a new keyspace, and compares the replies.
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
            let args: Vec<&[u8]> = name.split('|').map(str::as_bytes).collect();
            assert_eq!(command(&args).map(|found| found.name), Some(known.name));
            assert!(command(&[format!("{name}x").as_bytes()]).is_none());
            assert!(!known.lacks_subcommand(&args) || known.is_subcommand());
        }
    }
    for unknown in [&b""[..], b"g", b"ge", b"get ", b"client|list", b"\xff\xff\xff", &[b'g'; 100_000]] {
        assert!(command(&[unknown]).is_none(), "{:?}", unknown.escape_ascii().to_string());
    }
    let unknown = command(&[b"client", b"nope"]).unwrap();
    assert!(unknown.name == "client" && unknown.lacks_subcommand(&[b"client", b"nope"]));
    assert!(command(&[]).is_none());
}

/// A name that is listed twice is an error when the table is compiled.
#[test]
fn every_command_of_session_and_host_has_one_row() {
    let of_host = COMMANDS.iter().filter_map(Command::of_host).map(|command| command as usize);
    assert!(of_host.eq(0..=HostCommand::Time as usize), "in the order of the names");
    let of_session = COMMANDS.iter().filter_map(|command| match command.place {
        Place::Session(command) => Some(command as usize),
        Place::Keyspace(_) | Place::Host(_) | Place::Subcommands => None,
    });
    assert!(of_session.eq(0..=SessionCommand::Watch as usize));
}

#[test]
fn names_of_unknown_commands_are_replied_as_they_came() {
    let (pool, mut out) = (pool(8), Vec::new());
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    let (long, longer) = ([b'x'; 100], [b'y'; 200]);
    for args in
        [&[&b"\xff\x01ab\r\nc"[..]][..], &[b"foo", b"\xff\r\nx", b"b\0c"], &[b"foo", &long, &longer, b"z"]]
    {
        out.push(client.bytes(args));
    }
    // The expected replies are those of Redis 7.0.15.
    let shown = [&long[..], b"' '", &longer[..25]].concat();
    assert_eq!(out[0], b"-ERR unknown command '\xff\x01ab  c', with args beginning with: \r\n");
    assert_eq!(out[1], b"-ERR unknown command 'foo', with args beginning with: '\xff  x' 'b' \r\n");
    assert_eq!(
        out[2],
        [b"-ERR unknown command 'foo', with args beginning with: '", &*shown, b"' \r\n"].concat()
    );
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
        ("HSET incremented field 1", ":1"),
        (
            "INCRBYFLOAT incremented nothing",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
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
        // As in Redis, an absent key gives 0 before the other arguments are checked.
        ("BITCOUNT none 0 a", ":0"),
        ("BITCOUNT none 0 1 x", ":0"),
        ("BITCOUNT m a b x", "-ERR value is not an integer or out of range"),
        ("BITCOUNT m 0 1 x", "-ERR syntax error"),
        ("HSET hash f v", ":1"),
        ("BITCOUNT hash 0 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("DEL hash", ":1"),
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
        ("EXPIRE a 1.5 foo", "-ERR Unsupported option foo"),
        ("PEXPIREAT none 1.5 foo", "-ERR Unsupported option foo"),
        ("EXPIRE a x GT LT", "-ERR GT and LT options at the same time are not compatible"),
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
        ("SELECT -1", "-ERR DB index is out of range"),
        ("SELECT 99999999999", "-ERR value is out of range, value must between -2147483648 and 2147483647"),
        ("SELECT 99999999999999999999", "-ERR value is not an integer or out of range"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":1"),
        ("SCAN x", "-ERR invalid cursor"),
        ("SCAN 1x", "-ERR invalid cursor"),
        ("SCAN -", "-ERR invalid cursor"),
        ("SCAN 18446744073709551616", "-ERR invalid cursor"),
        ("SCAN -18446744073709551616", "-ERR invalid cursor"),
        ("HSCAN none x", "-ERR invalid cursor"),
        ("HSCAN none -1", "*2|$1|0|*0"),
        ("HSCAN none 5 COUNT 0", "*2|$1|0|*0"),
        ("HSCAN none 0 COUNT a", "*2|$1|0|*0"),
        ("HSCAN none 0 FOO", "*2|$1|0|*0"),
        ("HSCAN none +1", "*2|$1|0|*0"),
        ("OBJECT ENCODING c", "$3|raw"),
        ("OBJECT REFCOUNT nothing", "$-1"),
        (
            "OBJECT IDLETIME c",
            "-ERR An LRU maxmemory policy is not selected, idle time not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ),
        ("OBJECT HELP x", "-ERR wrong number of arguments for 'object|help' command"),
        ("OBJECT nope c", "-ERR unknown subcommand 'nope'. Try OBJECT HELP."),
        ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
        ("MEMORY nope", "-ERR unknown subcommand 'nope'. Try MEMORY HELP."),
        ("MEMORY USAGE", "-ERR wrong number of arguments for 'memory|usage' command"),
        ("MEMORY USAGE c SAMPLES", "-ERR syntax error"),
        ("MEMORY USAGE c SAMPLES x", "-ERR value is not an integer or out of range"),
        ("MEMORY USAGE c SAMPLES 5 SAMPLES 0", ":384"),
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
        // The value of a HyperLogLog contains the cached count, which stays valid until an added element changes the
        // value.
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
    // Adding an element that does not change the HyperLogLog does not make a watching client's `EXEC` fail.
    client.run("WATCH k");
    Client::new(&keys).run("PFADD k element:1");
    client.run("MULTI");
    assert_eq!(client.run("EXEC"), "*0");
    assert_eq!(client.run("PFCOUNT k none"), count);
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
    // A key that has expired stays absent when the clock is put back.
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
    // The expiry of a watched key counts as a change.
    client.run("SET a 1 PX 1000");
    client.run("WATCH a");
    client.now += 1000;
    client.run("MULTI");
    client.run("SET b 2");
    assert_eq!(client.run("EXEC"), "*-1");
    // Removing a key that had already expired at `WATCH` does not count as a change.
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
        // Adds keys, so that the index grows during the scan.
        for _ in 0..50 {
            others += 1;
            client.run(&format!("SET comes:{others} x"));
        }
    }
    assert_eq!(seen.len(), 3000);
    assert!(others > 1000);
}

/// Compares with the replies of Redis 7.0.15.
#[test]
fn options_that_are_given_twice() {
    check(&[
        ("SET k v EX 10 EX 20", "+OK"),
        ("TTL k", ":20"),
        ("SET k v PX 10000 PX 20000", "+OK"),
        ("PTTL k", ":20000"),
        ("SET k v EX x EX 10", "+OK"),
        ("SET k v EX 0 EX 10", "+OK"),
        ("SET k v EX 10 EX x", "-ERR value is not an integer or out of range"),
        ("SET k v EX 10 EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET k v EX 10 PX 20", "-ERR syntax error"),
        ("SET k v EX 10 EX", "-ERR syntax error"),
        ("SET k v EX x nope", "-ERR syntax error"),
        ("SET k v KEEPTTL EX 10", "-ERR syntax error"),
        ("SET k v EX 10 KEEPTTL", "-ERR syntax error"),
        ("SET k v KEEPTTL KEEPTTL", "+OK"),
        ("TTL k", ":10"),
        ("SET k v XX XX", "+OK"),
        ("SET k v NX XX", "-ERR syntax error"),
        ("GETEX k EX 10 EX 30", "$1|v"),
        ("TTL k", ":30"),
        ("GETEX k PERSIST PERSIST", "$1|v"),
        ("TTL k", ":-1"),
        ("GETEX k PERSIST EX 1", "-ERR syntax error"),
        ("GETEX k EX x", "-ERR value is not an integer or out of range"),
        ("GETEX none EX x", "$-1"),
    ]);
}

/// Compares with the replies of Redis 7.0.15.
#[test]
fn what_is_wrong_in_a_transaction_ends_it() {
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    let of_exec = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    check(&[
        ("MULTI", "+OK"),
        ("SET k 1", "+QUEUED"),
        ("EXEC x", of_exec),
        ("GET k", "$-1"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("EXEC x", of_exec),
        ("MULTI", "+OK"),
        ("DISCARD x", "-ERR wrong number of arguments for 'discard' command"),
        ("SET k 1", "+QUEUED"),
        ("EXEC", aborted),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("MULTI", "+OK"),
        ("SELECT x", "+QUEUED"),
        ("SET k 1", "+QUEUED"),
        ("EXEC", "*2|-ERR value is not an integer or out of range|+OK"),
    ]);
    for wrong in
        ["OBJECT nope k", "OBJECT ENCODING", "OBJECT HELP x", "MEMORY nope", "MEMORY USAGE", "MULTI x"]
    {
        let pool = pool(8);
        let keys = keyspace(&pool);
        let mut client = Client::new(&keys);
        client.run("MULTI");
        assert!(client.run(wrong).starts_with("-ERR "), "{wrong}");
        client.run("SET k 1");
        assert_eq!(client.run("EXEC"), aborted, "{wrong}");
    }
}

/// Commands that change nothing touch no watch, as in Redis 7.0.15.
#[test]
fn what_changes_nothing_touches_nothing() {
    let changes = |before: &str, command: &str| {
        let pool = pool(8);
        let keys = keyspace(&pool);
        let (mut client, mut other) = (Client::new(&keys), Client::new(&keys));
        client.run(before);
        client.run("WATCH k");
        other.run(command);
        client.run("MULTI");
        client.run("PING");
        client.run("EXEC") == "*-1"
    };
    for (before, command, is_change) in [
        ("SET k 1", "GETEX k PERSIST", false),
        ("SET k 1 EX 9", "GETEX k PERSIST", true),
        ("SETBIT k 7 0", "SETBIT k 7 0", false),
        ("SETBIT k 7 0", "SETBIT k 7 1", true),
        ("SETBIT k 7 0", "SETBIT k 8 0", true),
        ("GET k", "SETBIT k 7 0", true),
    ] {
        assert_eq!(changes(before, command), is_change, "{before}, {command}");
    }
}

#[test]
fn a_row_without_fields_is_not_lost() {
    let pool = pool(8);
    let keys = keyspace(&pool);
    let mut client = Client::new(&keys);
    let created = client.bytes(&[b"FP.SPACE", b"CREATE", b"u", b"id u64, n i64"]);
    assert_eq!(created, b"+OK\r\n");
    client.run("HSET u:1 n 5");
    client.run("SET plain x");
    let space = keys.spaces().named("u").cloned().unwrap();
    let change = crate::KeyChange {
        key: b"u:1".to_vec(),
        expected: None,
        what: crate::KeyState::UpdateRow(vec![(0, None)]),
    };
    keys.change((space.id, Some(&space)), &[change], (None, None), TimeAndRandom { now: NOW, random: 1 })
        .unwrap();
    assert_eq!(client.run("EXISTS u:1"), ":1");
    let refused = "-ERR no field of this row is set, and a hash has at least one: set a field first";
    for command in ["RENAME u:1 plain", "RENAMENX u:1 other", "COPY u:1 other", "COPY u:1 plain REPLACE"] {
        assert_eq!(client.run(command), refused, "{command}");
    }
    assert_eq!(client.run("GET plain"), "$1|x");
    assert_eq!(client.run("RENAME u:1 u:2"), "+OK");
    assert_eq!(client.run("EXISTS u:1 u:2"), ":1");
}

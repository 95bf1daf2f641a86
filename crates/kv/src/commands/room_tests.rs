//! Tests of writes when memory is full: the keys that the eviction policy chooses are evicted, and the log records
//! their removal.

use crate::evict::Policy;
use crate::resp::{Protocol, Replies};
use crate::{Args, Journal, Keyspace, Limits, NoHost, Replay, Session, TimeAndRandom, Walk};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{ErrorKind, Result, TenantName};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

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
        Ok(records.len() as u64 - 1)
    }
}

struct Client {
    keys: Arc<Keyspace>,
    session: Session,
    now: u64,
    random: u64,
}

impl Client {
    fn new(keys: &Arc<Keyspace>) -> Self {
        Client {
            keys: Arc::clone(keys),
            session: Session::default(),
            now: NOW,
            random: 88_172_645_463_325_252,
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn bytes(&mut self, args: &Args<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
        let moment = TimeAndRandom { now: self.now, random: self.random() };
        self.session.execute(&self.keys, args, moment, &mut NoHost, &mut replies);
        bytes
    }

    fn run(&mut self, command: &str) -> String {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let reply = self.bytes(&args);
        String::from_utf8_lossy(&reply).trim_end().replace("\r\n", "|")
    }

    fn has(&mut self, key: &str) -> bool {
        self.run(&format!("EXISTS {key}")) == ":1"
    }

    /// Advances time by 10 ms.
    fn pass(&mut self) {
        self.now += 10;
        while self.keys.tidy(self.now) {}
    }
}

fn keyspace(mib: usize) -> Arc<Keyspace> {
    let pool = Pool::new(PoolConfig { bytes_limit: mib << 20 }).unwrap();
    Arc::new(Keyspace::new(&pool, &TenantName::default(), [7; 16], 4))
}

fn limit(keys: &Keyspace, maxmemory: u64, policy: Policy) {
    let limits = Limits { maxmemory, policy };
    keys.set_limits(TimeAndRandom { now: NOW, random: 1 }, |found| *found = limits).unwrap();
    assert_eq!(keys.limits(), limits);
}

/// Returns all keys with strings, and their values.
fn all(keys: &Arc<Keyspace>) -> BTreeMap<String, String> {
    let mut client = Client::new(keys);
    let found = client.run("KEYS *");
    let names = found.split('|').skip(1).filter(|line| !line.starts_with('$'));
    names.map(|name| (name.to_string(), client.run(&format!("GET {name}")))).collect()
}

/// Writes four times as many bytes as fit into memory while 300 *hot* keys are read again and again. Returns how many
/// of the hot keys, and how many of the other keys, are left.
fn churn(client: &mut Client, count: usize, bytes: impl Fn(usize) -> usize, suffix: &str) -> (usize, usize) {
    for hot in 0..300 {
        assert_eq!(client.run(&format!("SET hot{hot} {}{suffix}", "h".repeat(64))), "+OK");
    }
    for cold in 0..count {
        let expiry = if suffix.is_empty() { String::new() } else { format!(" PX {}", 10_000_000 + cold) };
        let value = "c".repeat(bytes(cold));
        assert_eq!(client.run(&format!("SET cold{cold} {value}{expiry}")), "+OK");
        let hot = client.random() % 300;
        client.run(&format!("GET hot{hot}"));
        if cold % 100 == 0 {
            client.pass();
        }
    }
    let hot = (0..300).filter(|hot| client.has(&format!("hot{hot}"))).count();
    let cold = (0..count).filter(|cold| client.has(&format!("cold{cold}"))).count();
    (hot, cold)
}

#[test]
fn keys_that_are_used_stay_while_others_make_room() {
    for policy in [Policy::AllKeysLru, Policy::AllKeysLfu, Policy::AllKeysRandom] {
        for (mib, maxmemory) in [(64, 2 << 20), (4, 0)] {
            let keys = keyspace(mib);
            limit(&keys, maxmemory, policy);
            let mut client = Client::new(&keys);
            let (hot, cold) = churn(&mut client, 60_000, |_| 100, "");
            let (uses, name) = (keys.uses(), policy.name());
            println!("{name}, {mib} MiB, maxmemory {maxmemory}: {hot} of 300, {cold}, {uses:?}");
            assert_eq!(uses.evicted as usize, 60_300 - hot - cold);
            assert!(
                cold > 5_000 && uses.bytes <= (4 << 20).min(maxmemory as usize + (1 << 18)) || maxmemory == 0
            );
            match policy {
                Policy::AllKeysRandom => assert!(hot < 150),
                _ => assert!(hot >= 290, "{name}: {hot}"),
            }
        }
    }
}

#[test]
fn only_keys_that_expire_make_room_where_the_policy_says_so() {
    for policy in [Policy::VolatileLru, Policy::VolatileLfu, Policy::VolatileRandom, Policy::VolatileTtl] {
        let keys = keyspace(64);
        limit(&keys, 2 << 20, policy);
        let mut client = Client::new(&keys);
        (0..3000)
            .for_each(|key| assert_eq!(client.run(&format!("SET stays{key} {}", "s".repeat(64))), "+OK"));
        let (hot, cold) = churn(&mut client, 40_000, |_| 100, " PX 999999");
        let name = policy.name();
        println!("{name}: {hot} of 300, {cold}");
        assert!((0..3000).all(|key| client.has(&format!("stays{key}"))), "{name}");
        match policy {
            Policy::VolatileRandom => assert!(hot < 150, "{name}: {hot}"),
            // The hot keys expire before all others, so this policy evicts them first.
            Policy::VolatileTtl => assert_eq!(hot, 0, "{name}"),
            _ => assert!(hot >= 290, "{name}: {hot}"),
        }
        // The policy finds the last few keys with an expiry. When there are none left, a write is refused.
        let refused =
            (0..200_000).find(|key| client.run(&format!("SET more{key} value")).starts_with("-OOM"));
        assert!(refused.is_some(), "{name}");
        let all_are_gone = (0..50).any(|round| {
            (0..2000).for_each(|key| drop(client.run(&format!("SET last{round}-{key} value"))));
            keys.counts()[0].1.expiring == 0
        });
        assert!(all_are_gone, "{name}");
        assert_eq!(client.run("GET stays1").len(), "$64|".len() + 64);
    }
}

#[test]
fn values_of_other_sizes_find_room_too() {
    for (mib, maxmemory) in [(64, 3 << 20), (6, 0)] {
        let keys = keyspace(mib);
        limit(&keys, maxmemory, Policy::AllKeysLru);
        let mut client = Client::new(&keys);
        let (hot, _) = churn(&mut client, 30_000, |cold| [10, 100, 400, 1000][cold / 7500], "");
        assert!(hot >= 280, "{hot}");
        // The largest value only where `maxmemory` limits the keys: in a full pool, all pages have pieces of other
        // shards.
        for bytes in [5_000, 40_000, 300_000].into_iter().filter(|bytes| maxmemory > 0 || *bytes < 300_000) {
            let value = "v".repeat(bytes);
            assert_eq!(client.run(&format!("SET large {value}")), "+OK", "{bytes}");
            assert_eq!(client.run("STRLEN large"), format!(":{bytes}"));
        }
        let before = keys.uses().evicted;
        // A value that can never fit evicts nothing.
        let value = "v".repeat(64 << 20);
        assert!(client.run(&format!("SET large {value}")).starts_with("-OOM"));
        assert_eq!(keys.uses().evicted, before);
        // Fields of hashes, also of large ones, find memory by eviction, too.
        for field in 0..3000 {
            assert_eq!(client.run(&format!("HSET hash field{field} {}", "f".repeat(100))), ":1");
        }
        assert_eq!(client.run("HLEN hash"), ":3000");
    }
}

#[test]
fn nothing_goes_where_no_policy_says_so() {
    let keys = keyspace(64);
    limit(&keys, 1 << 20, Policy::NoEviction);
    let mut client = Client::new(&keys);
    let refused = (0..100_000).find(|key| client.run(&format!("SET key{key} {}", "v".repeat(100))) != "+OK");
    let refused = refused.expect("it is refused");
    assert!(client.run("SET more value").starts_with("-OOM") || client.run("SET less value") == "+OK");
    assert!((0..refused).all(|key| client.has(&format!("key{key}"))));
    assert_eq!(keys.uses().evicted, 0);
    assert_eq!(client.run("DEL key1"), ":1");
    assert_eq!(client.run(&format!("SET key1 {}", "v".repeat(100))), "+OK");
    limit(&keys, 0, Policy::NoEviction);
    assert_eq!(client.run(&format!("SET another {}", "v".repeat(10_000))), "+OK");
}

#[test]
fn records_give_the_same_keys_and_settings_again() {
    for policy in [Policy::AllKeysLru, Policy::VolatileTtl] {
        let (keys, kept) = (keyspace(64), RecordingJournal::default());
        keys.set_journal(Box::new(kept.clone()));
        limit(&keys, 1 << 20, policy);
        let mut client = Client::new(&keys);
        churn(&mut client, 5_000, |_| 100, " PX 999999");
        // A walk (fuzzy snapshot) of the keys while keys are evicted.
        let walked = RecordingJournal::default();
        let mut walk = Walk::default();
        while keys.walk(&mut walk, &walked).unwrap() {
            (0..200).for_each(|key| assert_eq!(client.run(&format!("SET late{key} 1 PX 99999")), "+OK"));
        }
        let (pool_too_small, enough) = (keyspace(2), keyspace(64));
        for to in [&enough, &pool_too_small] {
            let mut replay = Replay::default();
            let records = kept.0.lock();
            records.iter().for_each(|record| replay.apply(to, record).unwrap());
            to.set_journal(Box::new(RecordingJournal::default()));
            assert_eq!(to.limits(), Limits { maxmemory: 1 << 20, policy });
        }
        assert_eq!(all(&enough), all(&keys));
        let again = keyspace(64);
        let mut replay = Replay::default();
        walked.0.lock().iter().for_each(|record| replay.apply(&again, record).unwrap());
        assert_eq!(again.limits(), keys.limits());
        // Lowers the memory limit below the memory in use, so that maintenance evicts keys.
        limit(&keys, 1 << 18, policy);
        while keys.tidy(NOW) {}
        assert!(keys.uses().bytes <= 1 << 18, "{:?}", keys.uses());
        let lowered = keyspace(64);
        let mut replay = Replay::default();
        kept.0.lock().iter().for_each(|record| replay.apply(&lowered, record).unwrap());
        assert_eq!(all(&lowered), all(&keys));
    }
}

#[test]
fn what_is_lost_while_records_are_applied_is_lost_as_a_whole() {
    let (keys, kept) = (keyspace(64), RecordingJournal::default());
    keys.set_journal(Box::new(kept.clone()));
    limit(&keys, 0, Policy::AllKeysRandom);
    let mut client = Client::new(&keys);
    for round in 0..3 {
        for key in 0..10_000 {
            let piece = format!("{key:05}-{round}-{}", "v".repeat(100));
            assert!(client.run(&format!("APPEND key{key} {piece}")).starts_with(':'));
            assert_eq!(client.run(&format!("HSET hash{key} field{round} {piece}")), ":1");
        }
    }
    // Replays into a pool that holds less than half of the keys.
    let small = keyspace(4);
    let mut replay = Replay::default();
    kept.0.lock().iter().for_each(|record| replay.apply(&small, record).unwrap());
    small.set_journal(Box::new(RecordingJournal::default()));
    let (mut there, mut other) = (0, Client::new(&small));
    for key in 0..10_000 {
        for ask in [format!("GET key{key}"), format!("HGETALL hash{key}")] {
            let found = other.run(&ask);
            if found != "$-1" && found != "*0" {
                assert_eq!(found, client.run(&ask));
                there += 1;
            }
        }
    }
    assert!((2_000..15_000).contains(&there), "{there}");
    // After replay, commands on a part of a value create absent keys as usual.
    assert_eq!(other.run("APPEND fresh abc"), ":3");
}

#[test]
fn keys_of_a_command_stay_and_watched_ones_are_told() {
    let keys = keyspace(64);
    limit(&keys, 1 << 20, Policy::AllKeysRandom);
    let mut client = Client::new(&keys);
    (0..20_000).for_each(|key| assert_eq!(client.run(&format!("SET key{key} {}", "v".repeat(100))), "+OK"));
    for round in 0..20 {
        let pairs: Vec<String> =
            (0..500).map(|key| format!("pair{round}-{key} {}", "p".repeat(200))).collect();
        assert_eq!(client.run(&format!("MSET {}", pairs.join(" "))), "+OK");
        let names: Vec<String> = (0..500).map(|key| format!("pair{round}-{key}")).collect();
        assert_eq!(client.run(&format!("EXISTS {}", names.join(" "))), ":500");
        client.run("MULTI");
        for name in &names {
            client.run(&format!("SET {name}x {}", "p".repeat(300)));
        }
        client.run(&format!("EXISTS {}", names.join(" ")));
        assert!(client.run("EXEC").ends_with(":500"));
    }
    assert_eq!(client.run("FP.SPACE CREATE rows id_u64,_name_utf8").split(' ').next(), Some("-ERR"));
    let schema: [&[u8]; 4] = [b"FP.SPACE", b"CREATE", b"rows", b"id u64, name utf8"];
    assert_eq!(client.bytes(&schema), b"+OK\r\n");
    let rows: Vec<String> = (0..1000).map(|row| format!("{row} {}", "r".repeat(100))).collect();
    assert_eq!(client.run(&format!("FP.ROWSET rows {}", rows.join(" "))), ":1000");
    assert!((0..1000).all(|row| client.has(&format!("rows:{row}"))));
    // Evicting a watched key makes the `EXEC` of the watching client fail.
    assert_eq!(client.run("SET watched 1"), "+OK");
    assert_eq!(client.run("WATCH watched"), "+OK");
    let mut other = Client::new(&keys);
    other.random = 4;
    let mut more = 0;
    while other.has("watched") {
        assert_eq!(other.run(&format!("SET more{more} {}", "v".repeat(100))), "+OK");
        more += 1;
    }
    assert_eq!(other.run("SET watched 1"), "+OK");
    assert_eq!(client.run("MULTI"), "+OK");
    assert_eq!(client.run("EXEC"), "*-1");
}

#[test]
fn cuts_stay_right_while_keys_go() {
    for limits in [(64, 2 << 20), (4, 0)] {
        let keys = keyspace(limits.0);
        limit(&keys, limits.1, Policy::AllKeysLru);
        let mut client = Client::new(&keys);
        let (mut read, mut stale) = (0, 0);
        for round in 0..30 {
            let count = if round % 2 == 0 { 30_000 } else { 2 };
            (0..count).for_each(|key| {
                assert_eq!(client.run(&format!("SET {round}k{key} {}", "v".repeat(key % 200 + 1))), "+OK");
            });
            let before = all(&keys);
            let cut = keys.cut(0, client.now);
            // Reads change the stamps (records of use) of entries that the cut keeps, which is not a change of their
            // contents.
            before.keys().take(1000).for_each(|key| drop(client.run(&format!("GET {key}"))));
            let count = if round % 3 == 0 { 20_000 } else { 20 };
            (0..count).for_each(|key| {
                drop(client.run(&format!("SET {round}k{key} {}", "w".repeat(key % 100 + 1))))
            });
            let mut found = BTreeMap::new();
            let done = cut.parts(100, 10_000).and_then(|parts| {
                parts.iter().try_for_each(|part| {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let read = cut.read(part, None, |some| {
                        for entry in some {
                            let value = text(entry.string().unwrap());
                            found.insert(text(entry.key()), format!("${}|{value}", value.len()));
                        }
                    });
                    read.map(drop)
                })
            });
            match done {
                Ok(()) => {
                    assert_eq!(found, before);
                    read += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Stale);
                    stale += 1;
                }
            }
            drop(cut);
            client.pass();
        }
        println!("{read} cuts were read, {stale} given up");
        assert!(read > 0 && stale > 0);
    }
}

#[test]
fn use_is_told_where_the_policy_knows_it() {
    let keys = keyspace(64);
    let mut client = Client::new(&keys);
    client.run("SET key 1");
    assert!(client.run("OBJECT FREQ key").starts_with("-ERR An LFU maxmemory policy is not selected"));
    assert!(client.run("OBJECT IDLETIME key").starts_with("-ERR An LRU maxmemory policy is not selected"));
    assert_eq!(client.run("OBJECT FREQ none"), "$-1");
    limit(&keys, 0, Policy::AllKeysLfu);
    client.run("SET new 1");
    assert_eq!(client.run("OBJECT FREQ new"), ":5");
    client.run("GET new");
    assert_eq!(client.run("OBJECT FREQ new"), ":6");
    // These commands do not count as a use of the key, so the counter stays the same.
    for quiet in ["TTL new", "TYPE new", "EXISTS new", "OBJECT ENCODING new", "MEMORY USAGE new", "SCAN 0"] {
        client.run(quiet);
    }
    assert_eq!(client.run("OBJECT FREQ new"), ":6");
    limit(&keys, 0, Policy::VolatileLru);
    client.run("SET old 1");
    client.now += 7_200_000;
    (0..120).for_each(|minute| while keys.tidy(NOW + minute * 60_000) {});
    client.run("SET new 1");
    assert_eq!(client.run("OBJECT IDLETIME new"), ":0");
    let idle: u64 = client.run("OBJECT IDLETIME old")[1..].parse().unwrap();
    assert!((6000..=7200).contains(&idle), "{idle}");
    let uses = keys.uses();
    assert_eq!((uses.hits, uses.misses), (1, 0));
    client.run("MGET new none new");
    client.run("HGET none field");
    assert_eq!((keys.uses().hits, keys.uses().misses), (3, 2));
}

/// Writes keys until the reply says that memory is full.
fn fill(client: &mut Client) {
    for bytes in [1000, 300, 100, 20, 1] {
        let mut refused = 0;
        for key in 0.. {
            let reply = client.run(&format!("SET fill{bytes}-{key} {}", "f".repeat(bytes)));
            refused += usize::from(reply != "+OK");
            if refused > 100 {
                break;
            }
        }
    }
}

#[test]
fn commands_of_several_keys_or_fields_do_all_or_nothing_where_there_is_no_room() {
    let (keys, kept) = (keyspace(64), RecordingJournal::default());
    keys.set_journal(Box::new(kept.clone()));
    let mut client = Client::new(&keys);
    let schema: [&[u8]; 4] = [b"FP.SPACE", b"CREATE", b"rows", b"id u64, name utf8, city utf8"];
    assert_eq!(client.bytes(&schema), b"+OK\r\n");
    for key in 0..50 {
        assert_eq!(client.run(&format!("SET old{key} {}", "o".repeat(50))), "+OK");
        assert_eq!(client.run(&format!("HSET small{key} a 1 b 2")), ":2");
        assert_eq!(client.run(&format!("HSET large{key} a {} b 2", "l".repeat(100))), ":2");
        assert_eq!(client.run(&format!("FP.ROWSET rows {key} name city")), ":1");
    }
    limit(&keys, 1 << 20, Policy::NoEviction);
    fill(&mut client);
    let texts = |client: &mut Client| {
        let mut texts = Vec::new();
        for key in 0..50 {
            for ask in ["GET old", "HGETALL small", "HGETALL large", "HGETALL rows:", "GET new"] {
                let reply = client.run(&format!("{ask}{key}"));
                // Sorted, because the fields of a hash have no defined order.
                let mut lines: Vec<String> = reply.split('|').map(String::from).collect();
                lines.sort();
                texts.push(lines.join("|"));
            }
        }
        texts
    };
    let (mut refused, mut done) = (0, 0);
    let mut before = texts(&mut client);
    for round in 0..200_usize {
        let long = "n".repeat(30 + round * 37 % 600);
        let all = |name: &str, more: &str| -> String {
            (0..50).map(|key| format!(" {name}{} {long}{more}", (key * 7 + round) % 50)).collect()
        };
        let command = match round % 6 {
            0 => format!("MSET{}{}", all("old", ""), all("new", "")),
            1 => format!("MSETNX{}", all("new", "")),
            2 => format!("HSET small{}{}", round % 50, all("f", "")),
            3 => format!("HSET large{}{} a x a y", round % 50, all("f", "")),
            4 => format!("FP.ROWSET rows{}", all("", " city")),
            _ => format!("MSET old1 x old1 {long} old2 y{} old1 z{}", all("old", ""), all("new", "")),
        };
        let is_refused = client.run(&command).starts_with("-OOM");
        let after = texts(&mut client);
        if is_refused {
            assert_eq!(after, before, "{command}");
            refused += 1;
        } else {
            done += 1;
        }
        // Raises the memory limit by a different amount in each round, which may be enough for all keys of a command or
        // for some of them only.
        limit(&keys, (1 << 20) + ((round as u64) << 11), Policy::NoEviction);
        if round % 20 == 19 {
            client.run(&format!("MSET{}", all("old", "").replace(&long, "o")));
            (0..50).for_each(|key| drop(client.run(&format!("DEL new{key}"))));
        }
        before = texts(&mut client);
    }
    assert!(refused > 20 && done > 20, "{refused} refused, {done} done");
    let again = keyspace(64);
    let mut replay = Replay::default();
    kept.0.lock().iter().for_each(|record| replay.apply(&again, record).unwrap());
    assert_eq!(texts(&mut Client::new(&again)), texts(&mut client));
}

/// Memory for a large value is found by evicting keys of all shards, also if the value is larger than all keys of its
/// own shard.
#[test]
fn large_values_find_room_in_all_shards() {
    let sizes = [10, 1_000, 15_000, 40_000, 120_000, 300_000, 1_000_000];
    for (mib, maxmemory) in [(64, 5 << 20), (64, 13 << 20), (64, 40 << 20), (24, 0)] {
        for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::NoEviction) {
            let keys = keyspace(mib);
            limit(&keys, maxmemory, policy);
            let mut client = Client::new(&keys);
            for key in 0..500 {
                let bytes = sizes[(client.random() % 7) as usize];
                let value = "b".repeat(bytes);
                let reply = client.run(&format!("SET b{key} {value} EX 1000"));
                assert_eq!(reply, "+OK", "{key} of {bytes} bytes, {mib} MiB, {maxmemory}, {}", policy.name());
                assert_eq!(client.run(&format!("STRLEN b{key}")), format!(":{bytes}"));
            }
        }
    }
}

/// Commands on several keys and transactions have locked all their shards already, and evict keys from these.
#[test]
fn large_values_of_one_command_find_room() {
    let keys = keyspace(64);
    limit(&keys, 8 << 20, Policy::AllKeysLru);
    let mut client = Client::new(&keys);
    let value = "v".repeat(300_000);
    for round in 0..40 {
        let pairs: Vec<String> = (0..8).map(|key| format!("{round}:{key} {value}")).collect();
        assert_eq!(client.run(&format!("MSET {}", pairs.join(" "))), "+OK");
        client.run("MULTI");
        (0..8).for_each(|key| drop(client.run(&format!("SET {round}:x{key} {value}"))));
        assert_eq!(client.run("EXEC"), format!("*8{}", "|+OK".repeat(8)));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "several threads write")]
fn large_values_find_room_while_others_have_all_shards() {
    let keys = keyspace(64);
    limit(&keys, 6 << 20, Policy::AllKeysLru);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let keys = &keys;
            scope.spawn(move || {
                let mut client = Client::new(keys);
                client.random = 77 + thread;
                for key in 0..600 {
                    let value = "b".repeat([1_000, 100_000, 700_000][key % 3]);
                    assert_eq!(client.run(&format!("SET b{thread}-{key} {value}")), "+OK");
                }
            });
        }
        scope.spawn(|| {
            let mut client = Client::new(&keys);
            (0..2_000).for_each(|_| drop(client.run("SCAN 0 COUNT 1000")));
        });
    });
}

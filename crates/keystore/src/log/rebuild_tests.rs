//! Tests of replication and rollback by random commands on a key store. A second store that only applies the log
//! records of the first must have the same contents after every step. Then the last records are rolled back, and the
//! first store must be as if they had never existed.

use super::{Applier, Fsync, SteppedKeys};
use crate::keyspaces::Keyspaces;
use farpool_disk::{Directory, SimulatedDirectory};
use farpool_kv::evict::Policy;
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{KeyDigest, NoHost, Session, TimeAndRandom, WhenFull};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{Clock, ErrorKind, TenantName};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

/// Size of a log file in bytes; a record may have at most a quarter of it.
const FILE_BYTES: u64 = 4 << 20;

/// A clock of the node that always shows the same time, so that tests are reproducible.
#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now_ns(&self) -> u64 {
        NOW * 1_000_000
    }

    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

/// Creates empty keyspaces. Keyspaces with different seeds and numbers of processors differ in hashes and shards, but
/// must have the same contents.
fn keyspaces(memory: usize, processors: usize, seed: u64) -> Arc<Keyspaces> {
    let pool = Pool::new(PoolConfig { bytes_limit: memory }).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(StoppedClock);
    Arc::new(Keyspaces::new(&pool, processors, seed, &clock))
}

fn tenants() -> [TenantName; 2] {
    ["ann", "ben"].map(|name| TenantName::new(name).unwrap())
}

type Digests = BTreeMap<TenantName, KeyDigest>;

/// Returns the digest (hash of the contents) of each tenant's keys at the time `now`.
fn digests(keyspaces: &Keyspaces, now: u64) -> Digests {
    tenants().map(|tenant| (tenant.clone(), keyspaces.of(&tenant).digest(now).unwrap())).into()
}

/// A key store with a log, on a simulated disk, and its clients' sessions.
struct Store {
    keyspaces: Arc<Keyspaces>,
    log: SteppedKeys,
    sessions: [Session; 2],
    now: u64,
}

impl Store {
    fn open(directory: &Arc<SimulatedDirectory>) -> Store {
        let keyspaces = keyspaces(64 << 20, 1, 7);
        let directory = directory.clone() as Arc<dyn Directory>;
        let log = SteppedKeys::open(&keyspaces, directory, Fsync::Always, FILE_BYTES).unwrap();
        Store { keyspaces, log, sessions: Default::default(), now: NOW }
    }

    /// Executes a command of a tenant; returns the reply.
    fn run(&mut self, tenant: usize, command: &str) -> String {
        let keys = self.keyspaces.of(&tenants()[tenant]);
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
        let moment = TimeAndRandom { now: self.now, random: self.now };
        self.sessions[tenant].execute(&keys, &args, moment, &mut NoHost, &mut replies);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Executes a step: a command, or background work as a node does it.
    fn step(&mut self, Step { tenant, what, ms }: &Step) {
        self.now += ms;
        let keys = self.keyspaces.of(&tenants()[*tenant]);
        let words: Vec<&str> = what.split(' ').collect();
        match words[..] {
            ["TIDY"] => drop(keys.tidy(self.now)),
            ["TIME"] => self.log.record_time().unwrap(),
            ["SNAPSHOT"] => self.log.take_snapshot(1, &mut || {}).unwrap(),
            ["LIMIT", policy, bytes] => {
                let moment = TimeAndRandom { now: self.now, random: 1 };
                let (policy, bytes) = (policy.parse::<usize>().unwrap(), bytes.parse().unwrap());
                let policy = Policy::ALL[policy % Policy::ALL.len()];
                let set =
                    keys.set_limits(moment, |limits| (limits.maxmemory, limits.policy) = (bytes, policy));
                set.unwrap();
            }
            _ => drop(self.run(*tenant, what)),
        }
    }

    /// Applies the log's records from number `from` on to the keyspaces of `applier`; returns the number of the next
    /// record.
    fn follow(&self, from: u64, applier: &mut Applier) -> u64 {
        let end = self.log.next_record();
        self.log.read(from..end, &mut |_, record| applier.apply(record)).unwrap();
        end
    }
}

#[derive(Clone, Debug)]
struct Step {
    tenant: usize,
    what: String,
    /// Milliseconds since the step before.
    ms: u64,
}

/// Returns a step on a few keys, so that steps often meet the same key.
fn step() -> impl Strategy<Value = Step> {
    let key = || prop_oneof![Just("a"), Just("b"), Just("c"), Just("u:1"), Just("u:2"), Just("s:x")];
    let hash = || prop_oneof![Just("h"), Just("i"), Just("u:1"), Just("u:3")];
    let word = prop_oneof![Just("1".to_string()), "[xyz]{60,90}", Just("v".repeat(20_000))];
    let what = prop_oneof![
        (key(), word.clone()).prop_map(|(key, word)| format!("SET {key} {word}")),
        (0..40, word.clone()).prop_map(|(key, word)| format!("SET other{key} {word}")),
        (key(), word.clone(), 1..40).prop_map(|(key, word, ms)| format!("SET {key} {word} PX {ms}")),
        (key(), word.clone()).prop_map(|(key, word)| format!("APPEND {key} {word}")),
        (key(), 0..300, word.clone()).prop_map(|(key, at, word)| format!("SETRANGE {key} {at} {word}")),
        key().prop_map(|key| format!("INCR {key}")),
        (key(), key(), word.clone()).prop_map(|(a, b, word)| format!("MSET {a} {word} {b} 7")),
        (hash(), 0..9, word.clone()).prop_map(|(key, field, word)| format!("HSET {key} f{field} {word}")),
        (hash(), 0..9).prop_map(|(key, field)| format!("HDEL {key} f{field}")),
        (prop_oneof![Just("u:1"), Just("u:2")], 0..9).prop_map(|(key, n)| format!("HSET {key} n {n}")),
        (key(), 1..60).prop_map(|(key, ms)| format!("PEXPIRE {key} {ms}")),
        (hash(), 1..60).prop_map(|(key, ms)| format!("PEXPIRE {key} {ms}")),
        key().prop_map(|key| format!("PERSIST {key}")),
        key().prop_map(|key| format!("GETDEL {key}")),
        hash().prop_map(|key| format!("DEL {key}")),
        (hash(), hash()).prop_map(|(a, b)| format!("RENAME {a} {b}")),
        (key(), key(), 0..3).prop_map(|(a, b, to)| format!("COPY {a} {b} DB {to} REPLACE")),
        (0..3).prop_map(|space| format!("SELECT {space}")),
        (0..10_usize, prop_oneof![Just(0), Just(200_000), Just(1_000_000)])
            .prop_map(|(policy, bytes)| format!("LIMIT {policy} {bytes}")),
        prop_oneof![Just("MULTI"), Just("EXEC"), Just("EXEC"), Just("FLUSHDB"), Just("TIDY"), Just("TIME")]
            .prop_map(String::from),
        prop_oneof![
            Just("FP.SPACE CREATE u id u64, n i32"),
            Just("FP.SPACE DROP u"),
            Just("FP.SPACE CREATE s"),
            Just("SNAPSHOT"),
        ]
        .prop_map(String::from),
    ];
    (0..2_usize, what, 0..5_u64).prop_map(|(tenant, what, ms)| Step { tenant, what, ms })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn records_alone_give_the_same_contents_and_cut_off_ones_leave_no_trace(
        steps in prop::collection::vec(step(), 1..80),
        more in prop::collection::vec(step(), 1..20),
        cut in 0.0..1.0_f64,
    ) {
        let directory = SimulatedDirectory::new();
        let mut store = Store::open(&directory);
        let other = keyspaces(64 << 20, 2, 8);
        let mut applier = Applier::new(&other, WhenFull::Fail);
        let (mut applied, mut records, mut least) = (0, Vec::new(), 0);
        for step in &steps {
            store.step(step);
            let end = store.log.next_record();
            if step.what == "SNAPSHOT" {
                least = end;
            }
            store.log.write();
            let keep = &mut |_, record: &[u8]| {
                records.push(record.to_vec());
                Ok(())
            };
            store.log.read(applied..end, keep).unwrap();
            for record in &records[applied as usize..] {
                applier.apply(record).unwrap();
            }
            applied = end;
            for tenant in tenants() {
                other.of(&tenant).tidy_applied();
            }
            prop_assert_eq!(digests(&other, store.now), digests(&store.keyspaces, store.now));
        }
        // The number of the first record that is rolled back.
        let end = least + ((applied - least) as f64 * cut) as u64;
        if least > 0 {
            let refused = store.log.rebuild(least - 1, 1).unwrap_err();
            prop_assert_eq!(refused.kind, ErrorKind::Invalid);
        }
        let before = keyspaces(64 << 20, 3, 9);
        let mut applier = Applier::new(&before, WhenFull::Fail);
        records[..end as usize].iter().for_each(|record| applier.apply(record).unwrap());
        store.log.rebuild(end, 1).unwrap();
        prop_assert_eq!(digests(&store.keyspaces, store.now), digests(&before, store.now));
        // After the rollback, the store continues; so do a follower that applies its records, and a restart from its
        // files.
        let mut applied = store.log.next_record();
        let mut applier = Applier::new(&before, WhenFull::Fail);
        store.sessions = Default::default();
        for step in more.iter().filter(|step| step.what != "SNAPSHOT") {
            store.step(step);
            store.log.write();
            applied = store.follow(applied, &mut applier);
            prop_assert_eq!(digests(&store.keyspaces, store.now), digests(&before, store.now));
        }
        let now = store.now;
        drop(store);
        directory.crash(1);
        prop_assert_eq!(digests(&Store::open(&directory).keyspaces, now), digests(&before, now));
    }
}

#[test]
fn commands_are_refused_while_keys_are_rebuilt_and_when_that_fails() {
    let directory = SimulatedDirectory::new();
    let mut store = Store::open(&directory);
    assert_eq!(store.run(0, "SET a 1"), "+OK\r\n");
    assert_eq!(store.run(0, "SET a 2"), "+OK\r\n");
    assert_eq!(store.log.rebuild(3, 1).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(store.run(0, "GET a"), "$1\r\n2\r\n");
    for command in ["WATCH a", "MULTI", "GET a"] {
        store.run(0, command);
    }
    store.log.rebuild(1, 1).unwrap();
    // The rebuild counts as a change of watched keys, so `EXEC` replies null.
    assert_eq!(store.run(0, "EXEC"), "*-1\r\n");
    assert_eq!(store.run(0, "GET a"), "$1\r\n1\r\n");
    assert_eq!(store.run(1, "SET b 1"), "+OK\r\n");
    // The snapshot is corrupt, which the rebuild detects only after it has removed all keys.
    let file = directory.names().unwrap().into_iter().find(|name| name.starts_with("kv-snapshot-")).unwrap();
    directory.flip(&file, 512 + 50, 1);
    let end = store.log.next_record();
    assert_eq!(store.log.rebuild(end, 1).unwrap_err().kind, ErrorKind::Corrupt);
    for (tenant, command) in [(0, "GET a"), (0, "SET a 3"), (1, "GET b"), (0, "WATCH a"), (0, "DBSIZE")] {
        let reply = store.run(tenant, command);
        assert!(reply.starts_with("-LOADING the keys are being rebuilt"), "{reply}");
    }
    assert!(!store.log.is_writing());
}

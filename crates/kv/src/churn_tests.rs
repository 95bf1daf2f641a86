//! Hours of churn in miniature: keys are set, overwritten with values of other sizes, removed and expire, many times as
//! many as exist at any time, while cuts are read and snapshots walk over the keys. Afterwards, memory usage is within
//! a stated factor of a new keyspace with the same keys.

use crate::resp::{Protocol, Replies};
use crate::{Args, Journal, KeyCut, Keyspace, NoHost, Session, TimeAndRandom, Walk};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::limits::PAGE_BYTES;
use farpool_model::{Result, TenantName};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;
const KEYS: usize = 20_000;
const SHARDS: usize = 4;

/// Most memory, relative to a new keyspace with the same keys.
const AFTER_CHURN: f64 = 1.25;
const AFTER_REMOVALS: f64 = 1.5;

/// A log of changes (journal) that discards its records.
struct Nowhere;

impl Journal for Nowhere {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn begin(&self, _: &mut Vec<u8>) {}

    fn append(&self, _: &[u8]) -> Result<u64> {
        Ok(0)
    }
}

/// The expected contents of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    /// A string of this many bytes.
    Text(usize),
    /// A hash with this many fields.
    Fields(usize),
}

struct Churned {
    pool: Arc<Pool>,
    keys: Arc<Keyspace>,
    session: Session,
    random: u64,
    now: u64,
    held: Vec<Held>,
    written: usize,
}

impl Churned {
    fn new() -> Self {
        let pool = Pool::new(PoolConfig { bytes_limit: 512 << 20 }).unwrap();
        let keys = Arc::new(Keyspace::new(&pool, &TenantName::default(), [3; 16], SHARDS));
        let (session, held) = (Session::default(), vec![Held::Nothing; KEYS]);
        Churned { pool, keys, session, random: 9, now: NOW, held, written: 0 }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % end
    }

    fn run(&mut self, args: &Args<'_>) {
        let mut bytes = Vec::new();
        let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
        let moment = TimeAndRandom { now: self.now, random: self.random };
        self.session.execute(&self.keys, args, moment, &mut NoHost, &mut replies);
        assert!(!bytes.starts_with(b"-"), "{}", bytes.escape_ascii());
        self.written += args.iter().map(|arg| arg.len()).sum::<usize>();
    }

    fn set(&mut self, key: usize, held: Held) {
        let name = format!("key:{key}");
        match held {
            Held::Nothing => self.run(&[b"DEL", name.as_bytes()]),
            Held::Text(bytes) => self.run(&[b"SET", name.as_bytes(), &vec![b'v'; bytes]]),
            Held::Fields(count) => {
                self.run(&[b"DEL", name.as_bytes()]);
                for field in 0..count {
                    let field = format!("field:{field}");
                    self.run(&[b"HSET", name.as_bytes(), field.as_bytes(), b"a value of some bytes"]);
                }
            }
        }
        self.held[key] = held;
    }

    /// Sets, changes, removes or expires a random key. The sizes of values depend on `round`.
    fn change(&mut self, round: usize) {
        let key = self.below(KEYS);
        let most = [200, 1500, 400, 3000, 90, 800][round % 6];
        match self.below(100) {
            0..60 => {
                let bytes = self.below(most);
                self.set(key, Held::Text(bytes));
            }
            60..75 if self.held[key] != Held::Nothing => {
                let (name, ms) = (format!("key:{key}"), (1 + self.below(500)).to_string());
                self.run(&[b"PEXPIRE", name.as_bytes(), ms.as_bytes()]);
                // The model forgets the key at once, because time advances beyond the expiry before anything reads the
                // key again.
                self.held[key] = Held::Nothing;
                self.now += 501;
            }
            75..90 => self.set(key, Held::Nothing),
            90..95 => {
                let bytes = 1 + self.below(20);
                if let Held::Text(before) = self.held[key] {
                    self.run(&[b"APPEND", format!("key:{key}").as_bytes(), &vec![b'w'; bytes]]);
                    self.held[key] = Held::Text(before + bytes);
                }
            }
            95 => {
                let bytes = 16_000 + self.below(30_000);
                self.set(key, Held::Text(bytes));
            }
            96 => {
                let count = 1 + self.below(if round.is_multiple_of(2) { 300 } else { 10 });
                self.set(key, Held::Fields(count));
            }
            _ => {}
        }
    }

    fn tidy(&mut self) {
        for _ in 0..500 {
            while self.keys.tidy(self.now) {}
        }
    }

    /// Returns the bytes of pool allocations for entries and indexes, and of the pool's pages.
    fn bytes(&mut self) -> (usize, usize) {
        self.tidy();
        (self.keys.uses().bytes, self.pool.bytes_used())
    }

    /// Returns what [`Churned::bytes`] would return for a new keyspace with the same keys and values.
    fn fresh(&self) -> (usize, usize) {
        let mut fresh = Churned::new();
        for (key, held) in self.held.iter().enumerate().filter(|(_, held)| **held != Held::Nothing) {
            fresh.set(key, *held);
        }
        fresh.bytes()
    }

    fn count(&self) -> usize {
        self.held.iter().filter(|held| **held != Held::Nothing).count()
    }
}

fn entries(cut: &KeyCut) -> usize {
    let mut count = 0;
    for part in cut.parts(500, 1 << 20).unwrap() {
        cut.read(&part, None, |entries| count += entries.len()).unwrap();
    }
    count
}

#[test]
fn memory_does_not_creep_with_churn_cuts_and_walks() {
    let mut churned = Churned::new();
    let (mut walk, mut cut, mut pages_most) = (Walk::default(), None::<(KeyCut, usize)>, 0);
    for round in 0..12 {
        for step in 0..KEYS {
            churned.change(round);
            // Background maintenance, as a node does it.
            if step % 500 == 0 {
                churned.keys.tidy(churned.now);
            }
            if step % 64 == 0 && !churned.keys.walk(&mut walk, &Nowhere).unwrap() {
                walk = Walk::default();
            }
            // A point-in-time view is taken, is kept while keys change, as for a SQL statement, and is then read and
            // dropped.
            if step % 4000 == 1000 {
                cut = Some((churned.keys.cut(0, churned.now), churned.count()));
            } else if step % 4000 == 3000 {
                let (cut, count) = cut.take().expect("it began");
                assert_eq!(entries(&cut), count);
            }
        }
        let (now, fresh) = (churned.bytes(), churned.fresh());
        let limit = AFTER_CHURN * fresh.0 as f64;
        assert!(now.0 as f64 <= limit, "round {round}: {} bytes in place of {}", now.0, fresh.0);
        // The sizes of values repeat every six rounds, so the later rounds must not need more pages than the first six.
        if round < 6 {
            pages_most = pages_most.max(now.1);
        }
        assert!(now.1 <= pages_most + 2 * PAGE_BYTES, "round {round}: {} bytes of pages", now.1);
    }
    assert!(churned.written > 5 * churned.fresh().0);
    for key in (0..KEYS).filter(|key| key % 100 != 0) {
        churned.set(key, Held::Nothing);
    }
    let (now, fresh) = (churned.bytes(), churned.fresh());
    let limit = AFTER_REMOVALS * fresh.0 as f64;
    assert!(now.0 as f64 <= limit, "{} bytes in place of {}", now.0, fresh.0);
    assert!(2 * now.1 <= pages_most, "{} bytes of pages, of {pages_most}", now.1);
    for key in 0..KEYS {
        churned.set(key, Held::Nothing);
    }
    assert_eq!(churned.bytes(), (0, 0));
}

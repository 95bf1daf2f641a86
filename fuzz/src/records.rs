//! Fuzz body that applies log records of changes of keys.

use farpool_kv::{Journal, Keyspace, Replay, Walk};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{Result, TenantName};
use std::sync::{Arc, Mutex};

/// A sink that stores records.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Vec<u8>>>>);

impl Journal for Kept {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn begin(&self, _: &mut Vec<u8>) {}

    fn append(&self, record: &[u8]) -> Result<u64> {
        let mut records = self.0.lock().expect("nobody panics with it");
        records.push(record.to_vec());
        Ok(records.len() as u64 - 1)
    }
}

/// Applies the records, each preceded by its length in two bytes, to keys in little memory. The records of a walk over
/// the keys must restore the same keys.
pub fn key_records(mut data: &[u8]) {
    let keys = keyspace();
    let mut replay = Replay::default();
    while let Some((length, rest)) = data.split_first_chunk() {
        let (record, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        data = rest;
        if replay.apply(&keys, record).is_err() {
            break;
        }
    }
    let kept = Kept::default();
    let mut walk = Walk::default();
    while keys.walk(&mut walk, &kept).expect("nothing is refused") {}
    let again = keyspace();
    let mut replay = Replay::default();
    for record in kept.0.lock().expect("nobody panics with it").iter() {
        replay.apply(&again, record).expect("what we write, we read");
    }
    let counts = |keys: &Keyspace| {
        let counts = keys.counts().into_iter();
        counts.map(|(space, count)| (space, count.keys, count.expiring)).collect::<Vec<_>>()
    };
    assert_eq!(counts(&keys), counts(&again));
}

fn keyspace() -> Keyspace {
    let pool = Pool::new(PoolConfig { bytes_limit: 8 << 20 }).expect("memory for a small pool");
    Keyspace::new(&pool, &TenantName::default(), [7; 16], 2)
}

//! Digests: whether two keyspaces have the same contents, however these lie in memory.

use crate::entry::{Entry, Kind};
use crate::keyspace::Keyspace;
use crate::shard::SpaceId;
use crate::table::Table;
use farpool_model::Result;
use farpool_model::cast::u64_from;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// The digest of a keyspace: equal for equal contents, and different, but for a chance of 2^-128, for others.
///
/// The contents are the keys with their types, values and expiry times, the definitions of spaces, and the limits. The
/// numbers of shards, hash secrets, compression, and the order in which anything was written make no difference, so
/// that digests of two nodes can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyDigest {
    /// Number of keys.
    pub keys: u64,
    /// Sum of the hashes of all keys with their values, modulo 2^128.
    sum: u128,
    /// Hash of the definitions of spaces and of the limits.
    settings: u128,
}

impl Keyspace {
    /// Computes the digest of all keys that exist at `now`, in milliseconds since the epoch. All shards are held
    /// meanwhile, as by a long command: blocks until long commands have ended, and takes as long as reading all values.
    ///
    /// # Errors
    /// `Corrupt` where a compressed value is damaged.
    pub fn digest(&self, now: u64) -> Result<KeyDigest> {
        let all: Vec<usize> = (0..self.shards()).collect();
        let (shards, _hold) = self.hold_all(&all);
        let mut digest = KeyDigest::default();
        for (space, table) in shards.iter().flat_map(|shard| shard.tables()) {
            digest.add_table(space, table, now)?;
        }
        let limits = self.limits();
        let definitions = shards.first().map(|shard| shard.spaces().to_bytes()).unwrap_or_default();
        let numbers = [limits.maxmemory, u64::from(limits.policy.number())];
        digest.settings = hash_of(&numbers, &[&definitions]);
        Ok(digest)
    }
}

impl KeyDigest {
    fn add_table(&mut self, space: SpaceId, table: &Table, now: u64) -> Result<()> {
        let (mut cursor, mut entries) = (0, Vec::new());
        loop {
            cursor = table.scan_entries(cursor, now, &mut entries);
            for entry in entries.drain(..) {
                self.keys += 1;
                self.sum = self.sum.wrapping_add(hash_of_entry(space, table, entry)?);
            }
            if cursor == 0 {
                return Ok(());
            }
        }
    }
}

fn hash_of_entry(space: SpaceId, table: &Table, entry: Entry<'_>) -> Result<u128> {
    // Small and large hashes differ only in how they are stored.
    let kind = match entry.kind() {
        Kind::Fields | Kind::Table => Kind::Fields,
        other => other,
    };
    let numbers = [u64::from(space), kind as u64, entry.expiry().unwrap_or_default()];
    if kind != Kind::Fields {
        return Ok(hash_of(&numbers, &[entry.key(), &table.plain(entry)?]));
    }
    let fields = table.fields(table.hash(entry.key()), entry.key(), None, 0)?.flatten();
    let (mut cursor, mut sum) = (0, 0_u128);
    while let Some(fields) = &fields {
        cursor = fields.scan(cursor, |field, value| sum = sum.wrapping_add(hash_of(&[], &[field, value])));
        if cursor == 0 {
            break;
        }
    }
    Ok(hash_of(&numbers, &[entry.key(), &sum.to_le_bytes()]))
}

/// Returns the hash of some numbers and parts, by SipHash-1-3 with a key of zeros.
fn hash_of(numbers: &[u64], parts: &[&[u8]]) -> u128 {
    let mut hasher = SipHasher13::new();
    numbers.iter().for_each(|number| hasher.write(&number.to_le_bytes()));
    for part in parts {
        hasher.write(&u64_from(part.len()).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Protocol, Replies};
    use crate::{NoHost, Session, TimeAndRandom};
    use farpool_memory::{Pool, PoolConfig};
    use farpool_model::TenantName;

    const NOW: u64 = 1_700_000_000_000;

    fn digest_of(shards: usize, commands: &[&str]) -> KeyDigest {
        let pool = Pool::new(PoolConfig { bytes_limit: 32 << 20 }).unwrap();
        let keys = Keyspace::new(&pool, &TenantName::default(), [shards as u8; 16], shards);
        let (mut session, mut bytes) = (Session::default(), Vec::new());
        for command in commands {
            let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            let mut replies = Replies::new(&mut bytes, Protocol::Resp2);
            let moment = TimeAndRandom { now: NOW, random: 1 };
            session.execute(&keys, &args, moment, &mut NoHost, &mut replies);
        }
        assert!(!bytes.contains(&b'-'), "{}", bytes.escape_ascii());
        keys.digest(NOW).unwrap()
    }

    #[test]
    fn equal_contents_have_equal_digests_however_they_came_about() {
        let one = digest_of(3, &["SET a 1", "SET b 2 PX 50", "HSET h f 1 g 2", "SELECT 2", "SET a 3"]);
        let other = digest_of(
            7,
            &[
                "SELECT 2",
                "SET a 3",
                "SELECT 0",
                "HSET h g 2 x 9",
                "HSET h f 1",
                "HDEL h x",
                "SET b 2 PX 50",
                "SET a 1",
            ],
        );
        assert_eq!((one.keys, one), (4, other));
        // A hash that was large once.
        let long = "v".repeat(100);
        let large = digest_of(3, &[&format!("HSET h f {long}"), "HSET h f 1"]);
        assert_eq!(large, digest_of(3, &["HSET h f 1"]));
    }

    #[test]
    fn every_difference_shows() {
        let commands: &[&[&str]] = &[
            &[],
            &["SET a 1"],
            &["SET a 2"],
            &["SET b 1"],
            &["SET a1 x", "SET b y"],
            &["SET a y", "SET b1 x"],
            &["SET a 1 PX 50"],
            &["SET a 1 PX 51"],
            &["SELECT 1", "SET a 1"],
            &["HSET a 1 2"],
            &["HSET a 2 1"],
            &["HSET a 1 2 3 4"],
            &["FP.SPACE CREATE s"],
            &["FP.SPACE CREATE t"],
        ];
        let digests: Vec<KeyDigest> = commands.iter().map(|commands| digest_of(3, commands)).collect();
        for (at, one) in digests.iter().enumerate() {
            assert!(digests[..at].iter().all(|other| other != one), "{:?}", commands[at]);
        }
    }
}

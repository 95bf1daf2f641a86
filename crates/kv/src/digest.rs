//! Digests of keyspaces, to find out whether two keyspaces (of a leader and a replica, for example) have the same
//! contents.

use crate::entry::{Entry, Kind};
use crate::keyspace::Keyspace;
use crate::shard::SpaceId;
use crate::table::Table;
use farpool_model::Result;
use farpool_model::cast::u64_from;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// The digest of a keyspace: equal for equal contents, and different for different contents except with a probability
/// of about 2^-128.
///
/// The contents are the keys with their types, values and expiries, the definitions of spaces, and the limits. The
/// number of shards, the secret of the hash function, compression, and the order of writes make no difference, so that
/// digests of two nodes can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyDigest {
    /// Number of keys.
    pub keys: u64,
    /// Sum, modulo 2^128, of one hash per key, which includes the value and the expiry. A sum does not depend on the
    /// order.
    sum: u128,
    /// Hash of the definitions of spaces and of the limits.
    settings: u128,
}

impl Keyspace {
    /// Computes the digest of all keys that exist at `now`, in milliseconds since the epoch. Holds all shards as a long
    /// command does: blocks until other long commands have ended, and takes as long as reading all values.
    ///
    /// # Errors
    /// `Corrupt` if a compressed value is corrupt.
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
    // Small and large hashes count as the same kind, because their contents may be equal in different encodings.
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

/// Returns the hash of some numbers and parts: SipHash-1-3 with a seed of zeros, because two nodes must compute equal
/// hashes of equal contents.
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
        // A hash that has become large, and small again, keeps the encoding of large hashes.
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

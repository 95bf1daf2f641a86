//! Look-ahead for pipelined requests: looks up the commands and hashes the keys of requests that are received but not
//! executed yet, and prefetches the memory of their keys. Reason: a short command spends most of its time waiting for
//! memory, and fetching many keys at once takes hardly longer than fetching one.

use crate::commands::{Args, Command, Keys, Place, command};
use crate::keyspace::Keyspace;
use crate::shard::SpaceId;
use crate::table::Table;

/// Maximum bytes of a key that is hashed in advance. Reason: an argument may have 512 MiB, and the look-ahead must be
/// short.
const KEY_BYTES: usize = 4096;

/// Maximum number of keys that are prefetched at once. Reason: more keys would evict each other from the processor's
/// cache.
const KEYS: usize = 64;

/// Findings of the look-ahead about one request: its command, and the hash of its key.
#[derive(Clone, Copy, Default)]
pub struct LookAhead {
    pub(crate) command: Option<&'static Command>,
    /// Hash of the request's key; `None` unless the command has exactly one key and it is short.
    pub(crate) hash: Option<u64>,
}

impl LookAhead {
    /// Returns the look-ahead for a request to `keyspace`. The result must not be used with another keyspace, whose
    /// hash function may differ.
    pub fn of(keyspace: &Keyspace, args: &Args<'_>) -> LookAhead {
        let command = command(args);
        let key = command.and_then(|command| match command.keys {
            Keys::At { first, last, .. } if last == first as isize => args.get(first),
            _ => None,
        });
        let key = key.filter(|key| key.len() <= KEY_BYTES);
        LookAhead { command, hash: key.map(|key| keyspace.hash(key)) }
    }

    /// Returns the command of the request; `None` if there is no such command.
    pub fn command(&self) -> Option<&'static Command> {
        self.command
    }

    /// Returns whether the request is a command on keys.
    pub fn is_of_keys(&self) -> bool {
        self.command.is_some_and(|command| matches!(command.place, Place::Keyspace(_)))
    }
}

/// A list of keys of pending requests whose memory is to be prefetched.
pub struct PrefetchList<'a> {
    keys: [(u64, &'a [u8]); KEYS],
    count: usize,
}

impl<'a> PrefetchList<'a> {
    /// Creates an empty list.
    pub fn new() -> Self {
        PrefetchList { keys: [(0, &[]); KEYS], count: 0 }
    }

    /// Adds the keys of a request, up to the capacity of the list.
    pub fn add(&mut self, keyspace: &Keyspace, ahead: &LookAhead, args: &Args<'a>) {
        let Some(command) = ahead.command else { return };
        let keys = command.keys.of(args).filter(|key| key.len() <= KEY_BYTES);
        let keys = keys.map(|key| (ahead.hash.unwrap_or_else(|| keyspace.hash(key)), key));
        for (place, key) in self.keys[self.count..].iter_mut().zip(keys) {
            *place = key;
            self.count += 1;
        }
    }

    /// Prefetches the index buckets and entries of the keys, for a client that has selected the space `selected`. Does
    /// not block: skips shards that other threads have locked.
    pub fn prefetch(&mut self, keyspace: &Keyspace, selected: SpaceId) {
        let keys = &mut self.keys[..self.count];
        if keys.len() < 2 {
            return;
        }
        keys.sort_unstable_by_key(|(hash, _)| keyspace.shard_of(*hash));
        for step in [Table::prefetch_index, Table::prefetch_entry] {
            for keys in keys.chunk_by(|one, other| keyspace.shard_of(one.0) == keyspace.shard_of(other.0)) {
                let Some(shard) = keyspace.try_lock(keyspace.shard_of(keys[0].0)) else { continue };
                for (hash, key) in keys {
                    if let Some(table) = shard.table(shard.owner(selected, key).0) {
                        step(table, *hash);
                    }
                }
            }
        }
    }
}

impl Default for PrefetchList<'_> {
    fn default() -> Self {
        PrefetchList::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_memory::{Pool, PoolConfig};

    #[test]
    fn of_a_request_its_command_and_the_hash_of_its_only_key_are_known() {
        let pool = Pool::new(PoolConfig { bytes_limit: 8 << 20 }).unwrap();
        let keys = Keyspace::new(&pool, &farpool_model::TenantName::default(), [3; 16], 4);
        let of = |args: &Args<'_>| {
            let LookAhead { command, hash } = LookAhead::of(&keys, args);
            (command.map_or("", |command| command.name), hash)
        };
        let hash = Some(keys.hash(b"k"));
        assert_eq!(of(&[b"GET", b"k"]), ("get", hash));
        assert_eq!(of(&[b"hset", b"k", b"f", b"v"]), ("hset", hash));
        assert_eq!(of(&[b"object", b"freq", b"k"]), ("object|freq", hash));
        // Several keys, no key, a missing key, an unknown command, no command.
        assert_eq!(of(&[b"mget", b"k"]), ("mget", None));
        assert_eq!(of(&[b"dbsize"]), ("dbsize", None));
        assert_eq!(of(&[b"get"]), ("get", None));
        assert_eq!(of(&[b"nope", b"k"]), ("", None));
        assert_eq!(of(&[]), ("", None));
        // The key is too long to be hashed in advance.
        assert_eq!(of(&[b"get", &[b'k'; KEY_BYTES + 1]]), ("get", None));
        let mut upcoming = PrefetchList::new();
        let many = [&b"k"[..]; KEYS * 2];
        for args in [&[&b"get"[..], b"k"][..], &[b"get"], &[b"ping"], &[&[&b"del"[..]], &many[..]].concat()] {
            upcoming.add(&keys, &LookAhead::of(&keys, args), args);
        }
        assert_eq!(upcoming.count, KEYS);
        // Absent keys, some of them in a shard that is locked.
        let taken = keys.lock(keys.shard_of(keys.hash(b"k")));
        upcoming.prefetch(&keys, 0);
        drop(taken);
        upcoming.prefetch(&keys, 3);
    }
}

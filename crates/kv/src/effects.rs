//! Effects: the changes that commands have made to keys, and their encoding in log records. An effect says what the key
//! is afterwards (physical logging) and not which command was executed, so that applying it twice is harmless.
//!
//! Invariant: replaying a sequence of effects ends in the same state, whether it starts from the state before the first
//! effect, from the state after the last, or from any state in between. So a snapshot may be taken while keys change:
//! replaying the effects recorded since its beginning gives the right keys, even those that the snapshot had already
//! seen changed.
//!
//! Two rules ensure this, because no effect is recorded when a key expires, and replay treats no key as expired. An
//! [`Effect::Edit`] or [`Effect::Field`] that creates a key follows an [`Effect::Remove`] of the key, and the expiry of
//! the key follows it. Example:
//!
//! 1. `a = "old"` expires.
//! 2. `APPEND a x` finds no `a` and creates `a = "x"`. It records: remove `a`, edit `a`.
//! 3. Replay still has `a = "old"`; without the removal it would end with a mixture of `"old"` and `"x"`.
//!
//! Layout of an effect: a byte for the kind of effect; the id of the space, then numbers and lengths, all as
//! variable-length integers (LEB128, seven bits per byte); then the bytes of the key, the field and the value.

use crate::entry::Kind;
use crate::evict::Policy;
use crate::fields::is_well_formed;
use crate::journal::WhenFull;
use crate::keyspace::Keyspace;
use crate::limits::Limits;
use crate::shard::SpaceId;
use crate::spaces::Spaces;
use crate::table::Table;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::limits::{KV_DICTIONARY_BYTES_MAX, KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX};
use farpool_model::{Error, ErrorKind, Result};

/// A change of one key, of all keys of a space, or of the settings of the keys. `space` is the id of the space (the
/// namespace) of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect<'a> {
    /// Sets the key to this value and expiry (milliseconds since the epoch), replacing what it was.
    Put { space: SpaceId, key: &'a [u8], kind: Kind, expiry: Option<u64>, value: &'a [u8] },
    /// Changes the string value of the key: sets its length to `length` and overwrites it with `bytes` from `offset`
    /// on. All other bytes stay as they were; added bytes are zero.
    Edit { space: SpaceId, key: &'a [u8], length: usize, offset: usize, bytes: &'a [u8] },
    /// Sets the expiry of the key, or removes it with `None`; does nothing if the key is absent.
    Expire { space: SpaceId, key: &'a [u8], expiry: Option<u64> },
    /// Removes the key.
    Remove { space: SpaceId, key: &'a [u8] },
    /// Sets a field of the hash (the map of fields, as in `HSET`) at the key, creating the hash if the key is absent.
    Field { space: SpaceId, key: &'a [u8], field: &'a [u8], value: &'a [u8] },
    /// Removes a field of the hash at the key, if there is one; removes the key with its last field.
    RemoveField { space: SpaceId, key: &'a [u8], field: &'a [u8] },
    /// Removes all keys of the space.
    Flush { space: SpaceId },
    /// Removes all keys of all spaces.
    FlushAll,
    /// Replaces the definitions of all named spaces (encoded as in `spaces.rs`).
    Spaces { definitions: &'a [u8] },
    /// Announces that about `keys` keys of the space follow, so that the index is sized once and need not grow.
    Expect { space: SpaceId, keys: usize },
    /// Sets the compression dictionary for values of the space; does nothing if the space does not exist or does not
    /// compress.
    Dictionary { space: SpaceId, dictionary: &'a [u8] },
    /// Sets the memory limit (`maxmemory`) and the eviction policy.
    Limits { limits: Limits },
}

/// The first byte of an encoded effect, which identifies the kind of effect.
mod tag {
    pub const PUT: u8 = 1;
    pub const EDIT: u8 = 2;
    pub const EXPIRE: u8 = 3;
    pub const REMOVE: u8 = 4;
    pub const FIELD: u8 = 5;
    pub const REMOVE_FIELD: u8 = 6;
    pub const FLUSH: u8 = 7;
    pub const FLUSH_ALL: u8 = 8;
    pub const EXPECT: u8 = 9;
    pub const SPACES: u8 = 10;
    pub const LIMITS: u8 = 11;
    pub const DICTIONARY: u8 = 12;
}

/// Maximum bytes of a variable-length integer: 64 bits, seven per byte.
const VARINT_BYTES: usize = 10;

/// Maximum number of integers per effect.
const NUMBERS: usize = 5;

/// The encoded bytes of an effect that precede the key: the kind and the integers.
struct Head {
    bytes: [u8; 1 + NUMBERS * VARINT_BYTES],
    length: usize,
}

impl Head {
    fn new(tag: u8) -> Self {
        let mut head = Head { bytes: [0; 1 + NUMBERS * VARINT_BYTES], length: 1 };
        head.bytes[0] = tag;
        head
    }

    fn number(mut self, number: u64) -> Self {
        self.length += put_varint(&mut self.bytes[self.length..], number);
        self
    }

    fn count(self, count: usize) -> Self {
        self.number(u64_from(count))
    }

    /// Appends an expiry; 0 stands for none.
    fn expiry(self, expiry: Option<u64>) -> Self {
        self.number(expiry.unwrap_or_default())
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Writes `number` as a variable-length integer to the front of `place`; returns the number of bytes written.
pub(crate) fn put_varint(place: &mut [u8], mut number: u64) -> usize {
    let mut at = 0;
    while number >= 0x80 {
        place[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    place[at] = number as u8;
    at + 1
}

/// Reads a variable-length integer and advances `bytes` past it; returns `Ok(None)` if `bytes` ends within the integer.
///
/// # Errors
/// `Corrupt` when the integer exceeds 64 bits or is not in its shortest form.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Result<Option<u64>> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(VARINT_BYTES).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if at == VARINT_BYTES - 1 && bits > 1 || *byte == 0 && at > 0 {
            return Err(damaged("a number"));
        }
        number |= bits << (7 * at);
        if byte & 0x80 == 0 {
            *bytes = &bytes[at + 1..];
            return Ok(Some(number));
        }
    }
    if bytes.len() >= VARINT_BYTES { Err(damaged("a number")) } else { Ok(None) }
}

pub(crate) fn damaged(what: &str) -> Error {
    Error::corrupt(format!("a change of keys is damaged: {what}"))
}

impl<'a> Effect<'a> {
    /// Encodes the effect: calls `out` with its bytes, in several consecutive pieces.
    pub fn encode(&self, mut out: impl FnMut(&[u8])) {
        match *self {
            Effect::Put { space, key, kind, expiry, value } => {
                let head = Head::new(tag::PUT).number(space.into()).count(key.len()).number(kind as u64);
                out(head.expiry(expiry).count(value.len()).bytes());
                out(key);
                out(value);
            }
            Effect::Edit { space, key, length, offset, bytes } => {
                let head = Head::new(tag::EDIT).number(space.into()).count(key.len());
                out(head.count(length).count(offset).count(bytes.len()).bytes());
                out(key);
                out(bytes);
            }
            Effect::Expire { space, key, expiry } => {
                out(Head::new(tag::EXPIRE).number(space.into()).count(key.len()).expiry(expiry).bytes());
                out(key);
            }
            Effect::Remove { space, key } => {
                out(Head::new(tag::REMOVE).number(space.into()).count(key.len()).bytes());
                out(key);
            }
            Effect::Field { space, key, field, value } => {
                let head = Head::new(tag::FIELD).number(space.into()).count(key.len());
                out(head.count(field.len()).count(value.len()).bytes());
                out(key);
                out(field);
                out(value);
            }
            Effect::RemoveField { space, key, field } => {
                let head = Head::new(tag::REMOVE_FIELD).number(space.into()).count(key.len());
                out(head.count(field.len()).bytes());
                out(key);
                out(field);
            }
            Effect::Flush { space } => out(Head::new(tag::FLUSH).number(space.into()).bytes()),
            Effect::FlushAll => out(&[tag::FLUSH_ALL]),
            Effect::Spaces { definitions } => {
                out(Head::new(tag::SPACES).count(definitions.len()).bytes());
                out(definitions);
            }
            Effect::Dictionary { space, dictionary } => {
                out(Head::new(tag::DICTIONARY).number(space.into()).count(dictionary.len()).bytes());
                out(dictionary);
            }
            Effect::Expect { space, keys } => {
                out(Head::new(tag::EXPECT).number(space.into()).count(keys).bytes());
            }
            Effect::Limits { limits } => {
                let policy = limits.policy.number();
                out(Head::new(tag::LIMITS).number(policy.into()).number(limits.maxmemory).bytes());
            }
        }
    }

    /// Decodes one effect and advances `bytes` past it; returns `Ok(None)` and leaves `bytes` unchanged if `bytes` ends
    /// within the effect.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not those of an effect.
    pub fn decode(bytes: &mut &'a [u8]) -> Result<Option<Effect<'a>>> {
        let mut rest = *bytes;
        let effect = Effect::take(&mut rest)?;
        if effect.is_some() {
            *bytes = rest;
        }
        Ok(effect)
    }

    /// Does the same as [`Effect::decode`], but may leave `rest` anywhere within an effect that is cut off.
    fn take(rest: &mut &'a [u8]) -> Result<Option<Effect<'a>>> {
        let Some((&tag, behind)) = rest.split_first() else { return Ok(None) };
        *rest = behind;
        if tag == tag::FLUSH_ALL {
            return Ok(Some(Effect::FlushAll));
        }
        if tag == tag::SPACES {
            let Some(bytes) = take_varint(rest)? else { return Ok(None) };
            let bytes = length(bytes, KV_VALUE_BYTES_MAX)?;
            let Some((definitions, behind)) = rest.split_at_checked(bytes) else { return Ok(None) };
            *rest = behind;
            return Ok(Some(Effect::Spaces { definitions }));
        }
        if tag == tag::LIMITS {
            let Some(policy) = take_varint(rest)? else { return Ok(None) };
            let policy = Policy::ALL.get(usize_saturating(policy)).copied();
            let policy =
                policy.ok_or_else(|| damaged("a policy that this version of farpool does not know"))?;
            let Some(maxmemory) = take_varint(rest)? else { return Ok(None) };
            return Ok(Some(Effect::Limits { limits: Limits { maxmemory, policy } }));
        }
        // The number of variable-length integers that follow the id of the space and the length of the key.
        let count = match tag {
            tag::PUT | tag::EDIT => 3,
            tag::FIELD => 2,
            tag::EXPIRE | tag::REMOVE_FIELD => 1,
            tag::REMOVE | tag::FLUSH | tag::EXPECT | tag::DICTIONARY => 0,
            _ => return Err(damaged("of a kind that this version of farpool does not know")),
        };
        let Some(space) = take_varint(rest)? else { return Ok(None) };
        let space = SpaceId::try_from(space).map_err(|_| damaged("the number of a space"))?;
        if tag == tag::FLUSH {
            return Ok(Some(Effect::Flush { space }));
        }
        let Some(key_bytes) = take_varint(rest)? else { return Ok(None) };
        if tag == tag::DICTIONARY {
            let bytes = length(key_bytes, KV_DICTIONARY_BYTES_MAX)?;
            let Some((dictionary, behind)) = rest.split_at_checked(bytes) else { return Ok(None) };
            *rest = behind;
            return Ok(Some(Effect::Dictionary { space, dictionary }));
        }
        if tag == tag::EXPECT {
            return Ok(Some(Effect::Expect { space, keys: usize_saturating(key_bytes) }));
        }
        let key_bytes = length(key_bytes, KV_KEY_BYTES_MAX)?;
        let mut numbers = [0; 3];
        for number in &mut numbers[..count] {
            let Some(found) = take_varint(rest)? else { return Ok(None) };
            *number = found;
        }
        let (first, second) = match tag {
            tag::PUT | tag::EDIT => (length(numbers[2], KV_VALUE_BYTES_MAX)?, 0),
            tag::FIELD => (length(numbers[0], KV_KEY_BYTES_MAX)?, length(numbers[1], KV_VALUE_BYTES_MAX)?),
            tag::REMOVE_FIELD => (length(numbers[0], KV_KEY_BYTES_MAX)?, 0),
            _ => (0, 0),
        };
        let mut take = |count: usize| {
            let (front, behind) = rest.split_at_checked(count)?;
            *rest = behind;
            Some(front)
        };
        let (Some(key), Some(first), Some(second)) = (take(key_bytes), take(first), take(second)) else {
            return Ok(None);
        };
        let expiry = |at: u64| Some(at).filter(|at| *at > 0);
        Ok(Some(match tag {
            tag::PUT => {
                let (kind, expiry) = (kind_of(numbers[0], first)?, expiry(numbers[1]));
                Effect::Put { space, key, kind, expiry, value: first }
            }
            tag::EDIT => {
                let whole = length(numbers[0], KV_VALUE_BYTES_MAX)?;
                let offset = length(numbers[1], whole)?;
                length(numbers[2], whole - offset)?;
                Effect::Edit { space, key, length: whole, offset, bytes: first }
            }
            tag::EXPIRE => Effect::Expire { space, key, expiry: expiry(numbers[0]) },
            tag::FIELD => Effect::Field { space, key, field: first, value: second },
            tag::REMOVE_FIELD => Effect::RemoveField { space, key, field: first },
            _ => Effect::Remove { space, key },
        }))
    }

    /// Applies the effect to the keyspace. Reads no clock, and treats no key as expired, so that replay does not depend
    /// on when it happens.
    ///
    /// # Errors
    /// `OverLimit` when memory is too small, and `when_full` does not allow evicting keys or there is none to evict.
    pub fn apply(&self, keyspace: &Keyspace, when_full: WhenFull) -> Result<()> {
        let (space, key) = match *self {
            Effect::FlushAll => {
                (0..keyspace.shards()).for_each(|shard| keyspace.lock(shard).flush_all(keyspace.latest()));
                return Ok(());
            }
            Effect::Flush { space } => {
                (0..keyspace.shards()).for_each(|shard| keyspace.lock(shard).flush(space, keyspace.latest()));
                return Ok(());
            }
            Effect::Spaces { definitions } => {
                let spaces = Spaces::from_bytes(definitions)?.keeping_packers_of(&keyspace.spaces());
                keyspace.store_spaces(spaces);
                return Ok(());
            }
            Effect::Dictionary { space, dictionary } => {
                keyspace.apply_dictionary(space, dictionary);
                return Ok(());
            }
            Effect::Expect { space, keys } => {
                let each = keys / keyspace.shards();
                (0..keyspace.shards())
                    .for_each(|shard| keyspace.lock(shard).table_mut(space).expect_keys(each));
                return Ok(());
            }
            Effect::Limits { limits } => {
                keyspace.apply_limits(limits);
                return Ok(());
            }
            Effect::Put { space, key, .. }
            | Effect::Edit { space, key, .. }
            | Effect::Expire { space, key, .. }
            | Effect::Remove { space, key }
            | Effect::Field { space, key, .. }
            | Effect::RemoveField { space, key, .. } => (space, key),
        };
        let hash = keyspace.hash(key);
        let mut shard = keyspace.lock(keyspace.shard_of(hash));
        let needs_none = matches!(self, Effect::Put { .. } | Effect::Edit { .. } | Effect::Field { .. });
        if matches!(self, Effect::Put { .. } | Effect::Remove { .. }) {
            shard.found(space, hash);
        }
        if !needs_none && shard.table(space).is_none() {
            return Ok(());
        }
        if shard.is_lost(space, hash) {
            return Ok(());
        }
        loop {
            let error = match self.apply_to(shard.table_mut(space), hash) {
                Err(error) if error.kind == ErrorKind::OverLimit => error,
                done => return done,
            };
            // Entries that only cuts (point-in-time views) keep are freed before any key is evicted.
            match when_full {
                _ if shard.give_up_cut() => {}
                WhenFull::Evict if shard.lose_some(hash) => {}
                WhenFull::Evict => return Err(error),
                WhenFull::Fail => return Err(finds_no_memory(&error)),
            }
        }
    }

    /// Applies an effect on one key to `table`, which holds the keys of its space and shard.
    fn apply_to(&self, table: &mut Table, hash: u64) -> Result<()> {
        // The effect is applied as of time 0, at which no key has expired.
        let now = 0;
        match *self {
            Effect::Put { key, kind, expiry, value, .. } => {
                table.put_plain(hash, key, (kind, value), expiry)?;
            }
            Effect::Edit { key, length, offset, bytes, .. } => {
                remove_unless(table, hash, key, |kind| kind == Kind::String);
                match table.edited(hash, key, length, now)? {
                    Some(mut edited) => {
                        edited.plain[offset..][..bytes.len()].copy_from_slice(bytes);
                        table.put_plain(hash, key, (Kind::String, &edited.plain), edited.expiry)?;
                    }
                    None => {
                        table.resize(hash, key, length, now)?[offset..][..bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
            Effect::Expire { key, expiry, .. } => table.set_expiry(hash, key, expiry)?,
            Effect::Remove { key, .. } => drop(table.remove(hash, key)),
            Effect::Field { key, field, value, .. } => {
                remove_unless(table, hash, key, |kind| matches!(kind, Kind::Fields | Kind::Table));
                table.set_field(hash, key, (field, value), now)?;
            }
            Effect::RemoveField { key, field, .. } => drop(table.remove_field(hash, key, field, now)?),
            Effect::Flush { .. } | Effect::FlushAll | Effect::Expect { .. } => {}
            Effect::Spaces { .. } | Effect::Dictionary { .. } | Effect::Limits { .. } => {}
        }
        // The index gets no maintenance here, because that would shrink it after [`Effect::Expect`] has enlarged it.
        Ok(())
    }
}

/// Returns the error for an effect that cannot be applied because memory is too small and no key may be evicted.
fn finds_no_memory(error: &Error) -> Error {
    let message =
        format!("a recorded change of keys finds no memory, and no key may go for it: {}", error.message);
    Error::over_limit(message).advise("give this node as much memory as the one that recorded the change has")
}

/// Removes the key if `is_right` returns false for the kind of its value. A snapshot may have a value of another kind,
/// because it may contain changes later than the effect.
fn remove_unless(table: &mut Table, hash: u64, key: &[u8], is_right: impl Fn(Kind) -> bool) {
    if table.get(hash, key, 0).is_some_and(|entry| !is_right(entry.kind())) {
        table.remove(hash, key);
    }
}

/// Returns `number` as a length; fails with `Corrupt` if it exceeds `most`.
fn length(number: u64, most: usize) -> Result<usize> {
    let length = usize_saturating(number);
    if length <= most { Ok(length) } else { Err(damaged("a length")) }
}

/// Returns the kind of values with this number. Fails with `Corrupt` if there is none, or if `value` is not well-formed
/// for that kind.
fn kind_of(number: u64, value: &[u8]) -> Result<Kind> {
    match number {
        0 => Ok(Kind::String),
        1 if is_well_formed(value) => Ok(Kind::Fields),
        3 => Ok(Kind::Row),
        _ => Err(damaged("a value of a kind that this version of farpool does not know")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Effect<'static>> {
        let (space, key) = (3, &b"key"[..]);
        let fields = b"\x01\x00\x02\x00fvv";
        vec![
            Effect::Put { space, key, kind: Kind::String, expiry: None, value: b"" },
            Effect::Put { space, key, kind: Kind::String, expiry: Some(1_700_000_000_000), value: &[7; 300] },
            Effect::Put { space, key, kind: Kind::Fields, expiry: None, value: fields },
            Effect::Edit { space, key, length: 500_000, offset: 499_997, bytes: b"abc" },
            Effect::Expire { space, key, expiry: None },
            Effect::Expire { space: SpaceId::MAX, key: b"", expiry: Some(u64::MAX) },
            Effect::Remove { space, key },
            Effect::Field { space, key, field: b"", value: &[1; 200] },
            Effect::RemoveField { space, key, field: b"field" },
            Effect::Flush { space },
            Effect::FlushAll,
            Effect::Spaces { definitions: b"some" },
            Effect::Put { space, key, kind: Kind::Row, expiry: None, value: b"row" },
            Effect::Expect { space, keys: 1_000_000 },
            Effect::Dictionary { space, dictionary: &[5; 200] },
            Effect::Limits { limits: Limits { maxmemory: 1 << 40, policy: Policy::VolatileTtl } },
        ]
    }

    fn encoded(effect: &Effect<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        effect.encode(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    #[test]
    fn effects_are_read_as_they_were_written_and_wait_for_their_end() {
        for effect in all() {
            let bytes = encoded(&effect);
            let mut rest = &bytes[..];
            assert_eq!(Effect::decode(&mut rest).unwrap(), Some(effect));
            assert!(rest.is_empty());
            for cut in 0..bytes.len() {
                let mut rest = &bytes[..cut];
                assert_eq!(Effect::decode(&mut rest).unwrap(), None, "{effect:?} up to {cut}");
                assert_eq!(rest.len(), cut);
            }
        }
    }

    #[test]
    fn what_no_effect_is_is_refused() {
        let refused: &[&[u8]] = &[
            &[0],
            &[13, 0],
            // A dictionary that is longer than the maximum.
            &[tag::DICTIONARY, 0, 0x81, 0x80, 1],
            // An unknown number of an eviction policy.
            &[tag::LIMITS, 8, 0],
            // Numbers above their limits: the id of a space, the length of a key, the length of a value, the end of an
            // edit.
            &[tag::REMOVE, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[tag::REMOVE, 0, 0x80, 0x80, 4],
            &[tag::PUT, 0, 0, 0, 0, 0x81, 0x80, 0x80, 0x80, 2],
            &[tag::EDIT, 0, 0, 2, 1, 2, 0, 0],
            // An unknown kind, truncated fields, a number that is not in its shortest form.
            &[tag::PUT, 0, 0, 2, 0, 0],
            &[tag::PUT, 0, 0, 1, 0, 1, 9],
            &[tag::FLUSH, 0x80, 0],
            &[tag::FLUSH, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        ];
        for bytes in refused {
            assert!(Effect::decode(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}

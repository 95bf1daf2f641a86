//! Walks: iterations over all keys while clients change them, for snapshots (fuzzy: different keys are read at
//! different times).
//!
//! A walk locks a shard for one step at a time, for some ten microseconds. It reads a key that is present during the
//! whole walk at least once. It may read a key that changes during the walk as it was before the change, after the
//! change, or partly changed. Replaying the log records of all changes since the beginning of the walk on top of what
//! it has read gives the current keys (`effects.rs`).
//!
//! The first record has the definitions of spaces, the compression dictionaries and the settings, because a row can
//! only be read with the schema of its space.

use crate::effects::Effect;
use crate::entry::{Entry, Kind};
use crate::journal::{Journal, Recorder};
use crate::keyspace::Keyspace;
use crate::limits::Limits;
use crate::shard::{Shard, SpaceId};
use crate::table::Table;
use farpool_model::Result;

/// Approximate number of entries that one step visits; the next constant is the approximate number of bytes of values
/// that it copies.
const STEP_ENTRIES: usize = 64;
const STEP_BYTES: usize = 64 << 10;

/// Maximum number of index buckets that one step visits, as most may be empty.
const STEP_BUCKETS: usize = 256;

/// The time as of which a walk reads keys: one at which no key has expired. Reason: a key that has expired at the
/// latest time may still be changed by a command with a slightly earlier time, so a walk must not skip it.
const ANY_TIME: u64 = 0;

/// Approximate number of bytes of a log record that a walk writes.
const RECORD_BYTES: usize = 256 << 10;

/// The position of a walk; the default is the beginning.
#[derive(Debug, Default)]
pub struct Walk {
    shard: usize,
    space: SpaceId,
    cursor: u64,
    /// Entries that the last step has written only in part, because they are large.
    rest: Vec<UnfinishedEntry>,
    records: u64,
}

/// A large entry that has been written in part, and the place from which on the rest must be written.
#[derive(Debug)]
struct UnfinishedEntry {
    space: SpaceId,
    key: Box<[u8]>,
    at: ResumePoint,
}

#[derive(Clone, Copy, Debug)]
enum ResumePoint {
    /// For a string: the offset of the first byte that is still to be written.
    Offset(usize),
    /// For a large hash: the scan cursor of its fields.
    Fields(u64),
}

impl Keyspace {
    /// Continues a walk by one record, which is appended to `journal`; returns whether there are more keys. Blocks
    /// while long commands hold a shard.
    ///
    /// # Errors
    /// Errors of the journal; `Corrupt` if a compressed value is corrupt.
    pub fn walk(&self, walk: &mut Walk, journal: &dyn Journal) -> Result<bool> {
        walk.records += 1;
        let is_first = walk.records == 1;
        let mut recorder = Recorder::new(Some(journal), Vec::new(), self.latest(), walk.records).lazy();
        if is_first {
            let spaces = self.spaces();
            recorder.add(&Effect::Spaces { definitions: &spaces.to_bytes() });
            for (space, packer) in spaces.packers().filter(|(_, packer)| !packer.dictionary().is_empty()) {
                recorder.add(&Effect::Dictionary { space, dictionary: packer.dictionary() });
            }
            if self.limits() != Limits::default() {
                recorder.add(&Effect::Limits { limits: self.limits() });
            }
            for (space, keys) in self.keys_by_space() {
                recorder.add(&Effect::Expect { space, keys });
            }
            recorder.finish().0?;
            return Ok(true);
        }
        while walk.shard < self.shards() && recorder.bytes() < RECORD_BYTES {
            walk.step(&self.lock(walk.shard), &mut recorder)?;
        }
        recorder.finish().0?;
        Ok(walk.shard < self.shards())
    }
}

impl Walk {
    fn step(&mut self, shard: &Shard, out: &mut Recorder<'_>) -> Result<()> {
        if let Some(rest) = self.rest.pop() {
            let Some(table) = shard.table(rest.space) else { return Ok(()) };
            if let Some(at) = go_on(table, &rest, out)? {
                self.rest.push(UnfinishedEntry { at, ..rest });
            }
            return Ok(());
        }
        let Some((space, table)) = shard.tables().find(|(space, _)| *space >= self.space) else {
            (self.shard, self.space, self.cursor) = (self.shard + 1, 0, 0);
            return Ok(());
        };
        if space > self.space {
            (self.space, self.cursor) = (space, 0);
        }
        let (before, mut entries, mut cost, mut failed) = (out.bytes(), 0, 0, Ok(()));
        for _ in 0..STEP_BUCKETS {
            self.cursor = table.scan(self.cursor, ANY_TIME, |entry| {
                entries += 1;
                cost += table.unpackers().cost(entry);
                match begin(table, space, entry, out) {
                    Ok(Some(at)) => self.rest.push(UnfinishedEntry { space, key: entry.key().into(), at }),
                    Ok(None) => {}
                    Err(error) => failed = Err(error),
                }
            });
            failed.clone()?;
            if self.cursor == 0 {
                // After the highest possible id of a space, the walk continues with the next shard.
                match space.checked_add(1) {
                    Some(next) => self.space = next,
                    None => (self.shard, self.space) = (self.shard + 1, 0),
                }
                return Ok(());
            }
            if entries >= STEP_ENTRIES || cost.max(out.bytes() - before) >= STEP_BYTES {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Writes an entry, or the beginning of a large entry; returns where the rest begins, or `None` if there is none.
fn begin(
    table: &Table,
    space: SpaceId,
    entry: Entry<'_>,
    out: &mut Recorder<'_>,
) -> Result<Option<ResumePoint>> {
    let (key, kind, expiry, value) = (entry.key(), entry.kind(), entry.expiry(), &*table.plain(entry)?);
    Ok(match kind {
        Kind::Table => Some(ResumePoint::Fields(0)),
        Kind::Fields | Kind::Row => {
            out.add(&Effect::Put { space, key, kind, expiry, value });
            None
        }
        Kind::String => {
            let front = &value[..value.len().min(STEP_BYTES)];
            out.add(&Effect::Put { space, key, kind, expiry, value: front });
            (front.len() < value.len()).then_some(ResumePoint::Offset(front.len()))
        }
    })
}

/// Writes more of a large entry; returns where the rest begins, or `None` if there is none. Writes nothing if the key
/// was removed or its value has another kind now, because the log has that change.
fn go_on(table: &Table, rest: &UnfinishedEntry, out: &mut Recorder<'_>) -> Result<Option<ResumePoint>> {
    let UnfinishedEntry { space, ref key, at } = *rest;
    let hash = table.hash(key);
    match at {
        ResumePoint::Offset(offset) => {
            let entry = table.get(hash, key, ANY_TIME).filter(|entry| entry.kind() == Kind::String);
            let Some(entry) = entry else { return Ok(None) };
            let value = table.plain(entry)?;
            let Some(bytes) = value.get(offset..) else { return Ok(None) };
            let bytes = &bytes[..bytes.len().min(STEP_BYTES)];
            out.add(&Effect::Edit { space, key, length: value.len(), offset, bytes });
            let end = offset + bytes.len();
            Ok((end < value.len()).then_some(ResumePoint::Offset(end)))
        }
        ResumePoint::Fields(mut cursor) => {
            let Some(Some(fields)) = table.fields(hash, key, None, ANY_TIME)? else { return Ok(None) };
            let (before, mut entries) = (out.bytes(), 0);
            for _ in 0..STEP_BUCKETS {
                cursor = fields.scan(cursor, |field, value| {
                    entries += 1;
                    out.add(&Effect::Field { space, key, field, value });
                });
                if cursor == 0 || entries >= STEP_ENTRIES || out.bytes() - before >= STEP_BYTES {
                    break;
                }
            }
            let expiry = table.get(hash, key, ANY_TIME).and_then(Entry::expiry);
            if expiry.is_some() {
                out.add(&Effect::Expire { space, key, expiry });
            }
            Ok((cursor != 0).then_some(ResumePoint::Fields(cursor)))
        }
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;

//! Log records: the encoding in which the changes of commands are appended to a log, and their replay.
//!
//! A command, or a whole transaction, makes one record with its time and its effects (`effects.rs`). The record is
//! appended while the command still holds the locks of its shards, so that the log has the changes of each key in the
//! order in which they happened. Example:
//!
//! 1. `SET a 1` and `SET a 2` are executed one after the other.
//! 2. If records were appended after the shard is released, the log could have `a = 2` before `a = 1`, and recovery
//!    would end with `a = 1`.
//!
//! A large record is split into several log records, its parts, which share a random id. Replay applies the parts only
//! when it has all of them, so that a crash between two parts does not leave half a transaction.
//!
//! Layout of a log record: the header that the journal writes; a byte that says which part of a record this is, or that
//! it is whole; the time as a variable-length integer; for parts, eight bytes with the id; the effects.

use crate::effects::{Effect, damaged, put_varint, take_varint};
use crate::keyspace::Keyspace;
use farpool_model::limits::KV_RECORD_BYTES_MAX;
use farpool_model::{Error, Result};
use std::collections::HashMap;

/// A log of changes of keys, implemented by the owner of the keyspace.
pub trait Journal: Send + Sync {
    /// Checks that changes can be logged. Called before a command changes anything; `bytes` is the size of its
    /// arguments.
    ///
    /// # Errors
    /// The reason why changes cannot be logged.
    fn check(&self, bytes: usize) -> Result<()>;

    /// Appends the header that the journal needs in front of each record (such as the name of the tenant) to `record`,
    /// which is empty.
    fn begin(&self, record: &mut Vec<u8>);

    /// Appends a log record of at most about [`KV_RECORD_BYTES_MAX`] bytes and returns its sequence number. The record
    /// need not be durable yet.
    ///
    /// # Errors
    /// The reason why the record could not be appended. The journal must then refuse all later records, too, because a
    /// log with a gap would be replayed to wrong keys.
    fn append(&self, record: &[u8]) -> Result<u64>;
}

/// The byte of a log record that says which part of a record it is.
mod part {
    pub const WHOLE: u8 = 0;
    pub const FIRST: u8 = 1;
    pub const NEXT: u8 = 2;
    pub const LAST: u8 = 3;
}

/// Maximum capacity in bytes of a recorder's buffer that is kept for the next record.
const KEPT_BYTES: usize = 16 << 10;

/// Collects the effects of one command or transaction into a log record.
pub(crate) struct Recorder<'j> {
    journal: Option<&'j dyn Journal>,
    record: Vec<u8>,
    now: u64,
    /// Random id, which the parts of this record share.
    id: u64,
    /// Number of bytes of `record` before the effects.
    head: usize,
    has_parts: bool,
    /// Whether each part is appended to the journal as soon as it is full.
    is_eager: bool,
    failure: Option<Error>,
}

impl<'j> Recorder<'j> {
    /// Creates a recorder that ignores all effects.
    pub fn off() -> Self {
        Recorder::new(None, Vec::new(), 0, 0)
    }

    /// Creates a recorder for `journal` that reuses `buffer`; without a journal, it ignores all effects. `now` is the
    /// time of the record, and `id` is the random id of its parts.
    pub fn new(journal: Option<&'j dyn Journal>, buffer: Vec<u8>, now: u64, id: u64) -> Self {
        let (has_parts, failure) = (false, None);
        Recorder { journal, record: buffer, now, id, head: 0, has_parts, is_eager: true, failure }
    }

    /// Returns the recorder in a mode in which it appends nothing to the journal before [`Recorder::finish`], however
    /// many bytes of effects it has.
    pub fn lazy(self) -> Self {
        Recorder { is_eager: false, ..self }
    }

    pub fn is_on(&self) -> bool {
        self.journal.is_some()
    }

    /// Returns the bytes of the effects that have not been appended to the journal yet.
    pub fn bytes(&self) -> usize {
        self.record.len() - self.head
    }

    pub fn add(&mut self, effect: &Effect<'_>) {
        let Some(journal) = self.journal else { return };
        if self.record.is_empty() {
            self.head = begin(journal, &mut self.record, part::WHOLE, self.now);
        }
        effect.encode(|piece| self.extend(journal, piece));
    }

    fn extend(&mut self, journal: &dyn Journal, mut piece: &[u8]) {
        while self.is_eager && self.bytes() + piece.len() > KV_RECORD_BYTES_MAX {
            let (front, rest) = piece.split_at(KV_RECORD_BYTES_MAX - self.bytes());
            self.record.extend_from_slice(front);
            piece = rest;
            let kind = if self.has_parts { part::NEXT } else { part::FIRST };
            let effects = std::mem::take(&mut self.record);
            self.append_part(journal, kind, &effects[self.head..]);
            self.record = effects;
            self.record.truncate(self.head);
        }
        self.record.extend_from_slice(piece);
    }

    fn append_part(&mut self, journal: &dyn Journal, kind: u8, effects: &[u8]) -> Option<u64> {
        self.has_parts = true;
        if self.failure.is_some() {
            return None;
        }
        let mut part = Vec::with_capacity(self.head + 8 + effects.len());
        begin(journal, &mut part, kind, self.now);
        part.extend_from_slice(&self.id.to_le_bytes());
        part.extend_from_slice(effects);
        let appended = journal.append(&part);
        appended.map_err(|error| self.failure = Some(error)).ok()
    }

    /// Appends the remaining effects to the journal. Returns the sequence number of the last log record, or `Ok(None)`
    /// if there were no effects; and the buffer, to be reused.
    pub fn finish(mut self) -> (Result<Option<u64>>, Vec<u8>) {
        let done = match self.journal {
            Some(journal) if !self.record.is_empty() => self.append(journal).map(Some),
            _ => Ok(None),
        };
        self.record.clear();
        self.record.shrink_to(KEPT_BYTES);
        (done, self.record)
    }

    fn append(&mut self, journal: &dyn Journal) -> Result<u64> {
        if !self.has_parts && self.bytes() <= KV_RECORD_BYTES_MAX {
            return journal.append(&self.record);
        }
        let effects = std::mem::take(&mut self.record);
        let mut parts = effects[self.head..].chunks(KV_RECORD_BYTES_MAX).peekable();
        let mut number = None;
        while let Some(effects) = parts.next() {
            let kind = match (parts.peek(), self.has_parts) {
                (None, _) => part::LAST,
                (Some(_), false) => part::FIRST,
                (Some(_), true) => part::NEXT,
            };
            number = self.append_part(journal, kind, effects);
        }
        self.record = effects;
        let missing = || Error::internal("a record without effects");
        number.ok_or_else(|| self.failure.take().unwrap_or_else(missing))
    }
}

/// Writes what precedes the effects (or the id of a part) into `record`; returns the length of `record`.
fn begin(journal: &dyn Journal, record: &mut Vec<u8>, kind: u8, now: u64) -> usize {
    journal.begin(record);
    record.push(kind);
    let mut number = [0; 10];
    let bytes = put_varint(&mut number, now);
    record.extend_from_slice(&number[..bytes]);
    record.len()
}

impl Keyspace {
    /// Appends a log record with the latest time of a client's command, unless an earlier call has done so for this
    /// time. Reason: if the clock is set back during a restart, time still continues from here and no expired key
    /// exists again. Returns the sequence number of the record; `None` if none was appended.
    ///
    /// # Errors
    /// Errors of the journal.
    pub fn record_time(&self) -> Result<Option<u64>> {
        let Some(journal) = self.journal() else { return Ok(None) };
        let Some(now) = self.unrecorded_time() else { return Ok(None) };
        let mut record = Vec::new();
        begin(journal, &mut record, part::WHOLE, now);
        journal.append(&record).map(Some)
    }
}

/// Behavior of a replay when memory is too small for a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Evicts keys by the recorded policy. For recovery at a start, which may have less memory than before.
    #[default]
    Evict,
    /// Fails. For a replica, which must have exactly the keys of its leader; evictions by the leader are in the
    /// records.
    Fail,
}

/// Applies the log records of one keyspace in order, and keeps incomplete records until their last part arrives.
#[derive(Debug, Default)]
pub struct Replay {
    when_full: WhenFull,
    /// The effects of incomplete records, from the parts received so far, by id.
    parts: HashMap<u64, Vec<u8>>,
}

impl Replay {
    /// Creates a replay. `when_full` says what it does when memory is too small for a change.
    pub fn new(when_full: WhenFull) -> Self {
        Replay { when_full, parts: HashMap::new() }
    }

    /// Applies a log record, given without the header that [`Journal::begin`] wrote; if it is a part, only keeps it
    /// until the last part arrives.
    ///
    /// Parts of a record whose first part is missing are ignored, because the record began before the snapshot that was
    /// read, and this snapshot contains its effects.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a log record; `OverLimit` when memory is too small. After an error, a record
    /// may be applied in part, so the keyspace must not be used.
    pub fn apply(&mut self, keyspace: &Keyspace, record: &[u8]) -> Result<()> {
        let (&kind, mut rest) = record.split_first().ok_or_else(|| damaged("it is empty"))?;
        let now = take_varint(&mut rest)?.ok_or_else(|| damaged("its time is cut off"))?;
        keyspace.applied_at(now);
        if kind == part::WHOLE {
            return apply_all(keyspace, rest, self.when_full);
        }
        let (id, effects) = rest.split_first_chunk().ok_or_else(|| damaged("a part is cut off"))?;
        let id = u64::from_le_bytes(*id);
        match (kind, self.parts.get_mut(&id)) {
            (part::FIRST, None) => drop(self.parts.insert(id, effects.to_vec())),
            (part::NEXT | part::LAST, Some(parts)) => parts.extend_from_slice(effects),
            (part::NEXT | part::LAST, None) => {}
            _ => return Err(damaged("a part of no known kind")),
        }
        match self.parts.remove(&id) {
            Some(effects) if kind == part::LAST => apply_all(keyspace, &effects, self.when_full),
            Some(effects) => {
                self.parts.insert(id, effects);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the bytes of memory of incomplete records.
    pub fn bytes(&self) -> usize {
        self.parts.values().map(Vec::len).sum()
    }

    /// Returns whether a record of a snapshot may be applied before or beside those in front of it: it is whole, and has
    /// no effect that relies on another record.
    ///
    /// Example: a string of 150 KB is in a `Put` of its first 64 KiB and two `Edit`s. An edit that is
    /// applied before the put is lost, since the put replaces the value.
    pub fn is_independent(record: &[u8]) -> bool {
        let Some((&part::WHOLE, mut rest)) = record.split_first() else { return false };
        if !matches!(take_varint(&mut rest), Ok(Some(_))) {
            return false;
        }
        while !rest.is_empty() {
            match Effect::decode(&mut rest) {
                Ok(Some(Effect::Put { .. } | Effect::Field { .. } | Effect::Expire { .. })) => {}
                _ => return false,
            }
        }
        true
    }
}

fn apply_all(keyspace: &Keyspace, mut effects: &[u8], when_full: WhenFull) -> Result<()> {
    while !effects.is_empty() {
        let effect = Effect::decode(&mut effects)?.ok_or_else(|| damaged("it is cut off"))?;
        effect.apply(keyspace, when_full)?;
    }
    Ok(())
}

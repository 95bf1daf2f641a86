//! Records: the form in which the effects of commands go to a log and come back.
//!
//! One command, or a whole transaction, is one record: its time and its effects. It is appended while the command holds
//! its shards, so that the log has the changes of each key in the order in which they happened:
//!
//! 1. `SET a 1` and `SET a 2` run one after the other.
//! 2. If a record were appended after its shard is released, the log could have `a = 2` before `a = 1`, and recovery
//!    would end with `a = 1`.
//!
//! A large record is split into parts that share a random id. Replay applies them when the last part has arrived, or
//! not at all: a crash between two parts must not leave half a transaction.
//!
//! Layout of a record: the head that the journal writes; a byte for the kind of part; the time as a variable-length
//! integer; for parts, eight bytes with the id; the effects (`effects.rs`).

use crate::effects::{Effect, damaged, put_varint, take_varint};
use crate::keyspace::Keyspace;
use farpool_model::limits::KV_RECORD_BYTES_MAX;
use farpool_model::{Error, Result};
use std::collections::HashMap;

/// A log of changes of keys.
pub trait Journal: Send + Sync {
    /// Checks that changes can be recorded; called before a command changes anything. `bytes` is the size of the
    /// command.
    ///
    /// # Errors
    /// The reason why they cannot be recorded.
    fn check(&self, bytes: usize) -> Result<()>;

    /// Appends the head of a record to `record`, which is empty.
    fn begin(&self, record: &mut Vec<u8>);

    /// Appends a record of about [`KV_RECORD_BYTES_MAX`] bytes at most, and returns its number.
    ///
    /// # Errors
    /// The reason why it could not be appended; no later record is accepted then.
    fn append(&self, record: &[u8]) -> Result<u64>;
}

/// Kinds of parts.
mod part {
    pub const WHOLE: u8 = 0;
    pub const FIRST: u8 = 1;
    pub const NEXT: u8 = 2;
    pub const LAST: u8 = 3;
}

/// Capacity of a record's buffer that is kept for the next record, in bytes.
const KEPT_BYTES: usize = 16 << 10;

/// Collects the effects of one command into a record.
pub(crate) struct Recorder<'j> {
    journal: Option<&'j dyn Journal>,
    record: Vec<u8>,
    now: u64,
    /// Random id that the parts of this record share.
    id: u64,
    /// Bytes before the effects.
    head: usize,
    has_parts: bool,
    /// Whether a part is appended as soon as it is full.
    is_eager: bool,
    failure: Option<Error>,
}

impl<'j> Recorder<'j> {
    /// Creates a recorder that records nothing.
    pub fn off() -> Self {
        Recorder::new(None, Vec::new(), 0, 0)
    }

    /// Creates a recorder for `journal`, if there is one; reuses `buffer`.
    pub fn new(journal: Option<&'j dyn Journal>, buffer: Vec<u8>, now: u64, id: u64) -> Self {
        let (has_parts, failure) = (false, None);
        Recorder { journal, record: buffer, now, id, head: 0, has_parts, is_eager: true, failure }
    }

    /// Defers all appends to [`Recorder::finish`], however many bytes there are.
    pub fn lazy(self) -> Self {
        Recorder { is_eager: false, ..self }
    }

    pub fn is_on(&self) -> bool {
        self.journal.is_some()
    }

    /// Returns the bytes of the effects that were not appended yet.
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

    /// Appends the rest; returns the number of the last part, or `None` if there were no effects, and the buffer.
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

/// Begins a record; returns its length so far.
fn begin(journal: &dyn Journal, record: &mut Vec<u8>, kind: u8, now: u64) -> usize {
    journal.begin(record);
    record.push(kind);
    let mut number = [0; 10];
    let bytes = put_varint(&mut number, now);
    record.extend_from_slice(&number[..bytes]);
    record.len()
}

impl Keyspace {
    /// Records the latest time of a client's command, unless a record has it already. A clock that is put back across a
    /// restart then revives no expired key. Returns the number of the record.
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

/// The behavior of a replay that finds no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Evicts keys by the recorded policy, each as a whole: a start that finds less memory than before does so.
    #[default]
    Evict,
    /// Fails. A replica must have the keys that its leader has; evictions are in the records.
    Fail,
}

/// The replay of one keyspace's records, in order.
#[derive(Debug, Default)]
pub struct Replay {
    when_full: WhenFull,
    /// Incomplete records: the parts so far, by id.
    parts: HashMap<u64, Vec<u8>>,
}

impl Replay {
    /// Creates a replay that does this when it finds no memory.
    pub fn new(when_full: WhenFull) -> Self {
        Replay { when_full, parts: HashMap::new() }
    }

    /// Applies a record without the head that [`Journal::begin`] wrote.
    ///
    /// Parts whose first part is missing are ignored: the record began before the snapshot that was read, which
    /// contains the effects of its earlier parts.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a record; `OverLimit` when memory is too small. The keyspace is then in no state
    /// that it ever had, and must not be used.
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

    /// Returns the bytes of incomplete records.
    pub fn bytes(&self) -> usize {
        self.parts.values().map(Vec::len).sum()
    }

    /// Returns whether a record is complete in itself. Such records of a snapshot may be applied in any order.
    pub fn is_whole(record: &[u8]) -> bool {
        record.first() == Some(&part::WHOLE)
    }
}

fn apply_all(keyspace: &Keyspace, mut effects: &[u8], when_full: WhenFull) -> Result<()> {
    while !effects.is_empty() {
        let effect = Effect::decode(&mut effects)?.ok_or_else(|| damaged("it is cut off"))?;
        effect.apply(keyspace, when_full)?;
    }
    Ok(())
}

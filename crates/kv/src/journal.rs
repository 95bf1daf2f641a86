//! How what commands do gets to a log, and back: records.
//!
//! A command, or all of a transaction, is one record: its time and its effects. It is appended while the command has its
//! shards, so that the log has the changes of a key in their order. A record that is large goes in parts, which belong
//! together by a random number; what is read back is applied when the last of them has come, or not at all.
//!
//! Layout of a record: what the journal begins each with; a byte that tells which part it is; the time, as a variable-length
//! integer; if it is a part, eight bytes that tell of which record; the effects (`effects.rs`).

use crate::effects::{Effect, damaged, put_varint, take_varint};
use crate::keyspace::Keyspace;
use farpool_model::limits::KV_RECORD_BYTES_MAX;
use farpool_model::{Error, Result};
use std::collections::HashMap;

/// Where changes of keys are recorded.
pub trait Journal: Send + Sync {
    /// Whether changes can be recorded: asked before a command changes anything. `bytes` are those of the command.
    ///
    /// # Errors
    /// Why they cannot.
    fn check(&self, bytes: usize) -> Result<()>;

    /// Appends to an empty record what each begins with.
    fn begin(&self, record: &mut Vec<u8>);

    /// Appends a record, of about [`KV_RECORD_BYTES_MAX`] bytes at most, and returns its number.
    ///
    /// # Errors
    /// Why it could not be done: nothing is recorded from then on.
    fn append(&self, record: &[u8]) -> Result<u64>;
}

/// Which part of a record it is.
mod part {
    pub const WHOLE: u8 = 0;
    pub const FIRST: u8 = 1;
    pub const NEXT: u8 = 2;
    pub const LAST: u8 = 3;
}

/// Bytes of a record's buffer that are kept for the next one.
const KEPT_BYTES: usize = 16 << 10;

/// Collects the effects of a command.
pub(crate) struct Recorder<'j> {
    journal: Option<&'j dyn Journal>,
    record: Vec<u8>,
    now: u64,
    /// Tells parts of different records apart.
    id: u64,
    /// Bytes in front of the effects.
    head: usize,
    has_parts: bool,
    /// Whether parts are appended as soon as they are full.
    is_eager: bool,
    failure: Option<Error>,
}

impl<'j> Recorder<'j> {
    /// Records nothing.
    pub fn off() -> Self {
        Recorder::new(None, Vec::new(), 0, 0)
    }

    /// Records in `journal`, if there is one. The buffer is used again.
    pub fn new(journal: Option<&'j dyn Journal>, buffer: Vec<u8>, now: u64, id: u64) -> Self {
        let (has_parts, failure) = (false, None);
        Recorder { journal, record: buffer, now, id, head: 0, has_parts, is_eager: true, failure }
    }

    /// Appends nothing before [`Recorder::finish`], however much it is.
    pub fn lazy(self) -> Self {
        Recorder { is_eager: false, ..self }
    }

    pub fn is_on(&self) -> bool {
        self.journal.is_some()
    }

    /// Bytes of the effects that wait.
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

    /// Appends what there is; returns the number of the record, if there was anything, and the buffer.
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

/// Begins a record; returns how long it is.
fn begin(journal: &dyn Journal, record: &mut Vec<u8>, kind: u8, now: u64) -> usize {
    journal.begin(record);
    record.push(kind);
    let mut number = [0; 10];
    let bytes = put_varint(&mut number, now);
    record.extend_from_slice(&number[..bytes]);
    record.len()
}

impl Keyspace {
    /// Records the latest time that a command came with, if none came with that one yet: a clock that is put back after a
    /// restart then revives nothing. Returns the record's number.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn record_time(&self) -> Result<Option<u64>> {
        let Some(journal) = self.journal() else { return Ok(None) };
        let Some(now) = self.unrecorded_time() else { return Ok(None) };
        let mut record = Vec::new();
        begin(journal, &mut record, part::WHOLE, now);
        journal.append(&record).map(Some)
    }
}

/// Applies records of one keyspace, in their order.
#[derive(Default)]
pub struct Replay {
    /// Parts whose last one has not come, by the number that they have in common.
    parts: HashMap<u64, Vec<u8>>,
}

impl Replay {
    /// Applies a record, without what [`Journal::begin`] has put in front of it.
    ///
    /// Parts whose first one was not among the records are ignored: what these began before did, the keys have.
    ///
    /// # Errors
    /// `Corrupt` where it is none; `OverLimit` where the pool has no room.
    pub fn apply(&mut self, keyspace: &Keyspace, record: &[u8]) -> Result<()> {
        let (&kind, mut rest) = record.split_first().ok_or_else(|| damaged("it is empty"))?;
        let now = take_varint(&mut rest)?.ok_or_else(|| damaged("its time is cut off"))?;
        keyspace.not_before(now);
        if kind == part::WHOLE {
            return apply_all(keyspace, rest);
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
            Some(effects) if kind == part::LAST => apply_all(keyspace, &effects),
            Some(effects) => {
                self.parts.insert(id, effects);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Bytes of the parts that wait for others.
    pub fn bytes(&self) -> usize {
        self.parts.values().map(Vec::len).sum()
    }

    /// Whether a record is one by itself, so that records of a snapshot may be applied in any order.
    pub fn is_whole(record: &[u8]) -> bool {
        record.first() == Some(&part::WHOLE)
    }
}

fn apply_all(keyspace: &Keyspace, mut effects: &[u8]) -> Result<()> {
    while !effects.is_empty() {
        let effect = Effect::decode(&mut effects)?.ok_or_else(|| damaged("it is cut off"))?;
        effect.apply(keyspace)?;
    }
    Ok(())
}

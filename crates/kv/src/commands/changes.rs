//! Changes of keys from outside of commands: rows that SQL inserts, updates and deletes.

use super::{Keys, Refusal, Slot, Taken};
use crate::cut::{Fingerprint, KeyCut, ReadEntry};
use crate::effects::Effect;
use crate::entry::Kind;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::session::{Moment, Pace};
use crate::shard::SpaceId;
use crate::spaces::Space;
use farpool_model::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// A change of one key.
#[derive(Clone, Debug)]
pub struct KeyChange {
    /// The key, whole.
    pub key: Vec<u8>,
    /// What its entry must be still, where that is to be checked.
    pub expected: Option<Fingerprint>,
    /// What becomes of it.
    pub what: KeyState,
}

/// What becomes of a key.
#[derive(Clone, Debug)]
pub enum KeyState {
    /// It must be absent, and gets these fields of its space's schema.
    InsertRow(Vec<(usize, Option<Vec<u8>>)>),
    /// It must be absent, and gets this string, and this expiry in milliseconds since the epoch.
    InsertString(Vec<u8>, Option<u64>),
    /// Its row gets other values in these fields.
    UpdateRow(Vec<(usize, Option<Vec<u8>>)>),
    /// It gets another string, if one is given, and another expiry, if that is.
    UpdateString(Option<Vec<u8>>, Option<Option<u64>>),
    /// It goes.
    Remove,
}

/// Tells what becomes of entries that have changed since they were read, at a moment; `None` for one of which nothing is wanted any
/// more.
pub type ChangeAgain<'a> = dyn FnMut(&[ReadEntry<'_>], u64) -> Result<Vec<Option<KeyState>>> + 'a;

/// Whether a key that is to be changed is as it was when it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    AsExpected,
    Changed,
}

impl Keyspace {
    /// Makes all of these changes of keys of a space, or none where a key is there that must not be. What becomes of keys that
    /// have changed since `cut` is asked for again, if there is somebody to ask. Returns the number of the record, if changes
    /// are recorded.
    ///
    /// # Errors
    /// `Stale` when a key has changed since the cut and nobody knows what becomes of it, or the space itself has; `Exists` when a key is there that is inserted;
    /// `OverLimit` when there is no room, where the changes before stay; those of the journal.
    pub fn change(
        &self,
        (id, space_of): (SpaceId, Option<&Arc<Space>>),
        changes: &[KeyChange],
        (cut, again): (Option<&KeyCut>, Option<&mut ChangeAgain<'_>>),
        moment: Moment,
    ) -> Result<Option<u64>> {
        let now = self.not_before(moment.now);
        let recorder = match self.journal() {
            Some(journal) => {
                journal.check(changes.iter().map(|change| change.key.len()).sum())?;
                Recorder::new(Some(journal), Vec::new(), now, moment.random)
            }
            None => Recorder::off(),
        };
        let keys: Vec<&[u8]> = changes.iter().map(|change| &*change.key).collect();
        let all = (Keys::At { first: 0, last: -1, step: 1 }, &keys[..]);
        let taken = Taken::of(self, recorder, std::iter::once(all), Pace::Long);
        let mut taken = taken.ok_or_else(no_wait)?;
        let mut changed = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            if self.check_change((id, space_of), change, cut, (&mut taken, now))? == Found::Changed {
                changed.push(at);
            }
        }
        let mut anew = HashMap::new();
        if let Some(first) = changed.first() {
            let again = again.ok_or_else(|| has_changed(&changes[*first].key))?;
            let states = self.changed_again(id, changes, &changed, (&taken, now), again)?;
            anew = changed.into_iter().zip(states).collect();
        }
        let mut done = Ok(());
        for (at, change) in changes.iter().enumerate() {
            let hash = self.hash(&change.key);
            let Taken { shards, recorder, kept, .. } = &mut taken;
            let (shard, others) = shards.split(self.shard_of(hash));
            let (keyspace, named, key) = (self, space_of.cloned(), &change.key);
            let selected = if id < crate::session::SPACES { id } else { 0 };
            let (space, writes, random) = (id, true, moment.random);
            let mut slot = Slot {
                keyspace,
                shard,
                others,
                recorder,
                kept,
                writes,
                random,
                selected,
                space,
                named,
                hash,
                key,
                now,
            };
            done = slot.change(anew.get(&at).unwrap_or(&change.what));
            if done.is_err() {
                break;
            }
        }
        let recorded = taken.finish().0?;
        done.map(|()| recorded).map_err(|Refusal(text)| Error::over_limit(text.into_owned()))
    }

    /// Removes all keys of a space. Returns the number of the record, if changes are recorded.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn remove_all(&self, space: SpaceId, moment: Moment) -> Result<Option<u64>> {
        let now = self.not_before(moment.now);
        let recorder = match self.journal() {
            Some(journal) => {
                journal.check(0)?;
                Recorder::new(Some(journal), Vec::new(), now, moment.random)
            }
            None => Recorder::off(),
        };
        let taken = Taken::of(self, recorder, std::iter::once((Keys::All, &[][..])), Pace::Long);
        let mut taken = taken.ok_or_else(no_wait)?;
        taken.shards.all().iter_mut().for_each(|(_, shard)| shard.flush(space, now));
        taken.recorder.add(&Effect::Flush { space });
        taken.finish().0
    }

    /// Asks again for the new values of keys that have changed since they were read.
    fn changed_again(
        &self,
        id: SpaceId,
        changes: &[KeyChange],
        changed: &[usize],
        (taken, now): (&Taken<'_>, u64),
        again: &mut ChangeAgain<'_>,
    ) -> Result<Vec<KeyState>> {
        let mut found = Vec::with_capacity(changed.len());
        for at in changed {
            let key = &changes[*at].key;
            let hash = self.hash(key);
            let table = taken.shards.at(self.shard_of(hash)).and_then(|shard| shard.table(id));
            let entry = table.and_then(|table| Some((table, table.get(hash, key, now)?)));
            let (table, entry) = entry.ok_or_else(|| has_changed(key))?;
            found.push((entry, table.plain(entry)?));
        }
        let entries: Vec<ReadEntry<'_>> =
            found.iter().map(|(entry, plain)| ReadEntry::new(*entry, plain)).collect();
        let states = again(&entries, now)?;
        let states = states.into_iter().zip(changed);
        states.map(|(state, at)| state.ok_or_else(|| has_changed(&changes[*at].key))).collect()
    }

    fn check_change(
        &self,
        (id, space): (SpaceId, Option<&Arc<Space>>),
        change: &KeyChange,
        cut: Option<&KeyCut>,
        (taken, now): (&mut Taken<'_>, u64),
    ) -> Result<Found> {
        let hash = self.hash(&change.key);
        let number = self.shard_of(hash);
        let shard = taken.shards.get(number);
        let shown = || change.key[..change.key.len().min(64)].escape_ascii();
        let is_same = match (id, space) {
            (0, None) | (crate::session::SPACES.., _) => {
                let (owner, named) = shard.owner(0, &change.key);
                owner == id && named.zip(space).is_none_or(|(named, space)| Arc::ptr_eq(named, space))
            }
            _ => true,
        };
        if !is_same {
            let message = format!("the key '{}' is in another space by now", shown());
            return Err(Error::stale(message));
        }
        let table = shard.table(id);
        let entry = table.and_then(|table| table.get(hash, &change.key, now));
        let plain = match table.zip(entry).filter(|_| change.expected.is_some()) {
            Some((table, entry)) => Some((entry, table.plain(entry)?)),
            None => None,
        };
        let is_expected = |expected: Fingerprint| {
            let found = plain.as_ref().map(|(entry, plain)| ReadEntry::new(*entry, plain));
            found.is_some_and(|found| self.fingerprint(found) == expected)
        };
        let is_of_cut =
            |cut: &KeyCut| table.is_some_and(|table| cut.has_unchanged(number, table, (hash, &change.key)));
        if !cut.is_none_or(is_of_cut) || !change.expected.is_none_or(is_expected) {
            return Ok(Found::Changed);
        }
        let is_inserted = matches!(change.what, KeyState::InsertRow(_) | KeyState::InsertString(..));
        if is_inserted && entry.is_some() {
            let message = format!("the key '{}' is there already", shown());
            let advice = "UPDATE changes it, and so do SET, HSET and FP.ROWSET";
            return Err(Error::new(ErrorKind::Exists, message).advise(advice));
        }
        Ok(Found::AsExpected)
    }
}

fn has_changed(key: &[u8]) -> Error {
    let shown = key[..key.len().min(64)].escape_ascii();
    Error::stale(format!("the key '{shown}' has changed since this statement began"))
}

/// Fails only on a bug in this crate: a long command waits for its shards.
fn no_wait() -> Error {
    Error::internal("a change of keys did not wait for their shards")
}

impl Slot<'_, '_, '_> {
    fn change(&mut self, what: &KeyState) -> super::Done {
        match what {
            KeyState::InsertRow(fields) => self.put_row(None, fields, None),
            KeyState::InsertString(value, expiry) => self.put(value, *expiry),
            KeyState::UpdateRow(fields) => {
                let old = self.entry().filter(|entry| entry.kind() == Kind::Row);
                let expiry = old.and_then(|entry| entry.expiry());
                let row = old.map(|entry| Ok::<_, Refusal>(self.plain(entry)?.into_owned())).transpose()?;
                self.put_row(row.as_deref(), fields, expiry)
            }
            KeyState::UpdateString(value, expiry) => {
                if let Some(value) = value {
                    let before = self.entry().and_then(|entry| entry.expiry());
                    self.put(value, before)?;
                }
                match expiry {
                    Some(expiry) => self.set_expiry(*expiry),
                    None => Ok(()),
                }
            }
            KeyState::Remove => {
                self.remove();
                Ok(())
            }
        }
    }

    fn put_row(
        &mut self,
        row: Option<&[u8]>,
        fields: &[(usize, Option<Vec<u8>>)],
        expiry: Option<u64>,
    ) -> super::Done {
        let Some(schema) = self.schema() else { return Err(super::WRONG_TYPE.into()) };
        let new = schema.with_fields(row, fields);
        self.put_as(Kind::Row, &new, expiry)
    }
}

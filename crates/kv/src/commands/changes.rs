//! Changes of keys by SQL statements: `INSERT`, `UPDATE` and `DELETE`.
//!
//! A statement computes its changes from entries that it has read earlier, so each key is checked again under the lock
//! of its shard. Example:
//!
//! 1. `UPDATE users SET age = age + 1` reads `age = 30` for key `users:1` from a cut (a point-in-time view).
//! 2. A client sets `age` to 50.
//! 3. [`Keyspace::change`] sees that the entry is no longer the one in the cut, and computes 51 from the current entry.
//!    Writing 31 would lose the client's update.

use super::handle::KeyPlace;
use super::{CommandResources, KeyHandle, Keys, Refusal};
use crate::cut::{Fingerprint, KeyCut, ReadEntry};
use crate::effects::Effect;
use crate::entry::Kind;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::session::{ExecutionMode, TimeAndRandom};
use crate::shard::SpaceId;
use crate::spaces::Space;
use farpool_model::limits::RETRY_AFTER_MS;
use farpool_model::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// A change of one key, computed from its entry as it was read earlier.
#[derive(Clone, Debug)]
pub struct KeyChange {
    /// The whole key, including the prefix of its space.
    pub key: Vec<u8>,
    /// Fingerprint of the entry that the change was computed from. If the current entry has another one, the change is
    /// computed again. `None` if no entry was read.
    pub expected: Option<Fingerprint>,
    /// The new state of the key.
    pub what: KeyState,
}

/// The new state of a key, as a SQL statement has computed it.
#[derive(Clone, Debug)]
pub enum KeyState {
    /// Inserts a row; the key must be absent. A field is the index of the column in the space's schema and its value,
    /// `None` for NULL.
    InsertRow(Vec<(usize, Option<Vec<u8>>)>),
    /// Inserts a string with an expiry in milliseconds since the epoch; the key must be absent.
    InsertString(Vec<u8>, Option<u64>),
    /// Sets these fields of the key's row; a field is the index of the column in the schema and its value, `None` for
    /// NULL.
    UpdateRow(Vec<(usize, Option<Vec<u8>>)>),
    /// Sets the string and the expiry (milliseconds since the epoch, or `None` for none); an outer `None` leaves it
    /// unchanged.
    UpdateString(Option<Vec<u8>>, Option<Option<u64>>),
    /// Removes the key.
    Remove,
}

/// A callback that computes changes again for entries that have changed since they were read. It receives the current
/// entries and the time, and returns one change per entry; `None` for an entry that the statement's condition no longer
/// selects.
pub type ChangeAgain<'a> = dyn FnMut(&[ReadEntry<'_>], u64) -> Result<Vec<Option<KeyState>>> + 'a;

/// The state of a key when a change is about to be applied: whether its current entry is the one that the change was
/// computed from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    AsExpected,
    Changed,
}

impl Keyspace {
    /// Applies `changes` to keys of a space, all or, if a check fails, none. For keys that have changed since `cut`,
    /// `again` computes the changes anew. Blocks until the shards of all keys are locked. Returns the sequence number
    /// of the latest log record that the outcome depends on; `None` if changes are not logged or there is no such
    /// record.
    ///
    /// # Errors
    /// `Stale` when a key has changed since the cut and `again` is absent or returns `None` for it, or when the key
    /// belongs to another space now; `Exists` when an inserted key is present; `OverLimit` when memory is too small, in
    /// which case earlier elements of `changes` have been applied; `Busy` while the keys are being rebuilt; errors of
    /// the journal.
    pub fn change(
        &self,
        (id, space_of): (SpaceId, Option<&Arc<Space>>),
        changes: &[KeyChange],
        (cut, again): (Option<&KeyCut>, Option<&mut ChangeAgain<'_>>),
        moment: TimeAndRandom,
    ) -> Result<Option<u64>> {
        self.check_accepts_changes()?;
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
        let resources = CommandResources::of(self, recorder, std::iter::once(all), ExecutionMode::Long);
        let mut resources = resources.ok_or_else(no_wait)?;
        resources.writes = true;
        let mut changed = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            if self.check_change((id, space_of), change, cut, (&mut resources, now))? == Found::Changed {
                changed.push(at);
            }
        }
        let mut anew = HashMap::new();
        if let Some(first) = changed.first() {
            let again = again.ok_or_else(|| has_changed(&changes[*first].key))?;
            let states = self.changed_again(id, changes, &changed, (&resources, now), again)?;
            anew = changed.into_iter().zip(states).collect();
        }
        let mut done = Ok(());
        for (at, change) in changes.iter().enumerate() {
            let hash = self.hash(&change.key);
            let place =
                KeyPlace { selected: crate::session::selected(id), space: id, named: space_of.cloned() };
            let at_now = (now, moment.random);
            let mut handle = KeyHandle::new(self, &mut resources, place, (hash, &change.key), at_now);
            done = handle.change(anew.get(&at).unwrap_or(&change.what));
            if done.is_err() {
                break;
            }
        }
        let recorded = resources.finish().0?;
        done.map(|()| recorded).map_err(|Refusal(text)| Error::over_limit(text.into_owned()))
    }

    /// Removes all keys of a space. Blocks until all shards are locked. Returns the sequence number of the log record;
    /// `None` if changes are not logged.
    ///
    /// # Errors
    /// `Busy` while the keys are being rebuilt; errors of the journal.
    pub fn remove_all(&self, space: SpaceId, moment: TimeAndRandom) -> Result<Option<u64>> {
        self.check_accepts_changes()?;
        let now = self.not_before(moment.now);
        let recorder = match self.journal() {
            Some(journal) => {
                journal.check(0)?;
                Recorder::new(Some(journal), Vec::new(), now, moment.random)
            }
            None => Recorder::off(),
        };
        let resources =
            CommandResources::of(self, recorder, std::iter::once((Keys::All, &[][..])), ExecutionMode::Long);
        let mut resources = resources.ok_or_else(no_wait)?;
        resources.shards.all().iter_mut().for_each(|(_, shard)| shard.flush(space, now));
        resources.recorder.add(&Effect::Flush { space });
        resources.finish().0
    }

    /// # Errors
    /// `Busy` while the keys are being rebuilt.
    fn check_accepts_changes(&self) -> Result<()> {
        match self.refuses_commands() {
            true => Err(Error::busy("the keys are being rebuilt", *RETRY_AFTER_MS.start())),
            false => Ok(()),
        }
    }

    /// Computes new changes, by calling `again`, for the elements of `changes` at the indexes `changed`, whose keys
    /// have changed since they were read.
    fn changed_again(
        &self,
        id: SpaceId,
        changes: &[KeyChange],
        changed: &[usize],
        (resources, now): (&CommandResources<'_>, u64),
        again: &mut ChangeAgain<'_>,
    ) -> Result<Vec<KeyState>> {
        let mut found = Vec::with_capacity(changed.len());
        for at in changed {
            let key = &changes[*at].key;
            let hash = self.hash(key);
            let table = resources.shards.at(self.shard_of(hash)).and_then(|shard| shard.table(id));
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
        (resources, now): (&mut CommandResources<'_>, u64),
    ) -> Result<Found> {
        let hash = self.hash(&change.key);
        let number = self.shard_of(hash);
        let shard = resources.shards.get(number);
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

/// Returns the error for shards that could not be locked. This would be a bug in this crate, because locking in long
/// mode blocks.
fn no_wait() -> Error {
    Error::internal("a change of keys did not wait for their shards")
}

impl KeyHandle<'_, '_, '_> {
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

//! Handles to the keys of a command, through which commands do all reads and changes of keys. Each change is added to
//! the command's log record and sets the flags of the clients that watch the key (`WATCH`).

use super::resources::OtherShards;
use super::room::ProtectedKeys;
use super::{CommandResources, Done, Refusal, TOO_LONG, WRONG_TYPE};
use crate::effects::Effect;
use crate::entry::{Entry, Kind};
use crate::fields::Fields;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::shard::{Shard, SpaceId};
use crate::spaces::Space;
use crate::table::{Edited, Table};
use farpool_model::limits::{KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// A handle to one key of a command, whose shard the command has locked. The key may be absent.
pub(crate) struct KeyHandle<'s, 'k, 'j> {
    pub(super) keyspace: &'s Keyspace,
    pub(super) shard: &'s mut Shard,
    /// The other shards that the command has locked, from which keys may be evicted to make room.
    pub(super) others: OtherShards<'s, 'j>,
    pub(super) recorder: &'s mut Recorder<'j>,
    pub(super) protected: &'s mut ProtectedKeys,
    /// Whether the command may change keys.
    pub(super) writes: bool,
    pub(super) random: u64,
    /// Id of the space that the client has selected.
    pub(super) selected: SpaceId,
    /// Id of the space that the key is in; `named` is the definition of this space if it is a named one.
    pub(super) space: SpaceId,
    pub(super) named: Option<Arc<Space>>,
    pub(super) hash: u64,
    pub(super) key: &'k [u8],
    pub(super) now: u64,
}

/// The space that a key is in, and the space that the client has selected.
pub(super) struct KeyPlace {
    /// Id of the space that the client has selected.
    pub selected: SpaceId,
    /// Id of the space that the key is in; `named` is the definition of this space if it is a named one.
    pub space: SpaceId,
    pub named: Option<Arc<Space>>,
}

impl<'s, 'k, 'j> KeyHandle<'s, 'k, 'j> {
    /// Creates a handle to a key whose shard is locked by `resources`. Entries that have expired at the time `now`
    /// count as absent.
    pub(super) fn new(
        keyspace: &'s Keyspace,
        resources: &'s mut CommandResources<'j>,
        KeyPlace { selected, space, named }: KeyPlace,
        (hash, key): (u64, &'k [u8]),
        (now, random): (u64, u64),
    ) -> Self {
        let CommandResources { shards, recorder, protected, writes, .. } = resources;
        let (shard, others) = shards.split(keyspace.shard_of(hash));
        let writes = *writes;
        KeyHandle {
            keyspace,
            shard,
            others,
            recorder,
            protected,
            writes,
            random,
            selected,
            space,
            named,
            hash,
            key,
            now,
        }
    }
}

impl KeyHandle<'_, '_, '_> {
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.shard.table(self.space)?.get(self.hash, self.key, self.now)
    }

    /// Returns the uncompressed string at the key; `None` if the key is absent. Fails with `WRONGTYPE` if the value is
    /// a hash.
    pub fn string(&self) -> std::result::Result<Option<Cow<'_, [u8]>>, Refusal> {
        let entry = self.entry();
        self.count_read(entry.is_some());
        match entry {
            Some(entry) if entry.kind() != Kind::String => Err(WRONG_TYPE.into()),
            Some(entry) => Ok(Some(self.plain(entry)?)),
            None => Ok(None),
        }
    }

    /// Returns the uncompressed value of an entry, of any kind.
    pub fn plain<'e>(&self, entry: Entry<'e>) -> std::result::Result<Cow<'e, [u8]>, Refusal> {
        match self.shard.table(self.space) {
            Some(table) => Ok(table.plain(entry)?),
            None => Ok(Cow::Borrowed(entry.stored())),
        }
    }

    /// Returns the fields of the hash at the key; `None` if the key is absent. Fails with `WRONGTYPE` if the value is a
    /// string.
    pub fn fields(&self) -> std::result::Result<Option<Fields<'_>>, Refusal> {
        let table = self.shard.table(self.space);
        let fields = match table {
            Some(table) => table.fields(self.hash, self.key, self.schema(), self.now)?,
            None => None,
        };
        self.count_read(fields.is_some());
        match fields {
            Some(None) => Err(WRONG_TYPE.into()),
            fields => Ok(fields.flatten()),
        }
    }

    /// Sets a field of the hash at the key; returns whether the field is new. Creates the hash if the key is absent;
    /// fails with `WRONGTYPE` if the value is a string.
    pub fn set_field(&mut self, field: &[u8], value: &[u8]) -> std::result::Result<bool, Refusal> {
        if field.len() > KV_KEY_BYTES_MAX || value.len() > KV_VALUE_BYTES_MAX {
            return Err(TOO_LONG.into());
        }
        if self.schema().is_some() {
            return self.set_row_field(field, value);
        }
        let is_absent = self.recorder.is_on() && !self.exists();
        let (hash, key, now) = (self.hash, self.key, self.now);
        let set = |table: &mut Table, _: &mut Recorder<'_>| table.set_field(hash, key, (field, value), now);
        let is_new = self.with_room(field.len() + value.len(), set)?;
        let (space, key) = (self.space, self.key);
        if is_absent {
            self.recorder.add(&Effect::Remove { space, key });
        }
        self.recorder.add(&Effect::Field { space, key, field, value });
        self.record_expiry();
        self.changed();
        Ok(is_new)
    }

    /// Sets several fields of the hash at the key, all or none; returns the number of new fields. Creates the hash if
    /// the key is absent; fails with `WRONGTYPE` if the value is a string.
    pub fn set_fields_of_hash(&mut self, fields: &[(&[u8], &[u8])]) -> std::result::Result<usize, Refusal> {
        let is_long = |(field, value): &(&[u8], &[u8])| {
            field.len() > KV_KEY_BYTES_MAX || value.len() > KV_VALUE_BYTES_MAX
        };
        if fields.iter().any(is_long) {
            return Err(TOO_LONG.into());
        }
        if self.schema().is_some() {
            return self.set_row_fields(fields);
        }
        let is_absent = self.recorder.is_on() && !self.exists();
        let (space, hash, key, now) = (self.space, self.hash, self.key, self.now);
        let bytes = fields.iter().map(|(field, value)| field.len() + value.len()).sum();
        let new = self.with_room(bytes, |table, _| table.set_all_fields(hash, key, fields, now))?;
        if is_absent {
            self.recorder.add(&Effect::Remove { space, key });
        }
        for (field, value) in fields {
            self.recorder.add(&Effect::Field { space, key, field, value });
        }
        self.record_expiry();
        self.changed();
        Ok(new)
    }

    /// Removes a field of the hash at the key; returns whether the field was present.
    pub fn remove_field(&mut self, field: &[u8]) -> std::result::Result<bool, Refusal> {
        if self.schema().is_some() {
            return self.remove_row_field(field);
        }
        let (hash, key, now) = (self.hash, self.key, self.now);
        let was_there = self.with_room(0, |table, _| table.remove_field(hash, key, field, now))?;
        if was_there {
            self.recorder.add(&Effect::RemoveField { space: self.space, key: self.key, field });
            self.changed();
        }
        Ok(was_there)
    }

    /// Returns a copy of the table of fields if the value is a large hash (one with such a table); otherwise `None`.
    pub fn copied_fields(&mut self) -> std::result::Result<Option<Box<Table>>, Refusal> {
        let (hash, key, now) = (self.hash, self.key, self.now);
        Ok(self.with_room(0, |table, _| table.copied_fields(hash, key, now))?)
    }

    /// Takes the table of fields out of a large hash. The caller must remove the key next, as a hash has at least one
    /// field.
    pub fn take_fields(&mut self) -> Option<Box<Table>> {
        self.shard.table_mut(self.space).take_fields(self.hash, self.key, self.now)
    }

    /// Replaces the table of fields of a large hash and records all fields.
    pub fn set_fields(&mut self, fields: Box<Table>) {
        self.shard.table_mut(self.space).set_fields(self.hash, self.key, fields, self.now);
        self.record_fields();
    }

    /// Records the key's expiry again after the change of a part of the value. Reason: a snapshot does not contain the
    /// key if it had expired by then, and replaying the change alone would create a key that never expires.
    fn record_expiry(&mut self) {
        if !self.recorder.is_on() {
            return;
        }
        if let Some(expiry) = self.entry().and_then(Entry::expiry) {
            let expiry = Some(expiry);
            self.recorder.add(&Effect::Expire { space: self.space, key: self.key, expiry });
        }
    }

    /// Records a large hash as a whole: the removal of the key, then each field, then the expiry.
    fn record_fields(&mut self) {
        let Some(table) = self.shard.table(self.space).filter(|_| self.recorder.is_on()) else { return };
        let (space, key) = (self.space, self.key);
        self.recorder.add(&Effect::Remove { space, key });
        let Ok(Some(Some(fields))) = table.fields(self.hash, key, None, self.now) else { return };
        let mut cursor = 0;
        loop {
            cursor = fields.scan(cursor, |field, value| {
                self.recorder.add(&Effect::Field { space, key, field, value });
            });
            if cursor == 0 {
                break;
            }
        }
        let expiry = table.get(self.hash, key, self.now).and_then(Entry::expiry);
        self.recorder.add(&Effect::Expire { space, key, expiry });
    }

    /// Sets the value to a large hash with this table of fields.
    pub fn put_table(&mut self, fields: Box<Table>, expiry: Option<u64>) -> Done {
        let (hash, key, mut fields) = (self.hash, self.key, Some(fields));
        self.with_room(0, |table, _| table.put_table(hash, key, &mut fields, expiry))?;
        self.record_fields();
        self.changed();
        Ok(())
    }

    /// Sets the value to a large hash without fields.
    pub fn put_empty_table(&mut self, expiry: Option<u64>) -> Done {
        let fields = Box::new(self.shard.table_mut(self.space).of_same_kind());
        self.put_table(fields, expiry)
    }

    /// Returns the bytes of pool memory that the entry takes; `None` if the key is absent.
    pub fn bytes(&self) -> Option<usize> {
        self.entry()?;
        self.shard.table(self.space)?.bytes_of(self.hash, self.key)
    }

    pub fn exists(&self) -> bool {
        self.entry().is_some()
    }

    /// Sets the value to a string, whatever the value was before.
    pub fn put(&mut self, value: &[u8], expiry: Option<u64>) -> Done {
        self.put_as(Kind::String, value, expiry)
    }

    /// Sets the value to `value` of this kind, encoded as entries store it, whatever the value was before. Fails if the
    /// space has rows and `kind` is another.
    pub fn put_as(&mut self, kind: Kind, value: &[u8], expiry: Option<u64>) -> Done {
        if kind != Kind::Row {
            self.check_no_rows()?;
        }
        let (hash, key) = (self.hash, self.key);
        self.with_room(value.len(), |table, _| table.put_plain(hash, key, (kind, value), expiry))?;
        self.recorder.add(&Effect::Put { space: self.space, key: self.key, kind, expiry, value });
        self.changed();
        Ok(())
    }

    /// Resizes the string at the key to `bytes` bytes, padding with zeros, and applies `change` to the bytes of
    /// `range`. Creates the string if the key is absent. Records only the bytes of `range`.
    pub fn edit(&mut self, bytes: usize, range: Range<usize>, change: impl FnOnce(&mut [u8])) -> Done {
        if bytes > KV_VALUE_BYTES_MAX {
            return Err(TOO_LONG.into());
        }
        self.check_no_rows()?;
        let (space, key) = (self.space, self.key);
        let is_absent = self.recorder.is_on() && !self.exists();
        let (hash, now) = (self.hash, self.now);
        let edit = |changed: &[u8], recorder: &mut Recorder<'_>| {
            if is_absent {
                recorder.add(&Effect::Remove { space, key });
            }
            recorder.add(&Effect::Edit { space, key, length: bytes, offset: range.start, bytes: changed });
        };
        match self.shard.table_mut(space).edited(hash, key, bytes, now)? {
            Some(Edited { mut plain, expiry }) => {
                change(&mut plain[range.clone()]);
                self.with_room(bytes, |table, _| table.put_plain(hash, key, (Kind::String, &plain), expiry))?;
                edit(&plain[range.clone()], self.recorder);
            }
            None => {
                let mut change = Some(change);
                self.with_room(bytes, |table, recorder| {
                    let changed = &mut table.resize(hash, key, bytes, now)?[range.clone()];
                    if let Some(change) = change.take() {
                        change(changed);
                    }
                    edit(changed, recorder);
                    Ok(())
                })?;
            }
        }
        self.record_expiry();
        self.changed();
        Ok(())
    }

    pub fn set_expiry(&mut self, expiry: Option<u64>) -> Done {
        let (hash, key) = (self.hash, self.key);
        self.with_room(0, |table, _| table.set_expiry(hash, key, expiry))?;
        self.recorder.add(&Effect::Expire { space: self.space, key: self.key, expiry });
        self.changed();
        Ok(())
    }

    /// Removes the key; returns whether it existed.
    pub fn remove(&mut self) -> bool {
        let was_there = self.exists();
        self.shard.table_mut(self.space).remove(self.hash, self.key);
        if was_there {
            self.recorder.add(&Effect::Remove { space: self.space, key: self.key });
            self.changed();
        }
        was_there
    }

    fn changed(&mut self) {
        self.shard.touch(self.selected, self.key);
        // An error only means that there is no memory for a larger index; all keys can still be found.
        drop(self.shard.table_mut(self.space).tidy());
    }
}

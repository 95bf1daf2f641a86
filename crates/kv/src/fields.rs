//! The fields of hashes (values that map fields to values, as in `HSET`).
//!
//! A small hash has its fields in its value, one after the other: two bytes with the length of the field's name, two
//! with the length of its value, the name, the value. A larger hash has a table of its own, in which the fields are
//! keys, and the value of the hash is the id of that table. A hash that has become large stays large. So a change
//! copies at most the size of a small hash.

use crate::entry::Kind;
use crate::rows::RowSchema;
use crate::table::{Table, Value};
use farpool_model::{Error, Result, limits};
use std::borrow::Cow;

/// Maximum number of fields of a small hash; the next constants are its maximum bytes, and the maximum bytes of a
/// field's name or value in it. The number of fields and the bytes of a value are the limits of Redis' listpacks; the
/// total keeps changes cheap.
const SMALL_FIELDS: usize = 128;
const SMALL_BYTES: usize = 4096;
const SMALL_VALUE_BYTES: usize = 64;

/// The tables of fields of large hashes, by id.
#[derive(Default)]
pub(crate) struct Tables {
    tables: Vec<Option<Box<Table>>>,
    free: Vec<u32>,
    /// Id of the table that had the latest step of background maintenance.
    next: usize,
}

impl Tables {
    fn add(&mut self, table: Box<Table>) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.tables[number as usize] = Some(table);
                number
            }
            None => {
                self.tables.push(Some(table));
                farpool_model::cast::u32_checked(self.tables.len() - 1)
            }
        }
    }

    /// Removes and returns the table whose id is stored in `value`; `None` if there is none.
    pub fn remove(&mut self, value: &[u8]) -> Option<Box<Table>> {
        let number = number_of(value)?;
        let table = self.tables.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(table)
    }

    fn get(&self, value: &[u8]) -> Option<&Table> {
        self.tables.get(number_of(value)? as usize)?.as_deref()
    }

    fn get_mut(&mut self, value: &[u8]) -> Option<&mut Table> {
        self.tables.get_mut(number_of(value)? as usize)?.as_deref_mut()
    }

    /// Returns the bytes of pool memory that all tables take.
    pub fn bytes(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.bytes()).sum()
    }

    /// Does a step of maintenance in the next table, in turn; returns whether this table may need more.
    pub fn tidy_one(&mut self) -> bool {
        let count = self.tables.len();
        if count == 0 {
            return false;
        }
        self.next = (self.next + 1) % count;
        let Some(table) = &mut self.tables[self.next] else { return false };
        // If there is no memory to grow the index, the index stays as it is, which is no error.
        table.tidy().unwrap_or(false) | table.compact()
    }
}

fn number_of(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_le_bytes)
}

/// A view of the fields of a hash or row.
#[derive(Clone)]
pub(crate) enum Fields<'a> {
    Small(Cow<'a, [u8]>),
    Large(&'a Table),
    /// A row of a space with a schema; its fields are the columns that are not NULL, with values as text.
    Row(&'a RowSchema, Cow<'a, [u8]>),
}

impl<'a> Fields<'a> {
    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        match self {
            Fields::Small(bytes) => pairs(bytes).count(),
            Fields::Large(table) => table.len(),
            Fields::Row(schema, row) => schema.fields_set(row),
        }
    }

    /// Returns the value of a field; `None` if the hash has no such field.
    pub fn get(&self, field: &[u8]) -> Option<Cow<'a, [u8]>> {
        match self {
            Fields::Small(bytes) => within(bytes, |bytes| {
                pairs(bytes).find(|(name, _)| *name == field).map(|(_, value)| Cow::Borrowed(value))
            }),
            Fields::Large(table) => {
                table.get(table.hash(field), field, 0).map(|entry| Cow::Borrowed(entry.stored()))
            }
            Fields::Row(schema, row) => {
                let at = schema.position(field)?;
                within(row, |row| Some(schema.fields()[at].kind.value_text(schema.field(row, at)?)))
            }
        }
    }

    /// Calls `f` with some fields and their values from `cursor` on and returns the next cursor, 0 at the end, as
    /// [`Table::scan`] does. Calls `f` with all fields of a small hash or a row.
    pub fn scan(&self, cursor: u64, mut f: impl FnMut(&[u8], &[u8])) -> u64 {
        match self {
            Fields::Small(bytes) => {
                pairs(bytes).for_each(|(field, value)| f(field, value));
                0
            }
            Fields::Large(table) => table.scan(cursor, 0, |entry| f(entry.key(), entry.stored())),
            Fields::Row(schema, row) => {
                for (at, field) in schema.fields().iter().enumerate() {
                    if let Some(value) = schema.field(row, at) {
                        f(field.name.as_bytes(), &field.kind.value_text(value));
                    }
                }
                0
            }
        }
    }
}

/// Returns the part of `bytes` that `part` selects. The part is copied if `bytes` is owned, because it is a
/// decompressed value.
fn within<'a>(
    bytes: &Cow<'a, [u8]>,
    part: impl for<'b> FnOnce(&'b [u8]) -> Option<Cow<'b, [u8]>>,
) -> Option<Cow<'a, [u8]>> {
    match bytes {
        Cow::Borrowed(bytes) => part(bytes),
        Cow::Owned(bytes) => part(bytes).map(|part| Cow::Owned(part.into_owned())),
    }
}

/// Iterates over the names and values of the fields of a small hash.
fn pairs(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let (lengths, rest) = bytes.split_first_chunk::<4>()?;
        let [a, b, c, d] = *lengths;
        let (field, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([a, b])))?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([c, d])))?;
        bytes = rest;
        Some((field, value))
    })
}

/// Returns whether `bytes` are the encoding of a small hash with at least one field.
pub(crate) fn is_well_formed(bytes: &[u8]) -> bool {
    let length: usize = pairs(bytes).map(|(field, value)| 4 + field.len() + value.len()).sum();
    length == bytes.len() && length > 0
}

/// Appends a field to the encoding of a small hash. The lengths must fit two bytes each; [`is_small`] checks this.
fn push(bytes: &mut Vec<u8>, field: &[u8], value: &[u8]) {
    bytes.extend_from_slice(&(field.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
    bytes.extend_from_slice(field);
    bytes.extend_from_slice(value);
}

/// Sorts pairs by key; of several pairs with the same key, keeps only the last.
pub(crate) fn keep_last(pairs: &mut Vec<(&[u8], &[u8])>) {
    pairs.sort_by_key(|(key, _)| *key);
    pairs.reverse();
    pairs.dedup_by_key(|(key, _)| *key);
}

fn is_small(field: &[u8], value: &[u8]) -> bool {
    field.len() <= SMALL_VALUE_BYTES && value.len() <= SMALL_VALUE_BYTES
}

impl Table {
    /// Returns the fields of the hash at `key`: `None` if the key is absent or expired at `now`, `Some(None)` if the
    /// value is not a hash. `schema` is the schema of the space, if its values are rows.
    ///
    /// # Errors
    /// Errors of [`Table::plain`].
    pub fn fields<'a>(
        &'a self,
        hash: u64,
        key: &[u8],
        schema: Option<&'a RowSchema>,
        now: u64,
    ) -> Result<Option<Option<Fields<'a>>>> {
        let Some(entry) = self.get(hash, key, now) else { return Ok(None) };
        Ok(Some(match (entry.kind(), schema) {
            (Kind::String, _) | (Kind::Row, None) => None,
            (Kind::Row, Some(schema)) => Some(Fields::Row(schema, self.plain(entry)?)),
            (Kind::Fields, _) => Some(Fields::Small(self.plain(entry)?)),
            (Kind::Table, _) => self.tables.get(entry.stored()).map(Fields::Large),
        }))
    }

    /// Sets a field of the hash at `key`, creating the hash if the key is absent; an existing value must be a hash.
    /// Returns whether the field is new.
    ///
    /// # Errors
    /// `OverLimit` when memory is too small or the name of the field is too long; the hash is then unchanged.
    pub fn set_field(
        &mut self,
        hash: u64,
        key: &[u8],
        (field, value): (&[u8], &[u8]),
        now: u64,
    ) -> Result<bool> {
        if field.len() > limits::KV_KEY_BYTES_MAX {
            let message =
                format!("a field of {} bytes: fields have at most {}", field.len(), limits::KV_KEY_BYTES_MAX);
            return Err(Error::over_limit(message));
        }
        let entry = self.get(hash, key, now);
        let (expiry, kind) = (entry.and_then(|entry| entry.expiry()), entry.map(|entry| entry.kind()));
        if kind == Some(Kind::Table) {
            let number = entry.map_or(Vec::new(), |entry| entry.stored().to_vec());
            let Some(table) = self.tables.get_mut(&number) else { return Ok(false) };
            let inner = table.hash(field);
            let is_new = table.get(inner, field, 0).is_none();
            table.put(inner, field, &Value::new(value.len(), None))?.copy_from_slice(value);
            table.tidy().ok();
            return Ok(is_new);
        }
        let old = entry.map_or(Ok(Cow::Borrowed(&[][..])), |entry| self.plain(entry))?;
        let old = &*old;
        let is_new = !pairs(old).any(|(name, _)| name == field);
        let mut bytes = Vec::with_capacity(old.len() + field.len() + value.len() + 4);
        let others = || pairs(old).filter(|(name, _)| *name != field);
        let count = others().count() + 1;
        let is_small = is_small(field, value)
            && count <= SMALL_FIELDS
            && old.len() + field.len() + value.len() + 4 <= SMALL_BYTES;
        if is_small {
            others().for_each(|(name, value)| push(&mut bytes, name, value));
            push(&mut bytes, field, value);
            self.put_plain(hash, key, (Kind::Fields, &bytes), expiry)?;
            return Ok(is_new);
        }
        let mut table = self.of_same_kind();
        for (name, value) in others().chain([(field, value)]) {
            let inner = table.hash(name);
            table.put(inner, name, &Value::new(value.len(), None))?.copy_from_slice(value);
        }
        self.put_table(hash, key, &mut Some(Box::new(table)), expiry)?;
        Ok(is_new)
    }

    /// Sets several fields of the hash at `key`, all or none, as [`Table::set_field`] sets one. Returns the number of
    /// new fields.
    ///
    /// # Errors
    /// Errors of [`Table::set_field`].
    pub fn set_all_fields(
        &mut self,
        hash: u64,
        key: &[u8],
        fields: &[(&[u8], &[u8])],
        now: u64,
    ) -> Result<usize> {
        let entry = self.get(hash, key, now);
        let (expiry, kind) = (entry.and_then(|entry| entry.expiry()), entry.map(|entry| entry.kind()));
        if kind == Some(Kind::Table) {
            let number = entry.map_or(Vec::new(), |entry| entry.stored().to_vec());
            return self.tables.get_mut(&number).map_or(Ok(0), |table| table.put_all(fields));
        }
        let old = entry.map_or(Ok(Cow::Borrowed(&[][..])), |entry| self.plain(entry))?;
        let old = &*old;
        let bytes: usize = fields.iter().map(|(field, value)| 4 + field.len() + value.len()).sum();
        if fields.len() <= SMALL_FIELDS && fields.iter().all(|(field, value)| is_small(field, value)) {
            let mut all: Vec<(&[u8], &[u8])> = pairs(old).collect();
            let before = all.len();
            for (at, (field, value)) in fields.iter().enumerate() {
                let is_later = fields[at + 1..].iter().any(|(later, _)| later == field);
                if !is_later {
                    all.retain(|(name, _)| name != field);
                    all.push((field, value));
                }
            }
            let new = all.iter().filter(|(name, _)| !pairs(old).any(|(other, _)| other == *name)).count();
            debug_assert!(all.len() == before + new);
            let mut packed = Vec::with_capacity(old.len() + bytes);
            all.iter().for_each(|(field, value)| push(&mut packed, field, value));
            if all.len() <= SMALL_FIELDS && packed.len() <= SMALL_BYTES {
                self.put_plain(hash, key, (Kind::Fields, &packed), expiry)?;
                return Ok(new);
            }
        }
        let mut table = self.of_same_kind();
        let old: Vec<(&[u8], &[u8])> = pairs(old).collect();
        table.put_all(&old)?;
        let new = table.put_all(fields)?;
        self.put_table(hash, key, &mut Some(Box::new(table)), expiry)?;
        Ok(new)
    }

    /// Sets several fields in this table, the table of fields of a large hash, all or none. Returns the number of new
    /// fields.
    fn put_all(&mut self, fields: &[(&[u8], &[u8])]) -> Result<usize> {
        let mut fields = fields.to_vec();
        keep_last(&mut fields);
        let mut added = Vec::new();
        for (field, value) in &fields {
            let inner = self.hash(field);
            match self.prepare(inner, field, &Value::new(value.len(), None), value) {
                Ok(true) => added.push((inner, *field)),
                Ok(false) => {}
                Err(error) => {
                    for (inner, field) in added {
                        self.remove(inner, field);
                    }
                    return Err(error);
                }
            }
            self.tidy().ok();
        }
        for (field, value) in fields {
            let inner = self.hash(field);
            self.put(inner, field, &Value::new(value.len(), None))?.copy_from_slice(value);
        }
        Ok(added.len())
    }

    /// Makes the value of `key` a large hash whose fields are those of the table in `table`, which must be `Some`;
    /// takes the table out of it.
    ///
    /// # Errors
    /// Errors of [`Table::put`]; `table` is then put back.
    pub fn put_table(
        &mut self,
        hash: u64,
        key: &[u8],
        table: &mut Option<Box<Table>>,
        expiry: Option<u64>,
    ) -> Result<()> {
        let Some(fields) = table.take() else { return Ok(()) };
        let number = self.tables.add(fields).to_le_bytes();
        let new = Value::plain(Kind::Table, number.len(), expiry);
        match self.put(hash, key, &new) {
            Ok(value) => {
                value.copy_from_slice(&number);
                Ok(())
            }
            Err(error) => {
                *table = self.tables.remove(&number);
                Err(error)
            }
        }
    }

    /// Removes a field of the hash at `key`, and the key with its last field. Returns whether the field was present.
    ///
    /// # Errors
    /// Errors of [`Table::set_field`].
    pub fn remove_field(&mut self, hash: u64, key: &[u8], field: &[u8], now: u64) -> Result<bool> {
        let Some(entry) = self.get(hash, key, now) else { return Ok(false) };
        let is_last = match entry.kind() {
            Kind::String | Kind::Row => return Ok(false),
            Kind::Fields => {
                let old = self.plain(entry)?;
                let old = &*old;
                if !pairs(old).any(|(name, _)| name == field) {
                    return Ok(false);
                }
                let mut bytes = Vec::with_capacity(old.len());
                pairs(old)
                    .filter(|(name, _)| *name != field)
                    .for_each(|(name, value)| push(&mut bytes, name, value));
                let expiry = entry.expiry();
                if !bytes.is_empty() {
                    self.put_plain(hash, key, (Kind::Fields, &bytes), expiry)?;
                }
                bytes.is_empty()
            }
            Kind::Table => {
                let number = entry.stored().to_vec();
                let Some(table) = self.tables.get_mut(&number) else { return Ok(false) };
                let inner = table.hash(field);
                if !table.remove(inner, field) {
                    return Ok(false);
                }
                table.len() == 0
            }
        };
        if is_last {
            self.remove(hash, key);
        }
        Ok(true)
    }

    /// Returns a copy of the table of fields if the value of `key` is a large hash; otherwise `None`.
    ///
    /// # Errors
    /// `OverLimit` when memory is too small for the copy.
    pub fn copied_fields(&self, hash: u64, key: &[u8], now: u64) -> Result<Option<Box<Table>>> {
        match self.fields(hash, key, None, now)? {
            Some(Some(Fields::Large(table))) => Ok(Some(Box::new(table.copy()?))),
            _ => Ok(None),
        }
    }

    /// Takes the table of fields out of the large hash at `key`; `None` if there is none. The caller must remove or
    /// overwrite the key next, because the value refers to a table that is gone.
    pub fn take_fields(&mut self, hash: u64, key: &[u8], now: u64) -> Option<Box<Table>> {
        let value = self.get(hash, key, now).filter(|entry| entry.kind() == Kind::Table)?.stored().to_vec();
        self.tables.remove(&value)
    }

    /// Replaces the table of fields of the large hash at `key`; does nothing if there is none.
    pub fn set_fields(&mut self, hash: u64, key: &[u8], fields: Box<Table>, now: u64) {
        let Some(value) = self.get(hash, key, now).map(|entry| entry.stored().to_vec()) else { return };
        if let Some(table) = self.tables.get_mut(&value) {
            *table = *fields;
        }
    }

    fn copy(&self) -> Result<Table> {
        let (mut copy, mut cursor, mut failed) = (self.of_same_kind(), 0, None);
        loop {
            cursor = self.scan(cursor, 0, |entry| {
                let hash = self.hash(entry.key());
                match copy.put(hash, entry.key(), &Value::new(entry.stored().len(), None)) {
                    Ok(value) => value.copy_from_slice(entry.stored()),
                    Err(error) => failed = Some(error),
                }
            });
            match failed {
                Some(error) => return Err(error),
                None if cursor == 0 => return Ok(copy),
                None => {}
            }
        }
    }
}

//! The fields of hashes.
//!
//! A small hash has its fields in its value, one behind the other: two bytes of the length of the field, two of that of its
//! value, and both. What is larger has a table of its own, in which fields are keys; the value is then its number. A hash
//! that has become large stays so. Either way, a change costs no more than a small hash is long.

use crate::entry::Kind;
use crate::rows::RowSchema;
use crate::table::{Table, Value};
use farpool_model::{Error, Result, limits};
use std::borrow::Cow;

/// Most fields and most bytes of a small hash, and most bytes of one of its values: those of Redis' listpacks, but for the
/// bytes in all, so that a change stays cheap.
const SMALL_FIELDS: usize = 128;
const SMALL_BYTES: usize = 4096;
const SMALL_VALUE_BYTES: usize = 64;

/// The tables of large hashes, by number.
#[derive(Default)]
pub(crate) struct Tables {
    tables: Vec<Option<Box<Table>>>,
    free: Vec<u32>,
    /// The number from which tidying up goes on.
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

    /// Removes the table that a value names, and returns it.
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

    /// Bytes of the pool that they take.
    pub fn bytes(&self) -> usize {
        self.tables.iter().flatten().map(|table| table.bytes()).sum()
    }

    /// Tidies up one of them; returns whether there may be more to do in it.
    pub fn tidy_one(&mut self) -> bool {
        let count = self.tables.len();
        if count == 0 {
            return false;
        }
        self.next = (self.next + 1) % count;
        let Some(table) = &mut self.tables[self.next] else { return false };
        // Where the pool has no room, the index stays as it is.
        table.tidy().unwrap_or(false) | table.compact()
    }
}

fn number_of(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_le_bytes)
}

/// The fields of a hash that is read.
#[derive(Clone)]
pub(crate) enum Fields<'a> {
    Small(Cow<'a, [u8]>),
    Large(&'a Table),
    /// Of a space with a schema: those of the row that are not NULL, as text.
    Row(&'a RowSchema, Cow<'a, [u8]>),
}

impl<'a> Fields<'a> {
    /// The number of fields.
    pub fn len(&self) -> usize {
        match self {
            Fields::Small(bytes) => pairs(bytes).count(),
            Fields::Large(table) => table.len(),
            Fields::Row(schema, row) => schema.fields_set(row),
        }
    }

    /// The value of a field.
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

    /// Calls `f` with fields from `cursor` on, and returns the cursor that goes on, as [`Table::scan`] does; a small hash is
    /// seen at once.
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

/// A part of bytes, which is copied where these are those of a compressed value.
fn within<'a>(
    bytes: &Cow<'a, [u8]>,
    part: impl for<'b> FnOnce(&'b [u8]) -> Option<Cow<'b, [u8]>>,
) -> Option<Cow<'a, [u8]>> {
    match bytes {
        Cow::Borrowed(bytes) => part(bytes),
        Cow::Owned(bytes) => part(bytes).map(|part| Cow::Owned(part.into_owned())),
    }
}

/// The fields and values of a small hash.
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

/// Whether bytes are those of a small hash, with nothing behind it; it has a field.
pub(crate) fn is_well_formed(bytes: &[u8]) -> bool {
    let length: usize = pairs(bytes).map(|(field, value)| 4 + field.len() + value.len()).sum();
    length == bytes.len() && length > 0
}

/// Appends a field and its value, whose lengths [`is_small`] has checked.
fn push(bytes: &mut Vec<u8>, field: &[u8], value: &[u8]) {
    bytes.extend_from_slice(&(field.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
    bytes.extend_from_slice(field);
    bytes.extend_from_slice(value);
}

/// Puts keys and values in order, and of those with the same key keeps the last.
pub(crate) fn keep_last(pairs: &mut Vec<(&[u8], &[u8])>) {
    pairs.sort_by_key(|(key, _)| *key);
    pairs.reverse();
    pairs.dedup_by_key(|(key, _)| *key);
}

fn is_small(field: &[u8], value: &[u8]) -> bool {
    field.len() <= SMALL_VALUE_BYTES && value.len() <= SMALL_VALUE_BYTES
}

impl Table {
    /// The fields of the hash that `key` has, if it is there; `None` within if it is no hash. Those of a row are told by the
    /// schema of the space.
    ///
    /// # Errors
    /// As [`Table::plain`].
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

    /// Sets a field of the hash that `key` has, or gets now; it must have no other kind of value. Returns whether the field
    /// is new.
    ///
    /// # Errors
    /// `OverLimit` when the pool has no room, or a field is too long; the hash then has what it had.
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

    /// Sets several fields, all of them or none, as [`Table::set_field`] does it. Returns how many are new.
    ///
    /// # Errors
    /// As [`Table::set_field`].
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

    /// Gives keys of a table of fields their values, all of them or none. Returns how many are new.
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

    /// Gives the key a large hash, and takes it from `table` for that; it must be there.
    ///
    /// # Errors
    /// As [`Table::put`]; the large hash stays where it was.
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

    /// Removes a field of the hash that `key` has, and with its last one the hash. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Table::set_field`].
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

    /// Returns a copy of the table of fields that `key` has, if its hash is large.
    ///
    /// # Errors
    /// `OverLimit` when the pool has no room for it.
    pub fn copied_fields(&self, hash: u64, key: &[u8], now: u64) -> Result<Option<Box<Table>>> {
        match self.fields(hash, key, None, now)? {
            Some(Some(Fields::Large(table))) => Ok(Some(Box::new(table.copy()?))),
            _ => Ok(None),
        }
    }

    /// Takes the table of fields of a large hash, whose key is removed or given another value next.
    pub fn take_fields(&mut self, hash: u64, key: &[u8], now: u64) -> Option<Box<Table>> {
        let value = self.get(hash, key, now).filter(|entry| entry.kind() == Kind::Table)?.stored().to_vec();
        self.tables.remove(&value)
    }

    /// Gives the large hash that `key` has other fields.
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

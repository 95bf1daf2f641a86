//! Commands on rows, that is, on hashes in named spaces (namespaces of keys) with a schema.

use super::{Args, Context, Done, KeyHandle, Refusal, WRONG_TYPE};
use crate::entry::Kind;
use crate::rows::RowSchema;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The fields of a hash or row: names and values as bytes, as a client sends them.
pub(super) type Texts = Vec<(Vec<u8>, Vec<u8>)>;

impl KeyHandle<'_, '_, '_> {
    /// Returns the row schema of the space that the key is in; `None` if it has none.
    pub fn schema(&self) -> Option<&RowSchema> {
        self.named.as_ref()?.schema.as_ref()
    }

    /// Fails if the space has a schema, as all of its values must then be rows.
    pub fn check_no_rows(&self) -> Done {
        match &self.named {
            Some(space) if space.schema.is_some() => {
                let name = space.written_name();
                let name = name.escape_debug();
                Err(Refusal(Cow::Owned(format!(
                    "ERR the keys of space '{name}' have rows: use HSET, FP.ROWSET or SQL"
                ))))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the space has a schema and the field is no column of it, or the value is not of the column's type.
    pub fn check_field(&self, field: &[u8], value: &[u8]) -> Done {
        let Some(schema) = self.schema() else { return Ok(()) };
        self.check_row_key(schema)?;
        parsed(schema, field, value).map(drop)
    }

    /// Fails if the part of the key after the space's prefix is not the canonical text of a value of the schema's first
    /// column.
    fn check_row_key(&self, schema: &RowSchema) -> Done {
        let prefix = self.named.as_ref().map_or(0, |space| space.prefix.len());
        let rest = self.key.get(prefix..).unwrap_or_default();
        if schema.key_value(rest).is_some() {
            return Ok(());
        }
        let (rest, key) = (shown(rest), schema.key());
        let (name, kind) = (&key.name, key.kind.name());
        Err(Refusal(Cow::Owned(format!(
            "ERR '{rest}', the key's {name}, is not a {kind} as it is written here"
        ))))
    }

    fn row(&self) -> Result<Option<Vec<u8>>, Refusal> {
        let row = self.entry().filter(|entry| entry.kind() == Kind::Row);
        row.map(|entry| Ok(self.plain(entry)?.into_owned())).transpose()
    }

    pub(super) fn set_row_field(&mut self, field: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let Some(schema) = self.schema() else { return Err(WRONG_TYPE.into()) };
        self.check_row_key(schema)?;
        let (at, value) = parsed(schema, field, value)?;
        let old = self.row()?;
        let is_new = old.as_ref().is_none_or(|row| schema.field(row, at).is_none());
        let new = schema.with_fields(old.as_deref(), &[(at, Some(value))]);
        let expiry = self.entry().and_then(|entry| entry.expiry());
        self.put_as(Kind::Row, &new, expiry)?;
        Ok(is_new)
    }

    /// Sets several fields of a row; returns the number of fields that were not set before.
    pub(super) fn set_row_fields(&mut self, fields: &[(&[u8], &[u8])]) -> Result<usize, Refusal> {
        let Some(schema) = self.schema() else { return Err(WRONG_TYPE.into()) };
        self.check_row_key(schema)?;
        // If a field is given twice, the last value counts.
        let mut changes = BTreeMap::new();
        for (field, value) in fields {
            let (at, value) = parsed(schema, field, value)?;
            changes.insert(at, value);
        }
        let old = self.row()?;
        let is_new = |at: &&usize| old.as_ref().is_none_or(|row| schema.field(row, **at).is_none());
        let added = changes.keys().filter(is_new).count();
        let changes: Vec<_> = changes.into_iter().map(|(at, value)| (at, Some(value))).collect();
        let new = schema.with_fields(old.as_deref(), &changes);
        let expiry = self.entry().and_then(|entry| entry.expiry());
        self.put_as(Kind::Row, &new, expiry)?;
        Ok(added)
    }

    pub(super) fn remove_row_field(&mut self, field: &[u8]) -> Result<bool, Refusal> {
        let Some((schema, row)) = self.schema().zip(self.row()?) else { return Ok(false) };
        let Some(at) = schema.position(field).filter(|at| schema.field(&row, *at).is_some()) else {
            return Ok(false);
        };
        let new = schema.with_fields(Some(&row), &[(at, None)]);
        if schema.fields_set(&new) == 0 {
            self.remove();
        } else {
            let expiry = self.entry().and_then(|entry| entry.expiry());
            self.put_as(Kind::Row, &new, expiry)?;
        }
        Ok(true)
    }

    /// Returns all fields of the hash or row at the key.
    pub(super) fn all_fields(&self) -> Result<Texts, Refusal> {
        let mut fields = Vec::new();
        let Some(of) = self.fields()? else { return Ok(fields) };
        let mut cursor = 0;
        loop {
            cursor = of.scan(cursor, |field, value| fields.push((field.to_vec(), value.to_vec())));
            if cursor == 0 {
                // A scan may return a field twice, so duplicates are removed.
                fields.sort_unstable();
                fields.dedup_by(|a, b| a.0 == b.0);
                return Ok(fields);
            }
        }
    }

    /// Sets the value to a hash or row with exactly these fields; removes the key if there are none.
    pub(super) fn put_fields(&mut self, fields: &Texts, expiry: Option<u64>) -> Done {
        if let Some(schema) = self.schema() {
            self.check_row_key(schema)?;
            let changes = fields
                .iter()
                .map(|(field, value)| parsed(schema, field, value).map(|(at, value)| (at, Some(value))));
            let changes = changes.collect::<Result<Vec<_>, _>>()?;
            let row = schema.with_fields(None, &changes);
            return self.put_as(Kind::Row, &row, expiry);
        }
        self.remove();
        for (field, value) in fields {
            if let Err(refusal) = self.set_field(field, value) {
                self.remove();
                return Err(refusal);
            }
        }
        match expiry {
            Some(_) if self.exists() => self.set_expiry(expiry),
            _ => Ok(()),
        }
    }
}

/// Parses the value of a field of a row; returns the index of its column and the value as rows store it.
fn parsed(schema: &RowSchema, field: &[u8], value: &[u8]) -> Result<(usize, Vec<u8>), Refusal> {
    let Some(at) = schema.position(field) else {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name.as_str()).collect();
        let (shown, names) = (shown(field), names.join(", "));
        return Err(Refusal(Cow::Owned(format!("ERR no field '{shown}' in this space: it has {names}"))));
    };
    let field = &schema.fields()[at];
    match field.kind.parse_value(value) {
        Some(value) => Ok((at, value)),
        None => {
            let (shown, name, kind) = (shown(value), &field.name, field.kind.name());
            Err(Refusal(Cow::Owned(format!("ERR '{shown}' is not a {kind}, as field {name} has them"))))
        }
    }
}

/// Returns the beginning of `text`, from a client, as an error message quotes it.
pub(super) fn shown(text: &[u8]) -> String {
    text[..text.len().min(64)].escape_ascii().to_string()
}

/// Executes `FP.ROWSET space value ...`: sets whole rows. The arguments are the values of all columns in the order of
/// the schema, row after row.
pub(super) fn rowset(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let space = context.named_space(args[1])?;
    let Some(schema) = &space.schema else {
        return Err("ERR this space has no schema: use SET and HSET".into());
    };
    let columns = schema.fields().len() + 1;
    let values = &args[2..];
    if !values.len().is_multiple_of(columns) {
        let given = values.len();
        return Err(Refusal(Cow::Owned(format!(
            "ERR rows of this space have {columns} values: {given} make no rows"
        ))));
    }
    let mut rows = Vec::with_capacity(values.len() / columns);
    for row in values.chunks_exact(columns) {
        let key = [&space.prefix, row[0]].concat();
        context.handle_in(space.id, Some(&space), &key).check_row_key(schema)?;
        let fields = row[1..].iter().zip(schema.fields());
        let changes = fields.map(|(value, field)| parsed(schema, field.name.as_bytes(), value));
        let changes = changes.map(|change| change.map(|(at, value)| (at, Some(value))));
        rows.push((key, schema.with_fields(None, &changes.collect::<Result<Vec<_>, _>>()?)));
    }
    let count = rows.len();
    rows.iter().for_each(|(key, _)| context.resources.keep(context.keyspace, key));
    if context.keyspace.notes_uses() {
        rows.iter().for_each(|(key, _)| context.handle_in(space.id, Some(&space), key).note_use());
    }
    context.put_all(Some(&space), Kind::Row, rows.iter().map(|(key, row)| (&key[..], &row[..])).collect())?;
    context.replies.integer(count as i64);
    Ok(())
}

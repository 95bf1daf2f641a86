//! Decoding of log records to changes. The representation of row groups depends on the caller ([`Form`]): in memory, or
//! as ids during recovery.
//!
//! A *segment* is a file of column chunks in the data directory.

use super::prepare::VERSION_BYTES;
use super::proto::{self, Kind};
use crate::changes::{Change, ChangeKind, Form, Splice, TableSize};
use arrow_schema::{Field, Schema, SchemaRef};
use bytes::Bytes;
use farpool_columns::type_from_bytes;
use farpool_disk::WrappedKey;
use farpool_model::{
    Error, LoadId, Result, SchemaName, TableName, TenantName, Tier, Version, View, limits, schema,
};
use prost::Message;

/// Maximum version in a record, so that later versions do not overflow.
const VERSION_MAX: u64 = u64::MAX >> 1;

/// A row group as a record describes it: the ids of its column chunks, each with the id of its segment, or 0 for a
/// chunk that is stored in a log record.
#[derive(Debug)]
pub(super) struct GroupRecord {
    pub rows: u32,
    /// Runs of chunks: id of the segment, id of the first chunk, number of chunks.
    pub runs: Vec<[u64; 3]>,
}

/// Creates the row groups and tables that records describe, in the representation of the caller.
pub(super) trait Parts {
    type Form: Form;

    /// Takes a chunk that is stored in the record.
    fn image(&mut self, image: proto::Image);

    /// Sets the table that the change is about. `may_share` says whether new row groups may share chunks with those
    /// that they replace.
    ///
    /// # Errors
    /// `Corrupt` if there is no such table.
    fn begin(&mut self, tenant: &TenantName, name: &TableName, may_share: bool) -> Result<()>;

    /// Returns a row group of the table that was set.
    fn group(&mut self, group: GroupRecord) -> Result<<Self::Form as Form>::Group>;

    /// Returns a new table.
    fn table(
        &mut self,
        tenant: &TenantName,
        name: &TableName,
        put: &proto::Put,
        size: &TableSize,
    ) -> Result<<Self::Form as Form>::Table>;
}

/// Decodes a record. Returns its change and the version that the change creates.
///
/// # Errors
/// `Corrupt` if it cannot be decoded, or refers to something that does not exist.
pub(super) fn change<P: Parts>(record: &[u8], parts: &mut P) -> Result<(Version, Change<P::Form>)> {
    let (version, record) =
        split_version(record).ok_or_else(|| Error::corrupt("a record without a version"))?;
    if version.0 > VERSION_MAX {
        return Err(Error::corrupt("a version that is too large"));
    }
    let record = proto::Record::decode(record).map_err(|error| undecodable(&error))?;
    for image in &record.images {
        parts.image(decoded(image)?);
    }
    let loads = ids(&record.loads)?;
    let kind = record.kind.ok_or_else(|| Error::corrupt("a record of a kind that is not known"))?;
    // A schema name has the encoding of a table name in `public`.
    let (tenant, name) = names(record.tenant, record.name)?;
    let size = TableSize {
        rows: record.rows,
        bytes_plain: record.bytes_plain,
        bytes_encoded: record.bytes_encoded,
        distinct: record.distinct.iter().map(|more| more.checked_sub(1)).collect(),
    };
    let kind = match kind {
        Kind::Put(put) => {
            let table = parts.table(&tenant, &name, &put, &size)?;
            ChangeKind::Put { name, table }
        }
        Kind::Rows(rows) => {
            let splices = rows.splices.iter().map(decoded::<proto::Splice>).collect::<Result<Vec<_>>>()?;
            parts.begin(&tenant, &name, splices.iter().any(|splice| splice.rows > 0))?;
            let splices = splices.into_iter().map(|splice| self::splice(splice, parts));
            ChangeKind::Rows { name, splices: splices.collect::<Result<_>>()? }
        }
        Kind::Columns(columns) => {
            let (new_name, schema) = (TableName::decode(columns.new_name)?, schema_of(&columns.fields)?);
            let from: Vec<_> = columns.from.iter().map(|more| more.checked_sub(1)).collect();
            if from.len() != schema.fields().len() {
                return Err(Error::corrupt("a change of columns with others than it says"));
            }
            let from = from.into_iter().map(|old| old.map(|old| old as usize)).collect();
            ChangeKind::Columns { name, new_name, schema, from }
        }
        Kind::Merged(proto::Merged { first_row, rows }) => {
            ChangeKind::Merged { name, first_row, rows, merged: None }
        }
        Kind::Drop(_) => ChangeKind::Drop(name),
        Kind::PutView(text) => ChangeKind::PutView(View::new(name, text)?),
        Kind::DropView(_) => ChangeKind::DropView(name),
        Kind::PutSchema(_) => ChangeKind::PutSchema(SchemaName::new(name.as_str())?),
        Kind::DropSchema(_) => ChangeKind::DropSchema(SchemaName::new(name.as_str())?),
    };
    Ok((version, Change { tenant, loads, size, kind }))
}

fn splice<P: Parts>(splice: proto::Splice, parts: &mut P) -> Result<Splice<<P::Form as Form>::Group>> {
    let proto::Splice { first_row, rows, groups } = splice;
    let groups = groups.iter().map(|group| parts.group(GroupRecord::decode(group)?));
    Ok(Splice { first_row, rows, groups: groups.collect::<Result<_>>()? })
}

impl GroupRecord {
    pub fn decode(group: &Bytes) -> Result<GroupRecord> {
        let wrong = || Error::corrupt("a row group of other columns than its table");
        let proto::Group { rows, runs } = decoded(group)?;
        let (runs, rest) = runs.as_chunks::<3>();
        if !rest.is_empty() || rows as usize > limits::ROW_GROUP_ROWS {
            return Err(wrong());
        }
        let group = GroupRecord { rows, runs: runs.to_vec() };
        // Bounds the memory for the chunk ids, because a short record can name very long runs of chunks.
        match group.columns() <= limits::COLUMNS_MAX as u64 {
            true => Ok(group),
            false => Err(wrong()),
        }
    }

    /// Returns the number of chunks of the row group, which is its number of columns.
    pub fn columns(&self) -> u64 {
        self.runs.iter().fold(0_u64, |count, [_, _, run]| count.saturating_add(*run))
    }

    /// Returns the id of each chunk, with the id of its segment.
    ///
    /// # Errors
    /// `Corrupt` if there are not `columns` chunks, or an id is too large.
    pub fn chunks(&self, columns: usize) -> Result<Vec<(u64, u64)>> {
        if self.columns() != columns as u64 {
            return Err(Error::corrupt("a row group of other columns than its table"));
        }
        let mut chunks = Vec::with_capacity(columns);
        for [segment, first, run] in &self.runs {
            let end = first.checked_add(*run).filter(|end| *end < u64::MAX);
            let end = end.ok_or_else(|| Error::corrupt("a chunk whose number is too large"))?;
            chunks.extend((*first..end).map(|number| (*segment, number)));
        }
        Ok(chunks)
    }
}

/// Splits a record into the version and the rest; `None` if it is too short.
fn split_version(record: &[u8]) -> Option<(Version, &[u8])> {
    let (version, rest) = record.split_first_chunk::<VERSION_BYTES>()?;
    Some((Version(u64::from_le_bytes(*version)), rest))
}

pub(super) fn decoded<T: Message + Default>(bytes: &Bytes) -> Result<T> {
    T::decode(bytes.clone()).map_err(|error| undecodable(&error))
}

pub(super) fn undecodable(error: &prost::DecodeError) -> Error {
    Error::corrupt(format!("a change that cannot be decoded: {error}"))
}

pub(super) fn names(tenant: String, name: String) -> Result<(TenantName, TableName)> {
    Ok((TenantName::new(tenant)?, TableName::decode(name)?))
}

pub(super) fn ids(bytes: &[u8]) -> Result<Vec<LoadId>> {
    match bytes.as_chunks::<16>() {
        (ids, []) => Ok(ids.iter().map(|id| LoadId(u128::from_le_bytes(*id))).collect()),
        _ => Err(Error::corrupt("ids of loads that are cut off")),
    }
}

/// Decodes a wrapped key; `None` if `bytes` is empty.
pub(super) fn wrapped_key(bytes: &[u8]) -> Result<Option<WrappedKey>> {
    if bytes.is_empty() { Ok(None) } else { WrappedKey::from_bytes(bytes).map(Some) }
}

/// Decodes an encryption tier; `None` for 0.
pub(super) fn tier_of(number: u32) -> Result<Option<Tier>> {
    let Some(place) = number.checked_sub(1) else { return Ok(None) };
    let tier = Tier::ALL.get(place as usize).copied();
    tier.map(Some).ok_or_else(|| Error::corrupt(format!("tier {number} of encryption is not known")))
}

pub(super) fn schema_of(fields: &[Bytes]) -> Result<SchemaRef> {
    let field = |field: &Bytes| {
        let proto::Field { name, data_type, is_nullable } = decoded(field)?;
        Ok(Field::new(name, type_from_bytes(&data_type)?, is_nullable))
    };
    let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
    schema::canonical_schema(&Schema::new(fields)).map_err(|error| Error::corrupt(error.message))
}

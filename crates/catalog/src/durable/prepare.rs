//! Preparation of the log record of a change, before it is appended.
//!
//! Terms: a *segment* is a file of column chunks. A chunk is *inline* if it is stored in the log record instead. A
//! key is *wrapped* if it is encrypted with another key.

use super::chunk_writer::{ChunkWriter, INLINE_BYTES};
use super::locations::Location;
use super::{Durable, proto};
use crate::changes::{Change, ChangeKind, NewTable, Splice, TableSize};
use arrow_schema::Schema;
use bytes::Bytes;
use farpool_columns::{Chunk, RowGroup, type_to_bytes};
use farpool_disk::{ReservePolicy, TableKey};
use farpool_model::cast::u32_checked;
use farpool_model::{Error, Result, Tier, Version};
use prost::Message;
use std::collections::HashSet;
use std::sync::Arc;

/// Number of bytes of the table version at the beginning of a record.
pub(super) const VERSION_BYTES: usize = 8;

/// A log record that can be appended.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The change; `None` for a record that another node has prepared.
    change: Option<Change>,
    /// Encryption key of the table's data in segments; `None` if the table has none.
    key: Option<Arc<TableKey>>,
    bytes: Vec<u8>,
    frees_space: bool,
    /// Locations of the inline chunks of the record.
    locations: Vec<Arc<Location>>,
    /// Value of the directory's floor during preparation: records before the floor may be removed, so that their inline
    /// chunks must not be referred to. If the floor has risen since, the record must be prepared again.
    floor: u64,
}

impl Durable {
    /// Prepares the record of a change of a table with the encryption key `key`. New column chunks that are not on
    /// disk yet are stored in the record or, if they are large together, written to segments. Blocks on the disk
    /// then.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn prepare(self: &Arc<Self>, change: &Change, key: Option<&Arc<TableKey>>) -> Result<Prepared> {
        let mut prepared = Prepared {
            change: Some(change.clone()),
            key: key.cloned(),
            bytes: Vec::new(),
            frees_space: change.frees_space(),
            locations: Vec::new(),
            floor: 0,
        };
        prepared.prepare_again(self)?;
        Ok(prepared)
    }
}

impl Prepared {
    /// Returns a record that another node has prepared, with the locations of its inline chunks.
    pub(super) fn received(bytes: Vec<u8>, frees_space: bool, locations: Vec<Arc<Location>>) -> Prepared {
        Prepared { change: None, key: None, bytes, frees_space, locations, floor: 0 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn locations(&self) -> &[Arc<Location>] {
        &self.locations
    }

    /// Returns whether the record may use the log space that is reserved for changes that free space.
    pub fn reserve_policy(&self) -> ReservePolicy {
        if self.frees_space { ReservePolicy::FreesSpace } else { ReservePolicy::Normal }
    }

    /// Returns whether anybody waits until the record is durable: nobody does for a merge, which changes no rows.
    pub fn is_awaited(&self) -> bool {
        !matches!(&self.change, Some(Change { kind: ChangeKind::Merged { .. }, .. }))
    }

    /// Returns whether the record must be prepared again, given the directory's floor.
    pub fn is_outdated(&self, floor: u64) -> bool {
        self.change.is_some() && self.floor != floor
    }

    pub fn set_version(&mut self, version: Version) {
        self.bytes[..VERSION_BYTES].copy_from_slice(&version.0.to_le_bytes());
    }

    pub fn prepare_again(&mut self, durable: &Arc<Durable>) -> Result<()> {
        let Some(change) = &self.change else { return Ok(()) };
        self.floor = durable.floor();
        let mut record = proto::Record {
            tenant: change.tenant.as_str().to_string(),
            loads: change.loads.iter().flat_map(|load| load.0.to_le_bytes()).collect(),
            ..proto::Record::default()
        };
        if matches!(change.kind, ChangeKind::Put { .. } | ChangeKind::Rows { .. }) {
            let TableSize { rows, bytes_plain, bytes_encoded, distinct } = &change.size;
            (record.rows, record.bytes_plain, record.bytes_encoded) = (*rows, *bytes_plain, *bytes_encoded);
            record.distinct = distinct_numbers(distinct);
        }
        self.locations.clear();
        let (name, kind) = match &change.kind {
            ChangeKind::Put { name, table: NewTable { table, key, is_pinned } } => {
                let groups: Vec<&Arc<RowGroup>> = table.row_groups.iter().collect();
                self.locations = keep((durable, self.floor), &groups, key.as_ref(), &mut record)?;
                let put = proto::Put {
                    fields: fields(&table.schema),
                    groups: self.groups(&groups, durable),
                    tier: tier_number(table.tier()),
                    is_pinned: *is_pinned,
                    key: key_bytes(key.as_ref()),
                    tenant_key: tenant_key_bytes(key.as_ref()),
                };
                (name.encoded(), proto::Kind::Put(put))
            }
            ChangeKind::Rows { name, splices } => {
                let groups: Vec<_> = splices.iter().flat_map(|splice| &splice.groups).collect();
                self.locations = keep((durable, self.floor), &groups, self.key.as_ref(), &mut record)?;
                let splice_bytes = |splice: &Splice<Arc<RowGroup>>| {
                    let groups: Vec<_> = splice.groups.iter().collect();
                    let groups = self.groups(&groups, durable);
                    encoded(&proto::Splice { first_row: splice.first_row, rows: splice.rows, groups })
                };
                let splices = splices.iter().map(splice_bytes).collect();
                (name.encoded(), proto::Kind::Rows(proto::Rows { splices }))
            }
            ChangeKind::Columns { name, new_name, schema, from } => {
                let from = from.iter().map(|old| old.map_or(0, |old| u32_checked(old + 1))).collect();
                let columns = proto::Columns { new_name: new_name.encoded(), fields: fields(schema), from };
                (name.encoded(), proto::Kind::Columns(columns))
            }
            ChangeKind::Merged { name, first_row, rows, .. } => {
                let merged = proto::Merged { first_row: *first_row, rows: *rows };
                (name.encoded(), proto::Kind::Merged(merged))
            }
            ChangeKind::Drop(name) => (name.encoded(), proto::Kind::Drop(proto::Empty {})),
            ChangeKind::PutView(view) => {
                (view.name().encoded(), proto::Kind::PutView(view.text().to_string()))
            }
            ChangeKind::DropView(name) => (name.encoded(), proto::Kind::DropView(proto::Empty {})),
            ChangeKind::PutSchema(schema) => (schema.to_string(), proto::Kind::PutSchema(proto::Empty {})),
            ChangeKind::DropSchema(schema) => (schema.to_string(), proto::Kind::DropSchema(proto::Empty {})),
        };
        (record.name, record.kind) = (name, Some(kind));
        self.bytes.clear();
        self.bytes.resize(VERSION_BYTES, 0);
        // Encoding into a vector cannot fail, because the vector grows.
        record.encode(&mut self.bytes).expect("a vector has room");
        Ok(())
    }

    fn groups(&self, groups: &[&Arc<RowGroup>], durable: &Durable) -> Vec<Bytes> {
        groups.iter().map(|group| group_bytes(group, self.floor, durable)).collect()
    }
}

/// Makes the chunks of `groups`, of a table with the encryption key `key`, durable: those that are not on disk yet are
/// stored in `record` or written to segments. Returns the locations of the chunks stored in `record`.
fn keep(
    (durable, floor): (&Arc<Durable>, u64),
    groups: &[&Arc<RowGroup>],
    key: Option<&Arc<TableKey>>,
    record: &mut proto::Record,
) -> Result<Vec<Arc<Location>>> {
    let location = |chunk: &Chunk| Location::of(chunk, &durable.next_chunk);
    let chunks = groups.iter().flat_map(|group| &group.chunks);
    let lacking: Vec<&Arc<Chunk>> = chunks.filter(|chunk| location(chunk).segment(floor).is_none()).collect();
    let bytes: usize = lacking.iter().map(|chunk| chunk.bytes_encoded()).sum();
    if bytes > INLINE_BYTES {
        let mut writer = ChunkWriter::new(durable.clone());
        lacking.iter().try_for_each(|chunk| writer.write(chunk, key))?;
        writer.finish()?;
        return Ok(Vec::new());
    }
    let (mut locations, mut seen) = (Vec::new(), HashSet::new());
    for chunk in lacking {
        let location = location(chunk);
        // Row groups may share a chunk of NULLs, which is stored once.
        if !seen.insert(location.number) {
            continue;
        }
        let values =
            chunk.values().ok_or_else(|| Error::internal("values left memory before they were kept"))?;
        let image = values.to_image()?;
        let mut data = Vec::with_capacity(image.data_bytes());
        image.write_data(&mut data);
        let image = proto::Image { number: location.number, head: image.head.into(), data: data.into() };
        record.images.push(encoded(&image));
        locations.push(location);
    }
    Ok(locations)
}

pub(super) fn group_bytes(group: &RowGroup, floor: u64, durable: &Durable) -> Bytes {
    let mut runs: Vec<u64> = Vec::new();
    for chunk in &group.chunks {
        let location = Location::of(chunk, &durable.next_chunk);
        // Segment 0 stands for an inline chunk of this record, which has no location yet.
        let segment = location.segment(floor).unwrap_or(0);
        if let [.., last, first, count] = &mut runs[..]
            && *last == segment
            && *first + *count == location.number
        {
            *count += 1;
            continue;
        }
        runs.extend([segment, location.number, 1]);
    }
    encoded(&proto::Group { rows: u32_checked(group.rows), runs })
}

pub(super) fn fields(schema: &Schema) -> Vec<Bytes> {
    let field = |field: &arrow_schema::FieldRef| {
        encoded(&proto::Field {
            name: field.name().clone(),
            data_type: type_to_bytes(field.data_type()).into(),
            is_nullable: field.is_nullable(),
        })
    };
    schema.fields().iter().map(field).collect()
}

/// Returns the code of an encryption tier in records; 0 for none.
pub(super) fn tier_number(tier: Option<Tier>) -> u32 {
    let place = tier.and_then(|tier| Tier::ALL.iter().position(|one| *one == tier));
    place.map_or(0, |place| u32_checked(place + 1))
}

/// Returns the wrapped encryption key of a table, in encoded form; empty without a key.
pub(super) fn key_bytes(key: Option<&Arc<TableKey>>) -> Bytes {
    key.map(|key| Bytes::copy_from_slice(&key.wrapped().to_bytes())).unwrap_or_default()
}

/// Returns the wrapped encryption key of the table's tenant, in encoded form; empty without a key.
pub(super) fn tenant_key_bytes(key: Option<&Arc<TableKey>>) -> Bytes {
    key.map(|key| Bytes::copy_from_slice(&key.tenant().wrapped().to_bytes())).unwrap_or_default()
}

/// Returns for each column the number of distinct values plus one, or 0 if it is not known.
pub(super) fn distinct_numbers(distinct: &[Option<u64>]) -> Vec<u64> {
    distinct.iter().map(|count| count.map_or(0, |count| count.saturating_add(1))).collect()
}

pub(super) fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

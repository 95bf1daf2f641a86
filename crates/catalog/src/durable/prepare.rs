//! Preparation of the record of a change, before it is appended.

use super::chunk_writer::{ChunkWriter, INLINE_BYTES};
use super::locations::Location;
use super::{Durable, proto};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use farpool_columns::{Chunk, RowGroup, Table, type_to_bytes};
use farpool_disk::{ReservePolicy, TableKey};
use farpool_model::cast::{u32_checked, u64_from};
use farpool_model::{Error, LoadId, Result, SchemaName, TableName, TenantName, Tier, Version, View};
use prost::Message;
use proto::ChangeKind;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bytes of the version at the front of a record.
const VERSION_BYTES: usize = 8;

/// A change of the catalog that is recorded in the log.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A table is created or replaced.
    Put {
        tenant: TenantName,
        name: TableName,
        table: Arc<Table>,
        key: Option<Arc<TableKey>>,
        is_pinned: bool,
        loads: Vec<LoadId>,
    },
    /// Rows of a table change. Row groups that both versions share are the same objects; the first `same` ones are at
    /// equal indices.
    Rows {
        tenant: TenantName,
        name: TableName,
        before: Arc<Table>,
        after: Arc<Table>,
        key: Option<Arc<TableKey>>,
        same: usize,
        loads: Vec<LoadId>,
    },
    /// Columns of a table change, or its name.
    Columns {
        tenant: TenantName,
        name: TableName,
        new_name: TableName,
        schema: SchemaRef,
        columns: Vec<Option<usize>>,
    },
    Drop(TenantName, TableName),
    PutView(TenantName, View),
    DropView(TenantName, TableName),
    PutSchema(TenantName, SchemaName),
    /// A schema is dropped, with all tables and views in it.
    DropSchema(TenantName, SchemaName),
}

/// A record that is ready to be appended.
#[derive(Debug)]
pub(crate) struct Prepared {
    change: Change,
    bytes: Vec<u8>,
    /// Locations of the chunks that are inline in the record.
    locations: Vec<Arc<Location>>,
    /// The directory's floor during preparation. If it has risen since, a referenced record may be removed, and the
    /// record must be prepared again.
    pub floor: u64,
}

/// Row groups that replace a range of rows.
struct Splice<'a> {
    first_row: u64,
    rows: u64,
    groups: Vec<&'a Arc<RowGroup>>,
}

impl Durable {
    /// Prepares the record of a change. New chunks that are not on disk yet become inline chunks of the record or, if
    /// they are large together, are written to segments.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn prepare(self: &Arc<Self>, change: Change) -> Result<Prepared> {
        let mut prepared = Prepared { change, bytes: Vec::new(), locations: Vec::new(), floor: 0 };
        prepared.prepare_again(self)?;
        Ok(prepared)
    }
}

impl Prepared {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn locations(&self) -> &[Arc<Location>] {
        &self.locations
    }

    /// Returns whether the record may use the log space that is reserved for changes that free space.
    pub fn reserve_policy(&self) -> ReservePolicy {
        match self.change {
            Change::Drop(..) | Change::DropView(..) | Change::DropSchema(..) => ReservePolicy::FreesSpace,
            _ => ReservePolicy::Normal,
        }
    }

    pub fn set_version(&mut self, version: Version) {
        self.bytes[..VERSION_BYTES].copy_from_slice(&version.0.to_le_bytes());
    }

    pub fn prepare_again(&mut self, durable: &Arc<Durable>) -> Result<()> {
        self.floor = durable.floor();
        let mut record = proto::Record::default();
        self.locations.clear();
        let (tenant, name, kind) = match &self.change {
            Change::PutSchema(tenant, schema) => {
                (tenant, schema.to_string(), ChangeKind::PutSchema(proto::Empty {}))
            }
            Change::DropSchema(tenant, schema) => {
                (tenant, schema.to_string(), ChangeKind::DropSchema(proto::Empty {}))
            }
            Change::Put { tenant, name, table, key, is_pinned, loads } => {
                made_by(&mut record, loads, table);
                let groups: Vec<&Arc<RowGroup>> = table.row_groups.iter().collect();
                self.locations = keep((durable, self.floor), &groups, key.as_ref(), &mut record)?;
                let groups =
                    groups.into_iter().map(|group| group_bytes(group, self.floor, durable)).collect();
                let (fields, tier) = (fields(&table.schema), tier_number(table.tier()));
                let (key, tenant_key) = (key_bytes(key.as_ref()), tenant_key_bytes(key.as_ref()));
                let is_pinned = *is_pinned;
                (
                    tenant,
                    name.encoded(),
                    ChangeKind::Put(proto::Put { fields, groups, tier, is_pinned, key, tenant_key }),
                )
            }
            Change::Rows { tenant, name, before, after, key, same, loads } => {
                made_by(&mut record, loads, after);
                let splices = splices(before, after, *same);
                let groups: Vec<_> =
                    splices.iter().flat_map(|splice| splice.groups.iter().copied()).collect();
                self.locations = keep((durable, self.floor), &groups, key.as_ref(), &mut record)?;
                let splice_bytes = |splice: &Splice<'_>| {
                    let Splice { first_row, rows, groups } = splice;
                    let groups = groups.iter().map(|group| group_bytes(group, self.floor, durable)).collect();
                    encoded(&proto::Splice { first_row: *first_row, rows: *rows, groups })
                };
                (
                    tenant,
                    name.encoded(),
                    ChangeKind::Rows(proto::Rows { splices: splices.iter().map(splice_bytes).collect() }),
                )
            }
            Change::Columns { tenant, name, new_name, schema, columns } => {
                let from = columns.iter().map(|old| old.map_or(0, |old| u32_checked(old + 1))).collect();
                let columns = proto::Columns { new_name: new_name.encoded(), fields: fields(schema), from };
                (tenant, name.encoded(), ChangeKind::Columns(columns))
            }
            Change::Drop(tenant, name) => (tenant, name.encoded(), ChangeKind::Drop(proto::Empty {})),
            Change::PutView(tenant, view) => {
                (tenant, view.name().encoded(), ChangeKind::PutView(view.text().to_string()))
            }
            Change::DropView(tenant, name) => (tenant, name.encoded(), ChangeKind::DropView(proto::Empty {})),
        };
        record.tenant = tenant.as_str().to_string();
        record.name = name;
        record.kind = Some(kind);
        self.bytes.clear();
        self.bytes.resize(VERSION_BYTES, 0);
        // Encoding into a vector cannot fail: the vector grows.
        record.encode(&mut self.bytes).expect("a vector has room");
        Ok(())
    }
}

/// Ensures that the chunks of `groups`, of a table with this key, have durable copies once `record` is durable. Returns
/// the locations of those that are inline in it.
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
        // Row groups may share a chunk of NULLs.
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

/// Computes the splices that turn `before` into `after`. The first `same` row groups are equal.
///
/// Example: `before` has groups A, B and C of 10 rows, `after` has A, D and C. The result is one splice at row 10 that
/// replaces 10 rows with D.
fn splices<'a>(before: &Table, after: &'a Table, same: usize) -> Vec<Splice<'a>> {
    let rows = before.rows;
    let (before, after) = (&before.row_groups, &after.row_groups);
    let places: HashMap<*const RowGroup, usize> =
        before.from(same).enumerate().map(|(place, group)| (Arc::as_ptr(group), same + place)).collect();
    let mut row = match before.len() - same {
        0 => rows,
        _ => before.iter().take(same).map(|group| u64_from(group.rows)).sum(),
    };
    let mut place = same;
    let mut splices = Vec::new();
    let mut splice = Splice { first_row: row, rows: 0, groups: Vec::new() };
    // Row groups of `before` up to `to` were removed: their rows belong to the splice of whatever replaces them.
    let mut skip = |to: usize, splice: &mut Splice<'a>| {
        for group in before.from(place).take(to - place) {
            splice.rows += u64_from(group.rows);
            row += u64_from(group.rows);
        }
        place = to;
        row
    };
    for group in after.from(same) {
        let Some(kept) = places.get(&Arc::as_ptr(group)) else {
            splice.groups.push(group);
            continue;
        };
        skip(*kept, &mut splice);
        let mut none = Splice { first_row: 0, rows: 0, groups: Vec::new() };
        none.first_row = skip(kept + 1, &mut none);
        none.rows = 0;
        splices.push(std::mem::replace(&mut splice, none));
    }
    skip(before.len(), &mut splice);
    splices.push(splice);
    splices.retain(|splice| splice.rows > 0 || !splice.groups.is_empty());
    splices
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

/// Adds the loads that created `table` to its record, and the statistics of its values.
fn made_by(record: &mut proto::Record, loads: &[LoadId], table: &Table) {
    record.loads = loads.iter().flat_map(|load| load.0.to_le_bytes()).collect();
    let Table { rows, bytes_plain, bytes_encoded, .. } = *table;
    (record.rows, record.bytes_plain, record.bytes_encoded) = (rows, bytes_plain, bytes_encoded);
    record.distinct = distinct(table);
}

/// Returns the number that stands for the tier of in-memory encryption; 0 for none.
pub(super) fn tier_number(tier: Option<Tier>) -> u32 {
    let place = tier.and_then(|tier| Tier::ALL.iter().position(|one| *one == tier));
    place.map_or(0, |place| u32_checked(place + 1))
}

/// Returns the wrapped key of a table, which is stored; empty without a key.
pub(super) fn key_bytes(key: Option<&Arc<TableKey>>) -> Bytes {
    key.map(|key| Bytes::copy_from_slice(&key.wrapped().to_bytes())).unwrap_or_default()
}

/// Returns the wrapped key of the table's tenant, which is stored; empty without a key.
pub(super) fn tenant_key_bytes(key: Option<&Arc<TableKey>>) -> Bytes {
    key.map(|key| Bytes::copy_from_slice(&key.tenant().wrapped().to_bytes())).unwrap_or_default()
}

/// Returns for each column its number of distinct values plus one (an estimate for encrypted tables), or 0 if unknown.
pub(super) fn distinct(table: &Table) -> Vec<u64> {
    let counts = table.statistics.iter().map(|column| column.distinct_count.or(column.distinct_estimate));
    counts.map(|count| count.map_or(0, |count| count.saturating_add(1))).collect()
}

pub(super) fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Splits a record into the version and the rest.
pub(super) fn split_version(record: &[u8]) -> Option<(Version, &[u8])> {
    let (version, rest) = record.split_first_chunk::<VERSION_BYTES>()?;
    Some((Version(u64::from_le_bytes(*version)), rest))
}

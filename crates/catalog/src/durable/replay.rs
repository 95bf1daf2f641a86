//! Replay of a manifest and the records behind it, without the data of the tables.
//!
//! Example: the manifest has table `t` with groups A and B of 10 rows. A record replaces rows 10-19 with D, and a later
//! one appends E at row 20. The result is A, D, E. A record that names row 15 as the first one does not begin a row
//! group, and is an error rather than a guess.

use super::keys::WrappedTenants;
use super::prepare::split_version;
use super::proto::{self, ChangeKind};
use crate::state::Loads;
use arrow_schema::{Field, Schema, SchemaRef};
use bytes::Bytes;
use farpool_columns::{MemoryCipher, type_from_bytes};
use farpool_disk::{TableKey, WrappedKey};
use farpool_model::{
    Error, LoadId, LoadedVersion, Result, SchemaName, TableName, TenantName, Tier, Version, View, limits,
    schema,
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// State of a catalog, without the data of its tables.
#[derive(Debug, Default)]
pub(super) struct ReplayedState {
    pub tables: BTreeMap<TenantName, BTreeMap<TableName, ReplayedTable>>,
    pub views: BTreeMap<TenantName, BTreeMap<TableName, View>>,
    pub schemas: BTreeMap<TenantName, BTreeSet<SchemaName>>,
    pub loads: BTreeMap<TenantName, Loads>,
    pub versions_made: u64,
    pub next_chunk: u64,
    pub next_segment: u64,
    /// Inline chunks, each with the number of its record.
    pub images: HashMap<u64, (u64, proto::Image)>,
    /// Segments of all other chunks. For a chunk that was compacted, a record may still name the old segment, which has
    /// the lower number; the highest number wins.
    pub places: HashMap<u64, u64>,
    /// Wrapped keys of tenants, which wrap the keys of tables.
    pub tenant_keys: WrappedTenants,
    pub node: u64,
    pub next_record: u64,
}

#[derive(Debug)]
pub(super) struct ReplayedTable {
    pub schema: SchemaRef,
    pub version: Version,
    pub groups: Vec<ReplayedGroup>,
    /// Number of rows.
    rows: u64,
    pub profile: Option<ReplayedProfile>,
    /// Tier of in-memory encryption, if any.
    pub tier: Option<Tier>,
    /// Cipher of that tier; created before the table's row groups are read.
    pub cipher: Option<Arc<MemoryCipher>>,
    /// Number of distinct values of each column, where known. Has one entry for each column, or is empty.
    pub distinct: Vec<Option<u64>>,
    pub is_pinned: bool,
    /// Wrapped key of the table, if it has one, and the unwrapped key once available.
    pub wrapped_key: Option<WrappedKey>,
    pub key: Option<Arc<TableKey>>,
}

/// Location of the profile of the first rows of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayedProfile {
    pub segment: u64,
    pub number: u64,
    pub rows: u64,
}

impl ReplayedTable {
    fn new(
        schema: SchemaRef,
        version: Version,
        groups: Vec<ReplayedGroup>,
        tier: Option<Tier>,
        distinct: &[u64],
    ) -> ReplayedTable {
        let (rows, profile, cipher, is_pinned) = (rows_of(&groups), None, None, false);
        let numbers = distinct;
        let (distinct, wrapped_key, key) = (Vec::new(), None, None);
        let mut table = ReplayedTable {
            schema,
            version,
            groups,
            rows,
            profile,
            tier,
            cipher,
            distinct,
            is_pinned,
            wrapped_key,
            key,
        };
        table.set_distinct(numbers);
        table
    }

    /// Sets the numbers of distinct values from their encoded form in a record.
    fn set_distinct(&mut self, distinct: &[u64]) {
        let are_all = distinct.len() == self.schema.fields().len();
        self.distinct = distinct.iter().filter(|_| are_all).map(|more| more.checked_sub(1)).collect();
    }

    /// Returns the number of leading row groups that the profile covers.
    pub fn groups_profiled(&self) -> usize {
        let Some(profile) = self.profile else { return 0 };
        let mut rows = 0;
        let end = self.groups.iter().position(|group| {
            rows += u64::from(group.rows);
            rows == profile.rows
        });
        end.map_or(0, |last| last + 1)
    }
}

fn rows_of(groups: &[ReplayedGroup]) -> u64 {
    groups.iter().map(|group| u64::from(group.rows)).sum()
}

#[derive(Clone, Debug)]
pub(super) struct ReplayedGroup {
    pub rows: u32,
    /// Numbers of the chunks; `None` for a chunk of NULLs that is not stored.
    pub chunks: Vec<Option<u64>>,
}

impl ReplayedState {
    /// Decodes a manifest.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be decoded.
    pub fn begin(manifest: &[u8]) -> Result<ReplayedState> {
        let manifest = proto::Manifest::decode(manifest).map_err(|error| undecodable(&error))?;
        let mut replay = ReplayedState {
            node: manifest.node,
            next_record: manifest.next_record,
            versions_made: manifest.versions_made,
            next_chunk: manifest.next_chunk,
            next_segment: manifest.next_segment,
            ..ReplayedState::default()
        };
        for table in &manifest.tables {
            let proto::Table {
                tenant,
                name,
                version,
                fields,
                groups,
                profile,
                distinct,
                tier,
                is_pinned,
                key,
            } = decoded(table)?;
            let (tenant, name) = names(tenant, name)?;
            let schema = schema_of(&fields)?;
            let groups = replay.groups(&groups, schema.fields().len())?;
            let mut table = ReplayedTable::new(schema, Version(version), groups, tier_of(tier)?, &distinct);
            (table.is_pinned, table.wrapped_key) = (is_pinned, wrapped_key(&key)?);
            if let [segment, number, rows] = profile[..] {
                table.profile = Some(ReplayedProfile { segment, number, rows });
                replay.next_chunk = replay.next_chunk.max(number.saturating_add(1));
            }
            replay.tables.entry(tenant).or_default().insert(name, table);
        }
        for key in &manifest.tenant_keys {
            replay.tenant_keys.extend(wrapped_key(key)?.map(|key| (key.id(), key)));
        }
        for group in &manifest.others {
            let proto::Group { runs, .. } = decoded(group)?;
            let columns =
                runs.as_chunks::<3>().0.iter().fold(0_u64, |count, [.., run]| count.saturating_add(*run));
            if columns > limits::COLUMNS_MAX as u64 {
                return Err(Error::corrupt("a row group of more columns than a table may have"));
            }
            replay.groups(std::slice::from_ref(group), columns as usize)?;
        }
        for view in &manifest.views {
            let proto::View { tenant, name, text } = decoded(view)?;
            let (tenant, name) = names(tenant, name)?;
            let view = View::new(name.clone(), text)?;
            replay.views.entry(tenant).or_default().insert(name, view);
        }
        for schema in &manifest.schemas {
            let proto::Schema { tenant, name } = decoded(schema)?;
            replay.schemas.entry(TenantName::new(tenant)?).or_default().insert(SchemaName::new(name)?);
        }
        for load in &manifest.loads {
            let proto::Load { tenant, id, version, rows, bytes_plain, bytes_encoded } = decoded(load)?;
            let made = LoadedVersion { version: Version(version), rows, bytes_plain, bytes_encoded };
            let id = ids(&id)?.first().copied().ok_or_else(|| Error::corrupt("a load without an id"))?;
            replay.loads.entry(TenantName::new(tenant)?).or_default().add(vec![(id, made)]);
        }
        for forgotten in &manifest.forgotten {
            let proto::Forgotten { tenant, version } = decoded(forgotten)?;
            replay.loads.entry(TenantName::new(tenant)?).or_default().forgotten = version;
        }
        Ok(replay)
    }

    /// Applies a record.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be decoded, or does not fit the state.
    pub fn apply(&mut self, number: u64, record: &[u8]) -> Result<()> {
        let (version, record) =
            split_version(record).ok_or_else(|| Error::corrupt("a record without a version"))?;
        let record = proto::Record::decode(record).map_err(|error| undecodable(&error))?;
        for image in &record.images {
            let image: proto::Image = decoded(image)?;
            self.next_chunk = self.next_chunk.max(image.number.saturating_add(1));
            self.images.insert(image.number, (number, image));
        }
        self.versions_made = self.versions_made.max(version.0);
        let loads = ids(&record.loads)?;
        let kind = record.kind.ok_or_else(|| Error::corrupt("a record of a kind that is not known"))?;
        // A schema name has the encoding of a table name in `public`.
        let (tenant, name) = names(record.tenant, record.name)?;
        match kind {
            ChangeKind::Put(put) => {
                let schema = schema_of(&put.fields)?;
                let groups = self.groups(&put.groups, schema.fields().len())?;
                let mut table =
                    ReplayedTable::new(schema, version, groups, tier_of(put.tier)?, &record.distinct);
                (table.is_pinned, table.wrapped_key) = (put.is_pinned, wrapped_key(&put.key)?);
                self.tenant_keys.extend(wrapped_key(&put.tenant_key)?.map(|key| (key.id(), key)));
                self.tables.entry(tenant.clone()).or_default().insert(name, table);
            }
            ChangeKind::Rows(rows) => {
                self.splice((&tenant, &name), version, &rows.splices)?;
                self.table(&tenant, &name)?.set_distinct(&record.distinct);
            }
            ChangeKind::Columns(columns) => self.columns((&tenant, &name), version, columns)?,
            ChangeKind::Drop(_) => {
                let tables = self.tables.get_mut(&tenant);
                if tables.and_then(|tables| tables.remove(&name)).is_none() {
                    return Err(not_there(&name));
                }
            }
            ChangeKind::PutView(text) => {
                let view = View::new(name.clone(), text)?;
                self.views.entry(tenant.clone()).or_default().insert(name, view);
            }
            ChangeKind::DropView(_) => {
                let views = self.views.get_mut(&tenant);
                if views.and_then(|views| views.remove(&name)).is_none() {
                    return Err(not_there(&name));
                }
            }
            ChangeKind::PutSchema(_) => {
                let schema = SchemaName::new(name.as_str())?;
                self.schemas.entry(tenant.clone()).or_default().insert(schema);
            }
            ChangeKind::DropSchema(_) => self.drop_schema(&tenant, &SchemaName::new(name.as_str())?),
        }
        if !loads.is_empty() {
            let proto::Record { rows, bytes_plain, bytes_encoded, .. } = record;
            let made = LoadedVersion { version, rows, bytes_plain, bytes_encoded };
            let loads = loads.into_iter().map(|id| (id, made)).collect();
            self.loads.entry(tenant).or_default().add(loads);
        }
        self.next_record = number + 1;
        Ok(())
    }

    fn drop_schema(&mut self, tenant: &TenantName, schema: &SchemaName) {
        if let Some(schemas) = self.schemas.get_mut(tenant) {
            schemas.remove(schema);
        }
        if let Some(tables) = self.tables.get_mut(tenant) {
            tables.retain(|name, _| name.schema() != *schema);
        }
        if let Some(views) = self.views.get_mut(tenant) {
            views.retain(|name, _| name.schema() != *schema);
        }
    }

    fn splice(
        &mut self,
        (tenant, name): (&TenantName, &TableName),
        version: Version,
        splices: &[Bytes],
    ) -> Result<()> {
        let splices = splices.iter().map(decoded::<proto::Splice>).collect::<Result<Vec<_>>>()?;
        let columns = self.table(tenant, name)?.schema.fields().len();
        let mut new = Vec::new();
        for splice in &splices {
            new.push((splice.first_row, splice.rows, self.groups(&splice.groups, columns)?));
        }
        let table = self.table(tenant, name)?;
        // Applied from last to first, so that earlier rows keep their positions.
        for (first_row, rows, groups) in new.into_iter().rev() {
            let wrong =
                || Error::corrupt(format!("a change of rows that table {:?} does not have", name.as_str()));
            let end_row = first_row.checked_add(rows).ok_or_else(wrong)?;
            let new_rows = (table.rows + rows_of(&groups)).checked_sub(rows).ok_or_else(wrong)?;
            if first_row == table.rows && rows == 0 {
                // Fast path for appends, which are most records.
                (table.rows, _) = (new_rows, table.groups.extend(groups));
                continue;
            }
            table.profile = None;
            let (mut first, mut end, mut row) = (None, None, 0);
            for (place, old) in table.groups.iter().enumerate() {
                first = first.or((row == first_row).then_some(place));
                end = end.or((row == end_row && first.is_some()).then_some(place));
                row += u64::from(old.rows);
            }
            let behind = table.groups.len();
            let first = first.or((row == first_row).then_some(behind)).ok_or_else(wrong)?;
            let end = end.or((row == end_row).then_some(behind)).ok_or_else(wrong)?;
            table.groups.splice(first..end, groups);
            table.rows = new_rows;
        }
        table.version = version;
        Ok(())
    }

    fn columns(
        &mut self,
        (tenant, name): (&TenantName, &TableName),
        version: Version,
        columns: proto::Columns,
    ) -> Result<()> {
        let schema = schema_of(&columns.fields)?;
        let new_name = TableName::decode(columns.new_name)?;
        let wrong =
            || Error::corrupt(format!("a change of columns that table {:?} does not have", name.as_str()));
        if columns.from.len() != schema.fields().len() {
            return Err(wrong());
        }
        let tables = self.tables.get_mut(tenant).ok_or_else(|| not_there(name))?;
        let mut table = tables.remove(name).ok_or_else(|| not_there(name))?;
        for group in &mut table.groups {
            let chunk = |from: &u32| match from.checked_sub(1) {
                None => Ok(None),
                Some(old) => group.chunks.get(old as usize).copied().ok_or_else(wrong),
            };
            group.chunks = columns.from.iter().map(chunk).collect::<Result<_>>()?;
        }
        let distinct = std::mem::take(&mut table.distinct);
        let count = |from: &u32| distinct.get(from.checked_sub(1)? as usize).copied().flatten();
        table.distinct = columns.from.iter().map(count).collect();
        (table.schema, table.version, table.profile) = (schema, version, None);
        tables.insert(new_name, table);
        Ok(())
    }

    /// Returns the keys of the tables that have one, with their tenants.
    pub fn table_keys(&self) -> impl Iterator<Item = (&TenantName, &Arc<TableKey>)> {
        self.tables.iter().flat_map(|(tenant, tables)| {
            tables.values().filter_map(move |table| Some((tenant, table.key.as_ref()?)))
        })
    }

    fn table(&mut self, tenant: &TenantName, name: &TableName) -> Result<&mut ReplayedTable> {
        let tables = self.tables.get_mut(tenant);
        tables.and_then(|tables| tables.get_mut(name)).ok_or_else(|| not_there(name))
    }

    /// Decodes row groups of a table, and records the locations of their chunks.
    fn groups(&mut self, groups: &[Bytes], columns: usize) -> Result<Vec<ReplayedGroup>> {
        let mut kept = Vec::with_capacity(groups.len());
        for group in groups {
            let proto::Group { rows, runs } = decoded(group)?;
            let (runs, rest) = runs.as_chunks::<3>();
            let count = runs.iter().fold(0_u64, |count, [_, _, run]| count.saturating_add(*run));
            if !rest.is_empty() || count != columns as u64 || rows as usize > limits::ROW_GROUP_ROWS {
                return Err(Error::corrupt("a row group of other columns than its table"));
            }
            let mut chunks = Vec::with_capacity(columns);
            for [segment, first, run] in runs {
                let end = first.checked_add(*run).filter(|end| *end < u64::MAX);
                let end = end.ok_or_else(|| Error::corrupt("a chunk whose number is too large"))?;
                for number in *first..end {
                    if *segment > 0 {
                        let place = self.places.entry(number).or_default();
                        *place = (*place).max(*segment);
                    }
                    chunks.push(Some(number));
                }
                self.next_chunk = self.next_chunk.max(end);
                self.next_segment = self.next_segment.max(segment.saturating_add(1));
            }
            kept.push(ReplayedGroup { rows, chunks });
        }
        Ok(kept)
    }
}

fn decoded<T: Message + Default>(bytes: &Bytes) -> Result<T> {
    T::decode(bytes.clone()).map_err(|error| undecodable(&error))
}

fn undecodable(error: &prost::DecodeError) -> Error {
    Error::corrupt(format!("a change that cannot be decoded: {error}"))
}

fn not_there(name: &TableName) -> Error {
    Error::corrupt(format!("a change of {:?}, which is not there", name.as_str()))
}

fn names(tenant: String, name: String) -> Result<(TenantName, TableName)> {
    Ok((TenantName::new(tenant)?, TableName::decode(name)?))
}

fn ids(bytes: &[u8]) -> Result<Vec<LoadId>> {
    match bytes.as_chunks::<16>() {
        (ids, []) => Ok(ids.iter().map(|id| LoadId(u128::from_le_bytes(*id))).collect()),
        _ => Err(Error::corrupt("ids of loads that are cut off")),
    }
}

/// Decodes a wrapped key; `None` if `bytes` is empty.
fn wrapped_key(bytes: &[u8]) -> Result<Option<WrappedKey>> {
    if bytes.is_empty() { Ok(None) } else { WrappedKey::from_bytes(bytes).map(Some) }
}

/// Decodes a tier; `None` for 0.
fn tier_of(number: u32) -> Result<Option<Tier>> {
    let Some(place) = number.checked_sub(1) else { return Ok(None) };
    let tier = Tier::ALL.get(place as usize).copied();
    tier.map(Some).ok_or_else(|| Error::corrupt(format!("tier {number} of encryption is not known")))
}

fn schema_of(fields: &[Bytes]) -> Result<SchemaRef> {
    let field = |field: &Bytes| {
        let proto::Field { name, data_type, is_nullable } = decoded(field)?;
        Ok(Field::new(name, type_from_bytes(&data_type)?, is_nullable))
    };
    let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
    schema::canonical_schema(&Schema::new(fields)).map_err(|error| Error::corrupt(error.message))
}

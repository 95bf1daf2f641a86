//! Replay of a manifest (the state up to one log record) and of the log records after it, without reading the
//! data of the tables.
//!
//! Example: the manifest has table `t` with row groups A and B of 10 rows. A record replaces rows 10-19 with D, and a
//! later one appends E at row 20. The result is A, D, E. A record that names row 15 as the first row is an error,
//! because no row group begins there.
//!
//! Terms: a *segment* is a file of column chunks. Ids of chunks and segments contain an *origin*, which identifies
//! the node that gave the id.

use super::decode::{
    self, GroupRecord, Parts, decoded, ids, names, schema_of, tier_of, undecodable, wrapped_key,
};
use super::keys::WrappedTenants;
use super::proto;
use crate::changes::{Change, ChangeKind, Form, Splice, TableSize, replaced_ranges};
use crate::names::{Effect, Names, Replaced};
use crate::state::Loads;
use crate::views::StoredView;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_columns::MemoryCipher;
use farpool_disk::{PartId, TableKey, WrappedKey};
use farpool_model::{
    Error, LoadedVersion, Result, SchemaName, TableName, TenantName, Tier, Version, View, limits,
};
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The representation of changes during a replay, in which chunks are ids.
#[derive(Clone, Debug)]
pub(super) struct ByNumber;

impl Form for ByNumber {
    type Group = ReplayedGroup;
    type Table = ReplayedTable;
}

/// In a log from before merges were recorded, row groups with at most `SMALL_ROWS` rows are merged with their
/// neighbours to at most `JOINED_ROWS` rows.
const SMALL_ROWS: u32 = 1 << 10;
const JOINED_ROWS: u32 = 32 << 10;

/// State of a catalog without the data of its tables.
#[derive(Debug, Default)]
pub(super) struct ReplayedState {
    pub names: Names<ReplayedTable>,
    pub loads: BTreeMap<TenantName, Loads>,
    pub versions_made: u64,
    pub next_chunk: u64,
    pub next_segment: u64,
    /// Chunks that are stored in log records, each with the sequence number of the record, by chunk id.
    pub images: HashMap<u64, (u64, proto::Image)>,
    /// Ids of the segments of all other chunks, by chunk id. For a chunk that was compacted, a record may still name
    /// the old segment: a segment of this directory's own origin takes precedence, and of several the one with the
    /// highest id.
    pub places: HashMap<u64, u64>,
    /// Wrapped encryption keys of tenants, which wrap the keys of tables.
    pub tenant_keys: WrappedTenants,
    pub node: u64,
    /// Origin of the ids that this directory gives to chunks and segments.
    pub origin: u16,
    pub next_record: u64,
    /// Sequence number of the record that is being applied, and number of columns of its table.
    record: u64,
    columns: usize,
}

#[derive(Clone, Debug)]
pub(super) struct ReplayedTable {
    pub schema: SchemaRef,
    pub version: Version,
    pub groups: Vec<ReplayedGroup>,
    /// Number of rows.
    rows: u64,
    pub profile: Option<ReplayedProfile>,
    /// Encryption tier of the values in memory; `None` if they are not encrypted.
    pub tier: Option<Tier>,
    /// Cipher for the values in memory if `tier` is set. Created before the table's row groups are read.
    pub cipher: Option<Arc<MemoryCipher>>,
    /// Number of distinct values of each column, if known. Has one entry per column, or is empty.
    pub distinct: Vec<Option<u64>>,
    pub is_pinned: bool,
    /// Wrapped encryption key of the table, if it has one, and the unwrapped key when it is available.
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
    /// Returns a table that has no version yet.
    fn new(
        schema: SchemaRef,
        groups: Vec<ReplayedGroup>,
        tier: Option<Tier>,
        distinct: &[Option<u64>],
    ) -> ReplayedTable {
        let mut table = ReplayedTable {
            schema,
            version: Version(0),
            rows: rows_of(&groups),
            groups,
            profile: None,
            tier,
            cipher: None,
            distinct: Vec::new(),
            is_pinned: false,
            wrapped_key: None,
            key: None,
        };
        table.set_distinct(distinct);
        table
    }

    /// Returns a table without rows.
    pub fn empty(schema: SchemaRef) -> ReplayedTable {
        ReplayedTable::new(schema, Vec::new(), None, &[])
    }

    fn set_distinct(&mut self, distinct: &[Option<u64>]) {
        let are_all = distinct.len() == self.schema.fields().len();
        self.distinct = if are_all { distinct.to_vec() } else { Vec::new() };
    }

    fn splice(&mut self, splices: Vec<Splice<ReplayedGroup>>) -> Option<()> {
        let rows = self.groups.iter().map(|group| u64::from(group.rows));
        let ranges = replaced_ranges((self.groups.len(), self.rows), rows, &splices)?;
        // Splices are applied from last to first, so that the positions of earlier row groups stay the same.
        for (range, splice) in ranges.into_iter().zip(splices).rev() {
            self.rows = (self.rows + rows_of(&splice.groups)).checked_sub(splice.rows)?;
            let behind = range.start + splice.groups.len();
            if range.start == self.groups.len() {
                self.groups.extend(splice.groups);
                continue;
            }
            self.profile = None;
            self.groups.splice(range, splice.groups);
            // The row group after the replaced ones is not merged with the new one before it.
            if let Some(next) = self.groups.get_mut(behind) {
                next.is_continued = false;
            }
        }
        Some(())
    }

    /// Marks the row groups of a range of rows as one row group. Returns `None` if the range does not begin and end at
    /// row group boundaries.
    fn merge(&mut self, first_row: u64, rows: u64) -> Option<()> {
        if rows > limits::ROW_GROUP_ROWS as u64 {
            return None;
        }
        let range = Splice { first_row, rows, groups: Vec::<()>::new() };
        let rows_of = self.groups.iter().map(|group| u64::from(group.rows));
        let ranges = replaced_ranges((self.groups.len(), self.rows), rows_of, &[range])?;
        let merged = self.groups.get_mut(ranges.into_iter().next()?)?;
        merged.iter_mut().skip(1).for_each(|group| group.is_continued = true);
        Some(())
    }

    fn with_columns(&mut self, schema: SchemaRef, from: &[Option<usize>]) -> Option<()> {
        for group in &mut self.groups {
            let chunk = |from: &Option<usize>| match from {
                None => Some(None),
                Some(old) => group.chunks.get(*old).copied(),
            };
            group.chunks = from.iter().map(chunk).collect::<Option<_>>()?;
        }
        let count = |from: &Option<usize>| self.distinct.get((*from)?).copied().flatten();
        self.distinct = from.iter().map(count).collect();
        (self.schema, self.profile) = (schema, None);
        Some(())
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
    /// Ids of the chunks; `None` for a chunk of NULLs that is not stored.
    pub chunks: Vec<Option<u64>>,
    /// Whether the row group is merged with the row group before it.
    pub is_continued: bool,
}

impl ReplayedState {
    /// Returns the state of an empty directory of this origin.
    pub fn of_origin(origin: u16) -> ReplayedState {
        ReplayedState { origin, ..ReplayedState::default() }
    }

    /// Decodes a manifest.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be decoded.
    pub fn begin(manifest: &[u8]) -> Result<ReplayedState> {
        let manifest = proto::Manifest::decode(manifest).map_err(|error| undecodable(&error))?;
        let mut replay = ReplayedState {
            node: manifest.node,
            origin: u16::try_from(manifest.origin)
                .map_err(|_| Error::corrupt("an origin that is too large"))?,
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
            let distinct: Vec<_> = distinct.iter().map(|more| more.checked_sub(1)).collect();
            let mut table = ReplayedTable::new(schema, groups, tier_of(tier)?, &distinct);
            table.version = Version(version);
            (table.is_pinned, table.wrapped_key) = (is_pinned, wrapped_key(&key)?);
            if let [segment, number, rows] = profile[..] {
                table.profile = Some(ReplayedProfile { segment, number, rows });
                replay.note_chunk(number);
            }
            replay.names.tables.entry(tenant).or_default().insert(name, table);
        }
        for key in &manifest.tenant_keys {
            replay.tenant_keys.extend(wrapped_key(key)?.map(|key| (key.id(), key)));
        }
        for group in &manifest.others {
            let group = GroupRecord::decode(group)?;
            replay.columns = group.columns() as usize;
            replay.group(group)?;
        }
        for view in &manifest.views {
            let proto::View { tenant, name, text } = decoded(view)?;
            let (tenant, name) = names(tenant, name)?;
            let view = View::new(name.clone(), text)?;
            let view = Arc::new(StoredView::recovered(view));
            replay.names.views.entry(tenant).or_default().insert(name, view);
        }
        for schema in &manifest.schemas {
            let proto::Schema { tenant, name } = decoded(schema)?;
            replay.names.schemas.entry(TenantName::new(tenant)?).or_default().insert(SchemaName::new(name)?);
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
        self.record = number;
        let (version, change) = decode::change(record, self)?;
        self.versions_made = self.versions_made.max(version.0);
        let loaded = change.loaded(version);
        if !loaded.is_empty() {
            self.loads.entry(change.tenant.clone()).or_default().add(loaded);
        }
        let effect = self.effect(change, version)?;
        if let Some(conflict) = self.names.conflict(&effect) {
            return Err(Error::corrupt(format!("a change does not fit the tables and views: {conflict}")));
        }
        self.names.apply(effect, &mut Replaced::new());
        self.next_record = number + 1;
        Ok(())
    }

    /// Returns the effect of a change. Takes the table out of the names that the effect puts back.
    fn effect(&mut self, change: Change<ByNumber>, version: Version) -> Result<Effect<ReplayedTable>> {
        let Change { tenant, kind, size, .. } = change;
        let put = |tenant: TenantName, name: TableName, table: ReplayedTable| Effect::Put {
            tenant,
            name,
            renamed_from: None,
            table,
            loads: Vec::new(),
        };
        let wrong = |what: &str, name: &TableName| {
            Error::corrupt(format!("a {what} that table {:?} does not have", name.as_str()))
        };
        Ok(match kind {
            ChangeKind::Put { name, table } => put(tenant, name, ReplayedTable { version, ..table }),
            ChangeKind::Rows { name, splices } => {
                let mut table = self.take(&tenant, &name)?;
                table.splice(splices).ok_or_else(|| wrong("change of rows", &name))?;
                table.set_distinct(&size.distinct);
                put(tenant, name, ReplayedTable { version, ..table })
            }
            ChangeKind::Columns { name, new_name, schema, from } => {
                let mut table = self.take(&tenant, &name)?;
                table.with_columns(schema, &from).ok_or_else(|| wrong("change of columns", &name))?;
                let renamed_from = (name != new_name).then_some(name);
                let (name, table) = (new_name, ReplayedTable { version, ..table });
                Effect::Put { tenant, name, renamed_from, table, loads: Vec::new() }
            }
            ChangeKind::Merged { name, first_row, rows, .. } => {
                let mut table = self.take(&tenant, &name)?;
                table.merge(first_row, rows).ok_or_else(|| wrong("merge of rows", &name))?;
                put(tenant, name, table)
            }
            ChangeKind::Drop(name) => Effect::Drop(tenant, name),
            ChangeKind::PutView(view) => Effect::PutView(tenant, Arc::new(StoredView::recovered(view))),
            ChangeKind::DropView(name) => Effect::DropView(tenant, name),
            ChangeKind::PutSchema(schema) => Effect::PutSchema(tenant, schema),
            ChangeKind::DropSchema(schema) => Effect::DropSchema(tenant, schema),
        })
    }

    fn take(&mut self, tenant: &TenantName, name: &TableName) -> Result<ReplayedTable> {
        let tables = self.names.tables.get_mut(tenant);
        tables.and_then(|tables| tables.remove(name)).ok_or_else(|| not_there(name))
    }

    /// Merges small adjacent row groups. Reason: a log from before merges were recorded has one row group for each of
    /// many small appends.
    pub fn join_small(&mut self) {
        for table in self.names.tables.values_mut().flat_map(BTreeMap::values_mut) {
            let profiled = table.groups_profiled();
            let mut rows = 0;
            let mut has_small_before = false;
            for (place, group) in table.groups.iter_mut().enumerate() {
                let is_small = group.rows <= SMALL_ROWS;
                let fits = place != profiled && has_small_before && rows + group.rows <= JOINED_ROWS;
                group.is_continued |= is_small && fits;
                rows = if group.is_continued { rows + group.rows } else { group.rows };
                has_small_before = is_small;
            }
        }
    }

    /// Records that a chunk has this id, so that the id is not given again.
    fn note_chunk(&mut self, number: u64) {
        if PartId(number).origin() == self.origin {
            self.next_chunk = self.next_chunk.max(number.saturating_add(1));
        }
    }

    /// Records that a segment has this id, so that the id is not given again.
    pub fn note_segment(&mut self, segment: u64) {
        if PartId(segment).origin() == self.origin {
            self.next_segment = self.next_segment.max(segment.saturating_add(1));
        }
    }

    /// Returns the encryption keys of the tables that have one, with their tenants.
    pub fn table_keys(&self) -> impl Iterator<Item = (&TenantName, &Arc<TableKey>)> {
        self.names.tables.iter().flat_map(|(tenant, tables)| {
            tables.values().filter_map(move |table| Some((tenant, table.key.as_ref()?)))
        })
    }

    /// Decodes row groups of a table of `columns` columns, and records the locations of their chunks.
    fn groups(&mut self, groups: &[Bytes], columns: usize) -> Result<Vec<ReplayedGroup>> {
        self.columns = columns;
        groups.iter().map(|group| self.group(GroupRecord::decode(group)?)).collect()
    }
}

impl Parts for ReplayedState {
    type Form = ByNumber;

    fn image(&mut self, image: proto::Image) {
        self.note_chunk(image.number);
        self.images.insert(image.number, (self.record, image));
    }

    fn begin(&mut self, tenant: &TenantName, name: &TableName, _: bool) -> Result<()> {
        let table = self.names.find(tenant, name).ok_or_else(|| not_there(name))?;
        self.columns = table.schema.fields().len();
        Ok(())
    }

    fn group(&mut self, group: GroupRecord) -> Result<ReplayedGroup> {
        let mut chunks = Vec::with_capacity(self.columns);
        for (segment, number) in group.chunks(self.columns)? {
            if segment > 0 {
                let rank = |segment: u64| (PartId(segment).origin() == self.origin, segment);
                let place = self.places.entry(number).or_insert(segment);
                if rank(segment) > rank(*place) {
                    *place = segment;
                }
            }
            self.note_chunk(number);
            self.note_segment(segment);
            chunks.push(Some(number));
        }
        Ok(ReplayedGroup { rows: group.rows, chunks, is_continued: false })
    }

    fn table(
        &mut self,
        _: &TenantName,
        _: &TableName,
        put: &proto::Put,
        size: &TableSize,
    ) -> Result<ReplayedTable> {
        let schema = schema_of(&put.fields)?;
        let groups = self.groups(&put.groups, schema.fields().len())?;
        let mut table = ReplayedTable::new(schema, groups, tier_of(put.tier)?, &size.distinct);
        (table.is_pinned, table.wrapped_key) = (put.is_pinned, wrapped_key(&put.key)?);
        self.tenant_keys.extend(wrapped_key(&put.tenant_key)?.map(|key| (key.id(), key)));
        Ok(table)
    }
}

fn not_there(name: &TableName) -> Error {
    Error::corrupt(format!("a change of {:?}, which is not there", name.as_str()))
}

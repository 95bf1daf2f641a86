//! Replication: records that another node has prepared are applied as changes of this catalog, and appended to its log.
//!
//! The caller must have copied the segments that a record names into this directory before, under the ids that the
//! other node gave them.
//!
//! Invariant: after the same records two catalogs have the same names, versions, rows, row groups and outcomes of
//! loads. A catalog that receives records makes no changes and no merges of its own.

use super::decode::{self, GroupRecord, Parts, tier_of, wrapped_key};
use super::keys::Unwrapping;
use super::locations::{Location, SegmentFile};
use super::prepare::Prepared;
use super::replay::{ReplayedGroup, ReplayedState, ReplayedTable};
use super::sources::{RecoveryRead, Sources};
use super::{Durable, proto};
use crate::changes::{ChangeKind, InMemory, NewTable, TableSize};
use crate::{Catalog, Commit};
use farpool_columns::{Chunk, RowGroup, TableBuilder, table_cipher};
use farpool_disk::Segment;
use farpool_model::{Error, Result, TableName, TenantName};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The row groups and tables of a received record.
struct ReceivedParts<'a> {
    catalog: &'a Arc<Catalog>,
    durable: &'a Arc<Durable>,
    tenant: TenantName,
    name: TableName,
    /// Chunks that the table has before the change, by id, if new row groups may share them.
    chunks: HashMap<u64, Arc<Chunk>>,
    /// The chunks that are stored in the record, and the segments that it names.
    sources: Sources,
    /// Description of the table, for which row groups are read.
    table: ReplayedTable,
    /// Locations of the chunks that are stored in the record.
    inline: Vec<Arc<Location>>,
    first_row: u64,
}

impl Catalog {
    /// Applies a record that another node has prepared.
    ///
    /// # Errors
    /// `Corrupt` if it does not fit this catalog; `Invalid` without a data directory; `OverLimit` if memory is short;
    /// errors of the disk.
    pub fn apply_record(self: &Arc<Self>, record: &[u8]) -> Result<Commit<()>> {
        let durable = self.durable.get().ok_or_else(|| {
            Error::invalid("a catalog in memory receives no records")
                .advise("start the node with a data directory (--data-dir)")
        })?;
        let mut parts = ReceivedParts::new(self, durable)?;
        let (version, change) = decode::change(record, &mut parts)?;
        let locations = std::mem::take(&mut parts.inline);
        let newest = self.newest_version();
        if version.0 < newest.0 + u64::from(change.makes_version()) {
            return Err(Error::corrupt(format!(
                "a change to version {version}, and {newest} is made already"
            )));
        }
        let received = Prepared::received(record.to_vec(), change.frees_space(), locations);
        let before = match &change.kind {
            ChangeKind::Rows { name, .. }
            | ChangeKind::Columns { name, .. }
            | ChangeKind::Merged { name, .. } => Some(self.newest(&change.tenant, name).map_err(corrupt)?),
            _ => None,
        };
        self.make_received(change, before.as_ref(), received, version)
    }

    /// Removes all changes that are not committed, because their records never will be: the newest names become equal
    /// to those that readers see. Callers that wait for one of the changes get `error`. The log must have removed the
    /// records before.
    pub fn cut_off(&self, error: &Error) {
        let (wakes, gone) = self.state.write().cut_off();
        drop(gone);
        wakes.into_iter().for_each(|wake| wake(Err(error.clone())));
    }
}

fn corrupt(error: Error) -> Error {
    Error::corrupt(format!("a change of a table that is not there: {}", error.message))
}

impl<'a> ReceivedParts<'a> {
    fn new(catalog: &'a Arc<Catalog>, durable: &'a Arc<Durable>) -> Result<ReceivedParts<'a>> {
        let replay = ReplayedState::of_origin(durable.origin);
        Ok(ReceivedParts {
            catalog,
            durable,
            tenant: TenantName::default(),
            name: TableName::new("t")?,
            chunks: HashMap::new(),
            sources: Sources { replay, files: BTreeMap::new() },
            table: ReplayedTable::empty(Arc::new(arrow_schema::Schema::empty())),
            inline: Vec::new(),
            first_row: 0,
        })
    }

    /// Opens the segment with the id `number`, unless it is open.
    fn open(&mut self, number: u64) -> Result<()> {
        if self.sources.files.contains_key(&number) {
            return Ok(());
        }
        let mut segments = self.durable.segments.lock();
        let file = match segments.get(&number) {
            Some(file) => file.clone(),
            None => {
                let segment = Segment::open(&*self.durable.directory, number)?;
                let file = SegmentFile::found(number, segment, &self.durable.collector);
                segments.insert(number, file.clone());
                file
            }
        };
        drop(segments);
        self.sources.files.insert(number, file);
        Ok(())
    }
}

impl Parts for ReceivedParts<'_> {
    type Form = InMemory;

    fn image(&mut self, image: proto::Image) {
        self.sources.replay.images.insert(image.number, (0, image));
    }

    fn begin(&mut self, tenant: &TenantName, name: &TableName, may_share: bool) -> Result<()> {
        let current = self.catalog.newest(tenant, name).map_err(corrupt)?;
        (self.tenant, self.name) = (tenant.clone(), name.clone());
        self.table = ReplayedTable::empty(current.table.schema.clone());
        (self.table.cipher, self.table.key) = (current.table.cipher().cloned(), current.key.clone());
        let groups = current.table.row_groups.iter().filter(|_| may_share);
        for chunk in groups.flat_map(|group| &group.chunks) {
            if let Some(location) = Location::existing(chunk) {
                self.chunks.insert(location.number, chunk.clone());
            }
        }
        Ok(())
    }

    fn group(&mut self, group: GroupRecord) -> Result<Arc<RowGroup>> {
        let numbers = group.chunks(self.table.schema.fields().len())?;
        for (segment, number) in &numbers {
            if *segment > 0 && !self.chunks.contains_key(number) {
                self.open(*segment)?;
                self.sources.replay.places.insert(*number, *segment);
            }
        }
        // A chunk that the table already has is shared instead of read.
        let is_known = |number: &u64| self.chunks.contains_key(number);
        let chunks = numbers.iter().map(|(_, number)| Some(*number).filter(|number| !is_known(number)));
        let group = ReplayedGroup { rows: group.rows, chunks: chunks.collect(), is_continued: false };
        let read = RecoveryRead {
            tenant: &self.tenant,
            name: &self.name,
            table: &self.table,
            groups: std::slice::from_ref(&group),
            first_row: self.first_row,
        };
        let (mut filled, damaged) = self.sources.read_group(self.catalog, self.durable, &read, &group)?;
        self.first_row += u64::from(group.rows);
        if let Some(damage) = damaged.into_iter().next() {
            return Err(damage);
        }
        for (chunk, (_, number)) in filled.chunks.iter_mut().zip(numbers) {
            match self.chunks.get(&number) {
                Some(known) => *chunk = known.clone(),
                None => {
                    let location = Location::existing(chunk).filter(|location| !location.is_in_segment());
                    self.inline.extend(location);
                    self.chunks.insert(number, chunk.clone());
                }
            }
        }
        Ok(Arc::new(filled))
    }

    fn table(
        &mut self,
        tenant: &TenantName,
        name: &TableName,
        put: &proto::Put,
        _: &TableSize,
    ) -> Result<NewTable> {
        (self.tenant, self.name) = (tenant.clone(), name.clone());
        self.table = ReplayedTable::empty(decode::schema_of(&put.fields)?);
        self.table.cipher = tier_of(put.tier)?.map(table_cipher).transpose()?;
        let tenant_keys = wrapped_key(&put.tenant_key)?.map(|key| (key.id(), key)).into_iter().collect();
        let mut keys = Unwrapping::new(&*self.durable.directory, &tenant_keys);
        self.table.key = wrapped_key(&put.key)?.map(|key| keys.table(&key)).transpose()?;
        let builder = TableBuilder::new(self.catalog.pool.clone(), tenant.clone(), &self.table.schema, None)?;
        let mut builder = builder.encrypting(self.table.cipher.as_ref());
        for group in &put.groups {
            builder.add_row_group(self.group(GroupRecord::decode(group)?)?)?;
        }
        let table = Arc::new(self.catalog.holding(tenant, builder.finish()?)?);
        Ok(NewTable { table, key: self.table.key.clone(), is_pinned: put.is_pinned })
    }
}

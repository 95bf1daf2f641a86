//! Sources of column chunks during recovery: segments, and records of the log.

use super::keys::Unwrapping;
use super::locations::{Location, SegmentCollector, SegmentFile};
use super::profiles::StoredProfile;
use super::replay::{ReplayedGroup, ReplayedProfile, ReplayedState, ReplayedTable};
use super::{Durable, proto};
use crate::Catalog;
use arrow_buffer::Buffer;
use farpool_columns::{Chunk, Encoder, RowGroup, encrypt_into_pool, is_large, read_into_pool, table_cipher};
use farpool_disk::{Directory, Part, Segment, TableKey, segment_name};
use farpool_memory::Tenure;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result, TableName, TenantName};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Alignment in bytes of the buffers of a column chunk in the pool.
const ALIGNMENT: usize = 64;

/// The replayed state of the catalog, with the open segments that have its chunks.
pub(super) struct Sources {
    pub replay: ReplayedState,
    pub files: BTreeMap<u64, Arc<SegmentFile>>,
}

/// A row group that must be read, or adjacent small ones that are merged into one.
pub(super) struct RecoveryRead<'a> {
    pub tenant: &'a TenantName,
    pub name: &'a TableName,
    pub table: &'a ReplayedTable,
    pub groups: &'a [ReplayedGroup],
    pub first_row: u64,
}

/// A row group that was read, with one error per corrupted chunk.
pub(super) type RecoveredGroup = (RowGroup, Vec<Error>);

impl Sources {
    /// Opens the segments with chunks of the tables.
    pub fn open(
        directory: &dyn Directory,
        mut replay: ReplayedState,
        collector: &Arc<SegmentCollector>,
    ) -> Result<Sources> {
        let mut keys = Unwrapping::new(directory, &replay.tenant_keys);
        for (name, table) in replay.names.tables.values_mut().flatten() {
            table.cipher = table.tier.map(table_cipher).transpose()?;
            let key = table.wrapped_key.as_ref().map(|key| keys.table(key)).transpose();
            table.key = key.map_err(|error| Error {
                message: format!(
                    "the key of table {:?} in {}: {}",
                    name.as_str(),
                    directory.describe(),
                    error.message
                ),
                ..error
            })?;
        }
        let tables = replay.names.tables.values().flat_map(BTreeMap::values);
        let groups = tables.flat_map(|table| &table.groups);
        let chunks = groups.flat_map(|group| group.chunks.iter().flatten());
        let needed: BTreeSet<u64> = chunks.filter_map(|number| replay.places.get(number)).copied().collect();
        let mut files = BTreeMap::new();
        for number in needed {
            files.insert(number, SegmentFile::found(number, Segment::open(directory, number)?, collector));
        }
        // A missing profile is not an error, since it can be recomputed.
        let tables = replay.names.tables.values().flat_map(BTreeMap::values);
        for profile in tables.filter_map(|table| table.profile) {
            if !files.contains_key(&profile.segment)
                && let Ok(segment) = Segment::open(directory, profile.segment)
            {
                files.insert(profile.segment, SegmentFile::found(profile.segment, segment, collector));
            }
        }
        Ok(Sources { replay, files })
    }

    /// Returns the reads for all row groups, ordered by table and row.
    pub fn wanted(&self) -> Vec<RecoveryRead<'_>> {
        let mut wanted = Vec::new();
        for (tenant, tables) in &self.replay.names.tables {
            for (name, table) in tables {
                let mut first_row = 0;
                // Row groups that the profile covers are not merged with the ones after them.
                let (profiled, others) = table.groups.split_at(table.groups_profiled());
                for mut rest in [profiled, others] {
                    while !rest.is_empty() {
                        let (groups, behind) = rest.split_at(joined(rest));
                        wanted.push(RecoveryRead { tenant, name, table, groups, first_row });
                        first_row += groups.iter().map(|group| u64::from(group.rows)).sum::<u64>();
                        rest = behind;
                    }
                }
            }
        }
        wanted
    }

    /// Returns the profile of a table; `None` if it has none.
    pub fn profile(&self, table: &ReplayedTable) -> Option<StoredProfile> {
        let ReplayedProfile { segment, number, .. } = table.profile?;
        let file = self.files.get(&segment)?;
        file.part(number).ok()?;
        Some(StoredProfile::found(number, file, table.key.as_ref()))
    }

    /// Returns the source of the column chunk with this id.
    pub fn find<'a>(&'a self, table: &'a ReplayedTable, number: u64) -> Result<ChunkSource<'a>> {
        if let Some(segment) = self.replay.places.get(&number) {
            let file = self.files.get(segment);
            let file =
                file.ok_or_else(|| Error::internal(format!("{} is not open", segment_name(*segment))))?;
            return Ok(ChunkSource::Segment(file, file.part(number)?, table.key.as_ref()));
        }
        match self.replay.images.get(&number) {
            Some((record, image)) => Ok(ChunkSource::Log(*record, image)),
            None => Err(Error::corrupt(format!("chunk {number}, which a table needs, is nowhere"))),
        }
    }

    /// Returns the bytes on disk of the chunks of all tables.
    pub fn bytes_stored(&self) -> Result<u64> {
        let mut bytes = 0;
        for table in self.replay.names.tables.values().flat_map(BTreeMap::values) {
            let chunks = table.groups.iter().flat_map(|group| group.chunks.iter().flatten());
            // Row groups may share a chunk of NULLs, which counts once.
            let distinct: BTreeSet<u64> = chunks.copied().collect();
            let stored = |number| Ok(self.find(table, number)?.bytes_stored());
            bytes += distinct.into_iter().map(stored).sum::<Result<u64>>()?;
        }
        Ok(bytes)
    }

    /// Returns the bytes of the pool that reading a row group takes; 0 for a large one, whose values are read on
    /// demand.
    pub fn data_bytes(&self, table: &ReplayedTable, group: &ReplayedGroup) -> u64 {
        if is_large(group.rows as usize, 0) {
            return 0;
        }
        let chunks = group.chunks.iter().flatten();
        let sources = chunks.filter_map(|number| self.find(table, *number).ok());
        sources.map(|source| u64_from(source.bytes())).sum()
    }

    /// Reads row groups into the pool, and merges them unless one is corrupted.
    pub fn read(
        &self,
        catalog: &Catalog,
        durable: &Durable,
        wanted: &RecoveryRead<'_>,
    ) -> Result<Vec<RecoveredGroup>> {
        if wanted.groups.len() > 1
            && let Ok(joined) = self.read_joined(catalog, durable, wanted)
        {
            return Ok(vec![(joined, Vec::new())]);
        }
        let mut first_row = wanted.first_row;
        let mut read = Vec::new();
        for groups in wanted.groups.chunks(1) {
            let one = RecoveryRead { groups, first_row, ..*wanted };
            for group in groups {
                read.push(self.read_group(catalog, durable, &one, group)?);
                first_row += u64::from(group.rows);
            }
        }
        Ok(read)
    }

    /// Reads row groups into memory outside the pool, and merges them into one in the pool.
    ///
    /// # Errors
    /// Fails if any of them is corrupted; `OverLimit` if memory is short.
    pub fn read_joined(
        &self,
        catalog: &Catalog,
        durable: &Durable,
        wanted: &RecoveryRead<'_>,
    ) -> Result<RowGroup> {
        let encoder = wanted.encoder(catalog);
        let mut groups = Vec::with_capacity(wanted.groups.len());
        for group in wanted.groups {
            let chunk = |(column, number): (usize, &Option<u64>)| {
                let Some(number) = number else {
                    return encoder.nulls_of(column, group.rows as usize).map(Arc::new);
                };
                let source = self.find(wanted.table, *number)?;
                let mut data = vec![0; source.bytes()];
                source.read(&mut data)?;
                let chunk = wanted.chunk(column, group, &source.head()?, &Buffer::from(data))?;
                source.locate(&chunk, *number);
                Ok(Arc::new(chunk))
            };
            let chunks = group.chunks.iter().enumerate().map(chunk).collect::<Result<_>>()?;
            groups.push(Arc::new(RowGroup { rows: group.rows as usize, chunks }));
        }
        let columns = 0..wanted.table.schema.fields().len();
        let chunks = columns.map(|column| encoder.merge_column(&groups, column)).collect::<Result<_>>()?;
        let joined = encoder.place(groups.iter().map(|group| group.rows).sum(), chunks)?;
        let joined = durable.with_handles(wanted.tenant, joined);
        durable.merged(&joined, &groups);
        Ok(joined)
    }

    /// Reads a row group into the pool. For a large one in a segment, reads only the heads (metadata) of its chunks.
    pub fn read_group(
        &self,
        catalog: &Catalog,
        durable: &Durable,
        wanted: &RecoveryRead<'_>,
        group: &ReplayedGroup,
    ) -> Result<RecoveredGroup> {
        let find = |number: &Option<u64>| {
            number.map(|number| Ok((number, self.find(wanted.table, number)?))).transpose()
        };
        let sources = group.chunks.iter().map(find).collect::<Result<Vec<_>>>()?;
        let (handles, cipher) = (durable.reads.source(wanted.tenant), wanted.table.cipher.as_ref());
        let absent = |source: &Option<(u64, ChunkSource<'_>)>| match source {
            Some((_, source @ ChunkSource::Segment(..))) => Chunk::absent(&source.head()?, &handles, cipher),
            _ => Ok(None),
        };
        let mut absent = sources.iter().map(absent).collect::<Result<Vec<_>>>()?;
        let bytes_plain: usize = absent.iter().flatten().map(Chunk::bytes_plain).sum();
        let is_large = is_large(group.rows as usize, bytes_plain);
        if !is_large {
            absent.fill_with(|| None);
        }
        let sources: Vec<_> = sources.into_iter().zip(absent).collect();
        let bytes =
            |(source, absent): &(Option<(u64, ChunkSource<'_>)>, Option<Chunk>)| match (source, absent) {
                (Some((_, source)), None) => source.bytes(),
                _ => 0,
            };
        let total = sources.iter().map(bytes).sum();
        let fill = |mut memory: &mut [u8]| {
            let mut damages = Vec::with_capacity(sources.len());
            for found in &sources {
                let (data, rest) = memory.split_at_mut(bytes(found));
                memory = rest;
                let read = |(_, source): &(u64, ChunkSource<'_>)| source.read(data).err();
                damages.push(found.0.as_ref().filter(|_| found.1.is_none()).and_then(read));
            }
            Ok(damages)
        };
        let (data, damages) = match cipher {
            None => read_into_pool(&catalog.pool, wanted.tenant, total, Tenure::Staying, fill)?,
            // Read into memory outside the pool, because values that are encrypted in memory must never be in the
            // pool in the clear.
            Some(_) => {
                let mut memory = vec![0; total];
                let damages = fill(&mut memory)?;
                (Buffer::from(memory), damages)
            }
        };
        let encoder = wanted.encoder(catalog);
        let (mut chunks, mut damaged, mut at) = (Vec::with_capacity(sources.len()), Vec::new(), 0);
        for (column, ((found, absent), damage)) in sources.into_iter().zip(damages).enumerate() {
            let Some((number, source)) = found else {
                chunks.push(Arc::new(encoder.nulls_of(column, group.rows as usize)?));
                continue;
            };
            if let Some(handle) = absent {
                let handle = wanted.fitting(column, group, handle)?;
                source.locate(&handle, number);
                chunks.push(Arc::new(handle));
                continue;
            }
            let data = data.slice_with_length(at, source.bytes());
            at += source.bytes();
            let chunk = match damage {
                None => wanted.chunk(column, group, &source.head()?, &data),
                Some(damage) => Err(damage),
            };
            let chunk = match chunk {
                Ok(chunk) => chunk,
                // A record of the log is either intact or missing as a whole, so that corruption here is an error of
                // the whole log.
                Err(damage) if matches!(source, ChunkSource::Log(..)) => return Err(damage),
                Err(damage) => {
                    let damage = wanted.lost(column, group, &damage);
                    damaged.push(damage.clone());
                    Chunk::from_head(&source.head()?, damage)?
                }
            };
            let chunk = match cipher.filter(|_| chunk.check_intact().is_ok()) {
                Some(cipher) => {
                    encrypt_into_pool(&catalog.pool, wanted.tenant, Tenure::Staying, cipher, chunk)?
                }
                None => Arc::new(chunk),
            };
            let chunk = if is_large { Chunk::handle(chunk, &handles) } else { chunk };
            source.locate(&chunk, number);
            chunks.push(chunk);
        }
        Ok((RowGroup { rows: group.rows as usize, chunks }, damaged))
    }
}

/// Returns the number of leading row groups that are merged into one.
fn joined(groups: &[ReplayedGroup]) -> usize {
    1 + groups.iter().skip(1).take_while(|group| group.is_continued).count()
}

/// Place on disk from which a column chunk is read.
pub(super) enum ChunkSource<'a> {
    Log(u64, &'a proto::Image),
    /// A part of a segment, with the encryption key of the table, if it has one.
    Segment(&'a Arc<SegmentFile>, &'a Part, Option<&'a Arc<TableKey>>),
}

impl ChunkSource<'_> {
    /// Returns the bytes of the chunk's data, rounded up to the alignment.
    pub fn bytes(&self) -> usize {
        let bytes = match self {
            ChunkSource::Log(_, image) => image.data.len(),
            ChunkSource::Segment(_, part, _) => usize_saturating(part.bytes),
        };
        bytes.next_multiple_of(ALIGNMENT)
    }

    /// Returns the bytes of the chunk's data on disk.
    pub fn bytes_stored(&self) -> u64 {
        match self {
            ChunkSource::Log(_, image) => u64_from(image.data.len()),
            ChunkSource::Segment(_, part, _) => part.bytes_stored,
        }
    }

    pub fn head(&self) -> Result<Cow<'_, [u8]>> {
        match self {
            ChunkSource::Log(_, image) => Ok(Cow::Borrowed(&image.head)),
            ChunkSource::Segment(file, part, key) => file.segment.head(part, *key),
        }
    }

    /// Reads the chunk's data into `memory`. Blocks on the disk.
    pub fn read(&self, memory: &mut [u8]) -> Result<()> {
        match self {
            ChunkSource::Log(_, image) => {
                let (data, rest) = memory.split_at_mut(image.data.len());
                data.copy_from_slice(&image.data);
                rest.fill(0);
                Ok(())
            }
            ChunkSource::Segment(file, part, key) => {
                let (data, rest) = memory.split_at_mut(usize_saturating(part.bytes));
                rest.fill(0);
                file.segment.read(part, *key, data)
            }
        }
    }

    pub fn locate(&self, chunk: &Chunk, number: u64) {
        match self {
            ChunkSource::Log(record, _) => Location::found(chunk.location(), number, None, *record),
            ChunkSource::Segment(file, _, key) => {
                Location::found(chunk.location(), number, Some((Arc::clone(file), key.cloned())), 0)
            }
        }
    }
}

impl RecoveryRead<'_> {
    pub fn encoder(&self, catalog: &Catalog) -> Encoder {
        let encoder = Encoder::new(catalog.pool.clone(), self.tenant.clone(), self.table.schema.clone());
        encoder.encrypting(self.table.cipher.as_ref())
    }

    /// Decodes the chunk of the column at this index.
    pub fn chunk(&self, column: usize, group: &ReplayedGroup, head: &[u8], data: &Buffer) -> Result<Chunk> {
        self.fitting(column, group, Chunk::from_image(head, data)?)
    }

    /// Checks that a chunk has the type of the table's column and the number of rows of the row group.
    fn fitting(&self, column: usize, group: &ReplayedGroup, chunk: Chunk) -> Result<Chunk> {
        let is_of_column = chunk.data_type() == self.table.schema.field(column).data_type();
        match is_of_column && chunk.rows() == group.rows as usize {
            true => Ok(chunk),
            false => Err(Error::corrupt("a chunk of another column")),
        }
    }

    /// Returns the error that readers get for a column's values that cannot be read.
    pub fn lost(&self, column: usize, group: &ReplayedGroup, why: &Error) -> Error {
        let (first, last) = (self.first_row + 1, self.first_row + u64::from(group.rows));
        let column = self.table.schema.field(column).name();
        let (name, tenant) = (self.name.as_str(), self.tenant);
        let error = Error::corrupt(format!(
            "rows {first} to {last} of column {column:?} of table {name:?} of tenant {tenant} are lost: {}",
            why.message
        ));
        error.advise("restore the table from a backup, or load it again")
    }
}

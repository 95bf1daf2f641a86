//! Recovery: opening a data directory restores the tables and views that its manifest (the state up to one log
//! record) and the log after it describe.

use super::checkpoint::{FORMAT, FORMATS, manifest_name, manifest_number};
use super::keys::TenantKeys;
use super::locations::{SegmentCollector, SegmentFile};
use super::profiles::StoredProfile;
use super::reads::Reads;
use super::replay::{ReplayedState, ReplayedTable};
use super::sources::{RecoveredGroup, RecoveryRead, Sources};
use super::{DurabilityObserver, Durable, LatestCheckpoint, proto};
use crate::merge::{self, Merges};
use crate::state::Loads;
use crate::{Catalog, Current};
use arrow_buffer::Buffer;
use farpool_columns::{Encoder, Table, TableBuilder};
use farpool_disk::{
    Directory, Log, PartId, RecoveredLog, TornEnd, read_sealed_formats, segment_number, write_sealed,
};
use farpool_memory::size_text;
use farpool_model::cast::u64_from;
use farpool_model::{Error, ErrorKind, Result, TableName, TenantName, limits};
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Result of reading row groups.
type Outcome = Result<Vec<RecoveredGroup>>;

/// Report about an opened data directory.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Id of the data directory, given when it was created or restored. Never 0.
    pub node: u64,
    /// Number of tables.
    pub tables: usize,
    /// Encoded bytes of the tables.
    pub bytes: u64,
    /// Bytes of the tables on disk; fewer than `bytes` if they are compressed.
    pub bytes_stored: u64,
    /// Number of log records that were replayed.
    pub records: u64,
    /// Torn last write of the log, which was not acknowledged and was dropped; `None` if there was none.
    pub dropped: Option<TornEnd>,
    /// Corrupted data, one error each: table, rows, column, and position on disk.
    pub damaged: Vec<Error>,
    /// Outcomes of the latest loads of each tenant that had an id.
    pub loads: BTreeMap<TenantName, Loads>,
}

impl Catalog {
    /// Opens a data directory. Its tables and views become those of this catalog, which must be empty, and later
    /// changes are recorded in it. An empty directory becomes a new data directory with the id `new_node`. Blocks on
    /// the disk.
    ///
    /// # Errors
    /// `Corrupt`, with the file's name, if acknowledged changes are corrupted or missing (corrupted data of tables are
    /// reported in [`Recovery::damaged`] instead); `Invalid` if the directory has foreign files or files of another
    /// version; `OverLimit`, with sizes, if the tables do not fit the pool; errors of the disk.
    pub fn open(self: &Arc<Self>, directory: Arc<dyn Directory>, new_node: u64) -> Result<Recovery> {
        self.open_of(directory, new_node, 0)
    }

    /// Opens a data directory as [`Catalog::open`] does. In a new directory, the ids of chunks and segments begin with
    /// `new_origin`, the number of this node among the nodes that get each other's segments, so that no two nodes give
    /// the same id ([`PartId`]). [`Catalog::open`] passes 0, for a node by itself.
    ///
    /// # Errors
    /// Errors of [`Catalog::open`].
    pub fn open_of(
        self: &Arc<Self>,
        directory: Arc<dyn Directory>,
        new_node: u64,
        new_origin: u16,
    ) -> Result<Recovery> {
        self.open_sized(directory, (new_node, new_origin), u64_from(limits::LOG_FILE_BYTES))
    }

    /// Opens a data directory as [`Catalog::open_of`] does, with log files of another size.
    pub(super) fn open_sized(
        self: &Arc<Self>,
        directory: Arc<dyn Directory>,
        (new_node, new_origin): (u64, u16),
        log_file_bytes: u64,
    ) -> Result<Recovery> {
        let names = list(&*directory)?;
        let manifest = match newest_manifest(&*directory, &names)? {
            Some(manifest) => renewed(&*directory, manifest)?,
            None => {
                begin(&directory, &names, (new_node, new_origin), log_file_bytes)?;
                1
            }
        };
        let mut replay = read_manifest(&*directory, manifest)?;
        let from = replay.next_record;
        let mut apply = |number, record: &[u8]| {
            let applied = replay.apply(number, record);
            applied.map_err(|error| in_record(&*directory, number, error))
        };
        let (log, recovered) = Log::open_sized(directory.clone(), log_file_bytes, None, from, &mut apply)?;
        names.iter().filter_map(|name| segment_number(name)).for_each(|number| replay.note_segment(number));
        if replay.origin == 0 {
            replay.join_small();
        }
        let collector = SegmentCollector::new(self);
        let sources = Sources::open(&*directory, replay, &collector)?;
        let durable = Arc::new(Durable {
            directory: directory.clone(),
            node: sources.replay.node,
            origin: sources.replay.origin,
            next_chunk: AtomicU64::new(sources.replay.next_chunk),
            next_segment: AtomicU64::new(sources.replay.next_segment),
            tenant_keys: TenantKeys::of(sources.replay.table_keys()),
            floor: AtomicU64::new(from),
            segments: Mutex::new(sources.files.clone()),
            collector,
            latest: Mutex::new(LatestCheckpoint { manifest, next_record: from, replaced: Vec::new() }),
            log_bytes: AtomicU64::new(0),
            is_checkpoint_wanted: AtomicBool::new(false),
            is_mark_wanted: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            log: self.log_over.over(log),
            reads: Reads::new(self.pool.clone(), self.background.clone(), self.trace.clone()),
        });
        self.pool.set_reclaim(durable.reads.reclaim());
        let mut recovery = Recovery {
            node: durable.node,
            records: recovered.records,
            dropped: recovered.dropped,
            loads: sources.replay.loads.clone(),
            ..Recovery::default()
        };
        recovery.bytes_stored = sources.bytes_stored()?;
        self.restore(&sources, &durable, &mut recovery)?;
        durable.log.observe(Box::new(DurabilityObserver(Arc::downgrade(self))));
        remove_leftovers(&*directory, &names, manifest, &sources.files);
        self.durable.set(durable).map_err(|_| Error::internal("a catalog has two data directories"))?;
        self.read_profiles();
        Ok(recovery)
    }

    /// Reads the tables and adds them to the catalog.
    fn restore(
        self: &Arc<Self>,
        sources: &Sources,
        durable: &Durable,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let wanted = sources.wanted();
        self.check_fits(&wanted, sources)?;
        let read: Vec<OnceLock<Outcome>> = wanted.iter().map(|_| OnceLock::new()).collect();
        let next = AtomicUsize::new(0);
        let read_some = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let (Some(wanted), Some(slot)) = (wanted.get(place), read.get(place)) else { return };
                // Cannot fail: each slot is set once, by the thread that claimed its index.
                let _ = slot.set(sources.read(self, durable, wanted));
            }
        };
        self.helpers.run(self.helpers.threads_max().clamp(1, wanted.len().max(1)), &read_some)?;
        let mut read = wanted.iter().zip(read.into_iter().map(OnceLock::into_inner)).peekable();
        for (tenant, tables) in &sources.replay.names.tables {
            for (name, kept) in tables {
                let builder = TableBuilder::new(self.pool.clone(), tenant.clone(), &kept.schema, None)?;
                let mut builder = builder.encrypting(kept.cipher.as_ref());
                while let Some((_, read)) = read.next_if(|(wanted, _)| std::ptr::eq(wanted.table, kept)) {
                    let groups = read.unwrap_or_else(|| Err(Error::internal("a row group was not read")))?;
                    for (group, damaged) in groups {
                        recovery.damaged.extend(damaged);
                        builder.add_row_group(Arc::new(group))?;
                    }
                }
                builder.set_distinct(&kept.distinct);
                let table = Arc::new(self.holding(tenant, builder.finish()?)?);
                recovery.tables += 1;
                recovery.bytes += table.bytes_encoded;
                let current = self.restore_table((tenant, name), kept, table, sources.profile(kept));
                // Small row groups are merged without a record only on a node by itself. One of several nodes merges
                // only what a record says.
                if durable.origin == 0 {
                    current.merges.announce(&current);
                }
            }
        }
        let mut state = self.state.write();
        state.newest.views.clone_from(&sources.replay.names.views);
        state.newest.schemas.clone_from(&sources.replay.names.schemas);
        state.visible = state.newest.clone();
        state.versions_made = sources.replay.versions_made;
        state.durable_records = sources.replay.next_record;
        state.loads.clone_from(&sources.replay.loads);
        Ok(())
    }

    fn restore_table(
        self: &Arc<Self>,
        (tenant, name): (&TenantName, &TableName),
        kept: &ReplayedTable,
        table: Arc<Table>,
        profile: Option<StoredProfile>,
    ) -> Current {
        let profile = profile.zip(kept.profile).and_then(|(stored, kept)| {
            let mut rows = 0;
            let end = table.row_groups.iter().position(|group| {
                rows += u64_from(group.rows);
                rows == kept.rows
            });
            Some((stored, end? + 1))
        });
        let settled = profile.as_ref().map_or_else(|| merge::settled(&table, 0), |(_, settled)| *settled);
        let tap = profile.map(|(stored, _)| {
            let tap = self.tap(tenant, &table.schema);
            let encoder = Encoder::new(self.pool.clone(), tenant.clone(), table.schema.clone());
            let groups = table.row_groups.iter().take(settled).cloned();
            tap.store(Arc::new(stored), groups.collect(), encoder);
            tap
        });
        let rows_settled = table.row_groups.iter().take(settled).map(|group| u64_from(group.rows)).sum();
        let merges = Merges::new(self, self.next_chore(), tenant, name);
        let (version, since, whole, append_queue) = (kept.version, kept.version, None, Arc::default());
        let (is_pinned, key) = (kept.is_pinned, kept.key.clone());
        let current = Current {
            version,
            since,
            table,
            key,
            is_pinned,
            settled,
            rows_settled,
            tap,
            whole,
            append_queue,
            merges,
        };
        let mut state = self.state.write();
        // The pool may be smaller than at the last start, so that not all pinned tables fit.
        if is_pinned && self.check_pins(&state, tenant, name, current.table.bytes_encoded).is_ok() {
            current.table.pin_from(0);
        }
        state.newest.tables.entry(tenant.clone()).or_default().insert(name.clone(), current.clone());
        current
    }

    fn check_fits(&self, wanted: &[RecoveryRead<'_>], sources: &Sources) -> Result<()> {
        let groups = wanted.iter().flat_map(|wanted| wanted.groups.iter().map(|group| (wanted.table, group)));
        let bytes: u64 = groups.map(|(table, group)| sources.data_bytes(table, group)).sum();
        let most = self.pool.usage().bytes_limit;
        if bytes <= most {
            return Ok(());
        }
        let message = format!(
            "the small row groups of the data directory take {} of memory, and the pool has {}",
            size_text(bytes),
            size_text(most)
        );
        Err(Error::over_limit(message).advise("give the pool more memory (--memory)"))
    }
}

/// Checks all files of a data directory that no process has open, without changing anything.
///
/// # Errors
/// Errors of [`Catalog::open`], except that of a pool that is too small.
pub fn check_data(directory: &dyn Directory) -> Result<Recovery> {
    let names = list(directory)?;
    let Some(manifest) = newest_manifest(directory, &names)? else {
        return Err(Error::not_found(format!("{} is not a data directory", directory.describe()))
            .advise("name the directory that was given to --data-dir"));
    };
    let mut replay = read_manifest(directory, manifest)?;
    let recovered = Log::read(directory, replay.next_record, &mut |number, record| {
        let applied = replay.apply(number, record);
        applied.map_err(|error| in_record(directory, number, error))
    })?;
    let (node, loads) = (replay.node, replay.loads.clone());
    let sources = Sources::open(directory, replay, &Arc::default())?;
    let mut recovery = Recovery {
        bytes_stored: sources.bytes_stored()?,
        node,
        records: recovered.records,
        dropped: recovered.dropped,
        loads,
        tables: sources.replay.names.tables.values().map(BTreeMap::len).sum(),
        ..Recovery::default()
    };
    for wanted in sources.wanted() {
        let mut first_row = wanted.first_row;
        for group in wanted.groups {
            let one = RecoveryRead { first_row, ..wanted };
            for (column, number) in group.chunks.iter().enumerate() {
                let Some(number) = number else { continue };
                let source = sources.find(wanted.table, *number)?;
                recovery.bytes += u64_from(source.bytes());
                let mut data = vec![0; source.bytes()];
                let read = source.read(&mut data);
                let read = read.and_then(|()| one.chunk(column, group, &source.head()?, &Buffer::from(data)));
                recovery.damaged.extend(read.err().map(|damage| one.lost(column, group, &damage)));
            }
            first_row += u64::from(group.rows);
        }
    }
    Ok(recovery)
}

fn list(directory: &dyn Directory) -> Result<Vec<String>> {
    directory.names().map_err(|error| {
        Error::unavailable(format!("cannot list the files of {}: {error}", directory.describe()))
    })
}

/// Initializes an empty data directory. The log is created before the manifest, because a manifest without a log is an
/// error.
fn begin(
    directory: &Arc<dyn Directory>,
    names: &[String],
    (node, origin): (u64, u16),
    log_file_bytes: u64,
) -> Result<()> {
    for name in names {
        directory.remove(name).map_err(|error| {
            Error::unavailable(format!("cannot remove {name} in {}: {error}", directory.describe()))
        })?;
    }
    Log::open_sized(directory.clone(), log_file_bytes, Some(node), 0, &mut |_, _| Ok(()))?;
    let (next_chunk, next_segment) = (PartId::new(origin, 1).0, PartId::new(origin, 1).0);
    let first =
        proto::Manifest { node, origin: origin.into(), next_chunk, next_segment, ..Default::default() };
    write_sealed(&**directory, &manifest_name(1), FORMAT, &first.encode_to_vec())
}

/// Returns the number of the newest manifest; `None` if the directory is not initialized.
fn newest_manifest(directory: &dyn Directory, names: &[String]) -> Result<Option<u64>> {
    if let Some(newest) = names.iter().filter_map(|name| manifest_number(name)).max() {
        return Ok(Some(newest));
    }
    // The log is created first, so that a crash during initialization leaves an empty log and no manifest.
    let is_of_beginning = |name: &&String| {
        name.starts_with("log-") || name.strip_suffix(".new").and_then(manifest_number) == Some(1)
    };
    let is_log_empty =
        || Log::read(directory, 0, &mut |_, _| Ok(())).is_ok_and(|found| found == RecoveredLog::default());
    let has_log = names.iter().any(|name| name.starts_with("log-"));
    match names.iter().find(|name| !is_of_beginning(name)) {
        None if !has_log || is_log_empty() => Ok(None),
        Some(name) if !has_log && segment_number(name).is_none() => {
            let message = format!("{} is not a data directory: it has a file {name:?}", directory.describe());
            Err(Error::invalid(message).advise("name a directory that is empty, or does not exist yet"))
        }
        _ => Err(Error::corrupt(format!("the manifest of {} is missing", directory.describe()))
            .advise("restore the directory from a backup")),
    }
}

/// Writes the manifest `number` again if it has an earlier format, so that programs that know only that format refuse
/// the directory before they find records that they cannot read. Returns the number of the manifest in the newest
/// format.
fn renewed(directory: &dyn Directory, number: u64) -> Result<u64> {
    let (format, contents) = read_sealed_formats(directory, &manifest_name(number), FORMATS)?;
    if format == FORMAT {
        return Ok(number);
    }
    write_sealed(directory, &manifest_name(number + 1), FORMAT, &contents)?;
    Ok(number + 1)
}

fn read_manifest(directory: &dyn Directory, number: u64) -> Result<ReplayedState> {
    let name = manifest_name(number);
    let (_, manifest) = read_sealed_formats(directory, &name, FORMATS)?;
    ReplayedState::begin(&manifest).map_err(|error| Error {
        message: format!("{name} in {}: {}", directory.describe(), error.message),
        ..error
    })
}

fn in_record(directory: &dyn Directory, number: u64, error: Error) -> Error {
    let message = format!("record {number} of the log of {}: {}", directory.describe(), error.message);
    let kind = if error.kind == ErrorKind::Invalid { ErrorKind::Corrupt } else { error.kind };
    Error { message, kind, ..error }
}

/// Removes unfinished files, and files that nothing refers to. Best effort: the next start retries.
fn remove_leftovers(
    directory: &dyn Directory,
    names: &[String],
    manifest: u64,
    segments: &BTreeMap<u64, Arc<SegmentFile>>,
) {
    for name in names {
        let is_old_manifest = manifest_number(name).is_some_and(|number| number < manifest);
        let is_unused = segment_number(name).is_some_and(|number| !segments.contains_key(&number));
        if is_old_manifest || is_unused || name.ends_with(".new") {
            let _ = directory.remove(name);
        }
    }
}

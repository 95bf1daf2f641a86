//! Checkpoints: a manifest of the state up to one record, so that earlier records need not be replayed.
//!
//! A checkpoint proceeds in this order, and a crash between any two steps leaves a state that recovery can read:
//! 1. Chunks that are inline in records are written to a new segment, which is made durable.
//! 2. The new manifest is written durably. From here on recovery uses it.
//! 3. The old manifest, old log files and unused segments are removed.

use super::chunk_writer::ChunkWriter;
use super::compact::SparseSegments;
use super::locations::Location;
use super::prepare::{
    distinct_numbers, encoded, fields, group_bytes, key_bytes, tenant_key_bytes, tier_number,
};
use super::{Durable, proto};
use crate::changes::TableSize;
use crate::names::Names;
use crate::state::Loads;
use crate::tap::KnownProfile;
use crate::{Catalog, Current};
use bytes::Bytes;
use farpool_columns::Chunk;
use farpool_disk::write_sealed;
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result, SchemaName, TenantName, limits};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Format of the manifests that are written; `FORMATS` are those that can be read. Since format 2, merges are
/// recorded, and ids have an origin.
pub(super) const FORMAT: u32 = 2;
pub(super) const FORMATS: RangeInclusive<u32> = 1..=FORMAT;

/// Returns the file name of a manifest.
pub(super) fn manifest_name(number: u64) -> String {
    format!("manifest-{number:012}")
}

/// Returns the number of the manifest with this file name; `None` if it is not the name of a manifest.
pub(super) fn manifest_number(name: &str) -> Option<u64> {
    name.strip_prefix("manifest-")?.parse().ok()
}

impl Catalog {
    /// Queues a checkpoint if the log has grown enough since the latest one. Does not block.
    pub(crate) fn tidy(self: &Arc<Self>) {
        let Some(durable) = self.durable.get() else { return };
        let grown = durable.log.bytes_written().saturating_sub(durable.log_bytes.load(Ordering::Relaxed));
        if grown < self.log_bytes || durable.is_checkpoint_wanted.swap(true, Ordering::Relaxed) {
            return;
        }
        let catalog = Arc::downgrade(self);
        self.background.write(Box::new(move || {
            let Some(catalog) = catalog.upgrade() else { return };
            // The result is ignored: after a failure the checkpoint is retried when the log has grown by as much
            // again.
            let _ = catalog.checkpoint();
            if let Some(durable) = catalog.durable.get() {
                durable.write_hot_chunks();
            }
        }));
    }

    /// Writes all chunks that are stored in log records to a segment, and then a manifest of all durable changes.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// Errors of the disk; the previous manifest stays in use.
    pub fn checkpoint(self: &Arc<Self>) -> Result<()> {
        if self.durable.get().is_none() {
            return Ok(());
        }
        self.checkpoint_and(&SparseSegments::default(), |_| Ok(()))
    }

    /// Makes a checkpoint that also compacts the segments `sparse`, and then calls `then` with the number of its
    /// manifest. During the call the tables of the manifest are kept in memory, so that their segments exist, and no
    /// other checkpoint runs.
    ///
    /// # Errors
    /// Errors of [`Catalog::checkpoint`], and errors of `then`.
    pub(super) fn checkpoint_and<T>(
        self: &Arc<Self>,
        sparse: &SparseSegments,
        then: impl FnOnce(u64) -> Result<T>,
    ) -> Result<T> {
        let durable =
            self.durable.get().ok_or_else(|| Error::internal("a catalog in memory has no checkpoints"))?;
        let mut latest = durable.latest.lock();
        durable.log_bytes.store(durable.log.bytes_written(), Ordering::Relaxed);
        durable.is_checkpoint_wanted.store(false, Ordering::Relaxed);
        if durable.is_encrypted() && self.state.read().durable_records != latest.next_record {
            // Begins a new log file, so that the one with the records up to here can be removed below, and with it the
            // keys of dropped tables. If the disk is full, that is left to the next checkpoint.
            let _ = durable.log.turn_over();
        }
        let (names, under_way, loads, next_record, versions_made) = {
            let state = self.state.write();
            if state.durable_records == latest.next_record && sparse.is_empty() {
                let names = state.visible.clone();
                drop(state);
                let made = then(latest.manifest);
                drop(names);
                return made;
            }
            // From now on, new records must not refer to inline chunks of the records that are about to be removed.
            durable.floor.store(state.durable_records, Ordering::Relaxed);
            let (names, loads) = (state.visible.clone(), state.loads.clone());
            (names, state.under_way(), loads, state.durable_records, state.versions_made)
        };
        let mut writer = ChunkWriter::new(durable.clone());
        let tables = || names.tables.values().flat_map(BTreeMap::values);
        for current in tables().chain(&under_way) {
            chunks(current).try_for_each(|chunk| writer.write(chunk, current.key.as_ref()))?;
        }
        for current in tables() {
            match current.known_profile() {
                Some(KnownProfile::Gathered(profile)) => {
                    writer.write_profile(&profile, current.key.as_ref(), |file| !sparse.has(file))?;
                }
                // The profile is copied without being decoded.
                Some(KnownProfile::Stored(profile)) => sparse.rewrite_profile(&profile, &mut writer)?,
                None => {}
            }
        }
        latest.replaced.extend(sparse.files().cloned());
        sparse.rewrite(tables().chain(&under_way).flat_map(chunks), &mut writer)?;
        writer.finish()?;
        let mut manifest = durable.manifest(&names, &loads);
        (manifest.next_record, manifest.versions_made) = (next_record, versions_made);
        // Tables with records after the manifest. Such a record may refer to a chunk of an earlier record that no
        // table of the manifest has.
        let groups = under_way.iter().flat_map(|current| current.table.row_groups.iter());
        manifest.others = groups.map(|group| group_bytes(group, u64::MAX, durable)).collect();
        assert!(latest.next_record <= next_record, "checkpoints go forward");
        let number = latest.manifest + 1;
        write_sealed(&*durable.directory, &manifest_name(number), FORMAT, &manifest.encode_to_vec())?;
        tables().flat_map(chunks).for_each(|chunk| Location::of(chunk, &durable.next_chunk).is_in_manifest());
        // The result is ignored, because recovery removes leftover files.
        let _ = durable.directory.remove(&manifest_name(latest.manifest));
        (latest.manifest, latest.next_record) = (number, next_record);
        latest.replaced.clear();
        let made = then(number);
        durable.log.forget_before(next_record)?;
        durable.remove_unused_segments();
        made
    }
}

fn chunks(current: &Current) -> impl Iterator<Item = &Arc<Chunk>> {
    current.table.row_groups.iter().flat_map(|group| &group.chunks)
}

impl Current {
    /// Returns the profile of the settled rows if it is known and there are many rows; `None` otherwise, because the
    /// profile of few rows is cheap to recompute.
    fn known_profile(&self) -> Option<KnownProfile> {
        let are_many = self.rows_settled >= u64_from(limits::ROW_GROUP_ROWS);
        self.tap.as_ref().filter(|_| are_many)?.known()
    }
}

impl Durable {
    /// Returns the manifest of `names`. All their chunks must be in segments.
    pub(super) fn manifest(&self, names: &Names, loads: &BTreeMap<TenantName, Loads>) -> proto::Manifest {
        let mut manifest = proto::Manifest {
            node: self.node,
            origin: self.origin.into(),
            next_chunk: self.next_chunk.load(Ordering::Relaxed),
            next_segment: self.next_segment.load(Ordering::Relaxed),
            ..proto::Manifest::default()
        };
        for (tenant, tables) in &names.tables {
            for (name, current) in tables {
                let groups = current.table.row_groups.iter();
                let profile = current.known_profile().and_then(|profile| {
                    let location = Location::at(profile.location(), &self.next_chunk);
                    // The result is `None` for a profile that became known after the segment was written; the next
                    // checkpoint stores that profile.
                    Some(vec![location.segment(u64::MAX)?, location.number, current.rows_settled])
                });
                manifest.tables.push(encoded(&proto::Table {
                    tenant: tenant.as_str().to_string(),
                    name: name.encoded(),
                    version: current.version.0,
                    fields: fields(&current.table.schema),
                    groups: groups.map(|group| group_bytes(group, u64::MAX, self)).collect(),
                    profile: profile.unwrap_or_default(),
                    distinct: distinct_numbers(&TableSize::of(&current.table).distinct),
                    tier: tier_number(current.table.tier()),
                    is_pinned: current.is_pinned,
                    key: key_bytes(current.key.as_ref()),
                }));
            }
            let keys = tables.values().map(|current| tenant_key_bytes(current.key.as_ref()));
            let keys: BTreeSet<Bytes> = keys.filter(|key| !key.is_empty()).collect();
            manifest.tenant_keys.extend(keys);
        }
        for (tenant, views) in &names.views {
            manifest.views.extend(views.values().map(|view| {
                encoded(&proto::View {
                    tenant: tenant.as_str().to_string(),
                    name: view.name().encoded(),
                    text: view.view().text().to_string(),
                })
            }));
        }
        for (tenant, schemas) in &names.schemas {
            let schema = |name: &SchemaName| {
                encoded(&proto::Schema { tenant: tenant.to_string(), name: name.to_string() })
            };
            manifest.schemas.extend(schemas.iter().map(schema));
        }
        for (tenant, loads) in loads {
            let tenant = tenant.as_str().to_string();
            manifest.loads.extend(loads.latest.iter().map(|(id, made)| {
                encoded(&proto::Load {
                    tenant: tenant.clone(),
                    id: id.0.to_le_bytes().to_vec().into(),
                    version: made.version.0,
                    rows: made.rows,
                    bytes_plain: made.bytes_plain,
                    bytes_encoded: made.bytes_encoded,
                })
            }));
            if loads.forgotten > 0 {
                let forgotten = proto::Forgotten { tenant, version: loads.forgotten };
                manifest.forgotten.push(encoded(&forgotten));
            }
        }
        manifest
    }
}

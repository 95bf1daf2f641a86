//! Reads the values of tables into memory after a start, as long as nothing else needs that.
//!
//! A few chunks after the others, beside what queries ask for: these then find in memory what they used before the start,
//! most used first (`hot_chunks.rs`). Then, small tables first, come the others, if all of them fit; where they do not, what was
//! never used is left on disk. It ends when three quarters of the pool are in use. Pinned tables come before all, however full
//! the pool is.

use super::locations::Location;
use crate::{Catalog, Current};
use farpool_columns::{Chunk, Kept, Reader, RowGroup, fetch};
use farpool_model::{Result, TenantName};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// The part of the pool, in quarters, that may be in use.
const QUARTERS: u64 = 3;

/// Chunks that were used before and are read at once: as many as there are threads that read, twice.
const CHUNKS_AT_ONCE: usize = 8;

/// What is left to be read.
struct WarmUp {
    catalog: Weak<Catalog>,
    /// What is read at once.
    batches: VecDeque<Vec<Weak<Chunk>>>,
    /// Number of them, the first ones, that are of pinned tables.
    pinned: usize,
}

impl Catalog {
    /// Begins to read what is not in memory: what was used before the start, most used first; then, or where that is not
    /// known, small tables first, since more queries of the next minutes will find all that they need.
    pub fn preload(self: &Arc<Self>) {
        let Some(durable) = self.durable.get() else { return };
        let names = self.state.read().visible.clone();
        let tables = names
            .tables
            .iter()
            .flat_map(|(tenant, tables)| tables.values().map(move |current| (tenant, current)));
        let (pinned, mut others): (Vec<_>, Vec<_>) = tables.partition(|(_, current)| current.is_pinned);
        others.sort_by_key(|(_, current)| current.table.bytes_encoded);
        let mut batches: VecDeque<_> = pinned.iter().flat_map(|(_, current)| by_row_group(current)).collect();
        let pinned = batches.len();
        let used = durable.read_hot_chunks();
        let chunks = if used.is_empty() { HashMap::new() } else { by_number(&others) };
        let used = used.into_iter().filter_map(|number| chunks.get_key_value(&number)).collect::<Vec<_>>();
        used.iter().for_each(|(number, (tenant, _))| durable.reads.cache.expect(tenant, **number));
        // What is read at once is of one tenant.
        let of_tenants = used.chunk_by(|(_, (one, _)), (_, (other, _))| one == other);
        let at_once = of_tenants.flat_map(|some| some.chunks(CHUNKS_AT_ONCE));
        batches
            .extend(at_once.map(|some| some.iter().map(|(_, (_, chunk))| Arc::downgrade(chunk)).collect()));
        let bytes: u64 = others.iter().map(|(_, current)| current.table.bytes_encoded).sum();
        if used.is_empty() || bytes <= self.pool.usage().bytes_limit / 4 * QUARTERS {
            batches.extend(others.iter().flat_map(|(_, current)| by_row_group(current)));
        }
        WarmUp { catalog: Arc::downgrade(self), batches, pinned }.go_on();
    }
}

/// The chunks of each row group of a table.
fn by_row_group(current: &Current) -> impl Iterator<Item = Vec<Weak<Chunk>>> {
    let chunks = |group: &Arc<RowGroup>| group.chunks.iter().map(Arc::downgrade).collect();
    current.table.row_groups.iter().map(chunks)
}

/// The chunks of tables that are not in memory, with their tenants, by the number of their location.
fn by_number<'a>(tables: &[(&'a TenantName, &'a Current)]) -> HashMap<u64, (&'a TenantName, &'a Arc<Chunk>)> {
    let mut chunks = HashMap::new();
    for (tenant, current) in tables {
        let absent =
            current.table.row_groups.iter().flat_map(|group| &group.chunks).filter(|chunk| chunk.is_absent());
        chunks.extend(absent.filter_map(|chunk| Some((Location::existing(chunk)?.number, (*tenant, chunk)))));
    }
    chunks
}

impl WarmUp {
    /// Has the next chunks read that are not in memory.
    fn go_on(mut self) {
        loop {
            let Some(catalog) = self.catalog.upgrade() else { return };
            let usage = catalog.pool.usage();
            if catalog.durable.get().is_none_or(|durable| durable.is_closed())
                || self.pinned == 0 && usage.bytes_used > usage.bytes_limit / 4 * QUARTERS
            {
                return;
            }
            let Some(chunks) = self.batches.pop_front() else { return };
            self.pinned = self.pinned.saturating_sub(1);
            let chunks = chunks.iter().filter_map(Weak::upgrade);
            let absent: Vec<Arc<Chunk>> = chunks.filter(|chunk| chunk.is_absent()).collect();
            if !absent.is_empty() {
                return fetch(absent, Box::new(self));
            }
        }
    }
}

impl Reader for WarmUp {
    fn is_waiting(&self) -> bool {
        self.catalog.strong_count() > 0
    }

    fn arrived(self: Box<Self>, outcome: Result<Kept>) {
        // What cannot be read is told to whoever asks for it.
        drop(outcome);
        self.go_on();
    }
}

//! Warm-up: background reads of table values into memory after a start.
//!
//! A few chunks are read at a time, with lower priority than queries. Chunks that queries used before the last stop
//! come first, most used first (`hot_chunks.rs`). The others follow, small tables first, if all of them fit; otherwise
//! chunks that were never used stay on disk. Warm-up ends when three quarters of the pool are in use. Pinned tables
//! come before all others, and are read regardless of that limit.

use super::locations::Location;
use crate::{Catalog, Current};
use farpool_columns::{Chunk, HeldValues, RowGroup, ValueReader, fetch};
use farpool_model::{Result, TenantName};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// Maximum used fraction of the pool, in quarters, at which the warm-up continues.
const QUARTERS: u64 = 3;

/// Number of previously used chunks that are read at once: twice the number of threads that read.
const CHUNKS_AT_ONCE: usize = 8;

/// The column chunks that are still to be read.
struct Preloader {
    catalog: Weak<Catalog>,
    /// Batches of chunks that are read at once.
    batches: VecDeque<Vec<Weak<Chunk>>>,
    /// Number of leading batches of pinned tables.
    pinned: usize,
}

impl Catalog {
    /// Starts the warm-up, and returns at once. Order: chunks that were used before the last stop, most used first;
    /// then the others, small tables first, so that many queries soon find all their chunks in memory.
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
        // A batch has chunks of one tenant only.
        let of_tenants = used.chunk_by(|(_, (one, _)), (_, (other, _))| one == other);
        let at_once = of_tenants.flat_map(|some| some.chunks(CHUNKS_AT_ONCE));
        batches
            .extend(at_once.map(|some| some.iter().map(|(_, (_, chunk))| Arc::downgrade(chunk)).collect()));
        let bytes: u64 = others.iter().map(|(_, current)| current.table.bytes_encoded).sum();
        if used.is_empty() || bytes <= self.pool.usage().bytes_limit / 4 * QUARTERS {
            batches.extend(others.iter().flat_map(|(_, current)| by_row_group(current)));
        }
        Preloader { catalog: Arc::downgrade(self), batches, pinned }.go_on();
    }
}

/// Returns the chunks of each row group of a table.
fn by_row_group(current: &Current) -> impl Iterator<Item = Vec<Weak<Chunk>>> {
    let chunks = |group: &Arc<RowGroup>| group.chunks.iter().map(Arc::downgrade).collect();
    current.table.row_groups.iter().map(chunks)
}

/// Returns the chunks of tables that are not in memory, with their tenants, by chunk id.
fn by_number<'a>(tables: &[(&'a TenantName, &'a Current)]) -> HashMap<u64, (&'a TenantName, &'a Arc<Chunk>)> {
    let mut chunks = HashMap::new();
    for (tenant, current) in tables {
        let absent =
            current.table.row_groups.iter().flat_map(|group| &group.chunks).filter(|chunk| chunk.is_absent());
        chunks.extend(absent.filter_map(|chunk| Some((Location::existing(chunk)?.number, (*tenant, chunk)))));
    }
    chunks
}

impl Preloader {
    /// Starts reading the next batch of chunks that is not in memory.
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

impl ValueReader for Preloader {
    fn is_waiting(&self) -> bool {
        self.catalog.strong_count() > 0
    }

    fn arrived(self: Box<Self>, outcome: Result<HeldValues>) {
        // The error is ignored: a query that needs the chunk reads it again and reports the error.
        drop(outcome);
        self.go_on();
    }
}

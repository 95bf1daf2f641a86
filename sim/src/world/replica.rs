//! A second catalog that gets nothing but the records of the node's: at the end it must have the same tables.

use crate::checks::Checked;
use crate::rows::{Row, rows_behind};
use farpool_catalog::{Background, Catalog, Chore, HelperThreads};
use farpool_disk::{Directory, Records, Segment, SimulatedDirectory, segment_number};
use farpool_memory::{Pool, PoolConfig};
use farpool_model::{Result, TableName, TenantName, Version};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// Bytes of the replica's pool: it holds all tables of a simulation.
const POOL_BYTES: usize = 1 << 30;

/// Origin of the ids that the replica gives.
const ORIGIN: u16 = 2;

/// A catalog that follows that of the node.
pub(super) struct Replica {
    records: Records,
    /// Directory of the node, with the segments that its records name.
    of: Arc<SimulatedDirectory>,
    directory: Arc<SimulatedDirectory>,
    catalog: Arc<Catalog>,
    jobs: Arc<Jobs>,
    /// Number of the node's records that were applied.
    applied: u64,
}

/// Jobs of the replica's disk. Nothing else is done in the background.
#[derive(Default)]
struct Jobs(Mutex<VecDeque<Box<dyn FnOnce() + Send>>>);

impl Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jobs")
    }
}

impl Jobs {
    fn run(&self) {
        while let Some(job) = { self.0.lock().pop_front() } {
            job();
        }
    }
}

impl Background for Jobs {
    fn submit(&self, _: Chore) {}

    fn rows_came(&self) {}

    fn write(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.lock().push_back(job);
    }
}

/// Helper threads of the replica's catalog: none, so that work runs on the calling thread.
#[derive(Debug)]
struct NoHelpers;

impl HelperThreads for NoHelpers {
    fn threads_max(&self) -> usize {
        1
    }

    fn run(&self, _: usize, work: &(dyn Fn() + Sync)) -> Result<()> {
        work();
        Ok(())
    }
}

impl Replica {
    /// Creates a replica of a node that is about to start on an empty directory, and keeps its records in `records`.
    pub fn new(of: Arc<SimulatedDirectory>, records: Records) -> Checked<Replica> {
        let directory = SimulatedDirectory::new();
        let pool = Pool::new(PoolConfig { bytes_limit: POOL_BYTES }).map_err(|error| error.to_string())?;
        let jobs = Arc::<Jobs>::default();
        let catalog = Arc::new(Catalog::new(pool, Arc::new(NoHelpers), jobs.clone()));
        catalog.close_taps();
        catalog.open_of(directory.clone(), 2, ORIGIN).map_err(|error| error.to_string())?;
        Ok(Replica { records, of, directory, catalog, jobs, applied: 0 })
    }

    /// Applies the first `committed` records of the node.
    pub fn follow(&mut self, committed: u64) -> Checked {
        for number in self.applied..committed {
            self.copy_segments().map_err(|error| error.to_string())?;
            let record = self.records.get(number).ok_or("a committed record was never appended")?;
            let applied = self.catalog.apply_record(&record).and_then(|commit| commit.wait());
            applied.map_err(|error| format!("a replica cannot apply record {number}: {error}"))?;
            self.jobs.run();
        }
        self.applied = committed;
        Ok(())
    }

    /// Returns the version of a table, and its rows.
    pub fn rows(&self, tenant: &TenantName, name: &TableName) -> Checked<Option<(Version, Vec<Row>)>> {
        let Ok((version, table)) = self.catalog.get(tenant, name) else { return Ok(None) };
        let mut rows = Vec::new();
        for group in &table.row_groups {
            let filled = group.read_values().map_err(|error| error.to_string())?;
            let filled = filled.map_or_else(|| group.clone(), Arc::new);
            for row in rows_behind([&filled].into_iter(), 0)? {
                rows.push(row.ok_or("values of a replica cannot be read")?);
            }
        }
        Ok(Some((version, rows)))
    }

    fn copy_segments(&self) -> std::io::Result<()> {
        for name in &self.of.names()? {
            let Some(number) = segment_number(name) else { continue };
            // No record refers yet to a segment that is still being written.
            if self.directory.open(name).is_ok() || Segment::open(&*self.of, number).is_err() {
                continue;
            }
            let file = self.of.open(name)?;
            let mut contents = vec![0; usize::try_from(file.bytes()?).unwrap_or(0)];
            file.read_at(&mut contents, 0)?;
            let copy = self.directory.create(name)?;
            copy.write_at(&contents, 0)?;
            copy.sync()?;
        }
        self.directory.sync()
    }
}

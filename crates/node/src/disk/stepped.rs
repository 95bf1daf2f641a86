//! The disk of a node without threads for it, for simulations. Its owner decides when log records are written, when
//! segments become durable, and in which order reads complete, so that the same decisions give the same run.

use super::{DiskJobs, JobQueue};
use crate::Node;
use farpool_columns::Table;
use farpool_model::{Result, TableName, TenantName, Version, limits};
use std::sync::Arc;

/// The disk of a simulated node: its methods do the work of the threads for the disk when the simulation calls them.
#[derive(Debug)]
pub struct SteppedDisk {
    node: Arc<Node>,
    jobs: Arc<DiskJobs>,
}

impl SteppedDisk {
    /// Returns the disk of a node that was assembled with a data directory but without threads for it
    /// ([`crate::Environment::disk_threads`]); `None` for other nodes.
    pub fn of(node: &Arc<Node>) -> Option<SteppedDisk> {
        let jobs = node.shares().jobs().filter(|jobs| jobs.is_stepped)?.clone();
        Some(SteppedDisk { node: node.clone(), jobs })
    }

    /// Writes and syncs all waiting records of the log of tables; returns whether there were any.
    pub fn write_log(&self) -> bool {
        self.node.catalog().write_records()
    }

    /// Returns the number of records of the log that wait to be written.
    pub fn records_waiting(&self) -> u64 {
        self.node.catalog().records_waiting()
    }

    /// Returns the number of records that are committed.
    pub fn records_committed(&self) -> u64 {
        self.node.catalog().records_committed()
    }

    /// Executes the oldest write job; returns whether there was one.
    pub fn write(&self) -> bool {
        self.jobs.writes.do_one(0)
    }

    /// Returns the number of reads that have not ended.
    pub fn reads(&self) -> usize {
        self.jobs.reads.count()
    }

    /// Returns the number of reads in progress: the oldest ones, as many as there would be threads.
    pub fn reads_under_way(&self) -> usize {
        self.reads().min(limits::READERS)
    }

    /// Completes one read, by its index; returns whether there was one.
    pub fn read(&self, index: usize) -> bool {
        self.jobs.reads.do_one(index)
    }

    /// Returns the newest version of a table, which may not be durable yet and is not visible to readers until it is.
    pub fn newest(&self, tenant: &TenantName, table: &TableName) -> Option<(Version, Arc<Table>)> {
        self.node.catalog().get_newest(tenant, table).ok()
    }

    /// Closes the data directory, as a clean stop of the node does.
    ///
    /// # Errors
    /// Errors of the directory.
    pub fn close(&self) -> Result<()> {
        let closed = self.node.catalog().close();
        self.jobs.writes.stop();
        self.jobs.reads.stop();
        closed
    }
}

impl JobQueue {
    fn count(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Executes the waiting job at `index` in the queue; returns whether there was one.
    fn do_one(&self, index: usize) -> bool {
        let job = self.state.lock().waiting.remove(index);
        job.map(|job| job()).is_some()
    }
}

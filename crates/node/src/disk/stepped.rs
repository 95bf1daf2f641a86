//! The disk of a node that has no threads for it, for simulations: whoever owns it decides when records of the log are
//! written, when segments become durable, and which of the values come next that are being read, so that the same decisions
//! give the same run.

use super::{DiskJobs, Jobs};
use crate::Node;
use farpool_columns::Table;
use farpool_model::{Result, TableName, TenantName, Version, limits};
use std::sync::Arc;

/// See the file's comment.
#[derive(Debug)]
pub struct SteppedDisk {
    node: Arc<Node>,
    jobs: Arc<DiskJobs>,
}

impl SteppedDisk {
    /// The disk of a node that was assembled with a data directory and without threads for it
    /// ([`crate::Environment::disk_threads`]); `None` for others.
    pub fn of(node: &Arc<Node>) -> Option<SteppedDisk> {
        let jobs = node.shares().jobs().filter(|jobs| jobs.is_stepped)?.clone();
        Some(SteppedDisk { node: node.clone(), jobs })
    }

    /// Writes and syncs all records that wait; returns whether there were any.
    pub fn write_log(&self) -> bool {
        self.node.catalog().write_records()
    }

    /// Number of records that wait.
    pub fn records_waiting(&self) -> u64 {
        self.node.catalog().records_waiting()
    }

    /// Does the oldest of the jobs that write files; returns whether there was one.
    pub fn write(&self) -> bool {
        self.jobs.writes.do_one(0)
    }

    /// Number of reads that have not ended.
    pub fn reads(&self) -> usize {
        self.jobs.reads.count()
    }

    /// Number of them that are under way: the oldest, as many as there would be threads.
    pub fn reads_under_way(&self) -> usize {
        self.reads().min(limits::READERS)
    }

    /// Ends one of the reads, by its index among them; returns whether there was one.
    pub fn read(&self, index: usize) -> bool {
        self.jobs.reads.do_one(index)
    }

    /// The newest version of a table, which may not be durable, and is read by nobody until it is.
    pub fn newest(&self, tenant: &TenantName, table: &TableName) -> Option<(Version, Arc<Table>)> {
        self.node.catalog().get_newest(tenant, table).ok()
    }

    /// Closes the data directory, as a clean stop of the node does.
    ///
    /// # Errors
    /// Those of the directory.
    pub fn close(&self) -> Result<()> {
        let closed = self.node.catalog().close();
        self.jobs.writes.stop();
        self.jobs.reads.stop();
        closed
    }
}

impl Jobs {
    fn count(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Does one of the jobs that wait.
    fn do_one(&self, index: usize) -> bool {
        let job = self.state.lock().waiting.remove(index);
        job.map(|job| job()).is_some()
    }
}

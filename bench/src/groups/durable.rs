//! A node in this process over a data directory, with or without shared scans.

use super::stage::connect;
use crate::node::Served;
use anyhow::Result;
use farpool::model::TenantName;
use farpool::node::{LocalDirectory, Node, NodeConfig, unlock};
use farpool::{EmbeddedPool, RemotePool, WorkMemory};
use std::path::Path;
use std::sync::Arc;

/// Pool size in bytes for cases in which all data fits in memory.
pub const ROOM_BYTES: usize = 4 << 30;

/// Minimum pool size in bytes. Reason: half of a small table would not have room for the row groups that clients read
/// concurrently.
const POOL_BYTES_MIN: usize = 8 << 20;

/// A node over a data directory that listens on a loopback port until it is dropped.
pub struct DurableNode(Served);

impl DurableNode {
    /// Starts a node with `threads` workers over the data directory `folder`. If `shares`, concurrent scans of one
    /// table share the row groups that they read from disk and the results of equal filters.
    pub fn open(folder: &Path, pool_bytes: usize, shares: bool, threads: usize) -> Result<DurableNode> {
        let node = Node::start(NodeConfig {
            memory_bytes: pool_bytes,
            work: WorkMemory::new(farpool::work_bytes_default()),
            workers: threads,
            data: Some(unlock(LocalDirectory::open(folder)?, None, None)?),
            share_scans: shares,
            ..NodeConfig::default()
        })?;
        Ok(DurableNode(Served::new(node, 1)?))
    }

    /// Connects a client over loopback TCP.
    pub async fn connect(&self) -> Result<Arc<RemotePool>> {
        connect(&self.0.url).await
    }

    /// Returns the node's pool without a connection.
    pub fn embedded(&self) -> Arc<EmbeddedPool> {
        EmbeddedPool::over(self.0.node().clone(), TenantName::default())
    }
}

/// Returns the pool size in bytes for half of the data, and at least [`POOL_BYTES_MIN`].
pub fn half_of(data_bytes: u64) -> Result<usize> {
    Ok(usize::try_from(data_bytes / 2)?.max(POOL_BYTES_MIN))
}

//! A node of this process over a data directory, with and without sharing among its clients.

use crate::node::Served;
use anyhow::Result;
use farpool::model::TenantName;
use farpool::node::{LocalDirectory, Node, NodeConfig, unlock};
use farpool::{ClientOptions, EmbeddedPool, RemotePool, WorkMemory};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a pool that holds all data.
pub const ROOM_BYTES: usize = 4 << 30;

/// Minimal bytes of a pool, for small tables: a few row groups that clients read concurrently.
const POOL_BYTES_MIN: usize = 8 << 20;

/// A node that listens on loopback.
pub struct DurableNode(Served);

impl DurableNode {
    /// Opens the data directory in `folder`; `shares` tells whether programs that read the same table share the row
    /// groups that they read.
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

    /// Connects a client.
    pub async fn connect(&self) -> Result<Arc<RemotePool>> {
        Ok(Arc::new(RemotePool::connect(&self.0.url.parse()?, ClientOptions::default()).await?))
    }

    /// Returns the node's pool without a connection.
    pub fn embedded(&self) -> Arc<EmbeddedPool> {
        EmbeddedPool::over(self.0.node().clone(), TenantName::default())
    }
}

/// Returns the bytes of a pool that holds half of the data.
pub fn half_of(data_bytes: u64) -> Result<usize> {
    Ok(usize::try_from(data_bytes / 2)?.max(POOL_BYTES_MIN))
}

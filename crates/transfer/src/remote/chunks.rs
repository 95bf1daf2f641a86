//! Chunks of a table version as the pool has them, for a client that keeps some.

use super::connection::Channel;
use super::query::unexpected;
use super::{Kept, RemotePool, start_kept};
use crate::{Handle, Pool, link};
use farpool_model::{Error, Receipt, Result, cast};
use farpool_wire::{ChunkImage, Grants, Outlines, Request, Response};
use std::time::Duration;

/// Number of requests, the fastest of which determines the latency.
const PROBES: usize = 5;

/// Chunks on their way. Dropping it cancels the rest.
pub struct ChunkStream {
    channel: Channel,
    grants: Grants,
}

impl RemotePool {
    /// Describes chunks of the table version that a handle holds: those of `columns`, in ascending order, of as many
    /// row groups from `first` on as come at once; none, if the list of row groups has the number `known`.
    ///
    /// # Errors
    /// `Invalid` for a table of which clients keep no chunks; `Stale` when the handle is lost.
    pub async fn outlines(
        &self,
        handle: &Handle,
        columns: &[usize],
        first: usize,
        known: u64,
    ) -> Result<Outlines> {
        let kept = kept(handle)?;
        let (columns, first) = (numbers(columns), cast::u32_checked(first));
        let request = Request::Outlines { handle: kept.stream, columns, first, known };
        let mut channel = kept.open(&request, "it described a table's chunks")?;
        match Response::decode(&channel.receive().await?, None)? {
            Response::Outlines(outlines) => Ok(outlines),
            Response::Error(error) => Err(error),
            other => Err(unexpected(other.kind())),
        }
    }

    /// Asks for the values of chunks: those of `columns` of `row_groups`, both in ascending order.
    ///
    /// # Errors
    /// As [`RemotePool::outlines`].
    pub async fn fetch(
        &self,
        handle: &Handle,
        columns: &[usize],
        row_groups: &[usize],
    ) -> Result<ChunkStream> {
        let kept = kept(handle)?;
        let (columns, row_groups) = (numbers(columns), numbers(row_groups));
        let request = Request::Fetch { handle: kept.stream, columns, row_groups };
        Ok(ChunkStream { channel: start_kept(kept, &request).await?, grants: Grants::new() })
    }

    /// Measures the latency: the shortest time from a small request to its answer, among several.
    ///
    /// # Errors
    /// `Unavailable` when the node does not answer.
    pub async fn latency(&self) -> Result<Duration> {
        let mut least = Duration::MAX;
        for _ in 0..PROBES {
            let start = link::now();
            self.status().await?;
            least = least.min(start.elapsed());
        }
        Ok(least)
    }

    /// Identifies the process of the node that keeps the handle's program.
    ///
    /// # Errors
    /// `Internal` for a handle of another pool.
    pub fn instance(&self, handle: &Handle) -> Result<u64> {
        Ok(kept(handle)?.connection.node().instance)
    }
}

impl ChunkStream {
    /// Returns the next chunk, in any order; or the receipt, after the last.
    ///
    /// # Errors
    /// Errors of the node; `Unavailable` when it goes away.
    pub async fn next(&mut self) -> Result<std::result::Result<ChunkImage, Receipt>> {
        let message = self.channel.receive().await?;
        match Response::decode(&message, None)? {
            Response::Chunk(image) => {
                if let Some(bytes) = self.grants.taken(message.bytes_on_wire) {
                    self.channel.grant(bytes)?;
                }
                Ok(Ok(image))
            }
            Response::Receipt(receipt) => {
                Ok(Err(Receipt { bytes_on_wire: self.channel.bytes_on_wire(), ..receipt }))
            }
            Response::Error(error) => Err(error),
            other => Err(unexpected(other.kind())),
        }
    }
}

fn kept(handle: &Handle) -> Result<&Kept> {
    handle.kept::<Kept>().ok_or_else(|| Error::internal("a handle of another pool"))
}

fn numbers(places: &[usize]) -> Vec<u32> {
    places.iter().map(|place| cast::u32_checked(*place)).collect()
}

//! Reads column chunks (the values of one column in one row group) of a table version in the pool's encoding, for a
//! client that caches some of them.

use super::connection::Channel;
use super::query::unexpected;
use super::{Kept, RemotePool, start_kept};
use crate::{Handle, Pool, link};
use farpool_model::{Error, Receipt, Result, cast};
use farpool_wire::{ChunkImage, Grants, Outlines, Request, Response};
use std::time::Duration;

/// Number of requests from which [`RemotePool::latency`] takes the fastest, because others may have been delayed.
const PROBES: usize = 5;

/// A stream of chunks that the node is sending. Dropping it cancels the rest.
pub struct ChunkStream {
    channel: Channel,
    grants: Grants,
}

impl RemotePool {
    /// Returns descriptions of chunks in the table version that `handle` holds: the chunks of `columns` (ascending) in
    /// as many row groups from `first` on as fit one message. If `known` is the node's id of the version's list of row
    /// groups, the client knows them all, and no chunks are described.
    ///
    /// # Errors
    /// `Invalid` for a table of which clients cache no chunks; `Stale` if the node has lost the handle.
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

    /// Requests the values of chunks: those of `columns` in `row_groups`, both in ascending order. Returns once the
    /// node has accepted the request; the chunks come through the returned stream.
    ///
    /// # Errors
    /// Errors of [`RemotePool::outlines`].
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

    /// Measures the round-trip time: returns the shortest time from a small request to its answer, among several.
    ///
    /// # Errors
    /// `Unavailable` if the node does not answer.
    pub async fn latency(&self) -> Result<Duration> {
        let mut least = Duration::MAX;
        for _ in 0..PROBES {
            let start = link::now();
            self.status().await?;
            least = least.min(start.elapsed());
        }
        Ok(least)
    }

    /// Returns the id of the node's process that keeps the handle's program; a restarted node has another.
    ///
    /// # Errors
    /// `Internal` for a handle of another pool.
    pub fn instance(&self, handle: &Handle) -> Result<u64> {
        Ok(kept(handle)?.connection.node().instance)
    }
}

impl ChunkStream {
    /// Waits for and returns the next chunk (they come in any order); after the last one, returns the receipt
    /// (execution statistics).
    ///
    /// # Errors
    /// Errors of the node; `Unavailable` if it goes away.
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

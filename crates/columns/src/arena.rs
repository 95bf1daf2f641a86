//! Places encoded chunks in the memory pool. A chunk of at least [`OWN_BYTES_MIN`] gets its own allocation; smaller
//! chunks of one row group share an allocation.
//!
//! The tables of a tenant share the pool's pages, because a row group of a narrow table fills only a small part of a
//! page, and one of a small append almost nothing. An allocation is freed when its last chunk is dropped.

use crate::chunk::{Chunk, is_large};
use arrow_buffer::Buffer;
use bytes::Bytes;
use farpool_cipher::MemoryCipher;
use farpool_memory::{Pool, Tenure};
use farpool_model::cast::u64_from;
use farpool_model::{Result, TenantName};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Alignment of every buffer: a cache line, as Arrow recommends.
pub(crate) const ALIGNMENT: usize = 64;

/// Minimum size of a chunk, in bytes, for an allocation of its own. Only such a chunk can be evicted by itself.
pub(crate) const OWN_BYTES_MIN: usize = 8 << 10;

/// Access to the pool on behalf of one tenant. Several threads may place chunks at once.
#[derive(Debug)]
pub(crate) struct Arena {
    pool: Arc<Pool>,
    tenant: TenantName,
    /// Cipher with which chunks are encrypted; `None` for tables that are not encrypted in memory.
    cipher: Option<Arc<MemoryCipher>>,
    /// Bytes of all chunks that were placed.
    bytes_placed: AtomicU64,
}

impl Arena {
    pub fn new(pool: Arc<Pool>, tenant: TenantName) -> Self {
        Arena { pool, tenant, cipher: None, bytes_placed: AtomicU64::new(0) }
    }

    /// Returns an arena that encrypts the chunks it places.
    pub fn encrypting(&self, cipher: Option<Arc<MemoryCipher>>) -> Self {
        Arena { cipher, ..Arena::new(self.pool.clone(), self.tenant.clone()) }
    }

    pub fn cipher(&self) -> Option<&Arc<MemoryCipher>> {
        self.cipher.as_ref()
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub fn tenant(&self) -> &TenantName {
        &self.tenant
    }

    /// Returns the bytes of all chunks that were placed so far, including those that no table has yet.
    pub fn bytes_placed(&self) -> u64 {
        self.bytes_placed.load(Ordering::Relaxed)
    }

    /// Encrypts the chunks that are not encrypted yet, if the arena has a cipher; otherwise returns them unchanged.
    ///
    /// # Errors
    /// `Corrupt` if the values of a chunk are lost.
    pub fn encrypted(&self, chunks: Vec<Chunk>) -> Result<Vec<Chunk>> {
        let Some(cipher) = &self.cipher else { return Ok(chunks) };
        let encrypt = |chunk: Chunk| if chunk.is_encrypted() { Ok(chunk) } else { chunk.encrypted(cipher) };
        chunks.into_iter().map(encrypt).collect()
    }

    /// Moves the chunks' buffers to the pool, encrypted if the arena has a cipher.
    ///
    /// # Errors
    /// `OverLimit` when the pool or the tenant's quota has not enough memory left; as [`Arena::encrypted`].
    pub fn place(&self, chunks: Vec<Chunk>) -> Result<Vec<Arc<Chunk>>> {
        let chunks = self.encrypted(chunks)?;
        let rows = chunks.first().map_or(0, Chunk::rows);
        let may_leave = self.pool.reclaims() && is_large(rows, chunks.iter().map(Chunk::bytes_plain).sum());
        let tenure = if may_leave { Tenure::Passing } else { Tenure::Staying };
        let (large, small): (Vec<_>, Vec<_>) =
            chunks.into_iter().enumerate().partition(|(_, chunk)| chunk.bytes_encoded() >= OWN_BYTES_MIN);
        let (places, small): (Vec<usize>, Vec<Chunk>) = small.into_iter().unzip();
        let mut placed: Vec<(usize, Arc<Chunk>)> =
            places.into_iter().zip(self.place_together(small, Tenure::Staying)?).collect();
        for (place, chunk) in large {
            let chunk = if may_leave { chunk.passing() } else { chunk };
            placed.extend(self.place_together(vec![chunk], tenure)?.into_iter().map(|chunk| (place, chunk)));
        }
        placed.sort_unstable_by_key(|(place, _)| *place);
        Ok(placed.into_iter().map(|(_, chunk)| chunk).collect())
    }

    pub fn place_together(&self, chunks: Vec<Chunk>, tenure: Tenure) -> Result<Vec<Arc<Chunk>>> {
        let mut placer = Placer::default();
        let chunks: Vec<Chunk> =
            chunks.into_iter().map(|chunk| chunk.map_buffers(&mut |buffer| placer.add(buffer))).collect();
        if placer.bytes == 0 {
            return Ok(chunks.into_iter().map(Arc::new).collect());
        }
        let mut extent = self.pool.allocate_piece(&self.tenant, placer.bytes, tenure)?;
        let target = extent.as_mut_slice();
        for (start, buffer) in &placer.buffers {
            target[*start..*start + buffer.len()].copy_from_slice(buffer);
        }
        let lease = extent.freeze(placer.bytes);
        self.bytes_placed.fetch_add(u64_from(placer.bytes), Ordering::Relaxed);
        let mut starts = placer.buffers.iter().map(|(start, _)| *start);
        let mut leased = |buffer: &Buffer| {
            if buffer.is_empty() {
                return Buffer::default();
            }
            let start = starts.next().expect("buffers are visited in the same order");
            Buffer::from(Bytes::from_owner(lease.slice(start..start + buffer.len())))
        };
        Ok(chunks.into_iter().map(|chunk| Arc::new(chunk.map_buffers(&mut leased))).collect())
    }

    /// Allocates pool memory, lets `fill` write it, and returns the memory with the result of `fill`.
    ///
    /// # Errors
    /// `OverLimit` when the pool or the tenant's quota has not enough memory left; errors of `fill`.
    pub fn read<T>(
        &self,
        bytes: usize,
        tenure: Tenure,
        fill: impl FnOnce(&mut [u8]) -> Result<T>,
    ) -> Result<(Buffer, T)> {
        if bytes == 0 {
            return Ok((Buffer::default(), fill(&mut [])?));
        }
        let mut extent = self.pool.allocate_piece(&self.tenant, bytes, tenure)?;
        let filled = fill(&mut extent.as_mut_slice()[..bytes])?;
        let lease = extent.freeze(bytes);
        Ok((Buffer::from(Bytes::from_owner(lease.slice(0..bytes))), filled))
    }

    /// Copies `pieces` to the pool.
    ///
    /// # Errors
    /// `OverLimit` when the pool or the tenant's quota has not enough memory left.
    pub fn keep(&self, pieces: &[Vec<u8>]) -> Result<Vec<Bytes>> {
        let bytes = pieces.iter().map(Vec::len).sum();
        if bytes == 0 {
            return Ok(vec![Bytes::new(); pieces.len()]);
        }
        let mut extent = self.pool.allocate_piece(&self.tenant, bytes, Tenure::Staying)?;
        let target = extent.as_mut_slice();
        let mut ends = Vec::with_capacity(pieces.len());
        let mut end = 0;
        for piece in pieces {
            target[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
            ends.push(end);
        }
        let lease = extent.freeze(bytes);
        let slice = |(piece, end): (&Vec<u8>, usize)| Bytes::from_owner(lease.slice(end - piece.len()..end));
        Ok(pieces.iter().zip(ends).map(slice).collect())
    }
}

/// Computes the offsets of consecutive buffers.
#[derive(Default)]
struct Placer {
    buffers: Vec<(usize, Buffer)>,
    bytes: usize,
}

impl Placer {
    fn add(&mut self, buffer: &Buffer) -> Buffer {
        if !buffer.is_empty() {
            self.buffers.push((self.bytes, buffer.clone()));
            self.bytes += buffer.len().next_multiple_of(ALIGNMENT);
        }
        buffer.clone()
    }
}

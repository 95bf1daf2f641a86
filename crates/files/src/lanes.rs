//! Column chunks of a remote Parquet file: byte ranges that are fetched in pieces, in parallel, before they are read.
//!
//! If the column chunks of a row group are small together, all are requested at once, and adjacent ones in one request.
//! Otherwise each is a *lane*: the piece that is read and the next one are in memory, because a reader reads all
//! columns in parallel.
//!
//! Invariant: a row group holds at most about twice [`GROUP_BYTES`], and half a megabyte per column if it has very many
//! columns.

use super::remote::{Piece, Remoted};
use bytes::{Bytes, BytesMut};
use farpool_model::cast::{u64_from, usize_saturating};
use parquet::errors::Result;
use parquet::file::reader::{ChunkReader, Length};
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum bytes of the column chunks of a row group that are requested at once. For larger row groups, the bytes of
/// all pieces are derived from it.
const GROUP_BYTES: u64 = 32 << 20;

/// Minimum bytes of a piece (the part of a column chunk that one request fetches); [`PIECE_BYTES_MAX`] is the maximum.
const PIECE_BYTES_MIN: u64 = 256 << 10;
const PIECE_BYTES_MAX: u64 = 8 << 20;

/// Maximum bytes between two column chunks that are fetched with them, because a second request would cost more.
const GAP_BYTES: u64 = 64 << 10;

/// Ranges of a remote file.
#[derive(Clone, Debug)]
pub(super) struct Lanes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    of: Arc<Remoted>,
    /// Pieces, ordered by offset.
    pieces: Vec<Piece>,
    /// For each piece whether the next one continues it without a gap.
    goes_on: Vec<bool>,
    is_at_once: bool,
    held: u64,
}

impl Lanes {
    /// Creates the ranges of a row group that is read completely, and requests as many as fit.
    pub(super) fn of_group(of: &Arc<Remoted>, ranges: Vec<Range<u64>>) -> Self {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let lanes = match bytes <= GROUP_BYTES {
            true => Lanes::new(of, &joined(ranges), PIECE_BYTES_MAX, true),
            false => {
                let piece = GROUP_BYTES / u64_from(ranges.len()).max(1);
                Lanes::new(of, &ranges, piece.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX), false)
            }
        };
        for (i, piece) in lanes.0.pieces.iter().enumerate() {
            if lanes.0.is_at_once || !lanes.0.continues(i) {
                piece.ask(of);
            }
        }
        lanes
    }

    /// Creates ranges of which perhaps only the beginning is read, and requests the first pieces of the first `first`
    /// ranges.
    pub(super) fn of_look(of: &Arc<Remoted>, ranges: &[Range<u64>], first: usize) -> Self {
        let lanes = Lanes::new(of, ranges, PIECE_BYTES_MIN, false);
        for range in &ranges[..first.min(ranges.len())] {
            if let Some(i) = lanes.0.piece_at(range.start) {
                lanes.0.pieces[i].ask(of);
            }
        }
        lanes
    }

    fn new(of: &Arc<Remoted>, ranges: &[Range<u64>], piece_bytes: u64, is_at_once: bool) -> Self {
        // A corrupted footer may state ranges behind the end of the file.
        let within = |range: &Range<u64>| range.start..range.end.min(of.bytes());
        let mut ranges: Vec<_> = ranges.iter().map(within).filter(|range| !range.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        let (mut pieces, mut goes_on) = (Vec::new(), Vec::new());
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                let end = (start + piece_bytes).min(range.end);
                pieces.push(Piece::new(start..end));
                goes_on.push(end < range.end);
                start = end;
            }
        }
        let bytes = pieces.iter().map(|piece| piece.range.end - piece.range.start).sum::<u64>();
        let held = bytes.min(2 * GROUP_BYTES);
        of.held.fetch_add(held, Ordering::Relaxed);
        Lanes(Arc::new(Inner { of: of.clone(), pieces, goes_on, is_at_once, held }))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

impl Inner {
    /// Returns the index of the piece that has the byte at offset `at`; `None` if no piece has it.
    fn piece_at(&self, at: u64) -> Option<usize> {
        let behind = self.pieces.partition_point(|piece| piece.range.start <= at);
        let i = behind.checked_sub(1)?;
        self.pieces[i].range.contains(&at).then_some(i)
    }

    /// Returns whether the piece with index `i` continues the piece before it without a gap.
    fn continues(&self, i: usize) -> bool {
        i.checked_sub(1).is_some_and(|before| self.goes_on[before])
    }

    /// Returns the bytes from offset `at` on that are in one piece; if there is no piece, reads up to `wanted` bytes.
    fn bytes_at(&self, at: u64, wanted: u64) -> io::Result<Bytes> {
        let Some(i) = self.piece_at(at) else {
            let next = self.pieces.partition_point(|piece| piece.range.start <= at);
            let end = self.pieces.get(next).map_or(self.of.bytes(), |piece| piece.range.start);
            let end = end.min(at.saturating_add(wanted));
            return if at < end { self.of.read(at..end) } else { Ok(Bytes::new()) };
        };
        if !self.is_at_once {
            if self.goes_on[i] {
                self.pieces[i + 1].ask(&self.of);
            }
            // Pages are read in sequence: a piece two positions back is not read again.
            if i >= 2 && self.continues(i) && self.continues(i - 1) {
                self.pieces[i - 2].release();
            }
        }
        let bytes = self.pieces[i].get(&self.of)?;
        Ok(bytes.slice(usize_saturating(at - self.pieces[i].range.start)..))
    }
}

/// Joins ranges with no or small gaps between them.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_BYTES) => {
                last.end = last.end.max(range.end)
            }
            _ => joined.push(range),
        }
    }
    joined
}

impl Length for Lanes {
    fn len(&self) -> u64 {
        self.0.of.bytes()
    }
}

impl ChunkReader for Lanes {
    type T = BufReader<LaneReader>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::with_capacity(512, LaneReader { of: self.0.clone(), at: start, rest: Bytes::new() }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let first = self.0.bytes_at(start, u64_from(length))?;
        if first.len() >= length {
            return Ok(first.slice(..length));
        }
        let mut all = BytesMut::with_capacity(length);
        all.extend_from_slice(&first);
        while all.len() < length {
            let more = self.0.bytes_at(start + u64_from(all.len()), u64_from(length - all.len()))?;
            if more.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            all.extend_from_slice(&more[..more.len().min(length - all.len())]);
        }
        Ok(all.freeze())
    }
}

/// Reads a few bytes from an offset on, such as a page header.
#[derive(Debug)]
pub(super) struct LaneReader {
    of: Arc<Inner>,
    at: u64,
    rest: Bytes,
}

impl Read for LaneReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.of.bytes_at(self.at, PIECE_BYTES_MIN)?;
        }
        let count = self.rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.rest.split_to(count));
        self.at += u64_from(count);
        Ok(count)
    }
}

/// Reads the footer of a remote file from the file's end.
#[derive(Debug)]
pub(super) struct Tail<'a>(pub &'a Remoted);

impl Length for Tail<'_> {
    fn len(&self) -> u64 {
        self.0.bytes()
    }
}

impl ChunkReader for Tail<'_> {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let length = usize_saturating(self.0.bytes().saturating_sub(start));
        Ok(bytes::Buf::reader(self.get_bytes(start, length)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let (from, tail) = self.0.tail()?;
        let end = start.saturating_add(u64_from(length));
        if end > self.0.bytes() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if start < from {
            return Ok(self.0.read(start..end)?);
        }
        let start = usize_saturating(start - from);
        Ok(tail.slice(start..start + length))
    }
}

#[cfg(test)]
mod tests {
    use super::super::remote::tests::Counted;
    use super::*;

    fn bytes(count: u32) -> Vec<u8> {
        (0..count).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn pages_come_whole_from_wherever_they_lie() {
        let all = bytes(50 << 20);
        let ranges = [100..5_000, 5_000..9_000, (1 << 20)..(40 << 20), (41 << 20)..(49 << 20)];
        for few in [1, 2, 4] {
            let file = Counted::new(all.clone());
            let of = Remoted::new(file.clone(), Arc::default());
            let lanes = Lanes::of_group(&of, ranges[..few].to_vec());
            for range in &ranges[..few] {
                let mut at = range.start;
                while at < range.end {
                    let length = (range.end - at).min(1_200_000) as usize;
                    let mut head = [0; 10];
                    lanes.get_read(at).unwrap().read_exact(&mut head).unwrap();
                    assert!(head == all[at as usize..][..10]);
                    assert!(lanes.get_bytes(at, length).unwrap() == all[at as usize..][..length]);
                    at += length as u64;
                }
            }
            let wanted: u64 = ranges[..few].iter().map(|range| range.end - range.start).sum();
            assert_eq!(file.asked.load(Ordering::Relaxed), wanted, "each byte once");
            assert!(lanes.get_bytes(49 << 20, 100).unwrap() == all[49 << 20..][..100], "of no lane");
            assert!(lanes.get_bytes((50 << 20) - 5, 10).is_err(), "behind the end");
            drop(lanes);
            assert_eq!(of.held.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn neighbours_are_one_request() {
        let file = Counted::new(bytes(1 << 20));
        let of = Remoted::new(file.clone(), Arc::default());
        Lanes::of_group(&of, vec![4..1000, 1000..2000, 500_000..500_100]);
        assert_eq!(file.requests.load(Ordering::Relaxed), 2);
    }
}

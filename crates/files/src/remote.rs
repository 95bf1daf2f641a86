//! Random-access reads of files on a network: the traits that the caller of this crate implements ([`Remote`],
//! [`Remotes`]), and readers that request blocks in advance.
//!
//! Invariants: only bytes near those that are read are requested: the beginning or the end of a file to learn its
//! columns, and blocks that grow as reading proceeds. A file that is read from beginning to end takes at most
//! [`BLOCKS_AHEAD`] + 1 blocks of [`BLOCK_BYTES_MAX`] of memory.

use bytes::Bytes;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, Result};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A file on a network.
pub trait Remote: fmt::Debug + Send + Sync {
    /// Returns the size in bytes.
    fn bytes(&self) -> u64;

    /// Returns a text that differs after the file was changed, such as its entity tag.
    fn stamp(&self) -> String;

    /// Starts reading `range`, which is within the file. Does not block.
    fn fetch(&self, range: Range<u64>) -> Fetch;
}

/// A file, with its URL without secrets, by which errors refer to it.
#[derive(Clone, Debug)]
pub struct RemoteFile {
    /// The URL of the file, without secrets.
    pub path: PathBuf,
    /// The file, for reading.
    pub file: Arc<dyn Remote>,
}

/// Opens files by URL. The methods block.
pub trait Remotes: Send + Sync {
    /// Returns the file with this URL.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; other errors describe the problem with the location, the access rights or
    /// the connection.
    fn file(&self, url: &str) -> Result<RemoteFile>;

    /// Returns the files whose URL begins with `prefix`, which ends with a slash: with `is_deep` all of them, otherwise
    /// only those without another slash after `prefix`.
    ///
    /// # Errors
    /// As [`Remotes::file`]; `Invalid` if files cannot be listed.
    fn list(&self, prefix: &str, is_deep: bool) -> Result<Vec<RemoteFile>>;
}

/// Requested bytes that may not have arrived yet. Dropping this cancels the request.
pub struct Fetch(Box<dyn FnOnce() -> Result<Bytes> + Send>);

impl Fetch {
    /// Creates a fetch. `wait` must block until the bytes have arrived, and return them.
    pub fn new(wait: impl FnOnce() -> Result<Bytes> + Send + 'static) -> Self {
        Fetch(Box::new(wait))
    }

    /// Blocks until the bytes have arrived, and returns them.
    ///
    /// # Errors
    /// Errors of the network.
    pub fn wait(self) -> Result<Bytes> {
        (self.0)()
    }
}

impl fmt::Debug for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetch")
    }
}

/// Bytes at the beginning of a file that are read first if the format has no footer. The format and column types are
/// guessed from them.
const HEAD_BYTES: u64 = 256 << 10;

/// Bytes at the end of a file that are read first if the format has a footer, such as Parquet. Most footers are
/// smaller.
const TAIL_BYTES: u64 = 64 << 10;

/// Bytes of the first block that is requested at an offset, and of the largest block; each block is twice as long as
/// the one before. Reason: object stores take as long for the first byte as for the next few hundred thousand.
const BLOCK_BYTES_FIRST: u64 = 256 << 10;
const BLOCK_BYTES_MAX: u64 = 4 << 20;

/// Number of blocks that are requested in advance after more than [`LOOK_BYTES`] were read. Readers that need only the
/// first rows stop before.
const BLOCKS_AHEAD: usize = 4;
const LOOK_BYTES: u64 = 1 << 20;

/// A remote file. Its beginning or end is kept in memory while the file is being opened.
#[derive(Debug)]
pub(super) struct Remoted {
    file: Arc<dyn Remote>,
    head: Piece,
    tail: Piece,
    /// The first network error, kept so that it can be reported in place of the reader's error: the format readers
    /// (Parquet, Arrow IPC, …) reduce an I/O error to a message, or report it as corruption.
    failure: OnceLock<Error>,
    /// Bytes of row groups, of all files of a source, that are in memory or requested.
    pub held: Arc<AtomicU64>,
}

impl Remoted {
    pub(super) fn new(file: Arc<dyn Remote>, held: Arc<AtomicU64>) -> Arc<Self> {
        let bytes = file.bytes();
        let (head, tail) = (0..bytes.min(HEAD_BYTES), bytes.saturating_sub(TAIL_BYTES)..bytes);
        let (head, tail) = (Piece::new(head), Piece::new(tail));
        Arc::new(Remoted { file, head, tail, failure: OnceLock::new(), held })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    pub(super) fn stamp(&self) -> String {
        self.file.stamp()
    }

    /// Returns the first network error; `None` if there was none.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Requests the end of a file with a footer, or the beginning of another file. Does not block.
    pub(super) fn ask_early(&self, has_footer: bool) {
        let piece = if has_footer { &self.tail } else { &self.head };
        if !piece.range.is_empty() {
            piece.ask(self);
        }
    }

    /// Drops the bytes that were kept for opening the file.
    pub(super) fn release(&self) {
        self.head.release();
        self.tail.release();
    }

    /// Returns the last bytes of the file, and their offset. Blocks until they have arrived.
    pub(super) fn tail(&self) -> io::Result<(u64, Bytes)> {
        Ok((self.tail.range.start, self.tail.get(self)?))
    }

    pub(super) fn fetch(&self, range: Range<u64>) -> Fetch {
        self.file.fetch(range)
    }

    /// Blocks until requested bytes have arrived, and returns them.
    pub(super) fn wait(&self, fetch: Fetch, bytes: u64) -> io::Result<Bytes> {
        let fetched = fetch.wait().and_then(|found| match u64_from(found.len()) == bytes {
            true => Ok(found),
            false => Err(Error::unavailable(format!("{} of {bytes} bytes came", found.len()))),
        });
        fetched.map_err(|error| {
            let error = self.failure.get_or_init(|| error);
            io::Error::other(error.message.clone())
        })
    }

    /// Requests a range and blocks until it has arrived.
    pub(super) fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let bytes = range.end - range.start;
        self.wait(self.fetch(range), bytes)
    }
}

/// A byte range of a file, which is requested only once while it is kept in memory.
#[derive(Debug)]
pub(super) struct Piece {
    pub range: Range<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Idle,
    Asked(Fetch),
    Here(Bytes),
}

impl Piece {
    pub(super) fn new(range: Range<u64>) -> Self {
        Piece { range, state: Mutex::new(State::Idle) }
    }

    /// Requests the bytes, unless they were requested already. Does not block.
    pub(super) fn ask(&self, of: &Remoted) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Idle) {
            *state = State::Asked(of.fetch(self.range.clone()));
        }
    }

    /// Returns the bytes, and blocks until they have arrived. Threads that need the same piece wait for one request.
    pub(super) fn get(&self, of: &Remoted) -> io::Result<Bytes> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fetch = match std::mem::replace(&mut *state, State::Idle) {
            State::Here(bytes) => {
                *state = State::Here(bytes.clone());
                return Ok(bytes);
            }
            State::Asked(fetch) => fetch,
            State::Idle => of.fetch(self.range.clone()),
        };
        let bytes = of.wait(fetch, self.range.end - self.range.start)?;
        *state = State::Here(bytes.clone());
        Ok(bytes)
    }

    /// Drops the bytes; they can be requested again.
    pub(super) fn release(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Idle;
    }
}

/// Reads a remote file from an offset on, in blocks that are requested in advance.
#[derive(Debug)]
pub(super) struct RemoteReader {
    pub of: Arc<Remoted>,
    at: u64,
    /// The current block and its offset.
    current: (u64, Bytes),
    coming: VecDeque<(Range<u64>, Fetch)>,
    /// Offset up to which blocks have been requested, and the size of the next block in bytes.
    asked: u64,
    block_bytes: u64,
    /// Number of bytes that were read sequentially.
    read: u64,
}

impl RemoteReader {
    pub(super) fn new(of: Arc<Remoted>) -> Self {
        RemoteReader {
            of,
            at: 0,
            current: (0, Bytes::new()),
            coming: VecDeque::new(),
            asked: 0,
            block_bytes: BLOCK_BYTES_FIRST,
            read: 0,
        }
    }

    /// Returns the bytes from the current offset on that are in memory, and reads some if there are none. Empty at the
    /// end of the file.
    fn available(&mut self) -> io::Result<&[u8]> {
        let end = self.of.bytes();
        if self.rest_of_current().is_none() && self.at < end {
            self.current = self.next_block()?;
            self.ask_ahead();
        }
        let start = self.rest_of_current().unwrap_or(self.current.1.len());
        Ok(&self.current.1[start..])
    }

    /// Returns the current offset relative to the current block; `None` if the offset is outside the block.
    fn rest_of_current(&self) -> Option<usize> {
        let at = usize_saturating(self.at.checked_sub(self.current.0)?);
        (at < self.current.1.len()).then_some(at)
    }

    fn next_block(&mut self) -> io::Result<(u64, Bytes)> {
        if self.at < self.of.head.range.end && self.coming.is_empty() {
            let head = self.of.head.get(&self.of)?;
            self.asked = u64_from(head.len());
            return Ok((0, head));
        }
        while let Some((range, fetch)) = self.coming.pop_front() {
            if range.contains(&self.at) {
                return Ok((range.start, self.of.wait(fetch, range.end - range.start)?));
            }
        }
        // The reader has seeked, so that the requested blocks are of no use.
        if self.asked != self.at {
            (self.asked, self.block_bytes, self.read) = (self.at, BLOCK_BYTES_FIRST, 0);
        }
        self.ask();
        match self.coming.pop_front() {
            Some((range, fetch)) => Ok((range.start, self.of.wait(fetch, range.end - range.start)?)),
            None => Ok((self.at, Bytes::new())),
        }
    }

    fn ask(&mut self) {
        let range = self.asked..(self.asked + self.block_bytes).min(self.of.bytes());
        if range.is_empty() {
            return;
        }
        (self.asked, self.block_bytes) = (range.end, (2 * self.block_bytes).min(BLOCK_BYTES_MAX));
        self.coming.push_back((range.clone(), self.of.fetch(range)));
    }

    fn ask_ahead(&mut self) {
        let blocks = if self.read > LOOK_BYTES { BLOCKS_AHEAD } else { 0 };
        while self.coming.len() < blocks && self.asked < self.of.bytes() {
            self.ask();
        }
    }
}

impl Read for RemoteReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.available()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.at += u64_from(count);
        self.read += u64_from(count);
        Ok(count)
    }
}

impl Seek for RemoteReader {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        let to = match position {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::End(by) => self.of.bytes().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = to.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// A file in memory that counts the requested bytes.
    #[derive(Debug)]
    pub(crate) struct Counted {
        pub bytes: Bytes,
        pub asked: AtomicU64,
        pub requests: AtomicU64,
        /// Number of the first request that fails; all later requests fail, too.
        pub failing: u64,
    }

    impl Counted {
        pub(crate) fn new(bytes: impl Into<Bytes>) -> Arc<Self> {
            Counted::failing(bytes, u64::MAX)
        }

        pub(crate) fn failing(bytes: impl Into<Bytes>, failing: u64) -> Arc<Self> {
            let (asked, requests) = (AtomicU64::new(0), AtomicU64::new(0));
            Arc::new(Counted { bytes: bytes.into(), asked, requests, failing })
        }
    }

    impl Remote for Counted {
        fn bytes(&self) -> u64 {
            u64_from(self.bytes.len())
        }

        fn stamp(&self) -> String {
            String::new()
        }

        fn fetch(&self, range: Range<u64>) -> Fetch {
            self.asked.fetch_add(range.end - range.start, Ordering::Relaxed);
            let is_failing = self.requests.fetch_add(1, Ordering::Relaxed) >= self.failing;
            let bytes = self.bytes.slice(usize_saturating(range.start)..usize_saturating(range.end));
            Fetch::new(move || match is_failing {
                true => Err(Error::unavailable("the network is down")),
                false => Ok(bytes),
            })
        }
    }

    fn reader(file: &Arc<Counted>) -> RemoteReader {
        RemoteReader::new(Remoted::new(file.clone(), Arc::default()))
    }

    #[test]
    fn all_bytes_come_in_their_order_from_wherever_reading_begins() {
        let bytes: Vec<u8> = (0..40_000_000_u32).map(|i| (i % 251) as u8).collect();
        let file = Counted::new(bytes.clone());
        for start in [0, 1, 255 << 10, 300 << 10, 39_999_999, 40_000_000, 50_000_000] {
            let mut reader = reader(&file);
            let mut read = Vec::new();
            reader.seek(SeekFrom::Start(start)).unwrap();
            reader.read_to_end(&mut read).unwrap();
            assert!(read == bytes[bytes.len().min(start as usize)..], "from {start}");
        }
        let before = file.asked.load(Ordering::Relaxed);
        reader(&file).read_exact(&mut [0; 1000]).unwrap();
        assert_eq!(file.asked.load(Ordering::Relaxed) - before, HEAD_BYTES, "the first bytes only");
    }

    #[test]
    fn every_byte_is_asked_for_once_and_an_error_is_kept() {
        let file = Counted::new(vec![7; 20 << 20]);
        std::io::copy(&mut reader(&file), &mut std::io::sink()).unwrap();
        assert_eq!(file.asked.load(Ordering::Relaxed), 20 << 20);
        let failing = Counted::failing(vec![7; 20 << 20], 3);
        let mut reader = reader(&failing);
        assert!(std::io::copy(&mut reader, &mut std::io::sink()).is_err());
        assert_eq!(reader.of.failure().unwrap().message, "the network is down");
    }
}

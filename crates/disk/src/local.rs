//! A data directory in the operating system's file system, which one process at a time has locked; and reading files
//! with direct I/O, past the page cache.

use crate::files::{Directory, File};
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::cell::RefCell;
use std::fs;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Unit of direct I/O: addresses and lengths must be multiples of this many bytes.
const PAGE_BYTES: usize = 4096;

/// Name of the lock file, by whose lock one process at a time has the directory.
const LOCK: &str = "lock";

/// Name of the file with the node's private key, which is created readable for its owner only, whatever the process'
/// umask.
pub(crate) const PRIVATE: &str = "node-key";

/// A directory that this process has locked, so that no other process can open it through this type.
#[derive(Debug)]
pub struct LocalDirectory {
    path: PathBuf,
    /// Handle of the directory itself, for syncs of its entries.
    handle: fs::File,
    /// Lock file. The lock is held until the handle is closed, also by the end of the process.
    _lock: fs::File,
}

impl LocalDirectory {
    /// Opens the directory `path`, or creates it if its parent exists.
    ///
    /// # Errors
    /// `Busy` if another process has it open; `Unavailable` with the system's reason if it cannot be opened.
    pub fn open(path: &Path) -> Result<Arc<LocalDirectory>> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let message = format!("cannot create data directory {}: {error}", path.display());
                Err(Error::unavailable(message))
            }
            _ => LocalDirectory::open_existing(path),
        }
    }

    /// Opens a directory as [`LocalDirectory::open`] does, but fails if it does not exist.
    ///
    /// # Errors
    /// Errors of [`LocalDirectory::open`].
    pub fn open_existing(path: &Path) -> Result<Arc<LocalDirectory>> {
        let failed = |doing: &str, error: &io::Error| {
            Error::unavailable(format!("cannot {doing} data directory {}: {error}", path.display()))
        };
        let handle = fs::File::open(path).map_err(|error| failed("open", &error))?;
        let lock = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK));
        let lock = lock.map_err(|error| failed("lock", &error))?;
        match lock.try_lock() {
            Ok(()) => {
                allow_many_files();
                Ok(Arc::new(LocalDirectory { path: path.to_path_buf(), handle, _lock: lock }))
            }
            Err(fs::TryLockError::WouldBlock) => {
                let message = format!("another process has data directory {} open", path.display());
                Err(Error::new(ErrorKind::Busy, message)
                    .advise("stop that process, or name another directory"))
            }
            Err(fs::TryLockError::Error(error)) => Err(failed("lock", &error)),
        }
    }
}

/// Raises the process' soft limit of open files to the hard limit, because all segments stay open and the usual soft
/// limit is 1,024.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, opening a file reports it later.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

impl Directory for LocalDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        // Matches by prefix, since an incomplete file has a suffix.
        if name.starts_with(PRIVATE) {
            options.mode(0o600);
        }
        let file = options.create_new(true).read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(LocalFile::new(file, self.path.join(name))))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(LocalFile::new(file, self.path.join(name))))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            // Farpool creates no file whose name is not UTF-8.
            names.extend(name.into_string().ok().filter(|name| name != LOCK));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn read_rate(&self) -> Option<f64> {
        Some(measured_rate(&self.path).unwrap_or(READ_RATE_ASSUMED))
    }
}

/// Bytes of each piece of the temporary file by which the read rate of a device is measured, which takes about ten
/// milliseconds on most devices.
const MEASURED_PIECE_BYTES: usize = 1 << 20;
/// Number of pieces of [`MEASURED_PIECE_BYTES`] that are read to measure the rate.
const MEASURED_PIECES: u64 = 8;

/// Read rate in bytes per second that is assumed if it cannot be measured.
const READ_RATE_ASSUMED: f64 = 1e9;

/// Measures the read rate of a device in bytes per second: writes an unnamed file with direct I/O, reads it back, and
/// returns the median rate of its pieces.
fn measured_rate(path: &Path) -> io::Result<f64> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    // Direct I/O also requires memory that is aligned to a page.
    let mut memory = vec![0; MEASURED_PIECE_BYTES + PAGE_BYTES];
    let start = memory.as_ptr().align_offset(PAGE_BYTES);
    let piece = memory.get_mut(start..start + MEASURED_PIECE_BYTES).ok_or(io::ErrorKind::Unsupported)?;
    // Pseudorandom contents, because a device that compresses would read compressible data faster.
    let mut state = 1_u64;
    for word in piece.chunks_exact_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        word.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    let offset = |number: u64| number * u64_from(MEASURED_PIECE_BYTES);
    for number in 0..MEASURED_PIECES {
        file.write_all_at(piece, offset(number))?;
    }
    file.sync_data()?;
    let mut times = Vec::new();
    for number in 0..MEASURED_PIECES {
        let began = now();
        file.read_exact_at(piece, offset(number))?;
        times.push(began.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(MEASURED_PIECE_BYTES as f64 / times[times.len() / 2].max(1e-9))
}

#[expect(clippy::disallowed_methods, reason = "how fast a device is can only be measured")]
fn now() -> Instant {
    Instant::now()
}

/// Minimum bytes of a read with direct I/O. Larger reads fill the pool, and would otherwise be in memory twice, there
/// and in the page cache of the system. Smaller reads benefit from the system's read-ahead.
const DIRECT_BYTES_MIN: usize = 64 << 10;

/// Bytes of the bounce buffer: an aligned buffer that a direct read goes through if the destination and the data have
/// different offsets within a page.
const BOUNCE_BYTES: usize = 1 << 20;

thread_local! {
    static BOUNCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
struct LocalFile {
    file: fs::File,
    path: PathBuf,
    /// Second handle for direct I/O, opened at the first large read; `None` inside if the file system does not support
    /// direct I/O.
    direct: OnceLock<Option<fs::File>>,
}

impl LocalFile {
    fn new(file: fs::File, path: PathBuf) -> LocalFile {
        LocalFile { file, path, direct: OnceLock::new() }
    }

    fn direct(&self) -> Option<&fs::File> {
        let open = || {
            let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
            rustix::fs::open(&self.path, flags, Mode::empty()).ok().map(fs::File::from)
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// Extends the file to `bytes` bytes with zeros; does nothing if it is as long already.
    fn fill(&self, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; 1 << 20];
        let mut end = self.bytes()?;
        while end < bytes {
            let piece = &zeros[..zeros.len().min(usize_saturating(bytes - end))];
            self.write_at(piece, end)?;
            end += u64_from(piece.len());
        }
        Ok(())
    }
}

impl File for LocalFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if buffer.len() >= DIRECT_BYTES_MIN
            && let Some(direct) = self.direct()
        {
            match BOUNCE.with_borrow_mut(|bounce| read_direct(direct, buffer, offset, bounce)) {
                // Falls back to a buffered read: the file system accepts the flag but not the read, or a signal
                // interrupted it.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Interrupted) => {}
                read => return read,
            }
        }
        self.file.read_exact_at(buffer, offset)
    }

    fn will_be_read(&self) {
        // An error is ignored, because reading ahead only saves time.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::WillNeed);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            // Some file systems, such as NFS, cannot reserve space.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.fill(bytes),
            reserved => reserved.map_err(io::Error::from),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn release(&self) {
        // An error is ignored: without the advice, the system frees the memory of its cache when it needs it.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// Reads from a file opened for direct I/O: straight into `buffer` as far as alignment permits, and through `bounce`
/// otherwise.
fn read_direct(file: &fs::File, buffer: &mut [u8], offset: u64, bounce: &mut Vec<u8>) -> io::Result<()> {
    bounce.resize(BOUNCE_BYTES + PAGE_BYTES, 0);
    let start = bounce.as_ptr().align_offset(PAGE_BYTES);
    let pages = bounce.get_mut(start..start + BOUNCE_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
    let read = read_in_place(file, buffer, offset, pages)?;
    // Reads the rest through the bounce buffer, also after a short read.
    read_through(file, &mut buffer[read..], offset + u64_from(read), pages)
}

/// Reads into `buffer` with one call, without a copy, if the destination and the data have the same offset within a
/// page: whole pages are read into `buffer`, and the partial pages at both ends into the first two pages of `pages`.
/// Returns the number of bytes of `buffer` that were read, which may be fewer than asked for; 0 if the offsets differ.
fn read_in_place(file: &fs::File, buffer: &mut [u8], offset: u64, pages: &mut [u8]) -> io::Result<usize> {
    let before = usize_saturating(offset % u64_from(PAGE_BYTES));
    if page_offset(buffer) != before {
        return Ok(0);
    }
    let (front, rest) = buffer.split_at_mut(((PAGE_BYTES - before) % PAGE_BYTES).min(buffer.len()));
    let (middle, back) = rest.split_at_mut(rest.len() / PAGE_BYTES * PAGE_BYTES);
    let (first, last) = pages.split_at_mut(PAGE_BYTES);
    let first = &mut first[..if front.is_empty() { 0 } else { PAGE_BYTES }];
    let last = &mut last[..if back.is_empty() { 0 } else { PAGE_BYTES }];
    let read = {
        let mut all = [IoSliceMut::new(first), IoSliceMut::new(middle), IoSliceMut::new(last)];
        // Excluded, since the address of an empty slice is not aligned.
        let from = usize::from(all[0].is_empty());
        let to = if all[2].is_empty() { 2 } else { 3 };
        rustix::io::preadv(file, &mut all[from..to], offset - u64_from(before))?.saturating_sub(before)
    };
    let of_front = read.min(front.len());
    front[..of_front].copy_from_slice(&first[before.min(first.len())..][..of_front]);
    let of_back = read.saturating_sub(front.len() + middle.len()).min(back.len());
    back[..of_back].copy_from_slice(&last[..of_back]);
    Ok(read.min(front.len() + middle.len() + back.len()))
}

/// Returns the offset of the first byte of `memory` within its memory page.
fn page_offset(memory: &[u8]) -> usize {
    (PAGE_BYTES - memory.as_ptr().align_offset(PAGE_BYTES)) % PAGE_BYTES
}

/// Returns `bytes` bytes of `memory`, which grows if necessary. Their address has the same offset within a page as file
/// offset `offset`, so that a direct [`File::read_at`] needs no copy.
pub(crate) fn placed(memory: &mut Vec<u8>, bytes: usize, offset: u64) -> &mut [u8] {
    if memory.len() < bytes + PAGE_BYTES {
        memory.resize(bytes + PAGE_BYTES, 0);
    }
    let wanted = usize_saturating(offset % u64_from(PAGE_BYTES));
    let start = (PAGE_BYTES + wanted - page_offset(memory)) % PAGE_BYTES;
    &mut memory[start..start + bytes]
}

/// Reads whole pages from the file into `pages`, and copies the requested bytes to `buffer`.
fn read_through(file: &fs::File, buffer: &mut [u8], offset: u64, pages: &mut [u8]) -> io::Result<()> {
    let mut rest = buffer;
    let mut at = offset;
    while !rest.is_empty() {
        let before = usize_saturating(at % u64_from(PAGE_BYTES));
        let wanted = (before + rest.len()).next_multiple_of(PAGE_BYTES).min(pages.len());
        let read = file.read_at(&mut pages[..wanted], at - u64_from(before))?;
        let piece = pages[..read].get(before..).filter(|piece| !piece.is_empty());
        let piece = piece.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (to, behind) = rest.split_at_mut(piece.len().min(rest.len()));
        to.copy_from_slice(&piece[..to.len()]);
        at += u64_from(to.len());
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Log, ReservePolicy};

    #[test]
    fn one_process_at_a_time_has_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let directory = LocalDirectory::open(&path).unwrap();
        let error = LocalDirectory::open(&path).unwrap_err();
        assert!(error.kind == ErrorKind::Busy && error.message.contains("data"), "{error}");
        drop(directory);
        LocalDirectory::open(&path).unwrap();
        let error = LocalDirectory::open(&path.join("no/such")).unwrap_err();
        assert!(error.message.contains("no/such"), "{error}");
    }

    #[test]
    fn space_is_reserved_with_and_without_help_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let directory = LocalDirectory::open(folder.path()).unwrap();
        let file = directory.create("a").unwrap();
        file.write_at(b"abc", 0).unwrap();
        let path = folder.path().join("a");
        let local = LocalFile::new(fs::OpenOptions::new().read(true).write(true).open(&path).unwrap(), path);
        for bytes in [(3 << 20) + 5, 3, 4 << 20] {
            let before = file.bytes().unwrap();
            local.fill(bytes).unwrap();
            assert_eq!(file.bytes().unwrap(), before.max(bytes));
            file.reserve(bytes + 1).unwrap();
            assert_eq!(file.bytes().unwrap(), before.max(bytes + 1));
        }
        let mut start = [1; 5];
        file.read_at(&mut start, 0).unwrap();
        assert_eq!(&start, b"abc\0\0");
    }

    #[test]
    fn reads_past_the_cache_bring_what_was_written() {
        // The directory for temporary files may be on tmpfs, which lacks direct I/O.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let directory = LocalDirectory::open(folder.path()).unwrap();
        let file = directory.create("a").unwrap();
        let bytes: Vec<u8> = (0..3_000_011_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        for (start, length) in
            [(0, 65_536), (1, 100_000), (4096, 2_500_000), (77, 2_999_000), (2_900_011, 100_000)]
        {
            let mut read = vec![0; length];
            file.read_at(&mut read, start).unwrap();
            assert!(read == bytes[start as usize..][..length], "{length} bytes at {start}");
            file.sync().unwrap();
            file.release();
        }
        let mut beyond = vec![0; 200_000];
        assert_eq!(file.read_at(&mut beyond, 2_900_011).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        file.write_at(&[9; 100_000], 5).unwrap();
        let mut read = vec![0; 100_000];
        file.read_at(&mut read, 5).unwrap();
        assert_eq!(read, [9; 100_000], "what was just written");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "several threads read")]
    fn reads_that_need_no_copy_bring_the_same() {
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let directory = LocalDirectory::open(folder.path()).unwrap();
        let bytes: Vec<u8> = (0..1_500_011_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        directory.create("a").unwrap().write_at(&bytes, 0).unwrap();
        let path = folder.path().join("a");
        let file = LocalFile::new(fs::File::open(&path).unwrap(), path);
        file.file.sync_all().unwrap();
        let check = |seed: u64| {
            let mut state = seed;
            let (mut memory, mut pages) = (Vec::new(), vec![0; BOUNCE_BYTES + PAGE_BYTES]);
            let start = pages.as_ptr().align_offset(PAGE_BYTES);
            let pages = &mut pages[start..start + BOUNCE_BYTES];
            for round in 0..200 {
                let mut random = |below: usize| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    (state >> 33) as usize % below
                };
                let from = if round % 3 == 0 { random(300) * PAGE_BYTES } else { random(bytes.len()) };
                let length = if round % 5 == 0 { bytes.len() - from } else { random(bytes.len() - from) + 1 };
                let expected = &bytes[from..from + length];
                let to = placed(&mut memory, length, from as u64);
                to.fill(7);
                if let Some(direct) = file.direct() {
                    // Zeros behind the end of the file must not be counted.
                    assert_eq!(read_in_place(direct, to, from as u64, pages).unwrap(), length);
                    assert!(to == expected, "{length} bytes at {from}, in place");
                    to.fill(7);
                    read_through(direct, to, from as u64, pages).unwrap();
                    assert!(to == expected, "{length} bytes at {from}, copied");
                    to.fill(7);
                }
                file.read_at(to, from as u64).unwrap();
                assert!(to == expected, "{length} bytes at {from}");
                let beyond = placed(&mut memory, length + DIRECT_BYTES_MIN + bytes.len(), from as u64);
                let error = file.read_at(beyond, from as u64).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            }
        };
        std::thread::scope(|scope| (1..=4).for_each(|seed| drop(scope.spawn(move || check(seed)))));
    }

    #[test]
    fn measuring_a_device_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let directory = LocalDirectory::open(folder.path()).unwrap();
        let rate = directory.read_rate().unwrap();
        assert!(rate.is_finite() && rate > 0.0, "{rate}");
        assert!(directory.names().unwrap().is_empty());
    }

    #[test]
    fn a_log_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let open = |from| {
            let directory = LocalDirectory::open(folder.path()).unwrap();
            let mut records = Vec::new();
            let mut keep = |_, record: &[u8]| {
                records.push(record.to_vec());
                Ok(())
            };
            let log = Log::open(directory, Some(9), from, &mut keep).unwrap().0;
            (log, records)
        };
        let (log, records) = open(0);
        assert!(records.is_empty());
        for i in 0..100_u8 {
            log.append(&[i; 300_000], ReservePolicy::Normal).unwrap();
        }
        log.commit(99).unwrap();
        drop(log);
        let (log, records) = open(10);
        assert_eq!(records.len(), 90);
        assert!((10..100_u8).zip(&records).all(|(i, record)| *record == [i; 300_000]));
        // Fills a second file, so that the first one, with the remaining records of this kind, can be removed.
        for _ in 0..150 {
            log.append(&[7; 300_000], ReservePolicy::Normal).unwrap();
        }
        log.commit(249).unwrap();
        log.forget_before(240).unwrap();
        log.close().unwrap();
        drop(log);
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "a file of the log, and the lock");
        assert_eq!(open(240).1.len(), 10);
    }
}

//! Temporary files of joins, sorts and groups that exceed their memory. They contain rows of tables that may be
//! encrypted everywhere else. Therefore all of them are encrypted, with an encryption key that is drawn at random for
//! the session and never stored.
//!
//! A file has no name, so that it disappears with the process, however the process ends. The positions of its frames,
//! and the marks that bind each frame to the encryption key (so that a changed or exchanged frame is detected), are
//! kept in memory.

use bytes::Bytes;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use farpool_cipher::{MemoryCipher, MessageTag};
use farpool_memory::size_text;
use farpool_model::cast::u64_from;
use farpool_model::{Error, Tier, limits};
use farpool_sql::error;
use futures::{Stream, stream};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of a frame, which is encrypted, written and read as a whole; shorter if the writer flushes earlier.
const FRAME_BYTES: usize = 128 << 10;

/// Creates the temporary files of a session, and counts their bytes.
#[derive(Debug, Default)]
pub(crate) struct SpillFiles {
    /// The cipher; its encryption key is drawn when the first file is created.
    cipher: OnceLock<Arc<MemoryCipher>>,
    /// Total bytes of all existing files of the session.
    bytes: Arc<AtomicU64>,
}

/// A temporary file. It is written once, and can be read any number of times, even while it is written: up to the last
/// flush.
#[derive(Debug)]
struct Spilled {
    file: File,
    cipher: Arc<MemoryCipher>,
    frames: Mutex<Frames>,
    bytes_of_all: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Frames {
    all: Vec<Frame>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    offset: u64,
    bytes: usize,
    mark: MessageTag,
}

/// DataFusion's handle of a file, which is deleted with the last handle.
struct Handle(Arc<Spilled>);

struct Writer {
    file: Arc<Spilled>,
    waiting: Vec<u8>,
}

impl SpillFiles {
    fn cipher(&self) -> Result<Arc<MemoryCipher>, Error> {
        if let Some(cipher) = self.cipher.get() {
            return Ok(cipher.clone());
        }
        let drawn = MemoryCipher::new(Tier::Standard)?;
        Ok(self.cipher.get_or_init(|| drawn).clone())
    }
}

impl TempFileFactory for SpillFiles {
    fn create_temp_file(&self, _description: &str) -> Result<Arc<dyn SpillFile>> {
        let created = || {
            let cipher = self.cipher()?;
            let file = tempfile::tempfile().map_err(|error| failed("make", &error))?;
            Ok(Spilled { file, cipher, frames: Mutex::default(), bytes_of_all: self.bytes.clone() })
        };
        Ok(Arc::new(Handle(Arc::new(created().map_err(error::wrap)?))))
    }
}

impl Spilled {
    /// Encrypts `data` in place and appends it to the file as a frame.
    fn add(&self, data: &mut [u8]) -> Result<(), Error> {
        let (bytes, most) = (u64_from(data.len()), limits::SPILL_BYTES_MAX);
        let mut frames = self.frames.lock();
        if self.bytes_of_all.fetch_add(bytes, Ordering::Relaxed) + bytes > most {
            self.bytes_of_all.fetch_sub(bytes, Ordering::Relaxed);
            let message =
                format!("what statements put into temporary files is more than {}", size_text(most));
            return Err(Error::over_limit(message).advise(
                "give the statement more memory (--work-memory), or have it read fewer rows or columns",
            ));
        }
        let offset = frames.bytes;
        // The bytes count as used even if the write fails halfway, so that the next frame is written behind them.
        frames.bytes += bytes;
        let mark = self.cipher.encrypt(data)?;
        self.file.write_all_at(data, offset).map_err(|error| failed("write", &error))?;
        frames.all.push(Frame { offset, bytes: data.len(), mark });
        Ok(())
    }

    /// Returns the frame at index `number`, decrypted; `None` after the last one.
    fn frame(&self, number: usize) -> Result<Option<Bytes>, Error> {
        let Some(frame) = self.frames.lock().all.get(number).copied() else { return Ok(None) };
        let (mut encrypted, mut data) = (vec![0; frame.bytes], vec![0; frame.bytes]);
        self.file.read_exact_at(&mut encrypted, frame.offset).map_err(|error| failed("read", &error))?;
        self.cipher.decrypt(&frame.mark, &encrypted, &mut data)?;
        Ok(Some(data.into()))
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        self.bytes_of_all.fetch_sub(self.frames.get_mut().bytes, Ordering::Relaxed);
    }
}

impl SpillFile for Handle {
    fn size(&self) -> Option<u64> {
        Some(self.0.frames.lock().bytes)
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let file = self.0.clone();
        let frames = stream::try_unfold((file, 0), |(file, number)| async move {
            let reading = file.clone();
            let read = tokio::task::spawn_blocking(move || reading.frame(number)).await;
            let frame = read.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
            Ok(frame.map_err(error::wrap)?.map(|frame| (frame, (file, number + 1))))
        });
        Ok(Box::pin(frames))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer { file: self.0.clone(), waiting: Vec::new() }))
    }
}

impl Write for Writer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(FRAME_BYTES - self.waiting.len());
        self.waiting.extend_from_slice(&data[..taken]);
        if self.waiting.len() == FRAME_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.file.add(&mut self.waiting).map_err(io::Error::other)?;
        self.waiting.clear();
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        self.flush().map_err(DataFusionError::IoError)
    }
}

fn failed(doing: &str, error: &io::Error) -> Error {
    let folder = std::env::temp_dir();
    let message = format!("cannot {doing} a temporary file in {}: {error}", folder.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::over_limit(message)
            .advise("free space there, name another folder (TMPDIR), or give the statement more memory"),
        _ => Error::unavailable(message).advise("name a folder for temporary files (TMPDIR)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_model::cast::usize_saturating;
    use futures::TryStreamExt;
    use proptest::prelude::*;

    fn new_file(files: &SpillFiles) -> Arc<Spilled> {
        let cipher = files.cipher().unwrap();
        let file = tempfile::tempfile().unwrap();
        Arc::new(Spilled { file, cipher, frames: Mutex::default(), bytes_of_all: files.bytes.clone() })
    }

    fn read(file: &Arc<Spilled>) -> Vec<u8> {
        let stream = Handle(file.clone()).read_stream().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let frames: Vec<Bytes> = runtime.block_on(stream.try_collect()).unwrap();
        frames.concat()
    }

    proptest! {
        #[test]
        fn what_was_flushed_is_read_again(
            pieces in prop::collection::vec((0..300_000_usize, any::<bool>()), 0..8),
        ) {
            let files = SpillFiles::default();
            let file = new_file(&files);
            let mut writer = Handle(file.clone()).open_writer().unwrap();
            let (mut written, mut flushed) = (Vec::new(), 0);
            for (bytes, flushes) in pieces {
                let piece: Vec<u8> = (written.len()..written.len() + bytes).map(|at| (at / 7) as u8).collect();
                writer.write_all(&piece).unwrap();
                written.extend(piece);
                if flushes {
                    writer.flush().unwrap();
                    flushed = written.len();
                }
                let found = read(&file);
                prop_assert!(found.len() >= flushed && written.starts_with(&found));
            }
            writer.finish().unwrap();
            prop_assert!(read(&file) == written);
            prop_assert_eq!(files.bytes.load(Ordering::Relaxed), u64_from(written.len()));
            drop((writer, file));
            prop_assert_eq!(files.bytes.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn files_have_nothing_in_the_clear_and_no_name() {
        let text = b"a text of an encrypted table".repeat(20_000);
        let files = SpillFiles::default();
        let file = new_file(&files);
        let mut writer = Handle(file.clone()).open_writer().unwrap();
        writer.write_all(&text).unwrap();
        writer.finish().unwrap();
        let mut on_disk = vec![0; usize_saturating(file.file.metadata().unwrap().len())];
        file.file.read_exact_at(&mut on_disk, 0).unwrap();
        assert_eq!(on_disk.len(), text.len());
        assert!(!on_disk.windows(8).any(|window| text[..64].windows(8).any(|plain| plain == window)));
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&file.file.metadata().unwrap()), 0);
        // A frame with changed bytes cannot be decrypted, and is an error.
        on_disk[5] ^= 1;
        file.file.write_all_at(&on_disk, 0).unwrap();
        assert_eq!(file.frame(0).unwrap_err().kind, farpool_model::ErrorKind::Corrupt);
        assert!(file.frame(1).unwrap().is_some());
    }

    #[test]
    fn all_files_together_have_a_limit() {
        let files = SpillFiles::default();
        let (file, other) = (new_file(&files), new_file(&files));
        other.add(&mut [1; 100]).unwrap();
        files.bytes.fetch_add(limits::SPILL_BYTES_MAX - 150, Ordering::Relaxed);
        let error = file.add(&mut [2; 51]).unwrap_err();
        assert!(error.message.contains("temporary files") && error.advice.is_some(), "{error}");
        file.add(&mut [3; 50]).unwrap();
        assert_eq!(read(&file), [3; 50]);
    }
}

//! Watches the files that configure a running node, the access file and the TLS certificate, and reads them again when
//! they change.
//!
//! Invariant: the configuration in effect always comes from complete and valid files. So files are read only after they
//! have been unchanged for the time between two checks, and files with a mistake change nothing. Example: an editor
//! truncates the access file and then writes it. If the file were read in between, it would be valid and without
//! tokens, and all clients would be disconnected.

use farpool_model::{Error, Result};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Interval between checks of the files. Reason for 300 ms: two checks and applying a change take less than a second.
const LOOK: Duration = Duration::from_millis(300);

/// Files that are read together, with their states at the last check and at the last read.
#[derive(Debug)]
pub struct Followed<T> {
    paths: Vec<PathBuf>,
    read: fn(&[PathBuf]) -> Result<T>,
    /// States of the files at the last check.
    seen: Vec<Option<Stamp>>,
    /// States of the files when they were last read.
    taken: Vec<Option<Stamp>>,
    /// The error of the last read; `None` if it succeeded.
    failure: Option<Error>,
}

/// The state of a file: properties that differ after the file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    /// Inode number, which differs after another file was moved to the path.
    inode: u64,
}

/// Result of [`Followed::look`] and [`Followed::read_again`].
#[derive(Debug)]
pub enum Reread<T> {
    /// The files have not changed.
    Same,
    /// The files have changed; these are their contents.
    Changed(T),
    /// The files cannot be used. Returned when the error is new, not again for the same error.
    Failed(Error),
}

impl<T: Send + 'static> Followed<T> {
    /// Reads the files at `paths` by calling `read`; returns the watcher, which calls `read` again for later reads, and
    /// the contents.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn open(paths: Vec<PathBuf>, read: fn(&[PathBuf]) -> Result<T>) -> Result<(Self, T)> {
        let stamps = stamps(&paths);
        let first = read(&paths)?;
        Ok((Followed { paths, read, seen: stamps.clone(), taken: stamps, failure: None }, first))
    }

    /// Checks the files, and reads them if they differ from those of the last read but not from those of the last
    /// check. The second condition means that nobody is still writing them.
    pub fn look(&mut self) -> Reread<T> {
        let stamps = stamps(&self.paths);
        let is_settled = std::mem::replace(&mut self.seen, stamps.clone()) == stamps;
        if stamps == self.taken || !is_settled {
            return Reread::Same;
        }
        self.read_now(stamps, false)
    }

    /// Reads the files even if they have not changed.
    pub fn read_again(&mut self) -> Reread<T> {
        self.read_now(stamps(&self.paths), true)
    }

    fn read_now(&mut self, stamps: Vec<Option<Stamp>>, repeats: bool) -> Reread<T> {
        self.taken = stamps;
        match (self.read)(&self.paths) {
            Ok(new) => {
                self.failure = None;
                Reread::Changed(new)
            }
            Err(error) if self.failure.as_ref() == Some(&error) && !repeats => Reread::Same,
            Err(error) => {
                self.failure = Some(error.clone());
                Reread::Failed(error)
            }
        }
    }

    /// Calls `apply` with the contents of the files whenever they change; the future never resolves. A change takes
    /// effect within a second; a message in `asked` causes an immediate read. `what` names the files in log messages.
    pub async fn follow(mut self, what: &'static str, apply: impl Fn(T), mut asked: mpsc::Receiver<()>) {
        loop {
            let is_asked = tokio::select! {
                () = sleep(LOOK) => false,
                Some(()) = asked.recv() => true,
            };
            // Checked on a thread that may block, because the file system may be slow.
            let looked = tokio::task::spawn_blocking(move || {
                let came = if is_asked { self.read_again() } else { self.look() };
                (self, came)
            });
            let Ok((files, came)) = looked.await else { return };
            self = files;
            match came {
                Reread::Same => {}
                Reread::Changed(new) => {
                    tracing::info!(file = %self.paths[0].display(), "{what} was read again");
                    apply(new);
                }
                Reread::Failed(error) => tracing::warn!(error = ?error.message, "{what} stays as it was"),
            }
        }
    }
}

/// Opens a file that configures the node. Only regular files are accepted, because opening or reading a FIFO could
/// block forever, and later changes would not be noticed.
///
/// # Errors
/// When the file cannot be opened, or is not a regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    // With `O_NONBLOCK`, opening a FIFO without a writer returns at once; it is then rejected by its type.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file (a directory, a pipe or a device)")),
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| Stamp::of(path)).collect()
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let (modified, bytes) = (metadata.modified().ok(), metadata.len());
        Some(Stamp { modified, bytes, inode: inode(&metadata) })
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use std::fs;

    fn line(token: &str) -> String {
        let digest = crate::access::TokenDigest::of(token);
        format!("[[token]]\ntenant = \"ann\"\nrole = \"read\"\nsha256 = \"{digest}\"\n")
    }

    fn knows(access: &Access, token: &str) -> bool {
        access.admit(Some(token), 0).is_ok()
    }

    #[test]
    fn a_file_is_read_again_once_it_has_stayed_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        fs::write(&path, format!("[tenant.ann]\n{}", line("one"))).unwrap();
        let (mut file, access) = Followed::open(vec![path.clone()], |paths| Access::read(&paths[0])).unwrap();
        assert!(knows(&access, "one") && !knows(&access, "two"));
        assert!(matches!(file.look(), Reread::Same));
        fs::write(&path, format!("[tenant.ann]\n{}{}", line("two"), line("one"))).unwrap();
        assert!(matches!(file.look(), Reread::Same), "it may be half written");
        let Reread::Changed(access) = file.look() else { panic!("it has changed") };
        assert!(knows(&access, "two"));
        assert!(matches!(file.look(), Reread::Same));
        assert!(matches!(file.read_again(), Reread::Changed(_)));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_at_once_and_the_file_behind_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        fs::write(&path, format!("[tenant.ann]\n{}", line("one"))).unwrap();
        let (mut file, _) = Followed::open(vec![path.clone()], |paths| Access::read(&paths[0])).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        file.look();
        let Reread::Failed(error) = file.look() else { panic!("it is no file") };
        assert!(error.message.contains("no regular file"), "{error}");
        assert!(crate::certificate::read(&path, &path).unwrap_err().message.contains("no regular file"));
        fs::remove_file(&path).unwrap();
        // An access file from which the last token was removed is still valid, and takes effect.
        fs::write(&path, "[tenant.ann]\n").unwrap();
        file.look();
        let Reread::Changed(access) = file.look() else { panic!("it has changed") };
        assert!(access.is_of_nobody() && !knows(&access, "one"));
    }

    #[test]
    fn one_that_cannot_be_used_is_told_of_once_and_read_when_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        fs::write(&path, format!("[tenant.ann]\n{}", line("one"))).unwrap();
        let (mut file, _) = Followed::open(vec![path.clone()], |paths| Access::read(&paths[0])).unwrap();
        fs::write(&path, "[tenant.ann]\n[[token").unwrap();
        file.look();
        let Reread::Failed(error) = file.look() else { panic!("it is not whole") };
        assert!(error.message.contains("line 2"), "{error}");
        assert!(matches!(file.look(), Reread::Same));
        assert!(matches!(file.read_again(), Reread::Failed(_)), "whoever asks hears of it");
        fs::remove_file(&path).unwrap();
        file.look();
        assert!(matches!(file.look(), Reread::Failed(_)));
        // A replaced file counts as changed even if size and time are the same.
        fs::write(folder.path().join("new"), format!("[tenant.ann]\n{}", line("two"))).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        file.look();
        let Reread::Changed(access) = file.look() else { panic!("it is there again") };
        assert!(knows(&access, "two"));
    }
}

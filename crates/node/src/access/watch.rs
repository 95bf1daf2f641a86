//! Keeps up with the file of who may connect while the node runs.
//!
//! Invariant: what the node goes by is always some whole file. One that is being written is not read before it has
//! stayed the same for a while, and one that has a mistake changes nothing.

use super::Access;
use crate::Node;
use farpool_model::{Error, Result};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// The time between two looks at the file: two of them and what follows take less than a second.
const LOOK: Duration = Duration::from_millis(300);

/// A file, and what was seen of it.
#[derive(Debug)]
pub struct AccessFile {
    path: PathBuf,
    /// At the last look.
    seen: Option<Stamp>,
    /// When it was read last.
    read: Option<Stamp>,
    /// Why it could not be used then.
    failure: Option<Error>,
}

/// By which two states of a file are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    /// A file that takes the place of another has another one.
    inode: u64,
}

/// What came of a look at the file.
#[derive(Debug)]
pub enum Reread {
    /// Nothing new.
    Same,
    /// Another file than before.
    Changed(Access),
    /// It cannot be used, which was not said before.
    Failed(Error),
}

impl AccessFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// As [`Access::read`].
    pub fn open(path: &Path) -> Result<(Self, Access)> {
        let stamp = Stamp::of(path);
        let access = Access::read(path)?;
        let file = AccessFile { path: path.to_path_buf(), seen: stamp, read: stamp, failure: None };
        Ok((file, access))
    }

    /// Reads the file if it is another one than before and is so since the look before this one.
    pub fn look(&mut self) -> Reread {
        let stamp = Stamp::of(&self.path);
        let is_settled = std::mem::replace(&mut self.seen, stamp) == stamp;
        if stamp == self.read || !is_settled {
            return Reread::Same;
        }
        self.read_now(stamp, false)
    }

    /// Reads the file, whether it has changed or not.
    pub fn read_again(&mut self) -> Reread {
        self.read_now(Stamp::of(&self.path), true)
    }

    fn read_now(&mut self, stamp: Option<Stamp>, repeats: bool) -> Reread {
        self.read = stamp;
        match Access::read(&self.path) {
            Ok(access) => {
                self.failure = None;
                Reread::Changed(access)
            }
            Err(error) if self.failure.as_ref() == Some(&error) && !repeats => Reread::Same,
            Err(error) => {
                self.failure = Some(error.clone());
                Reread::Failed(error)
            }
        }
    }

    /// Has `node` go by the file for as long as this is polled: a change counts within a second, and what comes from
    /// `asked` has it read at once.
    pub async fn follow(mut self, node: Arc<Node>, mut asked: mpsc::Receiver<()>) {
        loop {
            let is_asked = tokio::select! {
                () = sleep(LOOK) => false,
                Some(()) = asked.recv() => true,
            };
            // A file may lie where reading takes long.
            let looked = tokio::task::spawn_blocking(move || {
                let came = if is_asked { self.read_again() } else { self.look() };
                (self, came)
            });
            let Ok((file, came)) = looked.await else { return };
            self = file;
            match came {
                Reread::Same => {}
                Reread::Changed(access) => {
                    tracing::info!(file = %self.path.display(), "who may connect was read again");
                    node.set_access(access);
                }
                Reread::Failed(error) => {
                    tracing::warn!(error = ?error.message, "who may connect stays as it was");
                }
            }
        }
    }
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
        let (mut file, access) = AccessFile::open(&path).unwrap();
        assert!(knows(&access, "one") && !knows(&access, "two"));
        assert!(matches!(file.look(), Reread::Same));
        fs::write(&path, format!("[tenant.ann]\n{}{}", line("two"), line("one"))).unwrap();
        assert!(matches!(file.look(), Reread::Same), "it may be half written");
        let Reread::Changed(access) = file.look() else { panic!("it has changed") };
        assert!(knows(&access, "two"));
        assert!(matches!(file.look(), Reread::Same));
        assert!(matches!(file.read_again(), Reread::Changed(_)));
    }

    #[test]
    fn one_that_cannot_be_used_is_told_of_once_and_read_when_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        fs::write(&path, format!("[tenant.ann]\n{}", line("one"))).unwrap();
        let (mut file, _) = AccessFile::open(&path).unwrap();
        fs::write(&path, "[tenant.ann]\n[[token").unwrap();
        file.look();
        let Reread::Failed(error) = file.look() else { panic!("it is not whole") };
        assert!(error.message.contains("line 2"), "{error}");
        assert!(matches!(file.look(), Reread::Same));
        assert!(matches!(file.read_again(), Reread::Failed(_)), "whoever asks hears of it");
        fs::remove_file(&path).unwrap();
        file.look();
        assert!(matches!(file.look(), Reread::Failed(_)));
        // A file that takes the place of the other counts although it may have the same size and time.
        fs::write(folder.path().join("new"), format!("[tenant.ann]\n{}", line("two"))).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        file.look();
        let Reread::Changed(access) = file.look() else { panic!("it is there again") };
        assert!(knows(&access, "two"));
    }
}

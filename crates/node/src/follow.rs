//! Keeps up with files that say how the node meets its clients: who may connect, and its certificate.
//!
//! Invariant: what the node goes by is always what some whole files say. One that is being written is not read before
//! it has stayed the same for a while, and a mistake in one changes nothing.

use farpool_model::{Error, Result};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// The time between two looks at the files: two of them and what follows take less than a second.
const LOOK: Duration = Duration::from_millis(300);

/// Files that say one thing together, and what was seen of them.
#[derive(Debug)]
pub struct Followed<T> {
    paths: Vec<PathBuf>,
    read: fn(&[PathBuf]) -> Result<T>,
    /// At the last look.
    seen: Vec<Option<Stamp>>,
    /// When they were read last.
    taken: Vec<Option<Stamp>>,
    /// Why they could not be used then.
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

/// What came of a look at the files.
#[derive(Debug)]
pub enum Reread<T> {
    /// Nothing new.
    Same,
    /// They are not what they were before.
    Changed(T),
    /// They cannot be used, which was not said before.
    Failed(Error),
}

impl<T: Send + 'static> Followed<T> {
    /// Reads the files for the first time, and then whenever it is asked to, by `read`.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn open(paths: Vec<PathBuf>, read: fn(&[PathBuf]) -> Result<T>) -> Result<(Self, T)> {
        let stamps = stamps(&paths);
        let first = read(&paths)?;
        Ok((Followed { paths, read, seen: stamps.clone(), taken: stamps, failure: None }, first))
    }

    /// Reads the files if they are others than before and are so since the look before this one.
    pub fn look(&mut self) -> Reread<T> {
        let stamps = stamps(&self.paths);
        let is_settled = std::mem::replace(&mut self.seen, stamps.clone()) == stamps;
        if stamps == self.taken || !is_settled {
            return Reread::Same;
        }
        self.read_now(stamps, false)
    }

    /// Reads the files, whether they have changed or not.
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

    /// Has `apply` have what the files say for as long as this is polled: a change counts within a second, and what comes
    /// from `asked` has them read at once. The log calls them `what`.
    pub async fn follow(mut self, what: &'static str, apply: impl Fn(T), mut asked: mpsc::Receiver<()>) {
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
        // A file that takes the place of the other counts although it may have the same size and time.
        fs::write(folder.path().join("new"), format!("[tenant.ann]\n{}", line("two"))).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        file.look();
        let Reread::Changed(access) = file.look() else { panic!("it is there again") };
        assert!(knows(&access, "two"));
    }
}

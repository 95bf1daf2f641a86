//! Standard input as a file of a query: for `COPY … FROM STDIN`, and for statements that name it as a file.
//!
//! A query may read a file more than once: for its columns, for its rows, and again if types were guessed incorrectly.
//! Standard input can be read only once. It is therefore copied to a temporary file, which is deleted when [`Stdin`] is
//! dropped.

use farpool_model::{Error, FileSpec, Result};
use std::fs::File;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// File names that mean standard input.
const NAMES: [&str; 2] = ["/dev/stdin", "/dev/fd/0"];

/// Name of the temporary file; errors show it to the user.
const FILE_NAME: &str = "standard input";

/// Standard input, copied to a temporary file on first use.
#[derive(Debug, Default)]
pub(crate) struct Stdin(Mutex<Option<TempDir>>);

impl Stdin {
    /// Returns `files` with standard input replaced by the path of the temporary file.
    ///
    /// # Errors
    /// Fails if standard input cannot be read or copied.
    pub(crate) async fn resolved(&self, mut files: FileSpec) -> Result<FileSpec> {
        if !files.paths.iter().any(|path| NAMES.contains(&path.as_str())) {
            return Ok(files);
        }
        let mut kept = self.0.lock().await;
        let folder = match kept.take() {
            Some(folder) => folder,
            None => {
                let keeping = tokio::task::spawn_blocking(keep).await;
                keeping.map_err(|error| Error::internal(format!("reading stopped: {error}")))?.map_err(
                    |error| {
                        Error::invalid(format!("standard input cannot be read: {error}"))
                            .advise("it is kept in a temporary file, for which TMPDIR needs room")
                    },
                )?
            }
        };
        let path = folder.path().join(FILE_NAME).display().to_string();
        *kept = Some(folder);
        for name in &mut files.paths {
            if NAMES.contains(&name.as_str()) {
                name.clone_from(&path);
            }
        }
        Ok(files)
    }

    /// Replaces the path of the temporary file in the message of `error`, so that the user does not see it.
    pub(crate) async fn named(&self, error: Error) -> Error {
        let kept = self.0.lock().await;
        let Some(folder) = &*kept else { return error };
        let prefix = folder.path().join("").display().to_string();
        Error { message: error.message.replace(&prefix, ""), ..error }
    }
}

fn keep() -> std::io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("farpool-").tempdir()?;
    let path: PathBuf = folder.path().join(FILE_NAME);
    std::io::copy(&mut std::io::stdin().lock(), &mut File::create(path)?)?;
    Ok(folder)
}

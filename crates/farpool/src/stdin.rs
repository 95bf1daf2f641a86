//! Standard input as a file of a query: for `COPY … FROM STDIN`, and for whoever names it.
//!
//! A query looks at a file more than once: for its columns, for its rows, and again where types were guessed wrongly.
//! Standard input is there once, and is kept as a temporary file, which goes with this value.

use farpool_model::{Error, FileSpec, Result};
use std::fs::File;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// Names of standard input.
const NAMES: [&str; 2] = ["/dev/stdin", "/dev/fd/0"];

/// What errors call the file.
const FILE_NAME: &str = "standard input";

/// Standard input, read when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct Stdin(Mutex<Option<TempDir>>);

impl Stdin {
    /// The files, with what is kept of standard input in its place.
    ///
    /// # Errors
    /// When it cannot be read or kept.
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

    /// The error without the folder in which it is kept.
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

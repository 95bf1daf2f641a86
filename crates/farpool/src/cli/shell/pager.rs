//! Displays a result in a pager, which the user may quit at any time.
//!
//! The result was read completely before, so that a pager that waits for the user takes memory of the shell and not of
//! the node.

use crate::cli::stop::{Outcome, Stop};
use farpool::Error;
use std::io::{self, BufWriter, Write};
use std::process::{Child, Command, Stdio};

/// The default pager and its options, as in git: it leaves the screen unchanged, exits by itself if the text fits, and
/// scrolls sideways.
const USUAL: &str = "less";
const LESS: &str = "FRSX";

/// Returns the command of the default pager.
pub fn usual() -> String {
    let named = |name| std::env::var(name).ok().filter(|program| !program.trim().is_empty());
    named("FARPOOL_PAGER").or_else(|| named("PAGER")).unwrap_or_else(|| USUAL.to_string())
}

/// Starts the pager `program`, a shell command, and calls `write` with its standard input. Blocks until the pager
/// exits.
pub fn show(program: &str, write: impl FnOnce(BufWriter<Box<dyn Write + Send>>) -> Outcome) -> Outcome {
    let failed = |error: io::Error| {
        Stop::from(
            Error::invalid(format!("cannot start the pager {program}: {error}"))
                .advise("choose another one with .pager PROGRAM, or none with .pager off"),
        )
    };
    let mut command = Command::new("sh");
    command.args(["-c", program]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    let mut pager = Running(command.spawn().map_err(failed)?);
    let Some(input) = pager.0.stdin.take() else {
        return Err(failed(io::Error::other("it has no input")));
    };
    let written = write(BufWriter::with_capacity(64 << 10, Box::new(input)));
    let status = pager.0.wait().map_err(failed)?;
    match written {
        // If the user leaves the pager early, writing to it fails, which is no error.
        Ok(()) | Err(Stop::OutputClosed) if status.code() == Some(127) => {
            Err(failed(io::Error::other("there is no such program")))
        }
        Ok(()) | Err(Stop::OutputClosed) => Ok(()),
        Err(stop) => Err(stop),
    }
}

/// A running pager. Dropping this kills it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The pager has ended by now, unless writing to it panicked.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

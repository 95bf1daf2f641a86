//! Why a command ends other than well, what it says then, and the exit status that goes with it.

use super::terminal::printable_lines;
use farpool::Error;
use std::io;
use std::process::ExitCode;

/// The exit status of a command line that makes no sense; the same as the argument parser's own.
const STATUS_USAGE: u8 = 2;

/// The exit status after Ctrl-C: 128 and the number of the signal, as shells have it.
pub const STATUS_INTERRUPTED: u8 = 130;

/// Why a command ends early.
#[derive(Debug)]
pub enum Stop {
    /// Something failed.
    Failed(Error),
    /// The command line makes no sense.
    Usage(Error),
    /// Nobody reads the output any more; no reason to complain.
    OutputClosed,
    /// Ctrl-C.
    Interrupted,
}

/// What a command comes to.
pub type Outcome<T = ()> = Result<T, Stop>;

impl Stop {
    /// The command line makes no sense, for this reason.
    pub fn usage(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Stop::Usage(Error::invalid(message).advise(advice))
    }

    /// What standard output's refusal to take more means.
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::OutputClosed,
            _ => Stop::Failed(Error::invalid(format!("cannot write the result: {error}"))),
        }
    }

    /// Says what happened, on standard error, and gives the exit status.
    pub fn report(&self) -> ExitCode {
        match self {
            Stop::Failed(error) => {
                say(error);
                ExitCode::from(error.kind.exit_status())
            }
            Stop::Usage(error) => {
                say(error);
                ExitCode::from(STATUS_USAGE)
            }
            Stop::OutputClosed => ExitCode::SUCCESS,
            Stop::Interrupted => {
                eprintln!("interrupted");
                ExitCode::from(STATUS_INTERRUPTED)
            }
        }
    }
}

fn say(error: &Error) {
    eprintln!("error: {}", printable_lines(&error.message));
    if let Some(advice) = &error.advice {
        printable_lines(advice).lines().for_each(|line| eprintln!("  {line}"));
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// What a failure to open, read or write a file is, in terms that say what to do.
pub fn file_error(action: &str, path: &std::path::Path, error: &io::Error) -> Error {
    let what = format!("cannot {action} {}: {}", path.display(), reason(error));
    match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(what).advise("check the path"),
        io::ErrorKind::PermissionDenied => Error::invalid(what).advise("check who may use it"),
        _ => Error::invalid(what),
    }
}

/// The system's words without the number that Rust puts behind them.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

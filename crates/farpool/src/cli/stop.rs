//! The reasons why a command ends without success, with the message and the exit status of each.

use super::terminal::printable_lines;
use farpool::Error;
use std::io;
use std::process::ExitCode;

/// Exit status for an invalid command line; the same as the argument parser's own.
const STATUS_USAGE: u8 = 2;

/// Exit status after Ctrl-C: 128 plus the number of the signal, as shells set it.
pub const STATUS_INTERRUPTED: u8 = 130;

/// Reason why a command ends without success.
#[derive(Debug)]
pub enum Stop {
    /// The command failed.
    Failed(Error),
    /// The command line is invalid.
    Usage(Error),
    /// The reader of the output has closed it, for example `head`. Not an error.
    OutputClosed,
    /// Ctrl-C was pressed.
    Interrupted,
}

/// Result of a command or of a part of it.
pub type Outcome<T = ()> = Result<T, Stop>;

impl Stop {
    /// Creates the error for an invalid command line.
    pub fn usage(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Stop::Usage(Error::invalid(message).advise(advice))
    }

    /// Converts an error of writing to standard output; a closed output becomes [`Stop::OutputClosed`].
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::OutputClosed,
            _ => Stop::Failed(Error::invalid(format!("cannot write the result: {error}"))),
        }
    }

    /// Prints the reason on standard error and returns the exit status.
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

/// Converts a failure to open, read or write a file to an error with advice.
pub fn file_error(action: &str, path: &std::path::Path, error: &io::Error) -> Error {
    let what = format!("cannot {action} {}: {}", path.display(), reason(error));
    match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(what).advise("check the path"),
        io::ErrorKind::PermissionDenied => Error::invalid(what).advise("check who may use it"),
        _ => Error::invalid(what),
    }
}

/// Returns the operating system's message without the error number that Rust appends.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

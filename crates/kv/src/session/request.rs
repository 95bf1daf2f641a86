//! The checks of a client's request before a session executes or queues it, and the error replies of failed checks.

use super::Host;
use crate::commands::{Args, Command, Place, Refusal, is_long_text};
use std::borrow::Cow;

impl Command {
    /// Checks the number of arguments, and that the subcommand they name exists.
    ///
    /// # Errors
    /// The error reply to send to the client.
    pub fn check(&self, args: &Args<'_>) -> Result<(), Refusal> {
        if !self.takes(args.len()) {
            return Err(wrong_number(self));
        }
        match args {
            [_, subcommand, ..] if self.lacks_subcommand(args) => Err(unknown_subcommand(self, subcommand)),
            _ => Ok(()),
        }
    }
}

/// Returns the command of a request, or an error reply if the command does not exist, has the wrong number of
/// arguments, or needs a right that the client lacks.
pub(super) fn checked(
    command: Option<&'static Command>,
    args: &Args<'_>,
    host: &dyn Host,
) -> Result<&'static Command, Refusal> {
    let command = command.ok_or(UNKNOWN)?;
    if let Some(of_host) = command.of_host() {
        host.check(of_host, args)?;
    }
    command.check(args)?;
    if command.writes(args) && !host.may_write() {
        return Err(MAY_NOT_WRITE.into());
    }
    Ok(command)
}

/// Returns whether a command may take longer than a step, judging by its arguments alone.
#[inline]
pub(super) fn is_long_request(command: &Command, args: &Args<'_>, host: &dyn Host) -> bool {
    match command.place {
        Place::Keyspace(_) => is_long_text(command, args),
        Place::Host(of_host) => host.is_long(of_host, args),
        Place::Session(_) | Place::Subcommands => false,
    }
}

/// Error of a command that changes keys, for a client whose access token gives no right to write.
pub(super) const MAY_NOT_WRITE: &str = "NOPERM this token may not write: use one with the role write";

/// Placeholder for the error of an unknown command. [`Session::execute_known`](super::Session::execute_known) replaces
/// it by the result of [`unknown`], which quotes bytes of the client that need not be valid UTF-8.
pub(super) const UNKNOWN: &str = "ERR unknown command";

/// Returns the error reply to a command with the wrong number of arguments.
pub fn wrong_number(command: &Command) -> Refusal {
    Refusal(Cow::Owned(format!("ERR wrong number of arguments for '{}' command", command.name)))
}

/// Returns the error reply to a command whose subcommand does not exist.
fn unknown_subcommand(command: &Command, name: &[u8]) -> Refusal {
    let (command, name) = (command.name.to_ascii_uppercase(), name[..name.len().min(64)].escape_ascii());
    Refusal(Cow::Owned(format!("ERR unknown subcommand '{name}'. Try {command} HELP.")))
}

/// Maximum bytes of the name, and of all arguments, that the error of an unknown command quotes; as in Redis.
const SHOWN_BYTES: usize = 128;

/// Returns the error reply to an unknown command. It quotes the name and the arguments, each up to the first zero byte,
/// as Redis does.
pub(super) fn unknown(args: &Args<'_>) -> Vec<u8> {
    let shown = |text: &[u8], most: usize| {
        let text = &text[..text.len().min(most)];
        text.iter().copied().take_while(|byte| *byte != 0).collect::<Vec<u8>>()
    };
    let mut told = Vec::new();
    for argument in &args[1..] {
        if told.len() >= SHOWN_BYTES {
            break;
        }
        let argument = shown(argument, SHOWN_BYTES - told.len());
        told.extend([b"'", &*argument, b"' "].concat());
    }
    let name = shown(args[0], SHOWN_BYTES);
    [b"ERR unknown command '", &*name, b"', with args beginning with: ", &told].concat()
}

//! The commands that read and change keys, as in Redis.
//!
//! Each command of the Redis protocol has one row in [`COMMANDS`] (`table.rs`), with everything that must be known
//! before it is executed, and one function. The functions of commands on keys are in this module and are called while
//! the shards of the keys are locked. The functions of commands about transactions are in `session.rs`; those about the
//! connection belong to the session's host ([`Host`](crate::Host)).

mod bits;
mod changes;
mod command;
mod context;
mod expiry;
mod handle;
mod hashes;
mod hyperloglog;
mod keys;
mod lookup;
mod numbers;
mod object;
mod options;
mod pattern;
mod predicates;
mod resources;
mod room;
mod rows;
mod spaces;
mod strings;
mod table;
#[cfg(test)]
mod tests;
mod work;

pub use changes::{ChangeAgain, KeyChange, KeyState};
pub use command::{Command, KeyUse, Keys};
pub(crate) use command::{KeyspaceFunction, Place};
pub(crate) use context::Context;
use handle::KeyHandle;
pub use lookup::command;
pub use pattern::Pattern;
pub(crate) use predicates::Predicates;
pub(crate) use resources::CommandResources;
pub(crate) use table::SessionCommand;
pub use table::{COMMANDS, HostCommand};
pub(crate) use work::{WorkOfExec, is_long_command, is_long_text, work_of_arguments};

use crate::resp::parse_integer;
use farpool_model::{Error, ErrorKind};
use std::borrow::Cow;

/// The arguments of a command; the first is its name.
pub type Args<'a> = [&'a [u8]];

/// The error reply to a refused command: a message that begins with an error code such as `ERR`, as in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub Cow<'static, str>);

impl Refusal {
    /// Returns the error reply with the error's message and advice, with the code `ERR`.
    pub fn with_advice(error: Error) -> Refusal {
        let advice = error.advice.map_or_else(String::new, |advice| format!("; {advice}"));
        Refusal(Cow::Owned(format!("ERR {}{advice}", error.message)))
    }
}

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Refusal(Cow::Borrowed(text))
    }
}

impl From<Error> for Refusal {
    /// Converts an error of a table of keys: a compressed value is corrupt (code `ERR`), or memory is too small (code
    /// `OOM`).
    fn from(error: Error) -> Self {
        if error.kind == ErrorKind::Corrupt {
            return Refusal(Cow::Owned(format!("ERR {}", error.message)));
        }
        Refusal(Cow::Owned(format!("OOM command not allowed: {}", error.message)))
    }
}

type Done = std::result::Result<(), Refusal>;

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_FLOAT: &str = "ERR value is not a valid float";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_KEY: &str = "ERR no such key";
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// Error reply to a command whose reply would be larger than the client may have in memory.
pub(crate) const TOO_MUCH: &str =
    "ERR the reply is larger than this client may have in memory: ask for less at once";

/// Parses an argument as a signed 64-bit integer; the error is that of Redis.
fn integer(text: &[u8]) -> std::result::Result<i64, Refusal> {
    parse_integer(text).ok_or_else(|| NOT_INTEGER.into())
}

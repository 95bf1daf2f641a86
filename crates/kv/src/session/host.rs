//! The interface between a session (the state of a client of the key-value store) and its host, the connection or
//! program that owns the session. The host executes the commands about the connection and knows the client's rights.

use super::ExecutedCommand;
use super::request::UNKNOWN;
use crate::commands::{Args, Command, HostCommand, Refusal};
use crate::cut::ReadEntry;
use crate::resp::Replies;
use crate::spaces::Space;
use farpool_model::{Expr, TableName};
use std::any::Any;
use std::sync::Arc;

/// The owner of a session: executes the commands that do not concern keys, such as those about the connection, and
/// answers questions about the client.
pub trait Host {
    /// Checks a command of the host before it is executed or queued. The default implementation, for a host without
    /// commands, refuses each as unknown.
    fn check(&self, command: HostCommand, args: &Args<'_>) -> Result<(), Refusal> {
        let _ = (command, args);
        Err(UNKNOWN.into())
    }

    /// Executes a command of the host and appends its reply. `command` is the command's row in the table of commands
    /// and the host's id of it.
    fn run(
        &mut self,
        command: (&'static Command, HostCommand),
        args: &Args<'_>,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refusal> {
        let _ = (command, args, replies);
        Err(UNKNOWN.into())
    }

    /// Returns whether the client has the right to change keys.
    fn may_write(&self) -> bool;

    /// Checks that the schema in which a new named space is created exists. Returns a guard that prevents dropping the
    /// schema until the guard is dropped; `None` if the schema cannot be dropped anyway.
    fn hold_schema(&self, name: &TableName) -> Result<Option<Box<dyn Any>>, Refusal> {
        match name.is_public() {
            true => Ok(None),
            false => Err("ERR there are no schemas here".into()),
        }
    }

    /// Returns whether a command of the host may take longer than a step or block on shards, so that it is deferred in
    /// short mode.
    fn is_long(&self, command: HostCommand, args: &Args<'_>) -> bool {
        let _ = (command, args);
        false
    }

    /// Returns whether the client has closed the connection. A command that only reads then stops early.
    fn has_gone(&self) -> bool {
        false
    }

    /// Called after each command of a transaction, for statistics.
    fn ran(&mut self, ran: ExecutedCommand) {
        let _ = ran;
    }

    /// Evaluates an SQL condition on columns for each of `entries`, as of time `now`; returns one result per entry.
    /// `space` is the named space of the entries, if any.
    ///
    /// # Errors
    /// When a value that the condition reads is not valid UTF-8, or the host does not evaluate conditions.
    fn judge(
        &mut self,
        condition: &Expr,
        space: Option<&Arc<Space>>,
        entries: &[ReadEntry<'_>],
        now: u64,
    ) -> Result<Vec<bool>, Refusal> {
        let _ = (condition, space, entries, now);
        Err("ERR conditions on columns are not carried out here".into())
    }
}

/// A host without commands of its own, whose client may change keys; for tests and programs without connections.
#[derive(Debug)]
pub struct NoHost;

impl Host for NoHost {
    fn may_write(&self) -> bool {
        true
    }
}

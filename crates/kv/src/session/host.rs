//! The interface between a session and its host, the connection or program that it belongs to.

use super::ExecutedCommand;
use super::request::UNKNOWN;
use crate::commands::{Args, Command, HostCommand, Refusal};
use crate::cut::ReadEntry;
use crate::resp::Replies;
use crate::spaces::Space;
use farpool_model::{Expr, TableName};
use std::any::Any;
use std::sync::Arc;

/// A handler for commands that do not concern keys, such as those about the connection.
pub trait Host {
    /// Checks a command of the host before it is executed or queued. A host without commands does not know it.
    fn check(&self, command: HostCommand, args: &Args<'_>) -> Result<(), Refusal> {
        let _ = (command, args);
        Err(UNKNOWN.into())
    }

    /// Executes a command of the host, whose row is `command`.
    fn run(
        &mut self,
        command: (&'static Command, HostCommand),
        args: &Args<'_>,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refusal> {
        let _ = (command, args, replies);
        Err(UNKNOWN.into())
    }

    /// Returns whether the client may change keys.
    fn may_write(&self) -> bool;

    /// Checks that the schema of a new space exists. The schema cannot be dropped while the returned guard lives.
    fn hold_schema(&self, name: &TableName) -> Result<Option<Box<dyn Any>>, Refusal> {
        match name.is_public() {
            true => Ok(None),
            false => Err("ERR there are no schemas here".into()),
        }
    }

    /// Returns whether a command of the host may take longer than a step, or waits for shards.
    fn is_long(&self, command: HostCommand, args: &Args<'_>) -> bool {
        let _ = (command, args);
        false
    }

    /// Returns whether the connection has closed; a command that only reads then stops.
    fn has_gone(&self) -> bool {
        false
    }

    /// Reports a finished command of a transaction.
    fn ran(&mut self, ran: ExecutedCommand) {
        let _ = ran;
    }

    /// Evaluates a condition on columns for each entry, as of time `now`. `space` is the named space of the entries, if
    /// any.
    ///
    /// # Errors
    /// When a value that the condition reads is not valid UTF-8 text.
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

/// A host without commands, whose client may change keys.
#[derive(Debug)]
pub struct NoHost;

impl Host for NoHost {
    fn may_write(&self) -> bool {
        true
    }
}

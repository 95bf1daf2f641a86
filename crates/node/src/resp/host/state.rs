//! The state of a client, by what it is about.

use crate::Caller;
use crate::node::{AccessPass, ConnectionGuard};
use crate::resp::clients::{BatchFacts, Clients, ConnectionRecord, Membership, Tallies};
use crate::resp::config::DeferredAction;
use crate::resp::slow::SlowLog;
use farpool_kv::resp::Protocol;
use farpool_kv::{ExecutedCommand, Keyspace};
use farpool_memory::Reservation;
use std::sync::Arc;

/// Identity of a client and its rights.
pub(super) struct Identity {
    /// State that other clients of the tenant can read.
    pub record: Arc<ConnectionRecord>,
    pub name: String,
    pub admitted: Option<AdmittedClient>,
    pub pass: Option<AccessPass>,
}

/// An authenticated client, or one of a node without tokens.
pub(super) struct AdmittedClient {
    pub caller: Caller,
    pub keys: Arc<Keyspace>,
    pub slow: Arc<SlowLog>,
    pub buffers: Reservation,
    pub clients: Arc<Clients>,
    pub _member: Membership,
    /// Counts the connection against the node's limit.
    pub _guard: ConnectionGuard,
}

/// Protocol version and state of the connection.
pub(in crate::resp) struct ProtocolState {
    pub version: Protocol,
    pub reply_mode: ReplyMode,
    /// Whether the connection closes after the reply.
    pub is_leaving: bool,
}

/// The effect of `CLIENT REPLY`: which commands get no reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::resp) enum ReplyMode {
    #[default]
    None,
    /// The next command.
    Next,
    /// The current command.
    This,
    All,
}

impl ReplyMode {
    /// Advances to the next command; returns whether the command that has just run gets no reply.
    pub fn step(&mut self) -> bool {
        let is_muted = *self != ReplyMode::None;
        *self = match *self {
            ReplyMode::Next => ReplyMode::This,
            ReplyMode::This => ReplyMode::None,
            other => other,
        };
        is_muted
    }
}

/// The transaction that the running command is in.
#[derive(Default)]
pub(in crate::resp) struct TransactionState {
    /// Whether commands are queued by `MULTI`.
    pub is_queueing: bool,
    /// Actions deferred until the transaction has released its shards.
    pub deferred: Vec<DeferredAction>,
    /// End of the transaction's latest command, in nanoseconds of the node's clock.
    pub marked_ns: u64,
}

/// Requests to the session that are carried out when the running command has ended.
#[derive(Default)]
pub(super) struct SessionOrders {
    /// Whether `RESET` was executed.
    pub is_reset: bool,
    /// Whether the client now belongs to another tenant than before.
    pub has_moved: bool,
    /// Number of the latest log record that replies of commands of the host depend on.
    pub recorded: Option<u64>,
}

/// Counters and facts that other clients can read once they are published.
pub(in crate::resp) struct Usage {
    /// Facts and command counts of the current batch; published at its end.
    pub facts: BatchFacts,
    pub counted: Tallies,
    /// The latest command.
    pub ran: ExecutedCommand,
}

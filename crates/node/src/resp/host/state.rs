//! The types of which the state of a client of the Redis protocol consists: its identity, the protocol version, the
//! transaction, and counters.

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
    /// Data that other clients of the tenant can read.
    pub record: Arc<ConnectionRecord>,
    pub name: String,
    pub admitted: Option<AdmittedClient>,
    pub pass: Option<AccessPass>,
}

/// Parts of its tenant that an authenticated client has (keys, slow log, list of clients); also for a client that needs no
/// token.
pub(super) struct AdmittedClient {
    pub caller: Caller,
    pub keys: Arc<Keyspace>,
    pub slow: Arc<SlowLog>,
    pub buffers: Reservation,
    pub clients: Arc<Clients>,
    pub _member: Membership,
    /// Guard that counts the connection as one of its tenant until it is dropped.
    pub _guard: ConnectionGuard,
}

/// Protocol version and state of the connection.
pub(in crate::resp) struct ProtocolState {
    pub version: Protocol,
    pub reply_mode: ReplyMode,
    /// Whether the connection closes after the reply.
    pub is_leaving: bool,
}

/// The commands that get no reply (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::resp) enum ReplyMode {
    #[default]
    None,
    /// The next command gets no reply (`CLIENT REPLY SKIP` is being executed).
    Next,
    /// The current command gets no reply.
    This,
    All,
}

impl ReplyMode {
    /// Advances the reply mode (`CLIENT REPLY`) to the next command; returns whether the command just executed gets no
    /// reply.
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

/// The transaction that the current command is part of.
#[derive(Default)]
pub(in crate::resp) struct TransactionState {
    /// Whether commands are being queued, that is, the client has sent `MULTI`.
    pub is_queueing: bool,
    /// Actions to be executed when the transaction has released its shards.
    pub deferred: Vec<DeferredAction>,
    /// When the latest command of the transaction ended, in nanoseconds of the node's clock.
    pub marked_ns: u64,
}

/// Changes of the session that the current command has requested; made when the command has ended.
#[derive(Default)]
pub(super) struct SessionOrders {
    /// Whether `RESET` was executed, so that the session must be reset.
    pub is_reset: bool,
    /// Whether the client belongs to another tenant than before.
    pub has_moved: bool,
    /// Sequence number of the latest log record that replies of the host's commands depend on.
    pub recorded: Option<u64>,
}

/// Data and counters of the current batch, which other clients can read when they are published.
pub(in crate::resp) struct Usage {
    /// Data of the current batch, published at its end; the next field has the command counters.
    pub facts: BatchFacts,
    pub counted: Tallies,
    /// The command that was executed last, and its outcome.
    pub ran: ExecutedCommand,
}

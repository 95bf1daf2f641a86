//! A client of the Redis protocol, which executes its commands: those about keys by its session
//! ([`farpool_kv::Session`]), and, as the session's host, those about the connection and the node (`host/commands.rs`).

mod auth;
mod commands;
mod slowlog;
mod state;

pub(super) use auth::TOO_MANY;
pub(super) use commands::Done;
pub(super) use state::ReplyMode;

use super::clients::{BatchFacts, Buffers, Clients, ConnectionRecord, Tallies};
use super::fair::TenantKey;
use super::slow::SlowLog;
use super::tenants::Tenants;
use crate::Node;
use crate::node::AccessPass;
use crate::spaces::LastCondition;
use farpool_keystore::{Fsync, KeyLog, Keyspaces};
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{
    Args, Command, DeferReason, ExecutedCommand, Host, HostCommand, Keyspace, LookAhead, Outcome, Refusal,
    Session, TimeAndRandom, command,
};
use farpool_memory::Reservation;
use farpool_model::{Result, TenantName};
use state::{AdmittedClient, Identity, ProtocolState, SessionOrders, TransactionState, Usage};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Version of Redis whose commands are implemented. Reported to clients, some of which check it.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// The state of one client of the Redis protocol, except its session. The client may not be authenticated yet.
pub(super) struct Client {
    node: Arc<Node>,
    tenants: Arc<Tenants>,
    identity: Identity,
    pub(super) protocol: ProtocolState,
    pub(super) transaction: TransactionState,
    /// Changes of the session that the current command has requested; made when the command has ended.
    orders: SessionOrders,
    pub(super) usage: Usage,
    /// Time of the current command, in milliseconds since the epoch.
    now_ms: u64,
    /// Cache of the compiled condition on columns that the client used last (in `FP.SCAN`, for example).
    judge: LastCondition,
    /// Whether the connection has closed; set while a command is executed by another thread.
    gone: Arc<AtomicBool>,
}

impl Client {
    pub fn new(
        node: &Arc<Node>,
        tenants: &Arc<Tenants>,
        number: u64,
        (peer, local): (String, String),
    ) -> Self {
        let now_ms = node.keyspaces().time().now_ms();
        Client {
            node: Arc::clone(node),
            tenants: Arc::clone(tenants),
            identity: Identity {
                record: Arc::new(ConnectionRecord::new(number, peer, local, now_ms)),
                name: String::new(),
                admitted: None,
                pass: None,
            },
            protocol: ProtocolState {
                version: Protocol::Resp2,
                reply_mode: ReplyMode::None,
                is_leaving: false,
            },
            transaction: TransactionState::default(),
            orders: SessionOrders::default(),
            usage: Usage {
                facts: BatchFacts { used_ms: now_ms, ..BatchFacts::default() },
                counted: Tallies::default(),
                ran: ExecutedCommand { name: "", outcome: Outcome::Queued },
            },
            now_ms,
            judge: LastCondition::default(),
            gone: Arc::default(),
        }
    }

    /// Returns the data of this connection that other clients of the tenant can read.
    pub fn record(&self) -> &Arc<ConnectionRecord> {
        &self.identity.record
    }

    /// Returns whether the client has authenticated again since [`Client::take_pass`].
    pub fn has_new_pass(&self) -> bool {
        self.identity.pass.is_some()
    }

    /// Returns the client's tenant; `None` before authentication.
    pub fn tenant(&self) -> Option<&TenantName> {
        self.identity.admitted.as_ref().map(|admitted| admitted.caller.tenant())
    }

    /// Returns the number that identifies the client's tenant in the scheduler of the serving thread; 0 before
    /// authentication.
    pub fn tenant_key(&self) -> TenantKey {
        self.identity.admitted.as_ref().map_or(0, |admitted| Arc::as_ptr(&admitted.keys).addr())
    }

    /// Returns the flag to set when the connection has closed.
    pub fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gone)
    }

    /// Returns whether a command may drop queued commands and watched keys (as `RESET` and `AUTH` may).
    pub fn would_reset(&self, command: Option<&Command>) -> bool {
        let of_host = command.and_then(Command::of_host);
        matches!(of_host, Some(HostCommand::Auth | HostCommand::Hello | HostCommand::Reset))
    }

    /// Returns the list of clients of the same tenant, including this client; `None` before authentication.
    pub fn clients(&self) -> Option<&Arc<Clients>> {
        self.identity.admitted.as_ref().map(|admitted| &admitted.clients)
    }

    pub fn name(&self) -> &str {
        &self.identity.name
    }

    pub fn set_name(&mut self, name: String) {
        self.identity.record.set_name(&name);
        self.identity.name = name;
    }

    /// Makes the connection close after the reply.
    pub fn leave(&mut self) {
        self.protocol.is_leaving = true;
    }

    /// Notes the sizes of the connection's buffers when a batch begins.
    pub fn note_buffers(&mut self, buffers: Buffers) {
        self.usage.facts.buffers = buffers;
    }

    /// Returns the time of the keys' clock, in milliseconds since the epoch.
    pub fn unix_ms(&self) -> u64 {
        self.node.keyspaces().time().now_ms()
    }

    /// Returns by how many milliseconds the keys' clock is ahead of the machine's clock.
    pub fn clock_ahead_ms(&self) -> i64 {
        self.node.keyspaces().time().ahead_ms()
    }

    /// Returns the keyspaces of all tenants.
    pub fn keyspaces(&self) -> &Arc<Keyspaces> {
        self.node.keyspaces()
    }

    /// Returns the uptime of the node in nanoseconds.
    pub fn up_ns(&self) -> u64 {
        self.node.clock().now_ns()
    }

    /// Returns the log of changes of keys; `None` if keys are in memory only.
    pub fn key_log(&self) -> Option<&Arc<KeyLog>> {
        self.node.keyspaces().log()
    }

    /// Returns whether the current command is part of a transaction, which holds the shards of its keys.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_queueing
    }

    /// Fails with `NOPERM` if the client has no right to change keys.
    pub fn check_may_write(&self) -> Done {
        match self.may_write() {
            true => Ok(()),
            false => Err("NOPERM this token may not write: use one with the role write".into()),
        }
    }

    /// Returns the slow log of the client's tenant; `None` before authentication.
    pub fn slow_log(&self) -> Option<&SlowLog> {
        self.identity.admitted.as_ref().map(|admitted| &*admitted.slow)
    }

    /// Counts a command that took `ns` nanoseconds and ended at `unix_ms`, and adds it to the slow log if it was slow.
    /// Commands that carry a token are not logged, nor are those that were rejected before they began: a misspelt
    /// `AUTH` may carry a token, too.
    #[inline]
    pub fn took(&mut self, args: &Args<'_>, ns: u64, unix_ms: u64) {
        self.count(self.usage.ran, ns);
        self.usage.facts.used_ms = unix_ms;
        let Some(log) = self.slow_log().filter(|log| log.is_slow(ns)) else { return };
        let of_host = command(args).and_then(Command::of_host);
        let is_secret = matches!(of_host, Some(HostCommand::Auth | HostCommand::Hello));
        if !is_secret && self.usage.ran.outcome != Outcome::Rejected {
            let is_token = |text: &[u8]| self.is_token(text);
            log.add(args, is_token, (ns, unix_ms), (&self.identity.record.peer, &self.identity.name));
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol.version
    }

    pub fn is_admitted(&self) -> bool {
        self.identity.admitted.is_some()
    }

    pub fn is_leaving(&self) -> bool {
        self.protocol.is_leaving
    }

    /// Returns the time of the current command, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns the durability mode of the log of keys; `None` if there is no log.
    pub fn fsync(&self) -> Option<Fsync> {
        self.node.keyspaces().log().map(|log| log.fsync())
    }

    /// Notes the sequence number of a log record that the reply depends on.
    pub fn note_recorded(&mut self, number: Option<u64>) {
        self.orders.recorded = self.orders.recorded.max(number);
    }

    /// Returns the keyspace of the client's tenant; `None` before authentication.
    pub fn keys(&self) -> Option<Arc<Keyspace>> {
        self.identity.admitted.as_ref().map(|admitted| Arc::clone(&admitted.keys))
    }

    /// Returns whether `keys` is the keyspace of the client's tenant.
    pub fn has_keys(&self, keys: Option<&Arc<Keyspace>>) -> bool {
        self.identity.admitted.as_ref().map(|admitted| Arc::as_ptr(&admitted.keys)) == keys.map(Arc::as_ptr)
    }

    /// Takes the [`AccessPass`], which tells when the connection must be closed; `None` if there is none.
    pub fn take_pass(&mut self) -> Option<AccessPass> {
        self.identity.pass.take()
    }

    /// Puts back the [`AccessPass`] (authorization of the connection) that [`Client::take_pass`] returned, unless the
    /// client has authenticated again since.
    pub fn return_pass(&mut self, pass: AccessPass) {
        self.identity.pass.get_or_insert(pass);
    }

    /// Removes the client from the list of its tenant; returns the keyspace of the tenant and the client's memory
    /// reservation.
    pub fn part(self) -> Option<(Arc<Keyspace>, Reservation)> {
        self.identity.admitted.map(|admitted| (admitted.keys, admitted.buffers))
    }

    /// Returns how many more bytes of memory the client's tenant can reserve.
    pub fn room(&self) -> usize {
        self.identity.admitted.as_ref().map_or(0, |admitted| admitted.buffers.account().free())
    }

    /// Charges `ns` nanoseconds of work to the tenant's share of time.
    pub fn charge_time(&self, ns: u64) {
        if let Some(AdmittedClient { caller, .. }) = &self.identity.admitted {
            caller.charge(ns);
        }
    }

    /// Sets the connection's memory reservation to `bytes`.
    ///
    /// # Errors
    /// `OverLimit` when the tenant may reserve no more memory outside the pool.
    pub fn charge(&mut self, bytes: usize) -> Result<()> {
        let Some(AdmittedClient { buffers, .. }) = &mut self.identity.admitted else { return Ok(()) };
        match bytes.checked_sub(buffers.bytes()) {
            Some(more) => buffers.try_grow(more),
            None => {
                buffers.set(bytes);
                Ok(())
            }
        }
    }

    /// Executes a command on the keyspace of the client's tenant and appends one reply. If the command is deferred,
    /// appends no reply and returns the reason.
    pub fn execute(
        &mut self,
        keys: Option<&Keyspace>,
        session: &mut Session,
        (args, ahead): (&Args<'_>, LookAhead),
        moment: TimeAndRandom,
        replies: &mut Replies<'_>,
    ) -> Option<DeferReason> {
        (self.now_ms, self.usage.facts.space) = (moment.now, session.space());
        self.transaction.is_queueing = session.is_queueing();
        let before = replies.bytes();
        self.execute_aloud(keys, session, (args, ahead), moment, replies);
        if let Outcome::Deferred(why) = self.usage.ran.outcome {
            return Some(why);
        }
        if self.protocol.reply_mode.step() {
            replies.truncate(before);
        }
        None
    }

    fn execute_aloud(
        &mut self,
        keys: Option<&Keyspace>,
        session: &mut Session,
        (args, ahead): (&Args<'_>, LookAhead),
        moment: TimeAndRandom,
        replies: &mut Replies<'_>,
    ) {
        let before = replies.bytes();
        let Some(keys) = keys else {
            if let Err(Refusal(text)) = self.execute_of_stranger(args, replies) {
                replies.truncate(before);
                replies.error(&*text);
            }
            // A client that is not authenticated has no session that `RESET` could reset.
            self.orders = SessionOrders::default();
            return;
        };
        if self.transaction.is_queueing {
            self.transaction.marked_ns = self.node.clock().now_ns();
        }
        self.usage.ran = session.execute_known(keys, (args, ahead), moment, self, replies);
        self.judge.end_command();
        if !self.transaction.deferred.is_empty()
            && let Err(Refusal(text)) = self.do_later()
        {
            replies.truncate(before);
            replies.error(&*text);
        }
        let SessionOrders { is_reset, has_moved, recorded } = std::mem::take(&mut self.orders);
        if let Some(number) = recorded {
            session.note_recorded(number);
        }
        if is_reset {
            session.reset(keys);
        } else if has_moved {
            session.leave(keys);
        }
    }

    /// Executes a command of a client that is not authenticated, of which only a few are allowed.
    fn execute_of_stranger(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        self.usage.ran = ExecutedCommand { name: "", outcome: Outcome::Done };
        let command = command(args).filter(|command| command.has_flag("no_auth"));
        let found = command.and_then(|command| Some((command, command.of_host()?)));
        let (command, of_host) = found.ok_or("NOAUTH Authentication required.")?;
        self.check(of_host, args)?;
        command.check(args)?;
        self.usage.ran.name = command.name;
        self.run((command, of_host), args, replies)
    }
}

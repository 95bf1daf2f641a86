//! A client of the Redis protocol: its state, and the commands about the connection and the node.

mod auth;
mod slowlog;

pub(super) use auth::TOO_MANY;

use super::client::ReplyMode;
use super::clients::{BatchFacts, Buffers, Clients, ConnectionRecord, Membership, Tallies};
use super::config::{self, DeferredAction};
use super::fair::TenantKey;
use super::introspect;
use super::slow::SlowLog;
use super::tenants::Tenants;
use crate::node::{AccessPass, ConnectionGuard};
use crate::spaces::LastCondition;
use crate::{Caller, Node};
use auth::token_of;
use farpool_keystore::{Fsync, KeyLog, Keyspaces};
use farpool_kv::resp::{Protocol, Replies};
use farpool_kv::{
    Args, DeferReason, ExecutedCommand, Host, Keyspace, LookAhead, Outcome, Pattern, ReadEntry, Refusal,
    Session, Space, TimeAndRandom, wrong_number,
};
use farpool_memory::Reservation;
use farpool_model::limits::KV_STEP_WORK_MAX;
use farpool_model::{Expr, Result, TableName, TenantName};
use slowlog::latency;
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Version of Redis whose commands are implemented; clients check it.
pub(super) const REDIS_VERSION: &str = "7.0.15";

pub(super) type Done = std::result::Result<(), Refusal>;

/// Commands implemented here: their names and numbers of arguments, encoded as in `Command::arity`.
pub(super) const OWN: &[(&str, isize)] = &[
    ("auth", -2),
    ("bgsave", -1),
    ("client", -2),
    ("command", -1),
    ("config", -2),
    ("echo", 2),
    ("hello", -1),
    ("info", -1),
    ("latency", -2),
    ("lastsave", 1),
    ("ping", -1),
    ("quit", -1),
    ("reset", 1),
    ("slowlog", -2),
    ("time", 1),
];

/// Commands allowed before authentication.
const OF_STRANGERS: &[&str] = &["auth", "hello", "quit", "reset"];

/// Most clients that a command may visit within a step.
const STEP_CLIENTS: usize = 128;

/// The state of one connection, which may not be authenticated yet.
pub(super) struct Client {
    node: Arc<Node>,
    tenants: Arc<Tenants>,
    /// State that other clients of the tenant can read.
    record: Arc<ConnectionRecord>,
    name: String,
    protocol: Protocol,
    now_ms: u64,
    /// Facts and command counts of the current batch; published at its end.
    pub(super) facts: BatchFacts,
    pub(super) counted: Tallies,
    /// The latest command, and the name of the latest one implemented here.
    ran: ExecutedCommand,
    pub(super) ran_name: &'static str,
    /// End of the transaction's latest command, in nanoseconds of the node's clock.
    marked_ns: u64,
    pub(super) reply_mode: ReplyMode,
    /// Actions deferred until the transaction has released its shards.
    pub(super) deferred: Vec<DeferredAction>,
    admitted: Option<AdmittedClient>,
    pass: Option<AccessPass>,
    is_leaving: bool,
    is_reset: bool,
    /// Whether the client now belongs to another tenant than before.
    has_moved: bool,
    /// Whether commands are queued by `MULTI`.
    is_queueing: bool,
    /// Cache of the condition on columns that was compiled last.
    judge: LastCondition,
    /// Number of the latest log record that replies of commands implemented here depend on.
    recorded: Option<u64>,
    /// Whether the connection has closed while a command runs on another thread.
    gone: Arc<AtomicBool>,
}

struct AdmittedClient {
    caller: Caller,
    keys: Arc<Keyspace>,
    slow: Arc<SlowLog>,
    buffers: Reservation,
    clients: Arc<Clients>,
    _member: Membership,
    /// Counts the connection against the node's limit.
    _guard: ConnectionGuard,
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
            record: Arc::new(ConnectionRecord::new(number, peer, local, now_ms)),
            name: String::new(),
            protocol: Protocol::Resp2,
            now_ms,
            facts: BatchFacts { used_ms: now_ms, ..BatchFacts::default() },
            counted: Tallies::default(),
            ran: ExecutedCommand { name: "", outcome: Outcome::Queued },
            ran_name: "",
            marked_ns: 0,
            reply_mode: ReplyMode::None,
            deferred: Vec::new(),
            admitted: None,
            pass: None,
            is_leaving: false,
            is_reset: false,
            has_moved: false,
            is_queueing: false,
            judge: LastCondition::default(),
            recorded: None,
            gone: Arc::default(),
        }
    }

    /// Returns the state that other clients of the tenant can read.
    pub fn record(&self) -> &Arc<ConnectionRecord> {
        &self.record
    }

    /// Returns whether the client has authenticated again since [`Client::take_pass`].
    pub fn has_new_pass(&self) -> bool {
        self.pass.is_some()
    }

    /// Returns the client's tenant, or `None` before authentication.
    pub fn tenant(&self) -> Option<&TenantName> {
        self.admitted.as_ref().map(|admitted| admitted.caller.tenant())
    }

    /// Returns the key that identifies the tenant when turns are shared; 0 before authentication.
    pub fn tenant_key(&self) -> TenantKey {
        self.admitted.as_ref().map_or(0, |admitted| Arc::as_ptr(&admitted.keys).addr())
    }

    /// Returns the flag that is set when the connection has closed.
    pub fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gone)
    }

    /// Returns whether a command may reset what the session has begun (`MULTI`, `WATCH`).
    pub fn would_reset(&self, args: &Args<'_>) -> bool {
        matches!(own(args[0]), Some(("auth" | "hello" | "reset", _)))
    }

    /// Returns the clients of the same tenant, this one included.
    pub fn clients(&self) -> Option<&Arc<Clients>> {
        self.admitted.as_ref().map(|admitted| &admitted.clients)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn set_name(&mut self, name: String) {
        self.record.set_name(&name);
        self.name = name;
    }

    /// Closes the connection after the reply.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Notes the sizes of the connection's buffers when a batch begins.
    pub fn note_buffers(&mut self, buffers: Buffers) {
        self.facts.buffers = buffers;
    }

    /// Returns the time of keys, in milliseconds since the epoch.
    pub fn unix_ms(&self) -> u64 {
        self.node.keyspaces().time().now_ms()
    }

    /// Returns by how many milliseconds the time of keys is ahead of the machine's clock.
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

    /// Returns the log that records changes of keys, or `None` without a data directory.
    pub fn key_log(&self) -> Option<&Arc<KeyLog>> {
        self.node.keyspaces().log()
    }

    /// Returns whether the command runs inside a transaction, which holds the shards of its keys.
    pub fn is_in_transaction(&self) -> bool {
        self.is_queueing
    }

    /// Fails with `NOPERM` if the client may not write.
    pub fn check_may_write(&self) -> Done {
        match self.may_write() {
            true => Ok(()),
            false => Err("NOPERM this token may not write: use one with the role write".into()),
        }
    }

    /// Returns the slow log of the client's tenant.
    pub fn slow_log(&self) -> Option<&SlowLog> {
        self.admitted.as_ref().map(|admitted| &*admitted.slow)
    }

    /// Counts a command that took `ns` nanoseconds and ended at `unix_ms`, and adds it to the slow log if it was slow.
    /// Commands that carry a token are not logged, nor are those that were rejected before they began: a misspelt
    /// `AUTH` may carry a token, too.
    #[inline]
    pub fn took(&mut self, args: &Args<'_>, ns: u64, unix_ms: u64) {
        self.count(self.ran, ns, args);
        self.facts.used_ms = unix_ms;
        let Some(log) = self.slow_log().filter(|log| log.is_slow(ns)) else { return };
        let is_secret = matches!(own(args[0]), Some(("auth" | "hello", _)));
        if !is_secret && self.ran.outcome != Outcome::Rejected {
            let is_token = |text: &[u8]| self.is_token(text);
            log.add(args, is_token, (ns, unix_ms), (&self.record.peer, &self.name));
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub fn is_admitted(&self) -> bool {
        self.admitted.is_some()
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Returns the time of the running command, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns the durability mode of the log, or `None` without a log.
    pub fn fsync(&self) -> Option<Fsync> {
        self.node.keyspaces().log().map(|log| log.fsync())
    }

    /// Notes the number of a log record that a reply depends on.
    pub fn note_recorded(&mut self, number: Option<u64>) {
        self.recorded = self.recorded.max(number);
    }

    /// Returns the keyspace of the client's tenant.
    pub fn keys(&self) -> Option<Arc<Keyspace>> {
        self.admitted.as_ref().map(|admitted| Arc::clone(&admitted.keys))
    }

    /// Returns whether `keys` is the keyspace of the client's tenant.
    pub fn has_keys(&self, keys: Option<&Arc<Keyspace>>) -> bool {
        self.admitted.as_ref().map(|admitted| Arc::as_ptr(&admitted.keys)) == keys.map(Arc::as_ptr)
    }

    /// Takes the pass, which tells when the connection must be closed (see `AccessPass`).
    pub fn take_pass(&mut self) -> Option<AccessPass> {
        self.pass.take()
    }

    /// Puts back a pass taken by [`Client::take_pass`], unless a newer one has arrived since.
    pub fn return_pass(&mut self, pass: AccessPass) {
        self.pass.get_or_insert(pass);
    }

    /// Ends the client's membership; returns the keyspace of its tenant and its memory reservation.
    pub fn part(self) -> Option<(Arc<Keyspace>, Reservation)> {
        self.admitted.map(|admitted| (admitted.keys, admitted.buffers))
    }

    /// Returns how many more bytes the client's tenant may reserve.
    pub fn room(&self) -> usize {
        self.admitted.as_ref().map_or(0, |admitted| admitted.buffers.account().free())
    }

    /// Charges `ns` nanoseconds of work to the tenant's share.
    pub fn charge_time(&self, ns: u64) {
        if let Some(AdmittedClient { caller, .. }) = &self.admitted {
            caller.charge(ns);
        }
    }

    /// Sets the connection's memory reservation to `bytes`.
    ///
    /// # Errors
    /// `OverLimit` when the tenant has no more memory for work.
    pub fn charge(&mut self, bytes: usize) -> Result<()> {
        let Some(AdmittedClient { buffers, .. }) = &mut self.admitted else { return Ok(()) };
        match bytes.checked_sub(buffers.bytes()) {
            Some(more) => buffers.try_grow(more),
            None => {
                buffers.set(bytes);
                Ok(())
            }
        }
    }

    /// Executes a command on the keyspace of the client's tenant and appends one reply; returns the reason if the
    /// command was put off.
    pub fn execute(
        &mut self,
        keys: Option<&Keyspace>,
        session: &mut Session,
        (args, ahead): (&Args<'_>, LookAhead),
        moment: TimeAndRandom,
        replies: &mut Replies<'_>,
    ) -> Option<DeferReason> {
        (self.now_ms, self.facts.space) = (moment.now, session.space());
        self.is_queueing = session.is_queueing();
        let before = replies.bytes();
        self.execute_aloud(keys, session, (args, ahead), moment, replies);
        if let Outcome::Deferred(why) = self.ran.outcome {
            return Some(why);
        }
        if self.reply_mode.step() {
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
            self.ran = ExecutedCommand { name: "", outcome: Outcome::Done };
            let is_allowed = own(args[0]).is_some_and(|(name, _)| OF_STRANGERS.contains(&name));
            let done = match is_allowed {
                true => self.knows(args).and_then(|_| self.run(args, replies)),
                false => Err("NOAUTH Authentication required.".into()),
            };
            if let Err(Refusal(text)) = done {
                replies.truncate(before);
                replies.error(&*text);
            }
            return;
        };
        // `QUIT` and `RESET` are never queued by `MULTI`.
        if !ahead.is_of_keys()
            && let Some(("quit" | "reset", _)) = own(args[0])
        {
            self.ran = ExecutedCommand { name: "", outcome: Outcome::Done };
            let known = self.knows(args);
            if known.is_err() {
                self.ran.outcome = Outcome::Rejected;
                session.note_refused();
            }
            if let Err(Refusal(text)) = known.and_then(|_| self.run(args, replies)) {
                replies.error(&*text);
            }
        } else {
            if self.is_queueing {
                self.marked_ns = self.node.clock().now_ns();
            }
            self.ran = session.execute_known(keys, (args, ahead), moment, self, replies);
            self.judge.end_command();
            if !self.deferred.is_empty()
                && let Err(Refusal(text)) = self.do_later()
            {
                replies.truncate(before);
                replies.error(&*text);
            }
            if let Some(number) = self.recorded.take() {
                session.note_recorded(number);
            }
        }
        let has_moved = std::mem::take(&mut self.has_moved);
        if std::mem::take(&mut self.is_reset) {
            session.reset(keys);
        } else if has_moved {
            session.leave(keys);
        }
    }

    fn begin_snapshot(&self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        let is_known = args.len() == 1 || args.len() == 2 && args[1].eq_ignore_ascii_case(b"schedule");
        if !is_known {
            return Err("ERR syntax error".into());
        }
        if !self.may_write() {
            return Err("NOPERM this token may not write: use one with the role write".into());
        }
        let log = self.node.keyspaces().log();
        log.ok_or("ERR keys live in memory only: start the node with --data-dir")?.want_snapshot();
        replies.simple("Background saving started");
        Ok(())
    }
}

impl Host for Client {
    fn is_long(&self, args: &Args<'_>) -> bool {
        let is = |words: &[&str]| {
            let word = args.get(1);
            word.is_some_and(|word| words.iter().any(|other| word.eq_ignore_ascii_case(other.as_bytes())))
        };
        let goes_through_clients = match own(args[0]) {
            // `CONFIG SET` locks all shards.
            Some(("config", _)) if is(&["set"]) => return true,
            // Patterns may take long to compile.
            Some(("config", _)) if is(&["get"]) => return is_long_pattern(&args[2..], config::SETTINGS),
            Some(("command", _)) if is(&["list"]) => return is_long_pattern(&args[2..], introspect::count()),
            Some(("config", _)) => is(&["resetstat"]),
            Some(("client", _)) => is(&["list", "kill"]),
            Some(("info", _)) => true,
            _ => false,
        };
        goes_through_clients && self.clients().is_some_and(|clients| clients.len() > STEP_CLIENTS)
    }

    fn hold_schema(&self, name: &TableName) -> std::result::Result<Option<Box<dyn Any>>, Refusal> {
        let Some(AdmittedClient { caller, .. }) = self.admitted.as_ref().filter(|_| !name.is_public()) else {
            return Ok(None);
        };
        let held = self.node.key_controls().hold_schemas(caller.tenant());
        let checked =
            held.and_then(|held| self.node.catalog().check_schema(caller.tenant(), name).map(|()| held));
        Ok(Some(Box::new(checked.map_err(Refusal::with_advice)?)))
    }

    fn has_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn judge(
        &mut self,
        condition: &Expr,
        space: Option<&Arc<Space>>,
        entries: &[ReadEntry<'_>],
        now: u64,
    ) -> std::result::Result<Vec<bool>, Refusal> {
        let Some(AdmittedClient { caller, keys, .. }) = &self.admitted else {
            return Ok(vec![false; entries.len()]);
        };
        self.judge.judge((caller, keys), (condition, space), entries, now)
    }

    fn knows(&self, args: &Args<'_>) -> std::result::Result<bool, Refusal> {
        let Some((name, arity)) = own(args[0]) else { return Ok(false) };
        // `INFO` counts keys in all shards, some of which the transaction has locked.
        if name == "info" && self.is_queueing {
            return Err("ERR INFO is not allowed inside a transaction".into());
        }
        // Rejected at queueing time, so that no later command of the transaction runs for the wrong tenant.
        if let Some(token) = token_of(name, args).and_then(|token| std::str::from_utf8(token).ok()) {
            self.check_stays(token)?;
        }
        let least = arity.unsigned_abs();
        let fits = if arity < 0 { args.len() >= least } else { args.len() == least };
        match introspect::asked(args) {
            _ if !fits => Err(wrong_number(args[0])),
            None => Err(unknown_subcommand(&name.to_ascii_uppercase(), args[1])),
            Some(about) if !about.takes(args.len()) => Err(wrong_number(about.name.as_bytes())),
            Some(_) => Ok(true),
        }
    }

    fn ran(&mut self, ran: ExecutedCommand) {
        let now_ns = self.node.clock().now_ns();
        self.count(ran, now_ns.saturating_sub(self.marked_ns), &[]);
        self.marked_ns = now_ns;
    }

    fn run(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        self.ran_name = introspect::asked(args).map_or("", |about| about.name);
        self.facts.command = self.ran_name;
        match own(args[0]).map_or("", |(name, _)| name) {
            "auth" => self.auth(args, replies)?,
            "client" => self.client(args, replies)?,
            "command" => introspect::tell(args, replies)?,
            "bgsave" => self.begin_snapshot(args, replies)?,
            "config" => self.config(args, replies)?,
            "echo" => replies.bulk(args[1]),
            "hello" => self.hello(args, replies)?,
            "info" => self.info(args, replies),
            "latency" => latency(args, replies)?,
            "slowlog" => self.slowlog(args, replies)?,
            "lastsave" => {
                let saved = self.node.keyspaces().log().map_or(0, |log| log.snapshots().latest.unix_s);
                replies.integer(saved as i64);
            }
            "ping" => match args {
                [_] => replies.simple("PONG"),
                [_, text] => replies.bulk(text),
                _ => return Err(wrong_number(args[0])),
            },
            "quit" => {
                self.is_leaving = true;
                replies.ok();
            }
            "reset" => {
                (self.is_reset, self.protocol) = (true, Protocol::Resp2);
                self.set_name(String::new());
                self.reply_mode = ReplyMode::None;
                replies.set_protocol(Protocol::Resp2);
                // The client falls back to the default user, if the node serves clients without a token.
                self.admitted = None;
                drop(self.admit(None));
                replies.simple("RESET");
            }
            "time" => {
                // The batch's time has only milliseconds.
                let now_us = self.node.keyspaces().time().now_us();
                replies.array(2);
                replies.bulk((now_us / 1_000_000).to_string().as_bytes());
                replies.bulk((now_us % 1_000_000).to_string().as_bytes());
            }
            other => return Err(Refusal(Cow::Owned(format!("ERR {other} is not carried out")))),
        }
        Ok(())
    }

    fn may_write(&self) -> bool {
        self.admitted.as_ref().is_some_and(|admitted| admitted.caller.may_write_keys())
    }
}

/// Replies with the help lines and the two lines that Redis appends to them.
pub(super) fn tell_help(lines: &[&str], replies: &mut Replies<'_>) {
    replies.array(lines.len() + 2);
    lines.iter().chain(&["HELP", "    Prints this help."]).for_each(|line| replies.simple(line));
}

/// Returns whether compiling the patterns and matching `names` names with each takes longer than a step.
fn is_long_pattern(patterns: &Args<'_>, names: usize) -> bool {
    let work = patterns.iter().map(|pattern| Pattern::work_of(pattern, names));
    work.fold(0, usize::saturating_add) > KV_STEP_WORK_MAX
}

/// Returns the name and arity of a command implemented here.
fn own(name: &[u8]) -> Option<(&'static str, isize)> {
    OWN.iter().copied().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()))
}

pub(super) fn unknown_subcommand(command: &str, name: &[u8]) -> Refusal {
    let name = name[..name.len().min(64)].escape_ascii();
    Refusal(Cow::Owned(format!("ERR unknown subcommand '{name}'. Try {command} HELP.")))
}

pub(super) fn wrong_number_of(command: &str, subcommand: &[u8]) -> Refusal {
    let subcommand = subcommand.escape_ascii();
    Refusal(Cow::Owned(format!("ERR wrong number of arguments for '{command}|{subcommand}' command")))
}

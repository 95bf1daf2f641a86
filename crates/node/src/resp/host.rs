//! Who a client of the Redis protocol is, and the commands about that and about the node.

use super::slow::SlowLog;
use crate::node::{ConnectionGuard, Pass};
use crate::spaces::Judge;
use crate::{Caller, Node};
use farpool_kv::resp::{Protocol, Replies, parse_integer};
use farpool_kv::{
    Ahead, Args, COMMANDS, Command, Host, Keys, Keyspace, Moment, ReadEntry, Refusal, Session, Space,
    command, wrong_number,
};
use farpool_memory::Reservation;
use farpool_model::{Error, Expr, Result, limits};
use std::borrow::Cow;
use std::sync::Arc;

/// The version of Redis whose commands these are: clients look at it.
const REDIS_VERSION: &str = "7.0.15";

pub(super) type Done = std::result::Result<(), Refusal>;

/// The commands of this file: their names, and how many arguments they take, as for [`Command::arity`].
const OWN: &[(&str, isize)] = &[
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

/// Those of a client that has not been admitted.
const OF_STRANGERS: &[&str] = &["auth", "hello", "quit", "reset"];

/// A client, which may not have shown who it is yet.
pub(super) struct Client {
    node: Arc<Node>,
    number: u64,
    peer: String,
    name: String,
    protocol: Protocol,
    now_ms: u64,
    space: u32,
    admitted: Option<Admitted>,
    pass: Option<Pass>,
    is_leaving: bool,
    is_reset: bool,
    /// Whether commands are queued behind `MULTI`.
    is_queueing: bool,
    /// The condition on columns that was judged last.
    judge: Option<Judge>,
    /// What a command of this file has recorded.
    recorded: Option<u64>,
}

struct Admitted {
    caller: Caller,
    keys: Arc<Keyspace>,
    slow: Arc<SlowLog>,
    buffers: Reservation,
    /// Counts the connection.
    _guard: ConnectionGuard,
}

impl Client {
    pub fn new(node: &Arc<Node>, number: u64, peer: String) -> Self {
        Client {
            node: Arc::clone(node),
            number,
            peer,
            name: String::new(),
            protocol: Protocol::Resp2,
            now_ms: 0,
            space: 0,
            admitted: None,
            pass: None,
            is_leaving: false,
            is_reset: false,
            is_queueing: false,
            judge: None,
            recorded: None,
        }
    }

    /// Admits the client with this token; returns whether it was.
    pub fn admit(&mut self, token: Option<&str>) -> bool {
        self.try_admit(token).is_ok()
    }

    fn try_admit(&mut self, token: Option<&str>) -> Result<()> {
        let (caller, pass) = self.node.admit(token)?;
        let guard = self.node.connect(caller.tenant(), limits::RESP_CONNECTIONS_MAX)?;
        let keys = caller.keys()?;
        let buffers = self.node.account(caller.tenant()).empty();
        let slow = self.node.keyspaces().slow_log(caller.tenant());
        self.admitted = Some(Admitted { caller, keys, slow, buffers, _guard: guard });
        self.pass = Some(pass);
        Ok(())
    }

    /// The slow commands of the client's tenant.
    pub fn slow_log(&self) -> Option<&SlowLog> {
        self.admitted.as_ref().map(|admitted| &*admitted.slow)
    }

    /// Notes a command if it took long, which it did up to a time in milliseconds since the epoch. Those that have a token are
    /// not noted.
    #[inline]
    pub fn took(&self, args: &Args<'_>, ns: u64, unix_ms: u64) {
        let Some(log) = self.slow_log().filter(|log| log.is_slow(ns)) else { return };
        if !matches!(own(args[0]), Some(("auth" | "hello", _))) {
            log.add(args, (ns, unix_ms), &self.peer, &self.name);
        }
    }

    fn slowlog(&self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        let Some(log) = self.slow_log() else { return Ok(()) };
        match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
            (b"get", []) => log.tell(SLOW_COMMANDS_TOLD, replies),
            (b"get", [count]) => match parse_integer(count) {
                Some(-1) => log.tell(usize::MAX, replies),
                Some(count) if count >= 0 => log.tell(usize::try_from(count).unwrap_or(usize::MAX), replies),
                Some(_) => return Err("ERR count should be greater than or equal to -1".into()),
                None => return Err("ERR value is not an integer or out of range".into()),
            },
            (b"len", []) => replies.integer(log.len() as i64),
            (b"reset", []) if !self.may_write() => {
                return Err("NOPERM this token may not write: use one with the role write".into());
            }
            (b"reset", []) => {
                log.clear();
                replies.ok();
            }
            (b"help", []) => tell_help(
                &[
                    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                    "GET [<count>]",
                    "    Return the latest <count> slow commands (10 if nothing is said, all of them for -1).",
                    "LEN",
                    "    Return the number of slow commands that are kept.",
                    "RESET",
                    "    Forget them.",
                ],
                replies,
            ),
            (name @ (b"get" | b"len" | b"reset" | b"help"), _) => {
                return Err(wrong_number_of("slowlog", name));
            }
            (unknown, _) => return Err(unknown_subcommand("SLOWLOG", unknown)),
        }
        Ok(())
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

    /// The time of the command that runs, in milliseconds since the epoch.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// When changes of keys are made durable, if they are.
    pub fn fsync(&self) -> Option<crate::key_log::Fsync> {
        self.node.keyspaces().log().map(|log| log.fsync())
    }

    /// Says that a command has recorded something, with a record of this number.
    pub fn note_recorded(&mut self, number: Option<u64>) {
        self.recorded = number.or(self.recorded);
    }

    /// The keys of the client's tenant.
    pub fn keys(&self) -> Option<Arc<Keyspace>> {
        self.admitted.as_ref().map(|admitted| Arc::clone(&admitted.keys))
    }

    /// Whether these are the keys of the client's tenant.
    pub fn has_keys(&self, keys: Option<&Arc<Keyspace>>) -> bool {
        self.admitted.as_ref().map(|admitted| Arc::as_ptr(&admitted.keys)) == keys.map(Arc::as_ptr)
    }

    /// What tells when the connection must end.
    pub fn take_pass(&mut self) -> Option<Pass> {
        self.pass.take()
    }

    /// Gives back what [`Client::take_pass`] took, unless there is another one by now.
    pub fn return_pass(&mut self, pass: Pass) {
        self.pass.get_or_insert(pass);
    }

    /// Bytes that the client may have in memory beyond those of the connection.
    pub fn room(&self) -> usize {
        self.admitted.as_ref().map_or(0, |admitted| admitted.buffers.account().free())
    }

    /// Reserves so many bytes for the connection in place of those of before.
    ///
    /// # Errors
    /// `OverLimit` when the tenant has no more memory for work.
    pub fn charge(&mut self, bytes: usize) -> Result<()> {
        let Some(Admitted { buffers, .. }) = &mut self.admitted else { return Ok(()) };
        match bytes.checked_sub(buffers.bytes()) {
            Some(more) => buffers.try_grow(more),
            None => {
                buffers.set(bytes);
                Ok(())
            }
        }
    }

    /// Carries out a command with the keys of the client's tenant, and appends one reply.
    pub fn execute(
        &mut self,
        keys: Option<&Keyspace>,
        session: &mut Session,
        (args, ahead): (&Args<'_>, Ahead),
        moment: Moment,
        replies: &mut Replies<'_>,
    ) {
        (self.now_ms, self.space) = (moment.now, session.space());
        self.is_queueing = session.is_queueing();
        let before = replies.bytes();
        let Some(keys) = keys else {
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
        // These are not queued behind MULTI.
        if !ahead.is_of_keys()
            && let Some(("quit" | "reset", _)) = own(args[0])
        {
            if let Err(Refusal(text)) = self.knows(args).and_then(|_| self.run(args, replies)) {
                replies.error(&*text);
            }
        } else {
            session.execute_known(keys, (args, ahead), moment, self, replies);
            if let Some(number) = self.recorded.take() {
                session.note_recorded(number);
            }
        }
        if std::mem::take(&mut self.is_reset) {
            session.reset(keys);
        }
    }

    fn auth(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        let token = match args {
            [_, token] | [_, _, token] => *token,
            _ => return Err("ERR syntax error".into()),
        };
        self.log_in(token)?;
        replies.ok();
        Ok(())
    }

    fn log_in(&mut self, token: &[u8]) -> Done {
        let token = std::str::from_utf8(token).map_err(|_| "WRONGPASS a token is text")?;
        // With the old tenant's keys the client has nothing to do any more.
        self.is_reset = self.admitted.is_some();
        self.try_admit(Some(token)).map_err(|error| refused("WRONGPASS", &error))
    }

    fn hello(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        let protocol = match args.get(1).map(|version| parse_integer(version)) {
            None => self.protocol,
            Some(None) => return Err("ERR Protocol version is not an integer or out of range".into()),
            Some(Some(number)) => {
                Protocol::of_number(number).ok_or("NOPROTO unsupported protocol version")?
            }
        };
        let (mut name, mut token) = (None, None);
        let mut options = args.get(2..).unwrap_or_default();
        while let [option, rest @ ..] = options {
            options = match (option.to_ascii_lowercase().as_slice(), rest) {
                (b"auth", [_, given, rest @ ..]) => {
                    token = Some(*given);
                    rest
                }
                (b"setname", [given, rest @ ..]) => {
                    name = Some(client_name(given)?);
                    rest
                }
                _ => {
                    return Err(Refusal(Cow::Owned(format!(
                        "ERR Syntax error in HELLO option '{}'",
                        option.escape_ascii()
                    ))));
                }
            };
        }
        if let Some(token) = token {
            self.log_in(token)?;
        }
        if self.admitted.is_none() {
            return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                        AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                        version at the same time"
                .into());
        }
        if let Some(name) = name {
            self.name = name;
        }
        self.protocol = protocol;
        replies.set_protocol(protocol);
        replies.map(7);
        replies.bulk(b"server");
        replies.bulk(b"redis");
        replies.bulk(b"version");
        replies.bulk(REDIS_VERSION.as_bytes());
        replies.bulk(b"proto");
        replies.integer(protocol.number());
        replies.bulk(b"id");
        replies.integer(self.number as i64);
        replies.bulk(b"mode");
        replies.bulk(b"standalone");
        replies.bulk(b"role");
        replies.bulk(b"master");
        replies.bulk(b"modules");
        replies.array(0);
        Ok(())
    }

    fn client(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
            (b"id", []) => replies.integer(self.number as i64),
            (b"getname", []) if self.name.is_empty() => replies.null(),
            (b"getname", []) => replies.bulk(self.name.as_bytes()),
            (b"setname", [name]) => {
                self.name = client_name(name)?;
                replies.ok();
            }
            // What a library says of itself is not shown anywhere.
            (b"setinfo", [_, _]) => replies.ok(),
            (b"info" | b"list", []) => replies.verbatim(*b"txt", self.line().as_bytes()),
            (b"no-evict" | b"no-touch", [on]) if is_switch(on) => replies.ok(),
            (known, _)
                if [&b"id"[..], b"getname", b"setname", b"setinfo", b"info", b"list"].contains(&known) =>
            {
                return Err(wrong_number_of("client", known));
            }
            (unknown, _) => return Err(unknown_subcommand("CLIENT", unknown)),
        }
        Ok(())
    }

    /// The client in the form of Redis.
    fn line(&self) -> String {
        let Client { number, peer, name, space, .. } = self;
        format!(
            "id={number} addr={peer} name={name} db={space} resp={} user=default\n",
            self.protocol.number()
        )
    }

    fn info(&self, args: &Args<'_>, replies: &mut Replies<'_>) {
        let is_wanted = |section: &str| {
            let all = ["all", "default", "everything"];
            let is = |given: &&[u8]| {
                given.eq_ignore_ascii_case(section.as_bytes())
                    || all.iter().any(|all| given.eq_ignore_ascii_case(all.as_bytes()))
            };
            args.len() == 1 || args[1..].iter().any(is)
        };
        let mut text = String::new();
        let counts = self.keys().map(|keys| keys.counts()).unwrap_or_default();
        let mut section = |name: &str, lines: &[(&str, String)]| {
            if !is_wanted(name) {
                return;
            }
            let gap = if text.is_empty() { "" } else { "\r\n" };
            let heading = name[..1].to_ascii_uppercase() + &name[1..];
            text += &format!("{gap}# {heading}\r\n");
            lines.iter().for_each(|(key, value)| text += &format!("{key}:{value}\r\n"));
        };
        section(
            "server",
            &[
                ("redis_version", REDIS_VERSION.into()),
                ("farpool_version", env!("CARGO_PKG_VERSION").into()),
                ("redis_mode", "standalone".into()),
                ("os", std::env::consts::OS.into()),
                ("process_id", std::process::id().to_string()),
            ],
        );
        let bytes: usize = counts.iter().map(|(_, count)| count.bytes).sum();
        let keys = self.keys();
        let limits = keys.as_ref().map(|keys| keys.limits()).unwrap_or_default();
        let uses = keys.as_ref().map(|keys| keys.uses()).unwrap_or_default();
        section(
            "memory",
            &[
                ("used_memory", bytes.to_string()),
                ("maxmemory", limits.maxmemory.to_string()),
                ("maxmemory_policy", limits.policy.name().into()),
            ],
        );
        section(
            "stats",
            &[
                ("expired_keys", uses.expired.to_string()),
                ("evicted_keys", uses.evicted.to_string()),
                ("keyspace_hits", uses.hits.to_string()),
                ("keyspace_misses", uses.misses.to_string()),
            ],
        );
        section("persistence", &self.persistence());
        section("replication", &[("role", "master".into()), ("connected_slaves", "0".into())]);
        let keyspace: Vec<(String, String)> = counts
            .iter()
            .map(|(space, count)| {
                (format!("db{space}"), format!("keys={},expires={},avg_ttl=0", count.keys, count.expiring))
            })
            .collect();
        let lines: Vec<(&str, String)> =
            keyspace.iter().map(|(key, value)| (&**key, value.clone())).collect();
        section("keyspace", &lines);
        replies.verbatim(*b"txt", text.as_bytes());
    }
}

impl Client {
    /// The state of the log of keys, by the names that Redis has.
    fn persistence(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("loading", "0".into())];
        let Some(log) = self.node.keyspaces().log() else {
            lines.push(("aof_enabled", "0".into()));
            return lines;
        };
        let status = |is_ok: bool| if is_ok { "ok" } else { "err" }.to_string();
        let snapshots = log.snapshots();
        lines.extend([
            ("aof_enabled", "1".into()),
            ("aof_last_write_status", status(log.is_writing())),
            ("aof_current_size", log.bytes().to_string()),
            ("aof_base_size", snapshots.latest.bytes.to_string()),
            ("rdb_bgsave_in_progress", u8::from(snapshots.is_under_way).to_string()),
            ("rdb_last_save_time", snapshots.latest.unix_s.to_string()),
            ("rdb_last_bgsave_status", status(!snapshots.has_failed)),
            ("farpool_fsync", log.fsync().name().into()),
        ]);
        lines
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
    fn judge(
        &mut self,
        condition: &Expr,
        space: Option<&Arc<Space>>,
        entries: &[ReadEntry<'_>],
        now: u64,
    ) -> std::result::Result<Vec<bool>, Refusal> {
        let refused = |error: Error| Refusal(Cow::Owned(format!("ERR {}", error.message)));
        let Some(Admitted { caller, keys, .. }) = &self.admitted else {
            return Ok(vec![false; entries.len()]);
        };
        let judge = match self.judge.take().filter(|judge| judge.is_for(space, condition)) {
            Some(judge) => judge,
            None => Judge::new(caller, keys, space, condition).map_err(refused)?,
        };
        let judged = judge.judge(caller, entries, now).map_err(refused);
        self.judge = Some(judge);
        judged
    }

    fn knows(&self, args: &Args<'_>) -> std::result::Result<bool, Refusal> {
        let Some((name, arity)) = own(args[0]) else { return Ok(false) };
        // It counts the keys of all shards, some of which a transaction has to itself.
        if name == "info" && self.is_queueing {
            return Err("ERR INFO is not allowed inside a transaction".into());
        }
        if name == "config"
            && self.is_queueing
            && args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(b"set"))
        {
            return Err("ERR CONFIG SET is not allowed inside a transaction".into());
        }
        let least = arity.unsigned_abs();
        let fits = if arity < 0 { args.len() >= least } else { args.len() == least };
        if fits { Ok(true) } else { Err(wrong_number(args[0])) }
    }

    fn run(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        match own(args[0]).map_or("", |(name, _)| name) {
            "auth" => self.auth(args, replies)?,
            "client" => self.client(args, replies)?,
            "command" => tell_commands(args, replies)?,
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
                self.name.clear();
                replies.set_protocol(Protocol::Resp2);
                // Back to who needs no token, if anybody is served without one.
                self.admitted = None;
                self.admit(None);
                replies.simple("RESET");
            }
            "time" => {
                replies.array(2);
                replies.bulk((self.now_ms / 1000).to_string().as_bytes());
                replies.bulk((self.now_ms % 1000 * 1000).to_string().as_bytes());
            }
            other => return Err(Refusal(Cow::Owned(format!("ERR {other} is not carried out")))),
        }
        Ok(())
    }

    fn may_write(&self) -> bool {
        self.admitted.as_ref().is_some_and(|admitted| admitted.caller.may_write_keys())
    }
}

/// Slow commands that are told if nothing else is said.
const SLOW_COMMANDS_TOLD: usize = 10;

fn tell_help(lines: &[&str], replies: &mut Replies<'_>) {
    replies.array(lines.len());
    lines.iter().for_each(|line| replies.simple(line));
}

/// Latency is not monitored, as in Redis where `latency-monitor-threshold` is 0: there are no events.
fn latency(args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"latest", []) | (b"history", [_]) => replies.array(0),
        (b"reset", _) => replies.integer(0),
        (b"help", []) => tell_help(
            &[
                "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "HISTORY <event>, LATEST, RESET [<event> ...]",
                "    There are no events: see SLOWLOG.",
            ],
            replies,
        ),
        (name @ (b"latest" | b"history" | b"help"), _) => return Err(wrong_number_of("latency", name)),
        (unknown, _) => return Err(unknown_subcommand("LATENCY", unknown)),
    }
    Ok(())
}

/// The command of this file with this name.
fn own(name: &[u8]) -> Option<(&'static str, isize)> {
    OWN.iter().copied().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn is_switch(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"on") || text.eq_ignore_ascii_case(b"off")
}

fn client_name(name: &[u8]) -> std::result::Result<String, Refusal> {
    let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if !is_plain || name.len() > limits::CLIENT_CHARS_MAX {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.".into());
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The refusal that an error of the node is, by Redis' code for it.
fn refused(code: &str, error: &Error) -> Refusal {
    Refusal(Cow::Owned(format!("{code} {}", error.message)))
}

pub(super) fn unknown_subcommand(command: &str, name: &[u8]) -> Refusal {
    let name = name[..name.len().min(64)].escape_ascii();
    Refusal(Cow::Owned(format!("ERR unknown subcommand '{name}'. Try {command} HELP.")))
}

pub(super) fn wrong_number_of(command: &str, subcommand: &[u8]) -> Refusal {
    let subcommand = subcommand.escape_ascii();
    Refusal(Cow::Owned(format!("ERR wrong number of arguments for '{command}|{subcommand}' command")))
}

fn tell_commands(args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    let Some(name) = args.get(1) else {
        replies.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| tell_command(command, replies));
        return Ok(());
    };
    match name.to_ascii_lowercase().as_slice() {
        b"count" => replies.integer((COMMANDS.len() + OWN.len()) as i64),
        b"docs" => replies.map(0),
        b"list" => {
            replies.array(COMMANDS.len() + OWN.len());
            COMMANDS.iter().for_each(|command| replies.bulk(command.name.as_bytes()));
            OWN.iter().for_each(|(name, _)| replies.bulk(name.as_bytes()));
        }
        b"info" => {
            replies.array(args.len() - 2);
            for name in &args[2..] {
                match command(name) {
                    Some(command) => tell_command(command, replies),
                    None => replies.null_array(),
                }
            }
        }
        b"getkeys" => {
            let named = args.get(2).and_then(|name| command(name));
            let named = named.ok_or("ERR Invalid command specified")?;
            let keys: Vec<&[u8]> = named.keys.of(&args[2..]).collect();
            if keys.is_empty() {
                return Err("ERR The command has no key arguments".into());
            }
            replies.array(keys.len());
            keys.iter().for_each(|key| replies.bulk(key));
        }
        unknown => return Err(unknown_subcommand("COMMAND", unknown)),
    }
    Ok(())
}

fn tell_command(command: &Command, replies: &mut Replies<'_>) {
    let (first, last, step) = match command.keys {
        Keys::None | Keys::All => (0, 0, 0),
        Keys::At { first, last, step } => (first as i64, last as i64, step as i64),
    };
    replies.array(6);
    replies.bulk(command.name.as_bytes());
    replies.integer(command.arity as i64);
    replies.array(1);
    replies.simple(if command.may_write() { "write" } else { "readonly" });
    replies.integer(first);
    replies.integer(last);
    replies.integer(step);
}

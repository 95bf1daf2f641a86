//! The subcommands of `CLIENT` of the Redis protocol, about a connection and the other connections of its tenant.

use super::clients::ConnectionRecord;
use super::host::{Client, Done, ReplyMode};
use crate::pause::PauseScope;
use farpool_kv::resp::{Replies, parse_integer};
use farpool_kv::{Args, Command, ExecutedCommand, Outcome, Refusal, Session, command, wrong_number};
use farpool_model::limits::CLIENT_PAUSE_MS_MAX;
use std::borrow::Cow;
use std::sync::Arc;

/// The clients that `CLIENT KILL` selects.
#[derive(Default)]
struct KillFilter<'a> {
    number: Option<u64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// Whether the option `TYPE` names a type of clients that this server does not have, such as replicas.
    is_absent: bool,
    is_own_spared: bool,
}

impl KillFilter<'_> {
    fn has(&self, record: &ConnectionRecord) -> bool {
        !self.is_absent
            && self.number.is_none_or(|number| number == record.number)
            && self.peer.is_none_or(|peer| peer == record.peer.as_bytes())
            && self.local.is_none_or(|local| local == record.local.as_bytes())
            && self.user.is_none_or(|user| user == record.user().as_bytes())
    }
}

pub(super) const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME, SETNAME <name>",
    "    The name of the connection.",
    "ID, INFO",
    "    The number of the connection, and what there is to tell of it.",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)|ID <id> ...]",
    "    Describe the connections of the tenant.",
    "KILL <ip:port>|<option> <value> [<option> <value> ...]",
    "    End connections of the tenant by ID, ADDR, LADDR, USER, TYPE; SKIPME (YES|NO).",
    "PAUSE <milliseconds> [WRITE|ALL], UNPAUSE",
    "    Have the clients of the tenant wait, and end that.",
    "REPLY (ON|OFF|SKIP)",
    "    Say whether commands are replied to.",
    "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF), SETINFO <what> <value>, TRACKING OFF",
    "    Are accepted and change nothing.",
    "GETREDIR, TRACKINGINFO, UNBLOCK <id> [TIMEOUT|ERROR]",
    "    There is no tracking, and no command that waits.",
];

impl Client {
    pub(super) fn tell_name(&self, replies: &mut Replies<'_>) {
        match self.name() {
            "" => replies.null(),
            name => replies.bulk(name.as_bytes()),
        }
    }

    pub(super) fn name_client(&mut self, name: &[u8], replies: &mut Replies<'_>) -> Done {
        self.set_name(self.name_of(name)?);
        replies.ok();
        Ok(())
    }

    pub(super) fn describe_client(&mut self, replies: &mut Replies<'_>) {
        self.settle_now();
        replies.verbatim(*b"txt", self.record().line(self.now_ms()).as_bytes());
    }

    pub(super) fn list_clients(&mut self, options: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        self.settle_now();
        let lines: String = self.listed(options)?.iter().map(|record| record.line(self.now_ms())).collect();
        if !replies.has_room(lines.len()) {
            return Err("ERR the reply is larger than this client may have in memory".into());
        }
        replies.verbatim(*b"txt", lines.as_bytes());
        Ok(())
    }

    pub(super) fn kill_clients(&mut self, options: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        if let [peer] = options {
            self.check_may_write()?;
            match self.kill(&KillFilter { peer: Some(peer), ..KillFilter::default() }) {
                0 => return Err("ERR No such client".into()),
                _ => replies.ok(),
            }
            return Ok(());
        }
        let killed = self.killed(options)?;
        self.check_may_write()?;
        replies.integer(self.kill(&killed) as i64);
        Ok(())
    }

    pub(super) fn pause_clients(
        &mut self,
        command: &Command,
        args: &Args<'_>,
        replies: &mut Replies<'_>,
    ) -> Done {
        match args {
            [ms] => self.pause(ms, None)?,
            [ms, kind] => self.pause(ms, Some(kind))?,
            _ => return Err(wrong_number(command)),
        }
        replies.ok();
        Ok(())
    }

    pub(super) fn end_pause(&mut self, replies: &mut Replies<'_>) -> Done {
        self.check_may_write()?;
        self.clients().iter().for_each(|clients| clients.pause().end());
        replies.ok();
        Ok(())
    }

    pub(super) fn set_reply_mode(&mut self, mode: &[u8], replies: &mut Replies<'_>) -> Done {
        let reply_mode = &mut self.protocol.reply_mode;
        match mode.to_ascii_lowercase().as_slice() {
            b"on" => {
                *reply_mode = ReplyMode::None;
                replies.ok();
            }
            b"off" => *reply_mode = ReplyMode::All,
            b"skip" if *reply_mode != ReplyMode::All => *reply_mode = ReplyMode::Next,
            b"skip" => {}
            _ => return Err("ERR syntax error".into()),
        }
        Ok(())
    }

    /// Returns the clients selected by the options of `CLIENT LIST`.
    fn listed(&self, options: &Args<'_>) -> Result<Vec<Arc<ConnectionRecord>>, Refusal> {
        let Some(clients) = self.clients() else { return Ok(Vec::new()) };
        match options {
            [] => Ok(clients.all()),
            [word, kind] if word.eq_ignore_ascii_case(b"type") => {
                Ok(if is_normal(kind)? { clients.all() } else { Vec::new() })
            }
            [word, numbers @ ..] if word.eq_ignore_ascii_case(b"id") && !numbers.is_empty() => {
                let read = |text: &&[u8]| parse_integer(text).ok_or("ERR Invalid client ID");
                let numbers = numbers.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                Ok(numbers.into_iter().filter_map(|id| clients.get(u64::try_from(id).ok()?)).collect())
            }
            _ => Err("ERR syntax error".into()),
        }
    }

    /// Parses the options of `CLIENT KILL`.
    fn killed<'a>(&self, options: &Args<'a>) -> Result<KillFilter<'a>, Refusal> {
        let mut killed = KillFilter { is_own_spared: true, ..KillFilter::default() };
        for pair in options.chunks(2) {
            let &[option, value] = pair else { return Err("ERR syntax error".into()) };
            match option.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let number = parse_integer(value).and_then(|id| u64::try_from(id).ok());
                    let number = number.filter(|id| *id > 0);
                    killed.number = Some(number.ok_or("ERR client-id should be greater than 0")?);
                }
                b"addr" => killed.peer = Some(value),
                b"laddr" => killed.local = Some(value),
                b"type" => killed.is_absent = !is_normal(value)?,
                b"user" => {
                    let all = self.clients().map(|clients| clients.all()).unwrap_or_default();
                    if value != b"default" && !all.iter().any(|record| record.user().as_bytes() == value) {
                        let user = shown(value);
                        return Err(Refusal(Cow::Owned(format!("ERR No such user '{user}'"))));
                    }
                    killed.user = Some(value);
                }
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => killed.is_own_spared = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => killed.is_own_spared = false,
                _ => return Err("ERR syntax error".into()),
            }
        }
        Ok(killed)
    }

    /// Closes the connections of the selected clients; returns their number. If this client is selected, it gets its
    /// reply before.
    fn kill(&mut self, killed: &KillFilter<'_>) -> usize {
        let all = self.clients().map(|clients| clients.all()).unwrap_or_default();
        let mut count = 0;
        for record in all.iter().filter(|record| killed.has(record)) {
            let is_own = record.number == self.record().number;
            if is_own && killed.is_own_spared {
                continue;
            }
            // A client that was killed before stays in the list until its connection has ended.
            if is_own {
                self.leave();
                count += 1;
            } else if record.end() {
                count += 1;
            }
        }
        count
    }

    fn pause(&self, ms: &[u8], kind: Option<&[u8]>) -> Done {
        let kind = match kind.map(<[u8]>::to_ascii_lowercase).as_deref() {
            None | Some(b"all") => PauseScope::All,
            Some(b"write") => PauseScope::Writes,
            Some(_) => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        };
        let ms = parse_integer(ms).ok_or("ERR timeout is not an integer or out of range")?;
        let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
        if ms > CLIENT_PAUSE_MS_MAX {
            let text = format!("ERR timeout is more than {CLIENT_PAUSE_MS_MAX} milliseconds");
            return Err(Refusal(Cow::Owned(text)));
        }
        self.check_may_write()?;
        let now_ms = self.unix_ms();
        self.clients().iter().for_each(|clients| clients.pause().begin(kind, now_ms + ms, now_ms));
        Ok(())
    }

    /// Returns whether a command must wait for the end of a pause (`CLIENT PAUSE`). Commands that would be refused do
    /// not wait.
    #[inline]
    pub fn must_wait(&self, session: &Session, args: &Args<'_>) -> bool {
        let Some(clients) = self.clients() else { return false };
        match clients.pause().current(|| self.unix_ms()) {
            None => false,
            Some((kind, _)) => waits(kind, session, args),
        }
    }

    /// Waits until no pause is in effect.
    pub fn unpaused(&self) -> impl Future<Output = ()> + use<> {
        let (clients, record) = (self.clients().cloned(), Arc::clone(self.record()));
        let keyspaces = Arc::clone(self.keyspaces());
        async move {
            if let Some(clients) = clients {
                clients.unpaused(&record, || keyspaces.time().now_ms()).await;
            }
        }
    }

    /// Makes the connection's data and counters, as of the end of a batch of requests, readable by other clients of the
    /// tenant.
    pub fn settle(&mut self, session: &Session) {
        self.usage.facts.space = session.space();
        (self.usage.facts.queued, self.usage.facts.queued_bytes) = (session.queued(), session.bytes());
        self.settle_now();
    }

    pub(super) fn settle_now(&mut self) {
        self.usage.facts.protocol = self.protocol().number();
        let record = Arc::clone(self.record());
        record.settle(self.usage.facts, &mut self.usage.counted);
    }

    /// Counts a command that took `ns` nanoseconds.
    #[inline]
    pub(super) fn count(&mut self, ran: ExecutedCommand, ns: u64) {
        let is_counted = match ran.outcome {
            Outcome::Queued | Outcome::Deferred(_) => false,
            Outcome::Done | Outcome::Failed | Outcome::Rejected => !ran.name.is_empty(),
        };
        if is_counted {
            self.usage.counted.count(ran.name, ran.outcome, ns);
            self.usage.facts.command = ran.name;
        }
    }
}

#[cold]
fn waits(kind: PauseScope, session: &Session, args: &Args<'_>) -> bool {
    let Some(command) = command(args).filter(|command| command.check(args).is_ok()) else {
        return false;
    };
    match kind {
        PauseScope::All => true,
        // Blocked, as in Redis, because `PFCOUNT` may write the cached result to the value.
        PauseScope::Writes if command.name == "pfcount" => true,
        PauseScope::Writes if command.is_exec() => session.queues_writes(),
        PauseScope::Writes => command.writes(args),
    }
}

/// Executes a command with the argument `ON` or `OFF` that has no effect here: checks the argument and replies `OK`.
pub(super) fn accept_switch(on: &[u8], replies: &mut Replies<'_>) -> Done {
    match on.to_ascii_lowercase().as_slice() {
        b"on" | b"off" => replies.ok(),
        _ => return Err("ERR syntax error".into()),
    }
    Ok(())
}

/// Executes `CLIENT TRACKING`: accepts `OFF`, as tracking keys is not supported.
pub(super) fn accept_no_tracking(args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    match args {
        [off] if off.eq_ignore_ascii_case(b"off") => replies.ok(),
        _ => return Err("ERR keys are not tracked: only OFF is accepted".into()),
    }
    Ok(())
}

pub(super) fn tell_no_tracking(replies: &mut Replies<'_>) {
    replies.map(3);
    replies.bulk(b"flags");
    replies.set(1);
    replies.bulk(b"off");
    replies.bulk(b"redirect");
    replies.integer(-1);
    replies.bulk(b"prefixes");
    replies.array(0);
}

/// Executes `CLIENT UNBLOCK`: replies 0, because there are no blocking commands.
pub(super) fn unblock(command: &Command, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    let (id, reason) = match args {
        [id] => (id, None),
        [id, reason] => (id, Some(reason)),
        _ => return Err(wrong_number(command)),
    };
    let is_reason =
        |reason: &&[u8]| reason.eq_ignore_ascii_case(b"timeout") || reason.eq_ignore_ascii_case(b"error");
    if !reason.is_none_or(is_reason) {
        return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
    }
    parse_integer(id).ok_or("ERR value is not an integer or out of range")?;
    replies.integer(0);
    Ok(())
}

/// Returns whether `kind` is the only type of clients that this server has, `normal`; fails for an unknown type.
fn is_normal(kind: &[u8]) -> Result<bool, Refusal> {
    match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(Refusal(Cow::Owned(format!("ERR Unknown client type '{}'", shown(kind))))),
    }
}

/// Returns the beginning of a text sent by a client, with special characters escaped, for an error message.
fn shown(text: &[u8]) -> String {
    text[..text.len().min(64)].escape_ascii().to_string()
}

//! The commands of the Redis protocol about the connection and the node, such as `CLIENT`, `CONFIG` and `INFO`. The
//! host of a session executes them, while the session executes those about keys. [`Host::run`] dispatches them.

use super::auth::token_of;
use super::slowlog;
use super::state::AdmittedClient;
use super::{Client, Protocol, ReplyMode};
use crate::resp::{client, config, introspect};
use farpool_kv::resp::Replies;
use farpool_kv::{
    Args, COMMANDS, Command, ExecutedCommand, Host, HostCommand, Pattern, ReadEntry, Refusal, Space,
    wrong_number,
};
use farpool_model::limits::KV_STEP_WORK_MAX;
use farpool_model::{Expr, TableName};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(in crate::resp) type Done = std::result::Result<(), Refusal>;

/// Maximum number of clients that a command may visit within a step; with more, it is a long command.
const STEP_CLIENTS: usize = 128;

impl Host for Client {
    fn check(&self, command: HostCommand, args: &Args<'_>) -> Done {
        // `INFO` counts keys in all shards, some of which the transaction has locked.
        if command == HostCommand::Info && self.transaction.is_queueing {
            return Err("ERR INFO is not allowed inside a transaction".into());
        }
        // Refused when it is queued, so that no later command of the transaction is executed for the wrong tenant.
        match token_of(command, args).and_then(|token| std::str::from_utf8(token).ok()) {
            Some(token) => self.check_stays(token),
            None => Ok(()),
        }
    }

    fn is_long(&self, command: HostCommand, args: &Args<'_>) -> bool {
        match command {
            // `CONFIG SET` counts as long, because it locks all shards.
            HostCommand::ConfigSet => true,
            // `CONFIG GET` counts as long if its patterns take long to compile and match.
            HostCommand::ConfigGet => is_long_pattern(&args[2..], config::SETTINGS),
            HostCommand::CommandList => is_long_pattern(&args[2..], COMMANDS.len()),
            HostCommand::ClientKill
            | HostCommand::ClientList
            | HostCommand::ConfigResetStat
            | HostCommand::Info => self.clients().is_some_and(|clients| clients.len() > STEP_CLIENTS),
            _ => false,
        }
    }

    fn run(
        &mut self,
        (command, of_host): (&'static Command, HostCommand),
        args: &Args<'_>,
        replies: &mut Replies<'_>,
    ) -> Done {
        self.usage.facts.command = command.name;
        match of_host {
            HostCommand::Auth => self.auth(args, replies)?,
            HostCommand::BgSave => self.begin_snapshot(args, replies)?,
            HostCommand::ClientGetName => self.tell_name(replies),
            HostCommand::ClientGetRedir => replies.integer(-1),
            HostCommand::ClientHelp => tell_help(client::HELP, replies),
            HostCommand::ClientId => replies.integer(self.record().number as i64),
            HostCommand::ClientInfo => self.describe_client(replies),
            HostCommand::ClientKill => self.kill_clients(&args[2..], replies)?,
            HostCommand::ClientList => self.list_clients(&args[2..], replies)?,
            HostCommand::ClientNoEvict | HostCommand::ClientNoTouch => {
                client::accept_switch(args[2], replies)?
            }
            HostCommand::ClientPause => self.pause_clients(command, &args[2..], replies)?,
            HostCommand::ClientReply => self.set_reply_mode(args[2], replies)?,
            // `CLIENT SETINFO` is accepted, and the information is ignored.
            HostCommand::ClientSetInfo => replies.ok(),
            HostCommand::ClientSetName => self.name_client(args[2], replies)?,
            HostCommand::ClientTracking => client::accept_no_tracking(&args[2..], replies)?,
            HostCommand::ClientTrackingInfo => client::tell_no_tracking(replies),
            HostCommand::ClientUnblock => client::unblock(command, &args[2..], replies)?,
            HostCommand::ClientUnpause => self.end_pause(replies)?,
            HostCommand::Command => introspect::tell_all(replies),
            HostCommand::CommandCount => introspect::tell_count(replies),
            HostCommand::CommandDocs => introspect::tell_docs(&args[2..], replies),
            HostCommand::CommandGetKeys => introspect::tell_keys(&args[2..], replies)?,
            HostCommand::CommandGetKeysAndFlags => introspect::tell_keys_and_flags(&args[2..], replies)?,
            HostCommand::CommandHelp => tell_help(introspect::HELP, replies),
            HostCommand::CommandInfo => introspect::tell_some(&args[2..], replies),
            HostCommand::CommandList => introspect::tell_names(&args[2..], replies)?,
            HostCommand::ConfigGet => self.tell_settings(&args[2..], replies)?,
            HostCommand::ConfigHelp => tell_help(config::HELP, replies),
            HostCommand::ConfigResetStat => self.reset_counts(replies)?,
            HostCommand::ConfigSet => self.set_settings(&args[2..], replies)?,
            HostCommand::Echo => replies.bulk(args[1]),
            HostCommand::Hello => self.hello(args, replies)?,
            HostCommand::Info => self.info(args, replies),
            HostCommand::LastSave => self.tell_last_snapshot(replies),
            HostCommand::LatencyHelp => tell_help(slowlog::LATENCY_HELP, replies),
            // There are never any events, as in Redis with `latency-monitor-threshold` 0.
            HostCommand::LatencyHistory | HostCommand::LatencyLatest => replies.array(0),
            HostCommand::LatencyReset => replies.integer(0),
            HostCommand::Ping => ping(command, args, replies)?,
            HostCommand::Quit => self.quit(replies),
            HostCommand::Reset => self.reset(replies),
            HostCommand::SlowlogGet => self.tell_slow_commands(command, &args[2..], replies)?,
            HostCommand::SlowlogHelp => tell_help(slowlog::HELP, replies),
            HostCommand::SlowlogLen => self.count_slow_commands(replies),
            HostCommand::SlowlogReset => self.forget_slow_commands(replies)?,
            HostCommand::Time => self.tell_time(replies),
        }
        Ok(())
    }

    fn may_write(&self) -> bool {
        self.identity.admitted.as_ref().is_some_and(|admitted| admitted.caller.may_write_keys())
    }

    fn hold_schema(&self, name: &TableName) -> std::result::Result<Option<Box<dyn Any>>, Refusal> {
        let Some(AdmittedClient { caller, .. }) =
            self.identity.admitted.as_ref().filter(|_| !name.is_public())
        else {
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
        let Some(AdmittedClient { caller, keys, .. }) = &self.identity.admitted else {
            return Ok(vec![false; entries.len()]);
        };
        self.judge.judge((caller, keys), (condition, space), entries, now)
    }

    fn ran(&mut self, ran: ExecutedCommand) {
        let now_ns = self.node.clock().now_ns();
        self.count(ran, now_ns.saturating_sub(self.transaction.marked_ns));
        self.transaction.marked_ns = now_ns;
    }
}

impl Client {
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

    fn tell_last_snapshot(&self, replies: &mut Replies<'_>) {
        let saved = self.node.keyspaces().log().map_or(0, |log| log.snapshots().latest.unix_s);
        replies.integer(saved as i64);
    }

    fn quit(&mut self, replies: &mut Replies<'_>) {
        self.leave();
        replies.ok();
    }

    fn reset(&mut self, replies: &mut Replies<'_>) {
        (self.orders.is_reset, self.protocol.version) = (true, Protocol::Resp2);
        self.set_name(String::new());
        self.protocol.reply_mode = ReplyMode::None;
        replies.set_protocol(Protocol::Resp2);
        // The client falls back to the default user, if the node serves clients without a token.
        self.identity.admitted = None;
        drop(self.admit(None));
        replies.simple("RESET");
    }

    /// Executes `TIME`. Reads the clock again, because the time of the batch has only milliseconds.
    fn tell_time(&self, replies: &mut Replies<'_>) {
        let now_us = self.node.keyspaces().time().now_us();
        replies.array(2);
        replies.bulk((now_us / 1_000_000).to_string().as_bytes());
        replies.bulk((now_us % 1_000_000).to_string().as_bytes());
    }
}

fn ping(command: &Command, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    match args {
        [_] => replies.simple("PONG"),
        [_, text] => replies.bulk(text),
        _ => return Err(wrong_number(command)),
    }
    Ok(())
}

/// Replies with lines of help, and with the two lines that Redis appends to all help.
fn tell_help(lines: &[&str], replies: &mut Replies<'_>) {
    replies.array(lines.len() + 2);
    lines.iter().chain(&["HELP", "    Prints this help."]).for_each(|line| replies.simple(line));
}

/// Returns whether compiling `patterns` and matching each with `names` names takes longer than a step.
fn is_long_pattern(patterns: &Args<'_>, names: usize) -> bool {
    let work = patterns.iter().map(|pattern| Pattern::work_of(pattern, names));
    work.fold(0, usize::saturating_add) > KV_STEP_WORK_MAX
}

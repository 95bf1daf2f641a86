//! Client sessions: the selected space, the commands queued by `MULTI`, and the keys watched by `WATCH`.
//!
//! A session executes commands in an [`ExecutionMode`]. In short mode, a command that would take longer than a step, or
//! that needs a shard held by a long command, is put off before it changes anything.
//!
//! `WATCH` invariant: every write to a watched key touches the watch while it holds the lock of the key's shard, and
//! `EXEC` checks the watch after it has locked the shards of all its keys and of all watched keys. No write fits
//! between the check and the first command:
//!
//! 1. Client A: `WATCH k`, `MULTI`, `SET k 1`.
//! 2. Client B: `SET k 2`, which touches A's watch under the lock of `k`'s shard.
//! 3. Client A: `EXEC` locks the shard of `k`, sees the touched watch, and replies null. Had it checked before locking,
//!    B's write could land in between and be overwritten.

use crate::ahead::LookAhead;
use crate::commands::{
    Args, Command, CommandResources, Context, Keys, NOT_INTEGER, Predicates, Refusal, TOO_MUCH, WorkOfExec,
    check_subcommand, command, is_long_command, is_long_text, work_of_arguments,
};
use crate::cut::ReadEntry;
use crate::holds::ShardGuard;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::resp::{Replies, parse_integer};
use crate::shard::{SpaceId, Watch};
use crate::spaces::Space;
use farpool_model::limits::{KV_EXEC_WORK_MAX, KV_QUEUE_BYTES_MAX, KV_STEP_WORK_MAX, KV_WATCHED_MAX};
use farpool_model::{Error, Expr, TableName};
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

/// Number of spaces that clients select by number with `SELECT`.
pub(crate) const SPACES: SpaceId = 16;

/// Returns the space with this number, or `None` unless 0 <= `number` < [`SPACES`].
pub(crate) fn space_number(number: i64) -> Option<SpaceId> {
    SpaceId::try_from(number).ok().filter(|number| *number < SPACES)
}

/// Parses the number of a space; errors have Redis' texts.
pub(crate) fn space_of_text(text: &[u8]) -> Result<SpaceId, Refusal> {
    let number = parse_integer(text).ok_or(NOT_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err("ERR value is out of range, value must between -2147483648 and 2147483647".into());
    }
    space_number(number).ok_or_else(|| "ERR DB index is out of range".into())
}

/// Returns the numbered space that contains `space`. Named spaces (numbers from [`SPACES`]) belong to space 0.
pub(crate) fn selected(space: SpaceId) -> SpaceId {
    if space < SPACES { space } else { 0 }
}

/// Time and randomness of a command. They are arguments, so that the same command with the same `TimeAndRandom` gives
/// the same result on every run.
#[derive(Clone, Copy, Debug)]
pub struct TimeAndRandom {
    /// Milliseconds since the epoch.
    pub now: u64,
    /// A random number.
    pub random: u64,
}

/// The command that was executed and its outcome, for usage statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedCommand {
    /// The name in lower case; empty for a command of the host and for one that was refused before it began.
    pub name: &'static str,
    /// The outcome.
    pub outcome: Outcome,
}

/// The time that a command may occupy the thread that executes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutionMode {
    /// At most one step, and without waiting for long commands: the thread serves other clients as well.
    Short,
    /// Without a bound. The command's shards are announced as held while it runs.
    #[default]
    Long,
}

/// The reason why a command was put off. A command that is put off has changed nothing and has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferReason {
    /// The command may take longer than a step.
    IsLong,
    /// A long command holds a shard that this one needs; see [`Keyspace::poll_released`].
    IsHeld,
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command was not executed at [`ExecutionMode::Short`]; the caller executes it again later.
    Deferred(DeferReason),
    /// The command was refused before it began.
    Rejected,
    /// The command is queued until `EXEC`.
    Queued,
    /// The command was executed.
    Done,
    /// The command began and was refused.
    Failed,
}

/// A handler for commands that do not concern keys, such as those about the connection.
pub trait Host {
    /// Returns whether the host implements this command; fails on wrong arguments.
    fn knows(&self, args: &Args<'_>) -> Result<bool, Refusal>;

    /// Executes a command of the host.
    fn run(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Result<(), Refusal>;

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
    fn is_long(&self, args: &Args<'_>) -> bool {
        let _ = args;
        false
    }

    /// Returns whether the connection has closed; a command that only reads then stops.
    fn has_gone(&self) -> bool {
        false
    }

    /// Reports a finished command of a transaction. The name is empty for a command of the host.
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
    fn knows(&self, _: &Args<'_>) -> Result<bool, Refusal> {
        Ok(false)
    }

    fn run(&mut self, _: &Args<'_>, _: &mut Replies<'_>) -> Result<(), Refusal> {
        Err("ERR there are no such commands".into())
    }

    fn may_write(&self) -> bool {
        true
    }
}

/// The state of one client.
#[derive(Debug, Default)]
pub struct Session {
    space: SpaceId,
    mode: ExecutionMode,
    queue: Option<Queue>,
    watch: Watch,
    watched: Vec<Watched>,
    predicates: Predicates,
    /// Number of the latest log record that replies depend on and that [`Session::take_recorded`] has not returned yet.
    recorded: Option<u64>,
    record: Vec<u8>,
}

/// A watched key.
#[derive(Debug)]
struct Watched {
    space: SpaceId,
    key: Box<[u8]>,
    /// Whether the key existed at `WATCH`.
    was_there: bool,
}

/// The commands queued since `MULTI`.
#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Vec<Box<[u8]>>>,
    bytes: usize,
    /// Whether a command was refused when it arrived; `EXEC` then refuses the whole queue.
    is_refused: bool,
}

/// A parsed request, classified by its executor.
enum ParsedRequest {
    Command(&'static Command),
    OfHost,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Select,
}

impl ParsedRequest {
    fn keys(&self) -> Keys {
        match self {
            ParsedRequest::Command(command) => command.keys,
            _ => Keys::None,
        }
    }

    /// Returns the command name; empty for a command of the host.
    fn name(&self) -> &'static str {
        match self {
            ParsedRequest::Command(command) => command.name,
            ParsedRequest::OfHost => "",
            ParsedRequest::Multi => "multi",
            ParsedRequest::Exec => "exec",
            ParsedRequest::Discard => "discard",
            ParsedRequest::Watch => "watch",
            ParsedRequest::Unwatch => "unwatch",
            ParsedRequest::Select => "select",
        }
    }
}

impl Session {
    /// Returns the bytes used by queued commands, watched keys and the cached condition.
    pub fn bytes(&self) -> usize {
        let watched: usize = self.watched.iter().map(|watched| watched.key.len() + 64).sum();
        self.queue.as_ref().map_or(0, |queue| queue.bytes) + watched + self.predicates.bytes()
    }

    /// Sets the execution mode of the following commands.
    pub fn set_mode(&mut self, mode: ExecutionMode) {
        self.mode = mode;
    }

    /// Returns whether any key is watched.
    pub fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Returns the number of the selected space.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Returns whether commands are being queued, that is, whether `MULTI` is open.
    pub fn is_queueing(&self) -> bool {
        self.queue.is_some()
    }

    /// Returns the number of queued commands, or `None` outside `MULTI`.
    pub fn queued(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.commands.len())
    }

    /// Returns whether any queued command may change keys.
    pub fn queues_writes(&self) -> bool {
        let commands = self.queue.iter().flat_map(|queue| &queue.commands);
        commands.filter_map(|args| command(&args[0])).any(Command::may_write)
    }

    /// Takes the number of the latest log record that the replies since the last call depend on: the client's own
    /// changes, and those that it may have seen. They may be sent once this record is as durable as `--fsync` asks for.
    ///
    /// 1. Client A: `SET a 1`; the record waits to be written.
    /// 2. Client B: `GET a` finds `1`. If its reply were sent now and the power failed, B would have seen a value that
    ///    never was.
    /// 3. B's session has the number that A's command left in the shard of `a`, so B's reply waits as well.
    pub fn take_recorded(&mut self) -> Option<u64> {
        self.recorded.take()
    }

    /// Notes that replies depend on log record `number`.
    pub fn note_recorded(&mut self, number: u64) {
        self.recorded = self.recorded.max(Some(number));
    }

    /// Notes that a command was refused before it began; an open `MULTI` is then refused as a whole by `EXEC`.
    pub fn note_refused(&mut self) {
        self.queue.iter_mut().for_each(|queue| queue.is_refused = true);
    }

    /// Executes or queues a command and appends one reply. Returns the command's name and outcome.
    pub fn execute(
        &mut self,
        keyspace: &Keyspace,
        args: &Args<'_>,
        moment: TimeAndRandom,
        host: &mut dyn Host,
        replies: &mut Replies<'_>,
    ) -> ExecutedCommand {
        self.execute_known(keyspace, (args, LookAhead::of(keyspace, args)), moment, host, replies)
    }

    /// Does the same as [`Session::execute`], reusing what the look-ahead found out about this command.
    pub fn execute_known(
        &mut self,
        keyspace: &Keyspace,
        (args, ahead): (&Args<'_>, LookAhead),
        moment: TimeAndRandom,
        host: &mut dyn Host,
        replies: &mut Replies<'_>,
    ) -> ExecutedCommand {
        let moment = TimeAndRandom { now: keyspace.asked_at(moment.now), ..moment };
        let before = replies.bytes();
        let mut ran = ExecutedCommand { name: "", outcome: Outcome::Rejected };
        let done = match self.mode {
            ExecutionMode::Short if self.is_long(args, &ahead, host) => {
                Err(deferred(&mut ran, DeferReason::IsLong))
            }
            ExecutionMode::Short => {
                // The replies of a transaction have a limit of their own.
                let is_exec = ahead.command.is_none() && args[0].eq_ignore_ascii_case(b"exec");
                let room = if is_exec { usize::MAX } else { KV_STEP_WORK_MAX };
                let to = &mut replies.narrowed(room);
                self.dispatch(keyspace, (args, ahead), moment, (host, to), &mut ran)
            }
            ExecutionMode::Long => self.dispatch(keyspace, (args, ahead), moment, (host, replies), &mut ran),
        };
        let Err(Refusal(text)) = done else { return ran };
        replies.truncate(before);
        match ran.outcome {
            Outcome::Deferred(_) => return ran,
            // In long mode, a longer reply may fit.
            Outcome::Done if self.mode == ExecutionMode::Short && text == TOO_MUCH => {
                drop(deferred(&mut ran, DeferReason::IsLong));
                return ran;
            }
            Outcome::Done => ran.outcome = Outcome::Failed,
            Outcome::Rejected | Outcome::Queued | Outcome::Failed => {}
        }
        match ran.outcome {
            Outcome::Rejected if text == UNKNOWN => replies.error(unknown(args)),
            _ => replies.error(&*text),
        }
        ran
    }

    /// Returns whether a command may take longer than a step, judging by its arguments alone.
    fn is_long(&self, args: &Args<'_>, ahead: &LookAhead, host: &dyn Host) -> bool {
        work_of_arguments(args) > KV_STEP_WORK_MAX
            || match ahead.command {
                Some(command) => is_long_text(command, args) && self.queue.is_none(),
                None => self.queue.is_none() && host.is_long(args),
            }
    }

    fn dispatch(
        &mut self,
        keyspace: &Keyspace,
        (args, ahead): (&Args<'_>, LookAhead),
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
        ran: &mut ExecutedCommand,
    ) -> Result<(), Refusal> {
        let request = match parse_request(args, ahead.command, host) {
            Ok(request) => request,
            // `EXEC` with wrong arguments ends the transaction, as in Redis.
            Err(Refusal(text)) if args[0].eq_ignore_ascii_case(b"exec") => {
                if !self.may_unwatch(keyspace) {
                    return Err(deferred(ran, DeferReason::IsHeld));
                }
                self.queue = None;
                let text = text.trim_start_matches("ERR ");
                let text = format!("EXECABORT Transaction discarded because of: {text}");
                return Err(Refusal(Cow::Owned(text)));
            }
            Err(refusal) => {
                self.note_refused();
                return Err(refusal);
            }
        };
        match request {
            ParsedRequest::Command(_)
            | ParsedRequest::OfHost
            | ParsedRequest::Select
            | ParsedRequest::Unwatch
                if self.queue.is_some() =>
            {
                self.enqueue(keyspace, args)?;
                ran.outcome = Outcome::Queued;
                replies.simple("QUEUED");
                return Ok(());
            }
            _ => *ran = ExecutedCommand { name: request.name(), outcome: Outcome::Done },
        }
        match request {
            ParsedRequest::Command(command) => {
                self.run_alone(keyspace, (command, args, ahead), moment, (host, replies), ran)
            }
            ParsedRequest::OfHost => host.run(args, replies),
            ParsedRequest::Select => self.select(args, replies),
            ParsedRequest::Multi if self.queue.is_some() => Err("ERR MULTI calls can not be nested".into()),
            ParsedRequest::Multi => {
                self.queue = Some(Queue::default());
                replies.ok();
                Ok(())
            }
            ParsedRequest::Discard if self.queue.is_some() && !self.may_unwatch(keyspace) => {
                Err(deferred(ran, DeferReason::IsHeld))
            }
            ParsedRequest::Unwatch if !self.may_unwatch(keyspace) => Err(deferred(ran, DeferReason::IsHeld)),
            ParsedRequest::Discard => {
                self.queue.take().ok_or("ERR DISCARD without MULTI")?;
                self.unwatch(keyspace);
                replies.ok();
                Ok(())
            }
            ParsedRequest::Watch if self.queue.is_some() => {
                Err("ERR WATCH inside MULTI is not allowed".into())
            }
            ParsedRequest::Watch => {
                if !self.watch_keys(keyspace, args, moment.now)? {
                    return Err(deferred(ran, DeferReason::IsHeld));
                }
                replies.ok();
                Ok(())
            }
            ParsedRequest::Unwatch => {
                self.unwatch(keyspace);
                replies.ok();
                Ok(())
            }
            ParsedRequest::Exec => self.exec(keyspace, moment, (host, replies), ran),
        }
    }

    /// Executes a command outside a transaction.
    fn run_alone(
        &mut self,
        keyspace: &Keyspace,
        (command, args, ahead): (&Command, &Args<'_>, LookAhead),
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
        ran: &mut ExecutedCommand,
    ) -> Result<(), Refusal> {
        check_accepts(keyspace)?;
        let (is_short, before) = (self.mode == ExecutionMode::Short, replies.bytes());
        let key = ahead.hash.zip(command.keys.of(args).next());
        for tries in 1.. {
            let recorder = self.recorder(keyspace, command.writes(args).then_some(args), moment)?;
            let resources = match key {
                Some((hash, key)) if is_short => CommandResources::one(keyspace, recorder, key, hash),
                _ => {
                    CommandResources::of(keyspace, recorder, std::iter::once((command.keys, args)), self.mode)
                }
            };
            let Some(mut resources) = resources else { return Err(deferred(ran, DeferReason::IsHeld)) };
            let at = (self.space, moment.now);
            if is_short && is_long_command(command, args, (keyspace, &mut resources), at) {
                return Err(deferred(ran, DeferReason::IsLong));
            }
            let (to, asked) = (&mut *replies, &mut *host);
            let done = self.run(command, args, (keyspace, &mut resources), moment, (asked, to));
            let kept = resources.wants_room().filter(|_| done.is_err());
            self.finish(resources)?;
            let Some(kept) = kept.filter(|_| tries <= RETRIES) else { return done };
            // Waiting for memory in shards that others hold is left to a thread that may block.
            if is_short {
                return Err(deferred(ran, DeferReason::IsLong));
            }
            if keyspace.make_room(&kept, moment.random.wrapping_add(tries), moment.now) == 0 {
                return done;
            }
            replies.truncate(before);
        }
        Ok(())
    }

    /// Returns the recorder for the changes of a command or transaction. `writing` gives the arguments of each command
    /// that writes; without any, nothing is recorded.
    fn recorder<'k, 'a>(
        &mut self,
        keyspace: &'k Keyspace,
        writing: impl IntoIterator<Item = &'a Args<'a>>,
        moment: TimeAndRandom,
    ) -> Result<Recorder<'k>, Refusal> {
        let Some(journal) = keyspace.journal() else { return Ok(Recorder::off()) };
        let bytes_of = |args: &Args<'_>| args.iter().map(|argument| argument.len()).sum::<usize>();
        let Some(bytes) = writing.into_iter().map(bytes_of).reduce(|sum, bytes| sum + bytes) else {
            return Ok(Recorder::off());
        };
        journal.check(bytes).map_err(|error| not_recorded(&error))?;
        Ok(Recorder::new(Some(journal), std::mem::take(&mut self.record), moment.now, moment.random))
    }

    /// Appends the log record and releases the shards.
    fn finish(&mut self, resources: CommandResources<'_>) -> Result<(), Refusal> {
        let (recorded, buffer) = resources.finish();
        self.record = buffer;
        match recorded {
            Ok(number) => {
                self.recorded = self.recorded.max(number);
                Ok(())
            }
            Err(error) => Err(not_recorded(&error)),
        }
    }

    fn run<'k>(
        &mut self,
        command: &Command,
        args: &Args<'_>,
        (keyspace, resources): (&'k Keyspace, &mut CommandResources<'k>),
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
    ) -> Result<(), Refusal> {
        let (now, random, space) = (moment.now, moment.random, self.space);
        let (replies, predicates) = (replies.reborrow(), &mut self.predicates);
        Context { keyspace, space, now, random, replies, resources, host, predicates }.run(command, args)
    }

    fn enqueue(&mut self, keyspace: &Keyspace, args: &Args<'_>) -> Result<(), Refusal> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        if keyspace.is_full() {
            queue.is_refused = true;
            return Err(FULL.into());
        }
        let bytes: usize = args.iter().map(|argument| argument.len() + 32).sum();
        if queue.bytes + bytes > KV_QUEUE_BYTES_MAX {
            queue.is_refused = true;
            let text = format!("ERR more than {} MiB of commands in MULTI", KV_QUEUE_BYTES_MAX >> 20);
            return Err(Refusal(Cow::Owned(text)));
        }
        queue.bytes += bytes;
        queue.commands.push(args.iter().map(|argument| Box::from(*argument)).collect());
        Ok(())
    }

    fn select(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
        self.space = space_of_text(args[1])?;
        replies.ok();
        Ok(())
    }

    /// Watches the keys in `args`. Returns false when a long command holds one of their shards; the call may then be
    /// repeated from the start, as keys that are already watched are skipped.
    fn watch_keys(&mut self, keyspace: &Keyspace, args: &Args<'_>, now: u64) -> Result<bool, Refusal> {
        check_accepts(keyspace)?;
        for key in &args[1..] {
            if self.watched.iter().any(|watched| watched.space == self.space && *watched.key == **key) {
                continue;
            }
            if self.watched.len() >= KV_WATCHED_MAX {
                return Err(Refusal(Cow::Owned(format!("ERR more than {KV_WATCHED_MAX} keys are watched"))));
            }
            let hash = keyspace.hash(key);
            let Some(mut shard) = self.shard_of(keyspace, hash) else { return Ok(false) };
            shard.watch(self.space, key, &self.watch);
            let (owner, _) = shard.owner(self.space, key);
            let was_there = shard.table(owner).is_some_and(|table| table.get(hash, key, now).is_some());
            drop(shard);
            self.watched.push(Watched { space: self.space, key: Box::from(*key), was_there });
        }
        Ok(true)
    }

    /// Locks the shard of a hash; `None` in short mode when a long command holds it.
    fn shard_of<'k>(&self, keyspace: &'k Keyspace, hash: u64) -> Option<ShardGuard<'k>> {
        let shard = keyspace.shard_of(hash);
        match self.mode {
            ExecutionMode::Short => keyspace.take(shard),
            ExecutionMode::Long => Some(keyspace.lock(shard).into()),
        }
    }

    /// Unwatches the keys whose shards no long command holds; returns whether no watched key is left.
    fn may_unwatch(&mut self, keyspace: &Keyspace) -> bool {
        let mode = self.mode;
        let watch = &self.watch;
        self.watched.retain(|Watched { space, key, .. }| {
            let shard = keyspace.shard_of(keyspace.hash(key));
            let resources = match mode {
                ExecutionMode::Short => keyspace.take(shard),
                ExecutionMode::Long => Some(keyspace.lock(shard).into()),
            };
            resources.map(|mut resources| resources.unwatch(*space, key, watch)).is_none()
        });
        self.watched.is_empty()
    }

    fn unwatch(&mut self, keyspace: &Keyspace) {
        for Watched { space, key, .. } in self.watched.drain(..) {
            keyspace.lock(keyspace.shard_of(keyspace.hash(&key))).unwatch(space, &key, &self.watch);
        }
        self.watch = Watch::default();
    }

    /// Resets the session: space 0, no queue, no watched keys. Called when the client disconnects or sends `RESET`.
    pub fn reset(&mut self, keyspace: &Keyspace) {
        self.unwatch(keyspace);
        // Replies to earlier commands still wait for their log records.
        *self = Session { recorded: self.recorded, mode: self.mode, ..Session::default() };
    }

    /// Drops queue and watches when the client continues as another tenant; the number of the selected space stays.
    /// Watched keys count as changed, so that an `EXEC` that relies on them fails.
    pub fn leave(&mut self, keyspace: &Keyspace) {
        let has_watched = !self.watched.is_empty();
        let space = self.space;
        self.reset(keyspace);
        self.space = space;
        if has_watched {
            self.watch.touch();
        }
    }

    /// Executes the queue while no other command sees any of its keys.
    fn exec(
        &mut self,
        keyspace: &Keyspace,
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
        ran: &mut ExecutedCommand,
    ) -> Result<(), Refusal> {
        let queue = self.queue.take().ok_or("ERR EXEC without MULTI")?;
        match self.exec_queue(keyspace, &queue, moment, (host, replies)) {
            Ok(()) => {
                self.unwatch(keyspace);
                Ok(())
            }
            Err(ExecFailure::Deferred(why)) => {
                self.queue = Some(queue);
                Err(deferred(ran, why))
            }
            // Unwatching would wait for the shards of the watched keys.
            Err(ExecFailure::Refused(_)) if self.mode == ExecutionMode::Short && self.is_watching() => {
                self.queue = Some(queue);
                Err(deferred(ran, DeferReason::IsLong))
            }
            Err(ExecFailure::Refused(refusal)) => {
                self.unwatch(keyspace);
                Err(refusal)
            }
        }
    }

    fn exec_queue(
        &mut self,
        keyspace: &Keyspace,
        queue: &Queue,
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
    ) -> Result<(), ExecFailure> {
        // Large queues are put off before any of their commands is parsed or looked up.
        let is_short = self.mode == ExecutionMode::Short;
        if is_short && (queue.commands.len() > STEP_COMMANDS || queue.bytes > KV_STEP_WORK_MAX) {
            return Err(ExecFailure::Deferred(DeferReason::IsLong));
        }
        check_accepts(keyspace)?;
        if queue.is_refused {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        if keyspace.is_full() && queue.commands.iter().any(|args| grows(&args[0])) {
            let text = format!("EXECABORT Transaction discarded because of: {FULL}");
            return Err(Refusal(Cow::Owned(text)).into());
        }
        let commands: Vec<Vec<&[u8]>> =
            queue.commands.iter().map(|args| args.iter().map(|argument| &**argument).collect()).collect();
        let request = commands.iter().map(|args| parse_request(args, command(args[0]), host));
        let request = request.collect::<Result<Vec<_>, _>>()?;
        let is_text = |(request, args): (&ParsedRequest, &Vec<&[u8]>)| match request {
            ParsedRequest::Command(command) => is_long_text(command, args),
            _ => host.is_long(args),
        };
        if is_short && request.iter().zip(&commands).any(is_text) {
            return Err(ExecFailure::Deferred(DeferReason::IsLong));
        }
        let writing = request.iter().zip(&commands).filter(|(request, _)| writes(request));
        let only_reads = writing.clone().next().is_none();
        let recorder = self.recorder(keyspace, writing.map(|(_, args)| &args[..]), moment)?;
        let watched: Vec<Box<[u8]>> = self.watched.iter().map(|watched| watched.key.clone()).collect();
        let watched: Vec<&[u8]> = watched.iter().map(|key| &**key).collect();
        let all = request.iter().zip(&commands).map(|(request, args)| (request.keys(), &args[..]));
        let watches = std::iter::once((Keys::At { first: 0, last: -1, step: 1 }, &watched[..]));
        let resources = CommandResources::of(keyspace, recorder, all.chain(watches), self.mode);
        let mut resources = resources.ok_or(ExecFailure::Deferred(DeferReason::IsHeld))?;
        // Refusals and the reply to a transaction that is not carried out tell about the keys, too.
        self.recorded = self.recorded.max(resources.last_record());
        // A write to a watched key touches the watch under the lock of the key's shard, and that lock is held here.
        if self.watch.is_touched() || self.is_gone(keyspace, &mut resources, moment.now) {
            self.unwatch_taken(keyspace, &mut resources);
            replies.null_array();
            return Ok(());
        }
        let work = self.work_of(keyspace, (&request[..], &commands[..]), (&mut resources, moment.now));
        if is_short && work.is_long() {
            return Err(ExecFailure::Deferred(DeferReason::IsLong));
        }
        if work.beside_largest() > KV_EXEC_WORK_MAX {
            let most = KV_EXEC_WORK_MAX >> 30;
            return Err(Refusal(Cow::Owned(format!(
                "EXECABORT Transaction discarded because its commands would read or write more than {most} GiB, while no \
                 other client could use the keys: send fewer of them at once"
            )))
            .into());
        }
        replies.array(commands.len());
        for (request, args) in request.iter().zip(&commands) {
            if only_reads && host.has_gone() {
                return Err("ERR the client has gone".into());
            }
            let before = replies.bytes();
            let done = match request {
                // An earlier `AUTH` in the same transaction may have revoked the right to write.
                ParsedRequest::Command(command) if command.writes(args) && !host.may_write() => {
                    Err(MAY_NOT_WRITE.into())
                }
                ParsedRequest::Command(command) => {
                    self.run(command, args, (keyspace, &mut resources), moment, (host, replies))
                }
                ParsedRequest::Select => self.select(args, replies),
                ParsedRequest::Unwatch => {
                    replies.ok();
                    Ok(())
                }
                _ => host.run(args, replies),
            };
            let mut outcome = Outcome::Done;
            if let Err(Refusal(text)) = done {
                replies.truncate(before);
                replies.error(&*text);
                outcome = Outcome::Failed;
            }
            host.ran(ExecutedCommand { name: request.name(), outcome });
        }
        self.unwatch_taken(keyspace, &mut resources);
        Ok(self.finish(resources)?)
    }

    /// Estimates the work of all commands of a transaction.
    fn work_of<'b>(
        &self,
        keyspace: &Keyspace,
        (request, commands): (&[ParsedRequest], &'b [Vec<&'b [u8]>]),
        (resources, now): (&mut CommandResources<'_>, u64),
    ) -> WorkOfExec<'b> {
        let (mut work, mut space) = (WorkOfExec::new(), self.space);
        for (request, args) in request.iter().zip(commands) {
            if let (ParsedRequest::Select, Some(number)) = (request, args.get(1)) {
                space = parse_integer(number).and_then(space_number).unwrap_or(space);
            }
            let command = match request {
                ParsedRequest::Command(command) => Some(*command),
                _ => None,
            };
            work.add(command, args, (keyspace, resources), (space, now));
        }
        work
    }

    /// Unwatches all keys; their shards are locked already.
    fn unwatch_taken(&mut self, keyspace: &Keyspace, resources: &mut CommandResources<'_>) {
        for Watched { space, key, .. } in self.watched.drain(..) {
            resources.shard(keyspace.shard_of(keyspace.hash(&key))).unwatch(space, &key, &self.watch);
        }
    }

    /// Returns whether a watched key that existed at `WATCH` no longer exists. Expiry does not touch watches, so `EXEC`
    /// looks the keys up.
    fn is_gone(&self, keyspace: &Keyspace, resources: &mut CommandResources<'_>, now: u64) -> bool {
        self.watched.iter().filter(|watched| watched.was_there).any(|Watched { space, key, .. }| {
            let hash = keyspace.hash(key);
            let shard = resources.shard(keyspace.shard_of(hash));
            let table = shard.table(shard.owner(*space, key).0);
            table.is_none_or(|table| table.get(hash, key, now).is_none())
        })
    }
}

/// Most commands of a transaction that may be executed in one step.
const STEP_COMMANDS: usize = 512;

/// The reason why a transaction was not executed.
enum ExecFailure {
    Deferred(DeferReason),
    Refused(Refusal),
}

impl From<Refusal> for ExecFailure {
    fn from(refusal: Refusal) -> Self {
        ExecFailure::Refused(refusal)
    }
}

impl From<&'static str> for ExecFailure {
    fn from(text: &'static str) -> Self {
        ExecFailure::Refused(text.into())
    }
}

/// Error of commands while the keys are being rebuilt. Clients know the word: they try again.
const REBUILDING: &str = "LOADING the keys are being rebuilt, because changes at the end of their log do not count: try \
     again in a moment";

/// Refuses a command while the keys are being rebuilt.
fn check_accepts(keyspace: &Keyspace) -> Result<(), Refusal> {
    if keyspace.refuses_commands() { Err(REBUILDING.into()) } else { Ok(()) }
}

/// Marks a command as put off and returns the empty refusal that stands for that.
fn deferred(ran: &mut ExecutedCommand, why: DeferReason) -> Refusal {
    ran.outcome = Outcome::Deferred(why);
    Refusal(Cow::Borrowed(""))
}

/// Error of a transaction that needs memory while usage exceeds `maxmemory`.
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Number of times a command is retried that found no memory because other commands held the shards with evictable
/// keys.
const RETRIES: u64 = 16;

/// Error of a command that changes keys, for a token without that right.
const MAY_NOT_WRITE: &str = "NOPERM this token may not write: use one with the role write";

/// Commands that change keys but need no additional memory.
const SHRINKING: &[&str] = &[
    "del",
    "expire",
    "expireat",
    "flushall",
    "flushdb",
    "getdel",
    "getex",
    "hdel",
    "persist",
    "pexpire",
    "pexpireat",
    "rename",
    "renamenx",
    "unlink",
];

/// Returns whether the command with this name may need memory for keys.
fn grows(name: &[u8]) -> bool {
    command(name).is_some_and(|command| command.may_write() && !SHRINKING.contains(&command.name))
}

fn writes(request: &ParsedRequest) -> bool {
    matches!(request, ParsedRequest::Command(command) if command.may_write())
}

/// Returns the error of a command that changes keys while the log cannot be written.
fn not_recorded(error: &Error) -> Refusal {
    Refusal(Cow::Owned(format!("MISCONF the log of keys cannot be written: {}", error.message)))
}

/// Parses a request. Fails when the command does not exist, has the wrong number of arguments, or needs a right that
/// the client lacks.
fn parse_request(
    args: &Args<'_>,
    command: Option<&'static Command>,
    host: &dyn Host,
) -> Result<ParsedRequest, Refusal> {
    let arity = |request, exact: Option<usize>| match exact {
        Some(exact) if args.len() != exact => Err(wrong_number(args[0])),
        None if args.len() < 2 => Err(wrong_number(args[0])),
        _ => Ok(request),
    };
    if let Some(command) = command {
        if !command.takes(args.len()) {
            return Err(wrong_number(args[0]));
        }
        if command.writes(args) && !host.may_write() {
            return Err(MAY_NOT_WRITE.into());
        }
        check_subcommand(command.name, args)?;
        return Ok(ParsedRequest::Command(command));
    }
    match args[0].to_ascii_lowercase().as_slice() {
        b"multi" => arity(ParsedRequest::Multi, Some(1)),
        b"exec" => arity(ParsedRequest::Exec, Some(1)),
        b"discard" => arity(ParsedRequest::Discard, Some(1)),
        b"watch" => arity(ParsedRequest::Watch, None),
        b"unwatch" => arity(ParsedRequest::Unwatch, Some(1)),
        b"select" => arity(ParsedRequest::Select, Some(2)),
        _ if host.knows(args)? => Ok(ParsedRequest::OfHost),
        _ => Err(UNKNOWN.into()),
    }
}

/// Error of an unknown command. The reply is made by [`unknown`], because the client's bytes need not be valid UTF-8.
const UNKNOWN: &str = "ERR unknown command";

/// Returns the error of a command with the wrong number of arguments.
pub fn wrong_number(name: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Refusal(Cow::Owned(format!("ERR wrong number of arguments for '{name}' command")))
}

/// Most bytes of the name, and of the arguments, that the error of an unknown command shows.
const SHOWN_BYTES: usize = 128;

/// Returns the error of an unknown command with its name and arguments, each up to a zero byte, as Redis does.
fn unknown(args: &Args<'_>) -> Vec<u8> {
    let shown = |text: &[u8], most: usize| {
        let text = &text[..text.len().min(most)];
        text.iter().copied().take_while(|byte| *byte != 0).collect::<Vec<u8>>()
    };
    let mut told = Vec::new();
    for argument in &args[1..] {
        if told.len() >= SHOWN_BYTES {
            break;
        }
        let argument = shown(argument, SHOWN_BYTES - told.len());
        told.extend([b"'", &*argument, b"' "].concat());
    }
    let name = shown(args[0], SHOWN_BYTES);
    [b"ERR unknown command '", &*name, b"', with args beginning with: ", &told].concat()
}

//! The state of a client between commands of the Redis protocol (session): the selected space (namespace of keys,
//! Redis' numbered database), the commands queued by `MULTI`, and the keys watched by `WATCH`.
//!
//! A session executes commands in an [`ExecutionMode`]. In short mode, a command that would take longer than a step
//! (see `KV_STEP_WORK_MAX`), or that needs a shard held by a long command, is deferred before it changes anything: the
//! caller executes it again later, in long mode or when the shard is released.
//!
//! Invariant of `WATCH`: every write to a watched key sets the flag of the client's watch ("touches" the watch) while
//! it holds the lock of the key's shard, and `EXEC` checks the flag after it has locked the shards of all its keys and
//! of all watched keys. So no write can happen between the check and the first command of the transaction:
//!
//! 1. Client A: `WATCH k`, `MULTI`, `SET k 1`.
//! 2. Client B: `SET k 2`, which touches A's watch under the lock of `k`'s shard.
//! 3. Client A: `EXEC` locks the shard of `k`, sees the touched watch, and replies null. Had it checked before locking,
//!    B's write could land in between and be overwritten.

mod host;
mod request;
mod transaction;

pub use host::{Host, NoHost};
pub use request::wrong_number;

use crate::ahead::LookAhead;
use crate::commands::{
    Args, Command, CommandResources, Context, KeyspaceFunction, NOT_INTEGER, Place, Predicates, Refusal,
    SessionCommand, TOO_MUCH, is_long_command, work_of_arguments,
};
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::resp::{Replies, parse_integer};
use crate::shard::{SpaceId, Watch};
use farpool_model::Error;
use farpool_model::limits::KV_STEP_WORK_MAX;
use request::{UNKNOWN, checked, is_long_request, unknown};
use std::borrow::Cow;
use transaction::{Queue, Watched};

/// Number of spaces that clients select with `SELECT`; their ids are 0 to 15, as in Redis.
pub(crate) const SPACES: SpaceId = 16;

/// Returns `number` as the id of a space for `SELECT`; `None` unless 0 <= `number` < [`SPACES`].
pub(crate) fn space_number(number: i64) -> Option<SpaceId> {
    SpaceId::try_from(number).ok().filter(|number| *number < SPACES)
}

/// Parses the id of a space for `SELECT`. The error messages are those of Redis.
pub(crate) fn space_of_text(text: &[u8]) -> Result<SpaceId, Refusal> {
    let number = parse_integer(text).ok_or(NOT_INTEGER)?;
    if i32::try_from(number).is_err() {
        return Err("ERR value is out of range, value must between -2147483648 and 2147483647".into());
    }
    space_number(number).ok_or_else(|| "ERR DB index is out of range".into())
}

/// Returns the id of the space that clients select to use the keys of `space`: `space` itself, or 0 for a named space
/// (ids from [`SPACES`] on), as the keys of named spaces are part of space 0.
pub(crate) fn selected(space: SpaceId) -> SpaceId {
    if space < SPACES { space } else { 0 }
}

/// The time and the random number that a command uses instead of a clock and a generator, so that the same commands
/// with the same values give the same results in every run.
#[derive(Clone, Copy, Debug)]
pub struct TimeAndRandom {
    /// Milliseconds since the epoch.
    pub now: u64,
    /// A random number, for commands such as `RANDOMKEY` and for eviction.
    pub random: u64,
}

/// A command that a session was asked to execute, and its outcome; for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedCommand {
    /// The name of the command in [`COMMANDS`](crate::COMMANDS); empty for a command that does not exist.
    pub name: &'static str,
    /// Whether the command was executed, and whether it succeeded.
    pub outcome: Outcome,
}

/// The time that a command may occupy the thread that executes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutionMode {
    /// At most one step, and without blocking on shards that long commands hold, because the thread serves other
    /// clients as well. Longer commands are deferred ([`DeferReason`]).
    Short,
    /// The command may take any time, and blocks on locks. The shards of the command are marked as held during its
    /// execution, so that commands in short mode are deferred and do not wait.
    #[default]
    Long,
}

/// The reason why a command in short mode was deferred. A deferred command has changed nothing and has no reply yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferReason {
    /// The command may take longer than a step; the caller executes it in [`ExecutionMode::Long`] on another thread.
    IsLong,
    /// A long command holds a shard that this command needs; [`Keyspace::poll_released`] tells when to try again.
    IsHeld,
}

/// The outcome of a call of [`Session::execute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command was not executed because of [`ExecutionMode::Short`]; the caller executes it again later.
    Deferred(DeferReason),
    /// The command was refused before its execution began, for example because it does not exist.
    Rejected,
    /// The command is queued until `EXEC`.
    Queued,
    /// The command was executed without an error.
    Done,
    /// The execution of the command began and ended with an error reply.
    Failed,
}

/// The state of one client between commands: the selected space, queued commands, watched keys.
#[derive(Debug, Default)]
pub struct Session {
    space: SpaceId,
    mode: ExecutionMode,
    queue: Option<Queue>,
    watch: Watch,
    watched: Vec<Watched>,
    predicates: Predicates,
    /// Sequence number of the latest log record that replies depend on; `None` if [`Session::take_recorded`] has
    /// returned it.
    recorded: Option<u64>,
    record: Vec<u8>,
}

impl Session {
    /// Returns the bytes of memory that queued commands, watched keys and the cached condition (of a predicate) use.
    pub fn bytes(&self) -> usize {
        let watched: usize = self.watched.iter().map(|watched| watched.key.len() + 64).sum();
        self.queue.as_ref().map_or(0, |queue| queue.bytes) + watched + self.predicates.bytes()
    }

    /// Sets the execution mode of the commands that follow.
    pub fn set_mode(&mut self, mode: ExecutionMode) {
        self.mode = mode;
    }

    /// Returns whether any key is watched.
    pub fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Returns the id of the selected space.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Returns whether commands are being queued, that is, whether the client has sent `MULTI` and not yet `EXEC` or
    /// `DISCARD`.
    pub fn is_queueing(&self) -> bool {
        self.queue.is_some()
    }

    /// Returns the number of queued commands, or `None` outside `MULTI`.
    pub fn queued(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.commands.len())
    }

    /// Returns whether any queued command may change keys.
    pub fn queues_writes(&self) -> bool {
        let mut commands = self.queue.iter().flat_map(|queue| &queue.commands);
        commands.any(|queued| queued.command.may_write())
    }

    /// Takes the sequence number of the latest log record that the replies since the last call depend on: a record of
    /// the client's own changes, or of changes by others that the replies may show. The caller sends the replies only
    /// when this record is as durable as `--fsync` requires. Returns `None` if there is no such record. Example:
    ///
    /// 1. Client A: `SET a 1`; the record waits to be written.
    /// 2. Client B: `GET a` finds `1`. If B's reply were sent now and the power failed, B would have seen a value that
    ///    does not exist after the restart.
    /// 3. A's command has stored the number of its record in the shard of `a`, and B's session has read it there, so
    ///    B's reply waits for the record as well.
    pub fn take_recorded(&mut self) -> Option<u64> {
        self.recorded.take()
    }

    /// Notes that the next replies depend on the log record with the sequence number `number`; see
    /// [`Session::take_recorded`].
    pub fn note_recorded(&mut self, number: u64) {
        self.recorded = self.recorded.max(Some(number));
    }

    /// Notes that a command was refused before its execution began. If it came after `MULTI`, `EXEC` then refuses the
    /// whole transaction.
    pub fn note_refused(&mut self) {
        self.queue.iter_mut().for_each(|queue| queue.is_refused = true);
    }

    /// Executes or queues a command and appends one reply to `replies`; none if the command is deferred. Returns the
    /// command's name and outcome.
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

    /// Does the same as [`Session::execute`] with what a [`LookAhead`] has already found out about the command: the row
    /// of the command and the hash of its first key.
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
        let known = ahead.command.filter(|command| !command.lacks_subcommand(args));
        let name = known.map_or("", |command| command.name);
        let mut ran = ExecutedCommand { name, outcome: Outcome::Rejected };
        let done = match self.mode {
            ExecutionMode::Short if self.is_long(args, &ahead, host) => {
                Err(deferred(&mut ran, DeferReason::IsLong))
            }
            ExecutionMode::Short => {
                // The replies to a transaction are limited elsewhere, by the work that `EXEC` estimates.
                let is_exec = ahead.command.is_some_and(Command::is_exec);
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
            // The reply was too long for short mode only; in long mode it may fit.
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
            || self.queue.is_none()
                && ahead.command.is_some_and(|command| is_long_request(command, args, host))
    }

    /// Executes a request, or queues it after `MULTI`. All commands pass through this function; those about the
    /// connection are then executed by [`Host::run`].
    fn dispatch(
        &mut self,
        keyspace: &Keyspace,
        (args, ahead): (&Args<'_>, LookAhead),
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
        ran: &mut ExecutedCommand,
    ) -> Result<(), Refusal> {
        let command = match checked(ahead.command, args, host) {
            Ok(command) => command,
            // `EXEC` with wrong arguments ends the transaction, as in Redis.
            Err(Refusal(text)) if ahead.command.is_some_and(Command::is_exec) => {
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
        if self.queue.is_some() && command.is_queued() {
            self.enqueue(keyspace, command, args)?;
            ran.outcome = Outcome::Queued;
            replies.simple("QUEUED");
            return Ok(());
        }
        ran.outcome = Outcome::Done;
        match command.place {
            Place::Keyspace(run) => {
                self.run_alone(keyspace, (command, run, args, ahead.hash), moment, (host, replies), ran)
            }
            Place::Host(of_host) => host.run((command, of_host), args, replies),
            Place::Session(SessionCommand::Discard) => self.discard(keyspace, replies, ran),
            Place::Session(SessionCommand::Exec) => self.exec(keyspace, moment, (host, replies), ran),
            Place::Session(SessionCommand::Multi) => self.multi(replies),
            Place::Session(SessionCommand::Select) => self.select(args, replies),
            Place::Session(SessionCommand::Unwatch) => self.unwatch_all(keyspace, replies, ran),
            Place::Session(SessionCommand::Watch) => self.watch(keyspace, (args, moment.now), replies, ran),
            // Not reached, because the check above refuses a command of this kind unless the arguments name an existing
            // subcommand.
            Place::Subcommands => Err(UNKNOWN.into()),
        }
    }

    /// Executes a command on keys outside a transaction. In long mode, a command that finds no memory is repeated after
    /// making room, up to [`RETRIES`] times.
    fn run_alone(
        &mut self,
        keyspace: &Keyspace,
        (command, run, args, hash): (&Command, KeyspaceFunction, &Args<'_>, Option<u64>),
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
        ran: &mut ExecutedCommand,
    ) -> Result<(), Refusal> {
        check_accepts(keyspace)?;
        let (is_short, before) = (self.mode == ExecutionMode::Short, replies.bytes());
        let key = hash.zip(command.keys.of(args).next());
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
            let done = self.run((command, run, args), (keyspace, &mut resources), moment, (asked, to));
            let kept = resources.wants_room().filter(|_| done.is_err());
            self.finish(resources)?;
            let Some(kept) = kept.filter(|_| tries <= RETRIES) else { return done };
            // Making room means waiting for shards that others hold, which only a thread in long mode may do.
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

    /// Returns the recorder that collects the changes of a command or transaction for the log. `writing` has the
    /// arguments of each command that writes; if it is empty, or if changes are not logged, the recorder ignores all
    /// changes.
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

    /// Appends the log record of a command or transaction and releases its shards. Fails when the record cannot be
    /// written; the keys have changed in memory then.
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
        (command, run, args): (&Command, KeyspaceFunction, &Args<'_>),
        (keyspace, resources): (&'k Keyspace, &mut CommandResources<'k>),
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
    ) -> Result<(), Refusal> {
        let (now, random, space) = (moment.now, moment.random, self.space);
        let (replies, predicates) = (replies.reborrow(), &mut self.predicates);
        let mut context = Context { keyspace, space, now, random, replies, resources, host, predicates };
        context.run((command, run), args)
    }

    fn select(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Result<(), Refusal> {
        self.space = space_of_text(args[1])?;
        replies.ok();
        Ok(())
    }

    /// Resets the session to space 0, without queued commands and watched keys. Called when the client disconnects or
    /// sends `RESET`. Blocks on the locks of the watched keys' shards.
    pub fn reset(&mut self, keyspace: &Keyspace) {
        self.unwatch(keyspace);
        // Kept, as replies to earlier commands still wait for their log records.
        *self = Session { recorded: self.recorded, mode: self.mode, ..Session::default() };
    }

    /// Drops queued commands and watched keys of `keyspace` when the client continues as another tenant. The id of the
    /// selected space stays. Watched keys count as changed, because they are no longer observed, so the next `EXEC`
    /// executes nothing.
    pub fn leave(&mut self, keyspace: &Keyspace) {
        let has_watched = !self.watched.is_empty();
        let space = self.space;
        self.reset(keyspace);
        self.space = space;
        if has_watched {
            self.watch.touch();
        }
    }
}

/// Error of commands while the keys are being rebuilt from the log. Redis clients know the word `LOADING` and try
/// again.
const REBUILDING: &str = "LOADING the keys are being rebuilt, because changes at the end of their log do not count: try \
     again in a moment";

/// Fails while the keys are being rebuilt from the log.
fn check_accepts(keyspace: &Keyspace) -> Result<(), Refusal> {
    if keyspace.refuses_commands() { Err(REBUILDING.into()) } else { Ok(()) }
}

/// Sets the outcome of a command to deferred. Returns an empty [`Refusal`], which functions return as their error so
/// that no reply is appended.
fn deferred(ran: &mut ExecutedCommand, why: DeferReason) -> Refusal {
    ran.outcome = Outcome::Deferred(why);
    Refusal(Cow::Borrowed(""))
}

/// Maximum number of times that a command is repeated after making room. Repeating is needed because others may take
/// the room again before the command does.
const RETRIES: u64 = 16;

/// Returns the error reply to a command that changes keys while the log cannot be written.
fn not_recorded(error: &Error) -> Refusal {
    Refusal(Cow::Owned(format!("MISCONF the log of keys cannot be written: {}", error.message)))
}

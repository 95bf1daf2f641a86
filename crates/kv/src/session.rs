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
    /// The name in the table; empty for a command that does not exist.
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
        let mut commands = self.queue.iter().flat_map(|queue| &queue.commands);
        commands.any(|queued| queued.command.may_write())
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
        let known = ahead.command.filter(|command| !command.lacks_subcommand(args));
        let name = known.map_or("", |command| command.name);
        let mut ran = ExecutedCommand { name, outcome: Outcome::Rejected };
        let done = match self.mode {
            ExecutionMode::Short if self.is_long(args, &ahead, host) => {
                Err(deferred(&mut ran, DeferReason::IsLong))
            }
            ExecutionMode::Short => {
                // The replies of a transaction have a limit of their own.
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
            || self.queue.is_none()
                && ahead.command.is_some_and(|command| is_long_request(command, args, host))
    }

    /// Executes or queues a request: the only dispatch of commands. What the host does for the connection is behind its
    /// [`Host::run`].
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
            // Without a subcommand that exists, the check above fails.
            Place::Subcommands => Err(UNKNOWN.into()),
        }
    }

    /// Executes a command outside a transaction.
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

/// Number of times a command is retried that found no memory because other commands held the shards with evictable
/// keys.
const RETRIES: u64 = 16;

/// Returns the error of a command that changes keys while the log cannot be written.
fn not_recorded(error: &Error) -> Refusal {
    Refusal(Cow::Owned(format!("MISCONF the log of keys cannot be written: {}", error.message)))
}

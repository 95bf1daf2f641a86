//! What a client has begun: its space, the commands that it has queued, and the keys that it watches.

use crate::ahead::Ahead;
use crate::commands::{
    Args, Command, Context, Keys, NOT_INTEGER, Predicates, Refusal, Taken, check_subcommand, command,
};
use crate::cut::ReadEntry;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::resp::{Replies, parse_integer};
use crate::shard::{SpaceId, Watch};
use crate::spaces::Space;
use farpool_model::limits::{KV_QUEUE_BYTES_MAX, KV_WATCHED_MAX};
use farpool_model::{Error, Expr};
use std::borrow::Cow;
use std::sync::Arc;

/// Spaces that clients select by number.
pub(crate) const SPACES: SpaceId = 16;

/// Returns the space with this number, if there is one.
pub(crate) fn space_number(number: i64) -> Option<SpaceId> {
    SpaceId::try_from(number).ok().filter(|number| *number < SPACES)
}

/// The selected space that a space is part of: those with names are part of the first.
pub(crate) fn selected(space: SpaceId) -> SpaceId {
    if space < SPACES { space } else { 0 }
}

/// What comes with a command, so that it does the same wherever it is carried out.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Milliseconds since the epoch.
    pub now: u64,
    /// A random number.
    pub random: u64,
}

/// What became of a command, for whoever counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its name in lower case; empty if it is a command of the host, or was refused before it began.
    pub name: &'static str,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was refused before it began.
    Rejected,
    /// It waits for `EXEC`.
    Queued,
    /// It was carried out.
    Done,
    /// It began and was refused.
    Failed,
}

/// Carries out the commands that are not about keys, such as those of a connection.
pub trait Host {
    /// Returns whether it knows the command; refused where its arguments are wrong.
    fn knows(&self, args: &Args<'_>) -> Result<bool, Refusal>;

    /// Carries out a command that it knows.
    fn run(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Result<(), Refusal>;

    /// Whether the client may change keys.
    fn may_write(&self) -> bool;

    /// Hears what became of a command of a transaction as soon as it has run. For a command of the host, the name is empty.
    fn ran(&mut self, ran: Ran) {
        let _ = ran;
    }

    /// Tells for each of some entries, at a moment, whether a condition on columns is true for it; `space` is theirs, if it
    /// has a name.
    ///
    /// # Errors
    /// Where it cannot be told, because a value is no text.
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

/// A host without commands of its own, whose client may change keys.
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

/// A client's state.
#[derive(Debug, Default)]
pub struct Session {
    space: SpaceId,
    queue: Option<Queue>,
    watch: Watch,
    watched: Vec<Watched>,
    predicates: Predicates,
    /// The latest record of what the client has done, and the buffer of the next one.
    recorded: Option<u64>,
    record: Vec<u8>,
}

/// A key that is watched.
#[derive(Debug)]
struct Watched {
    space: SpaceId,
    key: Box<[u8]>,
    /// Whether it was there when it was named.
    was_there: bool,
}

/// The commands behind `MULTI`.
#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Vec<Box<[u8]>>>,
    bytes: usize,
    /// Whether one of them was refused when it came.
    is_refused: bool,
}

/// What a client asks for.
enum Wanted {
    Command(&'static Command),
    OfHost,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Select,
}

impl Wanted {
    /// Its name; empty if it is a command of the host.
    fn name(&self) -> &'static str {
        match self {
            Wanted::Command(command) => command.name,
            Wanted::OfHost => "",
            Wanted::Multi => "multi",
            Wanted::Exec => "exec",
            Wanted::Discard => "discard",
            Wanted::Watch => "watch",
            Wanted::Unwatch => "unwatch",
            Wanted::Select => "select",
        }
    }
}

impl Session {
    /// Bytes of the commands that are queued and the keys that are watched.
    pub fn bytes(&self) -> usize {
        let watched: usize = self.watched.iter().map(|watched| watched.key.len() + 64).sum();
        self.queue.as_ref().map_or(0, |queue| queue.bytes) + watched
    }

    /// The number of the space.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Whether commands are queued.
    pub fn is_queueing(&self) -> bool {
        self.queue.is_some()
    }

    /// How many commands are queued, if they are.
    pub fn queued(&self) -> Option<usize> {
        self.queue.as_ref().map(|queue| queue.commands.len())
    }

    /// Whether a command that is queued may change keys.
    pub fn queues_writes(&self) -> bool {
        let commands = self.queue.iter().flat_map(|queue| &queue.commands);
        commands.filter_map(|args| command(&args[0])).any(Command::may_write)
    }

    /// Takes the number of the latest record of what the client has done since the last call: its replies may be sent once
    /// that is as durable as it is to be.
    pub fn take_recorded(&mut self) -> Option<u64> {
        self.recorded.take()
    }

    /// Says that the client has recorded something in another way, with a record of this number.
    pub fn note_recorded(&mut self, number: u64) {
        self.recorded = Some(number);
    }

    /// Says that a command was refused before it began: where commands are queued, `EXEC` refuses all of them.
    pub fn note_refused(&mut self) {
        self.queue.iter_mut().for_each(|queue| queue.is_refused = true);
    }

    /// Carries out a command, or queues it, and appends one reply. Returns what became of it.
    pub fn execute(
        &mut self,
        keyspace: &Keyspace,
        args: &Args<'_>,
        moment: Moment,
        host: &mut dyn Host,
        replies: &mut Replies<'_>,
    ) -> Ran {
        self.execute_known(keyspace, (args, Ahead::of(keyspace, args)), moment, host, replies)
    }

    /// As [`Session::execute`], with what is known of the command already.
    pub fn execute_known(
        &mut self,
        keyspace: &Keyspace,
        (args, ahead): (&Args<'_>, Ahead),
        moment: Moment,
        host: &mut dyn Host,
        replies: &mut Replies<'_>,
    ) -> Ran {
        let moment = Moment { now: keyspace.asked_at(moment.now), ..moment };
        let before = replies.bytes();
        let mut ran = Ran { name: "", outcome: Outcome::Rejected };
        if let Err(Refusal(text)) = self.dispatch(keyspace, (args, ahead), moment, (host, replies), &mut ran)
        {
            replies.truncate(before);
            replies.error(&*text);
            if ran.outcome == Outcome::Done {
                ran.outcome = Outcome::Failed;
            }
        }
        ran
    }

    fn dispatch(
        &mut self,
        keyspace: &Keyspace,
        (args, ahead): (&Args<'_>, Ahead),
        moment: Moment,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
        ran: &mut Ran,
    ) -> Result<(), Refusal> {
        let wanted = match wanted(args, ahead.command, host) {
            Ok(wanted) => wanted,
            // It ends the transaction all the same.
            Err(Refusal(text)) if args[0].eq_ignore_ascii_case(b"exec") => {
                self.queue = None;
                self.unwatch(keyspace);
                let text = text.trim_start_matches("ERR ");
                let text = format!("EXECABORT Transaction discarded because of: {text}");
                return Err(Refusal(Cow::Owned(text)));
            }
            Err(refusal) => {
                self.note_refused();
                return Err(refusal);
            }
        };
        match wanted {
            Wanted::Command(_) | Wanted::OfHost | Wanted::Select | Wanted::Unwatch
                if self.queue.is_some() =>
            {
                self.enqueue(keyspace, args)?;
                ran.outcome = Outcome::Queued;
                replies.simple("QUEUED");
                return Ok(());
            }
            _ => *ran = Ran { name: wanted.name(), outcome: Outcome::Done },
        }
        match wanted {
            Wanted::Command(command) => {
                let (mut tries, before) = (0, replies.bytes());
                loop {
                    let recorder = self.recorder(keyspace, command.writes(args).then_some(args), moment)?;
                    let key = ahead.hash.zip(command.keys.of(args).next());
                    let mut taken = match key {
                        Some((hash, key)) => Taken::one(keyspace, recorder, key, hash),
                        None => Taken::of(keyspace, recorder, std::iter::once((command.keys, args))),
                    };
                    let (host, replies) = (&mut *host, &mut *replies);
                    let done = self.run(command, args, (keyspace, &mut taken), moment, (host, replies));
                    let kept = taken.wants_room().filter(|_| done.is_err());
                    self.finish(taken)?;
                    tries += 1;
                    let random = moment.random.wrapping_add(tries);
                    let has_room = kept.is_some_and(|kept| keyspace.make_room(&kept, random, moment.now) > 0);
                    if !has_room || tries > RETRIES {
                        return done;
                    }
                    replies.truncate(before);
                }
            }
            Wanted::OfHost => host.run(args, replies),
            Wanted::Select => self.select(args, replies),
            Wanted::Multi if self.queue.is_some() => Err("ERR MULTI calls can not be nested".into()),
            Wanted::Multi => {
                self.queue = Some(Queue::default());
                replies.ok();
                Ok(())
            }
            Wanted::Discard => {
                self.queue.take().ok_or("ERR DISCARD without MULTI")?;
                self.unwatch(keyspace);
                replies.ok();
                Ok(())
            }
            Wanted::Watch if self.queue.is_some() => Err("ERR WATCH inside MULTI is not allowed".into()),
            Wanted::Watch => {
                self.watch_keys(keyspace, args, moment.now)?;
                replies.ok();
                Ok(())
            }
            Wanted::Unwatch => {
                self.unwatch(keyspace);
                replies.ok();
                Ok(())
            }
            Wanted::Exec => self.exec(keyspace, moment, host, replies),
        }
    }

    /// What records the changes of commands with these arguments, of those that write.
    fn recorder<'k, 'a>(
        &mut self,
        keyspace: &'k Keyspace,
        writing: impl IntoIterator<Item = &'a Args<'a>>,
        moment: Moment,
    ) -> Result<Recorder<'k>, Refusal> {
        let Some(journal) = keyspace.journal() else { return Ok(Recorder::off()) };
        let bytes_of = |args: &Args<'_>| args.iter().map(|argument| argument.len()).sum::<usize>();
        let Some(bytes) = writing.into_iter().map(bytes_of).reduce(|sum, bytes| sum + bytes) else {
            return Ok(Recorder::off());
        };
        journal.check(bytes).map_err(|error| not_recorded(&error))?;
        Ok(Recorder::new(Some(journal), std::mem::take(&mut self.record), moment.now, moment.random))
    }

    /// Records what was done.
    fn finish(&mut self, taken: Taken<'_>) -> Result<(), Refusal> {
        let (recorded, buffer) = taken.finish();
        self.record = buffer;
        match recorded {
            Ok(number) => {
                self.recorded = number.or(self.recorded);
                Ok(())
            }
            Err(error) => Err(not_recorded(&error)),
        }
    }

    fn run<'k>(
        &mut self,
        command: &Command,
        args: &Args<'_>,
        (keyspace, taken): (&'k Keyspace, &mut Taken<'k>),
        moment: Moment,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
    ) -> Result<(), Refusal> {
        let (now, random, space) = (moment.now, moment.random, self.space);
        let (replies, predicates) = (replies.reborrow(), &mut self.predicates);
        Context { keyspace, space, now, random, replies, taken, host, predicates }.run(command, args)
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
        let number = parse_integer(args[1]).ok_or(NOT_INTEGER)?;
        self.space = space_number(number).ok_or("ERR DB index is out of range")?;
        replies.ok();
        Ok(())
    }

    fn watch_keys(&mut self, keyspace: &Keyspace, args: &Args<'_>, now: u64) -> Result<(), Refusal> {
        for key in &args[1..] {
            if self.watched.iter().any(|watched| watched.space == self.space && *watched.key == **key) {
                continue;
            }
            if self.watched.len() >= KV_WATCHED_MAX {
                return Err(Refusal(Cow::Owned(format!("ERR more than {KV_WATCHED_MAX} keys are watched"))));
            }
            let hash = keyspace.hash(key);
            let mut shard = keyspace.lock(keyspace.shard_of(hash));
            shard.watch(self.space, key, &self.watch);
            let (owner, _) = shard.owner(self.space, key);
            let was_there = shard.table(owner).is_some_and(|table| table.get(hash, key, now).is_some());
            self.watched.push(Watched { space: self.space, key: Box::from(*key), was_there });
        }
        Ok(())
    }

    fn unwatch(&mut self, keyspace: &Keyspace) {
        for Watched { space, key, .. } in self.watched.drain(..) {
            keyspace.lock(keyspace.shard_of(keyspace.hash(&key))).unwatch(space, &key, &self.watch);
        }
        self.watch = Watch::default();
    }

    /// Ends what the client has begun, as when it leaves.
    pub fn reset(&mut self, keyspace: &Keyspace) {
        self.unwatch(keyspace);
        // What has been done already is waited for all the same.
        *self = Session { recorded: self.recorded, ..Session::default() };
    }

    /// Ends what the client has begun with these keys, as it goes on with those of another tenant; the number of its space stays.
    /// What it watched is not there any more, so that it counts as changed: an `EXEC` that relies on it must not succeed.
    pub fn leave(&mut self, keyspace: &Keyspace) {
        let has_watched = !self.watched.is_empty();
        let space = self.space;
        self.reset(keyspace);
        self.space = space;
        if has_watched {
            self.watch.touch();
        }
    }

    /// Carries out the queue while no other command sees any of its keys.
    fn exec(
        &mut self,
        keyspace: &Keyspace,
        moment: Moment,
        host: &mut dyn Host,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refusal> {
        let queue = self.queue.take().ok_or("ERR EXEC without MULTI")?;
        if queue.is_refused {
            self.unwatch(keyspace);
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        if keyspace.is_full() && queue.commands.iter().any(|args| grows(&args[0])) {
            self.unwatch(keyspace);
            let text = format!("EXECABORT Transaction discarded because of: {FULL}");
            return Err(Refusal(Cow::Owned(text)));
        }
        let commands: Vec<Vec<&[u8]>> =
            queue.commands.iter().map(|args| args.iter().map(|argument| &**argument).collect()).collect();
        let wanted = commands.iter().map(|args| wanted(args, command(args[0]), host));
        let wanted = wanted.collect::<Result<Vec<_>, _>>().inspect_err(|_| self.unwatch(keyspace))?;
        let keys_of = |wanted: &Wanted| match wanted {
            Wanted::Command(command) => command.keys,
            _ => Keys::None,
        };
        let writing = wanted.iter().zip(&commands).filter(|(wanted, _)| writes(wanted));
        let recorder = self.recorder(keyspace, writing.map(|(_, args)| &args[..]), moment);
        let recorder = recorder.inspect_err(|_| self.unwatch(keyspace))?;
        let watched: Vec<&[u8]> = self.watched.iter().map(|watched| &*watched.key).collect();
        let all = wanted.iter().zip(&commands).map(|(wanted, args)| (keys_of(wanted), &args[..]));
        let watches = std::iter::once((Keys::At { first: 0, last: -1, step: 1 }, &watched[..]));
        let mut taken = Taken::of(keyspace, recorder, all.chain(watches));
        // Whoever changes a watched key has its shard while it says so.
        if self.watch.is_touched() || self.is_gone(keyspace, &mut taken, moment.now) {
            drop(taken);
            self.unwatch(keyspace);
            replies.null_array();
            return Ok(());
        }
        replies.array(commands.len());
        for (wanted, args) in wanted.iter().zip(&commands) {
            let before = replies.bytes();
            let done = match wanted {
                // An AUTH before it may have taken the right to write.
                Wanted::Command(command) if command.writes(args) && !host.may_write() => {
                    Err(MAY_NOT_WRITE.into())
                }
                Wanted::Command(command) => {
                    self.run(command, args, (keyspace, &mut taken), moment, (host, replies))
                }
                Wanted::Select => self.select(args, replies),
                Wanted::Unwatch => {
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
            host.ran(Ran { name: wanted.name(), outcome });
        }
        let recorded = self.finish(taken);
        self.unwatch(keyspace);
        recorded
    }

    /// Whether a watched key has expired since.
    fn is_gone(&self, keyspace: &Keyspace, taken: &mut Taken<'_>, now: u64) -> bool {
        self.watched.iter().filter(|watched| watched.was_there).any(|Watched { space, key, .. }| {
            let hash = keyspace.hash(key);
            let shard = taken.shard(keyspace.shard_of(hash));
            let table = shard.table(shard.owner(*space, key).0);
            table.is_none_or(|table| table.get(hash, key, now).is_none())
        })
    }
}

/// The refusal of a transaction that needs memory while there is more in use than `maxmemory` allows.
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// How often a command is carried out again that found no room because others had shards whose keys could go.
const RETRIES: u64 = 16;

/// The refusal of a command that changes keys.
const MAY_NOT_WRITE: &str = "NOPERM this token may not write: use one with the role write";

/// Commands that change keys and need no more memory for it.
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

/// Whether the command with this name may need memory for keys.
fn grows(name: &[u8]) -> bool {
    command(name).is_some_and(|command| command.may_write() && !SHRINKING.contains(&command.name))
}

fn writes(wanted: &Wanted) -> bool {
    matches!(wanted, Wanted::Command(command) if command.may_write())
}

/// The refusal of a command that changes keys while changes cannot be recorded.
fn not_recorded(error: &Error) -> Refusal {
    Refusal(Cow::Owned(format!("MISCONF the log of keys cannot be written: {}", error.message)))
}

/// Returns what is asked for; refused if it does not exist, has too few or too many arguments, or needs another right.
fn wanted(args: &Args<'_>, command: Option<&'static Command>, host: &dyn Host) -> Result<Wanted, Refusal> {
    let arity = |wanted, exact: Option<usize>| match exact {
        Some(exact) if args.len() != exact => Err(wrong_number(args[0])),
        None if args.len() < 2 => Err(wrong_number(args[0])),
        _ => Ok(wanted),
    };
    if let Some(command) = command {
        if !command.takes(args.len()) {
            return Err(wrong_number(args[0]));
        }
        if command.writes(args) && !host.may_write() {
            return Err(MAY_NOT_WRITE.into());
        }
        check_subcommand(command.name, args)?;
        return Ok(Wanted::Command(command));
    }
    match args[0].to_ascii_lowercase().as_slice() {
        b"multi" => arity(Wanted::Multi, Some(1)),
        b"exec" => arity(Wanted::Exec, Some(1)),
        b"discard" => arity(Wanted::Discard, Some(1)),
        b"watch" => arity(Wanted::Watch, None),
        b"unwatch" => arity(Wanted::Unwatch, Some(1)),
        b"select" => arity(Wanted::Select, Some(2)),
        _ if host.knows(args)? => Ok(Wanted::OfHost),
        _ => Err(unknown(args)),
    }
}

/// The refusal of a command with too few or too many arguments.
pub fn wrong_number(name: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Refusal(Cow::Owned(format!("ERR wrong number of arguments for '{name}' command")))
}

/// The refusal of a command that does not exist.
fn unknown(args: &Args<'_>) -> Refusal {
    let shown = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(128)]).into_owned();
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(args[0]));
    for argument in &args[1..] {
        if text.len() > 128 {
            break;
        }
        text.push_str(&format!("'{}' ", shown(argument)));
    }
    Refusal(Cow::Owned(text))
}

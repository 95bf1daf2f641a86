//! Transactions of a session (a client's state): the keys watched by `WATCH`, the commands queued by `MULTI`, and their
//! execution by `EXEC`. In short mode, nothing blocks on shards (locked parts of the keys) that long commands hold.

use super::request::{MAY_NOT_WRITE, UNKNOWN, checked, is_long_request};
use super::{
    DeferReason, ExecutedCommand, ExecutionMode, Host, Outcome, Session, TimeAndRandom, check_accepts,
    deferred, space_number,
};
use crate::commands::{Args, Command, CommandResources, Keys, Place, Refusal, SessionCommand, WorkOfExec};
use crate::holds::ShardGuard;
use crate::keyspace::Keyspace;
use crate::resp::{Replies, parse_integer};
use crate::shard::{SpaceId, Watch};
use farpool_model::limits::{KV_EXEC_WORK_MAX, KV_QUEUE_BYTES_MAX, KV_STEP_WORK_MAX, KV_WATCHED_MAX};
use std::borrow::Cow;

/// A key that the client watches (`WATCH`).
#[derive(Debug)]
pub(super) struct Watched {
    space: SpaceId,
    pub key: Box<[u8]>,
    /// Whether the key existed when the client sent `WATCH`.
    was_there: bool,
}

/// The commands queued since `MULTI`, and the bytes of memory that they take.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub commands: Vec<QueuedCommand>,
    pub bytes: usize,
    /// Whether a command was refused when it arrived. `EXEC` then refuses the whole transaction.
    pub is_refused: bool,
}

#[derive(Debug)]
pub(super) struct QueuedCommand {
    pub command: &'static Command,
    args: Vec<Box<[u8]>>,
}

/// A queued command that `EXEC` has checked again, with borrowed arguments, as functions of commands take them.
struct Request<'q> {
    command: &'static Command,
    args: Vec<&'q [u8]>,
}

impl Session {
    pub(super) fn enqueue(
        &mut self,
        keyspace: &Keyspace,
        command: &'static Command,
        args: &Args<'_>,
    ) -> Result<(), Refusal> {
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
        let args = args.iter().map(|argument| Box::from(*argument)).collect();
        queue.commands.push(QueuedCommand { command, args });
        Ok(())
    }

    pub(super) fn multi(&mut self, replies: &mut Replies<'_>) -> Result<(), Refusal> {
        if self.queue.is_some() {
            return Err("ERR MULTI calls can not be nested".into());
        }
        self.queue = Some(Queue::default());
        replies.ok();
        Ok(())
    }

    pub(super) fn discard(
        &mut self,
        keyspace: &Keyspace,
        replies: &mut Replies<'_>,
        ran: &mut ExecutedCommand,
    ) -> Result<(), Refusal> {
        if self.queue.is_some() && !self.may_unwatch(keyspace) {
            return Err(deferred(ran, DeferReason::IsHeld));
        }
        self.queue.take().ok_or("ERR DISCARD without MULTI")?;
        self.unwatch(keyspace);
        replies.ok();
        Ok(())
    }

    pub(super) fn unwatch_all(
        &mut self,
        keyspace: &Keyspace,
        replies: &mut Replies<'_>,
        ran: &mut ExecutedCommand,
    ) -> Result<(), Refusal> {
        if !self.may_unwatch(keyspace) {
            return Err(deferred(ran, DeferReason::IsHeld));
        }
        self.unwatch(keyspace);
        replies.ok();
        Ok(())
    }

    pub(super) fn watch(
        &mut self,
        keyspace: &Keyspace,
        (args, now): (&Args<'_>, u64),
        replies: &mut Replies<'_>,
        ran: &mut ExecutedCommand,
    ) -> Result<(), Refusal> {
        if self.queue.is_some() {
            return Err("ERR WATCH inside MULTI is not allowed".into());
        }
        if !self.watch_keys(keyspace, args, now)? {
            return Err(deferred(ran, DeferReason::IsHeld));
        }
        replies.ok();
        Ok(())
    }

    /// Watches the keys in `args`; returns true when all are watched. In short mode, returns false if a long command
    /// holds a shard of one of the keys; the caller then repeats the call with the same keys, and keys that are watched
    /// already are skipped.
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

    /// Locks the shard of the key with this hash. Blocks in long mode; in short mode, returns `None` if a long command
    /// holds the shard.
    fn shard_of<'k>(&self, keyspace: &'k Keyspace, hash: u64) -> Option<ShardGuard<'k>> {
        let shard = keyspace.shard_of(hash);
        match self.mode {
            ExecutionMode::Short => keyspace.take(shard),
            ExecutionMode::Long => Some(keyspace.lock(shard).into()),
        }
    }

    /// Unwatches keys; returns whether no watched key is left. In short mode, keys whose shard a long command holds
    /// stay watched; in long mode, the call blocks until it has unwatched all.
    pub(super) fn may_unwatch(&mut self, keyspace: &Keyspace) -> bool {
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

    pub(super) fn unwatch(&mut self, keyspace: &Keyspace) {
        for Watched { space, key, .. } in self.watched.drain(..) {
            keyspace.lock(keyspace.shard_of(keyspace.hash(&key))).unwatch(space, &key, &self.watch);
        }
        self.watch = Watch::default();
    }

    /// Executes the queued commands while the shards of all their keys are locked, so that no other command sees a
    /// state in between.
    pub(super) fn exec(
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
            // Deferred, because unwatching would block on the shards of the watched keys.
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
        // Large queues are deferred before any of their commands is parsed or looked up, as that takes time, too.
        let is_short = self.mode == ExecutionMode::Short;
        if is_short && (queue.commands.len() > STEP_COMMANDS || queue.bytes > KV_STEP_WORK_MAX) {
            return Err(ExecFailure::Deferred(DeferReason::IsLong));
        }
        check_accepts(keyspace)?;
        if queue.is_refused {
            return Err("EXECABORT Transaction discarded because of previous errors.".into());
        }
        if keyspace.is_full() && queue.commands.iter().any(|queued| queued.command.needs_memory) {
            let text = format!("EXECABORT Transaction discarded because of: {FULL}");
            return Err(Refusal(Cow::Owned(text)).into());
        }
        let requests = requests_of(queue, host)?;
        if is_short && requests.iter().any(|request| is_long_request(request.command, &request.args, host)) {
            return Err(ExecFailure::Deferred(DeferReason::IsLong));
        }
        let writing = requests.iter().filter(|request| request.command.may_write());
        let recorder = self.recorder(keyspace, writing.map(|request| &request.args[..]), moment)?;
        let watched: Vec<Box<[u8]>> = self.watched.iter().map(|watched| watched.key.clone()).collect();
        let watched: Vec<&[u8]> = watched.iter().map(|key| &**key).collect();
        let all = requests.iter().map(|request| (request.command.keys, &request.args[..]));
        let watches = std::iter::once((Keys::At { first: 0, last: -1, step: 1 }, &watched[..]));
        let resources = CommandResources::of(keyspace, recorder, all.chain(watches), self.mode);
        let mut resources = resources.ok_or(ExecFailure::Deferred(DeferReason::IsHeld))?;
        // Noted before any return below: error replies and the null reply of a touched watch tell something about the
        // keys, too.
        self.recorded = self.recorded.max(resources.last_record());
        // No write can follow this check before the commands are executed, because a write to a watched key touches the
        // watch under the lock of the key's shard, which is held here.
        if self.watch.is_touched() || self.is_gone(keyspace, &mut resources, moment.now) {
            self.unwatch_taken(keyspace, &mut resources);
            replies.null_array();
            return Ok(());
        }
        let work = self.work_of(keyspace, &requests, (&mut resources, moment.now));
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
        self.run_requests(&requests, (keyspace, &mut resources), moment, (host, replies))?;
        self.unwatch_taken(keyspace, &mut resources);
        Ok(self.finish(resources)?)
    }

    /// Executes the requests of a transaction and appends an array of their replies. The shards of all keys are locked
    /// by `resources`. Fails only if the client has closed the connection and nothing is written.
    fn run_requests<'k>(
        &mut self,
        requests: &[Request<'_>],
        (keyspace, resources): (&'k Keyspace, &mut CommandResources<'k>),
        moment: TimeAndRandom,
        (host, replies): (&mut dyn Host, &mut Replies<'_>),
    ) -> Result<(), Refusal> {
        let only_reads = !requests.iter().any(|request| request.command.may_write());
        replies.array(requests.len());
        for Request { command, args } in requests {
            if only_reads && host.has_gone() {
                return Err("ERR the client has gone".into());
            }
            let before = replies.bytes();
            let done = match command.place {
                // Checked again, as an earlier `AUTH` in the same transaction may have changed the client's rights.
                Place::Keyspace(_) if command.writes(args) && !host.may_write() => Err(MAY_NOT_WRITE.into()),
                Place::Keyspace(run) => {
                    self.run((*command, run, &args[..]), (keyspace, resources), moment, (host, replies))
                }
                Place::Host(of_host) => host.run((*command, of_host), args, replies),
                Place::Session(SessionCommand::Select) => self.select(args, replies),
                // `UNWATCH`, as `EXEC` itself unwatches all keys. The other commands of a session are not queued.
                Place::Session(_) => {
                    replies.ok();
                    Ok(())
                }
                Place::Subcommands => Err(UNKNOWN.into()),
            };
            let mut outcome = Outcome::Done;
            if let Err(Refusal(text)) = done {
                replies.truncate(before);
                replies.error(&*text);
                outcome = Outcome::Failed;
            }
            host.ran(ExecutedCommand { name: command.name, outcome });
        }
        Ok(())
    }

    /// Estimates the work of all commands of a transaction, whose shards are locked by `resources`.
    fn work_of<'b>(
        &self,
        keyspace: &Keyspace,
        requests: &'b [Request<'b>],
        (resources, now): (&mut CommandResources<'_>, u64),
    ) -> WorkOfExec<'b> {
        let (mut work, mut space) = (WorkOfExec::new(), self.space);
        for Request { command, args } in requests {
            if let (Place::Session(SessionCommand::Select), Some(number)) = (command.place, args.get(1)) {
                space = parse_integer(number).and_then(space_number).unwrap_or(space);
            }
            work.add(command, args, (keyspace, resources), (space, now));
        }
        work
    }

    /// Removes the watches of all watched keys. The shards of these keys are locked by `resources`, so this does not
    /// block.
    fn unwatch_taken(&mut self, keyspace: &Keyspace, resources: &mut CommandResources<'_>) {
        for Watched { space, key, .. } in self.watched.drain(..) {
            resources.shard(keyspace.shard_of(keyspace.hash(&key))).unwatch(space, &key, &self.watch);
        }
    }

    /// Returns whether a watched key that existed at `WATCH` no longer exists. Needed because a key that expires does
    /// not touch its watches until it is removed.
    fn is_gone(&self, keyspace: &Keyspace, resources: &mut CommandResources<'_>, now: u64) -> bool {
        self.watched.iter().filter(|watched| watched.was_there).any(|Watched { space, key, .. }| {
            let hash = keyspace.hash(key);
            let shard = resources.shard(keyspace.shard_of(hash));
            let table = shard.table(shard.owner(*space, key).0);
            table.is_none_or(|table| table.get(hash, key, now).is_none())
        })
    }
}

/// Returns the queued commands after checking them again, because the client's rights may have changed since.
fn requests_of<'q>(queue: &'q Queue, host: &dyn Host) -> Result<Vec<Request<'q>>, Refusal> {
    let request = |QueuedCommand { command, args }: &'q QueuedCommand| {
        let args: Vec<&[u8]> = args.iter().map(|argument| &**argument).collect();
        Ok(Request { command: checked(Some(command), &args, host)?, args })
    };
    queue.commands.iter().map(request).collect()
}

/// Maximum number of commands per transaction in short mode; transactions with more commands are deferred.
const STEP_COMMANDS: usize = 512;

/// The reason why a transaction was not executed: it was deferred, to be executed again later, or refused with an error
/// reply.
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

/// Error reply to a transaction that needs memory while usage exceeds `maxmemory` and the policy evicts no keys; as in
/// Redis.
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

//! The definition of a command of the Redis protocol: the types of a row of the table of commands (`table.rs`), which
//! has all that must be known about a command before it is executed.

use super::spaces;
use super::table::{COMMANDS, HostCommand, SessionCommand};
use super::{Args, Context, Done};
use std::fmt;

/// The arguments of a command that are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// None; the command uses no keys.
    None,
    /// No argument is a key, but the command may use all keys, so all shards are locked.
    All,
    /// The arguments at positions `first` to `last`, every `step`-th one.
    At {
        /// Position of the first key; the name of the command is at position 0.
        first: usize,
        /// Position of the last key; if negative, counted from the end: -1 is the last argument.
        last: isize,
        /// Distance between the positions of consecutive keys.
        step: usize,
    },
}

pub(super) const ONE: Keys = Keys::At { first: 1, last: 1, step: 1 };
pub(super) const SECOND: Keys = Keys::At { first: 2, last: 2, step: 1 };
pub(super) const REST: Keys = Keys::At { first: 1, last: -1, step: 1 };
pub(super) const FROM_SECOND: Keys = Keys::At { first: 2, last: -1, step: 1 };
pub(super) const PAIRS: Keys = Keys::At { first: 1, last: -1, step: 2 };

impl Keys {
    /// Iterates over the keys among the arguments of a command.
    pub fn of<'a, 'b>(self, args: &'b Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a, 'b> {
        let (first, end, step) = match self {
            Keys::None | Keys::All => (0, 0, 1),
            Keys::At { first, last, step } => {
                let end =
                    if last < 0 { args.len().saturating_add_signed(last + 1) } else { last as usize + 1 };
                (first, end.min(args.len()), step)
            }
        };
        (first..end).step_by(step).map(|at| args[at])
    }

    /// Returns the positions from the first key of the first use to the last key of the last one.
    const fn spanning(uses: &[KeyUse]) -> Keys {
        let [KeyUse(_, first), ..] = uses else { return Keys::None };
        let KeyUse(_, end) = uses[uses.len() - 1];
        match (*first, end) {
            (Keys::At { first, step, .. }, Keys::At { last, .. }) => Keys::At { first, last, step },
            _ => Keys::None,
        }
    }
}

/// Keys that a command uses in the same way, a "key specification" of Redis: its flags, separated by commas, and the
/// positions of the keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyUse(pub &'static str, pub Keys);

/// Inputs of the estimate of a command's work (bytes read or written) besides its arguments, which always count. The
/// work is estimated before the command begins: one with more than `KV_STEP_WORK_MAX` would delay other clients of the
/// thread, and is executed on another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkBasis {
    /// Nothing but the arguments.
    Arguments,
    /// The lengths of the keys' strings.
    String,
    /// The part of the keys' strings that the command replies with; the reply is limited.
    StringInReply,
    /// The lengths of the keys' strings, or of all fields of their hashes.
    Value,
    /// The part of the values that the command replies with; the reply is limited.
    ValueInReply,
    /// The length of one field of a hash.
    Field,
    /// The number of keys: each is a HyperLogLog, whose registers are read.
    Sketch,
    /// The number of keys in all spaces.
    All,
}

/// The argument of a command that may take long to compile and to match: a condition or glob patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostlyText {
    None,
    /// A condition (see [`predicate`](crate::predicate)), the second argument after the name.
    Condition,
    /// A glob pattern, the first argument after the name, which is matched with all keys.
    Pattern,
    /// Options from this position on, with glob patterns (`MATCH`) that are matched with the entries of a step.
    Options(usize),
}

/// The arguments that determine the minimum length of the string after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    None,
    /// The second argument, an offset in bytes, and the third, the bytes that are written there.
    Range,
    /// The second argument, the offset of a bit.
    Bit,
}

pub(crate) type KeyspaceFunction = fn(&mut Context<'_, '_>, &Args<'_>) -> Done;

/// The part of the system that executes a command.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// This function, which is called while the shards of the command's keys are locked.
    Keyspace(KeyspaceFunction),
    /// The session, as the command is about transactions or the selected space.
    Session(SessionCommand),
    /// The host of the session: the command is about the connection or the node.
    Host(HostCommand),
    /// A subcommand of this command, which the arguments must name; the command itself cannot be executed.
    Subcommands,
}

/// The part of a row that is used only in replies to `COMMAND`.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Group of commands in the documentation of Redis.
    pub group: &'static str,
    /// First version of Redis with the command; of farpool for commands that Redis lacks.
    pub since: &'static str,
    /// One line that says what the command does.
    pub summary: &'static str,
    /// Tips for clients and proxies, separated by spaces.
    pub tips: &'static str,
    /// ACL categories that do not follow from flags and group, separated by spaces.
    pub categories: &'static str,
}

/// The definition of a command or subcommand: a row of the table.
pub struct Command {
    /// Name in lower case; for a subcommand, the names of command and subcommand, as in `client|list`.
    pub name: &'static str,
    /// Number of arguments including the name; if negative, the absolute value is the minimum number.
    pub arity: isize,
    /// The flags that `COMMAND INFO` shows for the command, as in Redis, separated by spaces.
    pub flags: &'static str,
    /// The arguments that are keys.
    pub keys: Keys,
    /// Groups of keys that are used in the same way.
    pub key_uses: &'static [KeyUse],
    /// The description for replies to `COMMAND`.
    pub description: Description,
    pub(crate) place: Place,
    pub(crate) work: WorkBasis,
    pub(crate) text: CostlyText,
    pub(crate) growth: Growth,
    /// Whether the command may change keys.
    writes: bool,
    /// Whether the command may need more memory for keys (Redis' flag `denyoom`).
    pub(crate) needs_memory: bool,
    /// Whether naming a key in the command counts as a use of the key for eviction (LRU and LFU).
    pub(super) uses: bool,
    pub(super) has_subcommands: bool,
}

impl fmt::Debug for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

const fn row(
    name: &'static str,
    arity: isize,
    flags: &'static str,
    key_uses: &'static [KeyUse],
    place: Place,
) -> Command {
    Command {
        name,
        arity,
        flags,
        keys: Keys::spanning(key_uses),
        key_uses,
        description: Description { group: "", since: "", summary: "", tips: "", categories: "" },
        place,
        work: WorkBasis::Arguments,
        text: CostlyText::None,
        growth: Growth::None,
        writes: has_word(flags, "write"),
        needs_memory: has_word(flags, "denyoom"),
        uses: true,
        has_subcommands: matches!(place, Place::Subcommands),
    }
}

/// Creates the row of a command on keys.
pub(super) const fn keyspace(
    name: &'static str,
    arity: isize,
    flags: &'static str,
    key_uses: &'static [KeyUse],
    function: KeyspaceFunction,
) -> Command {
    row(name, arity, flags, key_uses, Place::Keyspace(function))
}

/// Creates the row of a command that the session executes.
pub(super) const fn session(
    name: &'static str,
    arity: isize,
    flags: &'static str,
    key_uses: &'static [KeyUse],
    command: SessionCommand,
) -> Command {
    row(name, arity, flags, key_uses, Place::Session(command))
}

/// Creates the row of a command that the session's host executes.
pub(super) const fn host(
    name: &'static str,
    arity: isize,
    flags: &'static str,
    command: HostCommand,
) -> Command {
    row(name, arity, flags, &[], Place::Host(command))
}

/// Creates the row of a command that cannot be executed without a subcommand. The rows of its subcommands follow in the
/// table.
pub(super) const fn container(name: &'static str) -> Command {
    row(name, -2, "", &[], Place::Subcommands)
}

impl Command {
    pub(super) const fn about(
        self,
        group: &'static str,
        since: &'static str,
        summary: &'static str,
    ) -> Command {
        Command { description: Description { group, since, summary, ..self.description }, ..self }
    }

    pub(super) const fn tips(self, tips: &'static str) -> Command {
        Command { description: Description { tips, ..self.description }, ..self }
    }

    pub(super) const fn categories(self, categories: &'static str) -> Command {
        Command { description: Description { categories, ..self.description }, ..self }
    }

    pub(super) const fn work(self, work: WorkBasis) -> Command {
        Command { work, ..self }
    }

    pub(super) const fn text(self, text: CostlyText) -> Command {
        Command { text, ..self }
    }

    pub(super) const fn grows_to(self, growth: Growth) -> Command {
        Command { growth, ..self }
    }

    /// Marks a command that names no keys but may use all, so that all shards are locked.
    pub(super) const fn of_all_shards(self) -> Command {
        Command { keys: Keys::All, ..self }
    }

    /// Marks a command that does not count as a use of its keys for eviction.
    pub(super) const fn quiet(self) -> Command {
        Command { uses: false, ..self }
    }

    /// Marks a command that has subcommands and can be executed without one, too.
    pub(super) const fn with_subcommands(self) -> Command {
        Command { has_subcommands: true, ..self }
    }

    /// Returns whether the command takes this number of arguments, including its name.
    pub fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs();
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }

    /// Returns whether the command has this flag of Redis.
    pub fn has_flag(&self, flag: &str) -> bool {
        has_word(self.flags, flag)
    }

    /// Returns whether the command may change keys.
    pub fn may_write(&self) -> bool {
        self.writes
    }

    /// Returns whether the command may change keys with these arguments; false for subcommands of `FP.SPACE` that only
    /// read.
    pub fn writes(&self, args: &Args<'_>) -> bool {
        self.writes && !spaces::only_tells(args)
    }

    /// Returns the id by which the host matches the command; `None` if the host does not execute it.
    pub fn of_host(&self) -> Option<HostCommand> {
        match self.place {
            Place::Host(command) => Some(command),
            Place::Keyspace(_) | Place::Session(_) | Place::Subcommands => None,
        }
    }

    /// Returns whether the command is `EXEC`.
    pub fn is_exec(&self) -> bool {
        matches!(self.place, Place::Session(SessionCommand::Exec))
    }

    /// Returns whether the command is queued after `MULTI`; other commands are executed at once.
    pub(crate) fn is_queued(&self) -> bool {
        match self.place {
            Place::Keyspace(_) | Place::Subcommands => true,
            Place::Session(command) => matches!(command, SessionCommand::Select | SessionCommand::Unwatch),
            Place::Host(command) => !matches!(command, HostCommand::Quit | HostCommand::Reset),
        }
    }

    /// Returns whether the arguments name a subcommand that does not exist. `self` must be the result of
    /// [`command`](fn@crate::command) for these arguments, which is the row of the subcommand if there is one.
    pub fn lacks_subcommand(&self, args: &Args<'_>) -> bool {
        self.has_subcommands && args.len() > 1
    }

    /// Returns whether this is the row of a subcommand.
    pub const fn is_subcommand(&self) -> bool {
        let (name, mut at) = (self.name.as_bytes(), 0);
        while at < name.len() {
            if name[at] == b'|' {
                return true;
            }
            at += 1;
        }
        false
    }

    /// Iterates over the rows of the subcommands of this command.
    pub fn subcommands(&self) -> impl Iterator<Item = &'static Command> + use<> {
        let first = COMMANDS.partition_point(|row| row.name <= self.name);
        let rest = if self.has_subcommands { &COMMANDS[first..] } else { &[] };
        rest.iter().take_while(|row| row.is_subcommand())
    }
}

/// Returns whether `word` is one of the words of `list`, which are separated by spaces.
const fn has_word(list: &str, word: &str) -> bool {
    let (list, word) = (list.as_bytes(), word.as_bytes());
    let (mut start, mut at) = (0, 0);
    while at <= list.len() {
        if at == list.len() || list[at] == b' ' {
            if is_at(list, start, word) && at - start == word.len() {
                return true;
            }
            start = at + 1;
        }
        at += 1;
    }
    false
}

/// Returns whether `text` contains `part` at position `start`.
const fn is_at(text: &[u8], start: usize, part: &[u8]) -> bool {
    let mut at = 0;
    while at < part.len() {
        if start + at >= text.len() || text[start + at] != part[at] {
            return false;
        }
        at += 1;
    }
    true
}

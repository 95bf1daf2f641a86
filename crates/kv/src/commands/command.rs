//! The definition of a command, and its lookup by name.

use super::spaces;
use super::table::{COMMANDS, HostCommand, SessionCommand};
use super::{Args, Context, Done};
use std::fmt;

/// The arguments of a command that are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Names no keys and touches none.
    None,
    /// Names no keys and may touch all.
    All,
    /// Names keys from position `first` to `last` (negative: counted from the end) in steps.
    At {
        /// Position of the first key; the command's name is at 0.
        first: usize,
        /// Position of the last key.
        last: isize,
        /// Distance from one key to the next.
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

    /// Returns the keys of all uses, which follow each other.
    const fn spanning(uses: &[KeyUse]) -> Keys {
        let [KeyUse(_, first), ..] = uses else { return Keys::None };
        let KeyUse(_, end) = uses[uses.len() - 1];
        match (*first, end) {
            (Keys::At { first, step, .. }, Keys::At { last, .. }) => Keys::At { first, last, step },
            _ => Keys::None,
        }
    }
}

/// Keys that a command uses in the same way: Redis' flags, separated by commas, and the positions.
#[derive(Clone, Copy, Debug)]
pub struct KeyUse(pub &'static str, pub Keys);

/// The stored values whose size determines a command's work; arguments always count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkBasis {
    Arguments,
    /// Strings of the keys.
    String,
    /// Strings of the keys; the work is proportional to the reply, which is bounded.
    StringInReply,
    /// Strings of the keys, or all fields of their hashes.
    Value,
    /// Values as in `Value`; the work is proportional to the reply, which is bounded.
    ValueInReply,
    /// One field of a hash, which may be long.
    Field,
    Sketch,
    /// The number of keys in the space.
    All,
}

/// An argument that may take long to compile and match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostlyText {
    None,
    /// A condition, the second argument.
    Condition,
    /// A pattern, the first argument, matched with all keys.
    Pattern,
    /// Options from this position, with patterns for the entries of a step.
    Options(usize),
}

/// An argument that gives the least length of the string after the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    None,
    /// An offset, and the bytes that are written there.
    Range,
    /// The number of a bit.
    Bit,
}

pub(crate) type KeyspaceFunction = fn(&mut Context<'_, '_>, &Args<'_>) -> Done;

/// The place where a command is executed.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// The keyspace: the function runs while the shards of the command's keys are locked.
    Keyspace(KeyspaceFunction),
    /// The session.
    Session(SessionCommand),
    /// The host of the session: the command is about the connection or the node.
    Host(HostCommand),
    /// One of the subcommands, which must be named.
    Subcommands,
}

/// The part of a row that only `COMMAND` replies with.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Group in the documentation.
    pub group: &'static str,
    /// Version of Redis, or of farpool, that has the command first.
    pub since: &'static str,
    /// One line about the effect of the command.
    pub summary: &'static str,
    /// Tips for clients and proxies, separated by spaces.
    pub tips: &'static str,
    /// ACL categories that do not follow from flags and group, separated by spaces.
    pub categories: &'static str,
}

/// The definition of a command or subcommand: a row of the table.
pub struct Command {
    /// Name in lower case; a subcommand is written as `client|list`.
    pub name: &'static str,
    /// Number of arguments including the name; if negative, the least number.
    pub arity: isize,
    /// Redis' flags, separated by spaces.
    pub flags: &'static str,
    /// The arguments that are keys.
    pub keys: Keys,
    /// Groups of keys that are used in the same way.
    pub key_uses: &'static [KeyUse],
    /// The description for `COMMAND`.
    pub description: Description,
    pub(crate) place: Place,
    pub(crate) work: WorkBasis,
    pub(crate) text: CostlyText,
    pub(crate) growth: Growth,
    /// Whether the command may change keys.
    writes: bool,
    /// Whether the command may need memory for keys.
    pub(crate) needs_memory: bool,
    /// Whether naming a key counts as a use of it.
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

/// Makes the row of a command on keys.
pub(super) const fn keyspace(
    name: &'static str,
    arity: isize,
    flags: &'static str,
    key_uses: &'static [KeyUse],
    function: KeyspaceFunction,
) -> Command {
    row(name, arity, flags, key_uses, Place::Keyspace(function))
}

/// Makes the row of a command of the session.
pub(super) const fn session(
    name: &'static str,
    arity: isize,
    flags: &'static str,
    key_uses: &'static [KeyUse],
    command: SessionCommand,
) -> Command {
    row(name, arity, flags, key_uses, Place::Session(command))
}

/// Makes the row of a command of the host.
pub(super) const fn host(
    name: &'static str,
    arity: isize,
    flags: &'static str,
    command: HostCommand,
) -> Command {
    row(name, arity, flags, &[], Place::Host(command))
}

/// Makes the row of a command that has only subcommands, whose rows follow.
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

    /// Marks a command that names no keys and may touch all.
    pub(super) const fn of_all_shards(self) -> Command {
        Command { keys: Keys::All, ..self }
    }

    /// Marks a command that does not count as a use of its keys.
    pub(super) const fn quiet(self) -> Command {
        Command { uses: false, ..self }
    }

    /// Marks a command that is carried out without a subcommand, too.
    pub(super) const fn with_subcommands(self) -> Command {
        Command { has_subcommands: true, ..self }
    }

    /// Returns whether the command takes this number of arguments, including its name.
    pub fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs();
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }

    /// Returns whether the command has this flag.
    pub fn has_flag(&self, flag: &str) -> bool {
        has_word(self.flags, flag)
    }

    /// Returns whether the command may change keys.
    pub fn may_write(&self) -> bool {
        self.writes
    }

    /// Returns whether the command may change keys with these arguments.
    pub fn writes(&self, args: &Args<'_>) -> bool {
        self.writes && !spaces::only_tells(args)
    }

    /// Returns which command of the host it is, if it is one.
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

    /// Returns whether `MULTI` queues the command.
    pub(crate) fn is_queued(&self) -> bool {
        match self.place {
            Place::Keyspace(_) | Place::Subcommands => true,
            Place::Session(command) => matches!(command, SessionCommand::Select | SessionCommand::Unwatch),
            Place::Host(command) => !matches!(command, HostCommand::Quit | HostCommand::Reset),
        }
    }

    /// Returns whether the arguments name a subcommand that does not exist.
    pub fn lacks_subcommand(&self, args: &Args<'_>) -> bool {
        self.has_subcommands && args.len() > 1
    }

    /// Returns whether this is a subcommand.
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

    /// Iterates over the subcommands.
    pub fn subcommands(&self) -> impl Iterator<Item = &'static Command> + use<> {
        let first = COMMANDS.partition_point(|row| row.name <= self.name);
        let rest = if self.has_subcommands { &COMMANDS[first..] } else { &[] };
        rest.iter().take_while(|row| row.is_subcommand())
    }
}

/// Returns whether a list of words separated by spaces has this one.
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

/// Returns whether `text` has `part` at position `start`.
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

//! How much work a command is, told before it begins: bytes that it reads or writes, about.
//!
//! Invariant: nothing that is told here takes longer than looking up the command's keys. Estimates are upper bounds, except
//! for what replies are long: those are stopped by the room that a short command has for its reply.

use super::{Args, Command, Keys, Load, Taken};
use crate::entry::Kind;
use crate::keyspace::Keyspace;
use crate::resp::parse_integer;
use crate::shard::SpaceId;
use farpool_model::cast::usize_saturating;
use farpool_model::limits::KV_STEP_WORK_MAX;
use std::collections::HashMap;

/// An argument counts as so many bytes: about what finding a key takes.
const ARGUMENT: usize = 256;

/// A key that is looked at in a walk over all, and a field of a hash.
const WALKED: usize = 64;

/// A HyperLogLog whose registers are read.
const SKETCH: usize = 16 << 10;

/// Bytes of a condition beyond which it may take long to be read and judged.
const CONDITION: usize = 4 << 10;

/// The work of reading the arguments of a command.
#[inline]
pub(crate) fn work_of_arguments(args: &Args<'_>) -> usize {
    args.iter().map(|argument| argument.len() + ARGUMENT).sum()
}

/// Whether a command is long because of a text among its arguments: a condition with patterns, which take long to compile
/// and to match.
#[inline]
pub(crate) fn is_long_text(command: &Command, args: &Args<'_>) -> bool {
    matches!(command.name, "fp.cget" | "fp.scan") && args.get(2).is_some_and(|text| may_have_patterns(text))
}

#[cold]
fn may_have_patterns(condition: &[u8]) -> bool {
    condition.len() > CONDITION
        || condition.contains(&b'~')
        || condition.windows(4).any(|word| word.eq_ignore_ascii_case(b"like"))
}

/// The size of what a key has: of its string, and of a hash as a whole.
fn size(
    taken: &mut Taken<'_>,
    keyspace: &Keyspace,
    (space, now): (SpaceId, u64),
    key: &[u8],
) -> (usize, bool) {
    let hash = taken.hash(keyspace, key);
    let shard = taken.shard(keyspace.shard_of(hash));
    let (owner, named) = shard.owner(space, key);
    let schema = named.and_then(|named| named.schema.as_ref());
    let Some(table) = shard.table(owner) else { return (0, false) };
    let Some(entry) = table.get(hash, key, now) else { return (0, false) };
    if entry.kind() != Kind::Table {
        return (crate::packing::plain_bytes(entry), false);
    }
    let fields = table.fields(hash, key, schema, now).ok().flatten().flatten();
    (fields.map_or(0, |fields| fields.len().saturating_mul(WALKED)), true)
}

/// Work of looking at all keys.
fn work_of_all(taken: &Taken<'_>) -> usize {
    let tables = taken.shards.several().iter().flat_map(|(_, shard)| shard.tables());
    tables.map(|(_, table)| table.len().saturating_mul(WALKED)).sum()
}

/// Bytes that a string has behind a command at least, by its arguments.
fn grown(command: &Command, args: &Args<'_>) -> usize {
    let number = |at: usize| {
        let given = args.get(at).and_then(|text| parse_integer(text));
        given.and_then(|number| u64::try_from(number).ok()).map_or(0, usize_saturating)
    };
    match command.name {
        "setrange" => number(2).saturating_add(args.get(3).map_or(0, |value| value.len())),
        "setbit" => number(2) / 8 + 1,
        _ => 0,
    }
}

/// Whether a command would be too much work for a step with what its keys have.
pub(crate) fn is_long_command(
    command: &Command,
    args: &Args<'_>,
    (keyspace, taken): (&Keyspace, &mut Taken<'_>),
    (space, now): (SpaceId, u64),
) -> bool {
    let work = match command.load {
        // Replies of these are bounded.
        Load::Arguments | Load::Field => return false,
        Load::String | Load::Value if has_bounded_work(command) => return false,
        Load::String | Load::Value => {
            let of_keys = command.keys.of(args).map(|key| size(taken, keyspace, (space, now), key).0);
            of_keys.sum::<usize>().max(grown(command, args))
        }
        Load::Sketch => command.keys.of(args).count() * SKETCH,
        // What tells of spaces goes through their definitions.
        Load::All if super::spaces::only_tells(args) => return false,
        Load::All => work_of_all(taken),
    };
    work > KV_STEP_WORK_MAX
}

/// Whether the work of a command by itself is within its reply, which is bounded.
fn has_bounded_work(command: &Command) -> bool {
    let is_bounded = [
        "fp.cas", "fp.cget", "get", "getrange", "getset", "getdel", "hgetall", "hkeys", "hvals", "mget",
        "substr",
    ];
    is_bounded.contains(&command.name)
}

/// The work of a transaction, one command after the other: values may grow meanwhile.
pub(crate) struct WorkOfExec<'b> {
    sum: usize,
    largest: usize,
    /// Whether a field may be long that a command reads.
    has_large_hashes: bool,
    /// What keys may have more, whatever space they are in: COPY names another one.
    grown: HashMap<&'b [u8], usize>,
    /// What the keys had before, of those that were looked at.
    sizes: HashMap<(SpaceId, &'b [u8]), (usize, bool)>,
}

impl<'b> WorkOfExec<'b> {
    pub fn new() -> Self {
        let (grown, sizes) = (HashMap::new(), HashMap::new());
        WorkOfExec { sum: 0, largest: 0, has_large_hashes: false, grown, sizes }
    }

    /// Adds a command, of a client that has selected a space.
    pub fn add(
        &mut self,
        command: Option<&Command>,
        args: &'b Args<'b>,
        (keyspace, taken): (&Keyspace, &mut Taken<'_>),
        (space, now): (SpaceId, u64),
    ) {
        let arguments = work_of_arguments(args);
        let mut work = arguments;
        if let Some(command) = command {
            work = work.saturating_add(match command.load {
                Load::Arguments if command.keys == Keys::All => KV_STEP_WORK_MAX,
                Load::Arguments => 0,
                Load::Sketch => command.keys.of(args).count() * SKETCH,
                Load::All => work_of_all(taken),
                Load::String | Load::Value | Load::Field => {
                    self.of_keys(command, args, (keyspace, taken), (space, now))
                }
            });
            if command.may_write() {
                self.grow(command, args, (space, arguments));
            }
        }
        self.sum = self.sum.saturating_add(work);
        self.largest = self.largest.max(work);
    }

    fn of_keys(
        &mut self,
        command: &Command,
        args: &'b Args<'b>,
        (keyspace, taken): (&Keyspace, &mut Taken<'_>),
        (space, now): (SpaceId, u64),
    ) -> usize {
        let mut work = grown(command, args);
        for key in command.keys.of(args) {
            let known = self.sizes.entry((space, key));
            let (bytes, is_table) = *known.or_insert_with(|| size(taken, keyspace, (space, now), key));
            let bytes = bytes.saturating_add(self.grown.get(key).copied().unwrap_or(0));
            self.has_large_hashes |= is_table;
            // A field of a hash is found without the others.
            if !is_table || command.load == Load::Value {
                work = work.saturating_add(bytes);
            }
        }
        work
    }

    /// What keys may have more behind a command: its arguments, what it says, or what another of its keys has.
    fn grow(&mut self, command: &Command, args: &'b Args<'b>, (space, arguments): (SpaceId, usize)) {
        let copied = match command.load {
            Load::Value => args.get(1).map_or(0, |from| self.bound(space, from)),
            _ => 0,
        };
        let more = arguments.saturating_add(grown(command, args)).saturating_add(copied);
        for key in command.keys.of(args) {
            let grown = self.grown.entry(key).or_default();
            *grown = grown.saturating_add(more);
        }
    }

    fn bound(&self, space: SpaceId, key: &'b [u8]) -> usize {
        let before = self.sizes.get(&(space, key)).map_or(0, |(bytes, _)| *bytes);
        before.saturating_add(self.grown.get(key).copied().unwrap_or(0))
    }

    /// Whether it is too much for a step.
    pub fn is_long(&self) -> bool {
        self.sum > KV_STEP_WORK_MAX || self.has_large_hashes
    }

    /// All work but that of the largest command.
    pub fn beside_largest(&self) -> usize {
        self.sum - self.largest
    }
}

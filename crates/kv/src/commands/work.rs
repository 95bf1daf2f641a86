//! Estimates how long a command will take, before it begins: its *work*, in bytes read or written.
//!
//! Commands whose work exceeds [`KV_STEP_WORK_MAX`] are executed on another thread, because an estimate that is too low
//! lets the command of one client occupy a thread that serves others for longer than a step. Invariant: making an
//! estimate takes no longer than looking up the command's keys. Estimates are upper bounds, except for commands whose
//! work is proportional to their reply: in short mode, the limit on the reply stops these.

use super::command::{Command, CostlyText, Growth, Keys, WorkBasis};
use super::keys::{SCAN_COUNT, SCAN_COUNT_LIMIT};
use super::pattern::Pattern;
use super::{Args, CommandResources};
use crate::entry::Kind;
use crate::keyspace::Keyspace;
use crate::resp::parse_integer;
use crate::shard::SpaceId;
use farpool_model::cast::usize_saturating;
use farpool_model::limits::KV_STEP_WORK_MAX;
use std::collections::HashMap;

/// Work per argument, in bytes, in addition to the argument's own bytes. Reason for 256: reading as many bytes takes
/// about as long as looking up one key.
const ARGUMENT: usize = 256;

/// Work, in bytes, per key of a command that visits all keys, and per field of a command that visits all fields of a
/// hash.
const WALKED: usize = 64;

/// Work, in bytes, of reading the registers of a HyperLogLog.
const SKETCH: usize = 16 << 10;

/// Maximum bytes of a condition that is parsed and evaluated within a step.
const CONDITION: usize = 4 << 10;

/// Returns the estimated work of parsing the arguments of a command.
#[inline]
pub(crate) fn work_of_arguments(args: &Args<'_>) -> usize {
    args.iter().map(|argument| argument.len() + ARGUMENT).sum()
}

/// Returns whether a command has a condition or glob pattern that may take longer than a step to compile and match.
#[inline]
pub(crate) fn is_long_text(command: &Command, args: &Args<'_>) -> bool {
    match command.text {
        CostlyText::None => false,
        CostlyText::Condition => args.get(2).is_some_and(|text| may_have_patterns(text)),
        CostlyText::Pattern | CostlyText::Options(_) => work_of_patterns(command, args) > KV_STEP_WORK_MAX,
    }
}

/// Returns the estimated work of compiling a command's glob patterns and of matching them with the entries that the
/// command visits. For `KEYS`, only compiling: matching is counted by [`work_of_all`].
fn work_of_patterns(command: &Command, args: &Args<'_>) -> usize {
    let options = match command.text {
        CostlyText::Pattern => return args.get(1).map_or(0, |pattern| Pattern::work_of(pattern, 0)),
        CostlyText::Options(from) => args.get(from..).unwrap_or_default(),
        CostlyText::None | CostlyText::Condition => return 0,
    };
    let given = |name: &'static str| {
        let pairs = options.as_chunks::<2>().0.iter();
        pairs.filter(move |[option, _]| option.eq_ignore_ascii_case(name.as_bytes())).map(|[_, value]| *value)
    };
    let counts = given("count").filter_map(|count| usize::try_from(parse_integer(count)?).ok());
    let texts = counts.max().unwrap_or(SCAN_COUNT).min(SCAN_COUNT_LIMIT);
    given("match").map(|pattern| Pattern::work_of(pattern, texts)).fold(0, usize::saturating_add)
}

#[cold]
fn may_have_patterns(condition: &[u8]) -> bool {
    condition.len() > CONDITION
        || condition.contains(&b'~')
        || condition.windows(4).any(|word| word.eq_ignore_ascii_case(b"like"))
}

/// Returns the estimated work of reading the whole value of a key, and whether the value is a large hash (one with a
/// table of fields); 0 for an absent key.
fn size(
    resources: &mut CommandResources<'_>,
    keyspace: &Keyspace,
    (space, now): (SpaceId, u64),
    key: &[u8],
) -> (usize, bool) {
    let hash = resources.hash(keyspace, key);
    let shard = resources.shard(keyspace.shard_of(hash));
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

/// Returns the estimated work of visiting all keys of all spaces.
fn work_of_all(resources: &CommandResources<'_>) -> usize {
    let tables = resources.shards.several().iter().flat_map(|(_, shard)| shard.tables());
    tables.map(|(_, table)| table.len().saturating_mul(WALKED)).sum()
}

/// Returns the minimum length in bytes of the string after a command, as its arguments say (see [`Growth`]).
fn grown(command: &Command, args: &Args<'_>) -> usize {
    let number = |at: usize| {
        let given = args.get(at).and_then(|text| parse_integer(text));
        given.and_then(|number| u64::try_from(number).ok()).map_or(0, usize_saturating)
    };
    match command.growth {
        Growth::None => 0,
        Growth::Range => number(2).saturating_add(args.get(3).map_or(0, |value| value.len())),
        Growth::Bit => number(2) / 8 + 1,
    }
}

/// Returns whether the estimated work of a command, given the current values of its keys, exceeds [`KV_STEP_WORK_MAX`].
pub(crate) fn is_long_command(
    command: &Command,
    args: &Args<'_>,
    (keyspace, resources): (&Keyspace, &mut CommandResources<'_>),
    (space, now): (SpaceId, u64),
) -> bool {
    let work = match command.work {
        // The work of these commands is in their replies, whose size is limited in short mode.
        WorkBasis::Arguments | WorkBasis::Field | WorkBasis::StringInReply | WorkBasis::ValueInReply => {
            return false;
        }
        WorkBasis::String | WorkBasis::Value => {
            let of_keys = command.keys.of(args).map(|key| size(resources, keyspace, (space, now), key).0);
            of_keys.sum::<usize>().max(grown(command, args))
        }
        WorkBasis::Sketch => command.keys.of(args).count() * SKETCH,
        // FP.SPACE LIST and INFO read only the definitions of spaces.
        WorkBasis::All if super::spaces::only_tells(args) => return false,
        WorkBasis::All => work_of_all(resources),
    };
    work > KV_STEP_WORK_MAX
}

/// An estimate of a transaction's work, command by command, which takes into account that earlier commands may make the
/// values larger that later ones read.
pub(crate) struct WorkOfExec<'b> {
    sum: usize,
    largest: usize,
    /// Whether a command uses a large hash. Its fields may be long, and their lengths are not looked up.
    has_large_hashes: bool,
    /// Maximum bytes by which earlier commands may have made the value of a key larger. By key regardless of its space,
    /// as `COPY` can name another space.
    grown: HashMap<&'b [u8], usize>,
    /// Results of [`size`] before the transaction, for the keys looked up so far.
    sizes: HashMap<(SpaceId, &'b [u8]), (usize, bool)>,
}

impl<'b> WorkOfExec<'b> {
    pub fn new() -> Self {
        let (grown, sizes) = (HashMap::new(), HashMap::new());
        WorkOfExec { sum: 0, largest: 0, has_large_hashes: false, grown, sizes }
    }

    /// Adds the work of the next command of the transaction. `space` is the space that is selected when this command is
    /// executed.
    pub fn add(
        &mut self,
        command: &Command,
        args: &'b Args<'b>,
        (keyspace, resources): (&Keyspace, &mut CommandResources<'_>),
        (space, now): (SpaceId, u64),
    ) {
        let arguments = work_of_arguments(args);
        let of_values = match command.work {
            WorkBasis::Arguments if command.keys == Keys::All => KV_STEP_WORK_MAX,
            WorkBasis::Arguments => 0,
            WorkBasis::Sketch => command.keys.of(args).count() * SKETCH,
            WorkBasis::All => work_of_all(resources),
            WorkBasis::String
            | WorkBasis::StringInReply
            | WorkBasis::Value
            | WorkBasis::ValueInReply
            | WorkBasis::Field => self.of_keys(command, args, (keyspace, resources), (space, now)),
        };
        if command.may_write() {
            self.grow(command, args, (space, arguments));
        }
        let work = arguments.saturating_add(work_of_patterns(command, args)).saturating_add(of_values);
        self.sum = self.sum.saturating_add(work);
        self.largest = self.largest.max(work);
    }

    fn of_keys(
        &mut self,
        command: &Command,
        args: &'b Args<'b>,
        (keyspace, resources): (&Keyspace, &mut CommandResources<'_>),
        (space, now): (SpaceId, u64),
    ) -> usize {
        let mut work = grown(command, args);
        for key in command.keys.of(args) {
            let known = self.sizes.entry((space, key));
            let (bytes, is_table) = *known.or_insert_with(|| size(resources, keyspace, (space, now), key));
            let bytes = bytes.saturating_add(self.grown.get(key).copied().unwrap_or(0));
            self.has_large_hashes |= is_table;
            // Finding one field of a large hash does not read the others.
            if !is_table || matches!(command.work, WorkBasis::Value | WorkBasis::ValueInReply) {
                work = work.saturating_add(bytes);
            }
        }
        work
    }

    /// Adds the bytes by which a command may make the values of its keys larger: its arguments, an offset, or the value
    /// of another key.
    fn grow(&mut self, command: &Command, args: &'b Args<'b>, (space, arguments): (SpaceId, usize)) {
        let copied = match command.work {
            WorkBasis::Value => args.get(1).map_or(0, |from| self.bound(space, from)),
            WorkBasis::Arguments
            | WorkBasis::String
            | WorkBasis::StringInReply
            | WorkBasis::ValueInReply
            | WorkBasis::Field
            | WorkBasis::Sketch
            | WorkBasis::All => 0,
        };
        let more = arguments.saturating_add(grown(command, args)).saturating_add(copied);
        for key in command.keys.of(args) {
            let grown = self.grown.entry(key).or_default();
            *grown = grown.saturating_add(more);
        }
    }

    /// Returns the maximum size of a key's value after the commands added so far.
    fn bound(&self, space: SpaceId, key: &'b [u8]) -> usize {
        let before = self.sizes.get(&(space, key)).map_or(0, |(bytes, _)| *bytes);
        before.saturating_add(self.grown.get(key).copied().unwrap_or(0))
    }

    /// Returns whether the transaction may take longer than a step.
    pub fn is_long(&self) -> bool {
        self.sum > KV_STEP_WORK_MAX || self.has_large_hashes
    }

    /// Returns the estimated work of all commands together except the one with the most work, to which other limits
    /// apply.
    pub fn beside_largest(&self) -> usize {
        self.sum - self.largest
    }
}

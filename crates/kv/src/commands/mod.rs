//! The commands that read and change keys, as in Redis.
//!
//! A command is listed once, in [`COMMANDS`], with everything that must be known before it runs: its number of
//! arguments, which of them are keys, and whether it writes. Its function runs while the shards of its keys are locked.

mod bits;
mod changes;
mod expiry;
mod hashes;
mod hyperloglog;
mod keys;
mod numbers;
mod options;
mod pattern;
mod predicates;
mod resources;
mod room;
mod rows;
mod spaces;
mod strings;
#[cfg(test)]
mod tests;
mod work;

pub use changes::{ChangeAgain, KeyChange, KeyState};
pub(crate) use keys::check_subcommand;
pub use pattern::Pattern;
pub(crate) use predicates::Predicates;
pub(crate) use resources::CommandResources;
pub(crate) use work::{WorkOfExec, is_long_command, is_long_text, work_of_arguments};

use crate::effects::Effect;
use crate::entry::{Entry, Kind};
use crate::fields::Fields;
use crate::holds::ShardGuard;
use crate::journal::Recorder;
use crate::keyspace::Keyspace;
use crate::resp::{Replies, parse_integer};
use crate::session::Host;
use crate::shard::{Shard, SpaceId};
use crate::spaces::Space;
use crate::table::{Edited, Table};
use farpool_model::limits::{KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX};
use farpool_model::{Error, ErrorKind};
use resources::OtherShards;
use room::ProtectedKeys;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// The arguments of a command; the first is its name.
pub type Args<'a> = [&'a [u8]];

/// The error reply of a refused command: its text, error code first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub Cow<'static, str>);

impl Refusal {
    /// Creates a refusal from an error's message and advice.
    pub fn with_advice(error: Error) -> Refusal {
        let advice = error.advice.map_or_else(String::new, |advice| format!("; {advice}"));
        Refusal(Cow::Owned(format!("ERR {}{advice}", error.message)))
    }
}

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Refusal(Cow::Borrowed(text))
    }
}

impl From<Error> for Refusal {
    /// Converts an error of a table: either memory is too small, or a compressed value is damaged.
    fn from(error: Error) -> Self {
        if error.kind == ErrorKind::Corrupt {
            return Refusal(Cow::Owned(format!("ERR {}", error.message)));
        }
        Refusal(Cow::Owned(format!("OOM command not allowed: {}", error.message)))
    }
}

type Done = std::result::Result<(), Refusal>;

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_FLOAT: &str = "ERR value is not a valid float";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_KEY: &str = "ERR no such key";
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// The error of a reply that would be too large.
pub(crate) const TOO_MUCH: &str =
    "ERR the reply is larger than this client may have in memory: ask for less at once";

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

const ONE: Keys = Keys::At { first: 1, last: 1, step: 1 };
const TWO: Keys = Keys::At { first: 1, last: 2, step: 1 };
const REST: Keys = Keys::At { first: 1, last: -1, step: 1 };
const PAIRS: Keys = Keys::At { first: 1, last: -1, step: 2 };

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
}

/// The definition of a command.
pub struct Command {
    /// Name in lower case.
    pub name: &'static str,
    /// Number of arguments including the name; if negative, the least number.
    pub arity: isize,
    /// The arguments that are keys.
    pub keys: Keys,
    /// Whether the command may change keys.
    writes: bool,
    /// Whether naming a key counts as a use of it.
    uses: bool,
    /// The stored values whose size determines the command's work.
    work_basis: WorkBasis,
    run: fn(&mut Context<'_, '_>, &Args<'_>) -> Done,
}

impl Command {
    /// Returns whether the command takes this number of arguments, including its name.
    pub fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs();
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }

    /// Returns whether the command may change keys.
    pub fn may_write(&self) -> bool {
        self.writes
    }

    /// Returns whether the command may change keys with these arguments.
    pub fn writes(&self, args: &Args<'_>) -> bool {
        self.writes && !spaces::only_tells(args)
    }
}

const fn read(
    name: &'static str,
    arity: isize,
    keys: Keys,
    run: fn(&mut Context<'_, '_>, &Args<'_>) -> Done,
) -> Command {
    Command { name, arity, keys, writes: false, uses: true, work_basis: WorkBasis::Arguments, run }
}

const fn write(
    name: &'static str,
    arity: isize,
    keys: Keys,
    run: fn(&mut Context<'_, '_>, &Args<'_>) -> Done,
) -> Command {
    Command { name, arity, keys, writes: true, uses: true, work_basis: WorkBasis::Arguments, run }
}

/// Marks a command that does not count as a use of its keys.
const fn quiet(command: Command) -> Command {
    Command { uses: false, ..command }
}

/// Marks a command whose work depends on the strings of its keys.
const fn of_string(command: Command) -> Command {
    Command { work_basis: WorkBasis::String, ..command }
}

/// Marks a command whose work depends on the whole values of its keys.
const fn of_value(command: Command) -> Command {
    Command { work_basis: WorkBasis::Value, ..command }
}

/// Marks a command that reads a field of a hash.
const fn of_field(command: Command) -> Command {
    Command { work_basis: WorkBasis::Field, ..command }
}

/// Marks a command on HyperLogLogs.
const fn of_sketch(command: Command) -> Command {
    Command { work_basis: WorkBasis::Sketch, ..command }
}

/// Marks a command that visits all keys.
const fn of_all(command: Command) -> Command {
    Command { work_basis: WorkBasis::All, ..command }
}

/// All commands.
pub static COMMANDS: &[Command] = &[
    of_string(write("append", 3, ONE, strings::append)),
    of_string(read("bitcount", -2, ONE, bits::bitcount)),
    of_value(write("copy", -3, TWO, keys::copy)),
    read("dbsize", 1, Keys::All, keys::dbsize),
    write("decr", 2, ONE, numbers::decr),
    write("decrby", 3, ONE, numbers::decrby),
    quiet(write("del", -2, REST, keys::del)),
    quiet(read("exists", -2, REST, keys::exists)),
    of_string(write("expire", -3, ONE, expiry::expire)),
    of_string(write("expireat", -3, ONE, expiry::expireat)),
    quiet(read("expiretime", 2, ONE, expiry::expiretime)),
    of_all(write("flushall", -1, Keys::All, keys::flushall)),
    of_all(write("flushdb", -1, Keys::All, keys::flushdb)),
    of_string(write("fp.cas", 4, ONE, predicates::cas)),
    of_string(read("fp.cget", 3, ONE, predicates::cget)),
    write("fp.rowset", -4, Keys::All, rows::rowset),
    read("fp.scan", -3, Keys::All, predicates::scan),
    of_all(write("fp.space", -2, Keys::All, spaces::space)),
    write("fp.update", 3, ONE, predicates::update),
    of_string(read("get", 2, ONE, strings::get)),
    read("getbit", 3, ONE, bits::getbit),
    of_string(write("getdel", 2, ONE, strings::getdel)),
    of_string(write("getex", -2, ONE, strings::getex)),
    of_string(read("getrange", 4, ONE, strings::getrange)),
    of_string(write("getset", 3, ONE, strings::getset)),
    write("hdel", -3, ONE, hashes::hdel),
    read("hexists", 3, ONE, hashes::hexists),
    of_field(read("hget", 3, ONE, hashes::hget)),
    of_value(read("hgetall", 2, ONE, hashes::hgetall)),
    of_field(write("hincrby", 4, ONE, hashes::hincrby)),
    of_field(write("hincrbyfloat", 4, ONE, hashes::hincrbyfloat)),
    of_value(read("hkeys", 2, ONE, hashes::hkeys)),
    read("hlen", 2, ONE, hashes::hlen),
    of_field(read("hmget", -3, ONE, hashes::hmget)),
    of_field(write("hmset", -4, ONE, hashes::hmset)),
    of_field(read("hscan", -3, ONE, hashes::hscan)),
    of_field(write("hset", -4, ONE, hashes::hset)),
    of_field(write("hsetnx", 4, ONE, hashes::hsetnx)),
    read("hstrlen", 3, ONE, hashes::hstrlen),
    of_value(read("hvals", 2, ONE, hashes::hvals)),
    write("incr", 2, ONE, numbers::incr),
    write("incrby", 3, ONE, numbers::incrby),
    write("incrbyfloat", 3, ONE, numbers::incrbyfloat),
    of_all(read("keys", 2, Keys::All, keys::keys)),
    of_string(read("mget", -2, REST, strings::mget)),
    quiet(read("memory", -2, Keys::At { first: 2, last: 2, step: 1 }, keys::memory)),
    write("mset", -3, PAIRS, strings::mset),
    write("msetnx", -3, PAIRS, strings::msetnx),
    quiet(read("object", -2, Keys::At { first: 2, last: 2, step: 1 }, keys::object)),
    of_string(write("persist", 2, ONE, expiry::persist)),
    of_string(write("pexpire", -3, ONE, expiry::pexpire)),
    of_string(write("pexpireat", -3, ONE, expiry::pexpireat)),
    quiet(read("pexpiretime", 2, ONE, expiry::pexpiretime)),
    of_sketch(write("pfadd", -2, ONE, hyperloglog::pfadd)),
    of_sketch(read("pfcount", -2, REST, hyperloglog::pfcount)),
    of_sketch(write("pfmerge", -2, REST, hyperloglog::pfmerge)),
    write("psetex", 4, ONE, strings::psetex),
    quiet(read("pttl", 2, ONE, expiry::pttl)),
    read("randomkey", 1, Keys::All, keys::randomkey),
    of_value(write("rename", 3, TWO, keys::rename)),
    of_value(write("renamenx", 3, TWO, keys::renamenx)),
    read("scan", -2, Keys::All, keys::scan),
    write("set", -3, ONE, strings::set),
    of_string(write("setbit", 4, ONE, bits::setbit)),
    write("setex", 4, ONE, strings::setex),
    write("setnx", 3, ONE, strings::setnx),
    of_string(write("setrange", 4, ONE, strings::setrange)),
    read("strlen", 2, ONE, strings::strlen),
    of_string(read("substr", 4, ONE, strings::getrange)),
    read("touch", -2, REST, keys::exists),
    quiet(read("ttl", 2, ONE, expiry::ttl)),
    quiet(read("type", 2, ONE, keys::type_of)),
    quiet(write("unlink", -2, REST, keys::del)),
];

/// Commands by a simple hash of their names. Looked up for every command; a general hash function for strings takes
/// longer than all comparisons.
static BY_NAME: LazyLock<[Vec<&Command>; NAMES]> = LazyLock::new(|| {
    let mut lists = [const { Vec::new() }; NAMES];
    COMMANDS.iter().for_each(|command| lists[number_of(command.name.as_bytes())].push(command));
    lists
});
const NAMES: usize = 128;

/// Returns a number below [`NAMES`] that does not depend on the case of the name.
#[inline]
fn number_of(name: &[u8]) -> usize {
    let letter = |place: Option<&u8>| usize::from(place.copied().unwrap_or(0) | 0x20);
    let (first, last) = (letter(name.first()), letter(name.last()));
    (first * 5 + letter(name.get(2)) * 3 + last + name.len() * 11) % NAMES
}

/// Returns the command with this name; case is ignored.
#[inline]
pub fn command(name: &[u8]) -> Option<&'static Command> {
    let mut list = BY_NAME[number_of(name)].iter();
    list.find(|command| command.name.as_bytes().eq_ignore_ascii_case(name)).copied()
}

/// The stored values whose size determines a command's work; arguments always count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkBasis {
    Arguments,
    /// Strings of the keys.
    String,
    /// Strings of the keys, or all fields of their hashes.
    Value,
    /// One field of a hash, which may be long.
    Field,
    Sketch,
    /// The number of keys in the space.
    All,
}

/// The environment of a running command.
pub(crate) struct Context<'k, 'c> {
    pub keyspace: &'k Keyspace,
    pub space: SpaceId,
    /// Time in milliseconds since the epoch.
    pub now: u64,
    /// Random number that comes with the command, so that its result is reproducible.
    pub random: u64,
    pub replies: Replies<'c>,
    pub resources: &'c mut CommandResources<'k>,
    pub host: &'c mut dyn Host,
    pub predicates: &'c mut Predicates,
}

/// A handle to one key of the running command.
pub(crate) struct KeyHandle<'s, 'k, 'j> {
    keyspace: &'s Keyspace,
    shard: &'s mut Shard,
    /// The other shards of the command.
    others: OtherShards<'s, 'j>,
    recorder: &'s mut Recorder<'j>,
    protected: &'s mut ProtectedKeys,
    /// Whether the command may change keys.
    writes: bool,
    random: u64,
    /// Number of the space that the client has selected.
    selected: SpaceId,
    /// Number of the space that the key is in, and its definition if it is a named space.
    space: SpaceId,
    named: Option<Arc<Space>>,
    hash: u64,
    key: &'k [u8],
    now: u64,
}

impl<'j, 'c> Context<'j, 'c> {
    /// Executes the command.
    pub fn run(&mut self, command: &Command, args: &Args<'_>) -> Done {
        if let Some(key) = command.keys.of(args).find(|key| key.len() > KV_KEY_BYTES_MAX) {
            let message = format!("ERR a key of {} bytes: keys have at most {KV_KEY_BYTES_MAX}", key.len());
            return Err(Refusal(Cow::Owned(message)));
        }
        self.resources.writes = command.writes;
        if command.uses && self.keyspace.notes_uses() {
            command.keys.of(args).for_each(|key| self.handle(key).note_use());
        }
        (command.run)(self, args)
    }

    pub fn handle<'k>(&mut self, key: &'k [u8]) -> KeyHandle<'_, 'k, 'j> {
        self.handle_and_replies(key).0
    }

    pub fn handle_and_replies<'k>(&mut self, key: &'k [u8]) -> (KeyHandle<'_, 'k, 'j>, &mut Replies<'c>) {
        let hash = self.resources.hash(self.keyspace, key);
        let keyspace = self.keyspace;
        let CommandResources { shards, recorder, protected, writes, .. } = &mut *self.resources;
        let (shard, others) = shards.split(keyspace.shard_of(hash));
        let (space, named) = shard.owner(self.space, key);
        let (named, writes, random, now) = (named.cloned(), *writes, self.random, self.now);
        let selected = self.space;
        let handle = KeyHandle {
            keyspace,
            shard,
            others,
            recorder,
            protected,
            writes,
            random,
            selected,
            space,
            named,
            hash,
            key,
            now,
        };
        (handle, &mut self.replies)
    }

    /// Returns a handle to a key in the given space, whichever space owns it by its prefix.
    fn handle_in<'k>(
        &mut self,
        space: SpaceId,
        named: Option<&Arc<Space>>,
        key: &'k [u8],
    ) -> KeyHandle<'_, 'k, 'j> {
        let hash = self.resources.hash(self.keyspace, key);
        let keyspace = self.keyspace;
        let CommandResources { shards, recorder, protected, writes, .. } = &mut *self.resources;
        let (shard, others) = shards.split(keyspace.shard_of(hash));
        let (named, writes, random, now) = (named.cloned(), *writes, self.random, self.now);
        let selected = crate::session::selected(space);
        KeyHandle {
            keyspace,
            shard,
            others,
            recorder,
            protected,
            writes,
            random,
            selected,
            space,
            named,
            hash,
            key,
            now,
        }
    }

    /// Returns the selected space and the named spaces in it, each at a fixed index, so that cursors of `SCAN` stay
    /// valid when spaces are created or dropped.
    pub fn scanned_spaces(&self) -> Vec<Option<SpaceId>> {
        let shards = self.all_taken();
        let mut places = vec![Some(self.space)];
        let named = shards.first().into_iter().flat_map(|(_, shard)| shard.parts(self.space)).skip(1);
        for id in named {
            let place = (id - crate::session::SPACES) as usize + 1;
            places.resize(places.len().max(place + 1), None);
            places[place] = Some(id);
        }
        places
    }

    fn all_taken(&self) -> &[(usize, ShardGuard<'j>)] {
        self.resources.shards.several()
    }

    /// Iterates over the tables of the selected space, by shard.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.all_taken()
            .iter()
            .flat_map(|(_, shard)| shard.parts(self.space).filter_map(|space| shard.table(space)))
    }

    /// Returns the table of a space in one shard.
    pub fn table_of(&self, shard: usize, space: SpaceId) -> Option<&Table> {
        self.all_taken().get(shard)?.1.table(space)
    }

    /// Removes all keys of all spaces.
    pub fn flush_all(&mut self) {
        let now = self.now;
        self.resources.shards.all().iter_mut().for_each(|(_, shard)| shard.flush_all(now));
        self.resources.recorder.add(&Effect::FlushAll);
    }

    /// Removes all keys of the selected space.
    pub fn flush(&mut self) {
        let (space, now) = (self.space, self.now);
        self.resources.shards.all().iter_mut().for_each(|(_, shard)| shard.flush(space, now));
        self.resources.recorder.add(&Effect::Flush { space });
    }
}

impl KeyHandle<'_, '_, '_> {
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.shard.table(self.space)?.get(self.hash, self.key, self.now)
    }

    /// Returns the value, which must be a string if the key exists.
    pub fn string(&self) -> std::result::Result<Option<Cow<'_, [u8]>>, Refusal> {
        let entry = self.entry();
        self.count_read(entry.is_some());
        match entry {
            Some(entry) if entry.kind() != Kind::String => Err(WRONG_TYPE.into()),
            Some(entry) => Ok(Some(self.plain(entry)?)),
            None => Ok(None),
        }
    }

    /// Returns the plain value of the entry, of any kind.
    pub fn plain<'e>(&self, entry: Entry<'e>) -> std::result::Result<Cow<'e, [u8]>, Refusal> {
        match self.shard.table(self.space) {
            Some(table) => Ok(table.plain(entry)?),
            None => Ok(Cow::Borrowed(entry.stored())),
        }
    }

    /// Returns the fields of the hash; the value must be a hash if the key exists.
    pub fn fields(&self) -> std::result::Result<Option<Fields<'_>>, Refusal> {
        let table = self.shard.table(self.space);
        let fields = match table {
            Some(table) => table.fields(self.hash, self.key, self.schema(), self.now)?,
            None => None,
        };
        self.count_read(fields.is_some());
        match fields {
            Some(None) => Err(WRONG_TYPE.into()),
            fields => Ok(fields.flatten()),
        }
    }

    /// Sets a field; returns whether it is new. The value must be a hash, or absent.
    pub fn set_field(&mut self, field: &[u8], value: &[u8]) -> std::result::Result<bool, Refusal> {
        if field.len() > KV_KEY_BYTES_MAX || value.len() > KV_VALUE_BYTES_MAX {
            return Err(TOO_LONG.into());
        }
        if self.schema().is_some() {
            return self.set_row_field(field, value);
        }
        let is_absent = self.recorder.is_on() && !self.exists();
        let (hash, key, now) = (self.hash, self.key, self.now);
        let set = |table: &mut Table, _: &mut Recorder<'_>| table.set_field(hash, key, (field, value), now);
        let is_new = self.with_room(field.len() + value.len(), set)?;
        let (space, key) = (self.space, self.key);
        if is_absent {
            self.recorder.add(&Effect::Remove { space, key });
        }
        self.recorder.add(&Effect::Field { space, key, field, value });
        self.record_expiry();
        self.changed();
        Ok(is_new)
    }

    /// Sets several fields, all or none; returns how many are new. The value must be a hash, or absent.
    pub fn set_fields_of_hash(&mut self, fields: &[(&[u8], &[u8])]) -> std::result::Result<usize, Refusal> {
        let is_long = |(field, value): &(&[u8], &[u8])| {
            field.len() > KV_KEY_BYTES_MAX || value.len() > KV_VALUE_BYTES_MAX
        };
        if fields.iter().any(is_long) {
            return Err(TOO_LONG.into());
        }
        if self.schema().is_some() {
            return self.set_row_fields(fields);
        }
        let is_absent = self.recorder.is_on() && !self.exists();
        let (space, hash, key, now) = (self.space, self.hash, self.key, self.now);
        let bytes = fields.iter().map(|(field, value)| field.len() + value.len()).sum();
        let new = self.with_room(bytes, |table, _| table.set_all_fields(hash, key, fields, now))?;
        if is_absent {
            self.recorder.add(&Effect::Remove { space, key });
        }
        for (field, value) in fields {
            self.recorder.add(&Effect::Field { space, key, field, value });
        }
        self.record_expiry();
        self.changed();
        Ok(new)
    }

    /// Removes a field; returns whether it was present.
    pub fn remove_field(&mut self, field: &[u8]) -> std::result::Result<bool, Refusal> {
        if self.schema().is_some() {
            return self.remove_row_field(field);
        }
        let (hash, key, now) = (self.hash, self.key, self.now);
        let was_there = self.with_room(0, |table, _| table.remove_field(hash, key, field, now))?;
        if was_there {
            self.recorder.add(&Effect::RemoveField { space: self.space, key: self.key, field });
            self.changed();
        }
        Ok(was_there)
    }

    /// Returns a copy of the fields if the value is a large hash.
    pub fn copied_fields(&mut self) -> std::result::Result<Option<Box<Table>>, Refusal> {
        let (hash, key, now) = (self.hash, self.key, self.now);
        Ok(self.with_room(0, |table, _| table.copied_fields(hash, key, now))?)
    }

    /// Takes the fields of a large hash; the caller removes the key next.
    pub fn take_fields(&mut self) -> Option<Box<Table>> {
        self.shard.table_mut(self.space).take_fields(self.hash, self.key, self.now)
    }

    /// Replaces the fields of a large hash.
    pub fn set_fields(&mut self, fields: Box<Table>) {
        self.shard.table_mut(self.space).set_fields(self.hash, self.key, fields, self.now);
        self.record_fields();
    }

    /// Records the expiry again after a change of a part of the value. Expiry itself is not recorded, so without this,
    /// replaying the change onto a snapshot that lacks the expired key would create a key that never expires.
    fn record_expiry(&mut self) {
        if !self.recorder.is_on() {
            return;
        }
        if let Some(expiry) = self.entry().and_then(Entry::expiry) {
            let expiry = Some(expiry);
            self.recorder.add(&Effect::Expire { space: self.space, key: self.key, expiry });
        }
    }

    /// Records all fields of a hash that was set as a whole, and its expiry.
    fn record_fields(&mut self) {
        let Some(table) = self.shard.table(self.space).filter(|_| self.recorder.is_on()) else { return };
        let (space, key) = (self.space, self.key);
        self.recorder.add(&Effect::Remove { space, key });
        let Ok(Some(Some(fields))) = table.fields(self.hash, key, None, self.now) else { return };
        let mut cursor = 0;
        loop {
            cursor = fields.scan(cursor, |field, value| {
                self.recorder.add(&Effect::Field { space, key, field, value });
            });
            if cursor == 0 {
                break;
            }
        }
        let expiry = table.get(self.hash, key, self.now).and_then(Entry::expiry);
        self.recorder.add(&Effect::Expire { space, key, expiry });
    }

    /// Sets the value to a large hash.
    pub fn put_table(&mut self, fields: Box<Table>, expiry: Option<u64>) -> Done {
        let (hash, key, mut fields) = (self.hash, self.key, Some(fields));
        self.with_room(0, |table, _| table.put_table(hash, key, &mut fields, expiry))?;
        self.record_fields();
        self.changed();
        Ok(())
    }

    /// Sets the value to a large hash without fields.
    pub fn put_empty_table(&mut self, expiry: Option<u64>) -> Done {
        let fields = Box::new(self.shard.table_mut(self.space).of_same_kind());
        self.put_table(fields, expiry)
    }

    /// Returns the bytes of the pool that the entry takes.
    pub fn bytes(&self) -> Option<usize> {
        self.entry()?;
        self.shard.table(self.space)?.bytes_of(self.hash, self.key)
    }

    pub fn exists(&self) -> bool {
        self.entry().is_some()
    }

    /// Sets the value to a string, replacing any value.
    pub fn put(&mut self, value: &[u8], expiry: Option<u64>) -> Done {
        self.put_as(Kind::String, value, expiry)
    }

    /// Sets the value to one of this kind.
    pub fn put_as(&mut self, kind: Kind, value: &[u8], expiry: Option<u64>) -> Done {
        if kind != Kind::Row {
            self.check_no_rows()?;
        }
        let (hash, key) = (self.hash, self.key);
        self.with_room(value.len(), |table, _| table.put_plain(hash, key, (kind, value), expiry))?;
        self.recorder.add(&Effect::Put { space: self.space, key: self.key, kind, expiry, value });
        self.changed();
        Ok(())
    }

    /// Resizes the value to `bytes` bytes, padding with zeros, and applies `change` to those of `range`.
    pub fn edit(&mut self, bytes: usize, range: Range<usize>, change: impl FnOnce(&mut [u8])) -> Done {
        if bytes > KV_VALUE_BYTES_MAX {
            return Err(TOO_LONG.into());
        }
        self.check_no_rows()?;
        let (space, key) = (self.space, self.key);
        let is_absent = self.recorder.is_on() && !self.exists();
        let (hash, now) = (self.hash, self.now);
        let edit = |changed: &[u8], recorder: &mut Recorder<'_>| {
            if is_absent {
                recorder.add(&Effect::Remove { space, key });
            }
            recorder.add(&Effect::Edit { space, key, length: bytes, offset: range.start, bytes: changed });
        };
        match self.shard.table_mut(space).edited(hash, key, bytes, now)? {
            Some(Edited { mut plain, expiry }) => {
                change(&mut plain[range.clone()]);
                self.with_room(bytes, |table, _| table.put_plain(hash, key, (Kind::String, &plain), expiry))?;
                edit(&plain[range.clone()], self.recorder);
            }
            None => {
                let mut change = Some(change);
                self.with_room(bytes, |table, recorder| {
                    let changed = &mut table.resize(hash, key, bytes, now)?[range.clone()];
                    if let Some(change) = change.take() {
                        change(changed);
                    }
                    edit(changed, recorder);
                    Ok(())
                })?;
            }
        }
        self.record_expiry();
        self.changed();
        Ok(())
    }

    pub fn set_expiry(&mut self, expiry: Option<u64>) -> Done {
        let (hash, key) = (self.hash, self.key);
        self.with_room(0, |table, _| table.set_expiry(hash, key, expiry))?;
        self.recorder.add(&Effect::Expire { space: self.space, key: self.key, expiry });
        self.changed();
        Ok(())
    }

    /// Removes the key; returns whether it existed.
    pub fn remove(&mut self) -> bool {
        let was_there = self.exists();
        self.shard.table_mut(self.space).remove(self.hash, self.key);
        if was_there {
            self.recorder.add(&Effect::Remove { space: self.space, key: self.key });
            self.changed();
        }
        was_there
    }

    fn changed(&mut self) {
        self.shard.touch(self.selected, self.key);
        // Without memory for a larger index, keys can still be found.
        drop(self.shard.table_mut(self.space).tidy());
    }
}

/// Parses an integer argument.
fn integer(text: &[u8]) -> std::result::Result<i64, Refusal> {
    parse_integer(text).ok_or_else(|| NOT_INTEGER.into())
}

//! The commands that read and change keys, as Redis has them.
//!
//! A command stands once in [`COMMANDS`] with what must be known of it before it runs: how many arguments it takes, which of
//! them are keys, and whether it changes anything. Its function finds the shards of its keys taken.

mod bits;
mod expiry;
mod hashes;
mod keys;
mod numbers;
mod options;
mod pattern;
mod strings;
#[cfg(test)]
mod tests;

pub use pattern::matches;

use crate::entry::{Entry, Kind};
use crate::fields::Fields;
use crate::keyspace::Keyspace;
use crate::resp::{Replies, parse_integer};
use crate::shard::{Shard, SpaceId};
use crate::table::{Table, Value};
use farpool_model::Error;
use farpool_model::limits::{KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX};
use parking_lot::MutexGuard;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The arguments of a command; the first is its name.
pub type Args<'a> = [&'a [u8]];

/// Why a command was refused: the text of an error reply, code first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub Cow<'static, str>);

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Refusal(Cow::Borrowed(text))
    }
}

impl From<Error> for Refusal {
    /// The pool refuses memory, and nothing else here is refused.
    fn from(error: Error) -> Self {
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

/// The refusal of a reply that would be too large.
const TOO_MUCH: &str = "ERR the reply is larger than this client may have in memory: ask for less at once";

/// Which arguments of a command are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// None, and no others are touched.
    None,
    /// None are named; it may touch all.
    All,
    /// From the first of these positions to the second, which counts from the end if it is negative, in steps.
    At {
        /// Position of the first key; the command's name is at 0.
        first: usize,
        /// Position of the last key.
        last: isize,
        /// From one key to the next.
        step: usize,
    },
}

const ONE: Keys = Keys::At { first: 1, last: 1, step: 1 };
const TWO: Keys = Keys::At { first: 1, last: 2, step: 1 };
const REST: Keys = Keys::At { first: 1, last: -1, step: 1 };
const PAIRS: Keys = Keys::At { first: 1, last: -1, step: 2 };

impl Keys {
    /// The keys among the arguments of a command.
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

/// A command.
pub struct Command {
    /// Its name in lower case.
    pub name: &'static str,
    /// Number of arguments, its name included; at least so many if it is negative.
    pub arity: isize,
    /// Which arguments are keys.
    pub keys: Keys,
    /// Whether it may change keys.
    pub writes: bool,
    run: fn(&mut Context<'_, '_>, &Args<'_>) -> Done,
}

impl Command {
    /// Whether it can take so many arguments, its name included.
    pub fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs();
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }
}

const fn read(
    name: &'static str,
    arity: isize,
    keys: Keys,
    run: fn(&mut Context<'_, '_>, &Args<'_>) -> Done,
) -> Command {
    Command { name, arity, keys, writes: false, run }
}

const fn write(
    name: &'static str,
    arity: isize,
    keys: Keys,
    run: fn(&mut Context<'_, '_>, &Args<'_>) -> Done,
) -> Command {
    Command { name, arity, keys, writes: true, run }
}

/// All commands.
pub static COMMANDS: &[Command] = &[
    write("append", 3, ONE, strings::append),
    read("bitcount", -2, ONE, bits::bitcount),
    write("copy", -3, TWO, keys::copy),
    read("dbsize", 1, Keys::All, keys::dbsize),
    write("decr", 2, ONE, numbers::decr),
    write("decrby", 3, ONE, numbers::decrby),
    write("del", -2, REST, keys::del),
    read("exists", -2, REST, keys::exists),
    write("expire", -3, ONE, expiry::expire),
    write("expireat", -3, ONE, expiry::expireat),
    read("expiretime", 2, ONE, expiry::expiretime),
    write("flushall", -1, Keys::All, keys::flushall),
    write("flushdb", -1, Keys::All, keys::flushdb),
    read("get", 2, ONE, strings::get),
    read("getbit", 3, ONE, bits::getbit),
    write("getdel", 2, ONE, strings::getdel),
    write("getex", -2, ONE, strings::getex),
    read("getrange", 4, ONE, strings::getrange),
    write("getset", 3, ONE, strings::getset),
    write("hdel", -3, ONE, hashes::hdel),
    read("hexists", 3, ONE, hashes::hexists),
    read("hget", 3, ONE, hashes::hget),
    read("hgetall", 2, ONE, hashes::hgetall),
    write("hincrby", 4, ONE, hashes::hincrby),
    write("hincrbyfloat", 4, ONE, hashes::hincrbyfloat),
    read("hkeys", 2, ONE, hashes::hkeys),
    read("hlen", 2, ONE, hashes::hlen),
    read("hmget", -3, ONE, hashes::hmget),
    write("hmset", -4, ONE, hashes::hmset),
    read("hscan", -3, ONE, hashes::hscan),
    write("hset", -4, ONE, hashes::hset),
    write("hsetnx", 4, ONE, hashes::hsetnx),
    read("hstrlen", 3, ONE, hashes::hstrlen),
    read("hvals", 2, ONE, hashes::hvals),
    write("incr", 2, ONE, numbers::incr),
    write("incrby", 3, ONE, numbers::incrby),
    write("incrbyfloat", 3, ONE, numbers::incrbyfloat),
    read("keys", 2, Keys::All, keys::keys),
    read("mget", -2, REST, strings::mget),
    read("memory", -2, Keys::At { first: 2, last: 2, step: 1 }, keys::memory),
    write("mset", -3, PAIRS, strings::mset),
    write("msetnx", -3, PAIRS, strings::msetnx),
    read("object", -2, Keys::At { first: 2, last: 2, step: 1 }, keys::object),
    write("persist", 2, ONE, expiry::persist),
    write("pexpire", -3, ONE, expiry::pexpire),
    write("pexpireat", -3, ONE, expiry::pexpireat),
    read("pexpiretime", 2, ONE, expiry::pexpiretime),
    write("psetex", 4, ONE, strings::psetex),
    read("pttl", 2, ONE, expiry::pttl),
    read("randomkey", 1, Keys::All, keys::randomkey),
    write("rename", 3, TWO, keys::rename),
    write("renamenx", 3, TWO, keys::renamenx),
    read("scan", -2, Keys::All, keys::scan),
    write("set", -3, ONE, strings::set),
    write("setbit", 4, ONE, bits::setbit),
    write("setex", 4, ONE, strings::setex),
    write("setnx", 3, ONE, strings::setnx),
    write("setrange", 4, ONE, strings::setrange),
    read("strlen", 2, ONE, strings::strlen),
    read("substr", 4, ONE, strings::getrange),
    read("touch", -2, REST, keys::exists),
    read("ttl", 2, ONE, expiry::ttl),
    read("type", 2, ONE, keys::type_of),
    write("unlink", -2, REST, keys::del),
];

/// Bytes of the longest name of a command that is looked up.
const NAME_BYTES: usize = 32;

static BY_NAME: LazyLock<HashMap<&[u8], &Command>> =
    LazyLock::new(|| COMMANDS.iter().map(|command| (command.name.as_bytes(), command)).collect());

/// Finds a command by its name in any case.
pub fn command(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; NAME_BYTES];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// What a command runs in.
pub(crate) struct Context<'k, 'c> {
    pub keyspace: &'k Keyspace,
    pub space: SpaceId,
    /// Milliseconds since the epoch.
    pub now: u64,
    /// Comes with the command, so that it does the same wherever it is carried out.
    pub random: u64,
    pub replies: Replies<'c>,
    pub taken: &'c mut Taken<'k>,
}

/// The shards that a command has to itself, in their order.
pub(crate) enum Taken<'a> {
    One(usize, MutexGuard<'a, Shard>),
    Several(Vec<(usize, MutexGuard<'a, Shard>)>),
}

impl<'a> Taken<'a> {
    /// Takes the shards of the keys of these commands.
    pub fn of<'b>(keyspace: &'a Keyspace, commands: impl Iterator<Item = (Keys, &'b Args<'b>)>) -> Self {
        let mut one = None;
        let mut several = Vec::new();
        for (keys, args) in commands {
            if keys == Keys::All {
                several = (0..keyspace.shards()).collect();
                break;
            }
            for key in keys.of(args) {
                let shard = keyspace.shard_of(keyspace.hash(key));
                match one {
                    None => one = Some(shard),
                    Some(first) if first == shard => {}
                    Some(_) => several.push(shard),
                }
            }
        }
        match one {
            Some(shard) if several.is_empty() => Taken::One(shard, keyspace.lock(shard)),
            one => {
                several.extend(one);
                several.sort_unstable();
                several.dedup();
                Taken::Several(several.into_iter().map(|shard| (shard, keyspace.lock(shard))).collect())
            }
        }
    }

    fn all(&mut self) -> &mut [(usize, MutexGuard<'a, Shard>)] {
        match self {
            Taken::One(..) => &mut [],
            Taken::Several(shards) => shards,
        }
    }

    pub fn shard(&mut self, shard: usize) -> &mut Shard {
        match self {
            Taken::One(taken, guard) => {
                debug_assert_eq!(*taken, shard, "a key of the command");
                guard
            }
            Taken::Several(guards) => {
                let at = guards.binary_search_by_key(&shard, |(shard, _)| *shard);
                &mut guards[at.expect("the shards of all keys were taken")].1
            }
        }
    }
}

/// A key of the command that runs.
pub(crate) struct Slot<'s, 'k> {
    shard: &'s mut Shard,
    space: SpaceId,
    hash: u64,
    key: &'k [u8],
    now: u64,
}

impl<'c> Context<'_, 'c> {
    /// Carries out the command.
    pub fn run(&mut self, command: &Command, args: &Args<'_>) -> Done {
        if let Some(key) = command.keys.of(args).find(|key| key.len() > KV_KEY_BYTES_MAX) {
            let message = format!("ERR a key of {} bytes: keys have at most {KV_KEY_BYTES_MAX}", key.len());
            return Err(Refusal(Cow::Owned(message)));
        }
        (command.run)(self, args)
    }

    pub fn slot<'k>(&mut self, key: &'k [u8]) -> Slot<'_, 'k> {
        self.slot_and_replies(key).0
    }

    pub fn slot_and_replies<'k>(&mut self, key: &'k [u8]) -> (Slot<'_, 'k>, &mut Replies<'c>) {
        let hash = self.keyspace.hash(key);
        let shard = self.taken.shard(self.keyspace.shard_of(hash));
        (Slot { shard, space: self.space, hash, key, now: self.now }, &mut self.replies)
    }

    /// The keys of the space, by shard.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        let shards = match &self.taken {
            Taken::One(..) => &[],
            Taken::Several(shards) => &shards[..],
        };
        shards.iter().filter_map(|(_, shard)| shard.table(self.space))
    }

    /// The keys of the space in one shard.
    pub fn table_of(&self, shard: usize) -> Option<&Table> {
        match &self.taken {
            Taken::One(..) => None,
            Taken::Several(shards) => shards.get(shard)?.1.table(self.space),
        }
    }

    /// Removes all keys of all spaces.
    pub fn flush_all(&mut self) {
        self.taken.all().iter_mut().for_each(|(_, shard)| shard.flush_all());
    }

    /// Removes all keys of the space.
    pub fn flush(&mut self) {
        let space = self.space;
        self.taken.all().iter_mut().for_each(|(_, shard)| shard.flush(space));
    }
}

impl Slot<'_, '_> {
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.shard.table(self.space)?.get(self.hash, self.key, self.now)
    }

    /// The value, which must be a string if there is one.
    pub fn string(&self) -> std::result::Result<Option<&[u8]>, Refusal> {
        match self.entry() {
            Some(entry) if entry.kind() != Kind::String => Err(WRONG_TYPE.into()),
            entry => Ok(entry.map(Entry::value)),
        }
    }

    /// The fields of the hash, which the value must be if there is one.
    pub fn fields(&self) -> std::result::Result<Option<Fields<'_>>, Refusal> {
        let Some(table) = self.shard.table(self.space) else { return Ok(None) };
        match table.fields(self.hash, self.key, self.now) {
            Some(None) => Err(WRONG_TYPE.into()),
            fields => Ok(fields.flatten()),
        }
    }

    /// Sets a field; returns whether it is new. The value must be a hash, or absent.
    pub fn set_field(&mut self, field: &[u8], value: &[u8]) -> std::result::Result<bool, Refusal> {
        if field.len() > KV_KEY_BYTES_MAX || value.len() > KV_VALUE_BYTES_MAX {
            return Err(TOO_LONG.into());
        }
        let table = self.shard.table_mut(self.space);
        let is_new = table.set_field(self.hash, self.key, (field, value), self.now)?;
        self.changed();
        Ok(is_new)
    }

    /// Removes a field; returns whether it was there.
    pub fn remove_field(&mut self, field: &[u8]) -> std::result::Result<bool, Refusal> {
        let table = self.shard.table_mut(self.space);
        let was_there = table.remove_field(self.hash, self.key, field, self.now)?;
        if was_there {
            self.changed();
        }
        Ok(was_there)
    }

    /// A copy of the fields, if the value is a large hash.
    pub fn copied_fields(&self) -> std::result::Result<Option<Box<Table>>, Refusal> {
        let Some(table) = self.shard.table(self.space) else { return Ok(None) };
        Ok(table.copied_fields(self.hash, self.key, self.now)?)
    }

    /// Takes the fields of a large hash, whose key is removed next.
    pub fn take_fields(&mut self) -> Option<Box<Table>> {
        self.shard.table_mut(self.space).take_fields(self.hash, self.key, self.now)
    }

    /// Gives a large hash other fields.
    pub fn set_fields(&mut self, fields: Box<Table>) {
        self.shard.table_mut(self.space).set_fields(self.hash, self.key, fields, self.now);
    }

    /// Gives the key a large hash.
    pub fn put_table(&mut self, fields: Box<Table>, expiry: Option<u64>) -> Done {
        self.shard.table_mut(self.space).put_table(self.hash, self.key, fields, expiry)?;
        self.changed();
        Ok(())
    }

    /// Gives the key a large hash without fields.
    pub fn put_empty_table(&mut self, expiry: Option<u64>) -> Done {
        let fields = Box::new(self.shard.table_mut(self.space).of_same_kind());
        self.put_table(fields, expiry)
    }

    /// Bytes of the pool that the entry takes.
    pub fn bytes(&self) -> Option<usize> {
        self.entry()?;
        self.shard.table(self.space)?.bytes_of(self.hash, self.key)
    }

    pub fn exists(&self) -> bool {
        self.entry().is_some()
    }

    /// Sets the value, whatever there was.
    pub fn put(&mut self, value: &[u8], expiry: Option<u64>) -> Done {
        self.put_as(Kind::String, value, expiry)
    }

    /// Sets the value to one of this kind.
    pub fn put_as(&mut self, kind: Kind, value: &[u8], expiry: Option<u64>) -> Done {
        let new = Value { kind, bytes: value.len(), room: value.len(), expiry };
        self.shard.table_mut(self.space).put(self.hash, self.key, &new)?.copy_from_slice(value);
        self.changed();
        Ok(())
    }

    /// Makes the value so many bytes long, with zeros behind what there is, and changes it.
    pub fn edit(&mut self, bytes: usize, change: impl FnOnce(&mut [u8])) -> Done {
        if bytes > KV_VALUE_BYTES_MAX {
            return Err(TOO_LONG.into());
        }
        let table = self.shard.table_mut(self.space);
        change(table.resize(self.hash, self.key, bytes, self.now)?);
        self.changed();
        Ok(())
    }

    pub fn set_expiry(&mut self, expiry: Option<u64>) -> Done {
        self.shard.table_mut(self.space).set_expiry(self.hash, self.key, expiry)?;
        self.changed();
        Ok(())
    }

    /// Removes the key; returns whether it was there.
    pub fn remove(&mut self) -> bool {
        let was_there = self.exists();
        self.shard.table_mut(self.space).remove(self.hash, self.key);
        if was_there {
            self.changed();
        }
        was_there
    }

    fn changed(&mut self) {
        self.shard.touch(self.space, self.key);
        // Where the pool has no room for more of the index, keys are found all the same.
        drop(self.shard.table_mut(self.space).tidy());
    }
}

/// Reads an integer argument.
fn integer(text: &[u8]) -> std::result::Result<i64, Refusal> {
    parse_integer(text).ok_or_else(|| NOT_INTEGER.into())
}

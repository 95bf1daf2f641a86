//! The table of commands. A row defines a command: its name, its number of arguments (arity) and its flags, the
//! arguments that are keys, what its work depends on, the function that executes it, and the description for `COMMAND`.
//! The dispatch, the checks of arguments and the replies to `COMMAND` all use this table.
//!
//! Invariant: rows are sorted by name; otherwise the crate does not compile. So each name has one row, the rows of
//! subcommands follow that of their command, and replies to `COMMAND` are in this order.
//!
//! Descriptions are those of Redis 7.0.15 for the commands that it has. `since` is a version of Redis, and one of
//! farpool in the group `farpool`. Rows are formatted by hand to keep them short enough to compare.

use super::command::{
    Command, CostlyText, FROM_SECOND, Growth, KeyUse, ONE, PAIRS, REST, SECOND, WorkBasis, container, host,
    keyspace, session,
};
use super::{bits, expiry, hashes, hyperloglog, keys, numbers, object, predicates, rows, spaces, strings};

/// Key specifications ([`KeyUse`]) that several commands share, or that are long.
const READ: &[KeyUse] = &[KeyUse("RO,access", ONE)];
const LOOKED_UP: &[KeyUse] = &[KeyUse("RO", ONE)];
const ALL_LOOKED_UP: &[KeyUse] = &[KeyUse("RO", REST)];
const SECOND_LOOKED_UP: &[KeyUse] = &[KeyUse("RO", SECOND)];
const INSERTED: &[KeyUse] = &[KeyUse("RW,insert", ONE)];
const CHANGED: &[KeyUse] = &[KeyUse("RW,update", ONE)];
const UPDATED: &[KeyUse] = &[KeyUse("RW,access,update", ONE)];
const COPIED: &[KeyUse] = &[KeyUse("RO,access", ONE), KeyUse("OW,update", SECOND)];
const RENAMED: &[KeyUse] = &[KeyUse("RW,access,delete", ONE), KeyUse("OW,update", SECOND)];
const RENAMED_IF_ABSENT: &[KeyUse] = &[KeyUse("RW,access,delete", ONE), KeyUse("OW,insert", SECOND)];
const MERGED: &[KeyUse] = &[KeyUse("RW,access,insert", ONE), KeyUse("RO,access", FROM_SECOND)];

/// The rows of all commands and subcommands, sorted by name.
#[rustfmt::skip]
pub static COMMANDS: &[Command] = &[
    keyspace("append", 3, "write denyoom fast", INSERTED, strings::append).work(WorkBasis::String)
        .about("string", "2.0.0", "Adds bytes at the end of a string"),
    host("auth", -2, "noscript loading stale fast no_auth allow_busy", HostCommand::Auth)
        .about("connection", "1.0.0", "Says who the client is"),
    host("bgsave", -1, "admin noscript no_async_loading", HostCommand::BgSave)
        .about("server", "1.0.0", "Begins a snapshot in the background"),
    keyspace("bitcount", -2, "readonly", READ, bits::bitcount).work(WorkBasis::String)
        .about("bitmap", "2.6.0", "Counts the bits of a string that are set"),
    container("client").about("connection", "2.4.0", "Commands about connections"),
    host("client|getname", 2, "noscript loading stale", HostCommand::ClientGetName)
        .about("connection", "2.6.9", "Tells the name of the connection"),
    host("client|getredir", 2, "noscript loading stale", HostCommand::ClientGetRedir)
        .about("connection", "6.0.0", "Tells where notes about tracked keys go"),
    host("client|help", 2, "loading stale", HostCommand::ClientHelp)
        .about("connection", "5.0.0", "Tells what there is"),
    host("client|id", 2, "noscript loading stale", HostCommand::ClientId)
        .about("connection", "5.0.0", "Tells the number of the connection"),
    host("client|info", 2, "noscript loading stale", HostCommand::ClientInfo).tips("nondeterministic_output")
        .about("connection", "6.2.0", "Describes the connection"),
    host("client|kill", -3, "admin noscript loading stale", HostCommand::ClientKill)
        .about("connection", "2.4.0", "Ends connections of the tenant"),
    host("client|list", -2, "admin noscript loading stale", HostCommand::ClientList)
        .tips("nondeterministic_output")
        .about("connection", "2.4.0", "Describes the connections of the tenant"),
    host("client|no-evict", 3, "admin noscript loading stale", HostCommand::ClientNoEvict)
        .about("connection", "7.0.0", "Is accepted: connections are not evicted"),
    host("client|no-touch", 3, "noscript loading stale", HostCommand::ClientNoTouch)
        .about("connection", "7.2.0", "Is accepted: commands of all connections note that keys are used"),
    host("client|pause", -3, "admin noscript loading stale", HostCommand::ClientPause)
        .about("connection", "2.9.50", "Has clients of the tenant wait for some time"),
    host("client|reply", 3, "noscript loading stale", HostCommand::ClientReply)
        .about("connection", "3.2.0", "Says whether commands are replied to"),
    host("client|setinfo", 4, "noscript loading stale", HostCommand::ClientSetInfo)
        .about("connection", "7.2.0", "Is accepted: what a library says of itself is not kept"),
    host("client|setname", 3, "noscript loading stale", HostCommand::ClientSetName)
        .about("connection", "2.6.9", "Names the connection"),
    host("client|tracking", -3, "noscript loading stale", HostCommand::ClientTracking)
        .about("connection", "6.0.0", "Is accepted to turn off tracking, which there is not"),
    host("client|trackinginfo", 2, "noscript loading stale", HostCommand::ClientTrackingInfo)
        .about("connection", "6.2.0", "Tells that keys are not tracked"),
    host("client|unblock", -3, "admin noscript loading stale", HostCommand::ClientUnblock)
        .about("connection", "5.0.0", "Ends that a client waits, which no command does"),
    host("client|unpause", 2, "admin noscript loading stale", HostCommand::ClientUnpause)
        .about("connection", "6.2.0", "Ends a pause"),
    host("command", -1, "loading stale", HostCommand::Command).with_subcommands().categories("connection")
        .tips("nondeterministic_output_order").about("server", "2.8.13", "Describes all commands"),
    host("command|count", 2, "loading stale", HostCommand::CommandCount).categories("connection")
        .about("server", "2.8.13", "Counts the commands"),
    host("command|docs", -2, "loading stale", HostCommand::CommandDocs).categories("connection")
        .tips("nondeterministic_output_order").about("server", "7.0.0", "Documents commands"),
    host("command|getkeys", -4, "loading stale", HostCommand::CommandGetKeys).categories("connection")
        .about("server", "2.8.13", "Tells which arguments of a command are keys"),
    host("command|getkeysandflags", -4, "loading stale", HostCommand::CommandGetKeysAndFlags)
        .categories("connection")
        .about("server", "7.0.0", "Tells which arguments of a command are keys, and what it does with them"),
    host("command|help", 2, "loading stale", HostCommand::CommandHelp).categories("connection")
        .about("server", "5.0.0", "Tells what there is"),
    host("command|info", -2, "loading stale", HostCommand::CommandInfo).categories("connection")
        .tips("nondeterministic_output_order").about("server", "2.8.13", "Describes commands"),
    host("command|list", -2, "loading stale", HostCommand::CommandList).categories("connection")
        .tips("nondeterministic_output_order").about("server", "7.0.0", "Lists the names of commands"),
    container("config").about("server", "2.0.0", "Commands about settings"),
    host("config|get", -3, "admin noscript loading stale", HostCommand::ConfigGet)
        .about("server", "2.0.0", "Tells settings"),
    host("config|help", 2, "loading stale", HostCommand::ConfigHelp)
        .about("server", "5.0.0", "Tells what there is"),
    host("config|resetstat", 2, "admin noscript loading stale", HostCommand::ConfigResetStat)
        .about("server", "2.0.0", "Sets the counters of INFO to zero"),
    host("config|set", -4, "admin noscript loading stale", HostCommand::ConfigSet)
        .tips("request_policy:all_nodes response_policy:all_succeeded")
        .about("server", "2.0.0", "Changes settings"),
    keyspace("copy", -3, "write denyoom", COPIED, keys::copy).work(WorkBasis::Value)
        .about("generic", "6.2.0", "Copies a key"),
    keyspace("dbsize", 1, "readonly fast", &[], keys::dbsize).of_all_shards().categories("keyspace")
        .tips("request_policy:all_shards response_policy:agg_sum")
        .about("server", "1.0.0", "Counts the keys"),
    keyspace("decr", 2, "write denyoom fast", UPDATED, numbers::decr)
        .about("string", "1.0.0", "Subtracts one from an integer"),
    keyspace("decrby", 3, "write denyoom fast", UPDATED, numbers::decrby)
        .about("string", "1.0.0", "Subtracts from an integer"),
    keyspace("del", -2, "write", &[KeyUse("RM,delete", REST)], keys::del).quiet()
        .tips("request_policy:multi_shard response_policy:agg_sum").about("generic", "1.0.0", "Removes keys"),
    session("discard", 1, "noscript loading stale fast allow_busy", &[], SessionCommand::Discard)
        .about("transactions", "2.0.0", "Drops the commands of a transaction"),
    host("echo", 2, "loading stale fast", HostCommand::Echo)
        .about("connection", "1.0.0", "Returns its argument"),
    session("exec", 1, "noscript loading stale skip_slowlog", &[], SessionCommand::Exec)
        .about("transactions", "1.2.0", "Carries out a transaction"),
    keyspace("exists", -2, "readonly fast", ALL_LOOKED_UP, keys::exists).quiet()
        .tips("request_policy:multi_shard response_policy:agg_sum")
        .about("generic", "1.0.0", "Counts the keys that are there"),
    keyspace("expire", -3, "write fast", CHANGED, expiry::expire).work(WorkBasis::String)
        .about("generic", "1.0.0", "Sets in how many seconds a key expires"),
    keyspace("expireat", -3, "write fast", CHANGED, expiry::expireat).work(WorkBasis::String)
        .about("generic", "1.2.0", "Sets the second in which a key expires"),
    keyspace("expiretime", 2, "readonly fast", READ, expiry::expiretime).quiet()
        .about("generic", "7.0.0", "Tells the second in which a key expires"),
    keyspace("flushall", -1, "write", &[], keys::flushall).of_all_shards().work(WorkBasis::All)
        .categories("keyspace dangerous").tips("request_policy:all_shards response_policy:all_succeeded")
        .about("server", "1.0.0", "Removes the keys of all databases"),
    keyspace("flushdb", -1, "write", &[], keys::flushdb).of_all_shards().work(WorkBasis::All)
        .categories("keyspace dangerous").tips("request_policy:all_shards response_policy:all_succeeded")
        .about("server", "1.0.0", "Removes the keys of the database"),
    keyspace("fp.cas", 4, "write denyoom", UPDATED, predicates::cas).work(WorkBasis::StringInReply)
        .about("farpool", "0.1.0", "Sets a string if it is the expected one"),
    keyspace("fp.cget", 3, "readonly", READ, predicates::cget).work(WorkBasis::StringInReply)
        .text(CostlyText::Condition)
        .about("farpool", "0.1.0", "Returns a string if a condition is true for it"),
    keyspace("fp.rowset", -4, "write denyoom", &[], rows::rowset).of_all_shards()
        .about("farpool", "0.1.0", "Sets rows of a space"),
    keyspace("fp.scan", -3, "readonly", &[], predicates::scan).of_all_shards().text(CostlyText::Condition)
        .about("farpool", "0.1.0", "Goes over the entries of a space for which a condition is true"),
    keyspace("fp.space", -2, "write denyoom", &[], spaces::space).of_all_shards().work(WorkBasis::All)
        .categories("keyspace").about("farpool", "0.1.0", "Creates, drops and describes spaces"),
    keyspace("fp.update", 3, "write denyoom", CHANGED, predicates::update)
        .about("farpool", "0.1.0", "Sets a string that is there"),
    keyspace("get", 2, "readonly fast", READ, strings::get).work(WorkBasis::StringInReply)
        .about("string", "1.0.0", "Returns a string"),
    keyspace("getbit", 3, "readonly fast", READ, bits::getbit)
        .about("bitmap", "2.2.0", "Returns a bit of a string"),
    keyspace("getdel", 2, "write fast", &[KeyUse("RW,access,delete", ONE)], strings::getdel)
        .work(WorkBasis::StringInReply).about("string", "6.2.0", "Returns a string and removes it"),
    keyspace("getex", -2, "write fast", UPDATED, strings::getex).work(WorkBasis::String)
        .about("string", "6.2.0", "Returns a string and sets when it expires"),
    keyspace("getrange", 4, "readonly", READ, strings::getrange).work(WorkBasis::StringInReply)
        .about("string", "2.4.0", "Returns a part of a string"),
    keyspace("getset", 3, "write denyoom fast", UPDATED, strings::getset).work(WorkBasis::StringInReply)
        .about("string", "1.0.0", "Sets a string and returns the one before"),
    keyspace("hdel", -3, "write fast", &[KeyUse("RW,delete", ONE)], hashes::hdel)
        .about("hash", "2.0.0", "Removes fields of a hash"),
    host("hello", -1, "noscript loading stale fast no_auth allow_busy", HostCommand::Hello)
        .about("connection", "6.0.0", "Begins with a version of the protocol"),
    keyspace("hexists", 3, "readonly fast", LOOKED_UP, hashes::hexists)
        .about("hash", "2.0.0", "Tells whether a hash has a field"),
    keyspace("hget", 3, "readonly fast", READ, hashes::hget).work(WorkBasis::Field)
        .about("hash", "2.0.0", "Returns a field of a hash"),
    keyspace("hgetall", 2, "readonly", READ, hashes::hgetall).work(WorkBasis::ValueInReply)
        .tips("nondeterministic_output_order")
        .about("hash", "2.0.0", "Returns all fields of a hash and their values"),
    keyspace("hincrby", 4, "write denyoom fast", UPDATED, hashes::hincrby).work(WorkBasis::Field)
        .about("hash", "2.0.0", "Adds to an integer in a hash"),
    keyspace("hincrbyfloat", 4, "write denyoom fast", UPDATED, hashes::hincrbyfloat).work(WorkBasis::Field)
        .about("hash", "2.6.0", "Adds to a number in a hash"),
    keyspace("hkeys", 2, "readonly", READ, hashes::hkeys).work(WorkBasis::ValueInReply)
        .tips("nondeterministic_output_order")
        .about("hash", "2.0.0", "Returns the names of the fields of a hash"),
    keyspace("hlen", 2, "readonly fast", LOOKED_UP, hashes::hlen)
        .about("hash", "2.0.0", "Counts the fields of a hash"),
    keyspace("hmget", -3, "readonly fast", READ, hashes::hmget).work(WorkBasis::Field)
        .about("hash", "2.0.0", "Returns fields of a hash"),
    keyspace("hmset", -4, "write denyoom fast", CHANGED, hashes::hmset).work(WorkBasis::Field)
        .about("hash", "2.0.0", "Sets fields of a hash"),
    keyspace("hscan", -3, "readonly", READ, hashes::hscan).work(WorkBasis::Field).text(CostlyText::Options(3))
        .tips("nondeterministic_output").about("hash", "2.8.0", "Goes over the fields of a hash"),
    keyspace("hset", -4, "write denyoom fast", CHANGED, hashes::hset).work(WorkBasis::Field)
        .about("hash", "2.0.0", "Sets fields of a hash"),
    keyspace("hsetnx", 4, "write denyoom fast", INSERTED, hashes::hsetnx).work(WorkBasis::Field)
        .about("hash", "2.0.0", "Sets a field of a hash if it is not there"),
    keyspace("hstrlen", 3, "readonly fast", LOOKED_UP, hashes::hstrlen)
        .about("hash", "3.2.0", "Returns the length of a field of a hash"),
    keyspace("hvals", 2, "readonly", READ, hashes::hvals).work(WorkBasis::ValueInReply)
        .tips("nondeterministic_output_order")
        .about("hash", "2.0.0", "Returns the values of all fields of a hash"),
    keyspace("incr", 2, "write denyoom fast", UPDATED, numbers::incr)
        .about("string", "1.0.0", "Adds one to an integer"),
    keyspace("incrby", 3, "write denyoom fast", UPDATED, numbers::incrby)
        .about("string", "1.0.0", "Adds to an integer"),
    keyspace("incrbyfloat", 3, "write denyoom fast", UPDATED, numbers::incrbyfloat)
        .about("string", "2.6.0", "Adds to a number"),
    host("info", -1, "loading stale", HostCommand::Info).categories("dangerous")
        .tips("nondeterministic_output request_policy:all_shards response_policy:special")
        .about("server", "1.0.0", "Tells the state of the node"),
    keyspace("keys", 2, "readonly", &[], keys::keys).of_all_shards().work(WorkBasis::All)
        .text(CostlyText::Pattern).categories("dangerous")
        .tips("request_policy:all_shards nondeterministic_output_order")
        .about("generic", "1.0.0", "Returns the keys that match a pattern"),
    host("lastsave", 1, "loading stale fast", HostCommand::LastSave).categories("admin dangerous")
        .tips("nondeterministic_output").about("server", "1.0.0", "Tells when the latest snapshot was taken"),
    container("latency").about("server", "2.8.13", "Commands about latency, of which there are no events"),
    host("latency|help", 2, "loading stale", HostCommand::LatencyHelp)
        .about("server", "2.8.13", "Tells what there is"),
    host("latency|history", 3, "admin noscript loading stale", HostCommand::LatencyHistory)
        .tips("nondeterministic_output request_policy:all_nodes response_policy:special")
        .about("server", "2.8.13", "Tells the events of a kind: none"),
    host("latency|latest", 2, "admin noscript loading stale", HostCommand::LatencyLatest)
        .tips("nondeterministic_output request_policy:all_nodes response_policy:special")
        .about("server", "2.8.13", "Tells the latest events: none"),
    host("latency|reset", -2, "admin noscript loading stale", HostCommand::LatencyReset)
        .tips("request_policy:all_nodes response_policy:all_succeeded")
        .about("server", "2.8.13", "Drops events: none"),
    container("memory").about("server", "4.0.0", "Commands about memory"),
    keyspace("memory|doctor", 2, "", &[], object::memory_doctor).quiet()
        .about("server", "4.0.0", "Tells how full the memory of keys is"),
    keyspace("memory|help", 2, "loading stale", &[], object::memory_help).quiet()
        .about("server", "4.0.0", "Tells what there is"),
    keyspace("memory|usage", -3, "readonly", SECOND_LOOKED_UP, object::memory_usage).quiet()
        .about("server", "4.0.0", "Tells the bytes that a key takes"),
    keyspace("mget", -2, "readonly fast", &[KeyUse("RO,access", REST)], strings::mget)
        .work(WorkBasis::StringInReply).tips("request_policy:multi_shard")
        .about("string", "1.0.0", "Returns strings"),
    keyspace("mset", -3, "write denyoom", &[KeyUse("OW,update", PAIRS)], strings::mset)
        .tips("request_policy:multi_shard response_policy:all_succeeded")
        .about("string", "1.0.1", "Sets strings"),
    keyspace("msetnx", -3, "write denyoom", &[KeyUse("OW,insert", PAIRS)], strings::msetnx)
        .tips("request_policy:multi_shard response_policy:agg_min")
        .about("string", "1.0.1", "Sets strings if none of them is there"),
    session("multi", 1, "noscript loading stale fast allow_busy", &[], SessionCommand::Multi)
        .about("transactions", "1.2.0", "Begins a transaction"),
    container("object").about("generic", "2.2.3", "Commands about how a value is kept"),
    keyspace("object|encoding", 3, "readonly", SECOND_LOOKED_UP, object::encoding).quiet()
        .tips("nondeterministic_output").about("generic", "2.2.3", "Tells how Redis would keep a value"),
    keyspace("object|freq", 3, "readonly", SECOND_LOOKED_UP, object::frequency).quiet()
        .tips("nondeterministic_output").about("generic", "4.0.0", "Tells how often a key is used"),
    keyspace("object|help", 2, "loading stale", &[], object::object_help).quiet()
        .about("generic", "6.2.0", "Tells what there is"),
    keyspace("object|idletime", 3, "readonly", SECOND_LOOKED_UP, object::idle_time).quiet()
        .tips("nondeterministic_output").about("generic", "2.2.3", "Tells how long a key has not been used"),
    keyspace("object|refcount", 3, "readonly", SECOND_LOOKED_UP, object::reference_count).quiet()
        .tips("nondeterministic_output").about("generic", "2.2.3", "Tells the references to a value"),
    keyspace("persist", 2, "write fast", CHANGED, expiry::persist).work(WorkBasis::String)
        .about("generic", "2.2.0", "Has a key not expire"),
    keyspace("pexpire", -3, "write fast", CHANGED, expiry::pexpire).work(WorkBasis::String)
        .about("generic", "2.6.0", "Sets in how many milliseconds a key expires"),
    keyspace("pexpireat", -3, "write fast", CHANGED, expiry::pexpireat).work(WorkBasis::String)
        .about("generic", "2.6.0", "Sets the millisecond in which a key expires"),
    keyspace("pexpiretime", 2, "readonly fast", READ, expiry::pexpiretime).quiet()
        .about("generic", "7.0.0", "Tells the millisecond in which a key expires"),
    keyspace("pfadd", -2, "write denyoom fast", INSERTED, hyperloglog::pfadd).work(WorkBasis::Sketch)
        .about("hyperloglog", "2.8.9", "Adds elements to a HyperLogLog"),
    keyspace("pfcount", -2, "readonly", &[KeyUse("RW,access", REST)], hyperloglog::pfcount)
        .work(WorkBasis::Sketch)
        .about("hyperloglog", "2.8.9", "Estimates how many elements HyperLogLogs have"),
    keyspace("pfmerge", -2, "write denyoom", MERGED, hyperloglog::pfmerge).work(WorkBasis::Sketch)
        .about("hyperloglog", "2.8.9", "Merges HyperLogLogs"),
    host("ping", -1, "fast", HostCommand::Ping)
        .tips("request_policy:all_shards response_policy:all_succeeded")
        .about("connection", "1.0.0", "Replies"),
    keyspace("psetex", 4, "write denyoom", &[KeyUse("OW,update", ONE)], strings::psetex)
        .about("string", "2.6.0", "Sets a string that expires in some milliseconds"),
    keyspace("pttl", 2, "readonly fast", READ, expiry::pttl).quiet().tips("nondeterministic_output")
        .about("generic", "2.6.0", "Tells in how many milliseconds a key expires"),
    host("quit", -1, "noscript loading stale fast no_auth allow_busy", HostCommand::Quit)
        .about("connection", "1.0.0", "Ends the connection"),
    keyspace("randomkey", 1, "readonly", &[], keys::randomkey).of_all_shards()
        .tips("request_policy:all_shards nondeterministic_output").about("generic", "1.0.0", "Returns a key"),
    keyspace("rename", 3, "write", RENAMED, keys::rename).work(WorkBasis::Value)
        .about("generic", "1.0.0", "Renames a key"),
    keyspace("renamenx", 3, "write fast", RENAMED_IF_ABSENT, keys::renamenx).work(WorkBasis::Value)
        .about("generic", "1.0.0", "Renames a key if the new one is not there"),
    host("reset", 1, "noscript loading stale fast no_auth allow_busy", HostCommand::Reset)
        .about("connection", "6.2.0", "Makes the connection as new"),
    keyspace("scan", -2, "readonly", &[], keys::scan).of_all_shards().text(CostlyText::Options(2))
        .tips("nondeterministic_output request_policy:special")
        .about("generic", "2.8.0", "Goes over the keys"),
    session("select", 2, "loading stale fast", &[], SessionCommand::Select)
        .about("connection", "1.0.0", "Chooses a database"),
    keyspace("set", -3, "write denyoom", &[KeyUse("RW,access,update,variable_flags", ONE)], strings::set)
        .about("string", "1.0.0", "Sets a string"),
    keyspace("setbit", 4, "write denyoom", UPDATED, bits::setbit).work(WorkBasis::String)
        .grows_to(Growth::Bit).about("bitmap", "2.2.0", "Sets a bit of a string"),
    keyspace("setex", 4, "write denyoom", &[KeyUse("OW,update", ONE)], strings::setex)
        .about("string", "2.0.0", "Sets a string that expires in some seconds"),
    keyspace("setnx", 3, "write denyoom fast", &[KeyUse("OW,insert", ONE)], strings::setnx)
        .about("string", "1.0.0", "Sets a string if it is not there"),
    keyspace("setrange", 4, "write denyoom", CHANGED, strings::setrange).work(WorkBasis::String)
        .grows_to(Growth::Range).about("string", "2.2.0", "Sets a part of a string"),
    container("slowlog").about("server", "2.2.12", "Commands about commands that were slow"),
    host("slowlog|get", -2, "admin loading stale", HostCommand::SlowlogGet)
        .tips("request_policy:all_nodes nondeterministic_output")
        .about("server", "2.2.12", "Returns the latest slow commands"),
    host("slowlog|help", 2, "loading stale", HostCommand::SlowlogHelp)
        .about("server", "6.2.0", "Tells what there is"),
    host("slowlog|len", 2, "admin loading stale", HostCommand::SlowlogLen)
        .tips("request_policy:all_nodes response_policy:agg_sum nondeterministic_output")
        .about("server", "2.2.12", "Counts the slow commands that are kept"),
    host("slowlog|reset", 2, "admin loading stale", HostCommand::SlowlogReset)
        .tips("request_policy:all_nodes response_policy:all_succeeded")
        .about("server", "2.2.12", "Drops the slow commands"),
    keyspace("strlen", 2, "readonly fast", LOOKED_UP, strings::strlen)
        .about("string", "2.2.0", "Returns the length of a string"),
    keyspace("substr", 4, "readonly", READ, strings::getrange).work(WorkBasis::StringInReply)
        .about("string", "1.0.0", "Returns a part of a string"),
    host("time", 1, "loading stale fast", HostCommand::Time).tips("nondeterministic_output")
        .about("server", "2.6.0", "Tells the time of the node"),
    keyspace("touch", -2, "readonly fast", ALL_LOOKED_UP, keys::exists)
        .tips("request_policy:multi_shard response_policy:agg_sum")
        .about("generic", "3.2.1", "Says that keys are used"),
    keyspace("ttl", 2, "readonly fast", READ, expiry::ttl).quiet().tips("nondeterministic_output")
        .about("generic", "1.0.0", "Tells in how many seconds a key expires"),
    keyspace("type", 2, "readonly fast", LOOKED_UP, keys::type_of).quiet()
        .about("generic", "1.0.0", "Tells the type of a value"),
    keyspace("unlink", -2, "write fast", &[KeyUse("RM,delete", REST)], keys::del).quiet()
        .tips("request_policy:multi_shard response_policy:agg_sum").about("generic", "4.0.0", "Removes keys"),
    session("unwatch", 1, "noscript loading stale fast allow_busy", &[], SessionCommand::Unwatch)
        .about("transactions", "2.2.0", "Ends that keys are watched"),
    session("watch", -2, "noscript loading stale fast allow_busy", ALL_LOOKED_UP, SessionCommand::Watch)
        .about("transactions", "2.2.0", "Has a transaction fail if keys change"),
];

/// Identifies a command that the session executes, about transactions and the selected space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionCommand {
    Discard,
    Exec,
    Multi,
    Select,
    Unwatch,
    Watch,
}

/// Identifies a command that the session's host executes. This crate has only its row; the host matches on this type,
/// so the compiler ensures that each command has a function there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each has a row in the table, with a description")]
pub enum HostCommand {
    Auth,
    BgSave,
    ClientGetName,
    ClientGetRedir,
    ClientHelp,
    ClientId,
    ClientInfo,
    ClientKill,
    ClientList,
    ClientNoEvict,
    ClientNoTouch,
    ClientPause,
    ClientReply,
    ClientSetInfo,
    ClientSetName,
    ClientTracking,
    ClientTrackingInfo,
    ClientUnblock,
    ClientUnpause,
    Command,
    CommandCount,
    CommandDocs,
    CommandGetKeys,
    CommandGetKeysAndFlags,
    CommandHelp,
    CommandInfo,
    CommandList,
    ConfigGet,
    ConfigHelp,
    ConfigResetStat,
    ConfigSet,
    Echo,
    Hello,
    Info,
    LastSave,
    LatencyHelp,
    LatencyHistory,
    LatencyLatest,
    LatencyReset,
    Ping,
    Quit,
    Reset,
    SlowlogGet,
    SlowlogHelp,
    SlowlogLen,
    SlowlogReset,
    Time,
}

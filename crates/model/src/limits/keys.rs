//! Limits on keys and values: sizes, work of commands, conditions, spaces.

/// Bytes of the longest key of a key-value space.
pub const KV_KEY_BYTES_MAX: usize = 65_535;

/// Work of a command that is carried out where requests are read, among those of all tenants: bytes that it reads or
/// writes, where an argument counts as 256. It takes about 100 us. A command that is more is carried out elsewhere.
pub const KV_STEP_WORK_MAX: usize = 256 << 10;

/// Work of all commands of one EXEC, as for [`KV_STEP_WORK_MAX`], beside that of the largest: other clients of the
/// tenant wait for it as a whole, about a second.
pub const KV_EXEC_WORK_MAX: usize = 4 << 30;

/// Threads for long commands of all tenants together: one of a tenant runs at a time, and the system shares the
/// processors among the threads. More tenants take turns.
pub const KV_LONG_THREADS_MAX: usize = 32;

/// Bytes of a pattern of keys: as many as a key has.
pub const KV_PATTERN_BYTES_MAX: usize = KV_KEY_BYTES_MAX;

/// Elements (characters and classes) of a pattern in long segments between stars. A byte of a key that is matched costs
/// a word of work for each 64 of them.
pub const KV_PATTERN_ELEMENTS_MAX: usize = 1024;

/// Bytes of the longest value of a key-value space, as in Redis.
pub const KV_VALUE_BYTES_MAX: usize = 512 << 20;

/// Bytes of one entry of a key-value space: its key, its value, and twice the bytes of a key for everything else.
pub const ENTRY_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + 2 * (KV_KEY_BYTES_MAX + 1);

/// Bytes of the commands that a client of key-value spaces may have queued behind `MULTI`.
pub const KV_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a condition on the entries of a key-value space: a list of some thousand keys.
pub const KV_PREDICATE_BYTES_MAX: usize = 64 << 10;

/// Parentheses in one another of such a condition, each of which may become two levels of an expression.
pub const KV_PREDICATE_DEPTH_MAX: usize = 32;

/// Conditions and listed constants of such a condition: as many as its bytes have room for, nearly.
pub const KV_PREDICATE_NODES_MAX: usize = 8192;

/// Patterns of such a condition: the largest one that is accepted takes 30 ms to compile, which is done where a command
/// runs.
pub const KV_PREDICATE_PATTERNS_MAX: usize = 4;

/// Bytes of compiled patterns of a condition that a connection keeps for the next command; with more, a condition is
/// compiled each time.
pub const KV_PREDICATE_KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes of the effects of a command in one record of the log of keys; larger ones are split into several records.
pub const KV_RECORD_BYTES_MAX: usize = 1 << 20;

/// Keys that a client of key-value spaces may watch at once.
pub const KV_WATCHED_MAX: usize = 4096;

/// Spaces with names of a tenant.
pub const KV_SPACES_MAX: usize = 1000;

/// Keys of one shard that are processed, with the shard locked, when a space is created or dropped.
pub const KV_MOVED_MAX: usize = 1 << 20;

/// Bytes of the values that get another space then.
pub const KV_MOVED_BYTES_MAX: usize = 256 << 20;

/// Bytes of the longest value that is compressed: bounds the work of a command or a step of a scan on one value.
pub const KV_PACKED_BYTES_MAX: usize = 32 << 10;

/// Bytes of the dictionary of a space whose values are compressed.
pub const KV_DICTIONARY_BYTES_MAX: usize = 16 << 10;

/// Keys that one UPDATE or DELETE changes: others wait meanwhile.
pub const KV_CHANGED_MAX: usize = 50_000;

/// Statements that read keys of a space at moments of their own; beyond, the oldest ends.
pub const KV_CUTS_MAX: usize = 64;

/// Keys that a program over a space of keys looks up; one that names more reads the whole space.
pub const KV_LOOKUPS_MAX: usize = 1000;

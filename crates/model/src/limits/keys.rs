//! Limits of key-value entries: sizes, work per command, conditions, and keyspaces (spaces).

/// Maximum bytes of a key of a key-value entry.
pub const KV_KEY_BYTES_MAX: usize = 65_535;

/// Maximum work of a command that runs on the threads that read requests, which all tenants share; larger commands run
/// on separate threads. Unit: bytes read or written, with 256 per argument. Reason: this much takes about 100 µs.
pub const KV_STEP_WORK_MAX: usize = 256 << 10;

/// Maximum work of all commands of an EXEC except the largest one, in the unit of [`KV_STEP_WORK_MAX`]. Reason: other
/// clients of the tenant wait until the EXEC is complete, for about a second.
pub const KV_EXEC_WORK_MAX: usize = 4 << 30;

/// Maximum number of threads that run long commands, for all tenants together. Reason: one long command per tenant runs
/// at a time, and the system divides the processors among the threads. Further tenants wait for a thread.
pub const KV_LONG_THREADS_MAX: usize = 32;

/// Maximum bytes of a pattern that keys are matched with. Reason: that of a key.
pub const KV_PATTERN_BYTES_MAX: usize = KV_KEY_BYTES_MAX;

/// Maximum number of elements (characters and classes) in the long segments between the stars of a key pattern. Reason:
/// matching a byte of a key costs one machine word of work per 64 elements.
pub const KV_PATTERN_ELEMENTS_MAX: usize = 1024;

/// Maximum bytes of a value of a key-value entry, as in Redis.
pub const KV_VALUE_BYTES_MAX: usize = 512 << 20;

/// Maximum bytes of a key-value entry: those of its value, those of its key, and as many as a key may have for
/// everything else.
pub const ENTRY_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + 2 * (KV_KEY_BYTES_MAX + 1);

/// Maximum bytes of the commands that a client may queue between `MULTI` and `EXEC`.
pub const KV_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Maximum bytes of the text of a condition on key-value entries. Reason: room for a list of some thousand keys.
pub const KV_PREDICATE_BYTES_MAX: usize = 64 << 10;

/// Maximum depth of nested parentheses in a condition on key-value entries. Each may become two levels of an
/// expression.
pub const KV_PREDICATE_DEPTH_MAX: usize = 32;

/// Maximum number of comparisons and listed constants in a condition on key-value entries. Reason: about as many as its
/// text has room for.
pub const KV_PREDICATE_NODES_MAX: usize = 8192;

/// Maximum number of patterns in a condition on key-value entries. Reason: the largest accepted pattern takes 30 ms to
/// compile, on the thread that runs the command.
pub const KV_PREDICATE_PATTERNS_MAX: usize = 4;

/// Maximum bytes of the compiled patterns of a condition that a connection caches for its next command. A larger
/// condition is compiled for each command.
pub const KV_PREDICATE_KEPT_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of a command's changes per record of the key-value log; more are split into several records.
pub const KV_RECORD_BYTES_MAX: usize = 1 << 20;

/// Maximum number of keys that a client may `WATCH` at once.
pub const KV_WATCHED_MAX: usize = 4096;

/// Maximum number of named keyspaces (spaces) per tenant.
pub const KV_SPACES_MAX: usize = 1000;

/// Maximum number of keys per shard that are examined when a keyspace is created or dropped. Reason: the shard is
/// locked meanwhile.
pub const KV_MOVED_MAX: usize = 1 << 20;

/// Maximum bytes of the values that are moved to another keyspace when a keyspace is created or dropped.
pub const KV_MOVED_BYTES_MAX: usize = 256 << 20;

/// Maximum bytes of a value that is compressed; longer ones are stored uncompressed. Reason: it bounds the work of a
/// command, or of a step of a scan, on one value.
pub const KV_PACKED_BYTES_MAX: usize = 32 << 10;

/// Maximum bytes of the compression dictionary of a keyspace.
pub const KV_DICTIONARY_BYTES_MAX: usize = 16 << 10;

/// Maximum number of keys that an UPDATE or DELETE statement may change. Reason: other commands wait meanwhile.
pub const KV_CHANGED_MAX: usize = 50_000;

/// Maximum number of point-in-time views of the entries (cuts) that statements read at once; for a further one the
/// oldest is ended. Reason: each change of an entry checks all of them.
pub const KV_CUTS_MAX: usize = 64;

/// Maximum number of keys that a program over a keyspace looks up one by one. A program that names more scans the
/// keyspace.
pub const KV_LOOKUPS_MAX: usize = 1000;

//! Limits of the data directory: the write-ahead log, segments, reads, encryption keys, and backups.

use std::time::Duration;

/// Bytes per file of the write-ahead log. Reason: large enough that new files, which cost several syncs, are rare;
/// small enough that obsolete records are deleted soon, because only whole files are deleted.
pub const LOG_FILE_BYTES: usize = 64 << 20;

/// Maximum bytes of a backup file per reply of a node. A client sends several requests at once, as many as the network
/// link needs.
pub const BACKUP_READ_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of the list of a backup's files. Reason: some hundred bytes per file.
pub const BACKUP_LIST_BYTES_MAX: u64 = 256 << 20;

/// Default bytes of the log after which a checkpoint is written. Reason: a start replays this many in a fraction of a
/// second.
pub const LOG_BYTES_DEFAULT: usize = 128 << 20;

/// Maximum bytes per record of the log. Larger data, such as row groups, are written to separate files, which a record
/// names.
pub const LOG_RECORD_BYTES_MAX: usize = 16 << 20;

/// Maximum uncompressed bytes of a compressed part of a segment (the image of one column chunk); larger parts are
/// stored uncompressed. Reason: it bounds the memory that a few corrupted bytes on disk can make a reader allocate. A
/// chunk of the largest row group has less.
pub const PACKED_PART_BYTES_MAX: usize = 512 << 20;

/// Maximum encoded bytes that a program reads from disk ahead of its scan. Reason: a few milliseconds of a fast disk.
pub const READ_AHEAD_BYTES: usize = 8 << 20;

/// Divisor: pinned tables may take at most half of a pool, and those of a tenant at most half of its quota. Reason: the
/// rest is needed for cached values and new rows.
pub const PINNED_PART: u64 = 2;

/// Number of threads that read column chunks from disk. Reason: four concurrent reads of some hundred KiB keep a fast
/// disk busy.
pub const READERS: usize = 4;

/// Timeout of the command that returns the master key. Reason: a key service on the network answers within seconds, and
/// a person who starts a node should not wait longer in silence.
pub const KEY_COMMAND_WAIT_MAX: Duration = Duration::from_secs(30);

/// Maximum number of recently used column chunks per data directory that are recorded, so that they are read first
/// after a start. Reason: each takes 8 bytes.
pub const USED_CHUNKS_MAX: usize = 1 << 20;

/// Maximum number of wrapped (encrypted) table keys per data directory. Reason: enough for many tables with a key each;
/// a key is found by a linear search.
pub const WRAPPED_KEYS_MAX: usize = 64 << 10;

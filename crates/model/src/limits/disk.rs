//! Limits on the data directory: log, segments, reads, keys, and backups.

use std::time::Duration;

/// Size of one file of the log: large enough that new files, which cost some syncs, are rare, and small enough that
/// records that are not needed any more are removed soon, a file at a time.
pub const LOG_FILE_BYTES: usize = 64 << 20;

/// Bytes of a file of a backup that a node sends at once: as many requests of a client are under way as a link needs.
pub const BACKUP_READ_BYTES_MAX: usize = 1 << 20;

/// Bytes of the list of a backup's files: some hundred bytes for each of them.
pub const BACKUP_LIST_BYTES_MAX: u64 = 256 << 20;

/// Bytes of the log after which a checkpoint is made by default: a start replays them in a fraction of a second.
pub const LOG_BYTES_DEFAULT: usize = 128 << 20;

/// Size of one record of the log. Larger changes, such as row groups, are files of their own that a record names.
pub const LOG_RECORD_BYTES_MAX: usize = 16 << 20;

/// Plain bytes of a compressed part of a segment: bounds the memory that a few damaged bytes on disk can claim. A chunk
/// of the largest row group has less; larger parts are stored uncompressed.
pub const PACKED_PART_BYTES_MAX: usize = 512 << 20;

/// Encoded bytes that a program has read ahead of its scan from disk: a few milliseconds of a fast disk.
pub const READ_AHEAD_BYTES: usize = 8 << 20;

/// Reciprocal of the share of a pool, and of a tenant's quota of it, that pinned tables may take: the rest is for
/// cached values and new rows.
pub const PINNED_PART: u64 = 2;

/// Threads that read values from disk: as many reads of some hundred KiB at once keep a fast disk busy.
pub const READERS: usize = 4;

/// Time limit of a command for a master key: a key service on the network answers within seconds, and a person who
/// starts a node should not wait longer in silence.
pub const KEY_COMMAND_WAIT_MAX: Duration = Duration::from_secs(30);

/// Column chunks of a data directory that are remembered to be read first after a start, 8 bytes each.
pub const USED_CHUNKS_MAX: usize = 1 << 20;

/// Wrapped keys of one data directory: one for each of many tables, found by going through them.
pub const WRAPPED_KEYS_MAX: usize = 64 << 10;

//! Limits of the client library and of the shell: cached columns and results, the configuration file, the shell's
//! history and its scripts.

/// Minimum bytes of a client's column cache (`--cache`). Reason: it has to hold some row groups of a few columns.
pub const NEAR_BYTES_MIN: usize = 16 << 20;

/// Maximum number of tables whose column chunks stay in a client's cache while no query reads them. Reason: the zone
/// maps of a table's chunks take memory.
pub const NEAR_TABLES_MAX: usize = 64;

/// Maximum bytes of a program's result that a client caches.
pub const NEAR_RESULT_BYTES_MAX: usize = 256 << 10;

/// Maximum number of program results that a client caches.
pub const NEAR_RESULTS_MAX: usize = 1024;

/// Bytes that are charged for a cached result in addition to its rows.
pub const NEAR_RESULT_OVERHEAD_BYTES: usize = 4 << 10;

/// Divisor of the memory for cached results: it is at most 1/16 of the smaller of two limits, that of the column cache
/// and that of the working memory, and is not taken from the column cache.
pub const NEAR_RESULTS_PART: usize = 16;

/// Maximum number of tables for which a client counts the bytes that programs returned (from which it decides whether
/// to cache their columns). For a further table all counts are reset.
pub const NEAR_RENTS_MAX: usize = 4096;

/// Maximum number of row groups per request of a client for column chunks.
pub const FETCHED_GROUPS_MAX: usize = 64 << 10;

/// Bytes of chunk outlines (the metadata of column chunks) after which a message is sent; a message may be larger by
/// those of one row group. Reason: a worker spends some milliseconds on this many.
pub const OUTLINES_BYTES: usize = 1 << 20;

/// Maximum bytes of the configuration file of the program. Reason: about a thousand times the size of all settings.
pub const CONFIG_FILE_BYTES_MAX: u64 = 64 << 10;

/// Maximum number of entries of the shell's history; the oldest are removed first.
pub const HISTORY_ENTRIES_MAX: usize = 2000;

/// Maximum bytes of an entry of the shell's history. Longer statements are not added, because they were pasted or
/// generated.
pub const HISTORY_ENTRY_BYTES_MAX: usize = 16 << 10;

/// Maximum bytes of the history file that the shell reads. Reason: twice the bytes of all entries, because escaping may
/// double an entry.
pub const HISTORY_FILE_BYTES_MAX: u64 = 64 << 20;

/// Maximum bytes of a result that the shell buffers before its pager shows the first row; larger results are truncated.
/// Reason for the buffer: while the user reads, the rows take memory of the shell and not of the node.
pub const PAGED_BYTES_MAX: usize = 256 << 20;

/// Maximum depth of scripts of the shell that read other scripts.
pub const SCRIPT_DEPTH_MAX: usize = 16;

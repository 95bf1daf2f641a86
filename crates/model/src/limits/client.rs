//! Limits on a client and the shell: columns and results that are kept near, settings, history and scripts.

/// The least memory for columns that a client keeps: some row groups of a few columns.
pub const NEAR_BYTES_MIN: usize = 16 << 20;

/// Tables whose chunks a client keeps while no query reads them; each takes some memory for the bounds of its chunks.
pub const NEAR_TABLES_MAX: usize = 64;

/// Bytes of a result that a client keeps.
pub const NEAR_RESULT_BYTES_MAX: usize = 256 << 10;

/// Results that a client keeps.
pub const NEAR_RESULTS_MAX: usize = 1024;

/// Bytes that are counted for a result beside its rows.
pub const NEAR_RESULT_OVERHEAD_BYTES: usize = 4 << 10;

/// Reciprocal of the share of memory for results: of the memory that a client gives to columns, in addition to that,
/// and of its working memory at most.
pub const NEAR_RESULTS_PART: usize = 16;

/// Tables for which a client counts the bytes that programs returned, before it resets the counts.
pub const NEAR_RENTS_MAX: usize = 4096;

/// Row groups whose chunks a client asks for at once.
pub const FETCHED_GROUPS_MAX: usize = 64 << 10;

/// Approximate bytes of the outlines of chunks in one message: a worker spends some milliseconds on it.
pub const OUTLINES_BYTES: usize = 1 << 20;

/// Bytes of the configuration file of the program: a thousand times the size of its settings.
pub const CONFIG_FILE_BYTES_MAX: u64 = 64 << 10;

/// Entries of the shell's history; the oldest go first.
pub const HISTORY_ENTRIES_MAX: usize = 2000;

/// Bytes of an entry of the shell's history: larger ones were pasted or generated, and are not kept.
pub const HISTORY_ENTRY_BYTES_MAX: usize = 16 << 10;

/// Bytes of a file with the shell's history that is read: twice as many as all entries have, for those that are
/// escaped.
pub const HISTORY_FILE_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a result that the shell takes from a node for its pager, before the first row is shown. The result of a
/// user who reads slowly is then in the shell's memory rather than at the node; larger results are cut.
pub const PAGED_BYTES_MAX: usize = 256 << 20;

/// Scripts that read scripts, at most so deep.
pub const SCRIPT_DEPTH_MAX: usize = 16;

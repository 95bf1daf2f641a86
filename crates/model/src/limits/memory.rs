//! Limits of memory: the working memory of a node, memory for groups, memory for results at a client, and waiting for
//! memory.

/// Default bytes of a node's working memory, which is all memory except the pool that holds the tables.
pub const WORK_BYTES_DEFAULT: usize = 8 << 30;

/// Minimum bytes of a node's working memory. Reason: a node has to receive messages, hold an uncompressed row group per
/// load, and run a program or two.
pub const WORK_BYTES_MIN: usize = 64 << 20;

/// Maximum bytes of temporary (spill) files of all statements of a session together.
pub const SPILL_BYTES_MAX: u64 = 100 << 30;

/// Divisor: the groups of a program (GROUP BY) may take at most half of the working memory. Groups that do not fit are
/// sent to the client as partial results, which the client merges.
pub const GROUPS_PART: usize = 2;

/// Default maximum bytes of the groups of a program (GROUP BY).
pub const GROUP_BYTES_MAX: usize = WORK_BYTES_DEFAULT / GROUPS_PART;

/// Maximum number of reservations that wait for working memory at once. Each belongs to a request of a client or to its
/// connection.
pub const WORK_WAITERS_MAX: usize = 4096;

/// Maximum milliseconds that a program, or a client that sends, waits for working memory in use by others.
pub const WORK_WAIT_MS_MAX: u64 = 30_000;

/// Maximum bytes of reusable memory pages for results of remote queries at a client, in use or idle. Results beyond it
/// take memory from the allocator. Reason: twice the largest result of the benchmarks.
pub const RESULT_BYTES_MAX: usize = 2 << 30;

/// Milliseconds without a remote query after which idle result pages are returned to the operating system. Reason: as
/// long as a person takes to ask the next question.
pub const RESULT_IDLE_MS: u64 = 30_000;

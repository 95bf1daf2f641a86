//! Limits on memory: for work, for groups, for results at a client, and who may wait for it.

/// Default size of a node's memory for work, which is everything beside the pool, in bytes.
pub const WORK_BYTES_DEFAULT: usize = 8 << 30;

/// The least memory for work that a node can be given: it has to read messages, hold a row group of each load in plain
/// form, and run a program or two.
pub const WORK_BYTES_MIN: usize = 64 << 20;

/// Bytes of the temporary files of all statements of a session together.
pub const SPILL_BYTES_MAX: u64 = 100 << 30;

/// Divisor: the groups of one program may take one in `GROUPS_PART` bytes of the memory for work. Groups that
/// do not fit leave in parts, which the client merges.
pub const GROUPS_PART: usize = 2;

/// Default for the bytes that the groups of one program may take.
pub const GROUP_BYTES_MAX: usize = WORK_BYTES_DEFAULT / GROUPS_PART;

/// Reservations of memory for work that may wait at once. Each is a request of a client, or its connection.
pub const WORK_WAITERS_MAX: usize = 4096;

/// Milliseconds that a program, or a client that sends, may wait for memory that others use.
pub const WORK_WAIT_MS_MAX: u64 = 30_000;

/// Bytes of reusable pages that the results of remote queries may take at a client, whether a result holds
/// them or they are idle: twice the largest result of the benchmarks. Results beyond it take memory from the
/// allocator.
pub const RESULT_BYTES_MAX: usize = 2 << 30;

/// Milliseconds without a remote query after which idle pages go back to the system: as long as a person
/// takes to ask the next question.
pub const RESULT_IDLE_MS: u64 = 30_000;

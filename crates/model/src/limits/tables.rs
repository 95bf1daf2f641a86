//! Limits on tables: pages, row groups and batches, columns, names and values.

use super::MESSAGE_BYTES_MAX;

/// Bytes of one page of the pool: the size of an x86-64 huge page, and of Farview's MMU (section 4.3).
pub const PAGE_BYTES: usize = 2 << 20;

/// Values of one packed block, the unit of the FastLanes layout.
pub const BLOCK_ROWS: usize = 1024;

/// Rows of one row group: the unit of zone maps, and the most that a worker takes at once. 64 blocks: large
/// enough that the cost of a morsel disappears, small enough that two workers stay busy on a million rows.
pub const ROW_GROUP_ROWS: usize = 64 * BLOCK_ROWS;

/// Bytes of plain values, strings included, at which a row group is closed although it has fewer rows than
/// fit (it always has at least one). This bounds the bytes that wait to be encoded: 4 KiB a row, the size of
/// 512 columns of 64 bits.
pub const ROW_GROUP_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Bytes that buffered rows may hold beyond twice their plain size while they wait for their row group to
/// fill: small batches have a header for each column and buffer, and strings may be small parts of large
/// buffers.
pub const PLAIN_EXCESS_BYTES_MAX: usize = 1 << 20;

/// Rows from which a row group counts as large: it is no longer merged with others, and its rows are
/// profiled. Two smaller ones always fit one row group.
pub const LARGE_GROUP_ROWS: usize = ROW_GROUP_ROWS / 2;

/// Bytes of plain values from which a row group counts as large, however few rows it has. A merge therefore
/// holds at most twice as many bytes, and decodes one column at a time.
pub const LARGE_GROUP_BYTES: usize = 16 << 20;

/// Small row groups at the end of a table that are left unmerged: a scan takes a few microseconds for each.
pub const SMALL_GROUPS_MAX: usize = 8;

/// A small row group is merged with those behind it if it has at most this many times their rows. A higher
/// ratio leaves fewer row groups but rewrites each row more often: with 4 there are at most 7 sizes below a
/// large row group, and a row is written some 30 times.
pub const MERGE_RATIO: usize = 4;

/// Small row groups of a table from which each append performs one step of a merge itself, so that their
/// number stays bounded where background work gets no time.
pub const MERGES_BEHIND_MAX: usize = 64;

/// Rows of the largest append that is encoded together with concurrent appends. Larger appends get row groups
/// of their own, which are encoded as rows come in.
pub const SMALL_APPEND_ROWS: usize = 1024;

/// Bytes of the largest append that is encoded together with concurrent appends.
pub const SMALL_APPEND_BYTES: usize = 1 << 20;

/// Rows of a batch, the unit that operators process within a step if rows are cheap: a few 64-bit columns of
/// a batch stay in the L2 cache.
pub const BATCH_ROWS: usize = 8 * BLOCK_ROWS;

/// Approximate duration of one step of a worker, in nanoseconds: a client with small queries waits for one or
/// two steps of others, and the fixed cost of a step is a few microseconds.
pub const STEP_NS: u64 = 1_000_000;

/// Columns of one table, and of one result.
pub const COLUMNS_MAX: usize = 4096;

/// Bytes of a table, column or tenant name.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of one string or binary value.
pub const STRING_BYTES_MAX: usize = 64 << 20;

/// Largest number of strings, in all dictionaries of a column together, that are numbered across the table,
/// so that groups are distinguished by number. Numbering takes one or two milliseconds, however few rows are
/// grouped.
pub const TEXTS_NUMBERED_MAX: usize = 32 << 10;

/// Bytes of the strings of those dictionaries: a program holds them two or three times, beside the memory for
/// groups.
pub const TEXTS_NUMBERED_BYTES_MAX: usize = 8 << 20;

/// Distinct values of a column up to which the exact count is kept with the table's statistics.
pub const DISTINCT_TRACKED_MAX: usize = 64 << 10;

/// Bytes of those values, where they are strings: room for that many strings of 80 bytes. For longer ones
/// there is only an estimate.
pub const DISTINCT_TRACKED_BYTES_MAX: usize = 8 << 20;

/// Bytes of those values in all columns of one table. They are outside the pool; beyond this the columns that take most
/// have only estimates.
pub const TABLE_DISTINCT_BYTES_MAX: usize = 64 << 20;

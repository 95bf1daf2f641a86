//! Limits of tables: memory pages, row groups and batches, columns, names and values.

use super::MESSAGE_BYTES_MAX;

/// Bytes per memory page of the pool. Reason: the size of an x86-64 huge page, and of a page of the MMU of *Farview*
/// (Korolija et al., CIDR 2022, section
/// 4.3).
pub const PAGE_BYTES: usize = 2 << 20;

/// Number of values per block of bit-packed integers. Reason: the unit of the FastLanes layout.
pub const BLOCK_ROWS: usize = 1024;

/// Maximum number of rows per row group, the unit of zone maps and the largest morsel of a worker. Reason: large enough
/// that the fixed cost of a morsel is negligible, small enough that two workers stay busy with a million rows.
pub const ROW_GROUP_ROWS: usize = 64 * BLOCK_ROWS;

/// Bytes of uncompressed values, strings included, at which a row group is closed although it has fewer rows than
/// allowed (at least one row). Reason: it bounds the bytes that wait to be encoded. It is 4 KiB per row, the size of
/// 512 columns of 64 bits.
pub const ROW_GROUP_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Maximum bytes that buffered rows may hold in excess of twice their uncompressed size, until their row group is full.
/// Reason: small batches have a header per column and per buffer, and strings may be small slices of large buffers.
pub const PLAIN_EXCESS_BYTES_MAX: usize = 1 << 20;

/// Minimum number of rows of a large row group, which is profiled and no longer merged with others. Reason: two smaller
/// ones always fit one row group.
pub const LARGE_GROUP_ROWS: usize = ROW_GROUP_ROWS / 2;

/// Minimum bytes of uncompressed values of a large row group, however few rows it has. Reason: a merge then holds at
/// most twice as many bytes; it decodes one column at a time.
pub const LARGE_GROUP_BYTES: usize = 16 << 20;

/// Maximum number of small row groups at the end of a table that are left unmerged. Reason: a scan takes a few
/// microseconds for each.
pub const SMALL_GROUPS_MAX: usize = 8;

/// Size ratio of merges: a small row group is merged with those after it if its rows are at most this many times
/// theirs. Reason: a higher ratio leaves fewer row groups, but rewrites each row more often. With 4 there are at most 7
/// sizes below a large row group, and each row is written some 30 times.
pub const MERGE_RATIO: usize = 4;

/// Number of small row groups per table above which each append performs a step of a merge itself. Reason: the number
/// stays bounded even if background work gets no time.
pub const MERGES_BEHIND_MAX: usize = 64;

/// Maximum number of rows of an append that is encoded together with concurrent appends. Larger appends get row groups
/// of their own, which are encoded while rows arrive.
pub const SMALL_APPEND_ROWS: usize = 1024;

/// Maximum bytes of an append that is encoded together with concurrent appends.
pub const SMALL_APPEND_BYTES: usize = 1 << 20;

/// Number of rows per batch, the unit that operators process within a step if rows are cheap. Reason: a few 64-bit
/// columns of a batch stay in the L2 cache.
pub const BATCH_ROWS: usize = 8 * BLOCK_ROWS;

/// Approximate nanoseconds per step of a worker, after which other programs get their turn. Reason: a client with small
/// queries waits for one or two steps of others, and the fixed cost of a step is a few microseconds.
pub const STEP_NS: u64 = 1_000_000;

/// Maximum number of columns per table, and per result.
pub const COLUMNS_MAX: usize = 4096;

/// Maximum bytes of the name of a table, column or tenant.
pub const NAME_BYTES_MAX: usize = 255;

/// Maximum bytes of a string or binary value.
pub const STRING_BYTES_MAX: usize = 64 << 20;

/// Maximum number of strings in all dictionaries of a column together for which GROUP BY assigns table-wide dictionary
/// codes, so that it compares codes in place of strings. Reason: assigning them takes one or two milliseconds, however
/// few rows are grouped.
pub const TEXTS_NUMBERED_MAX: usize = 32 << 10;

/// Maximum bytes of the strings that get table-wide dictionary codes (see [`TEXTS_NUMBERED_MAX`]). Reason: a program
/// holds them two or three times, in addition to the memory for groups.
pub const TEXTS_NUMBERED_BYTES_MAX: usize = 8 << 20;

/// Maximum number of distinct values of a column for which the table's statistics have the exact number.
pub const DISTINCT_TRACKED_MAX: usize = 64 << 10;

/// Maximum bytes of the distinct strings of a column for which the exact number is kept; beyond it there is only an
/// estimate. Reason: room for [`DISTINCT_TRACKED_MAX`] strings of 80 bytes, with what each takes in a hash table.
pub const DISTINCT_TRACKED_BYTES_MAX: usize = 8 << 20;

/// Maximum bytes of the distinct values that are kept for exact numbers, for all columns of a table together. Beyond
/// it, the columns that take most have only estimates. Reason: this memory is not part of the pool.
pub const TABLE_DISTINCT_BYTES_MAX: usize = 64 << 20;

//! Limits on statistics: sketches, moments, profiles, and what descriptions of tables have of them.

/// Columns of one state of moments: the products of all pairs of 64-bit integers then take 67 MB.
pub const MOMENT_COLUMNS_MAX: usize = 2048;

/// Rows that one state of moments may count: sums of that many products fit its widest integers.
pub const MOMENT_ROWS_MAX: u64 = 1 << 62;

/// Hash bits that one item has for all its sketches: those of Murmur3 x64 128. Rows of counters that shared
/// bits would collide together, and all but one of them would be useless.
pub const SKETCH_HASH_BITS: u32 = 128;

/// Bits of the index of a HyperLogLog register: from 16 registers, below which the error of the estimate is
/// not known, to 2^18, which err by 0.2 %.
pub const DISTINCT_PRECISION: std::ops::RangeInclusive<u8> = 4..=18;

/// Bits of the index of a counter in its row: the range of the thesis (table 4.3). At 16, six rows of
/// counters with signs take 7 MiB, more than a core's cache holds.
pub const COUNTERS_PRECISION: std::ops::RangeInclusive<u8> = 4..=16;

/// Frequent values that a sketch keeps in addition to its counters: any further value is no more frequent
/// than the noise.
pub const SKETCH_TOP_MAX: u32 = 1024;

/// Size of the highest level of KLL; a sketch keeps about three times as many values. The range goes from a
/// rank error of a tenth to one of less than a thousandth, which takes 100 KiB.
pub const SKETCH_QUANTILES: std::ops::RangeInclusive<u16> = 8..=4096;

/// Bytes of the longest value that a sketch keeps as one of the frequent ones; longer values are left out.
/// All frequent values of a sketch together fit a few frames.
pub const SKETCH_VALUE_BYTES_MAX: usize = 1 << 10;

/// Rows that one sketch may count: the square of their number fits 128 bits.
pub const SKETCH_ROWS_MAX: u64 = 1 << 62;

/// Numeric columns of a table whose joint moments are collected: 64 columns have 2 080 products, which cost
/// about as much as encoding the columns.
pub const TAP_MOMENT_COLUMNS_MAX: usize = 64;

/// Columns of a table up to which full profiles are collected; for wider tables only the number of distinct
/// values. A column takes some 100 KiB at each worker, and half as much in the pool.
pub const TAP_COLUMNS_MAX: usize = 128;

/// Parts of one profile, each with states of every column: that many workers compute the profile at once.
pub const PROFILE_PARTS_MAX: usize = 8;

/// Requests of one tenant for profiles not yet computed that a node processes at once. Further requests
/// queue, since each holds parts of a profile. More than one, so that a small table need not wait for a large
/// one.
pub const PROFILES_AWAITED_MAX: usize = 4;

/// Appends whose profiles may wait for earlier ones. The next append works on these before it is published,
/// so that a stream of small appends cannot get arbitrarily far ahead of its statistics.
pub const TAPS_WAITING_MAX: usize = 64;

/// Bins of a column's histogram in the description of its table: a bin holds less than a hundredth of evenly
/// distributed values, and all take a few hundred bytes.
pub const SPREAD_BINS_MAX: usize = 128;

/// Quantiles of a column in the description of its table: the shares between them are then no larger than the
/// error of a sample that a profile can afford, about a hundredth.
pub const SPREAD_QUANTILES_MAX: usize = 63;

/// Frequent values of a column in the description of its table: all that a tap keeps.
pub const SPREAD_FREQUENT_MAX: usize = 16;

/// Bytes of the longest frequent value in the description of a table: longer ones are seldom compared.
pub const SPREAD_VALUE_BYTES_MAX: usize = 64;

/// Bytes of an encoded spread: twice the size of the most and longest frequent values that it may have, of
/// the counts of its bins as LEB128, and of its quantiles.
pub const SPREAD_BYTES_MAX: usize = 2
    * (SPREAD_FREQUENT_MAX * (SPREAD_VALUE_BYTES_MAX + 16) + SPREAD_BINS_MAX * 10 + SPREAD_QUANTILES_MAX * 8);

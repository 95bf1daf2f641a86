//! Limits of statistics: sketches, moments, profiles, and the statistics in the description of a table.

/// Maximum number of columns per state of moments (sums, and sums of products). Reason: the products of all pairs of
/// 64-bit integer columns then take 67 MB.
pub const MOMENT_COLUMNS_MAX: usize = 2048;

/// Maximum number of rows per state of moments. Reason: sums of that many products fit the widest integers of the
/// state.
pub const MOMENT_ROWS_MAX: u64 = 1 << 62;

/// Hash bits per item, for all sketches together: those of Murmur3 x64 128. Reason: rows of counters that used the same
/// bits would have the same collisions, so that all but one of them would be useless.
pub const SKETCH_HASH_BITS: u32 = 128;

/// Range of the precision of HyperLogLog (number of bits that select a register). Reason: the error of the estimate is
/// not known for less than 16 registers; with 2^18 it is 0.2 %.
pub const DISTINCT_PRECISION: std::ops::RangeInclusive<u8> = 4..=18;

/// Range of the precision of a counter sketch (number of bits that select a counter in its row). Reason: the range of
/// M. Chiosa's thesis, ETH Zurich no. 29551, table 4.3. With 16 bits, six rows of signed counters take 7 MiB, more
/// than the cache of a core.
pub const COUNTERS_PRECISION: std::ops::RangeInclusive<u8> = 4..=16;

/// Maximum number of frequent values that a sketch keeps in addition to its counters. Reason: the frequency of any
/// further value is below the error of the counters.
pub const SKETCH_TOP_MAX: u32 = 1024;

/// Range of the parameter `k` of a KLL sketch, which is the size of its highest level; a sketch keeps about 3 `k`
/// values. Reason: the rank error is a tenth for the minimum, and less than a thousandth for the maximum, which takes
/// 100 KiB.
pub const SKETCH_QUANTILES: std::ops::RangeInclusive<u16> = 8..=4096;

/// Maximum bytes of a value that a sketch keeps as a frequent one; longer values are left out. Reason: all frequent
/// values of a sketch fit a few frames.
pub const SKETCH_VALUE_BYTES_MAX: usize = 1 << 10;

/// Maximum number of rows per sketch. Reason: the square of this number fits 128 bits.
pub const SKETCH_ROWS_MAX: u64 = 1 << 62;

/// Maximum number of numeric columns per table whose joint moments are collected in the background. Reason: 64 columns
/// have 2,080 products, which cost about as much as encoding the columns.
pub const TAP_MOMENT_COLUMNS_MAX: usize = 64;

/// Maximum number of columns of a table for which full profiles are collected; for wider tables only the numbers of
/// distinct values are. Reason: a column takes some 100 KiB per worker, and half as much in the pool.
pub const TAP_COLUMNS_MAX: usize = 128;

/// Maximum number of partial states per profile, each with states of every column. As many workers compute the profile
/// in parallel.
pub const PROFILE_PARTS_MAX: usize = 8;

/// Maximum number of requests per tenant that a node processes at once for profiles not yet computed; further requests
/// wait. Reason: each holds partial states of a profile. More than one is allowed, so that a small table need not wait
/// for a large one.
pub const PROFILES_AWAITED_MAX: usize = 4;

/// Maximum number of appends whose profiles are not yet computed. Beyond it, the next append computes these profiles
/// before it is published, so that a stream of small appends cannot get arbitrarily far ahead of the table's
/// statistics.
pub const TAPS_WAITING_MAX: usize = 64;

/// Maximum number of histogram bins per column in the description of a table. Reason: a bin holds less than a hundredth
/// of evenly distributed values, and all bins take a few hundred bytes.
pub const SPREAD_BINS_MAX: usize = 128;

/// Maximum number of quantiles per column in the description of a table. Reason: the shares between them are then no
/// larger than the error of the sample that a profile takes, about a hundredth.
pub const SPREAD_QUANTILES_MAX: usize = 63;

/// Maximum number of frequent values per column in the description of a table. Reason: all that background profiling
/// keeps.
pub const SPREAD_FREQUENT_MAX: usize = 16;

/// Maximum bytes of a frequent value in the description of a table. Reason: queries seldom compare columns with longer
/// ones.
pub const SPREAD_VALUE_BYTES_MAX: usize = 64;

/// Maximum bytes of the encoded distribution of a column ([`Spread`](crate::Spread)). Reason: twice the size of
/// the largest set of frequent values, of the counts of the bins as LEB128, and of the quantiles.
pub const SPREAD_BYTES_MAX: usize = 2
    * (SPREAD_FREQUENT_MAX * (SPREAD_VALUE_BYTES_MAX + 16) + SPREAD_BINS_MAX * 10 + SPREAD_QUANTILES_MAX * 8);

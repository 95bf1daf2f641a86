//! The whole-table way, an implementation of aggregation: each worker thread has one array of accumulators for
//! the whole table. The array index of a row's group (its group number) is computed from the integer codes of its
//! group keys.
//!
//! Usable if the zone maps of all row groups that the filter may select give each group key a range of values, and the
//! number of possible combinations is not much larger than the number of rows. Then the group number of a row is
//! computed from its codes, and no group key is hashed or compared. The same zone maps prove that sums over the whole
//! table fit 64 bits. A worker holds only an array with a few words per group ([`WholeTable`]). At the end, the arrays
//! of all workers are added up, range by range ([`WholeTables`]).
//!
//! Measured on 16 M rows and 1 M groups: a third to a quarter of the time of open addressing.

mod fit;
mod merge;
mod run;
mod table;

pub(super) use fit::Whole;
pub(super) use merge::WholeTables;
pub(super) use table::WholeTable;

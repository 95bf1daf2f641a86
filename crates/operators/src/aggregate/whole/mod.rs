//! The whole-table way: each worker has one array of accumulators, indexed by the keys' codes.
//!
//! When the zone maps of all row groups that the filter leaves over give each key a domain, and the product
//! of the domains is not much larger than the number of rows, the number of a row's group is computed from
//! its codes, and no key is ever hashed or compared. The same zone maps prove that sums fit 64 bits over the
//! whole table. An array of words per group is all that a worker holds ([`WholeTable`]); the arrays of all
//! workers are added up range by range when the result leaves ([`WholeTables`]).
//!
//! Measured on 16 M rows and 1 M groups: a third to a quarter of the time of open addressing.

mod fit;
mod merge;
mod run;
mod table;

pub(super) use fit::Whole;
pub(super) use merge::WholeTables;
pub(super) use table::WholeTable;

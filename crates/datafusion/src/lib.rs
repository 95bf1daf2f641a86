//! DataFusion over pools: plans SQL, sends the parts that a pool can run to it as programs, and runs the rest
//! here.
//!
//! Invariant: every query gives the same result with push-down on and off. A part of a query runs at the pool
//! only if the pool answered `exact` for it, or if the engine also applies it.

#![forbid(unsafe_code)]

mod aggregates;
mod alter;
mod batch;
mod bounded;
mod calls;
mod catalog;
mod changes;
mod checked;
mod convert;
mod copy;
mod dialect;
mod dynamic;
mod error;
mod estimates;
mod exclusions;
mod exec;
mod file;
mod finish;
mod fragment;
mod functions;
mod grouping_sets;
mod interrupt;
mod joins;
mod kept;
mod lineage;
mod literal;
mod memory;
mod messages;
mod names;
mod one_zero;
mod order;
mod parameters;
mod pieces;
mod pins;
mod plain;
mod plan;
mod plans;
mod prefix;
mod query;
mod restricted;
mod rows;
mod schemas;
mod session;
mod set_all;
mod shared;
mod shifts;
mod sink;
mod spill;
mod statements;
mod statistics;
mod subqueries;
mod summarize;
mod table;
#[cfg(test)]
mod tests;
mod types;
mod using;
mod views;
mod window;
mod written;
mod zones;

pub use batch::Batch;
pub use copy::{CopyTarget, FileWriter};
pub use farpool_planner::cost::Rates;
pub use file::{FileAccess, FileOpener};
pub use interrupt::Interrupt;
pub use parameters::Parameters;
pub use pieces::{Piece, PieceKind, is_whole_sql, sql_pieces};
pub use query::Query;
pub use session::{Session, SessionOptions};
pub use statements::{Statement, split_statements};
pub use table::PoolTable;

/// The version of DataFusion that plans statements and runs what is not pushed down.
pub use datafusion;

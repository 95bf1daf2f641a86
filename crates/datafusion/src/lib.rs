//! DataFusion over pools (stores of compressed tables): plans SQL, pushes down the parts of a query that a pool can
//! run, as programs (one for each table), and runs the rest in this process.
//!
//! Invariant: every query gives the same result with push-down enabled and disabled. The result of a part that the pool
//! runs is used as it is only if the pool answered `exact` for it; otherwise the engine applies that part again.
//!
//! Futures of public functions are boxed. Reason: to learn whether a future can be sent to another thread, the compiler
//! follows it down into the syntax trees of statements, and would do so again in each crate that calls them.

#![forbid(unsafe_code)]

mod alter;
mod batch;
mod calls;
mod catalog;
mod changes;
mod convert;
mod copy;
mod describe;
mod dynamic;
mod environment;
mod estimates;
mod exec;
mod expected;
mod file;
mod finish;
mod fragment;
mod given;
mod joins;
mod kept;
mod lineage;
mod lookup;
mod memory;
mod order;
mod pins;
mod plain;
mod plan;
mod plans;
mod prefix;
mod query;
mod rows;
mod schemas;
mod session;
mod shared;
mod sink;
mod spill;
mod staging;
mod statistics;
mod table;
#[cfg(test)]
mod tests;
mod views;
mod window;

pub use batch::Batch;
pub use catalog::{SystemFunction, SystemSchema};
pub use copy::{CopyTarget, FileWriter};
pub use describe::{Described, Snapshot};
pub use farpool_planner::cost::Rates;
pub use farpool_sql::{
    Interrupt, Parameters, Piece, PieceKind, Statement, is_whole_sql, split_statements, sql_pieces,
};
pub use file::{FileAccess, FileOpener};
pub use query::{Estimated, Query};
pub use session::{Session, SessionOptions};
pub use staging::{Held, HeldChange, StagedChange};
pub use table::PoolTable;

/// Re-exports the version of DataFusion that plans statements and runs what is not pushed down.
pub use datafusion;

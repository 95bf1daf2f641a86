//! Execution of programs: decides which of a program's operators can run here, and processes its morsels.
//!
//! [`prepare`] answers for each operator of a [`farpool_model::Program`] and makes the program that runs
//! instead. A [`BoundProgram`] is that program bound to one version of a table and compiled. A [`Run`]
//! executes it, cut into morsels (a row group, or as much of one as about a millisecond allows) which any
//! number of threads may step through. A [`Scheduler`] shares worker threads among all work of a node.
//!
//! Invariant: this crate owns no thread, clock or socket. The caller of [`Run::step`] or [`Scheduler::work`] lends its
//! thread for one morsel (Leis et al., "Morsel-driven parallelism", SIGMOD 2014; Farview, section 4.2 for regions).

#![forbid(unsafe_code)]

mod bound;
mod budget;
mod cancel;
mod dispenser;
mod memory_need;
mod pace;
mod predicate_cache;
mod prepare;
mod run;
mod scheduler;
mod shared_scan;
mod tally;

pub use bound::BoundProgram;
pub use budget::Budget;
pub use cancel::Cancel;
pub use farpool_operators::HashKey;
pub use memory_need::MemoryNeed;
pub use prepare::prepare;
pub use run::{ChangedGroups, HoldPolicy, Run, Step, Waker, check_chunks};
pub use scheduler::{
    Attempt, Class, End, Progress, Readiness, Region, Scheduler, ShareUse, Sink, Task, TaskId, TenantShare,
    WorkerThread,
};
pub use shared_scan::{RunSharing, SharedScans};

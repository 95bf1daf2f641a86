//! Execution of pushed-down programs (each the part of a query over one table): decides which operators of a program
//! can be executed here, and executes them.
//!
//! [`prepare`] answers for each operator of a [`farpool_model::Program`] whether it can be executed here, and makes the
//! effective program that is executed instead. A [`BoundProgram`] is that program bound to one version of a table and
//! compiled. A [`Run`] is one execution of it. It is divided into morsels (a row group, or as much of one as takes
//! about a millisecond), which any number of threads process. A [`Scheduler`] shares the worker threads of a node among
//! all its work.
//!
//! Invariant: this crate owns no thread, clock or socket. The caller of [`Run::step`] or [`Scheduler::work`] lends
//! its thread for one morsel (Leis et al., "Morsel-driven parallelism", SIGMOD 2014; for regions see Korolija et al.,
//! *Farview*, CIDR 2022, section 4.2).

#![forbid(unsafe_code)]

mod bound;
mod budget;
mod cancel;
mod dispenser;
mod joined;
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

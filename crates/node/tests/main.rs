//! The tests of the node over its protocol, in one binary: shared code is built and linked once, and the
//! tests run in parallel.

mod access;
mod attacks;
mod changes;
mod common;
mod failures;
mod flow;
mod forms;
mod handles;
mod memory;
mod resp;
mod retries;
mod sealed;
mod tables;
mod tls;

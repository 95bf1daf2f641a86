//! The tests of the node over its protocol, in one binary: what they use is built and linked once, and they run side
//! by side.

mod access;
mod attacks;
mod changes;
mod common;
mod failures;
mod flow;
mod forms;
mod handles;
mod memory;
mod retries;
mod rights;
mod tables;
mod tls;

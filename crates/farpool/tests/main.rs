//! The tests of the library and of the program, in one binary: what they use is built and linked once, and they run
//! side by side.

mod bad_input;
mod changes;
mod cli;
mod cli_examples;
mod cli_support;
mod edges;
mod files;
mod groups;
mod joins;
mod lost_handles;
mod memory;
mod overflow;
mod profile;
mod queries;
mod random;
mod slt;
mod statistics;
mod support;
mod tls;
mod tpch;
mod versions;
mod views;

//! The tests of the library and of the program, in one binary, so that dependencies are built and linked once and the
//! tests run in parallel.

mod backup;
mod bad_input;
mod batches;
mod changes;
mod cli;
mod cli_examples;
mod cli_support;
mod compressed;
mod durable;
mod edges;
mod encrypted;
mod encrypted_results;
mod files;
mod groups;
mod hidden;
mod joins;
mod keys;
mod larger;
mod lost_handles;
mod memory;
mod near;
mod objects;
mod overflow;
mod profile;
mod queries;
mod random;
mod schemas;
mod shell;
mod slt;
mod statistics;
mod support;
mod tls;
mod tpch;
mod versions;
mod views;

//! Fuzz bodies, one for each decoder and one for running plans. A body may reject its input but never panics, and
//! accepted input must be valid: decoded arrays can be read, encoding again gives the same, and a plan gives the same
//! rows in every way of running it.
//!
//! The bodies run in two ways: `cargo test` runs them over the seeds in `corpus/` and many thousand mutations of those,
//! the same each time; `targets/` runs them under libFuzzer, guided by coverage: `RUSTC_BOOTSTRAP=1 cargo fuzz run
//! --fuzz-dir fuzz/targets plan_decoder fuzz/corpus/plan_decoder`. An input that once found a bug stays in the corpus.

#![forbid(unsafe_code)]

mod block;
mod chunk;
mod data;
mod datasketches;
mod flight;
mod histogram;
mod hll;
mod keys;
mod load;
mod log;
mod messages;
mod moments;
mod packed;
mod parcel;
mod plan;
mod postgres;
mod predicate;
mod records;
mod resp;
mod run;
mod sealed;
mod segment;
mod sketch;
mod text;

pub use block::block_decoder;
pub use chunk::chunk_decoder;
pub use data::{data_directory, received_records};
pub use datasketches::datasketches_decoder;
pub use flight::flight_messages;
pub use histogram::histogram_decoder;
pub use hll::hll_decoder;
pub use keys::key_ring_decoder;
pub use load::load_rows;
pub use log::log_reader;
pub use messages::native_messages;
pub use moments::moments_decoder;
pub use packed::packed_values;
pub use parcel::parcel_decoder;
pub use plan::plan_decoder;
pub use postgres::postgres_messages;
pub use predicate::predicate_parser;
pub use records::key_records;
pub use resp::resp_decoder;
pub use run::prepare_and_run;
pub use sealed::sealed_messages;
pub use segment::segment_reader;
pub use sketch::sketch_decoder;
pub use text::text_decoder;

#[cfg(test)]
mod tests;

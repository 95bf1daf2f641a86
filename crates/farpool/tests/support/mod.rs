//! Support for the tests of the library.

pub mod answers;
pub mod gateway;
pub mod pools;
pub mod text;
pub mod tpch;

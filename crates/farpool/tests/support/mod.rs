//! What tests of the library share.

pub mod answers;
pub mod pools;
pub mod text;
pub mod tpch;

//! What the ways share that number groups by the codes of their keys: dense group numbers, and what is computed of the
//! rows of each number.

mod keys;
mod masks;
mod measures;
mod rows;

pub(super) use keys::{DenseKeys, KeyBuffers, KeyFrame};
pub(super) use masks::{masked, ones};
pub(super) use measures::{Extent, Measures, Source, SumOf};
pub(super) use rows::Fused;

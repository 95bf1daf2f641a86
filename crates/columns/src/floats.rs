//! Compares plain floats in place, in the order of SQL.

use crate::arch::{Level, key_f32, key_f64};
use crate::kernels::RetainPlain;
use crate::lanes::Lane;
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use farpool_model::CompareOp;

/// 32-bit or 64-bit floats of a chunk. The values of NULL rows are arbitrary.
#[derive(Clone, Copy, Debug)]
pub struct Floats<'a> {
    values: Values<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Values<'a> {
    Single(&'a [f32]),
    Double(&'a [f64]),
}

impl<'a> Floats<'a> {
    /// Wraps plain values of `data_type`; `None` if that is not a float.
    pub(crate) fn new(values: &'a Buffer, data_type: &DataType) -> Option<Self> {
        let values = match data_type {
            DataType::Float32 => Values::Single(values.typed_data()),
            DataType::Float64 => Values::Double(values.typed_data()),
            _ => return None,
        };
        Some(Floats { values })
    }

    /// Clears the bits of rows for whose value `value op literal` is false. The order is the total order of IEEE 754,
    /// which puts NaN above (or, with the sign bit, below) all numbers, except that -0.0 equals 0.0. Bit 0 of `alive`
    /// is row `start`. The result for NULL rows is unspecified. Words without a set bit are not read.
    ///
    /// For 32-bit floats, the literal must be exactly a 32-bit float.
    ///
    /// # Panics
    /// When `start` is beyond the number of rows.
    pub fn retain_compared(&self, op: CompareOp, literal: f64, start: usize, alive: &mut [u64]) {
        let level = Level::best();
        match self.values {
            Values::Double(values) => {
                let values = &values[start..];
                let (low, span, inside) = range_of(op, key_f64(literal), u64::MAX);
                level.run(RetainPlain { values, low, span, inside, alive });
            }
            Values::Single(values) => {
                let values = &values[start..];
                let (low, span, inside) = range_of(op, key_f32(literal as f32), u32::MAX);
                level.run(RetainPlain { values, low, span, inside, alive });
            }
        }
    }
}

/// Returns the range of comparison keys for which `op` holds with `key`: the least key, its distance to the greatest
/// key, and whether the matching keys are inside the range or outside.
fn range_of<K: Lane>(op: CompareOp, key: K, max: K) -> (K, K, bool) {
    let none = K::default();
    match op {
        CompareOp::Eq => (key, none, true),
        CompareOp::NotEq => (key, none, false),
        CompareOp::LtEq => (none, key, true),
        CompareOp::Gt => (none, key, false),
        CompareOp::GtEq => (key, max.minus(key), true),
        CompareOp::Lt => (key, max.minus(key), false),
    }
}

//! Evaluates masks: bitmaps of the rows that are counted in a measure (a sum or fold that an aggregation computes
//! for each group).

use super::measures::Mask;
use super::rows::DenseRows;
use crate::bits;
use crate::lanes::LaneBuffers;
use crate::selection::Selection;
use farpool_columns::{Kernel, Level, Simd};
use farpool_model::Result;

impl DenseRows<'_> {
    /// Evaluates each mask to a bitmap of the batch; `None` for a mask that all rows pass. Bits of rows that the
    /// query's filter excluded are unspecified.
    pub(crate) fn mask_bits(
        &self,
        selection: &Selection,
        buffers: &mut LaneBuffers,
    ) -> Result<Vec<Option<Vec<u64>>>> {
        let mut held = Vec::with_capacity(self.conditions.len());
        for condition in &self.conditions {
            held.push(condition.select(selection, buffers)?.bits);
        }
        let of = |mask: &Mask| {
            let mut rows = mask.condition.and_then(|condition| held[condition].clone());
            for column in &mask.nullable {
                let Some(valid) = self.group.chunks[*column].validity(selection.range.clone()) else {
                    continue;
                };
                let valid = bits::of_buffer(&valid);
                match &mut rows {
                    Some(rows) => bits::and(rows, &valid),
                    None => rows = Some(valid),
                }
            }
            rows
        };
        Ok(self.measures.masks.iter().map(of).collect())
    }
}

/// Replaces `out` by `values`, with 0 for each value whose bit in `mask` is clear.
pub(super) fn masked(values: &[i64], mask: &[u64], out: &mut Vec<i64>) {
    out.resize(values.len(), 0);
    Level::best().run(Masked { values, mask, out });
}

struct Masked<'a> {
    values: &'a [i64],
    mask: &'a [u64],
    out: &'a mut [i64],
}

impl Kernel for Masked<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for ((values, out), word) in self.values.chunks(64).zip(self.out.chunks_mut(64)).zip(self.mask) {
            for (bit, (value, out)) in values.iter().zip(out).enumerate() {
                *out = value & -((word >> bit & 1) as i64);
            }
        }
    }
}

/// Replaces `out` by one value per row: 1 if the row's bit in `mask` is set, otherwise 0.
pub(super) fn ones(mask: &[u64], rows: usize, out: &mut Vec<i64>) {
    out.clear();
    out.extend((0..rows).map(|row| i64::from(bits::get(mask, row))));
}

//! Evaluates a filter, bound to the chunks of a row group, on one batch: each predicate clears the bits of rows
//! that fail it.

use super::bind::{Bound, BoundFilter, Test};
use crate::bits;
use crate::evaluate::Compiled;
use crate::lanes::{LaneBuffers, LaneId, RowSet, retain_compared};
use crate::selection::Selection;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use farpool_columns::Chunk;
use farpool_model::{CompareOp, Result};
use std::ops::Range;

impl BoundFilter<'_> {
    /// Returns the rows of `within` that pass the filter. The filter is not evaluated on other rows.
    ///
    /// # Errors
    /// `Invalid` when the filter fails on one of the rows.
    pub(crate) fn select(&self, within: &Selection, buffers: &mut LaneBuffers) -> Result<Selection> {
        let mut alive = within.bits.clone().unwrap_or_else(|| bits::ones(within.range.len()));
        let mut run = Run { filter: self, range: within.range.clone(), buffers };
        run.retain(&self.root, &mut alive)?;
        Ok(Selection::new(within.range.clone(), alive))
    }
}

/// Evaluation of a filter over one batch.
struct Run<'r, 'a> {
    filter: &'r BoundFilter<'a>,
    range: Range<usize>,
    buffers: &'r mut LaneBuffers,
}

impl Run<'_, '_> {
    /// Clears the bits of rows for which `bound` is not true.
    fn retain(&mut self, bound: &Bound<'_>, alive: &mut [u64]) -> Result<()> {
        match bound {
            Bound::Known(true) => {}
            Bound::Known(false) => alive.fill(0),
            Bound::All(parts, order) => {
                let mut asked = bits::count(alive);
                for part in (0..parts.len()).map(|turn| order.part(turn)) {
                    if asked == 0 {
                        break;
                    }
                    self.retain(&parts[part], alive)?;
                    let left = bits::count(alive);
                    order.learn(part, asked, asked - left);
                    asked = left;
                }
                order.settle();
            }
            Bound::Any(parts, order) => {
                // The bits of rows that match one of the operands are moved from `alive` to `found`.
                let mut found = self.buffers.take_bits(alive.len());
                let mut hits = self.buffers.take_bits(alive.len());
                let mut asked = bits::count(alive);
                for part in (0..parts.len()).map(|turn| order.part(turn)) {
                    if asked == 0 {
                        break;
                    }
                    hits.copy_from_slice(alive);
                    self.retain(&parts[part], &mut hits)?;
                    bits::or(&mut found, &hits);
                    bits::and_not(alive, &hits);
                    let left = bits::count(alive);
                    order.learn(part, asked, asked - left);
                    asked = left;
                }
                order.settle();
                alive.copy_from_slice(&found);
                self.buffers.give_bits(found);
                self.buffers.give_bits(hits);
            }
            Bound::Null(chunk, wanted) => self.retain_valid(chunk, !wanted, alive),
            Bound::Leaf(test, wanted) => self.retain_leaf(test, *wanted, alive)?,
        }
        Ok(())
    }

    fn retain_leaf(&mut self, test: &Test<'_>, wanted: bool, alive: &mut [u64]) -> Result<()> {
        let start = self.range.start;
        match test {
            Test::Ranges { integers, ranges, chunk } => {
                self.retain_valid(chunk, true, alive);
                if let ([(low, high)], _) | ([(low, high), ..], false) = (&ranges[..], wanted) {
                    integers.retain_within(*low, *high, wanted, start, alive);
                    for (low, high) in &ranges[1..] {
                        integers.retain_within(*low, *high, false, start, alive);
                    }
                } else if wanted {
                    // A row is within one of the ranges exactly if it is not outside all of them.
                    let mut outside = self.buffers.take_bits(alive.len());
                    outside.copy_from_slice(alive);
                    for (low, high) in ranges {
                        integers.retain_within(*low, *high, false, start, &mut outside);
                    }
                    bits::and_not(alive, &outside);
                    self.buffers.give_bits(outside);
                }
            }
            Test::Codes { codes, set, chunk } => {
                self.retain_valid(chunk, true, alive);
                codes.retain_members(set, wanted, start, alive);
            }
            Test::Members { integers, members, chunk } => {
                self.retain_valid(chunk, true, alive);
                match members.set() {
                    Some(set) => integers.retain_members(set, wanted, start, alive),
                    None => {
                        let values = self.buffers.scratch();
                        integers.unpack(self.range.clone(), values);
                        bits::retain(alive, |row| members.has_int(values[row].into()) == wanted);
                    }
                }
            }
            Test::Keys(keys) => {
                keys.chunks().for_each(|chunk| self.retain_valid(chunk, true, alive));
                keys.retain(self.range.clone(), wanted, self.buffers, alive);
            }
            Test::Texts { texts, chunk } => {
                self.retain_valid(chunk, true, alive);
                texts.retain(wanted, start, alive);
            }
            Test::Floats { floats, op, literal, chunk } => {
                self.retain_valid(chunk, true, alive);
                let op = if wanted { *op } else { op.negated() };
                floats.retain_compared(op, *literal, start, alive);
            }
            Test::Columns { op, left, right, general } => {
                self.retain_all_valid(general, alive);
                let op = if wanted { *op } else { op.negated() };
                left.retain_compared(op, right, start, alive);
            }
            Test::Lanes { op, left, right, general } => {
                self.retain_all_valid(general, alive);
                self.retain_lanes(if wanted { *op } else { op.negated() }, *left, *right, alive);
            }
            Test::General(compiled) => self.retain_general(compiled, wanted, alive)?,
        }
        Ok(())
    }

    /// Clears the bits of rows whose value is NULL; with `valid` false, of rows whose value is not NULL.
    fn retain_valid(&self, chunk: &Chunk, valid: bool, alive: &mut [u64]) {
        let validity = if chunk.null_count() > 0 { chunk.validity(self.range.clone()) } else { None };
        let Some(validity) = validity else {
            return if !valid {
                alive.fill(0)
            };
        };
        let turned = if valid { 0 } else { u64::MAX };
        let words = validity.bit_chunks();
        alive.iter_mut().zip(words.iter_padded()).for_each(|(alive, word)| *alive &= word ^ turned);
    }

    fn retain_all_valid(&self, compiled: &Compiled, alive: &mut [u64]) {
        for column in compiled.columns() {
            self.retain_valid(&self.filter.group.chunks[*column], true, alive);
        }
    }

    fn retain_lanes(&mut self, op: CompareOp, left: LaneId, right: LaneId, alive: &mut [u64]) {
        if alive.iter().all(|word| *word == 0) {
            return;
        }
        let lanes = &self.filter.lanes;
        lanes.evaluate(&[left, right], RowSet::Range(self.range.start, self.range.end), self.buffers);
        retain_compared(op, self.buffers.values(left), self.buffers.values(right), alive);
    }

    fn retain_general(&self, compiled: &Compiled, wanted: bool, alive: &mut [u64]) -> Result<()> {
        let selection = Selection::new(self.range.clone(), alive.to_vec());
        if selection.count == 0 {
            return Ok(());
        }
        let frame = selection.frame(self.filter.group, compiled.columns())?;
        let values = compiled.array(&frame)?;
        let values = values.as_boolean();
        let mut held = bits::of_buffer(values.values());
        if !wanted {
            held = bits::not(&held, values.len());
        }
        if let Some(nulls) = values.nulls() {
            bits::and(&mut held, &bits::of_buffer(nulls.inner()));
        }
        match &selection.bits {
            None => alive.copy_from_slice(&held),
            Some(places) => spread(&held, places, alive),
        }
        Ok(())
    }
}

/// Moves the n-th bit of `packed` to the position of the n-th set bit of `places`, for all n.
fn spread(packed: &[u64], places: &[u64], out: &mut [u64]) {
    out.fill(0);
    let mut next = 0;
    bits::for_each(places, |row| {
        out[row / 64] |= u64::from(bits::get(packed, next)) << (row % 64);
        next += 1;
    });
}

//! What one worker holds: a few words per group, or a bit.

use super::{Form, Whole};
use crate::bits;
use farpool_columns::working;
use std::cmp::Ordering;

/// The accumulators of all groups, those of one beside each other. All 0 at first, so that the system gives
/// the memory page by page as groups occur.
pub(crate) struct WholeTable {
    pub(super) form: Form,
    /// Words per group.
    pub(super) width: usize,
    pub(super) words: Vec<i64>,
    /// Where the extremes begin in a group's words.
    first_extreme: usize,
    /// For each extreme which one is wanted, and the bounds.
    extremes: Vec<(Ordering, i64, i64)>,
    ones: Vec<i64>,
}

impl WholeTable {
    /// No groups yet.
    pub(crate) fn new(whole: &Whole) -> Self {
        let bounds = whole.measures.extremes.iter().zip(&whole.bounds);
        WholeTable {
            form: whole.form,
            width: whole.words(),
            words: working::zeros(whole.words_held()),
            first_extreme: whole.form.rows_words() + whole.measures.sums.len(),
            extremes: bounds.map(|(e, (min, max))| (e.wanted, *min, *max)).collect(),
            ones: Vec::new(),
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        (self.words.capacity() + self.ones.capacity()) * size_of::<i64>()
    }

    /// The first `groups` groups that are marked.
    pub(super) fn marked(&self, groups: usize) -> usize {
        let whole = self.words[..groups / 64].iter().map(|word| word.count_ones()).sum::<u32>() as usize;
        let rest = (0..groups % 64).filter(|bit| self.words[groups / 64] >> bit & 1 == 1).count();
        whole + rest
    }

    /// Adds a value of each sum to the group of each row.
    pub(crate) fn add_sums(&mut self, groups: &[u32], sums: &[&[i64]]) {
        match self.form {
            Form::Bits => self.mark(groups),
            Form::Extremes => {}
            Form::Tagged => add::<true>(&mut self.words, self.width, groups, sums),
            Form::Rows => {
                if self.ones.len() < groups.len() {
                    self.ones.resize(groups.len(), 1);
                }
                let counted: Vec<&[i64]> =
                    std::iter::once(self.ones.as_slice()).chain(sums.iter().copied()).collect();
                add::<false>(&mut self.words, self.width, groups, &counted);
            }
        }
    }

    /// Takes the values of the rows in `mask` into account for extreme `index` of their groups.
    pub(crate) fn add_extreme(&mut self, index: usize, groups: &[u32], values: &[i64], mask: Option<&[u64]>) {
        let (wanted, min, max) = self.extremes[index];
        let (word, width) = (self.first_extreme + index, self.width);
        let words = &mut self.words;
        let mut keep = |row: usize| {
            let kept = &mut words[groups[row] as usize * width + word];
            *kept = (*kept).cast_unsigned().max(distance(values[row], wanted, min, max)).cast_signed();
        };
        match mask {
            None => (0..groups.len()).for_each(keep),
            Some(mask) => bits::for_each(mask, &mut keep),
        }
    }

    /// The extreme that a word holds; anything if it holds none.
    pub(super) fn extreme(&self, index: usize, word: i64) -> i64 {
        let (wanted, min, max) = self.extremes[index];
        let distance = word.wrapping_sub(1);
        if wanted == Ordering::Less { max.wrapping_sub(distance) } else { min.wrapping_add(distance) }
    }

    /// The word of the group's extreme `index`.
    pub(super) fn extreme_word(&self, index: usize) -> usize {
        self.first_extreme + index
    }

    fn mark(&mut self, groups: &[u32]) {
        for group in groups {
            self.words[*group as usize / 64] |= 1 << (group % 64);
        }
    }
}

/// The greater, the more wanted; 0 is none.
#[inline]
fn distance(value: i64, wanted: Ordering, min: i64, max: i64) -> u64 {
    1 + if wanted == Ordering::Less { max.abs_diff(value) } else { value.abs_diff(min) }
}

fn add<const TAG: bool>(words: &mut [i64], width: usize, groups: &[u32], sums: &[&[i64]]) {
    match (sums.len(), width) {
        (1, 1) => add_lines::<TAG, 1>(words, groups, sums),
        (2, 2) => add_lines::<TAG, 2>(words, groups, sums),
        (3, 3) => add_lines::<TAG, 3>(words, groups, sums),
        (4, 4) => add_lines::<TAG, 4>(words, groups, sums),
        _ => {
            for (word, values) in sums.iter().enumerate() {
                let tag = TAG && word == 0;
                for (group, value) in groups.iter().zip(*values) {
                    let sum = &mut words[*group as usize * width + word];
                    *sum = if tag { tagged(*sum, *value) } else { *sum + value };
                }
            }
        }
    }
}

#[inline]
fn add_lines<const TAG: bool, const WORDS: usize>(words: &mut [i64], groups: &[u32], sums: &[&[i64]]) {
    let (lines, _) = words.as_chunks_mut::<WORDS>();
    let sums: [&[i64]; WORDS] = std::array::from_fn(|word| &sums[word][..groups.len()]);
    for (row, group) in groups.iter().enumerate() {
        let line = &mut lines[*group as usize];
        line[0] = if TAG { tagged(line[0], sums[0][row]) } else { line[0] + sums[0][row] };
        for word in 1..WORDS {
            line[word] += sums[word][row];
        }
    }
}

#[inline(always)]
fn tagged(sum: i64, value: i64) -> i64 {
    (sum + (value << 1)) | 1
}

//! The array of one worker thread in the *whole-table way* of aggregation: a few words for each possible group,
//! or one bit. Its index is a group number, computed from the group keys.

use super::fit::{Form, Whole};
use crate::bits;
use farpool_columns::working;
use farpool_model::{BitOp, Fold, Pick};

/// Maximum number of possible groups for checking, before each row group, whether all of them occur already. Reason:
/// with more possible groups, most tables have too few rows for all of them to occur.
const COMPLETE_MAX: usize = 64 << 10;

/// Accumulators of all possible groups; those of one group are adjacent. All words are 0 at first, so that the system
/// allocates memory page by page as groups occur.
pub(crate) struct WholeTable {
    pub(super) form: Form,
    /// Words per group.
    pub(super) width: usize,
    pub(super) words: Vec<i64>,
    /// Index of the first word of a group that holds a fold (such as a minimum).
    first_fold: usize,
    pub(super) folds: Vec<FoldWord>,
    ones: Vec<i64>,
}

/// Form in which a fold (such as a minimum) of values between `min` and `max` is stored in a word that is 0 before
/// the first value. A minimum or maximum is stored as the distance from the worst possible value, plus one. AND is
/// stored as the complement, because the OR of complements is the complement of the AND.
#[derive(Clone, Copy)]
pub(crate) struct FoldWord {
    pub(super) fold: Fold,
    min: i64,
    max: i64,
}

/// Evaluates `$body` with `$hold` bound to the function that encodes a value as a word, and `$combine` to the function
/// that combines two words.
macro_rules! for_fold_word {
    ($word:expr, ($hold:ident, $combine:ident) => $body:expr) => {{
        let FoldWord { fold, min, max } = $word;
        let (or, xor) = (|held: u64, word: u64| held | word, |held: u64, word: u64| held ^ word);
        match fold {
            Fold::Pick(Pick::Least) => {
                let ($hold, $combine) = (|value: i64| 1 + max.abs_diff(value), u64::max);
                $body
            }
            Fold::Pick(Pick::Greatest | Pick::Any) => {
                let ($hold, $combine) = (|value: i64| 1 + value.abs_diff(min), u64::max);
                $body
            }
            Fold::Bits(BitOp::And) => {
                let ($hold, $combine) = (|value: i64| !value.cast_unsigned(), or);
                $body
            }
            Fold::Bits(BitOp::Or) => {
                let ($hold, $combine) = (i64::cast_unsigned, or);
                $body
            }
            Fold::Bits(BitOp::Xor) => {
                let ($hold, $combine) = (i64::cast_unsigned, xor);
                $body
            }
        }
    }};
}

impl FoldWord {
    /// Decodes the value of a word; unspecified for a word without a value.
    pub(super) fn value(&self, word: u64) -> i64 {
        let distance = word.wrapping_sub(1).cast_signed();
        match self.fold {
            Fold::Pick(Pick::Least) => self.max.wrapping_sub(distance),
            Fold::Pick(Pick::Greatest | Pick::Any) => self.min.wrapping_add(distance),
            Fold::Bits(BitOp::And) => !word.cast_signed(),
            Fold::Bits(BitOp::Or | BitOp::Xor) => word.cast_signed(),
        }
    }
}

impl WholeTable {
    /// Creates an array without groups.
    pub(crate) fn new(whole: &Whole) -> Self {
        let folds = whole.measures.folds.iter().zip(&whole.bounds);
        WholeTable {
            form: whole.form,
            width: whole.words(),
            words: working::zeros(whole.words_held()),
            first_fold: whole.form.rows_words() + whole.measures.sums.len(),
            folds: folds.map(|(of, (min, max))| FoldWord { fold: of.fold, min: *min, max: *max }).collect(),
            ones: Vec::new(),
        }
    }

    /// Returns the bytes of memory that the array takes.
    pub(crate) fn bytes(&self) -> usize {
        (self.words.capacity() + self.ones.capacity()) * size_of::<i64>()
    }

    /// Returns whether further rows change nothing, because every possible group occurs and no aggregate function is
    /// computed.
    pub(crate) fn is_complete(&self, whole: &Whole) -> bool {
        self.form == Form::Bits && whole.domain <= COMPLETE_MAX && self.marked(whole.domain) == whole.domain
    }

    /// Returns the number of set bits among the first `groups` bits.
    fn marked(&self, groups: usize) -> usize {
        let whole = self.words[..groups / 64].iter().map(|word| word.count_ones()).sum::<u32>() as usize;
        let rest = (0..groups % 64).filter(|bit| self.words[groups / 64] >> bit & 1 == 1).count();
        whole + rest
    }

    /// Adds one value per row to each sum, in the row's group.
    pub(super) fn add_sums_of(&mut self, groups: &[u32], sums: &[&[i64]]) {
        match self.form {
            Form::Bits => self.mark(groups),
            Form::Picks => {}
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

    /// Folds the values of the rows in `mask` into the fold number `index` of their groups.
    pub(super) fn add_fold_of(&mut self, index: usize, groups: &[u32], values: &[i64], mask: Option<&[u64]>) {
        let (place, width) = (self.first_fold + index, self.width);
        let words = &mut self.words;
        for_fold_word!(self.folds[index], (hold, combine) => {
            let add = |row: usize| {
                let held = &mut words[groups[row] as usize * width + place];
                *held = combine(held.cast_unsigned(), hold(values[row])).cast_signed();
            };
            match mask {
                None => (0..groups.len()).for_each(add),
                Some(mask) => bits::for_each(mask, add),
            }
        });
    }

    /// Combines `words`, which another worker has of fold number `index` for the groups `numbers`, with those of this
    /// worker, and stores the result in `words`.
    pub(super) fn merge_fold(&self, index: usize, numbers: &[u32], words: &mut [u64]) {
        let place = self.first_fold + index;
        let held = numbers.iter().map(|number| self.words[*number as usize * self.width + place]);
        for_fold_word!(self.folds[index], (_hold, combine) => {
            words.iter_mut().zip(held).for_each(|(word, held)| *word = combine(*word, held.cast_unsigned()));
        });
    }

    fn mark(&mut self, groups: &[u32]) {
        for group in groups {
            self.words[*group as usize / 64] |= 1 << (group % 64);
        }
    }
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

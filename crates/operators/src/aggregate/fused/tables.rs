//! Partial sums and folds (such as minimum) of the rows of one row group, in arrays that are indexed by group
//! number.
//!
//! The *group number* of a row is computed from integer codes of its group keys (such as dictionary codes).

use crate::aggregate::fold::{for_fold, neutral};
use crate::bits;
use farpool_model::Fold;

/// Number of 64-bit words per cache line.
const WORDS_PER_LINE: usize = 8;

/// Maximum number of groups for two optimizations. First, each table has two copies, used in turn, since consecutive
/// rows of one group would otherwise wait for each other's stores. Second, several narrow sums share a word. Shared
/// words must be split into their sums after each part (a few thousand rows), which pays only for few groups.
const FEW_GROUPS_MAX: usize = 64;

/// Number of bits that the sums in a shared word may take. The sign bit stays clear.
const WORD_BITS: u32 = 63;

/// A cache line, with words of one group.
type Line = [i64; WORDS_PER_LINE];

/// The position of a sum in a word that several sums may share.
#[derive(Clone, Copy, Debug)]
struct Field {
    sum: usize,
    shift: u32,
    bits: u32,
}

/// Partial sums of a row group by group number: any number of sums, and the number of rows.
///
/// Most sums over a few thousand rows need far less than 64 bits. If `price` and `quantity` share a word, one addition
/// to memory replaces two. Such additions take most of the time of grouping.
#[derive(Default)]
pub(crate) struct SumTables {
    words: Vec<Vec<Field>>,
    /// Cache lines by group number, one table for every [`WORDS_PER_LINE`] words of a group.
    tables: Vec<Vec<Line>>,
    /// For each word, a buffer with one value per row of a part: the values of the sums that share the word,
    /// combined.
    packed: Vec<Vec<i64>>,
    /// Totals by group number: all sums of a group, then its number of rows.
    totals: Vec<i64>,
    sums: usize,
    groups: usize,
    copies: usize,
}

impl SumTables {
    /// Resets all sums to zero and sets the number of groups. `widths` has for each sum the number of bits that its
    /// value over one part can take; `None` if a value may be negative. `rows_bits` is the number of bits of a row
    /// count over one part.
    pub(super) fn reset(&mut self, groups: usize, widths: &[Option<u32>], rows_bits: u32) {
        let few = groups <= FEW_GROUPS_MAX;
        self.groups = groups;
        self.sums = widths.len();
        self.copies = if few { 2 } else { 1 };
        let bits = |width: &Option<u32>| width.filter(|_| few).unwrap_or(u64::BITS);
        let widths: Vec<u32> = widths.iter().chain([&Some(rows_bits)]).map(bits).collect();
        self.words = share_words(&widths);
        self.tables =
            vec![vec![Line::default(); groups * self.copies]; self.words.len().div_ceil(WORDS_PER_LINE)];
        self.packed.resize_with(self.words.len(), Vec::new);
        self.totals = vec![0; groups * (self.sums + 1)];
    }

    /// Adds one part. `values` has for each sum one value per row, which is added in the row's group.
    pub(super) fn add(&mut self, groups: &[u32], values: &[&[i64]]) {
        for (word, packed) in self.words.iter().zip(&mut self.packed) {
            pack(word, values, groups.len(), packed);
        }
        let words: Vec<&[i64]> = self
            .words
            .iter()
            .zip(&self.packed)
            .map(|(word, packed)| match word[..] {
                [field] if field.sum < values.len() => values[field.sum],
                _ => packed.as_slice(),
            })
            .collect();
        for (table, words) in self.tables.iter_mut().zip(words.chunks(WORDS_PER_LINE)) {
            scatter_any(groups, words, table, self.copies);
        }
        if self.words.len() <= self.sums {
            self.take_apart();
        }
    }

    /// Adds all rows to group 0.
    pub(super) fn add_ungrouped(&mut self, rows: usize, values: &[&[i64]]) {
        for (total, values) in self.totals.iter_mut().zip(values) {
            *total += values.iter().sum::<i64>();
        }
        self.totals[self.sums] += rows as i64;
    }

    /// Adds `rows` to the row count of a group whose sums are added by [`SumTables::add_total`].
    pub(super) fn add_rows(&mut self, group: usize, rows: i64) {
        self.add_total(self.sums, group, rows);
    }

    /// Adds `total`, summed over several rows, to one sum of a group.
    pub(super) fn add_total(&mut self, sum: usize, group: usize, total: i64) {
        self.totals[group * (self.sums + 1) + sum] += total;
    }

    /// Moves the contents of the tables to the totals. Must be called before [`SumTables::sum`] and
    /// [`SumTables::rows`], because these read only the totals.
    pub(super) fn finish(&mut self) {
        self.take_apart();
    }

    /// Returns the number of rows of a group.
    pub(super) fn rows(&self, group: usize) -> i64 {
        self.sum(self.sums, group)
    }

    /// Returns the value of one sum of a group.
    pub(super) fn sum(&self, sum: usize, group: usize) -> i64 {
        self.totals[group * (self.sums + 1) + sum]
    }

    /// Moves the contents of the tables to the totals, split into the sums that share a word.
    fn take_apart(&mut self) {
        for (index, word) in self.words.iter().enumerate() {
            let table = &mut self.tables[index / WORDS_PER_LINE];
            for (line, content) in table.iter_mut().enumerate() {
                let value = std::mem::take(&mut content[index % WORDS_PER_LINE]);
                let first = line % self.groups * (self.sums + 1);
                for field in word {
                    // A sum that is always zero has a field of 0 bits.
                    let mask = u64::MAX.checked_shr(u64::BITS - field.bits).unwrap_or(0);
                    let part = value.cast_unsigned() >> field.shift & mask;
                    self.totals[first + field.sum] += part.cast_signed();
                }
            }
        }
    }
}

/// Assigns sums of these widths to shared words by first fit, widest first, which needs few words.
fn share_words(widths: &[u32]) -> Vec<Vec<Field>> {
    let mut order: Vec<usize> = (0..widths.len()).collect();
    order.sort_by_key(|sum| std::cmp::Reverse(widths[*sum]));
    let mut words: Vec<Vec<Field>> = Vec::new();
    for sum in order {
        let bits = widths[sum];
        let used = |word: &Vec<Field>| word.last().map_or(0, |f| f.shift + f.bits);
        match words.iter_mut().find(|word| used(word) + bits <= WORD_BITS) {
            Some(word) => {
                let shift = used(word);
                word.push(Field { sum, shift, bits });
            }
            None => words.push(vec![Field { sum, shift: 0, bits }]),
        }
    }
    words
}

/// Combines the values of the sums in a word, row by row. A sum with a word of its own is used unchanged.
fn pack(word: &[Field], values: &[&[i64]], rows: usize, out: &mut Vec<i64>) {
    let of = |field: &Field| values.get(field.sum).map(|values| &values[..rows]);
    let one = |field: &Field| if of(field).is_none() { 1_i64 << field.shift } else { 0 };
    let constant: i64 = word.iter().map(one).sum();
    let shifted: Vec<(&[i64], u32)> =
        word.iter().filter_map(|f| of(f).map(|values| (values, f.shift))).collect();
    out.clear();
    match shifted[..] {
        [_] if word.len() == 1 => {}
        [] => out.resize(rows, constant),
        [(a, s)] => out.extend(a.iter().map(|a| (a << s) + constant)),
        [(a, s), (b, t)] => out.extend(a.iter().zip(b).map(|(a, b)| (a << s) + (b << t) + constant)),
        [(a, s), (b, t), ref more @ ..] => {
            out.extend(a.iter().zip(b).map(|(a, b)| (a << s) + (b << t) + constant));
            for (values, shift) in more {
                out.iter_mut().zip(*values).for_each(|(out, value)| *out += value << shift);
            }
        }
    }
}

fn scatter_any(groups: &[u32], words: &[&[i64]], table: &mut [Line], copies: usize) {
    match words.len() {
        1 => scatter::<1>(groups, words, table, copies),
        2 => scatter::<2>(groups, words, table, copies),
        3 => scatter::<3>(groups, words, table, copies),
        4 => scatter::<4>(groups, words, table, copies),
        5 => scatter::<5>(groups, words, table, copies),
        6 => scatter::<6>(groups, words, table, copies),
        7 => scatter::<7>(groups, words, table, copies),
        _ => scatter::<WORDS_PER_LINE>(groups, words, table, copies),
    }
}

#[inline]
fn scatter<const WORDS: usize>(groups: &[u32], words: &[&[i64]], table: &mut [Line], copies: usize) {
    let rows = groups.len();
    let words: [&[i64]; WORDS] = std::array::from_fn(|word| &words[word][..rows]);
    if copies == 1 {
        for (row, group) in groups.iter().enumerate() {
            add_row(&mut table[*group as usize], &words, row);
        }
        return;
    }
    let (even, odd) = table.split_at_mut(table.len() / 2);
    let pairs = rows / 2 * 2;
    for row in (0..pairs).step_by(2) {
        add_row(&mut even[groups[row] as usize], &words, row);
        add_row(&mut odd[groups[row + 1] as usize], &words, row + 1);
    }
    if pairs < rows {
        add_row(&mut even[groups[pairs] as usize], &words, pairs);
    }
}

#[inline(always)]
fn add_row<const WORDS: usize>(line: &mut Line, words: &[&[i64]; WORDS], row: usize) {
    for word in 0..WORDS {
        line[word] += words[word][row];
    }
}

/// Values of one fold (such as a minimum) by group number.
pub(crate) struct FoldTable {
    values: Vec<i64>,
    fold: Fold,
}

impl FoldTable {
    /// Creates a table without values, for `groups` groups.
    pub(super) fn new(groups: usize, fold: Fold) -> Self {
        FoldTable { values: vec![neutral(fold); groups], fold }
    }

    /// Folds the values of the rows in `mask` into their groups; with `groups` `None`, into group 0.
    pub(super) fn add(&mut self, groups: Option<&[u32]>, values: &[i64], mask: Option<&[u64]>) {
        for_fold!(self.fold, combine => fold_rows(&mut self.values, groups, values, mask, combine));
    }

    /// Returns the fold of a group; unspecified if no row was added to the group.
    pub(super) fn value(&self, group: usize) -> i64 {
        self.values[group]
    }
}

#[inline(always)]
fn fold_rows(
    folded: &mut [i64],
    groups: Option<&[u32]>,
    values: &[i64],
    mask: Option<&[u64]>,
    combine: impl Fn(i64, i64) -> i64,
) {
    match (groups, mask) {
        (None, None) => folded[0] = values.iter().fold(folded[0], |held, value| combine(held, *value)),
        (None, Some(mask)) => {
            bits::for_each(mask, |row| folded[0] = combine(folded[0], values[row]));
        }
        (Some(groups), None) => {
            for (group, value) in groups.iter().zip(values) {
                let held = &mut folded[*group as usize];
                *held = combine(*held, *value);
            }
        }
        (Some(groups), Some(mask)) => bits::for_each(mask, |row| {
            let held = &mut folded[groups[row] as usize];
            *held = combine(*held, values[row]);
        }),
    }
}

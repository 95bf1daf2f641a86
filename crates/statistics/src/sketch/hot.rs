//! Counts very frequent ("hot") values by comparison, before anything is hashed. In a skewed column most values are one
//! of a few. In every row of counters, each of them would otherwise wait for the store of the one before.
//!
//! Invariant: the words that [`Hot::split`] returns and those that it counts are together the words of the input.
//! A state does not depend on which words were hot.

use super::block::BLOCK;
use crate::arch::{Kernel, Level};

/// Number of hot words, with which each word is compared. Four cover nine tenths of a column with Zipf's exponent 2.
const HOT: usize = 4;

/// Number of words of a block that are sampled to find hot ones.
const SAMPLE: usize = 32;

/// Number of blocks after which hot words are chosen again.
const PATIENCE: u32 = 16;

/// Hot words and their counts. A word that repeats another one has the count 0.
pub(crate) type Counted = ([u64; HOT], [u64; HOT]);

/// Counts the hot words of the blocks of a column.
#[derive(Default)]
pub(crate) struct Hot {
    /// Hot words; `None` if no word is frequent enough. Unused entries repeat the first word.
    words: Option<[u64; HOT]>,
    counts: [u64; HOT],
    blocks: u32,
    /// Words of a block that are not hot. The buffer is one longer than a block, because the last word may be stored
    /// behind the end. Allocated on first use.
    rest: Option<Box<[u64; BLOCK + 1]>>,
}

impl Hot {
    /// Chooses hot words anew every [`PATIENCE`] blocks; must be called before each block. If other words become hot,
    /// returns the former hot words with their counts.
    pub fn before(&mut self, words: &[u64]) -> Option<Counted> {
        let due = self.blocks.is_multiple_of(PATIENCE) && words.len() == BLOCK;
        self.blocks = self.blocks.wrapping_add(1);
        let taken = if due { self.take() } else { None };
        if due {
            self.words = choose(words);
        }
        taken
    }

    /// Returns the hot words with their counts, and forgets both.
    pub fn take(&mut self) -> Option<Counted> {
        let words = self.words.take()?;
        Some((words, std::mem::take(&mut self.counts)))
    }

    /// Counts the hot words of a block and returns the other words; `None` if no words are hot.
    pub fn split(&mut self, words: &[u64]) -> Option<&[u64]> {
        let hot = self.words?;
        let rest = self.rest.get_or_insert_with(|| Box::new([0; BLOCK + 1]));
        let (left, counts) = Level::best().run(Split { words, hot, rest });
        self.counts.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        Some(&rest[..left])
    }
}

/// Returns the most frequent words of a sample; `None` unless they make up half of it.
fn choose(words: &[u64]) -> Option<[u64; HOT]> {
    let mut sample: Vec<u64> = words.iter().step_by(BLOCK / SAMPLE).copied().collect();
    sample.sort_unstable();
    let mut runs: Vec<(usize, u64)> = sample.chunk_by(|a, b| a == b).map(|run| (run.len(), run[0])).collect();
    runs.sort_unstable_by(|one, other| other.cmp(one));
    runs.retain(|(count, _)| *count > 1);
    runs.truncate(HOT);
    let hits: usize = runs.iter().map(|(count, _)| count).sum();
    let (_, first) = *runs.first()?;
    let mut hot = [first; HOT];
    hot.iter_mut().zip(&runs).for_each(|(hot, (_, word))| *hot = *word);
    (2 * hits >= sample.len()).then_some(hot)
}

/// Kernel that moves all words that are not hot to the front of `rest`. Returns their number, and how often each hot
/// word occurred.
struct Split<'a> {
    words: &'a [u64],
    hot: [u64; HOT],
    rest: &'a mut [u64; BLOCK + 1],
}

impl Kernel for Split<'_> {
    type Output = (usize, [u64; HOT]);

    #[inline(always)]
    fn run(self) -> (usize, [u64; HOT]) {
        let words = &self.words[..self.words.len().min(BLOCK)];
        let mut kept = [0_u8; BLOCK];
        for (kept, word) in kept.iter_mut().zip(words) {
            *kept = u8::from(self.hot.iter().fold(true, |other, hot| other & (word != hot)));
        }
        let mut left = 0;
        for (word, kept) in words.iter().zip(kept) {
            self.rest[left] = *word;
            left += usize::from(kept);
        }
        let mut counts = [0; HOT];
        for (place, (count, hot)) in counts.iter_mut().zip(&self.hot).enumerate() {
            if !self.hot[..place].contains(hot) {
                *count = words.iter().map(|word| u64::from(word == hot)).sum();
            }
        }
        (left, counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_and_what_was_counted_are_the_whole() {
        for hot in [[1, 2, 3, 4], [7; HOT], [1, 1, 5, 5], [99; HOT]] {
            for len in [0, 1, 1000, BLOCK] {
                let words: Vec<u64> = (0..len as u64).map(|i| i * i % 8).collect();
                let expected: Vec<u64> = words.iter().copied().filter(|word| !hot.contains(word)).collect();
                for level in Level::all() {
                    let mut rest = Box::new([0; BLOCK + 1]);
                    let (left, counts) = level.run(Split { words: &words, hot, rest: &mut rest });
                    assert_eq!(rest[..left], expected, "{level:?}");
                    assert_eq!(left + counts.iter().sum::<u64>() as usize, len);
                }
            }
        }
    }
}

//! Deterministic automata over the bytes of strings, run over strings as they lie: compressed ones are not
//! decompressed, because what a symbol does to a state is worked out once for each symbol of a chunk.
//!
//! The idea of running over codes is that of a composed automaton: the step of a code is the steps of its
//! symbol's bytes, one after the other. An escape leads to a second copy of its state, in which the next code is
//! taken for the byte that it is. Some rows advance in turns, so that one waits for memory while others move.
//!
//! Invariant: every state that a table holds is one of the table's, so that a look-up needs no check.

use crate::body::Body;
use crate::chunk::Chunk;
use crate::ends::Ends;
use crate::fsst_text::SymbolTable;
use fsst::ESCAPE_CODE;

/// States that an automaton may have: steps of all codes from twice as many, 32 KiB, lie in the L1 cache.
const STATES_MAX: usize = 64;

/// Rows that advance together: as many as hide the time of a look-up and keep to the registers.
const LANES: usize = 6;

/// A deterministic automaton over bytes that says yes or no at the end of a string.
#[derive(Clone, Debug)]
pub struct Automaton {
    start: u8,
    /// The state that follows each state at each byte.
    next: Vec<[u8; 256]>,
    /// Whether a string that ends in this state is one of those that are looked for.
    accepts: Vec<bool>,
}

impl Automaton {
    /// The automaton with these transitions. `None` when it has too many states, or a state leads to one that
    /// it has not.
    pub fn new(start: u8, next: Vec<[u8; 256]>, accepts: Vec<bool>) -> Option<Automaton> {
        let exists = |state: &u8| usize::from(*state) < next.len();
        let sound = next.len() <= STATES_MAX
            && accepts.len() == next.len()
            && exists(&start)
            && next.iter().flatten().all(exists);
        sound.then_some(Automaton { start, next, accepts })
    }

    /// Whether it says yes to `text`.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.accepts[usize::from(self.after(self.start, text))]
    }

    fn after(&self, state: u8, text: &[u8]) -> u8 {
        text.iter().fold(state, |state, byte| self.next[usize::from(state)][usize::from(*byte)])
    }
}

/// The strings of a chunk, and an automaton made for the form in which they lie.
#[derive(Debug)]
pub struct Texts<'a> {
    ends: &'a Ends,
    data: &'a [u8],
    steps: Steps,
    start: u8,
    accepts: Vec<bool>,
}

/// For each code the state that follows each state: 32, 64 or 128 of them.
#[derive(Debug)]
enum Steps {
    Few(Box<Table<32>>),
    Some(Box<Table<64>>),
    Many(Box<Table<128>>),
}

#[derive(Debug)]
struct Table<const STATES: usize>([[u8; STATES]; 256]);

impl Chunk {
    /// The chunk's strings for `automaton`, if they lie one after another, be it compressed.
    pub fn texts(&self, automaton: &Automaton) -> Option<Texts<'_>> {
        let (ends, data, table) = match &self.body {
            Body::PlainBytes { ends, data } => (ends, data, None),
            Body::Fsst { table, ends, data, .. } => (ends, data, Some(&**table)),
            _ => return None,
        };
        let (steps, start) = (Steps::new(automaton, table), automaton.start);
        Some(Texts { ends, data, steps, start, accepts: automaton.accepts.clone() })
    }
}

impl Texts<'_> {
    /// Clears the bits of rows to which the automaton says no; unless `matching`, of those to which it says yes.
    /// What a NULL row gives is unspecified. Bit 0 of `alive` is row `start`, a multiple of 1024; there are bits
    /// for as many rows as there are, at most. Rows whose bit is clear are not looked at.
    ///
    /// # Panics
    /// When there are too many bits.
    pub fn retain(&self, matching: bool, start: usize, alive: &mut [u64]) {
        match &self.steps {
            Steps::Few(table) => self.retain_by(table, matching, start, alive),
            Steps::Some(table) => self.retain_by(table, matching, start, alive),
            Steps::Many(table) => self.retain_by(table, matching, start, alive),
        }
    }

    fn retain_by<const STATES: usize>(
        &self,
        table: &Table<STATES>,
        matching: bool,
        start: usize,
        alive: &mut [u64],
    ) {
        let rows = (self.ends.rows() - start).min(alive.len() * 64);
        let bounds = self.ends.bounds(start..start + rows);
        let codes = |row: usize| &self.data[bounds[row] as usize..bounds[row + 1] as usize];
        let mut waiting = [0; LANES];
        for (index, alive) in alive.iter_mut().enumerate() {
            let mut rest = *alive;
            while rest != 0 {
                let mut count = 0;
                while rest != 0 && count < LANES {
                    waiting[count] = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    count += 1;
                }
                // Lanes that are left over do the work of the first once more.
                let bits = std::array::from_fn(|lane| waiting[if lane < count { lane } else { 0 }]);
                let states = table.run(self.start, bits.map(|bit| codes(index * 64 + bit)));
                for (bit, state) in bits.into_iter().zip(states) {
                    // Behind an escape there is a byte, or the chunk would not be sound.
                    let accepts = self.accepts.get(usize::from(state)).copied().unwrap_or(false);
                    *alive &= !(u64::from(accepts != matching) << bit);
                }
            }
        }
    }
}

impl Steps {
    /// The steps of bytes, or of the codes of `symbols`.
    fn new(automaton: &Automaton, symbols: Option<&SymbolTable>) -> Steps {
        let states = automaton.next.len() * if symbols.is_some() { 2 } else { 1 };
        match states {
            0..=32 => Steps::Few(Table::new(automaton, symbols)),
            33..=64 => Steps::Some(Table::new(automaton, symbols)),
            _ => Steps::Many(Table::new(automaton, symbols)),
        }
    }
}

impl<const STATES: usize> Table<STATES> {
    fn new(automaton: &Automaton, symbols: Option<&SymbolTable>) -> Box<Self> {
        let mut table = Box::new(Table([[0; STATES]; 256]));
        let count = automaton.next.len();
        for (code, steps) in (0..=u8::MAX).zip(&mut table.0) {
            let (symbol, length) = symbols.map_or(([0; 8], 0), |symbols| symbols.symbol(code));
            for state in 0..count {
                let (from, byte) = (state as u8, automaton.next[state][usize::from(code)]);
                if symbols.is_none() {
                    steps[state] = byte;
                    continue;
                }
                steps[state] = match code {
                    ESCAPE_CODE => (count + state) as u8,
                    _ => automaton.after(from, &symbol[..length]),
                };
                steps[count + state] = byte;
            }
        }
        table
    }

    #[inline(always)]
    fn step(&self, state: u8, code: u8) -> u8 {
        // No more than a hint that the state is one of the table's.
        self.0[usize::from(code)][usize::from(state) % STATES]
    }

    /// The states after `codes`, each from `start`.
    fn run(&self, start: u8, codes: [&[u8]; LANES]) -> [u8; LANES] {
        let shortest = codes.iter().map(|codes| codes.len()).min().unwrap_or(0);
        let together = codes.map(|codes| &codes[..shortest]);
        let mut states = [start; LANES];
        for at in 0..shortest {
            for (state, codes) in states.iter_mut().zip(&together) {
                *state = self.step(*state, codes[at]);
            }
        }
        for (state, codes) in states.iter_mut().zip(codes) {
            *state = codes[shortest..].iter().fold(*state, |state, code| self.step(state, *code));
        }
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EncodingKind;
    use crate::encode::encode;
    use arrow_array::{ArrayRef, StringViewArray};
    use std::sync::Arc;

    /// Says yes to texts with this literal in them; padded with copies of the last state.
    fn contains(literal: &[u8], padding: usize) -> Automaton {
        let states = literal.len() + 1 + padding;
        let step = |state: usize, byte: u8| {
            if state >= literal.len() {
                return literal.len() + (state + 1 - literal.len()) % (padding + 1);
            }
            let seen = [&literal[..state], &[byte]].concat();
            (0..=seen.len().min(literal.len())).rev().find(|n| seen.ends_with(&literal[..*n])).unwrap_or(0)
        };
        let next = (0..states).map(|s| std::array::from_fn(|byte| step(s, byte as u8) as u8)).collect();
        Automaton::new(0, next, (0..states).map(|state| state >= literal.len()).collect()).unwrap()
    }

    #[test]
    fn compressed_and_plain_texts_match_as_their_bytes_do() {
        let text = |i: usize| match i % 5 {
            0 => String::new(),
            1 => format!("the quick brown fox {} jumps \u{fc}ber {}", i * 7919 % 1009, i % 13),
            2 => "fofofox".repeat(i % 4),
            3 => format!("{}\u{1F98A}fo{}", i * 31 % 997, "x".repeat(i % 3)),
            _ => format!("lazy dogs {}", i * 104_729 % 100_003),
        };
        let few: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..300).map(text)));
        let many: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..5000).map(text)));
        for (array, kind) in [(few, EncodingKind::PlainBytes), (many, EncodingKind::Fsst)] {
            let chunk = encode(&array).unwrap();
            assert_eq!(chunk.encoding(), kind);
            for (literal, padding) in [("fox", 0), ("\u{1F98A}", 20), ("ox 7", 40), ("", 0)] {
                let automaton = contains(literal.as_bytes(), padding);
                let texts = chunk.texts(&automaton).unwrap();
                for (start, matching) in [(0, true), (0, false), (1024, true)] {
                    let rows = array.len().saturating_sub(start);
                    if rows == 0 {
                        continue;
                    }
                    let mut before = vec![0x7777_ffff_0000_fff1_u64; rows.div_ceil(64)];
                    if !rows.is_multiple_of(64) {
                        *before.last_mut().unwrap() &= (1 << (rows % 64)) - 1;
                    }
                    let mut alive = before.clone();
                    texts.retain(matching, start, &mut alive);
                    for row in 0..rows {
                        let found = text(start + row).contains(literal);
                        assert_eq!(automaton.is_match(text(start + row).as_bytes()), found);
                        let expected = before[row / 64] >> (row % 64) & 1 == 1 && found == matching;
                        assert_eq!(
                            alive[row / 64] >> (row % 64) & 1 == 1,
                            expected,
                            "{:?}",
                            text(start + row)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn automata_that_lead_nowhere_are_refused() {
        assert!(Automaton::new(0, vec![[1; 256]], vec![true]).is_none());
        assert!(Automaton::new(1, vec![[0; 256]], vec![true]).is_none());
        assert!(Automaton::new(0, vec![[0; 256]; STATES_MAX + 1], vec![true; STATES_MAX + 1]).is_none());
    }
}

//! The transitions of an automaton for LIKE, as tables of the next state by code (a byte, or an FSST symbol) and
//! state.
//!
//! Invariant: every state in a table is a state of that table, so that a look-up needs no check.

use super::Automaton;
use super::repeats::Repeats;
use crate::fsst_text::SymbolTable;
use crate::kernels::{SLOT, Thinned};
use fsst::ESCAPE_CODE;

/// Number of rows that advance through the automaton together. Reason: enough to hide the latency of a table look-up,
/// and few enough to fit the registers.
pub(super) const LANES: usize = 6;

/// Number of rows that advance together if all strings were copied to slots of fixed size. More than [`LANES`],
/// because the addresses of slots take no registers.
pub(super) const THINNED_LANES: usize = 8;

/// Table of the next state by code and state, for up to 32, 64 or 128 states.
#[derive(Debug)]
pub(super) enum Steps {
    Few(Box<Table<32>>),
    Some(Box<Table<64>>),
    Many(Box<Table<128>>),
}

#[derive(Debug)]
pub(super) struct Table<const STATES: usize>([[u8; STATES]; 256]);

impl Steps {
    /// Computes the steps for bytes, or for the codes of `symbols`.
    pub fn new(automaton: &Automaton, symbols: Option<&SymbolTable>) -> Steps {
        let states = automaton.next.len() * if symbols.is_some() { 2 } else { 1 };
        match states {
            0..=32 => Steps::Few(Table::new(automaton, symbols)),
            33..=64 => Steps::Some(Table::new(automaton, symbols)),
            _ => Steps::Many(Table::new(automaton, symbols)),
        }
    }

    /// Returns the codes of which only the first of consecutive ones matters, if `data` has many. `accepts` tells for
    /// each state that does not follow an escape whether it accepts.
    pub fn repeats(&self, accepts: &[bool], data: &[u8]) -> Option<Repeats> {
        match self {
            Steps::Few(table) => Repeats::find(|code| &table.0[code], accepts, data),
            Steps::Some(table) => Repeats::find(|code| &table.0[code], accepts, data),
            Steps::Many(table) => Repeats::find(|code| &table.0[code], accepts, data),
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
        // The remainder never changes the state. It shows the compiler that the index is within the table.
        self.0[usize::from(code)][usize::from(state) % STATES]
    }

    /// Returns the states after `codes`, each from `start`.
    pub fn run(&self, start: u8, codes: [&[u8]; LANES]) -> [u8; LANES] {
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

    /// Returns the states after [`THINNED_LANES`] strings from index `first` on, a multiple of that number, each from
    /// state `start`. Shorter strings are continued by their pad codes, which do not change the result.
    pub fn run_thinned(&self, start: u8, strings: &Thinned, first: usize) -> [u8; THINNED_LANES] {
        let (lengths, slots) = strings.some::<THINNED_LANES>(first / THINNED_LANES);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut states = [usize::from(start); THINNED_LANES];
        for at in 0..usize::from(longest).min(SLOT) {
            for (state, slot) in states.iter_mut().zip(slots) {
                *state = usize::from(self.0[usize::from(slot[at])][*state % STATES]);
            }
        }
        states.map(|state| state as u8)
    }
}

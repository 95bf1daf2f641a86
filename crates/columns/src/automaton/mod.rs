//! Deterministic finite automata over the bytes of strings, for LIKE. They run over compressed strings without
//! decompressing them, because the effect of each FSST symbol on each state is computed once per chunk.
//!
//! For compressed strings, the automaton is composed with the symbol table: the step of a code is the sequence of steps
//! of its symbol's bytes. The FSST escape leads to a second copy of the current state, in which the next code is taken
//! as a literal byte.
//!
//! Most codes of most strings contain no part of the pattern, and lead to the same state however often they repeat.
//! Where such codes are frequent, all but the first of consecutive ones are dropped, 64 codes at a time, before the
//! automaton runs.

mod repeats;
mod steps;
#[cfg(test)]
mod tests;

use crate::arch::Level;
use crate::body::Body;
use crate::chunk::Chunk;
use crate::ends::Ends;
use crate::kernels::{Thin, Thinned};
use fsst::ESCAPE_CODE;
use repeats::Repeats;
use steps::{LANES, Steps, THINNED_LANES, Table};

/// Maximum number of states of an automaton. Reason: with escapes there are twice as many, and their steps for all 256
/// codes take 32 KiB, which fit the L1 cache.
const STATES_MAX: usize = 64;

/// A deterministic automaton over bytes that accepts or rejects a string at its end.
#[derive(Clone, Debug)]
pub struct Automaton {
    start: u8,
    /// For each state, the next state for each byte.
    next: Vec<[u8; 256]>,
    /// For each state, whether a string that ends in it is accepted.
    accepts: Vec<bool>,
}

impl Automaton {
    /// Creates the automaton with these transitions. Returns `None` if it has more than 64 states, or a transition
    /// leads to a state that does not exist.
    pub fn new(start: u8, next: Vec<[u8; 256]>, accepts: Vec<bool>) -> Option<Automaton> {
        let exists = |state: &u8| usize::from(*state) < next.len();
        let sound = next.len() <= STATES_MAX
            && accepts.len() == next.len()
            && exists(&start)
            && next.iter().flatten().all(exists);
        sound.then_some(Automaton { start, next, accepts })
    }

    /// Returns whether the automaton accepts `text`.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.accepts[usize::from(self.after(self.start, text))]
    }

    fn after(&self, state: u8, text: &[u8]) -> u8 {
        text.iter().fold(state, |state, byte| self.next[usize::from(state)][usize::from(*byte)])
    }
}

/// Strings of one chunk, with an automaton compiled for their stored form (plain or FSST codes).
#[derive(Debug)]
pub struct Texts<'a> {
    ends: &'a Ends,
    data: &'a [u8],
    steps: Steps,
    start: u8,
    accepts: Vec<bool>,
    /// Codes whose repetitions are dropped; `None` if too few would be.
    repeats: Option<Repeats>,
}

impl Chunk {
    /// Compiles `automaton` for the chunk's strings. Returns `None` unless the encoding is
    /// [`EncodingKind::PlainBytes`](crate::EncodingKind::PlainBytes) or
    /// [`EncodingKind::Fsst`](crate::EncodingKind::Fsst).
    pub fn texts(&self, automaton: &Automaton) -> Option<Texts<'_>> {
        let (ends, data, table) = match &self.body {
            Body::PlainBytes { ends, data } => (ends, data, None),
            Body::Fsst { table, ends, data, .. } => (ends, data, Some(&**table)),
            _ => return None,
        };
        let (steps, start) = (Steps::new(automaton, table), automaton.start);
        let repeats = steps.repeats(&automaton.accepts, data);
        Some(Texts { ends, data, steps, start, accepts: automaton.accepts.clone(), repeats })
    }
}

impl Texts<'_> {
    /// Clears the bits of rows that the automaton rejects; with `matching` false, of rows that it accepts.
    /// The result for NULL rows is unspecified. Bit 0 of `alive` is row `start`, a multiple of 1024. Rows whose bit is
    /// clear are not read.
    ///
    /// # Panics
    /// When `alive` has more words than the rows from `start` on need.
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
        // If a string was too long for its slot, later strings are likely to be, too, so that repeated codes are no
        // longer dropped.
        let mut thinning = self.repeats.as_ref().map(|repeats| (repeats, Thinned::default()));
        for (index, alive) in alive.iter_mut().enumerate() {
            if *alive == 0 {
                continue;
            }
            let bounds = &bounds[index * 64..rows.min(index * 64 + 64) + 1];
            let thinned = thinning
                .as_mut()
                .and_then(|(repeats, out)| self.accepted_thin(table, repeats, bounds, *alive, out));
            let accepted = thinned.unwrap_or_else(|| {
                thinning = None;
                self.accepted(table, bounds, *alive)
            });
            *alive &= if matching { accepted } else { !accepted };
        }
    }

    /// Returns those of the `selected` rows that the automaton accepts, as a bitmap. Several rows advance in turn, so
    /// that one waits for memory while others proceed.
    fn accepted<const STATES: usize>(&self, table: &Table<STATES>, bounds: &[u32], selected: u64) -> u64 {
        let codes = |row: usize| &self.data[bounds[row] as usize..bounds[row + 1] as usize];
        let (mut waiting, mut rest, mut accepted) = ([0; LANES], selected, 0);
        while rest != 0 {
            let mut count = 0;
            while rest != 0 && count < LANES {
                waiting[count] = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                count += 1;
            }
            // If there are fewer rows than lanes, the other lanes repeat the first row, and their results are
            // ignored.
            let rows: [usize; LANES] =
                std::array::from_fn(|lane| waiting[if lane < count { lane } else { 0 }]);
            let states = table.run(self.start, rows.map(codes));
            for (row, state) in rows.into_iter().zip(states) {
                accepted |= u64::from(self.accepts(state)) << row;
            }
        }
        accepted
    }

    /// Computes the accepted rows as [`Self::accepted`] does, after dropping repeated codes. Returns `None` if a string
    /// is still too long for its slot.
    fn accepted_thin<const STATES: usize>(
        &self,
        table: &Table<STATES>,
        repeats: &Repeats,
        bounds: &[u32],
        selected: u64,
        out: &mut Thinned,
    ) -> Option<u64> {
        let Repeats { codes, pad } = repeats;
        let thin =
            Thin { data: self.data, bounds, selected, set: codes, escape: ESCAPE_CODE, pad: *pad, out };
        let count = Level::best().run(thin)?;
        let mut accepted = 0;
        for first in (0..count).step_by(THINNED_LANES) {
            let states = table.run_thinned(self.start, out, first);
            for (lane, state) in states.into_iter().enumerate() {
                accepted |= u64::from(self.accepts(state)) << (first + lane);
            }
        }
        Some(spread(accepted, selected))
    }

    fn accepts(&self, state: u8) -> bool {
        // In an intact chunk a byte follows every escape, so that no string ends in an escape state.
        self.accepts.get(usize::from(state)).copied().unwrap_or(false)
    }
}

/// Moves the n-th lowest bit of `packed` to the position of the n-th set bit of `places`, for all n.
fn spread(mut packed: u64, places: u64) -> u64 {
    if places == u64::MAX {
        return packed;
    }
    let (mut out, mut rest) = (0, places);
    while rest != 0 {
        out |= (packed & 1) << rest.trailing_zeros();
        packed >>= 1;
        rest &= rest - 1;
    }
    out
}

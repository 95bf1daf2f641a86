//! Deterministic automata over the bytes of strings, run over strings as they lie: compressed ones are not
//! decompressed, because what a symbol does to a state is worked out once for each symbol of a chunk.
//!
//! The idea of running over codes is that of a composed automaton: the step of a code is the steps of its
//! symbol's bytes, one after the other. An escape leads to a second copy of its state, in which the next code is
//! taken for the byte that it is.
//!
//! Most codes of most texts have nothing to do with what is looked for, and lead back to where no part of it has
//! been seen, however many of them come. Where many are so, all but the first of each row of them are left out, 64 at
//! a time, before the automaton runs.

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

/// States that an automaton may have: steps of all codes from twice as many, 32 KiB, lie in the L1 cache.
const STATES_MAX: usize = 64;

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
    /// Codes that are worth leaving out.
    repeats: Option<Repeats>,
}

impl Chunk {
    /// The chunk's strings for `automaton`, if they lie one after another, be it compressed.
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
        // Of strings that were too long once, others are likely to be.
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

    /// Those of the `selected` rows to which the automaton says yes. Some rows advance in turns, so that one waits
    /// for memory while others move.
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
            // Lanes that are left over do the work of the first once more.
            let rows: [usize; LANES] =
                std::array::from_fn(|lane| waiting[if lane < count { lane } else { 0 }]);
            let states = table.run(self.start, rows.map(codes));
            for (row, state) in rows.into_iter().zip(states) {
                accepted |= u64::from(self.accepts(state)) << row;
            }
        }
        accepted
    }

    /// As [`Self::accepted`], over what is left of the rows without repeated codes; `None` if that is too much.
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
        // Behind an escape there is a byte, or the chunk would not be sound.
        self.accepts.get(usize::from(state)).copied().unwrap_or(false)
    }
}

/// Writes the lowest bits of `packed`, one per set bit of `places`, where those are.
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

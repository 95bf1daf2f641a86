//! The order in which the sides of a comparison run: in turns (A B C, A B C, …), so that what else the machine does
//! in the meantime affects all of them alike.

use crate::stats;

/// One run of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Index of the side.
    pub side: usize,
    /// Number of the round, from 0.
    pub round: usize,
    /// Whether the run counts, rather than being a warm-up.
    pub counts: bool,
}

/// Returns the turns of a number of sides for `runs` counted rounds.
pub fn turns(sides: usize, runs: usize) -> impl Iterator<Item = Turn> {
    (0..runs).flat_map(move |round| (0..sides).map(move |side| Turn { side, round, counts: true }))
}

/// Returns the turns of a number of sides for a round that does not count, and then `runs` counted ones.
pub fn turns_after_warm_up(sides: usize, runs: usize) -> impl Iterator<Item = Turn> {
    turns(sides, runs + 1).map(|turn| Turn { counts: turn.round > 0, ..turn })
}

/// The counted samples of each side.
#[derive(Clone, Debug)]
pub struct Samples<S>(Vec<Option<Vec<S>>>);

impl<S> Samples<S> {
    /// Creates an empty collection of samples for a number of sides.
    pub fn new(sides: usize) -> Samples<S> {
        Samples((0..sides).map(|_| Some(Vec::new())).collect())
    }

    /// Adds the sample of a turn, if the turn counts.
    pub fn add(&mut self, turn: Turn, sample: S) {
        if let Some(samples) = self.0[turn.side].as_mut().filter(|_| turn.counts) {
            samples.push(sample);
        }
    }

    /// Drops the samples of a side that has failed, which runs no more.
    pub fn leave_out(&mut self, side: usize) {
        self.0[side] = None;
    }

    /// Returns whether a side has failed.
    pub fn is_left_out(&self, side: usize) -> bool {
        self.0[side].is_none()
    }

    /// Returns the samples of a side; none if it was left out.
    pub fn of(&self, side: usize) -> &[S] {
        self.0[side].as_deref().unwrap_or_default()
    }

    /// Returns the median of a value over the samples of a side.
    pub fn median(&self, side: usize, value: impl Fn(&S) -> f64) -> f64 {
        stats::median_of(self.of(side), value)
    }

    /// Returns the samples of all sides; `None` for those left out.
    pub fn into_sides(self) -> impl Iterator<Item = Option<Vec<S>>> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{Samples, turns, turns_after_warm_up};

    #[test]
    fn sides_take_turns_and_a_warm_up_does_not_count() {
        let order: Vec<(usize, usize)> = turns(2, 2).map(|turn| (turn.round, turn.side)).collect();
        assert_eq!(order, [(0, 0), (0, 1), (1, 0), (1, 1)]);
        let mut samples = Samples::new(2);
        for turn in turns_after_warm_up(2, 3) {
            samples.add(turn, turn.round as f64);
        }
        assert_eq!((samples.of(0), samples.median(1, |sample| *sample)), (&[1.0, 2.0, 3.0][..], 2.0));
        samples.leave_out(0);
        assert!(samples.is_left_out(0) && samples.of(0).is_empty());
        assert_eq!(
            samples.into_sides().map(|side| side.map(|of| of.len())).collect::<Vec<_>>(),
            [None, Some(3)]
        );
    }
}

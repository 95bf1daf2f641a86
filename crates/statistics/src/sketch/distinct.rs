//! HyperLogLog: estimates the number of distinct values (Flajolet et al. 2007; M. Chiosa's thesis, ETH Zurich no.
//! 29551, section 4.2.1). Uses the estimator of Ertl 2017, which is unbiased for any number of values and needs no
//! tables.
//!
//! As in Apache DataSketches, the low bits of the first word of a value's hash select its register, and its rank is one
//! plus the number of leading zeros of the second word. While there are few values, their coupons are kept instead of
//! registers. A coupon combines the rank with the index of the register in the largest possible sketch. Coupons take
//! little memory, and estimates from them are nearly exact.
//!
//! Invariant: a state has coupons exactly while its values have at most [`coupons_max`] different coupons, so that it
//! does not depend on the order of values or merges.

use super::block::{BLOCK, Hashes};
use crate::arch::{Level, SPARE};
use std::collections::BTreeSet;

/// Number of bits of the register index in a coupon. The rank is in the bits above.
pub(crate) const COUPON_BITS: u32 = 26;

/// Maximum rank: that of 62 or more leading zeros.
pub(crate) const RANK_MAX: u8 = 63;

/// The HyperLogLog of a column.
#[derive(Clone, Debug)]
pub(crate) struct Distinct {
    precision: u8,
    state: State,
    /// Lower bound of all registers. Values with at most this rank cannot change a register.
    floor: u8,
    /// Number of values to add before `floor` is computed again.
    patience: usize,
}

/// Number of values between two computations of the floor: as many as the most common number of registers.
const PATIENCE: usize = 1 << 16;

/// Number of values that are looked up in the set of coupons at once, before missing ones are inserted.
const STEP: usize = 512;

#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Coupons (register index and rank), while there are few values.
    Few(Coupons),
    /// Registers: for each, the greatest rank of its values.
    Many(Vec<u8>),
}

/// Returns the maximum number of coupons of a sketch with 2^`precision` registers. They take half of the bytes of the
/// registers.
pub(crate) fn coupons_max(precision: u8) -> usize {
    1 << (precision - 3)
}

/// Returns the coupon of a hash given as two words.
#[inline(always)]
pub(crate) fn coupon(low: u64, high: u64) -> u32 {
    // A bit that is always set limits the leading zeros to 62.
    let rank = (high | 2).leading_zeros() + 1;
    rank << COUPON_BITS | low as u32 & ((1 << COUPON_BITS) - 1)
}

/// Minimum floor at which ranks are compared with the floor instead of the registers: then only one value in 16
/// passes.
const FLOOR_MIN: u8 = 4;

impl Distinct {
    pub fn new(precision: u8) -> Distinct {
        Distinct::from_state(precision, State::Few(Coupons::default()))
    }

    /// Creates a sketch with these coupons or registers, whose number must be right for `precision`.
    pub fn from_state(precision: u8, state: State) -> Distinct {
        Distinct { precision, state, floor: 0, patience: PATIENCE }
    }

    pub fn precision(&self) -> u8 {
        self.precision
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn bytes_held(&self) -> usize {
        match &self.state {
            State::Few(coupons) => coupons.table.capacity() * size_of::<u32>(),
            State::Many(registers) => registers.capacity(),
        }
    }

    /// Adds a block of values.
    pub fn update(&mut self, hashes: &Hashes) {
        let (low, high) = (hashes.low(), hashes.high());
        let mut few = 0;
        while few < low.len() && matches!(self.state, State::Few(_)) {
            let next = low.len().min(few + STEP);
            self.update_few(&low[few..next], &high[few..next]);
            few = next;
        }
        if let State::Many(registers) = &mut self.state {
            let mut passing = [0; BLOCK + SPARE];
            let compared = (self.floor < FLOOR_MIN).then_some(&registers[..]);
            let hashes = (&low[few..], &high[few..]);
            let count = Level::best().passing(hashes, self.floor, compared, &mut passing);
            passing[..count].iter().for_each(|coupon| raise(registers, *coupon));
            self.look_for_floor(hashes.0.len());
        }
    }

    /// Adds up to [`STEP`] values. Most values are repetitions; those in the set of coupons are found without a branch.
    fn update_few(&mut self, low: &[u64], high: &[u64]) {
        let State::Few(coupons) = &self.state else { return };
        let mut missing = [0; STEP + SPARE];
        let count = match coupons.table.is_empty() {
            true => {
                missing.iter_mut().zip(low.iter().zip(high)).for_each(|(to, (l, h))| *to = coupon(*l, *h));
                low.len()
            }
            false => Level::best().missing((low, high), &coupons.table, &mut missing),
        };
        missing[..count].iter().for_each(|coupon| self.insert(*coupon));
    }

    fn look_for_floor(&mut self, values: usize) {
        self.patience = self.patience.saturating_sub(values);
        if self.patience == 0 {
            self.patience = PATIENCE;
            if let State::Many(registers) = &self.state {
                self.floor = registers.iter().copied().min().unwrap_or(0);
            }
        }
    }

    /// Merges another sketch of the same precision into this one.
    pub fn merge(&mut self, other: &Distinct) {
        match &other.state {
            State::Few(coupons) => coupons.iter().for_each(|coupon| self.insert(coupon)),
            State::Many(theirs) => {
                let ours = self.registers();
                ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = (*ours).max(*theirs));
            }
        }
    }

    /// Adds one coupon.
    pub fn insert(&mut self, coupon: u32) {
        match &mut self.state {
            State::Few(coupons) => {
                coupons.insert(coupon);
                self.settle();
            }
            State::Many(registers) => raise(registers, coupon),
        }
    }

    /// Converts coupons to registers if there are more than [`coupons_max`].
    fn settle(&mut self) {
        if matches!(&self.state, State::Few(coupons) if coupons.len > coupons_max(self.precision)) {
            self.registers();
        }
    }

    /// Returns the registers. Converts the coupons to registers first if the sketch still has coupons.
    pub fn registers(&mut self) -> &mut Vec<u8> {
        if let State::Few(coupons) = &self.state {
            let mut registers = vec![0; 1 << self.precision];
            for coupon in coupons.iter() {
                raise(&mut registers, coupon);
            }
            self.state = State::Many(registers);
        }
        match &mut self.state {
            State::Many(registers) => registers,
            State::Few(_) => unreachable!("they were just made"),
        }
    }

    /// Returns the number of distinct coupons, which is nearly the number of distinct values; `None` if the sketch
    /// has registers.
    pub fn few(&self) -> Option<usize> {
        match self.state() {
            State::Few(coupons) => Some(coupons.len()),
            State::Many(_) => None,
        }
    }

    /// Returns the estimated number of distinct values, and its lower and upper bound at [`crate::bounds::CONFIDENCE`].
    pub fn estimate(&self) -> (f64, f64, f64) {
        match &self.state {
            State::Few(coupons) => coupons.estimate(),
            State::Many(registers) => {
                let (value, error) = (estimate(registers), crate::bounds::distinct_error(self.precision));
                (value, value / (1.0 + error), value / (1.0 - error))
            }
        }
    }
}

/// Raises a coupon's register to its rank, if that is greater.
#[inline(always)]
fn raise(registers: &mut [u8], coupon: u32) {
    let (place, rank) = (coupon as usize & (registers.len() - 1), (coupon >> COUPON_BITS) as u8);
    registers[place] = registers[place].max(rank);
}

/// Computes Ertl's improved raw estimator (algorithm 6 of *New cardinality estimation algorithms for HyperLogLog
/// sketches*, arXiv 1702.01284).
pub(crate) fn estimate(registers: &[u8]) -> f64 {
    let mut of_rank = [0_u32; RANK_MAX as usize + 1];
    registers.iter().for_each(|rank| of_rank[usize::from(*rank)] += 1);
    let m = registers.len() as f64;
    let last = usize::from(RANK_MAX);
    let saturated = m * tau(1.0 - f64::from(of_rank[last]) / m);
    let sum = (1..last).rev().fold(saturated, |sum, rank| 0.5 * (sum + f64::from(of_rank[rank])));
    m * m / (2.0 * std::f64::consts::LN_2 * (sum + m * sigma(f64::from(of_rank[0]) / m)))
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// Set of coupons: a hash table with open addressing, at most half full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coupons {
    /// Slots; 0 if free. No coupon is 0, because ranks are at least 1.
    table: Vec<u32>,
    len: usize,
}

impl Coupons {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.table.iter().copied().filter(|coupon| *coupon != 0)
    }

    /// Returns the coupons in ascending order.
    pub fn sorted(&self) -> Vec<u32> {
        self.iter().collect::<BTreeSet<u32>>().into_iter().collect()
    }

    #[inline]
    pub fn insert(&mut self, coupon: u32) {
        if 2 * self.len >= self.table.len() {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let mut place = coupon as usize & mask;
        while self.table[place] != 0 {
            if self.table[place] == coupon {
                return;
            }
            place = (place + 1) & mask;
        }
        self.table[place] = coupon;
        self.len += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![0; (2 * self.table.len()).max(8)];
        let old = std::mem::replace(&mut self.table, larger);
        self.len = 0;
        old.into_iter().filter(|coupon| *coupon != 0).for_each(|coupon| self.insert(coupon));
    }

    /// Estimates the number of values from the number of coupons. Two values have the same coupon with a probability of
    /// 1 in 3 · 2^26: they must have the same register index, and in a third of these cases also the same rank.
    fn estimate(&self) -> (f64, f64, f64) {
        let count = self.len as f64;
        let hidden = count * count / (2.0 * 3.0 * f64::from(1_u32 << COUPON_BITS));
        let most = if hidden < 0.04 { 0.0 } else { hidden + 2.0 * hidden.sqrt() + 1.0 };
        (count + hidden, count, count + most)
    }
}

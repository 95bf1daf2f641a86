//! Redis' estimate of the number of distinct elements from the registers of a HyperLogLog: Otmar Ertl, "New
//! cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6.

use super::{INDEX_BITS, REGISTER_MASK, REGISTERS};

/// Maximum number of zeros that can follow in a hash after the bits of the register index.
const MOST_ZEROS: usize = 64 - INDEX_BITS as usize;

/// Limit of the estimator's bias constant for many registers: 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// Number of registers with each possible value.
pub(super) struct Histogram([u32; REGISTER_MASK as usize + 1]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([0; REGISTER_MASK as usize + 1])
    }
}

impl Histogram {
    pub fn add(&mut self, register: u8, count: usize) {
        self.0[usize::from(register & REGISTER_MASK)] += count as u32;
    }

    /// Returns the estimate. Ignores registers above the greatest possible value, which only bytes not written by
    /// Redis or this crate have.
    pub fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let share = |count: u32| f64::from(count) / registers;
        let mut sum = registers * tau((registers - f64::from(self.0[MOST_ZEROS + 1])) / registers);
        for count in self.0[1..=MOST_ZEROS].iter().rev() {
            sum = 0.5 * (sum + f64::from(*count));
        }
        sum += registers * sigma(share(self.0[0]));
        (ALPHA * registers * registers / sum).round() as u64
    }
}

/// Computes x + x^2 + 2 x^4 + 4 x^8 + …, which is infinite for 1.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut factor, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

/// Computes (1 - x - (1 - x^(1/2))^2 / 2 - (1 - x^(1/4))^2 / 4 - …) / 3.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut factor, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}

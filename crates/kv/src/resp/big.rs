//! Natural numbers of arbitrary size, for the exact conversion between decimal and binary floats. Simple and slow, as
//! usual numbers do not need them.

use std::cmp::Ordering;

/// A natural number in base 2³², the lowest digit first, without zeros at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BigNatural(Vec<u32>);

impl BigNatural {
    pub fn of(number: u64) -> Self {
        let mut big = Self(vec![number as u32, (number >> 32) as u32]);
        big.trim();
        big
    }

    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of binary digits.
    pub fn bits(&self) -> usize {
        32 * self.0.len() - self.0.last().map_or(0, |digit| digit.leading_zeros() as usize)
    }

    pub fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Multiplies by 10ⁿ.
    pub fn multiply_by_tens(&mut self, n: usize) {
        (0..n / 9).for_each(|_| self.multiply_add(1_000_000_000, 0));
        self.multiply_add(10_u32.pow((n % 9) as u32), 0);
    }

    pub fn shift_left(&mut self, bits: usize) {
        if self.is_zero() {
            return;
        }
        self.multiply_add(1 << (bits % 32), 0);
        self.0.splice(0..0, std::iter::repeat_n(0, bits / 32));
    }

    /// Divides by 2ⁿ, rounding down; returns whether there was a remainder.
    pub fn shift_right(&mut self, bits: usize) -> bool {
        let whole = (bits / 32).min(self.0.len());
        let mut is_inexact = self.0.drain(..whole).any(|digit| digit != 0);
        let mut above = 0;
        for digit in self.0.iter_mut().rev() {
            let both = (u64::from(above) << 32 | u64::from(*digit)) >> (bits % 32);
            above = *digit;
            *digit = both as u32;
        }
        is_inexact |= above & ((1_u32 << (bits % 32)) - 1) != 0;
        self.trim();
        is_inexact
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (place, digit) in self.0.iter_mut().enumerate() {
            let other = other.0.get(place).copied().unwrap_or(0);
            let (difference, first) = digit.overflowing_sub(other);
            let (difference, second) = difference.overflowing_sub(u32::from(borrow));
            *digit = difference;
            borrow = first || second;
        }
        self.trim();
    }

    /// Divides by a number other than zero; the quotient must have at most 128 bits. Returns the quotient and whether
    /// there was a remainder.
    pub fn divide(mut self, divisor: &Self) -> (u128, bool) {
        let places = self.bits().saturating_sub(divisor.bits());
        let mut part = divisor.clone();
        part.shift_left(places);
        let mut quotient = 0;
        for _ in 0..=places {
            quotient <<= 1;
            if self.compare(&part) != Ordering::Less {
                self.subtract(&part);
                quotient |= 1;
            }
            part.shift_right(1);
        }
        (quotient, !self.is_zero())
    }

    fn compare(&self, other: &Self) -> Ordering {
        let digits = || self.0.iter().rev().cmp(other.0.iter().rev());
        self.0.len().cmp(&other.0.len()).then_with(digits)
    }

    /// Returns the number if it has at most 128 bits.
    pub fn to_u128(&self) -> Option<u128> {
        let add = |number: u128, digit: &u32| number << 32 | u128::from(*digit);
        (self.0.len() <= 4).then(|| self.0.iter().rev().fold(0, add))
    }

    /// Returns the decimal digits.
    pub fn into_text(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0;
            for digit in self.0.iter_mut().rev() {
                let both = rest << 32 | u64::from(*digit);
                *digit = (both / 1_000_000_000) as u32;
                rest = both % 1_000_000_000;
            }
            self.trim();
            groups.push(rest);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        groups.iter().rev().for_each(|group| text += &format!("{group:09}"));
        text
    }

    fn trim(&mut self) {
        let zeros = self.0.iter().rev().take_while(|&&digit| digit == 0).count();
        self.0.truncate(self.0.len() - zeros);
    }
}

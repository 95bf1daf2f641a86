//! Loops over the values of lanes (64-bit integers), compiled for each level of CPU instructions.

use farpool_columns::{Kernel, Level, Simd};
use farpool_model::CompareOp;

/// Writes `f` of each value.
pub(super) struct Map<'a, F> {
    pub(super) input: &'a [i64],
    pub(super) out: &'a mut [i64],
    pub(super) f: F,
}

impl<F: Fn(i64) -> i64> Kernel for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.out.iter_mut().zip(self.input).for_each(|(out, value)| *out = (self.f)(*value));
    }
}

/// Writes `f` of each pair of values.
pub(super) struct Zip<'a, F> {
    pub(super) left: &'a [i64],
    pub(super) right: &'a [i64],
    pub(super) out: &'a mut [i64],
    pub(super) f: F,
}

impl<F: Fn(i64, i64) -> i64> Kernel for Zip<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pairs = self.left.iter().zip(self.right);
        self.out.iter_mut().zip(pairs).for_each(|(out, (left, right))| *out = (self.f)(*left, *right));
    }
}

/// Clears the bits of rows for which `left op right` is false.
pub(crate) fn retain_compared(op: CompareOp, left: &[i64], right: &[i64], alive: &mut [u64]) {
    let (left, right, at_most) = match op {
        CompareOp::LtEq => (left, right, true),
        CompareOp::Gt => (left, right, false),
        CompareOp::GtEq => (right, left, true),
        CompareOp::Lt => (right, left, false),
        CompareOp::Eq | CompareOp::NotEq => {
            let inside = op == CompareOp::Eq;
            return Level::best().run(Retain { left, right, key: |l, r| (l ^ r, 0), inside, alive });
        }
    };
    // After the sign bits are flipped, comparing the bits as unsigned numbers gives the signed order.
    let key = |l: i64, r: i64| (l ^ i64::MIN, r ^ i64::MIN);
    Level::best().run(Retain { left, right, key, inside: at_most, alive });
}

/// Kernel that keeps the bits of rows where the first of the pair's keys, as unsigned numbers, is at most the second.
/// With `inside` false, keeps the bits of the other rows.
struct Retain<'a, F> {
    left: &'a [i64],
    right: &'a [i64],
    key: F,
    inside: bool,
    alive: &'a mut [u64],
}

impl<F: Fn(i64, i64) -> (i64, i64)> Kernel for Retain<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let turned = if self.inside { 0 } else { u64::MAX };
        let rows = self.left.chunks(64).zip(self.right.chunks(64));
        for ((left, right), alive) in rows.zip(self.alive) {
            if *alive == 0 {
                continue;
            }
            let (mut lefts, mut rights) = ([0u64; 64], [0u64; 64]);
            let keys = lefts.iter_mut().zip(rights.iter_mut());
            for ((l, r), (left, right)) in keys.zip(left.iter().zip(right)) {
                let (a, b) = (self.key)(*left, *right);
                (*l, *r) = (a as u64, b as u64);
            }
            let mut bits = 0;
            let (left, right) = (lefts.as_chunks::<8>().0, rights.as_chunks::<8>().0);
            for (unit, (left, right)) in left.iter().zip(right).enumerate() {
                bits |= simd.at_most_u64(left, right) << (8 * unit);
            }
            *alive &= bits ^ turned;
        }
    }
}

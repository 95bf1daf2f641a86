//! Folds of integers (minimum, maximum, bitwise operations): the operation that combines a value with the running
//! value of its group.
//!
//! [`for_fold`] selects the operation outside of the loop over rows, so that each loop is compiled for one operation.

use farpool_model::{BitOp, Fold, Pick};

/// Integer type of the values of a fold: 64 bits for lanes (columns or expressions evaluated as 64-bit integers), 128
/// for accumulators.
pub(crate) trait Integer {
    const LEAST: Self;
    const GREATEST: Self;
    const ZEROS: Self;
    const ONES: Self;
}

impl Integer for i64 {
    const LEAST: i64 = i64::MIN;
    const GREATEST: i64 = i64::MAX;
    const ZEROS: i64 = 0;
    const ONES: i64 = -1;
}

impl Integer for i128 {
    const LEAST: i128 = i128::MIN;
    const GREATEST: i128 = i128::MAX;
    const ZEROS: i128 = 0;
    const ONES: i128 = -1;
}

/// Returns the neutral element of `fold`, which a group has before its first value.
pub(super) fn neutral<I: Integer>(fold: Fold) -> I {
    match fold {
        Fold::Pick(Pick::Least) => I::GREATEST,
        Fold::Pick(Pick::Greatest | Pick::Any) => I::LEAST,
        Fold::Bits(BitOp::And) => I::ONES,
        Fold::Bits(BitOp::Or | BitOp::Xor) => I::ZEROS,
    }
}

/// Evaluates `$body` with `$combine` bound to the function that combines two integers by `$fold`. `Pick::Any` is
/// implemented as the maximum, which costs the same as any other choice and needs no flag for whether there is a value.
macro_rules! for_fold {
    ($fold:expr, $combine:ident => $body:expr) => {{
        use farpool_model::{BitOp, Fold, Pick};
        match $fold {
            Fold::Pick(Pick::Least) => {
                let $combine = |held, value| Ord::min(held, value);
                $body
            }
            Fold::Pick(Pick::Greatest | Pick::Any) => {
                let $combine = |held, value| Ord::max(held, value);
                $body
            }
            Fold::Bits(BitOp::And) => {
                let $combine = |held, value| held & value;
                $body
            }
            Fold::Bits(BitOp::Or) => {
                let $combine = |held, value| held | value;
                $body
            }
            Fold::Bits(BitOp::Xor) => {
                let $combine = |held, value| held ^ value;
                $body
            }
        }
    }};
}

pub(super) use for_fold;

/// Combines two integers. For single values; loops use [`for_fold`].
pub(super) fn combine(fold: Fold, held: i128, value: i128) -> i128 {
    for_fold!(fold, of_two => of_two(held, value))
}

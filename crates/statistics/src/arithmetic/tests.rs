//! Tests of checked arithmetic against the same operations in 128 bits, and of error messages.

use super::*;
use arrow_array::{ArrowPrimitiveType, Int64Array, PrimitiveArray, UInt32Array};
use farpool_model::literal::integer_range;
use farpool_model::with_integer;
use proptest::prelude::*;
use std::sync::Arc;

const OPS: [ArithmeticOp; 5] = [
    ArithmeticOp::Add,
    ArithmeticOp::Subtract,
    ArithmeticOp::Multiply,
    ArithmeticOp::Divide,
    ArithmeticOp::Modulo,
];

const INTEGERS: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
];

fn array(data_type: &DataType, values: &[Option<i128>]) -> ArrayRef {
    with_integer!(
        data_type,
        T => {
            type Native = <T as ArrowPrimitiveType>::Native;
            let values: PrimitiveArray<T> = values.iter().map(|v| v.map(|v| v as Native)).collect();
            Arc::new(values.with_data_type(data_type.clone()))
        },
        panic!("{data_type}")
    )
}

fn values(array: &ArrayRef) -> Vec<Option<i128>> {
    with_integer!(
        array.data_type(),
        T => array.as_primitive::<T>().iter().map(|v| v.map(i128::from)).collect(),
        panic!("not integers")
    )
}

/// Computes the operation in 128 bits. These hold every result of 64-bit integers, except products of two unsigned
/// ones.
fn exact(op: ArithmeticOp, l: i128, r: i128) -> Option<i128> {
    match op {
        ArithmeticOp::Add => l.checked_add(r),
        ArithmeticOp::Subtract => l.checked_sub(r),
        ArithmeticOp::Multiply => l.checked_mul(r),
        ArithmeticOp::Divide => l.checked_div(r),
        ArithmeticOp::Modulo => l.checked_rem(r),
    }
}

fn extremes((min, max): (i128, i128)) -> Vec<i128> {
    let mut all: Vec<i128> = vec![min, min + 1, min / 2, -1, 0, 1, 2, 3, max / 2, max - 1, max];
    all.retain(|v| (min..=max).contains(v));
    all
}

/// Returns the expected result: computed one value at a time.
fn expected(
    op: ArithmeticOp,
    (min, max): (i128, i128),
    rows: impl Iterator<Item = (Option<i128>, Option<i128>)>,
) -> Option<Vec<Option<i128>>> {
    let one = |(l, r): (Option<i128>, Option<i128>)| match l.zip(r) {
        None => Some(None),
        Some((l, r)) => exact(op, l, r).filter(|v| (min..=max).contains(v)).map(Some),
    };
    rows.map(one).collect()
}

#[test]
fn extremes_of_every_integer_type_are_exact_or_an_error() {
    for data_type in INTEGERS {
        let range = integer_range(&data_type).unwrap();
        for op in OPS {
            for l in extremes(range) {
                for r in extremes(range) {
                    let (left, right) = (array(&data_type, &[Some(l)]), array(&data_type, &[Some(r)]));
                    let ours = arithmetic(op, &left, &right).map(|array| values(&array)).ok();
                    let twin = expected(op, range, [(Some(l), Some(r))].into_iter());
                    assert_eq!(ours, twin, "{data_type}: {l} {} {r}", op.symbol());
                }
            }
        }
        if range.0 < 0 {
            for v in extremes(range) {
                let ours = negative(&array(&data_type, &[Some(v), None])).map(|array| values(&array)).ok();
                assert_eq!(ours, (-v <= range.1).then(|| vec![Some(-v), None]), "{data_type}: -({v})");
            }
        }
    }
}

#[test]
fn decimals_keep_within_the_digits_of_their_type() {
    let all = |digits: u8| {
        let most = 10_i128.pow(digits.into()) - 1;
        (-most, most)
    };
    for (p1, s1, p2, s2) in
        [(38, 0, 38, 0), (38, 10, 20, 10), (20, 0, 20, 0), (15, 2, 15, 2), (38, 38, 38, 38), (19, 4, 25, 4)]
    {
        let (l_type, r_type) = (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2));
        // The decimals have one scale, so that sums and differences need no scaling.
        for op in [ArithmeticOp::Add, ArithmeticOp::Subtract, ArithmeticOp::Multiply] {
            let Ok(result) = arithmetic_type(op, &l_type, &r_type) else { continue };
            let DataType::Decimal128(digits, _) = result else { panic!("{result}") };
            if op != ArithmeticOp::Multiply && s1 != s2 {
                continue;
            }
            for l in extremes(all(p1)) {
                for r in extremes(all(p2)) {
                    let (left, right) = (array(&l_type, &[Some(l)]), array(&r_type, &[Some(r)]));
                    let ours = arithmetic(op, &left, &right);
                    let twin = expected(op, all(digits), [(Some(l), Some(r))].into_iter());
                    let shown = format!("{l_type} {l} {} {r_type} {r}", op.symbol());
                    assert_eq!(ours.as_ref().map(values).ok(), twin, "{shown}");
                    assert!(ours.is_err() || *ours.unwrap().data_type() == result, "{shown}");
                }
            }
        }
    }
}

#[test]
fn the_error_shows_the_values_and_says_what_to_do() {
    let both = |op, l: ArrayRef, r: ArrayRef| arithmetic(op, &l, &r).unwrap_err().to_string();
    let bigint = |values: Vec<Option<i64>>| Arc::new(Int64Array::from(values)) as ArrayRef;
    assert_eq!(
        both(
            ArithmeticOp::Add,
            bigint(vec![Some(1), None, Some(i64::MAX), Some(i64::MAX)]),
            bigint(vec![Some(1), Some(1), Some(2), Some(3)]),
        ),
        "bigint out of range: 9223372036854775807 + 2\n  cast one side to a wider type, e.g. DECIMAL(38,0)"
    );
    assert_eq!(
        both(ArithmeticOp::Divide, bigint(vec![Some(i64::MIN)]), bigint(vec![Some(-1)])),
        "bigint out of range: -9223372036854775808 / (-1)\n  cast one side to a wider type, e.g. DECIMAL(38,0)"
    );
    assert_eq!(both(ArithmeticOp::Modulo, bigint(vec![Some(1)]), bigint(vec![Some(0)])), "division by zero");
    let unsigned = |v| Arc::new(UInt32Array::from(vec![v])) as ArrayRef;
    assert_eq!(
        both(ArithmeticOp::Subtract, unsigned(0), unsigned(1)),
        "integer unsigned out of range: 0 - 1\n  cast one side to a wider type, e.g. BIGINT"
    );
    let wide = DataType::Decimal128(38, 2);
    let most = array(&wide, &[Some(10_i128.pow(38) - 1)]);
    assert_eq!(
        both(ArithmeticOp::Add, most.clone(), most),
        "decimal(38,2) out of range: 999999999999999999999999999999999999.99 + \
         999999999999999999999999999999999999.99\n  cast one side to a decimal of fewer digits, or to DOUBLE"
    );
    let error = negative(&bigint(vec![Some(7), Some(i64::MIN)])).unwrap_err().to_string();
    assert!(error.starts_with("bigint out of range: -(-9223372036854775808)\n"), "{error}");
    let (text, number) =
        (Arc::new(arrow_array::StringArray::from(vec!["a"])) as ArrayRef, bigint(vec![None]));
    assert!(arithmetic(ArithmeticOp::Add, &text, &number).is_err());
}

#[test]
fn what_a_null_stands_for_does_not_matter() {
    let nulls = arrow_buffer::NullBuffer::from(vec![false, true]);
    let long = Int64Array::new(vec![i64::MAX, 1].into(), Some(nulls.clone()));
    let sum = arithmetic(ArithmeticOp::Add, &long, &Int64Array::from(vec![1, 1])).unwrap();
    assert_eq!(values(&sum), [None, Some(2)]);
    let most = vec![10_i128.pow(38) - 1, 1];
    let decimals = PrimitiveArray::<Decimal128Type>::new(most.into(), Some(nulls))
        .with_data_type(DataType::Decimal128(38, 0));
    let ones = array(&DataType::Decimal128(38, 0), &[Some(1), Some(1)]);
    let sum = arithmetic(ArithmeticOp::Add, &decimals, &ones).unwrap();
    assert_eq!(values(&sum), [None, Some(2)]);
}

proptest! {
    #[test]
    fn arrays_and_constants_agree_with_the_plain_twin(
        data_type in prop::sample::select(INTEGERS.to_vec()),
        op in prop::sample::select(OPS.to_vec()),
        seeds in prop::collection::vec((any::<Option<i64>>(), any::<Option<i64>>(), 0..64u32), 1..40),
        constant in any::<bool>(),
    ) {
        let (min, max) = integer_range(&data_type).unwrap();
        let fit = |v: Option<i64>, shift: u32| v.map(|v| (i128::from(v) >> shift).clamp(min, max));
        let rows: Vec<_> = seeds.iter().map(|(l, r, shift)| (fit(*l, *shift), fit(*r, 64 - shift))).collect();
        let left: Vec<_> = rows.iter().map(|(l, _)| *l).collect();
        let right: Vec<_> = match constant {
            true => vec![rows[0].1; rows.len()],
            false => rows.iter().map(|(_, r)| *r).collect(),
        };
        let twin = expected(op, (min, max), left.iter().copied().zip(right.iter().copied()));
        let left = array(&data_type, &left);
        let ours = match constant {
            true => arithmetic(op, &left, &arrow_array::Scalar::new(array(&data_type, &right[..1]))),
            false => arithmetic(op, &left, &array(&data_type, &right)),
        };
        prop_assert_eq!(ours.map(|array| values(&array)).ok(), twin);
    }
}

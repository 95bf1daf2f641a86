//! Tests properties of sketches over random columns: against a naive implementation, for all ways in which a
//! column can be added, and for all ways in which parts are merged.

use super::*;
use arrow_array::types::Int32Type;
use arrow_array::*;
use farpool_model::cpu::Level;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn sketch_of(parameters: SketchParameters, array: &dyn Array) -> Sketch {
    let mut sketch = Sketch::new(parameters, array.data_type()).unwrap();
    sketch.update(array).unwrap();
    sketch
}

fn exact() -> SketchParameters {
    SketchParameters { top: 0, ..all() }
}

fn shapes() -> impl Strategy<Value = SketchParameters> {
    let counters = |bits: u8| (1..=8_u8, 4..=bits).prop_map(|(rows, precision)| Counters { rows, precision });
    (4..=12_u8, proptest::option::of(counters(16)), proptest::option::of(counters(15))).prop_map(
        |(distinct, frequency, second_moment)| SketchParameters {
            distinct: Some(distinct),
            frequency,
            second_moment,
            top: 0,
            quantiles: None,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn small_columns_are_counted_as_the_naive_twin_counts(values in vec(proptest::option::of(-40..40_i32), 0..3000)) {
        let sketch = sketch_of(all(), &Int32Array::from(values.clone()));
        let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
        values.iter().flatten().for_each(|v| *counts.entry(*v).or_default() += 1);
        let int = |v: i32| Literal::new(Value::Int(v.into()), DataType::Int32).unwrap();
        prop_assert_eq!(sketch.rows(), values.len() as u64);
        prop_assert_eq!(sketch.nulls(), values.iter().filter(|v| v.is_none()).count() as u64);
        prop_assert_eq!(sketch.minimum().cloned(), counts.keys().next().map(|v| int(*v)));
        prop_assert_eq!(sketch.maximum().cloned(), counts.keys().last().map(|v| int(*v)));
        let sum: i32 = values.iter().flatten().sum();
        let total = (!counts.is_empty()).then(|| Total::Integer(i128::from(sum).into()));
        prop_assert_eq!(sketch.sum(), total);
        prop_assert_eq!(sketch.distinct().unwrap().value, counts.len() as f64);
        for (value, count) in &counts {
            prop_assert_eq!(sketch.frequency(&int(*value)).unwrap().unwrap().value, *count as f64);
        }
        let most = counts.values().max().copied().unwrap_or(0) as f64;
        prop_assert_eq!(sketch.top(1).first().map_or(0.0, |(_, estimate)| estimate.value), most);
    }

    #[test]
    fn every_way_to_divide_and_merge_gives_the_same_state(
        parameters in shapes(),
        values in vec(proptest::option::of(any::<u64>()), 0..4000),
        cuts in vec(any::<prop::sample::Index>(), 0..4),
        backwards: bool,
    ) {
        let array = UInt64Array::from(values);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(array.len() + 1)).collect();
        cuts.extend([0, array.len()]);
        cuts.sort_unstable();
        let mut parts: Vec<Sketch> = cuts
            .windows(2)
            .map(|ends| sketch_of(parameters, &array.slice(ends[0], ends[1] - ends[0])))
            .collect();
        if backwards {
            parts.reverse();
        }
        let mut merged = Sketch::new(parameters, &DataType::UInt64).unwrap();
        for part in &parts {
            merged.merge(&Sketch::from_bytes(&part.to_bytes()).unwrap()).unwrap();
        }
        prop_assert_eq!(merged, sketch_of(parameters, &array));
    }

    #[test]
    fn a_column_is_the_same_in_any_dress(values in vec(proptest::option::of("[a-c]{0,20}"), 0..600)) {
        let plain = sketch_of(all(), &StringArray::from(values.clone()));
        let text: Vec<Option<&str>> = values.iter().map(|v| v.as_deref()).collect();
        let dictionary: DictionaryArray<Int32Type> = text.iter().copied().collect();
        let same: [ArrayRef; 3] = [
            Arc::new(StringViewArray::from(text.clone())),
            Arc::new(LargeStringArray::from(text.clone())),
            Arc::new(dictionary),
        ];
        for array in &same {
            let other = sketch_of(all(), array);
            prop_assert_eq!(&other.top(2), &plain.top(2));
            prop_assert_eq!((other.rows(), other.nulls()), (plain.rows(), plain.nulls()));
            prop_assert_eq!(other.distinct(), plain.distinct());
            prop_assert_eq!(other.second_moment(), plain.second_moment());
            prop_assert_eq!((other.minimum(), other.maximum()), (plain.minimum(), plain.maximum()));
        }
    }

    #[test]
    fn decimals_and_floats_add_up(values in vec(proptest::option::of(-1_000_000..1_000_000_i64), 0..3000)) {
        let sum: i64 = values.iter().flatten().sum();
        let wide = values.iter().map(|v| v.map(|v| i128::from(v) << 70));
        let decimals = Decimal128Array::from_iter(wide).with_precision_and_scale(38, 2).unwrap();
        let floats = Float64Array::from_iter(values.iter().map(|v| v.map(|v| v as f64)));
        let (decimals, floats) = (sketch_of(exact(), &decimals), sketch_of(exact(), &floats));
        if let Some(total) = floats.sum() {
            prop_assert_eq!(total, Total::Float(sum as f64));
            prop_assert_eq!(decimals.sum().unwrap(), Total::Integer((i128::from(sum) << 70).into()));
        }
        let distinct = |sketch: &Sketch| sketch.distinct().unwrap().value;
        prop_assert!((distinct(&decimals) - distinct(&floats)).abs() <= 1.0);
        prop_assert_eq!(decimals.nulls(), floats.nulls());
    }

    #[test]
    fn hostile_bytes_are_refused(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(Sketch::from_bytes(&bytes).is_err());
        // With a valid checksum, the decoder itself must cope with the changed bytes: it may return anything, but not
        // panic.
        let _ = Sketch::from_bytes(&crate::sealed(bytes));
    }
}

#[test]
fn special_floats_are_one_value_each() {
    let other_nan = f64::from_bits(0xfff8_0000_0000_0001);
    let sketch = sketch_of(all(), &Float64Array::from(vec![0.0, -0.0, f64::NAN, other_nan, -1.0]));
    assert_eq!(sketch.distinct().unwrap().value, 3.0);
    assert_eq!(sketch.minimum().unwrap().value(), &Value::Float(-1.0));
    assert!(matches!(sketch.maximum().unwrap().value(), Value::Float(v) if v.is_nan()));
    assert!(matches!(sketch.sum(), Some(Total::Float(sum)) if sum.is_nan()));
    let zero = Literal::new(Value::Float(-0.0), DataType::Float64).unwrap();
    assert_eq!(sketch.frequency(&zero).unwrap().unwrap().value, 2.0);
    assert_eq!(Sketch::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
    let infinite = sketch_of(all(), &Float32Array::from(vec![1.0, f32::INFINITY]));
    assert_eq!(infinite.sum(), Some(Total::Float(f64::INFINITY)));
    assert_eq!(infinite.join_size(&sketch).unwrap().unwrap().value, 0.0);
}

/// The columns are long enough for byte counters to overflow, for coupons to become registers, and for registers to
/// have a floor.
#[test]
fn every_level_gives_the_state_of_the_scalar_twin() {
    let mut random = Random(5);
    let values: Vec<i64> =
        (0..400_000).map(|i| if i % 3 == 0 { random.zipf(2.0) } else { random.next() } as i64).collect();
    let parameters = SketchParameters { distinct: Some(8), ..exact() };
    // Values with counts are added by the plain loops, not by the kernels.
    let mut expected = Sketch::new(parameters, &DataType::Int64).unwrap();
    expected.update_counted(&Int64Array::from(values.clone()), &vec![1; values.len()]).unwrap();
    for level in Level::all() {
        let sketch = level.within(|| sketch_of(parameters, &Int64Array::from(values.clone())));
        assert!(sketch == expected, "{level:?}");
    }
}

#[test]
fn integers_that_wrap_do_not_join() {
    let big = sketch_of(exact(), &UInt64Array::from(vec![u64::MAX, 1]));
    let negative = sketch_of(exact(), &Int64Array::from(vec![-1, 1]));
    let positive = sketch_of(exact(), &Int64Array::from(vec![1, 1]));
    assert!(big.join_size(&negative).is_err() && negative.join_size(&big).is_err());
    assert_eq!(big.join_size(&positive).unwrap().unwrap().value, 2.0);
}

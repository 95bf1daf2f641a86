//! Tests the stated error bounds of sketches against exact counts, over many draws of values. The hash function
//! is fixed, so that different values take the place of different seeds.

use super::*;
use crate::Estimate;
use std::collections::HashMap;

const SMALL: Counters = Counters { rows: 5, precision: 8 };

/// Generates random values and returns how often each occurs; different seeds give different values.
fn draw(seed: u64, rows: usize, skew: Option<f64>) -> HashMap<i64, u64> {
    let mut random = Random(seed);
    let mut counts = HashMap::new();
    for _ in 0..rows {
        let value = match skew {
            Some(skew) => random.zipf(skew),
            None => random.next() % 4_000,
        };
        *counts.entry((seed << 32 | value) as i64).or_insert(0) += 1;
    }
    counts
}

fn sketched(counts: &HashMap<i64, u64>, parameters: SketchParameters) -> Sketch {
    let mut sketch = Sketch::new(parameters, &DataType::Int64).unwrap();
    let (values, counts): (Vec<i64>, Vec<u64>) = counts.iter().unzip();
    sketch.update_counted(&Int64Array::from(values), &counts).unwrap();
    sketch
}

fn small() -> SketchParameters {
    SketchParameters {
        distinct: Some(8),
        frequency: Some(SMALL),
        second_moment: Some(SMALL),
        top: 0,
        quantiles: None,
    }
}

struct Tally {
    inside: u32,
    all: u32,
    /// Sum of the relative errors of all estimates.
    errors: f64,
}

impl Tally {
    const NONE: Tally = Tally { inside: 0, all: 0, errors: 0.0 };

    fn add(&mut self, truth: f64, estimate: Estimate) {
        assert!(estimate.low <= estimate.value && estimate.value <= estimate.high, "{estimate:?}");
        self.inside += u32::from(estimate.low <= truth && truth <= estimate.high);
        self.all += 1;
        self.errors += (estimate.value / truth - 1.0).abs();
    }

    fn check(&self, what: &str, error_max: f64) {
        let share = f64::from(self.inside) / f64::from(self.all);
        assert!(share >= 0.94, "{what}: the bounds of {share} hold the truth");
        let error = self.errors / f64::from(self.all);
        assert!(error <= error_max, "{what}: the mean error is {error}");
    }
}

#[test]
fn distinct_counts_and_second_moments() {
    for skew in [None, Some(1.5), Some(2.0), Some(3.0)] {
        let (mut distinct, mut moment) = (Tally::NONE, Tally::NONE);
        for seed in 0..1_000 {
            let counts = draw(seed, 3_000, skew);
            let sketch = sketched(&counts, small());
            distinct.add(counts.len() as f64, sketch.distinct().unwrap());
            let truth = counts.values().map(|count| (count * count) as f64).sum();
            moment.add(truth, sketch.second_moment().unwrap());
        }
        distinct.check("distinct", 0.07);
        moment.check("second moment", 0.08);
    }
}

#[test]
fn frequencies() {
    for skew in [None, Some(1.5), Some(2.0)] {
        let mut tally = Tally::NONE;
        for seed in 0..100 {
            let counts = draw(seed, 3_000, skew);
            let sketch = sketched(&counts, small());
            let frequencies = sketch.frequencies();
            for (value, count) in counts.iter().take(30) {
                let literal = Literal::new(Value::Int((*value).into()), DataType::Int64).unwrap();
                let estimate = frequencies.of(&literal).unwrap().unwrap();
                assert!(estimate.high >= *count as f64, "Count-Min is never too low");
                tally.add(*count as f64, estimate);
            }
        }
        tally.check("frequency", f64::INFINITY);
    }
}

#[test]
fn sizes_of_joins() {
    for skew in [None, Some(1.5), Some(2.0)] {
        let mut tally = Tally::NONE;
        for seed in 0..400 {
            let one = draw(seed, 3_000, skew);
            let other: HashMap<i64, u64> = one.iter().map(|(value, c)| (value ^ 1, c + 1)).collect();
            let truth =
                one.iter().filter_map(|(v, c)| Some((c * other.get(v)?) as f64)).sum::<f64>().max(1.0);
            let (left, right) = (sketched(&one, small()), sketched(&other, small()));
            tally.add(truth, left.join_size(&right).unwrap().unwrap());
        }
        tally.check("join size", 0.3);
    }
}

#[test]
fn a_precise_sketch_is_as_good_as_the_thesis_says() {
    let (mut distinct, mut moment) = (Tally::NONE, Tally::NONE);
    for seed in 0..20 {
        let mut sketch = Sketch::new(all(), &DataType::Int64).unwrap();
        sketch.update(&Int64Array::from_iter_values((0..150_000).map(|i| seed << 32 | i))).unwrap();
        distinct.add(150_000.0, sketch.distinct().unwrap());
        moment.add(150_000.0, sketch.second_moment().unwrap());
    }
    distinct.check("distinct", 0.005);
    moment.check("second moment", 0.02);
}

/// Section 4.3.5 of M. Chiosa's thesis, ETH Zurich no. 29551: Count-Min is not trusted with many uniform values; with
/// skew it is trusted for frequent ones.
#[test]
fn count_min_is_trusted_while_values_are_few() {
    let few = sketched(&draw(1, 50_000, Some(3.0)), all());
    assert!(few.count_min_trust().trusted, "{}", few.count_min_trust());
    let mut many = Sketch::new(all(), &DataType::Int64).unwrap();
    many.update(&Int64Array::from_iter_values(0..100_000)).unwrap();
    let verdict = many.count_min_trust();
    assert!(!verdict.trusted && verdict.frequent_from.is_none(), "{verdict}");
    many.update(&Int64Array::from(vec![7; 50_000])).unwrap();
    let verdict = many.count_min_trust();
    assert!(!verdict.trusted && verdict.frequent_from.is_some_and(|from| from < 500.0), "{verdict}");
    assert!((many.top(1)[0].1.value / 50_001.0 - 1.0).abs() < 0.01);
    let blind = Sketch::new(SketchParameters { distinct: None, ..all() }, &DataType::Int64).unwrap();
    assert!(!blind.count_min_trust().trusted);
}

/// A sketch of 2^33 rows of the greatest and the least values: neither sums nor counters nor squares wrap around.
#[test]
fn long_streams_do_not_wrap() {
    let rows = 1_u64 << 33;
    let mut sketch = Sketch::new(all(), &DataType::UInt32).unwrap();
    sketch.update_counted(&UInt32Array::from(vec![u32::MAX, 0]), &[rows, rows]).unwrap();
    let total = i128::from(u32::MAX) << 33;
    assert_eq!(sketch.sum(), Some(Total::Integer(arrow_buffer::i256::from_i128(total))));
    assert_eq!(sketch.second_moment().unwrap().value, 2.0 * (rows as f64).powi(2));
    assert_eq!(sketch.top(2)[1].1.value, rows as f64);
    let mut sketch = Sketch::new(all(), &DataType::Int64).unwrap();
    for _ in 0..4 {
        sketch.update_counted(&Int64Array::from(vec![i64::MIN]), &[1 << 60]).unwrap();
    }
    let total = arrow_buffer::i256::from_i128(i128::from(i64::MIN) << 62);
    assert_eq!(sketch.sum(), Some(Total::Integer(total)));
    assert_eq!(sketch.second_moment().unwrap().value, 2_f64.powi(124));
    assert!(sketch.update(&Int64Array::from(vec![1])).is_err(), "one row too many");
    let other = sketch.clone();
    assert!(sketch.merge(&other).is_err());
    assert_eq!(Sketch::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
}

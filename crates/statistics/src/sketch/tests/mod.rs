//! Tests sketches of columns with known values against exact counts.

mod bounds_hold;
mod golden;
mod properties;

use super::*;
use arrow_array::{Int32Array, Int64Array, StringViewArray, UInt32Array};

const COUNTERS: Counters = Counters { rows: 6, precision: 13 };

/// A generator of the same numbers on every platform (Steele, Lea and Flood 2014: SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 1 on, with Zipf's distribution: its probability is proportional to its power of -`skew`.
    fn zipf(&mut self, skew: f64) -> u64 {
        let uniform = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        uniform.powf(-1.0 / (skew - 1.0)).min(1e9) as u64
    }
}

fn all() -> SketchParameters {
    SketchParameters {
        distinct: Some(16),
        frequency: Some(COUNTERS),
        second_moment: Some(COUNTERS),
        top: 8,
        quantiles: None,
    }
}

#[test]
fn a_small_column_is_nearly_exact() {
    let mut sketch = Sketch::new(all(), &DataType::Int64).unwrap();
    sketch.update(&Int64Array::from(vec![Some(3), None, Some(5), Some(3), Some(-1)])).unwrap();
    assert_eq!((sketch.rows(), sketch.nulls()), (5, 1));
    assert_eq!(sketch.minimum().unwrap().as_int(), Some(-1));
    assert_eq!(sketch.maximum().unwrap().as_int(), Some(5));
    assert_eq!(sketch.sum(), Some(Total::Integer(10.into())));
    assert_eq!(sketch.distinct().unwrap().value, 3.0);
    let three = Literal::new(Value::Int(3), DataType::Int64).unwrap();
    assert_eq!(sketch.frequency(&three).unwrap().unwrap().value, 2.0);
    assert_eq!(sketch.second_moment().unwrap().value, 6.0);
    assert_eq!(sketch.top(1)[0].0, three);
    assert!(sketch.count_min_trust().trusted);
    let bytes = sketch.to_bytes();
    assert!(bytes.len() < 250, "{} bytes for three values", bytes.len());
    assert_eq!(Sketch::from_bytes(&bytes).unwrap(), sketch);
}

#[test]
fn parts_merge_to_the_whole() {
    let values: Vec<u32> = (0..200_000_u32).map(|i| i.wrapping_mul(2_654_435_761) % 50_000).collect();
    let sketch = |values: &[u32]| {
        let mut sketch = Sketch::new(SketchParameters { top: 0, ..all() }, &DataType::UInt32).unwrap();
        sketch.update(&UInt32Array::from(values.to_vec())).unwrap();
        sketch
    };
    let mut merged = sketch(&values[150_000..]);
    merged.merge(&sketch(&values[..1_000])).unwrap();
    merged.merge(&sketch(&values[1_000..150_000])).unwrap();
    let whole = sketch(&values);
    assert!(merged == whole);
    assert!(Sketch::from_bytes(&whole.to_bytes()).unwrap() == whole);
    let distinct = whole.distinct().unwrap();
    assert!((distinct.value / 50_000.0 - 1.0).abs() < 0.01, "{distinct:?}");
}

#[test]
fn keys_of_different_widths_join() {
    let mut narrow = Sketch::new(all(), &DataType::Int32).unwrap();
    narrow.update(&Int32Array::from(vec![-1, 2, 2, 3])).unwrap();
    let mut wide = Sketch::new(all(), &DataType::Int64).unwrap();
    wide.update(&Int64Array::from(vec![2, 3, 3, -1, 9])).unwrap();
    assert_eq!(narrow.join_size(&wide).unwrap().unwrap().value, 5.0);
    let text = Sketch::new(all(), &DataType::Utf8).unwrap();
    assert!(narrow.join_size(&text).is_err());
}

#[test]
fn strings_are_counted() {
    let mut sketch = Sketch::new(all(), &DataType::Utf8).unwrap();
    sketch
        .update(&StringViewArray::from(vec![Some("b"), Some("a long string of more than 12"), None]))
        .unwrap();
    sketch.update(&arrow_array::StringArray::from(vec!["b"])).unwrap();
    let text = |text: &str| Literal::new(Value::Text(text.into()), DataType::Utf8View).unwrap();
    assert_eq!(sketch.frequency(&text("b")).unwrap().unwrap().value, 2.0);
    assert_eq!(sketch.top(9).len(), 2);
    assert_eq!(sketch.top(1)[0].0, text("b"));
    assert_eq!(sketch.minimum(), Some(&text("a long string of more than 12")));
}

#[test]
fn too_few_bits_are_refused() {
    let with = |frequency, second_moment| {
        check(&SketchParameters { frequency, second_moment, ..SketchParameters::default() })
    };
    let counters = |rows, precision| Some(Counters { rows, precision });
    assert!(with(counters(8, 16), None).is_ok());
    assert!(with(counters(10, 13), None).is_err());
    assert!(with(None, counters(8, 15)).is_ok());
    assert!(with(None, counters(8, 16)).is_err(), "the sign takes a bit as well");
    assert!(with(counters(0, 13), None).is_err());
    assert!(check(&SketchParameters { top: 3, ..SketchParameters::default() }).is_err());
}

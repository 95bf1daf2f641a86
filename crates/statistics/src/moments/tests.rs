use super::*;
use arrow_array::{Float64Array, Int32Array};
use std::sync::Arc;

#[test]
fn answers_on_a_line() {
    let mut moments = Moments::new(&[DataType::Int32, DataType::Float64], NullHandling::Pairwise).unwrap();
    let x = Int32Array::from(vec![Some(1), Some(2), None, Some(4)]);
    let y = Float64Array::from(vec![Some(3.0), Some(5.0), Some(100.0), Some(9.0)]);
    moments.update(&[Arc::new(x), Arc::new(y)]).unwrap();
    assert_eq!((moments.count(0, 1), moments.count(1, 1)), (3, 4));
    assert_eq!(moments.correlation(0, 1), 1.0);
    let line = moments.regression(1, 0);
    assert!((line.slope - 2.0).abs() < 1e-12 && (line.intercept - 1.0).abs() < 1e-12, "{line:?}");
    let again = Moments::from_bytes(&moments.to_bytes()).unwrap();
    assert_eq!(again.to_bytes(), moments.to_bytes());
    assert_eq!(again.mean(1), 29.25);
}

//! The side of farpool's sketch library, with a partial sketch for each thread, which are merged; and the side of the
//! naive implementation.

use super::naive::Naive;
use anyhow::{Result, bail};
use arrow::array::{ArrayRef, UInt32Array};
use arrow::datatypes::DataType;
use farpool::model::{Literal, SketchParameters, Value};
use farpool_statistics::Sketch;
use std::sync::Arc;

/// Sketches all batches.
pub fn sketched(parameters: SketchParameters, batches: &[ArrayRef], threads: usize) -> Result<Sketch> {
    let part = |batches: &[ArrayRef]| -> Result<Sketch> {
        let mut sketch = Sketch::new(parameters, &DataType::UInt32)?;
        for batch in batches {
            sketch.update(batch)?;
        }
        Ok(sketch)
    };
    let share = batches.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = batches.chunks(share).map(|some| scope.spawn(move || part(some))).collect();
        let mut whole = Sketch::new(parameters, &DataType::UInt32)?;
        for part in parts {
            whole.merge(&part.join().expect("no sketch panics")?)?;
        }
        Ok(whole)
    })
}

/// Runs the naive implementation on as many threads independently; returns the first one's result, which is compared.
pub fn naively(parameters: SketchParameters, values: &[u32], threads: usize) -> Naive {
    let share = values.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = values
            .chunks(share)
            .map(|some| {
                scope.spawn(move || {
                    let mut naive = Naive::new(parameters);
                    naive.update(some);
                    naive
                })
            })
            .collect();
        parts.into_iter().next().expect("there are values").join().expect("the naive twin does not panic")
    })
}

/// Checks that the library's estimates equal the naive implementation's for the same rows.
pub fn compare(parameters: SketchParameters, values: &[u32], naive: &Naive) -> Result<()> {
    let values = &values[..naive.rows()];
    let part: ArrayRef = Arc::new(UInt32Array::from(values.to_vec()));
    let ours = sketched(parameters, &[part], 1)?;
    if let (Some(ours), Some(naive)) = (ours.second_moment(), naive.second_moment()) {
        // The library's estimate is never below the number of rows, as no second moment is.
        if ours.value != naive.max(values.len() as f64) {
            bail!("the second moment is {}, the naive twin's {naive}", ours.value);
        }
    }
    if let (Some(ours), Some(naive)) = (ours.distinct(), naive.distinct())
        && (ours.value / naive - 1.0).abs() > 0.02
    {
        bail!("{} values are distinct, by the naive twin {naive}", ours.value);
    }
    for value in values.iter().take(10) {
        let literal = Literal::new(Value::Int((*value).into()), DataType::UInt32)?;
        let ours = ours.frequency(&literal)?.map(|estimate| estimate.high);
        if ours != naive.frequency(*value) {
            bail!("{value} occurs at most {ours:?} times, by the naive twin {:?}", naive.frequency(*value));
        }
    }
    Ok(())
}

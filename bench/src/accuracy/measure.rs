//! Sketches of data sets whose counts are known, for many seeds.

use super::definition::{Definition, SketchDefinition};
use crate::machine::{self, Machine};
use crate::random::Random;
use anyhow::{Result, bail};
use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use farpool::model::{Literal, Value};
use farpool_statistics::{Estimate, Sketch};
use serde::Serialize;
use std::collections::HashMap;

/// Values of which the frequency is asked for, of each data set.
const ASKED: usize = 50;

/// Draws of which so many at least have to keep the bounds: they are stated with 95 %.
const KEPT_MIN: f64 = 0.93;

/// A run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub suite: String,
    pub date: String,
    pub machine: Machine,
    pub seeds: u64,
    pub lines: Vec<Line>,
}

/// The errors of one answer of one sketch over one data set.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    pub data: String,
    pub distinct: usize,
    pub rows: u64,
    pub sketch: String,
    /// Relative: the mean over the seeds, and the largest.
    pub error_mean: f64,
    pub error_most: f64,
    /// Estimates, and those whose bounds hold the truth.
    pub estimates: u32,
    pub kept: u32,
    pub goal: Option<f64>,
}

/// A data set: values and how often each occurs.
struct Data {
    name: String,
    values: Vec<i64>,
    counts: Vec<u64>,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let mut lines = Vec::new();
    let uniform = definition.uniform.iter().flat_map(|data| data.distinct.iter().map(|n| (data.times, *n)));
    for (times, distinct) in uniform {
        lines.extend(data_set(definition, |seed| uniform_data(seed, times, distinct))?);
    }
    let zipf = definition.zipf.iter().flat_map(|data| data.rows.iter().map(|rows| (data.skew, *rows)));
    for (skew, rows) in zipf {
        lines.extend(data_set(definition, |seed| zipf_data(seed, skew, rows))?);
    }
    eprint!("\r{:40}\r", "");
    let results = Results {
        suite: "sketch-accuracy".to_string(),
        date: machine::today(),
        machine: machine::machine(),
        seeds: definition.seeds,
        lines,
    };
    results.check()?;
    Ok(results)
}

impl Results {
    /// Bounds that do not hold fail the run: they are a promise, not a speed.
    fn check(&self) -> Result<()> {
        for line in self.lines.iter().filter(|line| line.estimates >= 100) {
            let kept = f64::from(line.kept) / f64::from(line.estimates);
            if kept < KEPT_MIN {
                bail!("{} of {}: {kept} of the bounds hold", line.sketch, line.data);
            }
        }
        Ok(())
    }
}

fn uniform_data(seed: u64, times: u64, distinct: u64) -> Data {
    let values = (0..distinct).map(|i| (seed << 40 | i) as i64).collect();
    let name = format!("{distinct} values, {times}× each");
    Data { name, values, counts: vec![times; distinct as usize] }
}

fn zipf_data(seed: u64, skew: f64, rows: u64) -> Data {
    let mut random = Random(seed);
    let mut counts: HashMap<u32, u64> = HashMap::new();
    (0..rows).for_each(|_| *counts.entry(random.zipf(skew)).or_default() += 1);
    let (values, counts) = counts.into_iter().map(|(v, c)| ((seed << 40 | u64::from(v)) as i64, c)).unzip();
    Data { name: format!("{rows} rows, Zipf {skew}"), values, counts }
}

/// A line for each of the sketches.
fn data_set(definition: &Definition, make: impl Fn(u64) -> Data) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for seed in 0..definition.seeds {
        let data = make(seed);
        if seed == 0 {
            eprint!("\r{:40}\r{} ", "", data.name);
            lines = definition.sketches.iter().map(|sketch| Line::new(&data, sketch)).collect();
        }
        for (sketch, line) in definition.sketches.iter().zip(&mut lines) {
            for (truth, estimate) in answers(sketch, &data)? {
                line.add(truth, estimate);
            }
        }
    }
    lines.iter_mut().for_each(|line| line.error_mean /= f64::from(line.estimates));
    Ok(lines)
}

/// What a sketch is about, and the truth beside its estimates: how many values there are, or how often some
/// of them occur, or else the second moment.
fn answers(definition: &SketchDefinition, data: &Data) -> Result<Vec<(f64, Estimate)>> {
    let parameters = definition.parameters();
    let mut sketch = Sketch::new(parameters, &DataType::Int64)?;
    sketch.update_counted(&Int64Array::from(data.values.clone()), &data.counts)?;
    if let Some(estimate) = sketch.distinct() {
        return Ok(vec![(data.values.len() as f64, estimate)]);
    }
    if parameters.frequency.is_none() {
        let truth = data.counts.iter().map(|count| (*count as f64).powi(2)).sum();
        return Ok(sketch.second_moment().map(|estimate| (truth, estimate)).into_iter().collect());
    }
    let mut answers = Vec::new();
    for (value, count) in data.values.iter().zip(&data.counts).take(ASKED) {
        let literal = Literal::new(Value::Int((*value).into()), DataType::Int64)?;
        answers.extend(sketch.frequency(&literal)?.map(|estimate| (*count as f64, estimate)));
    }
    Ok(answers)
}

impl Line {
    fn new(data: &Data, sketch: &SketchDefinition) -> Line {
        Line {
            data: data.name.clone(),
            distinct: data.values.len(),
            rows: data.counts.iter().sum(),
            sketch: sketch.name.clone(),
            goal: sketch.error_max,
            ..Line::default()
        }
    }

    fn add(&mut self, truth: f64, estimate: Estimate) {
        let error = (estimate.value / truth - 1.0).abs();
        self.error_mean += error;
        self.error_most = self.error_most.max(error);
        self.estimates += 1;
        self.kept += u32::from(estimate.low <= truth && truth <= estimate.high);
    }
}

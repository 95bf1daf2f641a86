//! Measures the errors of sketches on data sets with known counts, for many seeds.

use super::data::{self, Data, Family};
use super::definition::{Definition, SketchDefinition};
use crate::suite::Head;
use crate::text;
use anyhow::{Result, bail};
use arrow::datatypes::DataType;
use farpool::model::{Literal, SketchParameters, Value};
use farpool_statistics::{Estimate, Sketch};
use serde::Serialize;
use std::time::Instant;

/// Number of values of each data set whose frequency is estimated, and as many values that do not occur.
const ASKED: u64 = 32;

/// Number of values that are estimated where Fast-AGMS decides for each whether to trust the counts.
const ASKED_TRUSTED: u64 = 4;

/// Stated share of the estimates whose bounds contain the true value.
const STATED: f64 = 0.95;

/// Number of standard deviations by which the share may be lower: among thousands of lines, one is off by four by
/// chance.
const DEVIATIONS_MAX: f64 = 4.0;

/// Number of seeds whose errors are kept separately, for the figures.
const KEPT_SEEDS: u64 = 2;

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    /// The largest number of seeds of a data set.
    pub seeds: u64,
    pub elapsed_s: f64,
    pub lines: Vec<Line>,
}

/// Errors of one kind of estimate of one sketch over one data set.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub data: String,
    pub family: Family,
    pub distinct: u64,
    pub rows: u64,
    pub sketch: String,
    #[serde(skip)]
    parameters: SketchParameters,
    pub seeds: u64,
    /// Whether the line only serves comparison in the figures.
    pub only_figures: bool,
    /// Mean relative error of the estimates; the 95th percentile and the largest error follow.
    pub error_mean: f64,
    pub error_95: f64,
    pub error_most: f64,
    /// Mean errors of the first seeds, one by one.
    pub error_of_seed: Vec<f64>,
    /// Mean absolute error; includes values that do not occur.
    pub absolute_mean: f64,
    /// Number of estimates; the number of those whose bounds contain the true value follows.
    pub estimates: u64,
    pub kept: u64,
    pub goal: Option<f64>,
    #[serde(skip)]
    errors: Vec<f64>,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let (start, mut lines) = (Instant::now(), Vec::new());
    let uniform = definition.uniform.iter().flat_map(|set| set.distinct.iter().map(|n| (set.times, *n)));
    for (times, distinct) in uniform.filter(|(_, distinct)| definition.has(distinct)) {
        lines.extend(data_set(definition, &Data::uniform(times, distinct))?);
    }
    let zipf = definition.zipf.iter().flat_map(|set| set.rows.iter().map(|rows| (set.skew, *rows)));
    for (skew, rows) in zipf.filter(|(_, rows)| definition.has(rows)) {
        lines.extend(data_set(definition, &Data::zipf(skew, rows))?);
    }
    text::progress("");
    Ok(Results {
        head: Head::of("sketch-accuracy"),
        seeds: definition.seeds,
        elapsed_s: start.elapsed().as_secs_f64(),
        lines,
    })
}

impl Results {
    /// Fails the run if the bounds do not hold: they are guaranteed, unlike speed.
    pub fn check(&self) -> Result<()> {
        for line in self.lines.iter().filter(|line| line.estimates >= 100) {
            let kept = line.kept as f64 / line.estimates as f64;
            let deviation = (STATED * (1.0 - STATED) / line.estimates as f64).sqrt();
            if kept < STATED - DEVIATIONS_MAX * deviation {
                bail!("{} of {}: {kept} of the bounds hold", line.sketch, line.data);
            }
        }
        Ok(())
    }
}

/// Measures a line for each sketch that takes part.
fn data_set(definition: &Definition, data: &Data) -> Result<Vec<Line>> {
    let taking_part =
        definition.sketches.iter().filter(|sketch| definition.takes_part(sketch, 0, data.distinct));
    let taking_part: Vec<&SketchDefinition> = taking_part.collect();
    let mut lines: Vec<Line> = taking_part.iter().map(|sketch| Line::new(data, sketch)).collect();
    let seeds = definition.seeds_for(data.distinct);
    for seed in 0..seeds {
        text::progress(&format!("{}, {seed} of {seeds} seeds ", data.name()));
        let with = |sketch: &&SketchDefinition| definition.takes_part(sketch, seed, data.distinct);
        let lines = lines.iter_mut().zip(&taking_part).filter(|(_, sketch)| with(sketch));
        one_seed(data, seed, lines.map(|(line, _)| line).collect())?;
    }
    lines.iter_mut().for_each(Line::settle);
    Ok(lines)
}

/// Computes the sketches of all lines from the same values.
fn one_seed(data: &Data, seed: u64, lines: Vec<&mut Line>) -> Result<()> {
    let sketch = |line: &&mut Line| Ok(Sketch::new(line.parameters, &DataType::UInt32)?);
    let mut sketches = lines.iter().map(sketch).collect::<Result<Vec<Sketch>>>()?;
    data.each(seed, |values, counts| {
        for sketch in &mut sketches {
            match counts {
                None => sketch.update(values)?,
                Some(counts) => sketch.update_counted(values, counts)?,
            }
        }
        Ok(())
    })?;
    for (sketch, line) in sketches.iter().zip(lines) {
        let first = line.errors.len();
        for (truth, estimate) in answers(sketch, data, seed)? {
            line.add(truth, estimate);
        }
        line.seeds += 1;
        if seed < KEPT_SEEDS {
            line.error_of_seed.push(mean(&line.errors[first..]));
        }
    }
    Ok(())
}

/// Returns the estimates of a sketch with the true values: the number of distinct values, or the frequencies of some
/// values, or else the second moment.
fn answers(sketch: &Sketch, data: &Data, seed: u64) -> Result<Vec<(f64, Estimate)>> {
    if let Some(estimate) = sketch.distinct() {
        return Ok(vec![(data.distinct as f64, estimate)]);
    }
    if sketch.parameters().frequency.is_none() {
        let truth = data.second_moment();
        return Ok(sketch.second_moment().map(|estimate| (truth, estimate)).into_iter().collect());
    }
    let mut answers = Vec::new();
    let frequencies = sketch.frequencies();
    let asked = if sketch.parameters().second_moment.is_some() { ASKED_TRUSTED } else { ASKED };
    for place in (0..asked).chain(data.distinct..data.distinct + asked) {
        let literal = Literal::new(Value::Int(data::value(seed, place).into()), DataType::UInt32)?;
        answers.extend(frequencies.of(&literal)?.map(|estimate| (data.count(place) as f64, estimate)));
    }
    Ok(answers)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Line {
    fn new(data: &Data, sketch: &SketchDefinition) -> Line {
        Line {
            data: data.name(),
            family: data.family,
            distinct: data.distinct,
            rows: data.rows,
            sketch: sketch.parameters.to_string(),
            parameters: sketch.parameters,
            seeds: 0,
            only_figures: sketch.seeds_max.is_some(),
            error_mean: f64::NAN,
            error_95: f64::NAN,
            error_most: f64::NAN,
            error_of_seed: Vec::new(),
            absolute_mean: 0.0,
            estimates: 0,
            kept: 0,
            goal: sketch.error_max,
            errors: Vec::new(),
        }
    }

    fn add(&mut self, truth: f64, estimate: Estimate) {
        if truth > 0.0 {
            self.errors.push((estimate.value / truth - 1.0).abs());
        }
        self.absolute_mean += (estimate.value - truth).abs();
        self.estimates += 1;
        self.kept += u64::from(estimate.low <= truth && truth <= estimate.high);
    }

    fn settle(&mut self) {
        self.errors.sort_by(f64::total_cmp);
        let at = |part: f64| self.errors[((self.errors.len() - 1) as f64 * part).ceil() as usize];
        (self.error_mean, self.error_95, self.error_most) = (mean(&self.errors), at(0.95), at(1.0));
        self.absolute_mean /= self.estimates as f64;
    }
}

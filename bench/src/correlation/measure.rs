//! Measures rounds over all sides (farpool and its rivals) of a case; times count only if the coefficients agree.

use super::definition::{Case, Definition, Values};
use super::values;
use crate::answers::{Answer, Cell};
use crate::limits::{self, Limits};
use crate::pools::milliseconds;
use crate::rival::{Rival, Statement};
use crate::suite::{self, Head, RivalResult, Samples, turns_after_warm_up};
use crate::{stats, text};
use anyhow::{Context, Result, bail, ensure};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use farpool_model::NullHandling;
use farpool_statistics::Moments;
use serde::Serialize;
use std::time::Instant;

/// Number of rows with which a state is updated at a time: a row group.
const BATCH_ROWS: usize = 65536;

/// Maximal difference of coefficients: rivals round sums of products.
const TOLERANCE: f64 = 1e-9;

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub runs: usize,
    pub threads: usize,
    pub limits: Limits,
    pub rivals: Vec<RivalResult>,
    pub cases: Vec<CaseResult>,
}

/// Results of a case: a set of columns at one number of rows.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub columns: usize,
    pub rows: usize,
    pub bytes: u64,
    /// Bytes of memory that farpool's state holds at the end.
    pub bytes_held: usize,
    pub sides: Vec<SideResult>,
}

/// Times of a side; farpool's is the first.
#[derive(Clone, Debug, Serialize)]
pub struct SideResult {
    pub name: String,
    pub times_ms: Vec<f64>,
    pub median_ms: f64,
    /// Ratio of the side's median time to farpool's.
    pub ratio: f64,
    pub goal: Option<f64>,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let limits = limits::measure()?;
    let mut names: Vec<String> = definition.cases.iter().flat_map(|case| case.rivals.clone()).collect();
    names.sort_unstable();
    names.dedup();
    let (mut rivals, started) = suite::start(&names, definition.threads)?;
    let mut cases = Vec::new();
    for case in definition.cases_at_all_sizes() {
        text::progress(&format!("{}, {} rows ", case.name, case.rows));
        cases.push(one(definition, &case, &mut rivals).with_context(|| case.name.clone())?);
    }
    text::progress("");
    Ok(Results {
        head: Head::of("correlation"),
        runs: definition.runs,
        threads: definition.threads,
        limits,
        rivals: started,
        cases,
    })
}

fn one(definition: &Definition, case: &Case, rivals: &mut [Rival]) -> Result<CaseResult> {
    let columns = values::columns(case);
    let mut rivals: Vec<&mut Rival> =
        rivals.iter_mut().filter(|rival| case.rivals.contains(&rival.definition.name)).collect();
    if !rivals.is_empty() {
        let file = values::file(case, &columns)?;
        for rival in &mut rivals {
            rival.load(&case.table(), &file)?;
        }
        std::fs::remove_file(&file)?;
    }
    let (mut samples, mut bytes_held, mut expected) = (Samples::new(2 + rivals.len()), 0, Vec::new());
    let (sql, names, table) = (case.sql(), case.names(), case.table());
    for turn in turns_after_warm_up(2 + rivals.len(), definition.runs) {
        let ms = match turn.side {
            0 => {
                let (ms, found, held) = farpool(case, &columns, definition.threads)?;
                (expected, bytes_held) = (found, held);
                ms
            }
            1 => {
                let (ms, alone, _) = farpool(case, &columns, 1)?;
                compare(&expected, &alone).context("one thread")?;
                ms
            }
            side => {
                let statement = Statement { text: &sql, table: &table, columns: &names, clients: 1 };
                let (ms, answer) = rivals[side - 2].run_for_answer(&statement)?;
                let name = || rivals[side - 2].definition.name.clone();
                compare(&expected, &coefficients(&answer)?).with_context(name)?;
                ms
            }
        };
        samples.add(turn, ms);
    }
    let rival_names = rivals.iter().map(|rival| rival.definition.name.as_str());
    let mut sides = Vec::new();
    for (side, name) in ["farpool", "farpool, one thread"].into_iter().chain(rival_names).enumerate() {
        let goal = definition.goals.get(name).filter(|_| !case.only_figures);
        sides.push(SideResult::new(name, samples.of(side).to_vec(), samples.of(0), goal.copied()));
    }
    if case.naive {
        let (ms, found) = plain_loop(case, &columns)?;
        compare(&expected, &found).context("the plain loop")?;
        sides.push(SideResult::new("plain loop", vec![ms], samples.of(0), None));
    }
    for rival in &mut rivals {
        rival.drop_table(&table)?;
    }
    let bytes = columns.iter().map(|column| column.get_buffer_memory_size() as u64).sum();
    let (name, columns, rows) = (case.name.clone(), case.columns, case.rows);
    Ok(CaseResult { name, columns, rows, bytes, bytes_held, sides })
}

impl SideResult {
    /// Returns the times of a side beside those of farpool.
    fn new(name: &str, times_ms: Vec<f64>, farpool_ms: &[f64], goal: Option<f64>) -> SideResult {
        let median_ms = stats::median(&times_ms);
        let ratio = median_ms / stats::median(farpool_ms);
        SideResult { name: name.to_string(), times_ms, median_ms, ratio, goal }
    }
}

/// Runs farpool's side; returns the milliseconds, the coefficients of all pairs, and the bytes that the states held.
fn farpool(case: &Case, columns: &[ArrayRef], threads: usize) -> Result<(f64, Vec<f64>, usize)> {
    let start = Instant::now();
    let part = case.rows.div_ceil(threads);
    let states = std::thread::scope(|scope| {
        let ranges = (0..case.rows).step_by(part).map(|first| first..(first + part).min(case.rows));
        let running: Vec<_> = ranges.map(|rows| scope.spawn(move || state(columns, rows))).collect();
        running.into_iter().map(|thread| thread.join().expect("a thread ended")).collect::<Result<Vec<_>>>()
    })?;
    let held = states.iter().map(Moments::bytes_held).sum();
    let mut states = states.into_iter();
    let mut merged = states.next().context("there are no rows")?;
    states.try_for_each(|state| merged.merge(&state))?;
    let found = case.pairs().map(|(i, j)| merged.correlation(i, j)).collect();
    Ok((milliseconds(start), found, held))
}

fn state(columns: &[ArrayRef], rows: std::ops::Range<usize>) -> Result<Moments> {
    let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
    let mut moments = Moments::new(&types, NullHandling::Pairwise)?;
    for first in rows.clone().step_by(BATCH_ROWS) {
        let length = BATCH_ROWS.min(rows.end - first);
        let batch: Vec<ArrayRef> = columns.iter().map(|column| column.slice(first, length)).collect();
        moments.update(&batch)?;
    }
    Ok(moments)
}

/// Evaluates the thesis's formula literally, pair by pair on one thread, in integers that do not wrap.
fn plain_loop(case: &Case, columns: &[ArrayRef]) -> Result<(f64, Vec<f64>)> {
    ensure!(!matches!(case.values, Values::Float32 | Values::Float64), "the plain loop is over integers");
    let wide = columns.iter().map(|column| cast(column, &DataType::Int64)).collect::<Result<Vec<_>, _>>()?;
    let values: Vec<&[i64]> =
        wide.iter().map(|column| &**column.as_primitive::<Int64Type>().values()).collect();
    let start = Instant::now();
    let product = |i: usize, j: usize| -> i128 {
        values[i].iter().zip(values[j]).map(|(a, b)| i128::from(*a) * i128::from(*b)).sum()
    };
    let rows = case.rows as f64;
    let sums: Vec<i128> = values.iter().map(|column| column.iter().copied().map(i128::from).sum()).collect();
    let around = |i: usize, j: usize| product(i, j) as f64 - sums[i] as f64 * (sums[j] as f64 / rows);
    let squares: Vec<f64> = (0..case.columns).map(|i| around(i, i)).collect();
    let found = case.pairs().map(|(i, j)| around(i, j) / (squares[i] * squares[j]).sqrt()).collect();
    Ok((milliseconds(start), found))
}

/// Returns a rival's coefficients from a result of one row or one column.
fn coefficients(answer: &Answer) -> Result<Vec<f64>> {
    let cells = answer.rows.iter().flatten();
    let number = |cell: &Cell| match cell {
        Cell::Float(value) => Ok(*value),
        other => bail!("a coefficient is {other:?}"),
    };
    cells.map(number).collect()
}

fn compare(expected: &[f64], found: &[f64]) -> Result<()> {
    ensure!(expected.len() == found.len(), "there are {} coefficients, not {}", found.len(), expected.len());
    let apart = expected.iter().zip(found).position(|(a, b)| (a - b).abs().total_cmp(&TOLERANCE).is_gt());
    match apart {
        Some(at) => bail!("coefficient {at} is {}, farpool's is {}", found[at], expected[at]),
        None => Ok(()),
    }
}

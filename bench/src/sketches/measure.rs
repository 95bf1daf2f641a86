//! Rounds over farpool, its naive twin and the rivals; answers compared before a time is kept.

use super::definition::{Case, Column, Definition};
use super::naive::Naive;
use crate::answers::{Answer, Cell};
use crate::limits::{self, Limits};
use crate::machine::{self, Machine};
use crate::random::Random;
use crate::rival::{Rival, RivalDefinition, Statement};
use crate::stats;
use anyhow::{Context, Result, bail};
use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::DataType;
use arrow::ipc::writer::FileWriter;
use farpool::model::{Literal, SketchParameters, Value, limits::ROW_GROUP_ROWS};
use farpool_statistics::Sketch;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub suite: String,
    pub date: String,
    pub machine: Machine,
    pub rows: usize,
    pub rows_slow: usize,
    pub runs: usize,
    pub limits: Limits,
    /// Rivals that did not take part, and why.
    pub absent: Vec<String>,
    pub cases: Vec<CaseResult>,
}

/// A case over a column with a number of threads.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub column: String,
    pub threads: usize,
    pub goal: f64,
    pub sides: Vec<Side>,
}

/// A side's times.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    pub name: String,
    pub rows: usize,
    pub times_ms: Vec<f64>,
    pub gb_s: f64,
    /// The distinct values that it found.
    pub distinct: Option<f64>,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let mut absent = Vec::new();
    let mut cases = Vec::new();
    for &threads in &definition.threads {
        let mut rivals = start_rivals(definition, threads, &mut absent)?;
        for column in &definition.columns {
            let data = Data::make(column, definition)?;
            for rival in &mut rivals {
                rival.load("sketched", data.file_for(&rival.definition.name))?;
            }
            for case in &definition.cases {
                eprint!("\r{:50}\r{} {} ", "", column.name, case.name);
                let result = measure(definition, case, column, &data, threads, &mut rivals);
                cases.push(result.with_context(|| format!("{} of {}", case.name, column.name))?);
            }
            for rival in &mut rivals {
                rival.drop_table("sketched")?;
            }
        }
    }
    eprint!("\r{:50}\r", "");
    Ok(Results {
        suite: "sketches".to_string(),
        date: machine::today(),
        machine: machine::machine(),
        rows: definition.rows,
        rows_slow: definition.rows_slow,
        runs: definition.runs,
        limits: limits::measure()?,
        absent,
        cases,
    })
}

fn start_rivals(definition: &Definition, threads: usize, absent: &mut Vec<String>) -> Result<Vec<Rival>> {
    let mut rivals = Vec::new();
    for name in &definition.rivals {
        match Rival::start(RivalDefinition::named(name)?, threads) {
            Ok(rival) => rivals.push(rival),
            Err(error) if threads == definition.threads[0] => absent.push(format!("{name}: {error:#}")),
            Err(_) => {}
        }
    }
    Ok(rivals)
}

/// A column in memory and in files.
struct Data {
    values: Vec<u32>,
    batches: Vec<ArrayRef>,
    slow: usize,
    file: PathBuf,
    file_slow: PathBuf,
}

impl Data {
    fn make(column: &Column, definition: &Definition) -> Result<Data> {
        let mut random = Random(7);
        let value = |_| match column.skew {
            Some(skew) => random.zipf(skew),
            None => random.next() as u32,
        };
        let values: Vec<u32> = (0..definition.rows).map(value).collect();
        let array = |part: &[u32]| -> ArrayRef { Arc::new(UInt32Array::from(part.to_vec())) };
        let batches: Vec<ArrayRef> = values.chunks(ROW_GROUP_ROWS).map(array).collect();
        let slow = definition.rows_slow.min(values.len());
        let file = |rows: usize| {
            std::env::temp_dir().join(format!("farpool-sketched-{}-{rows}.arrow", std::process::id()))
        };
        let data = Data { file: file(values.len()), file_slow: file(slow), values, batches, slow };
        write(&data.file, &data.batches)?;
        write(&data.file_slow, &[array(&data.values[..slow])])?;
        Ok(data)
    }

    /// The Python wheel of DataSketches takes value by value: it gets fewer.
    fn file_for(&self, rival: &str) -> &Path {
        if rival == "DataSketches" { &self.file_slow } else { &self.file }
    }

    fn rows_for(&self, rival: &str) -> usize {
        if rival == "DataSketches" { self.slow } else { self.values.len() }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // Rivals that map them have let go by then; what is left is the system's to clean.
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_file(&self.file_slow);
    }
}

fn write(file: &Path, columns: &[ArrayRef]) -> Result<()> {
    let batch = |column: &ArrayRef| RecordBatch::try_from_iter([("v", column.clone())]);
    let first = batch(columns.first().context("a column needs rows")?)?;
    let mut writer = FileWriter::try_new(std::fs::File::create(file)?, &first.schema())?;
    for column in columns {
        writer.write(&batch(column)?)?;
    }
    Ok(writer.finish()?)
}

fn measure(
    definition: &Definition,
    case: &Case,
    column: &Column,
    data: &Data,
    threads: usize,
    rivals: &mut [Rival],
) -> Result<CaseResult> {
    let mut sides = vec![Side::new("farpool", data.values.len()), Side::new("naive", data.slow)];
    let mut statements = Vec::new();
    for (place, rival) in rivals.iter().enumerate() {
        let dialect = rival.definition.dialects.iter().find_map(|dialect| case.statements.get(dialect));
        if let Some(statement) = dialect {
            statements.push((place, statement.replace("{table}", "sketched")));
            sides.push(Side::new(&rival.definition.name, data.rows_for(&rival.definition.name)));
        }
    }
    // The first round warms up and does not count.
    for round in 0..=definition.runs {
        let mut times = Vec::new();
        let start = Instant::now();
        let sketch = sketched(case.parameters(), &data.batches, threads)?;
        times.push((milliseconds(start), sketch.distinct().map(|estimate| estimate.value)));
        let start = Instant::now();
        let naive = naively(case.parameters(), &data.values[..data.slow], threads);
        times.push((milliseconds(start), naive.distinct()));
        compare(case, data, &naive)?;
        for (place, text) in &statements {
            let statement = Statement { text, table: "sketched", columns: &["v".to_string()], clients: 1 };
            let (ms, answer) = rivals[*place].run_for_answer(&statement)?;
            times.push((ms, Some(number(&answer).context("a count was expected")?)));
        }
        for (side, (ms, distinct)) in sides.iter_mut().zip(times) {
            side.distinct = distinct;
            if round > 0 {
                side.times_ms.push(ms);
            }
        }
    }
    sides.iter_mut().for_each(Side::settle);
    agree(&sides)?;
    Ok(CaseResult {
        name: case.name.clone(),
        column: column.name.clone(),
        threads,
        goal: case.at_least,
        sides,
    })
}

/// The one number of an answer.
fn number(answer: &Answer) -> Option<f64> {
    match answer.rows.first()?.first()? {
        Cell::Exact { unscaled, scale: 0 } => Some(*unscaled as f64),
        Cell::Float(value) => Some(*value),
        _ => None,
    }
}

/// A partial sketch for each thread, merged.
fn sketched(parameters: SketchParameters, batches: &[ArrayRef], threads: usize) -> Result<Sketch> {
    let part = |batches: &[ArrayRef]| -> Result<Sketch> {
        let mut sketch = Sketch::new(parameters, &DataType::UInt32)?;
        for batch in batches {
            sketch.update(batch)?;
        }
        Ok(sketch)
    };
    let share = batches.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let parts: Vec<_> = batches.chunks(share).map(|some| scope.spawn(move || part(some))).collect();
        let mut whole = Sketch::new(parameters, &DataType::UInt32)?;
        for part in parts {
            whole.merge(&part.join().expect("no sketch panics")?)?;
        }
        Ok(whole)
    })
}

/// As many threads, each with its own; the first one's is compared.
fn naively(parameters: SketchParameters, values: &[u32], threads: usize) -> Naive {
    let share = values.len().div_ceil(threads);
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

/// The same part of the rows by both.
fn compare(case: &Case, data: &Data, naive: &Naive) -> Result<()> {
    let rows = naive.rows();
    let part: ArrayRef = Arc::new(UInt32Array::from(data.values[..rows].to_vec()));
    let ours = sketched(case.parameters(), &[part], 1)?;
    if let (Some(ours), Some(naive)) = (ours.second_moment(), naive.second_moment()) {
        // Ours is never below the number of rows, as no second moment is.
        if ours.value != naive.max(rows as f64) {
            bail!("the second moment is {}, the naive twin's {naive}", ours.value);
        }
    }
    if let (Some(ours), Some(naive)) = (ours.distinct(), naive.distinct())
        && (ours.value / naive - 1.0).abs() > 0.02
    {
        bail!("{} values are distinct, by the naive twin {naive}", ours.value);
    }
    for value in data.values[..rows].iter().take(10) {
        let literal = Literal::new(Value::Int((*value).into()), DataType::UInt32)?;
        let ours = ours.frequency(&literal)?.map(|estimate| estimate.high);
        if ours != naive.frequency(*value) {
            bail!("{value} occurs at most {ours:?} times, by the naive twin {:?}", naive.frequency(*value));
        }
    }
    Ok(())
}

/// All who saw the same rows found about as many distinct values.
fn agree(sides: &[Side]) -> Result<()> {
    let ours = &sides[0];
    for side in sides.iter().filter(|side| side.rows == ours.rows) {
        if let (Some(one), Some(other)) = (ours.distinct, side.distinct)
            && (one / other - 1.0).abs() > 0.15
        {
            bail!("{one} values are distinct, by {} {other}", side.name);
        }
    }
    Ok(())
}

impl Side {
    fn new(name: &str, rows: usize) -> Side {
        Side { name: name.to_string(), rows, times_ms: Vec::new(), gb_s: f64::NAN, distinct: None }
    }

    fn settle(&mut self) {
        self.gb_s = (size_of::<u32>() * self.rows) as f64 / stats::median(&self.times_ms) / 1e6;
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

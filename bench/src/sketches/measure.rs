//! Measures rounds over the library, pools, the naive implementation and the rivals; times count only if the
//! answers agree.

use super::data::{COLUMN, Data, TABLE};
use super::definition::{Case, Column, Definition};
use super::ingest::Ingest;
use super::library;
use super::pools::InPool;
use super::results::{CaseResult, LIBRARY, NAIVE, Results, Side};
use crate::answers::{Answer, Cell};
use crate::rival::{Rival, RivalDefinition, RivalResult, Statement};
use crate::{limits, machine, text};
use anyhow::{Context, Result, bail, ensure};
use std::time::Instant;

/// All sides that sketch a column with a given number of threads.
struct Sides {
    threads: usize,
    pools: [InPool; 2],
    rivals: Vec<Rival>,
}

/// One run of a side.
struct Timed {
    side: String,
    rows: usize,
    ms: f64,
    /// The side's estimate of the number of distinct values.
    number: Option<f64>,
}

/// Runs the whole suite.
pub fn run(definition: &Definition) -> Result<Results> {
    let limits = limits::measure()?;
    let (mut rivals, mut cases, mut ingest) = (Vec::new(), Vec::new(), Vec::new());
    for column in &definition.columns {
        text::progress(&format!("{} ", column.name));
        let data = Data::make(column, definition)?;
        for &threads in &definition.threads {
            let mut sides = Sides::start(definition, threads, &mut rivals)?;
            sides.load(&data)?;
            for case in &definition.cases {
                text::progress(&format!("{} {}, {threads} threads ", column.name, case.name));
                let result = sides.measure(definition, case, column, &data);
                cases.push(result.with_context(|| format!("{} of {}", case.name, column.name))?);
            }
        }
        text::progress(&format!("{} loading ", column.name));
        let threads = definition.threads.iter().copied().max().unwrap_or(1);
        ingest.push(Ingest::start(threads)?.measure(&column.name, &data, definition.runs)?);
    }
    text::progress("");
    Ok(Results {
        suite: "sketches".to_string(),
        date: machine::today(),
        machine: machine::machine(),
        rows: definition.rows,
        rows_slow: definition.rows_slow,
        runs: definition.runs,
        limits,
        rivals,
        cases,
        ingest,
    })
}

impl Sides {
    /// Starts pools and rivals; adds new rivals to `known`.
    fn start(definition: &Definition, threads: usize, known: &mut Vec<RivalResult>) -> Result<Sides> {
        let mut rivals = Vec::new();
        for name in &definition.rivals {
            let started = Rival::start(RivalDefinition::named(name)?, threads);
            if known.iter().all(|rival| rival.name != *name) {
                let version = started.as_ref().map(|rival| rival.version.clone()).unwrap_or_default();
                let missing = started.as_ref().err().map(|error| format!("{error:#}"));
                known.push(RivalResult { name: name.clone(), version, missing });
            }
            rivals.extend(started);
        }
        Ok(Sides { threads, pools: [InPool::embedded(threads)?, InPool::remote(threads)?], rivals })
    }

    fn load(&mut self, data: &Data) -> Result<()> {
        for pool in &self.pools {
            pool.load(data)?;
        }
        for rival in &mut self.rivals {
            let (file, _) = data.file_for(&rival.definition.name);
            rival.load(TABLE, file)?;
        }
        Ok(())
    }

    fn measure(
        &mut self,
        definition: &Definition,
        case: &Case,
        column: &Column,
        data: &Data,
    ) -> Result<CaseResult> {
        let mut sides: Vec<Side> = Vec::new();
        // The first round is a warm-up and does not count.
        for round in 0..=definition.runs {
            let round_of = self.round(case, data)?;
            if sides.is_empty() {
                sides = round_of.iter().map(|timed| Side::new(&timed.side, timed.rows)).collect();
            }
            for (side, timed) in sides.iter_mut().zip(round_of) {
                side.distinct = timed.number.filter(|_| case.parameters.distinct.is_some());
                if round > 0 {
                    side.times_ms.push(timed.ms);
                }
            }
        }
        sides.iter_mut().for_each(Side::settle);
        agree(&sides)?;
        let (name, column) = (case.name.clone(), column.name.clone());
        Ok(CaseResult { name, column, threads: self.threads, goal: case.at_least, sides })
    }

    /// Runs each side once.
    fn round(&mut self, case: &Case, data: &Data) -> Result<Vec<Timed>> {
        let (parameters, rows) = (case.parameters, data.rows());
        let start = Instant::now();
        let sketch = library::sketched(parameters, &data.batches, self.threads)?;
        let ms = milliseconds(start);
        let distinct = sketch.distinct().map(|estimate| estimate.value);
        let timed = |side: &str, rows: usize, ms, number| Timed { side: side.to_string(), rows, ms, number };
        let mut times = vec![timed(LIBRARY, rows, ms, distinct)];
        let expected = sketch.to_bytes();
        for pool in &self.pools {
            let (ms, state) = pool.sketch(parameters)?;
            ensure!(state == expected, "{}'s state is not that of the library", pool.name);
            times.push(timed(pool.name, rows, ms, distinct));
        }
        let start = Instant::now();
        let naive = library::naively(parameters, data.slow(), self.threads);
        times.push(timed(NAIVE, data.slow().len(), milliseconds(start), naive.distinct()));
        library::compare(parameters, data.slow(), &naive)?;
        for rival in &mut self.rivals {
            let dialects = &rival.definition.dialects;
            let Some(text) = dialects.iter().find_map(|dialect| case.statements.get(dialect)) else {
                continue;
            };
            let text = text.replace("{table}", TABLE);
            let statement =
                Statement { text: &text, table: TABLE, columns: &[COLUMN.to_string()], clients: 1 };
            let (ms, answer) = rival.run_for_answer(&statement)?;
            let (name, counted) = (rival.definition.name.clone(), number(&answer));
            let (_, rows) = data.file_for(&name);
            times.push(timed(&name, rows, ms, Some(counted.context("a number was expected")?)));
        }
        Ok(times)
    }
}

/// Returns the single number of an answer.
fn number(answer: &Answer) -> Option<f64> {
    match answer.rows.first()?.first()? {
        Cell::Exact { unscaled, scale: 0 } => Some(*unscaled as f64),
        Cell::Float(value) => Some(*value),
        _ => None,
    }
}

/// Checks that all sides with the same rows found about the same number of distinct values.
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

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

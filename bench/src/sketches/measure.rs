//! Measures rounds over the library, pools, the naive implementation and the rivals; times count only if the
//! answers agree.

use super::data::{COLUMN, Data, TABLE};
use super::definition::{Case, Column, Definition};
use super::ingest::Ingest;
use super::library;
use super::pools::InPool;
use super::results::{CaseResult, LIBRARY, NAIVE, Results, Side};
use crate::answers::{Answer, Cell};
use crate::pools::milliseconds;
use crate::rival::{Rival, Statement};
use crate::suite::{self, Head, RivalResult};
use crate::{limits, text};
use anyhow::{Context, Result, bail, ensure};
use std::time::Instant;

/// All sides that sketch a column with a given number of threads.
struct Sides {
    threads: usize,
    pools: [InPool; 2],
    rivals: Vec<Rival>,
}

/// The measurements of one run of a side.
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
        head: Head::of("sketches"),
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
    /// Starts pools and rivals. Adds the entries of the rivals to `known`.
    fn start(definition: &Definition, threads: usize, known: &mut Vec<RivalResult>) -> Result<Sides> {
        let (rivals, results) = suite::start(&definition.rivals, threads)?;
        *known = results;
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
        // The first round is a warm-up and does not count.
        self.round(case, data)?;
        let rounds = (0..definition.runs).map(|_| self.round(case, data)).collect::<Result<Vec<_>>>()?;
        let last = rounds.last().context("there is no counted run")?.iter().enumerate();
        let sides = last.map(|(place, timed)| {
            let times_ms = rounds.iter().map(|round| round[place].ms).collect();
            let distinct = timed.number.filter(|_| case.parameters.distinct.is_some());
            Side::new(timed.side.clone(), timed.rows, times_ms, distinct)
        });
        let sides: Vec<Side> = sides.collect();
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

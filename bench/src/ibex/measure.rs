//! Runs all statements of the suite `ibex` on its sides in turns; times count only if the answers agree.

use super::definition::{Case, Definition};
use super::stage::{CpuSeconds, Side, Stage};
use super::{Part, goals, tables};
use crate::answers::Answer;
use crate::dbms::agree_on_texts;
use crate::suite::{Expected, Goals, Head, Samples, turns_after_warm_up};
use crate::tpch::data;
use crate::{places, text};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub runs: usize,
    pub threads: usize,
    pub limit_s: u64,
    pub postgres: String,
    pub settings: BTreeMap<String, String>,
    pub foreign: BTreeMap<String, String>,
    pub is_analyzed: bool,
    pub cases: Vec<CaseResult>,
    pub goals: Goals,
    pub notes: Vec<String>,
}

/// Results of a statement.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub part: Part,
    pub name: String,
    /// Size of the table, scale factor, number of expressions or percentage: whatever varies in the part.
    pub at: f64,
    /// Number of rows of the result.
    pub rows: usize,
    pub sides: BTreeMap<Side, SideResult>,
    /// Statements that PostgreSQL handed over to the pool.
    pub remote_sql: Vec<String>,
}

/// Results of a statement on one side.
#[derive(Clone, Debug, Serialize)]
pub struct SideResult {
    pub median_ms: f64,
    pub times_ms: Vec<f64>,
    /// CPU seconds of one run.
    pub cpu_s: CpuSeconds,
}

impl CaseResult {
    /// Returns the median time on a side.
    pub fn ms(&self, side: Side) -> Option<f64> {
        Some(self.sides.get(&side)?.median_ms)
    }

    /// Returns the time on one side by that on another.
    pub fn ratio(&self, of: Side, by: Side) -> Option<f64> {
        Some(self.ms(of)? / self.ms(by)?)
    }
}

/// A statement to measure.
struct Measured<'a> {
    part: Part,
    name: String,
    at: f64,
    sql: &'a str,
    /// The statement over the pool's tables in PostgreSQL, if it is another one.
    pool_sql: Option<&'a str>,
    expected: Expected<Answer>,
    runs: usize,
}

struct Run<'a> {
    definition: &'a Definition,
    stage: Stage,
    cases: Vec<CaseResult>,
    notes: Vec<String>,
}

/// Runs these parts of the suite.
pub async fn run(definition: &Definition, parts: &[Part]) -> Result<Results> {
    let stage = Stage::start(definition).await?;
    let mut run = Run { definition, stage, cases: Vec::new(), notes: Vec::new() };
    for part in parts {
        match part {
            Part::Sizes => run.sizes().await?,
            Part::Aggregates | Part::Predicates => run.series(*part).await?,
            Part::Bypass => run.bypass().await?,
            Part::Filters => run.filters().await?,
            Part::Q13 => run.q13().await?,
            Part::Tpch => run.tpch().await?,
        }
        run.stage.clear().await?;
    }
    text::progress("");
    Ok(Results {
        head: Head::of("ibex"),
        runs: definition.runs,
        threads: definition.threads,
        limit_s: definition.limit_s,
        postgres: run.stage.postgres.version.clone(),
        settings: definition.settings.clone(),
        foreign: definition.foreign.clone(),
        is_analyzed: definition.analyze,
        goals: goals::of(&run.cases, &definition.goals),
        cases: run.cases,
        notes: run.notes,
    })
}

impl Run<'_> {
    async fn sizes(&mut self) -> Result<()> {
        for mib in &self.definition.sizes.mib {
            tables::make_sized(&mut self.stage, tables::rows_of(*mib)).await?;
            let name = format!("{mib} MiB");
            self.measure(self.case(Part::Sizes, name, *mib as f64, &self.definition.sizes.sql)).await?;
            self.stage.clear().await?;
        }
        Ok(())
    }

    async fn series(&mut self, part: Part) -> Result<()> {
        let series = match part {
            Part::Predicates => &self.definition.predicates,
            _ => &self.definition.aggregates,
        };
        tables::make_sized(&mut self.stage, series.rows).await?;
        for count in &series.counts {
            let (sql, name) = match part {
                Part::Predicates => (
                    series.statement(*count, " AND ", |n| format!("v{n} <> {n}")),
                    format!("{count} predicates"),
                ),
                _ => (series.statement(*count, ", ", |n| format!("sum(v{n})")), format!("{count} sums")),
            };
            self.measure(self.case(part, name, *count as f64, &sql)).await?;
        }
        Ok(())
    }

    async fn bypass(&mut self) -> Result<()> {
        let bypass = &self.definition.bypass;
        for percent in &bypass.percent {
            tables::make_bypass(&mut self.stage, bypass.rows, *percent).await?;
            self.measure(self.case(Part::Bypass, format!("{percent} %"), *percent as f64, &bypass.sql))
                .await?;
            self.stage.clear().await?;
        }
        Ok(())
    }

    async fn filters(&mut self) -> Result<()> {
        let filters = &self.definition.filters;
        for scale in &filters.scales {
            tables::make_tpch(&mut self.stage, *scale, &["lineitem"]).await?;
            for case in &filters.cases {
                let name = format!("{}, scale {scale}", case.name);
                self.measure(self.case(Part::Filters, name, *scale, &case.sql)).await?;
            }
            self.stage.clear().await?;
        }
        Ok(())
    }

    async fn q13(&mut self) -> Result<()> {
        let q13 = &self.definition.q13;
        tables::make_tpch(&mut self.stage, q13.scale, &["customer", "orders"]).await?;
        for Case { name, sql, mixed } in &q13.cases {
            let pool_sql = sql.replace("{customer}", if *mixed { "heap.customer" } else { "customer" });
            let sql = sql.replace("{customer}", "customer");
            let case = self.case(Part::Q13, name.clone(), q13.scale, &sql);
            self.measure(Measured { pool_sql: Some(&pool_sql), ..case }).await?;
        }
        Ok(())
    }

    async fn tpch(&mut self) -> Result<()> {
        let tpch = &self.definition.tpch;
        tables::make_tpch(&mut self.stage, tpch.scale, &data::TABLES).await?;
        for query in &tpch.queries {
            let sql = places::query("tpch", query)?;
            let recorded = places::recorded_answer("tpch", tpch.scale, query);
            let case = self.case(Part::Tpch, places::query_name(query), *query as f64, &sql);
            let expected = Expected::recorded(recorded.as_deref())?;
            self.measure(Measured { runs: tpch.runs, expected, ..case }).await?;
        }
        Ok(())
    }

    fn case<'a>(&self, part: Part, name: String, at: f64, sql: &'a str) -> Measured<'a> {
        let runs = self.definition.runs;
        Measured { part, name, at, sql, pool_sql: None, expected: Expected::default(), runs }
    }

    async fn measure(&mut self, mut case: Measured<'_>) -> Result<()> {
        let pool_sql = case.pool_sql.unwrap_or(case.sql);
        let name = case.name.clone();
        text::progress(&format!("{name} "));
        let mut samples = Samples::new(Side::ALL.len());
        for turn in turns_after_warm_up(Side::ALL.len(), case.runs) {
            let side = Side::ALL[turn.side];
            if samples.is_left_out(turn.side) {
                continue;
            }
            let sql = if side == Side::Pool { pool_sql } else { case.sql };
            match self.stage.run(side, sql).await {
                Ok((ms, answer)) => {
                    check(&mut case.expected, side, answer).with_context(|| name.clone())?;
                    samples.add(turn, ms);
                }
                Err(error) => {
                    self.notes.push(format!("{name}, {}: {error:#}", side.name()));
                    samples.leave_out(turn.side);
                }
            }
        }
        let mut sides = BTreeMap::new();
        for (side, times) in Side::ALL.into_iter().zip(samples.into_sides()) {
            let Some(times_ms) = times else { continue };
            let sql = if side == Side::Pool { pool_sql } else { case.sql };
            let cpu_s = self.cpu_seconds_of(side, sql).await.with_context(|| name.clone())?;
            let median_ms = crate::stats::median(&times_ms);
            sides.insert(side, SideResult { median_ms, times_ms, cpu_s });
        }
        let rows = case.expected.answer().map_or(0, |answer| answer.rows.len());
        let remote_sql = match self.stage.remote_sql(pool_sql) {
            Ok(remote_sql) => remote_sql,
            Err(error) => {
                self.notes.push(format!("{name}, plan: {error:#}"));
                Vec::new()
            }
        };
        self.cases.push(CaseResult { part: case.part, name, at: case.at, rows, sides, remote_sql });
        Ok(())
    }

    /// Returns the CPU seconds of one run, from several ones if the statement is short.
    async fn cpu_seconds_of(&mut self, side: Side, sql: &str) -> Result<CpuSeconds> {
        let (before, start, mut runs) = (self.stage.cpu_seconds()?, Instant::now(), 0.0);
        while runs == 0.0 || start.elapsed().as_secs_f64() < self.definition.cpu_window_s {
            self.stage.run(side, sql).await?;
            runs += 1.0;
        }
        Ok(self.stage.cpu_seconds()?.with(before, |after, before| (after - before) / runs))
    }
}

/// Compares the answer of a side with that of the others.
fn check(expected: &mut Expected<Answer>, side: Side, mut answer: Answer) -> Result<()> {
    if let Some(other) = expected.answer() {
        if answer.rows.is_empty() {
            // Without rows, psql does not tell how many columns there are.
            answer.columns.clone_from(&other.columns);
        }
        agree_on_texts(&mut answer, other);
    }
    expected.check(side.name(), &answer)
}

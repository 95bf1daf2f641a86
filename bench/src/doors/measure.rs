//! Runs the queries of the suite `doors` on all sides in turns; times count only if the answers agree.

use super::definition::{Definition, Query};
use super::sides::{Server, Sides};
use super::small::SmallResult;
use super::{Part, goals, small, tables};
use crate::dbms::{Postgres, Served};
use crate::suite::{Expected, Goals, Head, RivalResult, Samples, turns_after_warm_up};
use crate::{stats, text};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub runs: usize,
    pub fetch_runs: usize,
    pub threads: usize,
    pub rows: u64,
    pub postgres: RivalResult,
    pub rivals: Vec<RivalResult>,
    pub settings: BTreeMap<String, String>,
    /// The sides that took part, in order.
    pub sides: Vec<SideName>,
    pub queries: Vec<QueryResult>,
    pub small: Vec<SmallResult>,
    pub goals: Goals,
    pub notes: Vec<String>,
}

/// A client and its server.
#[derive(Clone, Debug, Serialize)]
pub struct SideName {
    pub client: String,
    pub server: Server,
}

/// Results of a query.
#[derive(Clone, Debug, Serialize)]
pub struct QueryResult {
    pub name: String,
    pub is_fetch: bool,
    /// Number of rows of the result.
    pub rows: u64,
    /// Times of each side, in the order of the sides; `None` for those that did not run the query.
    pub sides: Vec<Option<Times>>,
}

/// The times of a query on one side.
#[derive(Clone, Debug, Serialize)]
pub struct Times {
    pub median_ms: f64,
    pub times_ms: Vec<f64>,
}

impl Results {
    /// Returns the median time of the fetch of a client from a server.
    pub fn fetch_ms(&self, client: &str, server: Server) -> Option<f64> {
        let fetch = self.queries.iter().find(|query| query.is_fetch)?;
        let side = self.sides.iter().position(|side| side.client == client && side.server == server)?;
        Some(fetch.sides[side].as_ref()?.median_ms)
    }
}

/// Runs these parts of the suite.
pub async fn run(definition: &Definition, parts: &[Part]) -> Result<Results> {
    let postgres = Postgres::start(&definition.settings);
    let postgres_result = RivalResult::of("PostgreSQL", &postgres, |postgres| postgres.version.clone());
    let postgres = postgres.ok();
    let served = Served::start(definition.threads, definition.memory_mib, definition.work_mib)?;
    text::progress("loading ");
    let file = tables::make(definition, &served, postgres.as_ref()).await?;
    let mut sides = Sides::start(definition, &served, postgres.as_ref(), &file).await?;
    let (mut queries, mut notes) = (Vec::new(), Vec::new());
    if parts.contains(&Part::Queries) {
        for query in &definition.queries {
            queries.push(in_turns(&mut sides, query, definition.runs, false, &mut notes).await?);
        }
    }
    if parts.contains(&Part::Fetch) {
        let (query, runs) = (&definition.fetch, definition.fetch_runs);
        queries.push(in_turns(&mut sides, query, runs, true, &mut notes).await?);
    }
    let small = if parts.contains(&Part::Small) {
        small::measure(definition, &mut sides, &served, postgres.as_ref(), &mut notes).await?
    } else {
        Vec::new()
    };
    text::progress("");
    let names = sides.all.iter().map(|side| SideName { client: side.client.clone(), server: side.server });
    let mut results = Results {
        head: Head::of("doors"),
        runs: definition.runs,
        fetch_runs: definition.fetch_runs,
        threads: definition.threads,
        rows: definition.rows,
        postgres: postgres_result,
        rivals: sides.rivals.clone(),
        settings: definition.settings.clone(),
        sides: names.collect(),
        queries,
        small,
        goals: Goals::default(),
        notes,
    };
    results.goals = goals::of(&results, &definition.goals);
    Ok(results)
}

/// Runs a query on all sides in turns. A side that fails is left out, with a note; one that answers otherwise fails the
/// benchmark.
async fn in_turns(
    sides: &mut Sides,
    query: &Query,
    runs: usize,
    is_fetch: bool,
    notes: &mut Vec<String>,
) -> Result<QueryResult> {
    text::progress(&format!("{} ", query.name));
    let mut samples = Samples::new(sides.all.len());
    let mut expected = Expected::default();
    for side in (0..sides.all.len()).filter(|side| sides.all[*side].fetch_only && !is_fetch) {
        samples.leave_out(side);
    }
    for turn in turns_after_warm_up(sides.all.len(), runs) {
        if samples.is_left_out(turn.side) {
            continue;
        }
        let side = &sides.all[turn.side];
        let name = format!("{}, {}, {}", query.name, side.client, side.server.name());
        match sides.fetch(turn.side, query, !turn.counts).await {
            Ok(fetched) => {
                if let Some(digest) = &fetched.digest {
                    expected.check(&name, digest)?;
                }
                let rows = expected.answer().map(|digest| digest.rows);
                ensure!(rows == Some(fetched.rows), "{name}: {} rows, not {rows:?}", fetched.rows);
                samples.add(turn, fetched.ms);
            }
            Err(error) => {
                notes.push(format!("{name}: {error:#}"));
                samples.leave_out(turn.side);
            }
        }
    }
    let rows = expected.answer().context("no side has answered")?.rows;
    let of_side = |times: Vec<f64>| Times { median_ms: stats::median(&times), times_ms: times };
    let sides = samples.into_sides().map(|times| times.map(of_side)).collect();
    Ok(QueryResult { name: query.name.clone(), is_fetch, rows, sides })
}

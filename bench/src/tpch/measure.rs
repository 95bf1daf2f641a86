//! The suite `tpch`: measures rounds over all sides; times count only if the answers agree.

use super::definition::Definition;
use super::results::{QueryResult, Results, SideResult};
use super::sides::{Farpool, Side};
use super::{data, goals, loading};
use crate::answers::{self, Answer};
use crate::{limits, machine, places, text};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// Runs the whole suite.
pub async fn run(definition: &Definition) -> Result<Results> {
    let folder = data::folder(definition.scale)?;
    let limits = limits::measure()?;
    let farpool = Farpool::start(definition.threads).await?;
    let loading = loading::load(&farpool.embedded, &folder).await?;
    let mut notes = Vec::new();
    let mut sides = Vec::new();
    for name in &definition.sides {
        if !Side::names_rival(name) {
            sides.push(farpool.side(name, definition.threads).await?);
            continue;
        }
        match Side::rival(name, &folder, &data::TABLES, definition.threads) {
            Ok(side) => sides.push(side),
            Err(error) => notes.push(format!("nothing is compared with {name}: {error:#}")),
        }
    }
    let mut queries = Vec::new();
    for &number in &definition.queries {
        text::progress(&format!("q{number:02} "));
        let result = query(&mut sides, definition, number, &mut notes).await;
        queries.push(result.with_context(|| format!("q{number:02}"))?);
    }
    text::progress("");
    let mut results = Results {
        suite: "tpch".to_string(),
        date: machine::today(),
        machine: machine::machine(),
        rivals: sides.iter().filter_map(Side::version).collect(),
        scale: definition.scale,
        runs: definition.runs,
        threads: definition.threads,
        sides: sides.iter().map(|side| side.name.clone()).collect(),
        limits,
        loading,
        queries,
        goals: Vec::new(),
        notes,
    };
    results.goals = goals::check(&definition.goals, &results);
    Ok(results)
}

/// Runs one query on all sides, in turns. A rival that fails is left out, with a note.
async fn query(
    sides: &mut [Side],
    definition: &Definition,
    number: usize,
    notes: &mut Vec<String>,
) -> Result<QueryResult> {
    let sql = places::query(number)?;
    let mut expected = places::recorded_answer(definition.scale, number)
        .map(|text| Answer::from_recorded(&text).map(|answer| ("the recorded answer".to_string(), answer)))
        .transpose()
        .map_err(anyhow::Error::msg)?;
    let mut results: BTreeMap<String, SideResult> = BTreeMap::new();
    let mut failed: Vec<String> = Vec::new();
    // The first round is a warm-up and does not count.
    for round in 0..=definition.runs {
        for side in sides.iter_mut() {
            if failed.contains(&side.name) {
                continue;
            }
            let sample = match side.run(&sql).await {
                Ok(sample) => sample,
                Err(error) if Side::names_rival(&side.name) => {
                    notes.push(format!("{} without a time in q{number:02}: {error:#}", side.name));
                    results.remove(&side.name);
                    failed.push(side.name.clone());
                    continue;
                }
                Err(error) => return Err(error.context(side.name.clone())),
            };
            let (name, answer) = expected.get_or_insert_with(|| (side.name.clone(), sample.answer.clone()));
            compare(name, answer, &side.name, &sample.answer, &sql)?;
            if round > 0 {
                let result = results.entry(side.name.clone()).or_default();
                result.times_ms.push(sample.ms);
                result.receipt = sample.receipt;
            }
        }
    }
    results.values_mut().for_each(SideResult::settle);
    Ok(QueryResult {
        query: number,
        rows: expected.map_or(0, |(_, answer)| answer.rows.len()),
        sides: results,
    })
}

/// Checks that a side returns the answer of another side.
///
/// # Errors
/// A description of the difference.
pub fn compare(expected_by: &str, expected: &Answer, side: &str, actual: &Answer, sql: &str) -> Result<()> {
    let keys = answers::order_keys(sql);
    let difference =
        answers::difference(expected, actual).or_else(|| answers::order_difference(&keys, expected, actual));
    match difference {
        Some(difference) => bail!("{side} disagrees with {expected_by}: {difference}"),
        None => Ok(()),
    }
}

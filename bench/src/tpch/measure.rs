//! The suite `tpch`: measures rounds over all sides; times count only if the answers agree.

use super::definition::Definition;
use super::results::{QueryResult, Results, SideResult};
use super::sides::{Farpool, Side};
use super::{data, goals, loading};
use crate::suite::{Expected, Head, Samples, turns_after_warm_up};
use crate::{limits, places, text};
use anyhow::{Context, Result};

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
        head: Head::of("tpch"),
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
    let recorded = places::recorded_answer(definition.scale, number);
    let mut expected = Expected::recorded(recorded.as_deref())?;
    let mut samples = Samples::new(sides.len());
    for turn in turns_after_warm_up(sides.len(), definition.runs) {
        let side = &mut sides[turn.side];
        if samples.is_left_out(turn.side) {
            continue;
        }
        match side.run(&sql).await {
            Ok(sample) => {
                expected.check_ordered(&side.name, &sample.answer, &sql)?;
                samples.add(turn, sample);
            }
            Err(error) if Side::names_rival(&side.name) => {
                notes.push(format!("{} without a time in q{number:02}: {error:#}", side.name));
                samples.leave_out(turn.side);
            }
            Err(error) => return Err(error.context(side.name.clone())),
        }
    }
    let timed = sides.iter().zip(samples.into_sides());
    Ok(QueryResult {
        query: number,
        rows: expected.answer().map_or(0, |answer| answer.rows.len()),
        sides: timed.filter_map(|(side, of)| Some((side.name.clone(), SideResult::of(&of?)))).collect(),
    })
}

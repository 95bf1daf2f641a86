//! Measures a suite of queries in rounds over all sides; times count only if the answers agree.

use super::definition::Definition;
use super::results::{QueryResult, Results, SideResult};
use super::sides::{self, Farpool, Side};
use super::{QuerySuite, goals, loading};
use crate::answers::Answer;
use crate::suite::{Expected, Head, Samples, turns_after_warm_up};
use crate::{limits, places, text};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// Runs the whole suite.
pub async fn run(suite: &QuerySuite, definition: &Definition) -> Result<Results> {
    let folder = (suite.folder)(definition.scale)?;
    let limits = limits::measure_for(definition.runs)?;
    let farpool = if definition.separate_node {
        Farpool::start_separate(definition.threads).await?
    } else {
        Farpool::start(definition.threads).await?
    };
    let loading = loading::load(&farpool, &folder, suite.tables).await?;
    let mut notes = Vec::new();
    let tables = (&*folder, suite.tables);
    let mut sides = sides::open(&farpool, &definition.sides, tables, definition.threads, &mut notes).await?;
    let mut queries = Vec::new();
    for id in &definition.queries {
        let name = places::query_name(id);
        text::progress(&format!("{name} "));
        let result = query(&mut sides, suite, definition, id, &mut notes).await;
        queries.push(result.context(name)?);
    }
    text::progress("");
    let mut results = Results {
        head: Head::of(suite.name),
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

/// Runs one query on all sides.
async fn query(
    sides: &mut [Side],
    suite: &QuerySuite,
    definition: &Definition,
    id: &str,
    notes: &mut Vec<String>,
) -> Result<QueryResult> {
    let sql = places::query(suite.name, id)?;
    let recorded = places::recorded_answer(suite.name, definition.scale, id);
    let mut expected = Expected::recorded(recorded.as_deref())?;
    let statement = (&*places::query_name(id), &*sql);
    let sides = in_turns(sides, definition.runs, statement, &mut expected, notes).await?;
    let rows = expected.answer().map_or(0, |answer| answer.rows.len());
    Ok(QueryResult { query: id.to_string(), rows, sides })
}

/// Runs a statement, given by its name and its text, on all sides in turns. A rival that fails is left out, with a note.
pub async fn in_turns(
    sides: &mut [Side],
    runs: usize,
    (name, sql): (&str, &str),
    expected: &mut Expected<Answer>,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, SideResult>> {
    let mut samples = Samples::new(sides.len());
    for turn in turns_after_warm_up(sides.len(), runs) {
        let side = &mut sides[turn.side];
        if samples.is_left_out(turn.side) {
            continue;
        }
        match side.run(sql).await {
            Ok(sample) => {
                expected.check_ordered(&side.name, &sample.answer, sql)?;
                samples.add(turn, sample);
            }
            Err(error) if Side::names_rival(&side.name) => {
                notes.push(format!("{} without a time in {name}: {error:#}", side.name));
                samples.leave_out(turn.side);
            }
            Err(error) => return Err(error.context(side.name.clone())),
        }
    }
    let timed = sides.iter().zip(samples.into_sides());
    Ok(timed.filter_map(|(side, of)| Some((side.name.clone(), SideResult::of(&of?)))).collect())
}

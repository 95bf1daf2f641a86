//! UPDATE and DELETE of a part of TPC-H's `lineitem`, in-process and over TCP, compared with DuckDB.
//!
//! Invariant: a time is recorded only if the statement changed as many rows as its condition selects, and sums over the
//! table afterwards equal those that a query computed before.

use super::definition::{Change, Changes};
use crate::answers::Cell;
use crate::suite::Expected;
use crate::suite::queries::{Farpool, Sample, Side};
use crate::tables::parquet;
use crate::tpch::data;
use crate::{pools, text};
use anyhow::{Context, Result, bail};
use farpool::LoadMode;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

const TABLE: &str = "lineitem";

/// The range of order keys at scale 1.
const KEYS: f64 = 6e6;

/// Results of all statements that change a part of a table.
#[derive(Clone, Debug, Serialize)]
pub struct ChangesResult {
    pub scale: f64,
    pub runs: usize,
    /// Rows of the table before the first change.
    pub rows: u64,
    pub sides: Vec<String>,
    pub rivals: Vec<String>,
    /// Rivals that are missing, with the reasons.
    pub notes: Vec<String>,
    pub cases: Vec<ChangeResult>,
}

/// Results of one statement.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeResult {
    pub name: String,
    /// Number of rows that the last run changed.
    pub rows: i128,
    /// Times of each side, in the order of the runs.
    pub times_ms: BTreeMap<String, Vec<f64>>,
}

/// Runs all cases.
pub async fn measure(definition: &Changes, threads: usize) -> Result<ChangesResult> {
    let folder = data::folder(definition.scale)?;
    let (mut sides, mut notes) = (Vec::new(), Vec::new());
    let mut rows = 0;
    // Each side has a separate table; the first side's table is also queried without push-down before it is changed.
    let mut reference = None;
    for name in &definition.sides {
        text::progress(&format!("loading {TABLE}: {name} "));
        if Side::names_rival(name) {
            match Side::rival(name, &folder, &[TABLE], threads) {
                Ok(side) => sides.push(side),
                Err(error) => notes.push(format!("nothing is compared with {name}: {error:#}")),
            }
            continue;
        }
        let farpool = Farpool::start(threads).await?;
        rows = load(&farpool, &folder).await?;
        sides.push(farpool.side(name, threads).await?);
        if reference.is_none() {
            reference = Some(farpool.side("embedded off", threads).await?);
        }
    }
    let mut reference = reference.context("no side is farpool")?;
    let mut cases = Vec::new();
    for case in &definition.cases {
        text::progress(&format!("{} ", case.name));
        let result = change(&mut sides, &mut reference, definition, case).await;
        cases.push(result.with_context(|| case.name.clone())?);
    }
    Ok(ChangesResult {
        scale: definition.scale,
        runs: definition.runs,
        rows,
        sides: sides.iter().map(|side| side.name.clone()).collect(),
        rivals: sides.iter().filter_map(Side::version).collect(),
        notes,
        cases,
    })
}

async fn load(farpool: &Farpool, folder: &Path) -> Result<u64> {
    let pool = &*farpool.embedded;
    let info = pools::load(pool, TABLE, LoadMode::Create, parquet::read(folder, TABLE)?).await?;
    pools::await_profile(pool, TABLE).await?;
    Ok(info.rows)
}

/// Runs one statement on all sides in turns. The first round is a warm-up and does not count.
async fn change(
    sides: &mut [Side],
    reference: &mut Side,
    definition: &Changes,
    case: &Change,
) -> Result<ChangeResult> {
    let mut result = ChangeResult { name: case.name.clone(), rows: 0, times_ms: BTreeMap::new() };
    for run in 0..=definition.runs {
        let filled = |text: &str| fill(text, definition.scale, case.first + run);
        let sums = |from: &str| format!("SELECT {} FROM {from}", definition.sums);
        let condition = format!("SELECT COUNT(*) FROM {TABLE} WHERE {}", filled(&case.condition));
        let changed = reference.run(&condition).await?.answer;
        let after = reference.run(&sums(&format!("({})", filled(&case.after)))).await?.answer;
        let mut changes = Expected::of("the query of the rows to change", changed.clone());
        let mut tables = Expected::of("the query of the table to come", after);
        for side in &mut *sides {
            let Sample { ms, answer, .. } =
                side.run(&filled(&case.sql)).await.with_context(|| side.name.clone())?;
            changes.check(&side.name, &answer)?;
            let sums = side.run(&sums(TABLE)).await.with_context(|| side.name.clone())?.answer;
            tables.check(&side.name, &sums)?;
            if run > 0 {
                result.times_ms.entry(side.name.clone()).or_default().push(ms);
            }
        }
        result.rows = match changed.rows.as_slice() {
            [row] => match row.as_slice() {
                [Cell::Exact { unscaled, scale: 0 }] if *unscaled > 0 => *unscaled,
                other => bail!("a statement that is to change rows changed {other:?}"),
            },
            _ => bail!("a count has one row"),
        };
    }
    Ok(result)
}

/// Returns the statement for one hundredth of the orders.
fn fill(text: &str, scale: f64, hundredth: usize) -> String {
    let bound = |hundredth: usize| (KEYS * scale) as u64 * hundredth as u64 / 100;
    let [low, high] = [hundredth, hundredth + 1].map(|hundredth| bound(hundredth).to_string());
    text.replace("{n}", &hundredth.to_string()).replace("{low}", &low).replace("{high}", &high)
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn hundredths_follow_one_another() {
        assert_eq!(fill("k % 100 = {n}", 1.0, 7), "k % 100 = 7");
        assert_eq!(fill("{low} {high}", 1.0, 7), "420000 480000");
        assert_eq!(fill("{low} {high}", 0.01, 8), "4800 5400");
    }
}

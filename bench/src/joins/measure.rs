//! Measures the points of a build table after the other, in rounds over all sides; times count only if the answers agree.

use super::data::{self, TABLES};
use super::definition::{Definition, TablePair};
use super::results::{self, PointResult, Results};
use crate::answers::{Answer, Cell};
use crate::suite::queries::{self, Farpool, Side};
use crate::suite::{Expected, Goals, Head};
use crate::{limits, text};
use anyhow::{Context, Result, bail};

/// The side whose answers are compared with if there is no rival: farpool without push-down.
const PLAIN: &str = "embedded off";

/// The side whose plans are explained.
const EXPLAINED: &str = "embedded on";

/// Runs the whole suite.
pub async fn run(definition: &Definition) -> Result<Results> {
    let limits = limits::measure_for(definition.runs)?;
    let farpool = Farpool::start_separate(definition.threads).await?;
    let mut results = Results {
        head: Head::of("joins"),
        rivals: Vec::new(),
        rows: definition.rows,
        runs: definition.runs,
        threads: definition.threads,
        sides: definition.sides.clone(),
        limits,
        points: Vec::new(),
        goals: definition.goals.clone(),
        checked: Goals::default(),
        notes: Vec::new(),
    };
    for pair in &definition.tables {
        text::progress(&format!("loading {} ", pair.shape()));
        of_pair(definition, pair, &farpool, &mut results).await.with_context(|| pair.shape().to_string())?;
    }
    text::progress("");
    results.checked = results::check(&definition.goals, &results.points);
    Ok(results)
}

/// Runs the points of a build table. Its tables replace those of the last one in farpool's pools, and the rivals' processes
/// end with them, so that no side has more in memory than it reads.
async fn of_pair(
    definition: &Definition,
    pair: &TablePair,
    farpool: &Farpool,
    results: &mut Results,
) -> Result<()> {
    let shape = pair.shape();
    let folder = data::folder(shape, definition.rows)?;
    for table in TABLES {
        queries::load_into_all(farpool, &folder, table).await?;
    }
    let (threads, mut notes) = (definition.threads, Vec::new());
    let mut sides =
        queries::open(farpool, &definition.sides, (&folder, &TABLES), threads, &mut notes).await?;
    let mut plain = match sides.iter().any(|side| Side::names_rival(&side.name)) {
        true => None,
        false => Some(farpool.side(PLAIN, threads).await?),
    };
    let explained = farpool.side(EXPLAINED, threads).await?;
    for point in &pair.points {
        let (name, sql) = (point.name(shape), point.sql());
        text::progress(&name);
        let mut expected = match &mut plain {
            Some(plain) => Expected::of("farpool without push-down", plain.run(&sql).await?.answer),
            None => Expected::default(),
        };
        let ran = queries::in_turns(&mut sides, definition.runs, (&name, &sql), &mut expected, &mut notes);
        let sides = ran.await.with_context(|| name.clone())?;
        let bytes_plain = point.bytes_plain(shape, definition.rows);
        results.points.push(PointResult {
            name,
            shape,
            point: *point,
            joined: joined(expected.answer())?,
            bytes_plain,
            memory_ms: bytes_plain as f64 / results.limits.memory_read_2 / 1e6,
            sides,
            explained: explained.explain(&sql).await?,
        });
    }
    results.add(sides.iter().filter_map(Side::version).collect(), notes);
    Ok(())
}

/// Returns the number of rows that an answer counts.
fn joined(answer: Option<&Answer>) -> Result<u64> {
    match answer.and_then(|answer| answer.rows.first()?.first()) {
        Some(Cell::Exact { unscaled, scale: 0 }) => Ok(u64::try_from(*unscaled)?),
        other => bail!("{other:?} is no count"),
    }
}

//! The Python package: tables read into data frames, many small statements, and the time until the first row, compared
//! with DuckDB's package and, for Arrow, with the library in Rust.
//!
//! The variable FARPOOL_PYTHON, which `cargo xtask bench first-minute` sets, names the interpreter that has the
//! package.

use crate::digest::Digest;
use crate::pools::{self, milliseconds};
use crate::random::Random;
use crate::rival::{Rival, RivalDefinition};
use crate::suite::{self, Expected, Samples, Table, turns, turns_after_warm_up};
use crate::{machine, node, places, stats, text};
use anyhow::{Context, Result, ensure};
use arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float64Type};
use farpool::model::TenantName;
use farpool::{EmbeddedPool, LoadMode, Session, load_files};
use parquet::arrow::ArrowWriter;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Rows of a batch of the files.
const BATCH_ROWS: u64 = 1 << 16;

/// The part of the suite about Python, as data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FramesDefinition {
    pub runs: usize,
    rival: String,
    /// Rows of the table of numbers, and of the table of strings.
    pub numbers: u64,
    pub strings: u64,
    /// Number of statements in the loop.
    pub loops: u64,
    /// Goals: ratios to the times of the rival, and for `arrow` to those of the library in Rust.
    of_rival: f64,
    of_rust: f64,
}

/// Results of the part of the suite about Python.
#[derive(Clone, Debug, Serialize)]
pub struct Frames {
    /// The rival and its version.
    pub rival: String,
    pub cases: Vec<FrameResult>,
}

/// Times of a case, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct FrameResult {
    pub case: String,
    pub farpool_ms: Vec<f64>,
    pub rival_ms: Vec<f64>,
    /// Times of the same reads in Rust; empty if there is no comparison with Rust.
    pub rust_ms: Vec<f64>,
    /// Ratio of the median times: farpool's to the rival's.
    pub of_rival: f64,
    pub of_rival_goal: f64,
    pub of_rust: Option<f64>,
    pub of_rust_goal: f64,
}

/// The sides of the comparison: both packages in Python, and the library in this process.
struct Sides {
    farpool: Rival,
    rival: Rival,
    session: Arc<Session>,
    runtime: Runtime,
}

/// The interpreters that have farpool's package and the rival's.
pub struct Interpreters {
    farpool: PathBuf,
    rival: PathBuf,
    definition: RivalDefinition,
}

/// Returns the interpreters.
///
/// # Errors
/// Fails if the package is not installed; the suite then runs without this part.
pub fn interpreters(definition: &FramesDefinition) -> Result<Interpreters> {
    let farpool = std::env::var_os("FARPOOL_PYTHON").map(PathBuf::from);
    let farpool = farpool.context("the Python package is built by `cargo xtask bench first-minute`")?;
    let definition = RivalDefinition::named(&definition.rival)?;
    // The test environment of the package also contains a version of DuckDB.
    let rival = definition.python().unwrap_or_else(|_| farpool.clone());
    Ok(Interpreters { farpool, rival, definition })
}

/// Runs all cases.
pub fn run(definition: &FramesDefinition, interpreters: &Interpreters) -> Result<Frames> {
    let Interpreters { farpool, rival, .. } = interpreters;
    let started = started(definition, farpool, rival)?;
    let threads = machine::machine().processors;
    let driver = |python: &Path, engine: &str| {
        let mut command = Command::new(python);
        command.arg("-B").arg(places::root().join("bench/rivals/frames_driver.py")).arg(engine);
        Rival::run_by(interpreters.definition.clone(), command, threads)
    };
    let runtime = suite::runtime(threads)?;
    let pool = EmbeddedPool::over(node::start(threads)?, TenantName::default());
    let session = runtime.block_on(pools::session(pool.clone(), true, threads))?;
    let mut sides =
        Sides { farpool: driver(farpool, "farpool")?, rival: driver(rival, "duckdb")?, session, runtime };
    for (table, rows) in [("numbers", definition.numbers), ("strings", definition.strings)] {
        let file = file(table, rows)?;
        sides.farpool.ask(&json!({ "do": "load", "table": table, "file": file }))?;
        sides.rival.ask(&json!({ "do": "load", "table": table, "file": file }))?;
        sides.runtime.block_on(load_files(&*pool, table, LoadMode::Create, &[&file]))?;
    }
    let mut results = vec![started];
    for table in ["numbers", "strings"] {
        for kind in ["arrow", "polars", "pandas"] {
            results.push(sides.frames(definition, table, kind)?);
        }
    }
    results.push(sides.small(definition)?);
    Ok(Frames { rival: format!("{} {}", definition.rival, sides.rival.version), cases: results })
}

/// Returns a table of the results.
pub fn text(results: &[FrameResult]) -> String {
    let ms = |times: &[f64]| (!times.is_empty()).then(|| stats::median(times));
    let table = Table::of(results)
        .column("case", |result| &result.case)
        .number("farpool", 1, |result| ms(&result.farpool_ms))
        .number("rival", 1, |result| ms(&result.rival_ms))
        .number("Rust", 1, |result| ms(&result.rust_ms))
        .ratio("of rival", 2, |result| result.of_rival)
        .ratio("goal", 1, |result| result.of_rival_goal)
        .met(|result| result.of_rival <= result.of_rival_goal)
        .ratio("of Rust", 2, |result| result.of_rust)
        .ratio("goal", 2, |result| result.of_rust.map(|_| result.of_rust_goal))
        .met(|result| result.of_rust.map(|ratio| ratio <= result.of_rust_goal));
    table.to_string()
}

impl Sides {
    /// Measures reading a whole table into a data frame.
    fn frames(&mut self, definition: &FramesDefinition, table: &str, kind: &str) -> Result<FrameResult> {
        text::progress(&format!("{table} to {kind} "));
        let statement = format!("SELECT * FROM {table}");
        let request = json!({ "do": "frame", "statement": statement, "to": kind });
        let name = format!("{table} to {kind}");
        let (sides, mut expected) = (if kind == "arrow" { 3 } else { 2 }, Expected::default());
        let mut samples = Samples::new(3);
        for turn in turns_after_warm_up(sides, definition.runs) {
            let (side, (ms, digest)) = match turn.side {
                0 => ("farpool", frame(&mut self.farpool, &request)?),
                1 => (definition.rival.as_str(), frame(&mut self.rival, &request)?),
                _ => ("Rust", self.rust(&statement)?),
            };
            expected.check(side, &digest).with_context(|| name.clone())?;
            samples.add(turn, ms);
        }
        Ok(FrameResult::new(definition, name, &samples))
    }

    /// Reads the same rows in this process.
    fn rust(&self, statement: &str) -> Result<(f64, Digest)> {
        let pools::Ran { ms, batches, .. } = self.runtime.block_on(pools::run(&self.session, statement))?;
        let quarters = batches.iter().map(quarters).collect::<Result<Vec<_>>>()?;
        Ok((ms, Digest::of(&quarters)?))
    }

    /// Measures many small statements, one after the other.
    fn small(&mut self, definition: &FramesDefinition) -> Result<FrameResult> {
        let count = definition.loops;
        text::progress(&format!("{count} statements "));
        let request = json!({
            "do": "loop",
            "statement": "SELECT count(*) FROM strings WHERE id = ?",
            "count": count,
        });
        let (total, mut samples) = (count.min(definition.strings), Samples::new(3));
        // Each request of a side runs thousands of statements, so that fewer runs suffice.
        for turn in turns(2, definition.runs.div_ceil(3)) {
            let side = if turn.side == 0 { &mut self.farpool } else { &mut self.rival };
            let answer = side.ask(&request)?;
            let found = &answer["total"];
            ensure!(found.as_u64() == Some(total), "{found} rows found, and not {total}");
            samples.add(turn, answer["ms"].as_f64().context("the driver gave no time")?);
        }
        Ok(FrameResult::new(definition, format!("{count} statements"), &samples))
    }
}

impl FrameResult {
    /// Returns the result of the samples of farpool, the rival, and Rust if it takes part.
    fn new(definition: &FramesDefinition, case: String, samples: &Samples<f64>) -> Self {
        let [farpool_ms, rival_ms, rust_ms] = [0, 1, 2].map(|side| samples.of(side).to_vec());
        let own = stats::median(&farpool_ms);
        FrameResult {
            case,
            of_rival: own / stats::median(&rival_ms),
            of_rival_goal: definition.of_rival,
            of_rust: (!rust_ms.is_empty()).then(|| own / stats::median(&rust_ms)),
            of_rust_goal: definition.of_rust,
            farpool_ms,
            rival_ms,
            rust_ms,
        }
    }
}

/// Measures processes from start to exit, which import the package, open an empty database and fetch a row.
fn started(definition: &FramesDefinition, python: &Path, rival: &Path) -> Result<FrameResult> {
    let own = "import farpool; assert farpool.open().sql('SELECT 1').fetchone() == (1,)";
    let theirs = "import duckdb; assert duckdb.connect().execute('SELECT 1').fetchone() == (1,)";
    let mut samples = Samples::new(3);
    for turn in turns_after_warm_up(2, definition.runs) {
        let (python, script) = [(python, own), (rival, theirs)][turn.side];
        let start = Instant::now();
        let status = Command::new(python).args(["-c", script]).stdin(Stdio::null()).status();
        let status = status.context("cannot start Python")?;
        ensure!(status.success(), "{} failed ({status})", python.display());
        samples.add(turn, milliseconds(start));
    }
    Ok(FrameResult::new(definition, "import to first row".to_string(), &samples))
}

fn frame(side: &mut Rival, request: &serde_json::Value) -> Result<(f64, Digest)> {
    let answer = side.ask(request)?;
    let ms = answer["ms"].as_f64().context("the driver gave no time")?;
    Ok((ms, serde_json::from_value(answer).context("the driver gave no digest")?))
}

/// Returns the batch with its floats as integers in units of a quarter: floats have no digest, and these are multiples
/// of a quarter.
fn quarters(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let named = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let column: ArrayRef = match column.data_type() {
            DataType::Float64 => {
                let floats = column.as_primitive::<Float64Type>();
                Arc::new(Int64Array::from_iter_values(
                    floats.values().iter().map(|value| (value * 4.0) as i64),
                ))
            }
            _ => column.clone(),
        };
        (field.name().clone(), column)
    });
    Ok(RecordBatch::try_from_iter(named.collect::<Vec<_>>())?)
}

/// Returns the file of a table, and creates it if it does not exist.
fn file(table: &str, rows: u64) -> Result<PathBuf> {
    places::made("data/first-minute", &format!("{table}-{rows}.parquet"), |file| {
        let mut random = Random(7);
        let starts = (0..rows).step_by(BATCH_ROWS as usize);
        let mut batches = starts.map(|first| batch(table, first, rows.min(first + BATCH_ROWS), &mut random));
        let first = batches.next().context("a table without rows")??;
        let mut writer = ArrowWriter::try_new(File::create(file)?, first.schema(), None)?;
        writer.write(&first)?;
        for batch in batches {
            writer.write(&batch?)?;
        }
        writer.close()?;
        Ok(())
    })
}

fn batch(table: &str, first: u64, end: u64, random: &mut Random) -> Result<RecordBatch> {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((first..end).map(|id| id as i64)));
    let mut below = |most: u64| random.next() % most;
    let columns: Vec<(&str, ArrayRef)> = match table {
        "numbers" => {
            let amounts: Vec<i64> = (first..end).map(|_| below(1 << 40) as i64).collect();
            let prices: Vec<f64> = (first..end).map(|_| below(400_000) as f64 / 4.0).collect();
            let quantities: Vec<i32> = (first..end).map(|_| below(50) as i32).collect();
            vec![
                ("id", ids),
                ("amount", Arc::new(Int64Array::from(amounts))),
                ("price", Arc::new(Float64Array::from(prices))),
                ("quantity", Arc::new(Int32Array::from(quantities))),
            ]
        }
        _ => {
            let texts = (first..end).map(|id| format!("customer {id:08} of {:06x}", below(1 << 24)));
            vec![("id", ids), ("name", Arc::new(StringArray::from_iter_values(texts)))]
        }
    };
    Ok(RecordBatch::try_from_iter(columns)?)
}

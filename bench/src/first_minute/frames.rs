//! The Python package: tables read into data frames, many small statements, and the time until the first row, compared
//! with DuckDB's package and, for Arrow, with the library in Rust.
//!
//! The variable FARPOOL_PYTHON, which `cargo xtask bench first-minute` sets, names the interpreter that has the
//! package.

use crate::digest::Digest;
use crate::random::Random;
use crate::rival::{Rival, RivalDefinition};
use crate::{machine, node, places, stats, suite, text};
use anyhow::{Context, Result, bail, ensure};
use arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float64Type};
use farpool::model::TenantName;
use farpool::{EmbeddedPool, LoadMode, Session, SessionOptions, load_files};
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

/// Results of this part.
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
    /// Empty if there is no comparison in Rust.
    pub rust_ms: Vec<f64>,
    /// Ratio of the medians.
    pub of_rival: f64,
    pub of_rival_goal: f64,
    pub of_rust: Option<f64>,
    pub of_rust_goal: f64,
}

/// Both packages, and the library in this process.
struct Sides {
    farpool: Rival,
    rival: Rival,
    session: Session,
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
    let rival = places::rivals()?.join(&definition.environment).join("bin/python");
    // The test environment of the package also contains a version of DuckDB.
    let rival = if rival.exists() { rival } else { farpool.clone() };
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
    let session =
        Session::new(SessionOptions { target_partitions: Some(threads), ..SessionOptions::default() });
    runtime.block_on(session.register_pool("farpool", pool.clone()))?;
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
    let header = ["case", "farpool", "rival", "Rust", "of rival", "goal", "", "of Rust", "goal", ""];
    let ms = |times: &[f64]| {
        if times.is_empty() { "-".to_string() } else { format!("{:.1}", stats::median(times)) }
    };
    let row = |result: &FrameResult| {
        let of_rust = result.of_rust.map_or("-".to_string(), |ratio| format!("{ratio:.2}×"));
        let rust_goal = result.of_rust.map_or("-".to_string(), |_| format!("{:.2}×", result.of_rust_goal));
        let met = |is_met| text::met(is_met).trim().to_string();
        vec![
            result.case.clone(),
            ms(&result.farpool_ms),
            ms(&result.rival_ms),
            ms(&result.rust_ms),
            format!("{:.2}×", result.of_rival),
            format!("{:.1}×", result.of_rival_goal),
            met(Some(result.of_rival <= result.of_rival_goal)),
            of_rust,
            rust_goal,
            met(result.of_rust.map(|ratio| ratio <= result.of_rust_goal)),
        ]
    };
    text::table(header.map(String::from).to_vec(), results.iter().map(row).collect())
}

impl Sides {
    /// Measures reading a whole table into a data frame.
    fn frames(&mut self, definition: &FramesDefinition, table: &str, kind: &str) -> Result<FrameResult> {
        text::progress(&format!("{table} to {kind} "));
        let statement = format!("SELECT * FROM {table}");
        let request = json!({ "do": "frame", "statement": statement, "to": kind });
        let (mut farpool_ms, mut rival_ms, mut rust_ms) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..=definition.runs {
            let (own, own_digest) = frame(&mut self.farpool, &request)?;
            let (rival, digest) = frame(&mut self.rival, &request)?;
            ensure!(
                own_digest == digest,
                "{table} to {kind}: {own_digest:?}, {} has {digest:?}",
                definition.rival
            );
            if run > 0 {
                farpool_ms.push(own);
                rival_ms.push(rival);
            }
            if kind == "arrow" {
                let (ms, digest) = self.rust(&statement)?;
                ensure!(own_digest == digest, "{table}: {own_digest:?}, in Rust {digest:?}");
                if run > 0 {
                    rust_ms.push(ms);
                }
            }
        }
        Ok(FrameResult::new(definition, format!("{table} to {kind}"), farpool_ms, rival_ms, rust_ms))
    }

    /// Reads the same rows in this process.
    fn rust(&self, statement: &str) -> Result<(f64, Digest)> {
        let start = Instant::now();
        let batches = self.runtime.block_on(async { self.session.sql(statement).await?.collect().await })?;
        let ms = milliseconds(start);
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
        let (mut farpool_ms, mut rival_ms) = (Vec::new(), Vec::new());
        // Each request is thousands of statements.
        for _ in 0..definition.runs.div_ceil(3) {
            for (side, times) in [(&mut self.farpool, &mut farpool_ms), (&mut self.rival, &mut rival_ms)] {
                let answer = side.ask(&request)?;
                let total = count.min(definition.strings);
                ensure!(
                    answer["total"].as_u64() == Some(total),
                    "{} rows found, and not {total}",
                    answer["total"]
                );
                times.push(answer["ms"].as_f64().context("the driver gave no time")?);
            }
        }
        Ok(FrameResult::new(definition, format!("{count} statements"), farpool_ms, rival_ms, Vec::new()))
    }
}

impl FrameResult {
    fn new(
        definition: &FramesDefinition,
        case: String,
        farpool_ms: Vec<f64>,
        rival_ms: Vec<f64>,
        rust_ms: Vec<f64>,
    ) -> Self {
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
    let (mut farpool_ms, mut rival_ms) = (Vec::new(), Vec::new());
    for run in 0..=definition.runs {
        for (python, script, times) in [(python, own, &mut farpool_ms), (rival, theirs, &mut rival_ms)] {
            let start = Instant::now();
            let status = Command::new(python).args(["-c", script]).stdin(Stdio::null()).status();
            let status = status.context("cannot start Python")?;
            if !status.success() {
                bail!("{} failed ({status})", python.display());
            }
            if run > 0 {
                times.push(milliseconds(start));
            }
        }
    }
    Ok(FrameResult::new(definition, "import to first row".to_string(), farpool_ms, rival_ms, Vec::new()))
}

fn frame(side: &mut Rival, request: &serde_json::Value) -> Result<(f64, Digest)> {
    let answer = side.ask(request)?;
    let ms = answer["ms"].as_f64().context("the driver gave no time")?;
    Ok((ms, serde_json::from_value(answer).context("the driver gave no digest")?))
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
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
    let folder = places::cache()?.join("data/first-minute");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("{table}-{rows}.parquet"));
    if !file.exists() {
        let partial = file.with_extension("partial");
        let mut random = Random(7);
        let mut batches = (0..rows)
            .step_by(BATCH_ROWS as usize)
            .map(|first| batch(table, first, rows.min(first + BATCH_ROWS), &mut random));
        let first = batches.next().context("a table without rows")??;
        let mut writer = ArrowWriter::try_new(File::create(&partial)?, first.schema(), None)?;
        writer.write(&first)?;
        for batch in batches {
            writer.write(&batch?)?;
        }
        writer.close()?;
        std::fs::rename(&partial, &file)?;
    }
    Ok(file)
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

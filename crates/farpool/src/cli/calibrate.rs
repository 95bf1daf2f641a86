//! `farpool calibrate`: measures the rates of this machine, on which the choice of operators to push down is based, or
//! the best way to request column chunks over the link to a node ([`link`]).
//!
//! Each rate is the best of a few runs on one thread over a generated table. The rates of the engine (DataFusion) are
//! measured through SQL without push-down, minus the time in which the pool returns the columns.

mod link;

use super::output::TextFormat;
use super::pool_args::ClientArgs;
use super::progress::{Progress, Unit};
use super::stop::{Outcome, Stop};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use farpool::model::limits::ROW_GROUP_ROWS;
use farpool::model::{
    Aggregate, AggregateFunction, CompareOp, Expr, Literal, NamedExpr, Output, Program, TableName, Value,
};
use farpool::{EmbeddedPool, LoadMode, Pool, PoolUrl, Rates, Session, SessionOptions, TableInfo};
use futures::StreamExt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Number of rows of the measured table. Reason: the fastest pass over them still takes a millisecond.
const ROWS: u64 = 32 * ROW_GROUP_ROWS as u64;
/// Number of runs per measurement. The fastest counts, because it was disturbed least.
const RUNS: u64 = 3;
/// Number of measurements, each a pass over all rows.
const PASSES: u64 = 13;
const MEMORY_BYTES: usize = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  farpool calibrate
  farpool calibrate --format json
  farpool calibrate --pool farpool://node7:9797

The speeds are stored in ~/.cache/farpool/calibration.json (or below $XDG_CACHE_HOME), where 'farpool sql'
reads them to decide what to push down; delete the file to return to the built-in ones.\n\
With --pool, the fastest way to fetch columns from that node (sql --cache) is measured: a table of 16 MiB is created \
there, read in several ways for some seconds, and dropped. The result is stored beside, in links.json.";

/// Measure the speed of this machine, for the cost model that decides about push-down
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Measure the link to this memory node instead; requires the right to load tables
    #[arg(long, value_name = "URL")]
    pool: Option<PoolUrl>,

    #[command(flatten)]
    client: ClientArgs,

    /// Format of the output; `json` prints one object
    #[arg(long, value_enum, default_value = "table")]
    format: TextFormat,
}

/// Measures the rates of this machine, writes them to the calibration file and prints them.
pub fn run(args: Args) -> Outcome {
    if let Some(url) = args.pool {
        return link::run(url, args.client, args.format);
    }
    super::run_until_interrupted(async move {
        let rates = measure().await?;
        match farpool::calibration_file() {
            Some(path) => {
                farpool::keep_rates(&rates, &path)?;
                eprintln!("kept in {}", path.display());
            }
            None => eprintln!("not kept: there is no home folder"),
        }
        let text = match args.format {
            TextFormat::Table => as_text(&rates),
            TextFormat::Json => {
                let json = serde_json::to_string_pretty(&rates);
                json.map_err(|error| farpool::Error::internal(error.to_string()))? + "\n"
            }
        };
        std::io::stdout().write_all(text.as_bytes()).map_err(Stop::output)
    })
}

fn as_text(rates: &Rates) -> String {
    let rows = |rate: f64| format!("{:>9.1} million rows/s", rate / 1e6);
    let lines = [
        ("pool: comparison with a constant", rows(rates.pool_filter_rows)),
        ("pool: LIKE '%…%'", rows(rates.pool_match_rows)),
        ("pool: GROUP BY, few groups", rows(rates.pool_group_rows)),
        ("pool: GROUP BY, a group for each row", rows(rates.pool_spread_rows)),
        ("pool: GROUP BY, a string for each row", rows(rates.pool_text_rows)),
        ("pool: decoding", format!("{:>9.1} GB/s", rates.decode_bytes / 1e9)),
        ("engine: GROUP BY, few groups", rows(rates.engine_group_rows)),
        ("engine: GROUP BY, a group for each row", rows(rates.engine_spread_rows)),
        ("engine: GROUP BY, a string for each row", rows(rates.engine_text_rows)),
        ("engine: ORDER BY … LIMIT", rows(rates.engine_top_rows)),
    ];
    lines.iter().map(|(name, rate)| format!("{name:<40} {rate}, one thread\n")).collect()
}

async fn measure() -> Outcome<Rates> {
    let done = Arc::new(AtomicU64::new(0));
    let total = ROWS * (1 + PASSES * RUNS);
    let _bar = Progress::follow("calibrating", Unit::Rows, total, done.clone(), None);
    let pool = EmbeddedPool::open(MEMORY_BYTES)?;
    let info = load(&pool, &done).await?;
    let session =
        Session::new(SessionOptions { pushdown: false, target_partitions: Some(1), ..Default::default() });
    session.register_pool("farpool", pool.clone()).await?;
    let bench = Bench { pool, info, session, done };

    let columns = |places: &[usize]| bench.columns(places);
    let (grouped, spread, texts) = (bench.grouped(1)?, bench.grouped(0)?, bench.grouped(3)?);
    let (key_and_value, id_and_value) =
        (bench.pool(columns(&[1, 2])).await?, bench.pool(columns(&[0, 2])).await?);
    let text_and_value = bench.pool(columns(&[3, 2])).await?;
    let id = bench.pool(columns(&[0])).await?;
    let rows = ROWS as f64;
    // The engine's time is the whole time minus that of the scan. If it is lost in noise, it counts as a hundredth of
    // the whole.
    let engine = |whole: f64, scan: f64| rows / (whole - scan).max(whole / 100.0);
    Ok(Rates {
        pool_filter_rows: rows / bench.pool(bench.filtered(less_than_half()?)).await?,
        pool_match_rows: rows / bench.pool(bench.filtered(like())).await?,
        pool_group_rows: rows / bench.pool(grouped).await?,
        pool_spread_rows: rows / bench.pool(spread).await?,
        pool_text_rows: rows / bench.pool(texts).await?,
        decode_bytes: rows * 16.0 / id_and_value,
        engine_group_rows: engine(bench.engine("SELECT k, sum(v) FROM t GROUP BY k").await?, key_and_value),
        engine_spread_rows: engine(bench.engine("SELECT id, sum(v) FROM t GROUP BY id").await?, id_and_value),
        engine_text_rows: engine(bench.engine("SELECT s, sum(v) FROM t GROUP BY s").await?, text_and_value),
        engine_top_rows: engine(bench.engine("SELECT id FROM t ORDER BY id LIMIT 100").await?, id),
        // Joins are not measured.
        ..Rates::default()
    })
}

/// Loads the measured table: `id` is different in each row, in no order; `k` has 16 distinct values, `v` a thousand;
/// `s` is a sentence.
async fn load(pool: &EmbeddedPool, done: &AtomicU64) -> Outcome<TableInfo> {
    let batch = |first: u64| {
        let rows = || first..first + ROW_GROUP_ROWS as u64;
        let mixed = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        let ints = |f: &dyn Fn(u64) -> u64| -> ArrayRef {
            Arc::new(rows().map(|row| i64::try_from(f(row)).unwrap_or(0)).collect::<Int64Array>())
        };
        let text = |row: u64| Some(format!("row {} has the number {}", mixed(row) % 977, mixed(row)));
        let texts: ArrayRef = Arc::new(rows().map(text).collect::<StringViewArray>());
        let columns = [
            ("id", ints(&mixed)),
            ("k", ints(&|r| mixed(r) % 16)),
            ("v", ints(&|r| mixed(r) % 1000)),
            ("s", texts),
        ];
        done.fetch_add(ROW_GROUP_ROWS as u64, Ordering::Relaxed);
        RecordBatch::try_from_iter(columns).map_err(|error| farpool::Error::internal(error.to_string()))
    };
    let schema = batch(0)?.schema();
    done.store(0, Ordering::Relaxed);
    let batches: Vec<_> = (0..ROWS).step_by(ROW_GROUP_ROWS).map(batch).collect();
    let batches = futures::stream::iter(batches).boxed();
    Ok(pool.load(&TableName::new("t")?, LoadMode::Create.into(), schema, Some(ROWS), batches).await?)
}

fn less_than_half() -> Outcome<Expr> {
    let constant = Literal::new(Value::Int(500), arrow::datatypes::DataType::Int64)?;
    Ok(Expr::compare(CompareOp::Lt, Expr::Column(2), Expr::Literal(constant)))
}

fn like() -> Expr {
    Expr::Like { value: Box::new(Expr::Column(3)), pattern: "%7%number%9%".into(), case_insensitive: false }
}

struct Bench {
    pool: Arc<EmbeddedPool>,
    info: TableInfo,
    session: Session,
    done: Arc<AtomicU64>,
}

impl Bench {
    fn columns(&self, places: &[usize]) -> Program {
        Program::scan(self.info.name.clone(), &self.info.schema, places)
    }

    fn filtered(&self, filter: Expr) -> Program {
        Program { filter: Some(filter), ..self.columns(&[]) }
    }

    fn grouped(&self, key: usize) -> Outcome<Program> {
        let sum = Aggregate {
            name: "sum".into(),
            function: AggregateFunction::Sum,
            arguments: vec![Expr::Column(2)],
            filter: None,
            data_type: arrow::datatypes::DataType::Int64,
        };
        let keys = vec![NamedExpr::column(&self.info.schema, key)];
        Ok(Program { output: Output::Aggregate { keys, aggregates: vec![sum] }, ..self.columns(&[]) })
    }

    /// Returns the seconds that a program takes at the pool.
    async fn pool(&self, program: Program) -> Outcome<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let start = Instant::now();
            for mut stream in self.pool.execute(&program, 1).await?.streams {
                while let Some(batch) = stream.next().await {
                    batch?;
                }
            }
            best = best.min(self.ran(start));
        }
        Ok(best)
    }

    /// Returns the seconds that a statement takes over columns that the pool returns.
    async fn engine(&self, sql: &str) -> Outcome<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let query = self.session.sql(sql).await?;
            let start = Instant::now();
            let mut batches = query.execute().await?;
            while let Some(batch) = batches.next().await {
                batch?;
            }
            best = best.min(self.ran(start));
        }
        Ok(best)
    }

    fn ran(&self, start: Instant) -> f64 {
        self.done.fetch_add(ROWS, Ordering::Relaxed);
        start.elapsed().as_secs_f64().max(1e-9)
    }
}

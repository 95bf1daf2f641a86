//! `farpool load`: puts files into a node as a table.

use super::output::print_text;
use super::pool_args::PoolArgs;
use super::progress::{Progress, Unit};
use super::size;
use super::stop::Outcome;
use super::terminal::printable;
use arrow::datatypes::SchemaRef;
use farpool::{Error, FileLoad, LoadMode, Pool, TableInfo, TableName};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  farpool load trips trips.parquet
  farpool load trips 2023-*.csv 2024-*.csv
  farpool load --append trips 2025-01.csv
  farpool load --replace --pool farpool://node7:9797 trips trips.arrow

The table belongs to the node (see 'farpool serve'): without --pool, to the one at
farpool://127.0.0.1:9797. To query a file without a node: farpool sql -c \"select … from 'FILE'\".
Others see the new table, or the new rows, when all of it is there; a load that fails leaves no trace.
Until then --replace takes room for both versions; where there is too little, drop the table first.";

/// Load Parquet, CSV or Arrow IPC files into a memory node
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The name of the table
    table: String,

    /// Files, or patterns in quotes; they must agree in their columns
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Add the rows to a table that exists
    #[arg(long, conflicts_with = "replace")]
    append: bool,

    /// Take the place of the table, if there is one of that name
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    pool: PoolArgs,
}

impl Args {
    fn mode(&self) -> LoadMode {
        match (self.append, self.replace) {
            (true, _) => LoadMode::Append,
            (_, true) => LoadMode::Replace,
            _ => LoadMode::Create,
        }
    }
}

/// Loads and says what became of it.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let start = Instant::now();
        let name = TableName::new(args.table.clone())?;
        let files = args.files.clone();
        let load = tokio::task::spawn_blocking(move || FileLoad::open(&files))
            .await
            .map_err(|error| Error::internal(format!("reading the files failed: {error}")))??;
        let pool = args.pool.connect().await?;
        if args.replace
            && let Some(lack) = lack_of_room(&*pool, &name, &load).await
        {
            eprintln!("{}", printable(&lack));
        }
        let rows_read = load.rows_read();
        let bar = watch(format!("loading {name}"), &load);
        let info = load.run(&*pool, &name, args.mode()).await?;
        drop(bar);
        let rows = rows_read.load(std::sync::atomic::Ordering::Relaxed);
        print_text(&summary(&info, rows, start.elapsed()))
    })
}

/// A progress bar for a load: bytes of the files, and rows.
pub fn watch(label: String, load: &FileLoad) -> Progress {
    Progress::follow(label, Unit::Bytes, load.bytes(), load.bytes_read(), Some(load.rows_read()))
}

/// What to tell before a table is replaced that the pool cannot hold beside its replacement, as far as can be estimated
/// from the rows of each. The load may succeed all the same.
async fn lack_of_room(pool: &dyn Pool, name: &TableName, load: &FileLoad) -> Option<String> {
    let (table, status) = (pool.table(name).await.ok()?, pool.status().await.ok()?);
    let columns =
        |schema: &SchemaRef| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let rows =
        load.rows_hint().filter(|_| table.rows > 0 && columns(&table.schema) == columns(load.schema()))?;
    let needed = u128::from(table.bytes_encoded) * u128::from(rows) / u128::from(table.rows);
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    let free = status.memory_bytes_limit.saturating_sub(status.memory_bytes_used);
    (needed > free).then(|| {
        format!(
            "note: both versions of {name} are in the pool until the new one is complete: the old one takes {}, the new \
             one needs about {}, and {} are free; if that is too little, drop the table first (farpool drop {name})",
            size::bytes(table.bytes_encoded),
            size::bytes(needed),
            size::bytes(free),
        )
    })
}

fn summary(info: &TableInfo, rows_read: u64, time: Duration) -> String {
    let total = match info.rows == rows_read {
        true => String::new(),
        false => format!(", {} in all", size::counted(info.rows, "row")),
    };
    format!(
        "{}: {} in {}{total}; {} plain, {} in the pool, {} smaller\n",
        info.name,
        size::counted(rows_read, "row"),
        size::duration(time),
        size::bytes(info.bytes_plain),
        size::bytes(info.bytes_encoded),
        size::factor(info.bytes_plain, info.bytes_encoded),
    )
}

//! `farpool load`: loads files, standard input or the rows of a query into a node as a table.

use super::output::print_text;
use super::pool_args::PoolArgs;
use super::progress::{Progress, Unit};
use super::read_args::ReadArgs;
use super::size;
use super::stop::Outcome;
use super::terminal::printable;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use farpool::{
    Error, FileLoad, LoadMode, LoadOptions, Pool, QueryFiles, Residency, Session, SessionOptions, StreamLoad,
    TableInfo, TableName, Tier,
};
use futures::StreamExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  farpool load trips trips.parquet
  farpool load trips 2023-*.csv 2024-*.csv
  farpool load --append trips 2025-01.csv.gz --null NA --types zip=text
  farpool load trips 'trips/**/*.parquet' --columns city,fare
  farpool load trips 's3://bucket/trips/*.parquet'
  farpool load events events.json --nested json
  producer | farpool load trips -
  farpool load big --query \"select * from 'trips.json' where fare > 100\"
  farpool load --encrypt standard patients patients.parquet
  farpool load --replace --pool farpool://node7:9797 trips trips.arrow

The table belongs to the node (see 'farpool serve'): without --pool, to the one at
farpool://127.0.0.1:9797. To query a file without a node: farpool sql -c \"select … from 'FILE'\".
A load is atomic: other clients see the new table, or the new rows, when it has ended; a load that fails changes nothing.
Until then --replace needs memory for both versions; if there is not enough, drop the table first.";

/// Load Parquet, CSV, JSON or Arrow IPC files into a memory node
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the table: TABLE or SCHEMA.TABLE
    table: String,

    /// Files, folders, URLs, or patterns in quotes, all with the same columns; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "query")]
    files: Vec<PathBuf>,

    /// Load the result of this query over files, which runs in this process
    #[arg(long, value_name = "SQL", conflicts_with = "files")]
    query: Option<String>,

    /// Load only these columns, comma-separated
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "query")]
    columns: Option<Vec<String>>,

    /// Append the rows to an existing table
    #[arg(long, conflicts_with = "replace")]
    append: bool,

    /// Replace the table if it exists
    #[arg(long)]
    replace: bool,

    /// Pin the table: never evict its values from memory, also after restarts of a node with a data directory; pinned
    /// tables may take half of the memory
    #[arg(long, conflicts_with = "no_cache")]
    pin: bool,

    /// Write the rows to the node's data directory, without caching them in memory
    #[arg(long)]
    no_cache: bool,

    /// Convert nested columns (lists, structs, maps), which pools do not support, to text; without it they are skipped
    #[arg(long, value_name = "FORM", value_enum, conflicts_with = "query")]
    nested: Option<Nested>,

    /// Encrypt the values in the node's memory: fast (AES-128-CTR, not authenticated), standard (AES-128-GCM) or strict
    /// (AES-256-GCM). Queries decrypt the values that they read; the table has no profile
    #[arg(long, value_name = "TIER")]
    encrypt: Option<Tier>,

    #[command(flatten)]
    pool: PoolArgs,

    #[command(flatten)]
    read: ReadArgs,
}

/// The treatment of nested columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Nested {
    /// JSON text
    Json,
}

impl Args {
    fn options(&self) -> LoadOptions {
        let mode = match (self.append, self.replace) {
            (true, _) => LoadMode::Append,
            (_, true) => LoadMode::Replace,
            _ => LoadMode::Create,
        };
        let residency = match (self.pin, self.no_cache) {
            (true, _) => Residency::Pinned,
            (_, true) => Residency::Passing,
            _ => Residency::Cached,
        };
        LoadOptions { mode, encryption: self.encrypt, residency }
    }
}

/// Loads the rows and prints a summary.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let start = Instant::now();
        let name = TableName::parse(&args.table)?;
        let (info, rows) = match (&args.query, args.files.as_slice()) {
            (Some(query), _) => of_query(&args, &name, query).await?,
            (None, [file]) if file.as_os_str() == "-" => of_stream(&args, &name).await?,
            (None, _) => of_files(&args, &name).await?,
        };
        print_text(&summary(&info, rows, start.elapsed()))
    })
}

async fn of_files(args: &Args, name: &TableName) -> Outcome<(TableInfo, u64)> {
    let (files, options) = (args.files.clone(), args.read.options()?);
    let load = blocking(move || FileLoad::open_with(&files, &options)).await?;
    let load = match args.nested {
        Some(Nested::Json) => load.nested_as_json(),
        None => load,
    };
    let load = match chosen(args, load.schema())? {
        Some(columns) => load.select(columns),
        None => load,
    };
    let pool = args.pool.connect().await?;
    if args.replace
        && let Some(lack) = lack_of_room(&*pool, name, &load).await
    {
        eprintln!("{}", printable(&lack));
    }
    let rows_read = load.rows_read();
    let bar = watch(format!("loading {name}"), &load);
    let info = load.run(&*pool, name, args.options()).await?;
    drop(bar);
    Ok((info, rows_read.load(Ordering::Relaxed)))
}

async fn of_stream(args: &Args, name: &TableName) -> Outcome<(TableInfo, u64)> {
    let options = args.read.options()?;
    let load = blocking(move || StreamLoad::open("standard input", std::io::stdin(), &options)).await?;
    let load = match args.nested {
        Some(Nested::Json) => load.nested_as_json(),
        None => load,
    };
    let load = match chosen(args, load.schema())? {
        Some(columns) => load.select(columns),
        None => load,
    };
    let pool = args.pool.connect().await?;
    let rows_read = load.rows_read();
    let bar = Progress::follow(format!("loading {name}"), Unit::Stream, 0, rows_read.clone(), None);
    let info = load.run(&*pool, name, args.options()).await?;
    drop(bar);
    Ok((info, rows_read.load(Ordering::Relaxed)))
}

async fn of_query(args: &Args, name: &TableName, query: &str) -> Outcome<(TableInfo, u64)> {
    let pool = args.pool.connect().await?;
    let session = Session::new(SessionOptions::default());
    let files = QueryFiles::new(farpool::memory_bytes_default()).with_options(args.read.options()?);
    session.set_file_opener(Arc::new(files));
    session.register_pool("farpool", pool.clone()).await?;
    let query = session.sql(query).await?;
    let rows_read = Arc::new(AtomicU64::new(0));
    let count = rows_read.clone();
    let batches = query.execute().await?.inspect(move |batch| {
        let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
        count.fetch_add(farpool::model::cast::u64_from(rows), Ordering::Relaxed);
    });
    let bar = Progress::follow(format!("loading {name}"), Unit::Rows, 0, rows_read.clone(), None);
    let info = pool.load(name, args.options(), query.schema().clone(), None, batches.boxed()).await?;
    drop(bar);
    Ok((info, rows_read.load(Ordering::Relaxed)))
}

/// Returns the indexes of the columns to load; `None` for all columns. Prints the columns that are left out.
fn chosen(args: &Args, schema: &Schema) -> Outcome<Option<Vec<usize>>> {
    if let Some(names) = &args.columns {
        let mut columns = farpool::column_positions(schema, Some(names.as_slice()))?;
        columns.sort_unstable();
        return Ok(Some(columns));
    }
    let (held, note) = farpool::held_columns(schema)?;
    if let Some(note) = note {
        let is_nested = schema.fields().iter().any(|field| field.data_type().is_nested());
        let advice = if is_nested { "; --nested json loads nested ones as text" } else { "" };
        eprintln!("note: {}{advice}", printable(&note));
    }
    Ok(held)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> farpool::Result<T> + Send + 'static,
) -> Outcome<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    Ok(joined.map_err(|error| Error::internal(format!("reading the files failed: {error}")))??)
}

/// Starts a progress bar for a load: bytes of the files, and rows.
pub fn watch(label: String, load: &FileLoad) -> Progress {
    Progress::follow(label, Unit::Bytes, load.bytes(), load.bytes_read(), Some(load.rows_read()))
}

/// Returns a warning if the pool does not have enough memory for both a table and its replacement, estimated from the
/// number of rows of each; `None` otherwise. The load may succeed nevertheless.
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
        "{}: {} in {}{total}; {} plain, {} encoded, {}{}\n",
        info.name,
        size::counted(rows_read, "row"),
        size::duration(time),
        size::bytes(info.bytes_plain),
        size::bytes(info.bytes_encoded),
        match info.bytes_encoded > info.bytes_plain {
            true => format!("{} larger", size::factor(info.bytes_encoded, info.bytes_plain)),
            false => format!("{} smaller", size::factor(info.bytes_plain, info.bytes_encoded)),
        },
        info.encryption.map_or_else(String::new, |tier| format!("; encrypted in memory: {tier}")),
    )
}

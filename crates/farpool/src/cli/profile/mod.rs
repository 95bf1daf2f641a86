//! `farpool profile`: shows statistics of the columns of a file, a stream or a table, computed in one pass.

mod terminal;

use super::output::{print_exactly, print_text};
use super::pool_args::PoolArgs;
use super::progress::{Progress, Unit};
use super::read_args::ReadArgs;
use super::stop::Outcome;
use super::terminal::printable;
use farpool::report::{Report, Source};
use farpool::{Error, FileLoad, Profiling, TableName};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const EXAMPLES: &str = "\
Examples:
  farpool profile trips.parquet
  farpool profile 'trips-*.csv' --columns city,fare
  farpool profile flights.csv.gz --null NA
  farpool profile trips.parquet --format html > trips.html
  farpool profile --pool farpool://node7:9797 trips
  producer | farpool profile - --format json

The target is a file if it has a '.', a '/' or a '*' in it or exists as a file, and a table of the node \
otherwise, or with --pool. '-' reads CSV, JSON or Arrow IPC from standard input. The node computes a table's \
profile in the background after a load, so that it is available at once or soon.

Distinct values, frequent values, quartiles and skew are estimates of sketches, printed with a confidence interval, \
or exact where both of its ends are equal; everything else is exact. Correlations are Pearson's, \
of up to 64 numeric columns, rows with a NULL in either left out.
--format json prints one object: name, source, rows, columns: [{name, type, nulls, min, max, sum, mean, \
stddev, distinct: {value, low, high, confidence, exact}, second_moment, skew, counts_trusted, \
top: [{value, count, low, high}], quantiles: {p25, p50, p75}, each {value, low, high, confidence}, histogram: [{low, high, count}]}], \
correlation: {columns, matrix}; unknown values are null.";

/// Show statistics of the columns of a file or a table
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File, pattern in quotes, `-` for standard input, or table of the node
    #[arg(value_name = "TABLE|FILE")]
    target: String,

    /// Profile only these columns, comma-separated
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Option<Vec<String>>,

    /// Format of the output
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    #[command(flatten)]
    pool: PoolArgs,

    #[command(flatten)]
    read: ReadArgs,
}

/// The format of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Aligned columns
    Table,
    /// One JSON object
    Json,
    /// Self-contained HTML page
    Html,
}

/// Computes the profile and prints it.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let report = match &args.target {
            target if args.pool.pool.is_some() => of_table(target, &args).await?,
            target if target == "-" => of_stream(&args).await?,
            target if names_a_file(target) => of_files(target, &args).await?,
            target => of_table(target, &args).await?,
        };
        match args.format {
            Format::Table => print_text(&terminal::render(&report)),
            Format::Json => print_exactly(&report.to_json()),
            Format::Html => print_exactly(&report.to_html()),
        }
    })
}

fn names_a_file(target: &str) -> bool {
    target.contains(['/', '.', '*', '\\']) || Path::new(target).exists()
}

async fn of_files(target: &str, args: &Args) -> Outcome<Report> {
    let (path, columns, options) = (target.to_string(), args.columns.clone(), args.read.options()?);
    let label = format!("reading {target}");
    let profile = blocking(move || {
        let load = FileLoad::open_with(&[path], &options)?;
        tell_of_columns(&load, columns.as_deref())?;
        let (bytes, bytes_read, rows) = (load.bytes(), load.bytes_read(), load.rows_read());
        let profiling = Profiling::of_files(load, columns.as_deref())?;
        let _bar = Progress::follow(label, Unit::Bytes, bytes, bytes_read, Some(rows));
        profiling.run()
    });
    Ok(Report::new(target, Source::File, &profile.await?, None, None))
}

/// Prints a note about the columns that are left out because their types cannot be profiled.
fn tell_of_columns(load: &FileLoad, asked: Option<&[String]>) -> farpool::Result<()> {
    if let (None, (_, Some(note))) = (asked, farpool::held_columns(load.schema())?) {
        eprintln!("note: {}", printable(&note));
    }
    Ok(())
}

async fn of_stream(args: &Args) -> Outcome<Report> {
    let (columns, options) = (args.columns.clone(), args.read.options()?);
    let profile = blocking(move || {
        let input = std::io::stdin();
        let profiling = Profiling::of_stream("standard input", input, columns.as_deref(), &options)?;
        let _bar = Progress::follow("reading standard input", Unit::Stream, 0, profiling.rows_read(), None);
        profiling.run()
    });
    Ok(Report::new("standard input", Source::Stream, &profile.await?, None, None))
}

async fn of_table(target: &str, args: &Args) -> Outcome<Report> {
    let name = TableName::parse(target)?;
    args.read.none_for(&format!("{name}, a table of the node,"))?;
    let pool = args.pool.connect().await?;
    let rows_profiled = Arc::new(AtomicU64::new(0));
    let rows = pool.table(&name).await?.rows;
    let _bar = Progress::follow(format!("profiling {name}"), Unit::Rows, rows, rows_profiled.clone(), None);
    let found = farpool::profile_table(&*pool, &name, args.columns.as_deref(), &rows_profiled).await?;
    Ok(Report::new(target, Source::Pool, &found.profile, Some(&found.columns), Some(&found.info)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> farpool::Result<T> + Send + 'static,
) -> Outcome<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    Ok(joined.map_err(|error| Error::internal(format!("making the profile failed: {error}")))??)
}

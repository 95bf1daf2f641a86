//! `farpool sql`: runs statements on files, or on the tables of a node, and prints their rows.

use super::key_args::{CompressionArgs, EncryptionArgs};
use super::output::{self, Format};
use super::pool_args::{ClientArgs, SealArgs};
use super::read_args::ReadArgs;
use super::size;
use super::stop::{Outcome, Stop, file_error};
use super::terminal::printable_lines;
use farpool::model::limits;
use farpool::{
    ClientOptions, EmbeddedPool, Error, NearPool, Nearness, Pool, PoolUrl, Query, Receipt, RemotePool,
    ResultForm, Session, SessionOptions, Statement, WorkMemory,
};
use futures::StreamExt;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  farpool sql -c \"select count(*) from 'trips.parquet'\"
  farpool sql -c \"select city, avg(fare) from 'trips-*.csv' group by city\" --format csv > fares.csv
  farpool sql --pool farpool://node7:9797 -c \"select max(fare) from trips\" --receipt receipt.json
  farpool sql --pool farpool://node7:9797 --encrypt-results --node-key node7.pub -c \"select name from people\"
  farpool sql --pool farpool://node7:9797 --explain -c \"select * from trips where fare > 100\"
  farpool sql -c \"select * from read_csv('flights.csv.gz', nullstr = 'NA') limit 5\"
  farpool sql --pool farpool://node7:9797 --together -f dashboard.sql
  farpool sql --pool farpool://node7:9797 --cache 1GiB -f report.sql
  farpool sql --data-dir trips -c \"create table long as from 'trips.parquet' where fare > 100\"
  echo \"select 1; select 2\" | farpool sql

A file is a table: FROM 'x.parquet', 'x.csv.gz', 'x.json', 'x.arrow', a pattern such as 'x-*.parquet' or \
'x-{a,b}.csv', a folder, a URL (s3://, gs://, az://, https://), or read_csv('x.csv', nullstr = ['NA', ''], types = {'zip': 'text'}). \
Only the columns that the query needs are read, into a pool in this process; to look at the first rows, \
to count them, or if they do not fit, they are read as a stream instead. With --pool, other \
names are tables and views of that node; with --data-dir, they are those that statements before have made there.
With --format json a row is one object on a line; with arrow, each statement is one IPC stream. \
Several statements give their results one after the other.
The receipt is one JSON object: rows_scanned, rows_skipped, rows_known, rows_returned, rows_bypassed, \
bytes_scanned, bytes_skipped, bytes_from_disk, bytes_from_cache, bytes_shared, bytes_on_wire, bytes_saved, bytes_plain, encoding, \
encrypted, cpu_ns, waited_ns, elapsed_ns, \
operators: [{name, detail, answer, reason}]; of all statements together.";

/// The part of the memory for work that columns take which statements share.
const CACHE_PART: usize = 4;

/// Run SQL on files, or on the tables of a memory node
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A statement, or several with `;` between them; may be given more than once
    #[arg(short, long = "command", value_name = "SQL", conflicts_with = "file")]
    command: Vec<String>,

    /// Read the statements from a file; without -c and -f they come from standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Query the tables of this memory node
    #[arg(long, value_name = "URL")]
    pool: Option<PoolUrl>,

    #[command(flatten)]
    client: ClientArgs,

    #[command(flatten)]
    seal: SealArgs,

    /// Fetch columns as they are and do everything here, for comparison
    #[arg(long)]
    no_pushdown: bool,

    /// How rows come from the node: auto (packed where the network is slower than packing), plain, packed, or
    /// plain with buffers compressed by lz4 or zstd
    #[arg(long, value_name = "FORM", default_value_t)]
    results: ResultForm,

    /// Also say, on standard error, what the pool is asked to do, its answers, what is left to do here, what
    /// that should cost and, at the end, what came of it
    #[arg(long)]
    explain: bool,

    /// Run the statements together: they read tables as these are at one moment, some run while others are printed, and
    /// what several read alike is read once. One that changes something stands for itself
    #[arg(long)]
    together: bool,

    /// Keep columns of the node's tables in so much memory, and work on them here: those that statements return as they
    /// are, and others once what came of them is as much as they take; 0 for none [default: none, and with --together a
    /// quarter of --work-memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "pool")]
    cache: Option<usize>,

    /// End a statement that takes longer, such as 500ms, 30s or 5min; the node ends it by itself, too
    #[arg(long, value_name = "TIME", value_parser = size::parse_duration)]
    timeout: Option<Duration>,

    /// How to print the rows
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    /// Write what the statements cost to this file, as JSON
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,

    /// Keep the tables and views that statements make in this directory; those that are there can be queried
    #[arg(long, value_name = "DIR", conflicts_with = "pool")]
    data_dir: Option<PathBuf>,

    #[command(flatten)]
    encryption: EncryptionArgs,

    #[command(flatten)]
    compression: CompressionArgs,

    /// Memory for files that are queried; tables that are made without --pool may take as much again
    /// [default: half of what the machine has]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<usize>,

    /// Memory for joins, sorts, groups and whatever else is not a file; joins, sorts and groups that do not fit
    /// go to temporary files, which are encrypted [default: a quarter of what the machine has, no more than --memory]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    work_memory: Option<usize>,

    #[command(flatten)]
    read: ReadArgs,
}

/// Runs the statements in order and stops at the first that fails.
pub fn run(args: Args) -> Outcome {
    output::check(args.format)?;
    let texts = texts(&args)?;
    let receipt_file = args.receipt.as_deref().map(ReceiptFile::create).transpose()?;
    super::run_until_interrupted(async move {
        let statements = statements(&texts)?;
        let (session, files) = open_session(&args).await?;
        let mut printed = Printed { args: &args, is_first: true, receipt: Receipt::default() };
        if args.together {
            let mut batch = session.batch(statements);
            let mut start = Instant::now();
            while let Some(query) = batch.next().await {
                printed.print(&query?, start).await?;
                start = Instant::now();
            }
        } else {
            for statement in statements {
                let start = Instant::now();
                printed.print(&session.sql(statement).await?, start).await?;
            }
        }
        let receipt = printed.receipt;
        if args.read.is_given()? && !files.has_used_options() {
            eprintln!(
                "note: the flags about reading CSV and JSON (--null, --types, …) did nothing: no statement read a file \
                 without options of its own"
            );
        }
        receipt_file.map_or(Ok(()), |file| file.write(&receipt))
    })
}

fn texts(args: &Args) -> Outcome<Vec<String>> {
    if !args.command.is_empty() {
        return Ok(args.command.clone());
    }
    if let Some(path) = args.file.as_deref() {
        let text = std::fs::read_to_string(path).map_err(|error| file_error("read", path, &error))?;
        return Ok(vec![text]);
    }
    if std::io::stdin().is_terminal() {
        eprintln!("reading SQL from standard input; Ctrl-D ends it (see also: farpool sql --help)");
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Error::invalid(format!("cannot read standard input: {error}")))?;
    Ok(vec![text])
}

fn statements(texts: &[String]) -> Outcome<Vec<Statement>> {
    let mut statements = Vec::new();
    for text in texts {
        statements.extend(farpool::split_statements(text)?);
    }
    if statements.is_empty() {
        return Err(Stop::Failed(
            Error::invalid("there is no SQL statement to run")
                .advise("give one with -c \"select …\", in a file with -f, or on standard input"),
        ));
    }
    Ok(statements)
}

/// Returns the session, and the files that its statements name.
async fn open_session(args: &Args) -> Outcome<(Session, Arc<farpool::QueryFiles>)> {
    let rates = farpool::calibrated_rates();
    let work = WorkMemory::new(work_bytes(args));
    let mut options = SessionOptions {
        pushdown: !args.no_pushdown,
        rates,
        work: Some(work.clone()),
        timeout: args.timeout,
        ..SessionOptions::default()
    };
    if args.pool.is_none() {
        options.advice_without_tables = "name a file, as in FROM 'trips.parquet', or give a node with --pool";
    }
    let session = Session::new(options);
    if args.pool.is_none() {
        args.seal.refuse_without_pool()?;
    }
    if let Some(url) = &args.pool {
        let options = args.client.options(url)?;
        let sealed = args.seal.proof(url, options.token.as_deref())?;
        let options = ClientOptions { timeout: args.timeout, sealed, ..options };
        let remote = RemotePool::connect(url, options).await?.with_results(args.results);
        // What is read once needs no memory for a second time.
        let shared = args.together.then(|| (work.limit() / CACHE_PART).max(limits::NEAR_BYTES_MIN));
        let pool: Arc<dyn Pool> = match args.cache.or(shared).filter(|bytes| *bytes > 0) {
            Some(bytes) => {
                let transfer = farpool::transfer_over(url, &remote).await?;
                let near = NearPool::open(Arc::new(remote), bytes, work.clone(), Nearness::Auto)?;
                near.set_transfer(transfer);
                near
            }
            None => Arc::new(remote),
        };
        session.register_pool("farpool", pool).await?;
    }
    let memory_bytes = args.memory.unwrap_or_else(farpool::memory_bytes_default);
    if args.pool.is_none() {
        // Holds the tables that statements create.
        let own = match &args.data_dir {
            Some(path) => {
                let (key, tier) = args.encryption.load()?;
                let key = key.as_ref().map(|key| (key, tier));
                EmbeddedPool::open_durable_with(
                    memory_bytes,
                    work.clone(),
                    path,
                    key,
                    args.compression.get(),
                )?
            }
            None => EmbeddedPool::open_within(memory_bytes, work.clone())?,
        };
        session.register_pool("farpool", own).await?;
    }
    let files =
        farpool::QueryFiles::new(memory_bytes).with_work_memory(work).with_options(args.read.options()?);
    let files = files.on_load(|label, load| Box::new(super::load::watch(label, load)));
    let files = Arc::new(files);
    session.set_file_opener(files.clone());
    session.set_file_writer(Arc::new(farpool::CopyFiles));
    Ok((session, files))
}

/// Returns the limit of the work memory. A limit for the memory of files also limits the default for work
/// memory.
fn work_bytes(args: &Args) -> usize {
    args.work_memory.unwrap_or_else(|| {
        let most = args.memory.unwrap_or(usize::MAX).max(limits::WORK_BYTES_MIN);
        farpool::work_bytes_default().min(most)
    })
}

/// What statements print.
struct Printed<'a> {
    args: &'a Args,
    /// Whether no result has been printed yet.
    is_first: bool,
    /// What the statements have cost.
    receipt: Receipt,
}

impl Printed<'_> {
    /// Runs a statement that began at `start`, and prints its rows.
    async fn print(&mut self, query: &Query, start: Instant) -> Outcome {
        if self.args.explain {
            eprintln!("{}", printable_lines(query.explain().trim_end()));
        }
        let mut batches = query.execute().await?;
        let schema = query.schema().clone();
        let has_result = !schema.fields().is_empty();
        let mut rows = 0;
        if has_result {
            let mut writer = output::writer(self.args.format, &schema, self.is_first)?;
            while let Some(batch) = batches.next().await {
                let batch = batch?;
                rows += batch.num_rows();
                writer.write(&batch)?;
            }
            writer.finish()?;
            self.is_first = false;
        }
        drop(batches);
        match self.args.together {
            true => self.receipt.merge(&query.receipt()),
            false => add_receipt(&mut self.receipt, &query.receipt()),
        }
        if self.args.explain {
            eprint!("{}", printable_lines(&query.outcome()));
        }
        if self.args.format == Format::Table && has_result {
            let rows = size::counted(farpool::model::cast::u64_from(rows), "row");
            eprintln!("({rows}, {})", size::duration(start.elapsed()));
        }
        Ok(())
    }
}

/// Adds the receipt of one more statement. Statements run one after the other, so their elapsed times add up,
/// where those of one query's programs overlap.
fn add_receipt(total: &mut Receipt, more: &Receipt) {
    let elapsed_ns = total.elapsed_ns + more.elapsed_ns;
    total.merge(more);
    total.elapsed_ns = elapsed_ns;
}

/// The file for the receipt, opened before anything runs so that a bad path does not cost a query.
struct ReceiptFile {
    path: PathBuf,
    file: File,
}

impl ReceiptFile {
    fn create(path: &Path) -> Outcome<Self> {
        let file = File::create(path).map_err(|error| file_error("write", path, &error))?;
        Ok(ReceiptFile { path: path.to_path_buf(), file })
    }

    fn write(mut self, receipt: &Receipt) -> Outcome {
        let json =
            serde_json::to_string_pretty(receipt).map_err(|error| Error::internal(error.to_string()))?;
        writeln!(self.file, "{json}").map_err(|error| file_error("write", &self.path, &error).into())
    }
}

//! `farpool sql`: runs statements on files, or on the tables of a node, and prints their rows.

use super::config::Config;
use super::display_args::DisplayArgs;
use super::interrupts;
use super::output;
use super::printing::{Printer, add_receipt};
use super::session_args::{Opened, SessionArgs};
use super::stop::{Outcome, Stop, file_error};
use farpool::{Error, Receipt, Statement};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

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
Only the columns that the query needs are read, into a pool in this process; queries for the first rows or for a \
count, and files that do not fit, are read as a stream instead. With --pool, other \
names are tables and views of that node; with --data-dir, those that earlier statements created there.
On a terminal, the formats table and box cut long texts and omit columns in the middle so that lines fit, and \
show 40 rows, from both ends; on a pipe or in a file they are complete. --format json prints an array with an \
object per row for each statement, ndjson one object per line; arrow prints one IPC stream per statement. \
Results are printed in the order of the statements.
The receipt is one JSON object: rows_scanned, rows_skipped, rows_known, rows_returned, rows_bypassed, \
bytes_scanned, bytes_skipped, bytes_from_disk, bytes_again, bytes_from_cache, bytes_shared, bytes_on_wire, bytes_saved, bytes_plain, encoding, \
encrypted, cpu_ns, waited_ns, elapsed_ns, \
operators: [{name, detail, answer, reason}], lookups: [{table, rows, bytes, elapsed_ns}]; it is for all statements together.";

/// Run SQL on files or on the tables of a memory node
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// SQL statement, or several separated by `;`; repeatable
    #[arg(short, long = "command", value_name = "SQL", conflicts_with = "file")]
    command: Vec<String>,

    /// File with the statements [default: standard input, without -c]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    session: SessionArgs,

    /// Print on standard error what is pushed down, the pool's answers, the rest of the plan, the estimated costs and,
    /// at the end, the measured ones
    #[arg(long)]
    explain: bool,

    /// Run the statements as a batch: they read all tables as of one moment, run in parallel, and read once what
    /// several need. A statement that changes something runs by itself
    #[arg(long)]
    together: bool,

    #[command(flatten)]
    display: DisplayArgs,

    /// File for the receipt: the costs of the statements, as one JSON object
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
}

/// Runs the statements in order and stops at the first that fails.
pub fn run(args: Args) -> Outcome {
    output::check(args.display.format())?;
    let texts = texts(&args)?;
    let receipt_file = args.receipt.as_deref().map(ReceiptFile::create).transpose()?;
    super::run_until_interrupted(async move {
        let statements = statements(&texts)?;
        let Opened { session, files, timeout, .. } =
            args.session.open(&Config::read()?, args.together).await?;
        let printer = Printer {
            format: args.display.format(),
            fit: args.display.fit(),
            explains: args.explain,
            times: true,
        };
        let mut is_first = true;
        let mut receipt = Receipt::default();
        if args.together {
            let mut batch = session.batch(statements);
            let mut start = Instant::now();
            interrupts::begin_statement(timeout);
            while let Some(query) = batch.next().await {
                let query = query?;
                is_first &= !printer.print(&query, start, is_first).await?;
                receipt.merge(&query.receipt());
                start = Instant::now();
                interrupts::begin_statement(timeout);
            }
        } else {
            for statement in statements {
                let start = Instant::now();
                interrupts::begin_statement(timeout);
                let query = session.sql(statement).await?;
                is_first &= !printer.print(&query, start, is_first).await?;
                add_receipt(&mut receipt, &query.receipt());
            }
        }
        interrupts::begin_statement(None);
        if args.session.read.is_given()? && !files.has_used_options() {
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
        return Err(no_statement());
    }
    Ok(statements)
}

/// Returns the error for a script without statements.
pub fn no_statement() -> Stop {
    Stop::Failed(Error::invalid("there is no SQL statement to run").advise(
        "give one with -c \"select …\", in a file with -f, or on standard input (farpool sql --help)",
    ))
}

/// The file for the execution statistics. It is opened before anything runs, so that an invalid path is reported before
/// a query has run.
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

//! `farpool export`: writes a table of a node, or the rows of a query, to a file.

use super::output::print_text;
use super::pool_args::PoolArgs;
use super::size;
use super::stop::Outcome;
use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use farpool::{Session, SessionOptions};
use std::sync::Arc;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  farpool export trips trips.parquet
  farpool export trips trips.csv.gz --option \"null NA\"
  farpool export --query \"select * from trips where fare > 100\" large.csv
  farpool export trips s3://bucket/out/trips.parquet
  farpool export trips - --format csv | head

The format is set by --format or by the file's extension: .csv, .tsv, .json (one object per line), each also with .gz or \
.zst appended, .parquet, .arrow. The file appears under its name only when it is complete. Options are those of COPY in SQL.";

/// Write a table of a memory node to a file
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Table and file, or with --query only the file; `-` is standard output
    #[arg(value_name = "TABLE FILE", num_args = 1..=2, required = true)]
    names: Vec<String>,

    /// Export the result of this query instead of a table
    #[arg(long, value_name = "SQL")]
    query: Option<String>,

    /// File format: csv, tsv, json, parquet or arrow [default: by the file's extension]
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// Option of COPY, such as "delimiter ';'"; repeatable
    #[arg(long = "option", value_name = "NAME VALUE")]
    options: Vec<String>,

    #[command(flatten)]
    pool: PoolArgs,
}

/// Writes the file and prints the number of rows.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let start = Instant::now();
        let (statement, file) = args.statement()?;
        let session = Session::new(SessionOptions::default());
        session.set_file_writer(Arc::new(farpool::CopyFiles));
        session.register_pool("farpool", args.pool.connect().await?).await?;
        let batches = session.sql(statement.as_str()).await?.collect().await?;
        // Without a count, the rows themselves were written to standard output.
        let Some(count) = batches.first() else { return Ok(()) };
        let rows = count.column(0).as_primitive::<UInt64Type>().value(0);
        let (rows, took) = (size::counted(rows, "row"), size::duration(start.elapsed()));
        print_text(&format!("{file}: {rows} in {took}\n"))
    })
}

impl Args {
    /// Returns the COPY statement and the file.
    fn statement(&self) -> Outcome<(String, &str)> {
        let (source, file) = match (&self.query, self.names.as_slice()) {
            (Some(query), [file]) => (format!("({query})"), file),
            (None, [table, file]) => (format!("\"{}\"", table.replace('"', "\"\"")), file),
            (Some(_), _) => {
                return Err(super::stop::Stop::usage("there are a table and a query", "give one of them"));
            }
            (None, _) => {
                return Err(super::stop::Stop::usage(
                    "a table and a file are expected",
                    "write farpool export TABLE FILE",
                ));
            }
        };
        let target = match file.as_str() {
            "-" => "STDOUT".to_string(),
            file => format!("'{}'", file.replace('\'', "''")),
        };
        let format = self.format.iter().map(|format| format!("FORMAT '{}'", format.replace('\'', "''")));
        let options: Vec<String> = format.chain(self.options.iter().cloned()).collect();
        let options = if options.is_empty() { String::new() } else { format!(" ({})", options.join(", ")) };
        Ok((format!("COPY {source} TO {target}{options}"), file))
    }
}

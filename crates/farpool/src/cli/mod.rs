//! The commands of the program, one file each, and their common parts.
//!
//! Results are written to standard output, everything else to standard error. The exit status is 0, 1 (error in the
//! query or the data), 2 (error in the command line), 3 (the pool cannot be reached or failed) or 130 (Ctrl-C).

mod backup;
mod calibrate;
mod cancel;
mod check;
mod completions;
mod config;
mod demo;
mod display_args;
mod drop;
mod export;
mod gateway;
mod help;
mod interrupts;
mod key_args;
mod listening;
mod load;
mod man;
mod node_key;
mod output;
mod pool_args;
mod printing;
mod profile;
mod progress;
mod queries;
mod read_args;
mod restore;
mod rotate_key;
mod serve;
mod service_manager;
mod session_args;
mod shell;
mod signals;
mod sql;
mod status;
mod stop;
mod tables;
mod terminal;
mod token;

use clap::{Parser, Subcommand};
use farpool::{literals, size};
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;
use stop::{Outcome, Stop};

const EXAMPLES: &str = "\
Examples:
  farpool                                                 type SQL at a prompt
  farpool demo                                            measure push-down on generated data
  farpool sql -c \"select count(*) from 'trips.parquet'\"   query a file, no server needed
  farpool serve --memory 8GiB                             run a memory node
  farpool load trips 'trips-*.parquet'                    load a table into it
  farpool profile trips.parquet                           show statistics of its columns
  farpool sql --pool farpool://127.0.0.1:9797 -c \"select max(fare) from trips\"

Without a command, the shell starts. 'farpool help COMMAND' describes a command.

The pool is taken from --pool, the variable FARPOOL_POOL, or the configuration file
(~/.config/farpool/config.toml), in this order; the token from --token-file, FARPOOL_TOKEN, or the file.

Exit status: 0 on success; 1 for an error in the query or the data; 2 for an error in the command line;
3 if the pool cannot be reached or failed; 130 after Ctrl-C.";

/// A compressed memory pool that runs the first operators of a query next to the data.
#[derive(Parser, Debug)]
#[command(name = "farpool", version, after_help = EXAMPLES, propagate_version = true)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    /// The shell, if there is none
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::Args),
    Shell(shell::Args),
    Sql(sql::Args),
    Serve(serve::Args),
    Gateway(gateway::Args),
    Load(load::Args),
    Export(export::Args),
    Profile(profile::Args),
    Tables(tables::Args),
    Drop(drop::Args),
    Status(status::Args),
    Check(check::Args),
    RotateKey(rotate_key::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Queries(queries::Args),
    Cancel(cancel::Args),
    Token(token::Args),
    NodeKey(node_key::Args),
    Calibrate(calibrate::Args),
    Completions(completions::Args),
    Man(man::Args),
    Help(help::Args),
}

/// Parses the command line, runs the command and returns the exit status.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    let command = match cli.command {
        Some(command) => command,
        None => match shell::Args::alone() {
            Ok(args) => Command::Shell(args),
            Err(error) => error.exit(),
        },
    };
    let outcome = match command {
        Command::Demo(args) => demo::run(args),
        Command::Shell(args) => shell::run(args),
        Command::Sql(args) => sql::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Load(args) => load::run(args),
        Command::Export(args) => export::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Tables(args) => tables::run(args),
        Command::Drop(args) => drop::run(args),
        Command::Status(args) => status::run(args),
        Command::Check(args) => check::run(args),
        Command::RotateKey(args) => rotate_key::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Queries(args) => queries::run(args),
        Command::Cancel(args) => cancel::run(args),
        Command::Token(args) => token::run(args),
        Command::NodeKey(args) => node_key::run(args),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
        Command::Help(args) => help::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(),
    }
}

/// Starts logging to standard error: warnings and errors, unless `FARPOOL_LOG` sets another filter.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FARPOOL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| terminal::LogWriter)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .init();
}

/// Runs `work` until it is complete or Ctrl-C is pressed. Ctrl-C drops it, which cancels its statements at a node.
fn run_until_interrupted<W>(work: W) -> Outcome
where
    W: Future<Output = Outcome> + Send + 'static,
{
    let runtime = runtime()?;
    let outcome = interrupts::run(&runtime, work);
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Stop::from(farpool::Error::over_limit(format!("cannot start threads: {}", stop::reason(&error))))
    })
}

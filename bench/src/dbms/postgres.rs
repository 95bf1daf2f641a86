//! A PostgreSQL server (Debian's package) with its own data, which is removed with the value that represents it.
//!
//! Invariant: its CPU seconds never decrease, because processes that have ended count for the postmaster, which is the
//! parent of all others.

use super::Psql;
use crate::machine;
use anyhow::{Context, Result, anyhow, ensure};
use arrow::array::RecordBatch;
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The server's superuser, who may connect without a password, and the database.
const USER: &str = "postgres";

/// Settings of the server by name, as in `postgresql.conf`.
pub type Settings = BTreeMap<String, String>;

/// A running server on a port of this machine.
pub struct Postgres {
    folder: String,
    pub port: u16,
    /// Version of the server.
    pub version: String,
    postmaster: String,
}

impl Postgres {
    /// Starts a server with an empty database.
    ///
    /// # Errors
    /// Fails if PostgreSQL 15 is not installed.
    pub fn start(settings: &Settings) -> Result<Postgres> {
        ensure!(
            Path::new(PROGRAMS).join("initdb").exists(),
            "PostgreSQL 15 is not installed: run `cargo xtask rivals`, or install the package postgresql-15"
        );
        let made = as_server("mktemp").args(["-d", "/tmp/farpool-postgres-XXXXXX"]).output()?;
        let folder = String::from_utf8(made.stdout)?.trim_end().to_string();
        ensure!(made.status.success() && !folder.is_empty(), "cannot make a folder in /tmp");
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut postgres = Postgres { folder, port, version: String::new(), postmaster: String::new() };
        let data = postgres.data();
        let local = ["-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C.UTF-8", "-N"];
        run(server_program("initdb").args(["-D", &data]).args(local))?;
        let set = |(name, value): (&String, &String)| format!(" -c {name}='{value}'");
        let settings: String = settings.iter().map(set).collect();
        let options = format!("-k {} -h 127.0.0.1 -p {port}{settings}", postgres.folder);
        let log = format!("{}/log", postgres.folder);
        run(server_program("pg_ctl").args(["-D", &data, "-o", &options, "-l", &log, "-w", "start"]))
            .with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        let pid =
            fs::read_to_string(format!("{data}/postmaster.pid")).context("PostgreSQL has no process id")?;
        postgres.postmaster = pid.lines().next().unwrap_or_default().to_string();
        postgres.version = postgres.connect()?.value("SHOW server_version")?;
        Ok(postgres)
    }

    /// Opens a session.
    pub fn connect(&self) -> Result<Psql> {
        Psql::connect(self.port, USER)
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        format!("postgresql://{USER}@127.0.0.1:{}/{USER}", self.port)
    }

    /// Creates a table with the columns of a schema, and fills it with batches by COPY.
    pub fn create_table(
        &self,
        table: &str,
        schema: &Schema,
        batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
    ) -> Result<()> {
        let columns = schema.fields().iter().map(|field| {
            Ok(format!(
                "{} {}",
                field.name(),
                type_name(field.data_type()).with_context(|| field.name().clone())?
            ))
        });
        let columns = columns.collect::<Result<Vec<String>>>()?.join(", ");
        self.connect()?.run(&format!("CREATE TABLE {table} ({columns})"))?;
        let mut command = client_program("psql");
        command.args(["-X", "-q", "-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", USER, "-c"]);
        command.arg(format!("COPY {table} FROM STDIN (FORMAT csv)"));
        let mut psql =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("cannot start psql")?;
        let input = psql.stdin.take().context("psql has no input")?;
        let mut writer = WriterBuilder::new().with_header(false).build(input);
        let written = batches.into_iter().try_for_each(|batch| writer.write(&batch?));
        drop(writer);
        ensure!(psql.wait()?.success(), "COPY into {table} failed");
        Ok(written?)
    }

    /// Returns the CPU seconds of all of the server's processes, also of those that have ended.
    pub fn cpu_seconds(&self) -> Result<f64> {
        machine::cpu_seconds_of_tree(&self.postmaster).ok_or_else(|| anyhow!("PostgreSQL is not running"))
    }

    fn data(&self) -> String {
        format!("{}/data", self.folder)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The server may not have been started.
        let _ = run(server_program("pg_ctl").args(["-D", &self.data(), "-m", "immediate", "stop"]));
        let _ = as_server("rm").args(["-rf", &self.folder]).status();
    }
}

/// Returns PostgreSQL's name of a type.
fn type_name(data_type: &DataType) -> Result<String> {
    Ok(match data_type {
        DataType::Int32 => "integer".to_string(),
        DataType::Int64 => "bigint".to_string(),
        DataType::Float64 => "double precision".to_string(),
        DataType::Date32 => "date".to_string(),
        DataType::Decimal128(precision, scale) => format!("numeric({precision}, {scale})"),
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "text".to_string(),
        other => return Err(anyhow!("no table for PostgreSQL has a column of type {other}")),
    })
}

/// Returns a command that runs one of PostgreSQL's client programs.
pub fn client_program(name: &str) -> Command {
    Command::new(format!("{PROGRAMS}/{name}"))
}

/// Returns a command that runs one of the programs of PostgreSQL's server.
fn server_program(name: &str) -> Command {
    as_server(&format!("{PROGRAMS}/{name}"))
}

fn run(command: &mut Command) -> Result<()> {
    // A server that keeps running would keep a pipe for its output open, so that a reader of the pipe would wait.
    let status = command.stdout(Stdio::null()).status();
    let program = command
        .get_args()
        .chain([command.get_program()])
        .find(|word| word.to_string_lossy().starts_with(PROGRAMS));
    let program = program.unwrap_or(command.get_program()).display().to_string();
    ensure!(status.with_context(|| format!("cannot start {program}"))?.success(), "{program} failed");
    Ok(())
}

/// Returns a command that runs as the user `postgres` if this process is root, as which PostgreSQL's server refuses to
/// run.
fn as_server(program: &str) -> Command {
    let mut command = match rustix::process::getuid().is_root() {
        true => {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--", program]);
            command
        }
        false => Command::new(program),
    };
    command.current_dir("/");
    command
}

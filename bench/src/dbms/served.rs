//! A node in a process of its own that speaks PostgreSQL's protocol and, where this version of farpool can, Flight SQL.

use crate::process::Process;
use crate::{machine, places, pools};
use anyhow::{Context, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use farpool::{LoadMode, Pool};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The name that its clients give as user and as database: both are only shown.
const USER: &str = "farpool";

/// A node, whose process is killed when this value is dropped.
pub struct Served {
    process: Process,
    /// URL of its own protocol.
    pub url: String,
    pub postgres: SocketAddr,
    /// URL of Flight SQL; `None` if this version does not have it.
    pub flight: Option<String>,
}

impl Served {
    /// Starts a node with this much memory for tables and as work memory.
    pub fn start(threads: usize, memory_mib: usize, work_mib: usize) -> Result<Served> {
        let program = places::program()?;
        let help = Command::new(&program).args(["serve", "--help"]).output()?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--postgres", "127.0.0.1:0"]);
        if String::from_utf8_lossy(&help.stdout).contains("--flight") {
            command.args(["--flight", "127.0.0.1:0"]);
        }
        command.args(["--memory", &format!("{memory_mib}MiB"), "--work-memory", &format!("{work_mib}MiB")]);
        command.args(["--workers", &threads.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::start(&mut command)?;
        let line = process.first_line()?;
        let address = |scheme: &str| {
            line.split_whitespace()
                .find_map(|word| word.strip_prefix(scheme))
                .map(|rest| rest.trim_end_matches([',', ';']))
        };
        let with = |scheme: &str| address(scheme).map(|address| format!("{scheme}{address}"));
        let failed = || format!("the node did not start: {line}");
        Ok(Served {
            url: with("farpool://").with_context(failed)?,
            postgres: address("postgresql://").with_context(failed)?.parse()?,
            flight: with("grpc://"),
            process,
        })
    }

    /// Connects a client of the node's own protocol.
    pub async fn connect(&self) -> Result<Arc<dyn Pool>> {
        Ok(farpool::connect(&self.url, None).await?)
    }

    /// Returns the URL of PostgreSQL's protocol.
    pub fn postgres_url(&self) -> String {
        format!("postgresql://{USER}@{}/{USER}", self.postgres)
    }

    /// Loads a table, and waits until its profile is computed.
    pub async fn create_table(
        &self,
        table: &str,
        schema: SchemaRef,
        batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
    ) -> Result<()> {
        let pool = self.connect().await?;
        let reader = arrow::array::RecordBatchIterator::new(batches, schema);
        pools::load_from(reader, &*pool, table, LoadMode::Create.into(), None).await?;
        pools::await_profile(&*pool, table).await
    }

    /// Returns the CPU seconds of the process.
    pub fn cpu_seconds(&self) -> Result<f64> {
        machine::cpu_seconds_of(&self.process.id().to_string()).context("the node is not running")
    }
}

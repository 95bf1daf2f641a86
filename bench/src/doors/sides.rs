//! The sides of the suite `doors`: each is a client and its server.

use super::definition::{Client, Definition, Protocol, Query};
use crate::dbms::{Postgres, Served};
use crate::digest::Digest;
use crate::places;
use crate::pools;
use crate::rival::{Place, Rival, RivalDefinition, Statement};
use crate::suite::RivalResult;
use anyhow::{Context, Result, ensure};
use farpool::Session;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Name of farpool's own client.
pub const NATIVE: &str = "native";

/// The driver of all clients of other systems' protocols, and the folder of what they need.
const DRIVER: &str = "doors";

/// A server of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    Farpool,
    Postgres,
    /// DuckDB, with clients of its own.
    Duckdb,
}

impl Server {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Server::Farpool => "farpool",
            Server::Postgres => "PostgreSQL",
            Server::Duckdb => "DuckDB",
        }
    }
}

/// A client and its server.
#[derive(Clone, Debug)]
pub struct Side {
    pub client: String,
    pub server: Server,
    /// Whether the side runs the fetch and no other query.
    pub fetch_only: bool,
    way: Way,
}

/// The way in which a side runs a statement.
#[derive(Clone, Debug)]
enum Way {
    Native,
    /// One of the processes of clients, and the URL of the server.
    Client {
        process: usize,
        url: String,
    },
    /// One of the rivals, which are client and server.
    Rival {
        process: usize,
    },
}

/// All sides, and the processes of their clients.
pub struct Sides {
    pub all: Vec<Side>,
    pub rivals: Vec<RivalResult>,
    native: Arc<Session>,
    processes: Vec<Rival>,
    table: String,
}

/// The result of a query.
pub struct Fetched {
    pub ms: f64,
    pub rows: u64,
    /// The digest of the rows, if it was requested or costs nothing.
    pub digest: Option<Digest>,
}

impl Sides {
    /// Starts the clients that are installed.
    pub async fn start(
        definition: &Definition,
        served: &Served,
        postgres: Option<&Postgres>,
        file: &Path,
    ) -> Result<Sides> {
        let native = pools::session(served.connect().await?, true, definition.threads).await?;
        let native_side =
            Side { client: NATIVE.to_string(), server: Server::Farpool, fetch_only: false, way: Way::Native };
        let table = definition.table.name.clone();
        let mut sides =
            Sides { all: vec![native_side], rivals: Vec::new(), native, processes: Vec::new(), table };
        for client in &definition.clients {
            sides.start_client(client, served, postgres, definition.threads);
        }
        for name in &definition.rivals {
            sides.start_rival(name, file, definition.threads);
        }
        Ok(sides)
    }

    /// Starts a client, with a side for each server that it can speak with.
    fn start_client(
        &mut self,
        client: &Client,
        served: &Served,
        postgres: Option<&Postgres>,
        threads: usize,
    ) {
        let urls: Vec<(Server, String)> = match client.protocol {
            Protocol::Flight => served.flight.iter().map(|url| (Server::Farpool, url.clone())).collect(),
            Protocol::Postgres => {
                let postgres = postgres.map(|postgres| (Server::Postgres, postgres.url()));
                postgres.into_iter().chain([(Server::Farpool, served.postgres_url())]).collect()
            }
        };
        let started = if urls.is_empty() {
            Err(anyhow::anyhow!("this version of farpool does not speak Flight SQL"))
        } else {
            start(client, threads)
        };
        self.rivals.push(RivalResult::of(&client.name, &started, |process| process.version.clone()));
        let Ok(started) = started else { return };
        for (server, url) in urls {
            let way = Way::Client { process: self.processes.len(), url };
            let fetch_only = client.fetch_only;
            self.all.push(Side { client: client.name.clone(), server, fetch_only, way });
        }
        self.processes.push(started);
    }

    fn start_rival(&mut self, name: &str, file: &Path, threads: usize) {
        let started = RivalDefinition::named(name).and_then(|rival| {
            let mut rival = Rival::start(rival, threads)?;
            rival.load(&self.table, file)?;
            Ok(rival)
        });
        let name = format!("DuckDB behind {name}");
        self.rivals.push(RivalResult::of(&name, &started, |rival| rival.version.clone()));
        let Ok(rival) = started else { return };
        let way = Way::Rival { process: self.processes.len() };
        self.all.push(Side { client: name, server: Server::Duckdb, fetch_only: false, way });
        self.processes.push(rival);
    }

    /// Runs a query on a side.
    pub async fn fetch(&mut self, side: usize, query: &Query, has_digest: bool) -> Result<Fetched> {
        match &self.all[side].way {
            Way::Native => {
                let ran = pools::run(&self.native, &query.sql).await?;
                let digest = Digest::of(&ran.batches)?;
                Ok(Fetched { ms: ran.ms, rows: digest.rows, digest: Some(digest) })
            }
            Way::Client { process, url } => {
                let request =
                    json!({ "do": "fetch", "server": url, "statement": query.sql, "digest": has_digest });
                let ran = self.processes[*process].ask(&request)?;
                let rows = ran["rows"].as_u64().context("the client gave no number of rows")?;
                let ms = ran["ms"].as_f64().context("the client gave no time")?;
                let digest: Digest = serde_json::from_value(ran).context("the client gave no digest")?;
                Ok(Fetched { ms, rows, digest: has_digest.then_some(digest) })
            }
            Way::Rival { process } => {
                let statement =
                    Statement { text: &query.sql, table: &self.table, columns: &query.columns, clients: 1 };
                let (ms, digest) = self.processes[*process].run(&statement)?;
                Ok(Fetched { ms, rows: digest.rows, digest: Some(digest) })
            }
        }
    }

    /// Sends a request to the process of a side's client, with the URL of its server; `None` for other sides.
    pub fn ask(&mut self, side: usize, mut request: Value) -> Option<Result<Value>> {
        let Way::Client { process, url } = &self.all[side].way else { return None };
        request["server"] = Value::String(url.clone());
        Some(self.processes[*process].ask(&request))
    }
}

fn start(client: &Client, threads: usize) -> Result<Rival> {
    let definition = RivalDefinition {
        name: client.name.clone(),
        driver: DRIVER.to_string(),
        environment: DRIVER.to_string(),
        program: false,
        place: Place::Remote,
        dialects: Vec::new(),
        only: false,
        about: String::new(),
    };
    let python = definition.python()?;
    let driver = places::root().join(format!("bench/rivals/{DRIVER}_driver.py"));
    ensure!(driver.exists(), "{} is not there", driver.display());
    let mut command = Command::new(python);
    command.arg("-B").arg(driver).arg(&client.kind);
    Rival::run_by(definition, command, threads)
}

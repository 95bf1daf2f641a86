//! Small statements: one, or more clients that repeat a prepared statement with another key each time.

use super::definition::{Definition, Small};
use super::sides::{NATIVE, Server, Sides};
use super::tables::value_of;
use crate::dbms::{Postgres, Served, client_program};
use crate::pools::milliseconds;
use crate::random::{below, mixed};
use crate::{pools, stats, text};
use anyhow::{Context, Result, bail, ensure};
use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{Int32Type, Int64Type};
use farpool::{Parameters, Session, Statement};
use futures::future::try_join_all;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of PostgreSQL's own program for this.
const PGBENCH: &str = "pgbench";

/// Statements of some clients on one side.
#[derive(Clone, Debug, Serialize)]
pub struct SmallResult {
    pub client: String,
    pub server: Server,
    pub clients: usize,
    pub per_second: f64,
    /// Latency in milliseconds; pgbench tells its mean only.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub mean_ms: Option<f64>,
}

/// Runs small statements on all sides with each number of clients; notes tell which failed.
pub async fn measure(
    definition: &Definition,
    sides: &mut Sides,
    served: &Served,
    postgres: Option<&Postgres>,
    notes: &mut Vec<String>,
) -> Result<Vec<SmallResult>> {
    let small = &definition.small;
    let mut results = Vec::new();
    for &clients in &small.clients {
        text::progress(&format!("small statements of {clients} clients "));
        for side in 0..sides.all.len() {
            let (client, server) = (sides.all[side].client.clone(), sides.all[side].server);
            let measured = if client == NATIVE {
                Some(native(small, served, clients).await)
            } else if sides.all[side].fetch_only {
                None
            } else {
                of_client(small, sides, side, clients)
            };
            add(&mut results, measured, notes, &format!("{client}, {}, {clients} clients", server.name()));
        }
        let Some(postgres) = postgres else { continue };
        let servers = [
            (Server::Postgres, postgres.port, "postgres"),
            (Server::Farpool, served.postgres.port(), "farpool"),
        ];
        for (server, port, user) in servers {
            let measured = pgbench(small, definition.threads, (server, port, user), clients);
            add(
                &mut results,
                Some(measured),
                notes,
                &format!("pgbench, {}, {clients} clients", server.name()),
            );
        }
    }
    Ok(results)
}

fn add(
    results: &mut Vec<SmallResult>,
    measured: Option<Result<SmallResult>>,
    notes: &mut Vec<String>,
    name: &str,
) {
    match measured {
        Some(Ok(result)) => results.push(result),
        Some(Err(error)) => notes.push(format!("small statements, {name}: {error:#}")),
        None => {}
    }
}

/// Runs the statements of a client of another system's protocol; `None` for others.
fn of_client(small: &Small, sides: &mut Sides, side: usize, clients: usize) -> Option<Result<SmallResult>> {
    let request = json!({
        "do": "small",
        "statement": small.sql,
        "clients": clients,
        "seconds": small.seconds,
        "keys": small.accounts,
    });
    let ran = sides.ask(side, request)?;
    let (client, server) = (sides.all[side].client.clone(), sides.all[side].server);
    Some(ran.and_then(|ran| {
        let number = |name: &str| ran[name].as_f64().with_context(|| format!("the client gave no {name}"));
        Ok(SmallResult {
            client,
            server,
            clients,
            per_second: number("count")? / number("seconds")?,
            p50_ms: Some(number("p50_ms")?),
            p99_ms: Some(number("p99_ms")?),
            mean_ms: None,
        })
    }))
}

/// Runs the statements of farpool's own client, with a connection and a session each.
async fn native(small: &Small, served: &Served, clients: usize) -> Result<SmallResult> {
    let sql = small.sql.replace("{key}", "$1");
    let sessions = try_join_all((0..clients).map(|_| async {
        let session = pools::session(served.connect().await?, true, 1).await?;
        run(&session, &sql, 1).await?;
        anyhow::Ok(session)
    }));
    let sessions = sessions.await?;
    let end = Instant::now() + Duration::from_secs_f64(small.seconds);
    let start = Instant::now();
    let client = |(number, session): (usize, Arc<Session>)| {
        let (sql, accounts) = (sql.clone(), u64::from(small.accounts));
        tokio::spawn(async move {
            let (mut latencies, mut random) = (Vec::new(), mixed(number as u64));
            while Instant::now() < end {
                random = mixed(random.wrapping_add(1));
                let key = u32::try_from(below(random, accounts))? + 1;
                let sent = Instant::now();
                run(&session, &sql, key).await?;
                latencies.push(milliseconds(sent));
            }
            anyhow::Ok(latencies)
        })
    };
    let latencies = try_join_all(sessions.into_iter().enumerate().map(client)).await?;
    let elapsed_s = start.elapsed().as_secs_f64();
    let latencies: Vec<f64> = latencies.into_iter().collect::<Result<Vec<_>>>()?.concat();
    Ok(SmallResult {
        client: NATIVE.to_string(),
        server: Server::Farpool,
        clients,
        per_second: latencies.len() as f64 / elapsed_s,
        p50_ms: Some(stats::percentile(&latencies, 0.5)),
        p99_ms: Some(stats::percentile(&latencies, 0.99)),
        mean_ms: None,
    })
}

/// Runs a statement, and checks its value.
async fn run(session: &Session, sql: &str, key: u32) -> Result<()> {
    let parameters = Parameters::Numbered(vec![Arc::new(Int64Array::from(vec![i64::from(key)]))]);
    let batches = session.sql(Statement::from(sql).with_parameters(parameters)).await?.collect().await?;
    let value = batches.iter().find(|batch| batch.num_rows() == 1).and_then(|batch| {
        let column = batch.column(0);
        let short = column.as_primitive_opt::<Int32Type>().map(|column| i64::from(column.value(0)));
        short.or_else(|| column.as_primitive_opt::<Int64Type>().map(|column| column.value(0)))
    });
    ensure!(value == Some(value_of(key)), "the value of {key} is {value:?}");
    Ok(())
}

/// Runs PostgreSQL's own program with its built-in statement.
fn pgbench(
    small: &Small,
    threads: usize,
    (server, port, user): (Server, u16, &str),
    clients: usize,
) -> Result<SmallResult> {
    let mut command = client_program(PGBENCH);
    command.args(["-n", "-S", "-M", "prepared", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", user]);
    // pgbench counts in whole seconds.
    let seconds = small.seconds.max(1.0).round().to_string();
    command.args(["-T", &seconds, "-c", &clients.to_string(), "-j", &threads.min(clients).to_string(), user]);
    let ran = command.output().context("cannot start pgbench")?;
    let output = String::from_utf8_lossy(&ran.stdout);
    if !ran.status.success() {
        bail!("pgbench failed: {}", String::from_utf8_lossy(&ran.stderr).trim());
    }
    let number = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
            .with_context(|| format!("pgbench did not tell its {name}: {output}"))
    };
    Ok(SmallResult {
        client: PGBENCH.to_string(),
        server,
        clients,
        per_second: number("tps = ")?,
        p50_ms: None,
        p99_ms: None,
        mean_ms: Some(number("latency average = ")?),
    })
}
